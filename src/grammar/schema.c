/* schema.c: see schema.h. What each keyword means follows the order of interpretation that the
 * engines share: references, unions, literals, types, then what keywords imply. */
#include "grammar/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/rules.h"

/* ---- Errors and names ---- */

bool qn__schema_fail(qn_schema *s, const char *path, const char *format, ...)
{
    if (s->status == QN_OK) {
        char message[300];
        va_list args;
        va_start(args, format);
        vsnprintf(message, sizeof message, format, args);
        va_end(args);
        s->status = qn__error(s->err, QN_ERR_FORMAT,
                              "JSON schema conversion failed:\nJSON schema error at %.150s: %s",
                              path, message);
    }
    return false;
}

bool qn__schema_no_memory(qn_schema *s)
{
    if (s->status == QN_OK) {
        s->status = qn__error_memory(s->err, "JSON schema");
    }
    return false;
}

static bool too_large(qn_schema *s)
{
    if (s->status == QN_OK) {
        s->status = qn__error(s->err, QN_ERR_LIMIT,
                              "JSON schema conversion failed:\nthe grammar grows too large");
    }
    return false;
}

void qn__schema_warn(qn_schema *s, const char *path, const char *what)
{
    if (s->warnings.size < 2000) {
        qn__buf_printf(&s->warnings, "%s%.150s: %s", s->warnings.size > 0 ? "; " : "", path, what);
    }
}

const char *qn__schema_path(qn_schema *s, const char *path, const char *key)
{
    qn_buf text = {0};
    qn__buf_printf(&text, "%.400s/%.100s", path, key);
    const char *made =
        text.failed ? NULL : qn__arena_strndup(&s->arena, (const char *)text.data, text.size);
    qn__buf_free(&text);
    return made ? made : "#";
}

const char *qn__schema_name(qn_schema *s, const char *base, const char *suffix)
{
    char name[96], tried[128];
    int n = snprintf(name, sizeof name, "%.60s%.30s", base, suffix);
    for (int i = 0; i < n && i < (int)sizeof name - 1; i++) {
        char c = name[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        name[i] = fine ? c : '-';
    }
    snprintf(tried, sizeof tried, "%s", name);
    if (json_object_get(s->names, tried)) {
        snprintf(tried, sizeof tried, "%s-%zu", name, json_object_size(s->names));
    }
    while (json_object_get(s->names, tried)) {
        snprintf(tried + strlen(tried), sizeof tried - strlen(tried), "-");
        if (strlen(tried) + 1 >= sizeof tried) {
            too_large(s);
            return NULL;
        }
    }
    const char *made = qn__arena_strndup(&s->arena, tried, strlen(tried));
    if (!made || json_object_set_new(s->names, made, json_true()) != 0) {
        qn__schema_no_memory(s);
        return NULL;
    }
    return made;
}

const char *qn__schema_rule(qn_schema *s, json_t *json, const char *base, const char *path)
{
    char address[32];
    snprintf(address, sizeof address, "%p", (void *)json);
    json_t *known = json_object_get(s->known, address);
    if (known) {
        return json_string_value(known);
    }
    if (s->n_queue >= QN_SCHEMA_NODES_MAX || s->out.size > QN_SCHEMA_TEXT_MAX) {
        too_large(s);
        return NULL;
    }
    const char *name = qn__schema_name(s, base, "");
    json_t *value = name ? json_string(name) : NULL;
    if (!value || json_object_set(s->known, address, value) != 0 ||
        !qn__grow(&s->queue, &s->queue_room, s->n_queue + 1, sizeof *s->queue)) {
        json_decref(value);
        qn__schema_no_memory(s);
        return NULL;
    }
    json_decref(value);
    s->queue[s->n_queue++] = (qn_schema_node){json, name, path};
    return name;
}

/* Keeps a node that was made here. NULL without memory. */
static json_t *own(qn_schema *s, json_t *json)
{
    if (!json || json_array_append_new(s->owned, json) != 0) {
        qn__schema_no_memory(s);
        return NULL;
    }
    return json;
}

/* ---- Parts ---- */

/* A list of alternatives, each a rule. */
static bool write_union(qn_schema *s, const qn_schema_node *node, json_t *list, const char *key)
{
    const char *path = qn__schema_path(s, node->path, key);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return qn__schema_fail(s, node->path, "%s must be an array and must not be empty", key);
    }
    qn_buf body = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        const char *rule = qn__schema_rule(s, json_array_get(list, i), node->name,
                                           qn__schema_path(s, path, index));
        ok = rule && qn__buf_printf(&body, "%s%s", i > 0 ? " | " : "", rule);
    }
    if (ok) {
        qn__buf_printf(&s->out, "%s ::= %.*s\n", node->name, (int)body.size,
                       (const char *)body.data);
    } else if (s->status == QN_OK) {
        qn__schema_no_memory(s);
    }
    qn__buf_free(&body);
    return ok;
}

/* The node once for each type. */
static bool write_types(qn_schema *s, const qn_schema_node *node, json_t *types)
{
    json_t *list = own(s, json_array());
    if (!list) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        json_t *copy = json_copy(node->json);
        if (!copy || json_object_set(copy, "type", json_array_get(types, i)) != 0 ||
            json_array_append_new(list, copy) != 0) {
            return qn__schema_no_memory(s);
        }
    }
    return write_union(s, node, list, "type");
}

static bool write_literals(qn_schema *s, const qn_schema_node *node, json_t *values)
{
    if (!json_is_array(values) || json_array_size(values) == 0) {
        return qn__schema_fail(s, node->path, "enum must be an array and must not be empty");
    }
    qn__buf_printf(&s->out, "%s ::= ", node->name);
    for (size_t i = 0; i < json_array_size(values); i++) {
        qn_buf text = {0};
        bool ok = qn__json_compact(&text, json_array_get(values, i));
        qn__buf_add_text(&s->out, i > 0 ? " | " : "");
        qn__gbnf_quote(&s->out, (const char *)text.data, text.size);
        qn__buf_free(&text);
        if (!ok) {
            return qn__schema_no_memory(s);
        }
        if (s->out.size > QN_SCHEMA_TEXT_MAX) {
            return too_large(s);
        }
    }
    qn__buf_add_text(&s->out, "\n");
    return true;
}

/* A count that may be missing: *out stays. */
static bool read_count(qn_schema *s, const qn_schema_node *node, const char *key, int64_t *out)
{
    json_t *value = json_object_get(node->json, key);
    if (value && (!json_is_integer(value) || json_integer_value(value) < 0)) {
        return qn__schema_fail(s, node->path, "%s must be a non-negative integer", key);
    }
    *out = value ? json_integer_value(value) : *out;
    return true;
}

static bool read_counts(qn_schema *s, const qn_schema_node *node, const char *low_key,
                        const char *high_key, int64_t *low, int64_t *high)
{
    *low = 0;
    *high = -1; /* no end */
    if (!read_count(s, node, low_key, low) || !read_count(s, node, high_key, high)) {
        return false;
    }
    if (*high >= 0 && *low > *high) {
        return qn__schema_fail(s, node->path, "%s exceeds %s", low_key, high_key);
    }
    return true;
}

static void add_repeat(qn_buf *out, int64_t low, int64_t high)
{
    if (high < 0) {
        qn__buf_printf(out, "{%lld,}", (long long)low);
    } else {
        qn__buf_printf(out, "{%lld,%lld}", (long long)low, (long long)high);
    }
}

/* ---- Arrays ---- */

static bool write_tuple(qn_schema *s, const qn_schema_node *node, json_t *items, const char *path)
{
    qn_buf body = {0};
    bool ok = true;
    size_t n = json_array_size(items);
    for (size_t i = 0; ok && i < n; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        const char *rule = qn__schema_rule(s, json_array_get(items, i), node->name,
                                           qn__schema_path(s, path, index));
        ok = rule && qn__buf_printf(&body, "%s%s", i > 0 ? " \",\" space " : "", rule);
    }
    if (ok) {
        qn__buf_printf(&s->out, "%s ::= \"[\" space %.*s%s \"]\"\n", node->name, (int)body.size,
                       n > 0 ? (const char *)body.data : "", n > 0 ? " space" : "");
    } else if (s->status == QN_OK) {
        qn__schema_no_memory(s);
    }
    qn__buf_free(&body);
    return ok;
}

static bool write_array(qn_schema *s, const qn_schema_node *node)
{
    json_t *items = json_object_get(node->json, "items");
    const char *key = items ? "items" : "prefixItems";
    items = items ? items : json_object_get(node->json, "prefixItems");
    const char *path = qn__schema_path(s, node->path, key);
    if (json_is_array(items)) {
        return write_tuple(s, node, items, path);
    }
    const char *item = items ? qn__schema_rule(s, items, node->name, path) : "value";
    int64_t low, high;
    if (!item || !read_counts(s, node, "minItems", "maxItems", &low, &high)) {
        return false;
    }
    qn__buf_printf(&s->out, "%s ::= \"[\" space", node->name);
    if (high != 0) {
        qn__buf_printf(&s->out, " ( %s ( \",\" space %s )", item, item);
        add_repeat(&s->out, low > 0 ? low - 1 : 0, high > 0 ? high - 1 : -1);
        qn__buf_printf(&s->out, " space )%s", low == 0 ? "?" : "");
    }
    qn__buf_add_text(&s->out, " \"]\"\n");
    return true;
}

/* ---- Strings ---- */

/* The rule of a format that is known, or NULL. */
static const char *format_rule(json_t *format)
{
    static const char *const rules[][2] = {
        {"date", "date-string"},  {"time", "time-string"},  {"date-time", "date-time-string"},
        {"uuid", "uuid-string"},  {"uuid1", "uuid-string"}, {"uuid2", "uuid-string"},
        {"uuid3", "uuid-string"}, {"uuid4", "uuid-string"}, {"uuid5", "uuid-string"}};
    const char *name = json_string_value(format);
    for (size_t i = 0; name && i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(name, rules[i][0]) == 0) {
            return rules[i][1];
        }
    }
    return NULL;
}

static bool write_pattern(qn_schema *s, const qn_schema_node *node, json_t *pattern)
{
    const char *why = NULL;
    bool invalid = false;
    qn_buf text = {0};
    bool ok = qn__schema_pattern(&text, json_string_value(pattern), json_string_length(pattern),
                                 &invalid, &why);
    if (text.failed) {
        qn__schema_no_memory(s);
    } else if (invalid) {
        qn__schema_fail(s, node->path, "Invalid pattern %.120s: %s", json_string_value(pattern),
                        why);
    } else if (ok) {
        qn__buf_printf(&s->out, "%s ::= ", node->name);
        qn__buf_add(&s->out, text.data, text.size);
        qn__buf_add_text(&s->out, "\n");
    } else {
        qn__schema_warn(s, node->path, why);
        qn__buf_printf(&s->out, "%s ::= string\n", node->name);
    }
    qn__buf_free(&text);
    return s->status == QN_OK;
}

static bool write_string(qn_schema *s, const qn_schema_node *node)
{
    json_t *pattern = json_object_get(node->json, "pattern");
    json_t *format = json_object_get(node->json, "format");
    int64_t low, high;
    if (pattern && !json_is_string(pattern)) {
        return qn__schema_fail(s, node->path, "pattern must be a string");
    }
    if (pattern) {
        return write_pattern(s, node, pattern);
    }
    if (format_rule(format)) {
        qn__buf_printf(&s->out, "%s ::= %s\n", node->name, format_rule(format));
        return true;
    }
    if (format) {
        qn__schema_warn(s, node->path, "the format is not known");
    }
    if (!read_counts(s, node, "minLength", "maxLength", &low, &high)) {
        return false;
    }
    qn__buf_printf(&s->out, "%s ::= \"\\\"\" char", node->name);
    add_repeat(&s->out, low, high);
    qn__buf_add_text(&s->out, " \"\\\"\"\n");
    return true;
}

/* ---- Integers ---- */

/* The bound that two keys give; *is_set stays false where there is none. up: a lower bound. */
static bool read_bound(qn_schema *s, const qn_schema_node *node, const char *inclusive,
                       const char *exclusive, bool up, int64_t *out, bool *is_set)
{
    json_t *value = json_object_get(node->json, inclusive);
    json_t *strict = json_object_get(node->json, exclusive);
    if ((value && !json_is_number(value)) || (strict && !json_is_number(strict))) {
        return qn__schema_fail(s, node->path, "%s must be a number",
                               value && !json_is_number(value) ? inclusive : exclusive);
    }
    bool is_strict = !value;
    value = value ? value : strict;
    *is_set = value != NULL;
    if (!value) {
        return true;
    }
    int64_t bound;
    bool exact = true;
    if (json_is_integer(value)) {
        bound = json_integer_value(value);
    } else {
        double real = json_real_value(value), rounded = up ? ceil(real) : floor(real);
        exact = real == rounded;
        bound = rounded >= 9e18    ? INT64_MAX - 1
                : rounded <= -9e18 ? INT64_MIN + 1
                                   : (int64_t)rounded;
    }
    if (is_strict && exact) {
        bound += up ? bound < INT64_MAX : -(int64_t)(bound > INT64_MIN);
    }
    *out = bound;
    return true;
}

static bool write_integer(qn_schema *s, const qn_schema_node *node)
{
    int64_t low = 0, high = 0;
    bool has_low, has_high;
    if (!read_bound(s, node, "minimum", "exclusiveMinimum", true, &low, &has_low) ||
        !read_bound(s, node, "maximum", "exclusiveMaximum", false, &high, &has_high)) {
        return false;
    }
    if (has_low && has_high && low > high) {
        return qn__schema_fail(s, node->path, "minimum exceeds maximum");
    }
    qn__buf_printf(&s->out, "%s ::= ", node->name);
    if (has_low || has_high) {
        qn__schema_integers(&s->out, has_low ? &low : NULL, has_high ? &high : NULL);
    } else {
        qn__buf_add_text(&s->out, "integer");
    }
    qn__buf_add_text(&s->out, "\n");
    return true;
}

/* ---- Objects ---- */

typedef struct property_list {
    qn_property *items;
    size_t n, room;
} property_list;

/* The members of `properties`; of equal keys the first stays. */
static bool add_properties(qn_schema *s, property_list *list, json_t *seen, json_t *properties,
                           const char *path, json_t *required, bool all_required)
{
    const char *key;
    size_t size;
    json_t *value;
    path = qn__schema_path(s, path, "properties");
    if (!json_is_object(properties)) {
        return qn__schema_fail(s, path, "properties must be an object");
    }
    json_object_keylen_foreach(properties, key, size, value)
    {
        if (json_object_getn(seen, key, size)) {
            continue;
        }
        if (json_object_setn_new(seen, key, size, json_true()) != 0 ||
            !qn__grow(&list->items, &list->room, list->n + 1, sizeof *list->items)) {
            return qn__schema_no_memory(s);
        }
        list->items[list->n++] =
            (qn_property){key, size, value, qn__schema_path(s, path, key),
                          all_required || json_object_getn(required, key, size) != NULL};
    }
    return true;
}

static bool write_object(qn_schema *s, const qn_schema_node *node)
{
    json_t *properties = json_object_get(node->json, "properties");
    json_t *additional = json_object_get(node->json, "additionalProperties");
    json_t *names = json_object_get(node->json, "required"), *name;
    property_list list = {0};
    size_t i;
    if (additional && !json_is_boolean(additional) && !json_is_object(additional)) {
        return qn__schema_fail(s, node->path,
                               "additionalProperties must be a boolean or an object");
    }
    if (!properties && (!additional || json_is_true(additional))) {
        qn__buf_printf(&s->out, "%s ::= object\n", node->name);
        return true;
    }
    json_t *required = json_object(), *seen = json_object();
    bool ok = (required && seen) || qn__schema_no_memory(s);
    json_array_foreach(names, i, name)
    {
        if (ok && json_is_string(name)) {
            ok = json_object_setn_new(required, json_string_value(name), json_string_length(name),
                                      json_true()) == 0 ||
                 qn__schema_no_memory(s);
        }
    }
    if (ok && properties) {
        ok = add_properties(s, &list, seen, properties, node->path, required, false);
    }
    if (ok && json_is_true(additional)) {
        additional = own(s, json_object());
        ok = additional != NULL;
    }
    ok = ok && qn__schema_object(s, node->name, node->path, list.items, list.n,
                                 json_is_object(additional) ? additional : NULL);
    json_decref(required);
    json_decref(seen);
    free(list.items);
    return ok;
}

/* ---- allOf ---- */

typedef struct branch {
    json_t *json;
    bool optional; /* inside an anyOf */
} branch;

typedef struct merge {
    branch *branches;
    size_t n, room;
    property_list list;
    json_t *seen;  /* keys */
    json_t *enums; /* what all enums so far have in common; NULL: none was met */
} merge;

static bool add_branches(qn_schema *s, merge *m, json_t *list, bool optional)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (m->n >= 10000) {
            return too_large(s);
        }
        if (!qn__grow(&m->branches, &m->room, m->n + 1, sizeof *m->branches)) {
            return qn__schema_no_memory(s);
        }
        m->branches[m->n++] = (branch){json_array_get(list, i), optional};
    }
    return true;
}

static bool merge_enum(qn_schema *s, merge *m, json_t *values)
{
    if (!m->enums) {
        m->enums = json_copy(values);
        return m->enums || qn__schema_no_memory(s);
    }
    for (size_t i = json_array_size(m->enums); i-- > 0;) {
        bool has = false;
        for (size_t k = 0; !has && k < json_array_size(values); k++) {
            has = json_equal(json_array_get(m->enums, i), json_array_get(values, k));
        }
        if (!has) {
            json_array_remove(m->enums, i);
        }
    }
    return true;
}

static bool merge_branch(qn_schema *s, merge *m, branch b, const char *path)
{
    json_t *ref;
    for (int depth = 0; (ref = json_object_get(b.json, "$ref")) != NULL; depth++) {
        b.json = qn__schema_resolve(s, ref, path);
        if (!b.json || depth > 100) {
            return qn__schema_fail(s, path, "$ref leads in circles");
        }
    }
    if (!json_is_object(b.json)) {
        return qn__schema_fail(s, path, "schema must be an object");
    }
    json_t *properties = json_object_get(b.json, "properties");
    json_t *values = json_object_get(b.json, "enum");
    if (properties && !add_properties(s, &m->list, m->seen, properties, path, NULL, !b.optional)) {
        return false;
    }
    if (json_is_array(values) && !b.optional && !merge_enum(s, m, values)) {
        return false;
    }
    return add_branches(s, m, json_object_get(b.json, "allOf"), b.optional) &&
           add_branches(s, m, json_object_get(b.json, "anyOf"), true);
}

static bool write_all_of(qn_schema *s, const qn_schema_node *node)
{
    const char *path = qn__schema_path(s, node->path, "allOf");
    json_t *list = json_object_get(node->json, "allOf");
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return qn__schema_fail(s, node->path, "allOf must be an array and must not be empty");
    }
    merge m = {.seen = json_object()};
    bool ok = (m.seen || qn__schema_no_memory(s)) && add_branches(s, &m, list, false);
    for (size_t i = 0; ok && i < m.n; i++) {
        ok = merge_branch(s, &m, m.branches[i], path);
    }
    if (ok && m.enums) {
        ok = write_literals(s, node, m.enums);
    } else if (ok) {
        ok = qn__schema_object(s, node->name, node->path, m.list.items, m.list.n, NULL);
    }
    json_decref(m.seen);
    json_decref(m.enums);
    free(m.branches);
    free(m.list.items);
    return ok;
}

/* ---- Nodes ---- */

static bool write_simple(qn_schema *s, const qn_schema_node *node, const char *rule)
{
    qn__buf_printf(&s->out, "%s ::= %s\n", node->name, rule);
    return true;
}

static bool write_type(qn_schema *s, const qn_schema_node *node, const char *type)
{
    json_t *json = node->json;
    bool all_of = json_object_get(json, "allOf") != NULL;
    if (strcmp(type, "object") == 0) {
        return all_of && !json_object_get(json, "properties") ? write_all_of(s, node)
                                                              : write_object(s, node);
    }
    if (strcmp(type, "string") == 0) {
        return all_of ? write_all_of(s, node) : write_string(s, node);
    }
    if (strcmp(type, "array") == 0) {
        return write_array(s, node);
    }
    if (strcmp(type, "integer") == 0) {
        return write_integer(s, node);
    }
    if (strcmp(type, "number") == 0 || strcmp(type, "boolean") == 0 || strcmp(type, "null") == 0) {
        return write_simple(s, node, type);
    }
    return qn__schema_fail(s, node->path, "unrecognized type %.100s", type);
}

/* A node without a type: what its keywords imply. */
static bool write_implied(qn_schema *s, const qn_schema_node *node)
{
    json_t *json = node->json, *additional = json_object_get(json, "additionalProperties");
    if (json_object_get(json, "properties") || (additional && !json_is_true(additional))) {
        return write_object(s, node);
    }
    if (json_object_get(json, "allOf")) {
        return write_all_of(s, node);
    }
    if (json_object_get(json, "items") || json_object_get(json, "prefixItems")) {
        return write_array(s, node);
    }
    if (json_object_get(json, "pattern") || json_object_get(json, "minLength") ||
        json_object_get(json, "maxLength") || format_rule(json_object_get(json, "format"))) {
        return write_string(s, node);
    }
    return write_simple(s, node, "value");
}

static bool write_reference(qn_schema *s, const qn_schema_node *node, json_t *ref)
{
    json_t *target = qn__schema_resolve(s, ref, node->path);
    if (!target) {
        return false;
    }
    const char *text = json_string_value(ref), *last = strrchr(text, '/');
    char base[64];
    snprintf(base, sizeof base, "ref-%.50s", last ? last + 1 : "root");
    const char *rule = qn__schema_rule(s, target, base, text);
    return rule && write_simple(s, node, rule);
}

static bool write_node(qn_schema *s, const qn_schema_node *node)
{
    json_t *json = node->json, *value;
    if (!json_is_object(json)) {
        return qn__schema_fail(s, node->path, "schema must be an object");
    }
    if ((value = json_object_get(json, "$ref"))) {
        return write_reference(s, node, value);
    }
    if ((value = json_object_get(json, "oneOf"))) {
        return write_union(s, node, value, "oneOf");
    }
    if ((value = json_object_get(json, "anyOf"))) {
        return write_union(s, node, value, "anyOf");
    }
    json_t *type = json_object_get(json, "type");
    if (json_is_array(type)) {
        return json_array_size(type) > 0 ? write_types(s, node, type)
                                         : qn__schema_fail(s, node->path, "type must not be empty");
    }
    if ((value = json_object_get(json, "const"))) {
        json_t *one = own(s, json_array());
        return one && (json_array_append(one, value) == 0 || qn__schema_no_memory(s)) &&
               write_literals(s, node, one);
    }
    if ((value = json_object_get(json, "enum"))) {
        return write_literals(s, node, value);
    }
    if (type && !json_is_string(type)) {
        return qn__schema_fail(s, node->path, "type must be a string or an array of strings");
    }
    return type ? write_type(s, node, json_string_value(type)) : write_implied(s, node);
}

/* ---- The whole ---- */

/* Rules that others lean on. */
static const struct {
    const char *name, *body;
} primitives[] = {
    {"space", "| \" \" | \"\\n\"{1,2} [ \\t]{0,20}"},
    {"char", "[^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ( [\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4} )"},
    {"string", "\"\\\"\" char* \"\\\"\""},
    {"integral-part", "\"0\" | [1-9] [0-9]{0,15}"},
    {"decimal-part", "[0-9]{1,16}"},
    {"integer", "\"-\"? integral-part"},
    {"number", "\"-\"? integral-part ( \".\" decimal-part )? ( [eE] [-+]? integral-part )?"},
    {"boolean", "\"true\" | \"false\""},
    {"null", "\"null\""},
    {"object", "\"{\" space ( string \":\" space value ( \",\" space string \":\" space value )* "
               "space )? \"}\""},
    {"array", "\"[\" space ( value ( \",\" space value )* space )? \"]\""},
    {"value", "object | array | string | number | boolean | null"},
    {"date", "[0-9]{4} \"-\" ( \"0\" [1-9] | \"1\" [0-2] ) \"-\" ( \"0\" [1-9] | [12] [0-9] | "
             "\"3\" [01] )"},
    {"time", "( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] \":\" [0-5] [0-9] ( \".\" [0-9]{3} "
             ")? ( \"Z\" | [-+] ( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9] )"},
    {"date-time", "date \"T\" time"},
    {"date-string", "\"\\\"\" date \"\\\"\""},
    {"time-string", "\"\\\"\" time \"\\\"\""},
    {"date-time-string", "\"\\\"\" date-time \"\\\"\""},
    {"uuid", "[0-9a-fA-F]{8} ( \"-\" [0-9a-fA-F]{4} ){3} \"-\" [0-9a-fA-F]{12}"},
    {"uuid-string", "\"\\\"\" uuid \"\\\"\""},
};

#define N_PRIMITIVES (sizeof primitives / sizeof primitives[0])

static bool convert(qn_schema *s)
{
    s->names = json_object();
    s->known = json_object();
    s->owned = json_array();
    if (!s->names || !s->known || !s->owned) {
        return qn__schema_no_memory(s);
    }
    for (size_t i = 0; i < N_PRIMITIVES; i++) {
        if (!qn__schema_name(s, primitives[i].name, "")) {
            return false;
        }
    }
    if (!qn__schema_rule(s, s->root, "root", "#")) {
        return false;
    }
    for (size_t i = 0; i < s->n_queue; i++) {
        qn_schema_node node = s->queue[i];
        if (!write_node(s, &node)) {
            return false;
        }
    }
    for (size_t i = 0; i < N_PRIMITIVES; i++) {
        qn__buf_printf(&s->out, "%s ::= %s\n", primitives[i].name, primitives[i].body);
    }
    qn__buf_terminate(&s->out);
    return !s->out.failed || qn__schema_no_memory(s);
}

static void take_warnings(qn_schema *s, char **warnings)
{
    if (warnings && s->warnings.size > 0) {
        qn_buf line = {0};
        qn__buf_printf(&line, "JSON schema conversion was incomplete: %.*s", (int)s->warnings.size,
                       (const char *)s->warnings.data);
        qn__buf_terminate(&line);
        *warnings = line.failed ? NULL : qn__strndup((const char *)line.data, line.size);
        qn__buf_free(&line);
    }
}

qn_status qn_grammar_from_schema(const char *json, size_t size, char **text, char **warnings,
                                 qn_error *err)
{
    json_error_t why;
    qn_schema s = {.err = err};
    *text = NULL;
    if (warnings) {
        *warnings = NULL;
    }
    if (size > QN_SCHEMA_TEXT_MAX) {
        return qn__error(err, QN_ERR_LIMIT, "JSON schema: %zu bytes, %d are allowed", size,
                         QN_SCHEMA_TEXT_MAX);
    }
    s.root = json_loadb(json, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (!s.root) {
        return qn__error(err, QN_ERR_FORMAT,
                         "JSON schema conversion failed:\nno JSON: %s at line %d, column %d",
                         why.text, why.line, why.column);
    }
    if (convert(&s)) {
        *text = qn__strndup((const char *)s.out.data, s.out.size);
        s.status = *text ? QN_OK : qn__error_memory(err, "JSON schema");
    }
    if (s.status == QN_OK) {
        take_warnings(&s, warnings);
    }
    json_decref(s.names);
    json_decref(s.known);
    json_decref(s.owned);
    json_decref(s.root);
    free(s.queue);
    qn__arena_free(&s.arena);
    qn__buf_free(&s.out);
    qn__buf_free(&s.warnings);
    return s.status;
}

void qn_grammar_text_free(char *text)
{
    free(text);
}
