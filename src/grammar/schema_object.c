/* schema_object.c: objects: declared properties in a fixed order, then further ones whose names are
 * none of the declared. */
#include <stdlib.h>
#include <string.h>

#include "grammar/rules.h"
#include "grammar/schema.h"

/* ---- Names that are not declared ---- */

/* A tree of the declared names as JSON spells them, one character or escape a step. Names come
 * sorted, so that a shared beginning is always the last child. */
typedef struct name_node {
    char unit[8];
    uint8_t size;
    bool final; /* a name ends here */
    uint32_t child, last_child, sibling;
} name_node;

typedef struct name_tree {
    name_node *nodes; /* 0 is the root */
    size_t n, room;
} name_tree;

/* Bytes of the first character or escape. */
static size_t unit_size(const char *text, size_t size)
{
    size_t n = 1;
    if (text[0] == '\\') {
        n = size > 1 && text[1] == 'u' ? 6 : 2;
    } else {
        while (n < size && ((uint8_t)text[n] & 0xC0) == 0x80) {
            n++;
        }
    }
    return n < size ? n : size;
}

static bool tree_add(name_tree *t, const char *name, size_t size)
{
    uint32_t at = 0;
    while (size > 0) {
        size_t n = unit_size(name, size);
        uint32_t last = t->nodes[at].last_child;
        if (last == 0 || t->nodes[last].size != n || memcmp(t->nodes[last].unit, name, n) != 0) {
            if (t->n >= QN_GRAMMAR_ELEMENTS_MAX ||
                !qn__grow(&t->nodes, &t->room, t->n + 1, sizeof *t->nodes)) {
                return false;
            }
            uint32_t made = (uint32_t)t->n++;
            t->nodes[made] = (name_node){.size = (uint8_t)n};
            memcpy(t->nodes[made].unit, name, n);
            if (last == 0) {
                t->nodes[at].child = made;
            } else {
                t->nodes[last].sibling = made;
            }
            t->nodes[at].last_child = last = made;
        }
        at = last;
        name += n;
        size -= n;
    }
    t->nodes[at].final = true;
    return true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool tree_make(qn_schema *s, name_tree *t, const qn_property *list, size_t n)
{
    char **names = qn__calloc(n + 1, sizeof *names);
    bool ok = names && qn__grow(&t->nodes, &t->room, 1, sizeof *t->nodes);
    if (ok) {
        t->nodes[0] = (name_node){0};
        t->n = 1;
    }
    for (size_t i = 0; ok && i < n; i++) {
        qn_buf spelled = {0};
        qn__json_escape(&spelled, list[i].key, list[i].key_size);
        names[i] = qn__arena_strndup(&s->arena, (const char *)spelled.data, spelled.size);
        ok = names[i] && !spelled.failed;
        qn__buf_free(&spelled);
    }
    if (ok) {
        qsort(names, n, sizeof *names, by_text);
    }
    for (size_t i = 0; ok && i < n; i++) {
        ok = tree_add(t, names[i], strlen(names[i]));
    }
    free(names);
    return ok || qn__schema_no_memory(s);
}

/* A character as it stands in a set. */
static void add_set_char(qn_buf *out, const char *unit, size_t size)
{
    if (size == 1 && strchr("-[]^", unit[0]) != NULL) {
        qn__buf_printf(out, "\\x%02X", (unsigned)(uint8_t)unit[0]);
    } else {
        qn__buf_add(out, unit, size);
    }
}

/* The characters and escapes that leave the tree at this node. */
static void add_other(qn_buf *out, const name_tree *t, const name_node *node)
{
    char letters[] = "\"\\bfnrtu";
    qn__buf_add_text(out, "( [^\"\\\\\\x7F\\x00-\\x1F");
    for (uint32_t c = node->child; c != 0; c = t->nodes[c].sibling) {
        const name_node *child = &t->nodes[c];
        char *letter = child->unit[0] == '\\' ? strchr(letters, child->unit[1]) : NULL;
        if (letter) {
            memmove(letter, letter + 1, strlen(letter));
        } else if (child->unit[0] != '\x7F') {
            add_set_char(out, child->unit, child->size);
        }
    }
    qn__buf_add_text(out, "]");
    char *u = strchr(letters, 'u');
    if (u) {
        *u = '\0';
        qn__buf_add_text(out, " | \"\\\\u\" [0-9a-fA-F]{4}");
    }
    if (letters[0]) {
        qn__buf_add_text(out, " | \"\\\\\" [");
        for (const char *l = letters; *l; l++) {
            qn__buf_printf(out, "%s%c", strchr("\"\\", *l) ? "\\" : "", *l);
        }
        qn__buf_add_text(out, "]");
    }
    qn__buf_add_text(out, " )");
}

/* Rules for a key that is none of the declared names; *name gets the first one's. */
static bool write_other_key(qn_schema *s, const char *base, const qn_property *list, size_t n,
                            const char **name)
{
    name_tree t = {0};
    const char **names = NULL;
    bool ok = tree_make(s, &t, list, n);
    if (ok) {
        names = qn__calloc(t.n, sizeof *names);
        ok = names || qn__schema_no_memory(s);
    }
    for (size_t i = 0; ok && i < t.n; i++) {
        names[i] = qn__schema_name(s, base, "-other");
        ok = names[i] != NULL;
    }
    *name = ok ? qn__schema_name(s, base, "-other-key") : NULL;
    ok = *name != NULL;
    if (ok) {
        qn__buf_printf(&s->out, "%s ::= \"\\\"\" %s \"\\\"\"\n", *name, names[0]);
    }
    for (size_t i = 0; ok && i < t.n; i++) {
        const name_node *node = &t.nodes[i];
        qn__buf_printf(&s->out, "%s ::= %s", names[i], node->final ? "" : "| ");
        add_other(&s->out, &t, node);
        qn__buf_add_text(&s->out, " char*");
        for (uint32_t c = node->child; c != 0; c = t.nodes[c].sibling) {
            qn__buf_add_text(&s->out, " | ");
            qn__gbnf_quote(&s->out, t.nodes[c].unit, t.nodes[c].size);
            qn__buf_printf(&s->out, " %s", names[c]);
        }
        qn__buf_add_text(&s->out, "\n");
    }
    free(names);
    free(t.nodes);
    return ok;
}

/* ---- The object ---- */

/* A rule for `"key" : value`. NULL on failure. */
static const char *name_pair(qn_schema *s, const char *name, const qn_property *p)
{
    char key[64];
    snprintf(key, sizeof key, "-%.40s-kv", p->key);
    return qn__schema_name(s, name, key);
}

static bool write_pair(qn_schema *s, const char *pair, const char *name, const qn_property *p)
{
    qn_buf base = {0}, key = {0};
    qn__buf_printf(&base, "%s-%.40s", name, p->key);
    qn__buf_terminate(&base);
    const char *value =
        base.failed ? NULL : qn__schema_rule(s, p->json, (const char *)base.data, p->path);
    qn__buf_free(&base);
    if (!value) {
        return s->status == QN_OK ? qn__schema_no_memory(s) : false;
    }
    qn__buf_add_byte(&key, '"');
    qn__json_escape(&key, p->key, p->key_size);
    qn__buf_add_byte(&key, '"');
    qn__buf_printf(&s->out, "%s ::= ", pair);
    qn__gbnf_quote(&s->out, (const char *)key.data, key.size);
    qn__buf_printf(&s->out, " space \":\" space %s\n", value);
    bool ok = !key.failed;
    qn__buf_free(&key);
    return ok || qn__schema_no_memory(s);
}

/* A rule for a further property; *pair gets its name. */
static bool write_other_pair(qn_schema *s, const char *name, const char *path,
                             const qn_property *list, size_t n, json_t *additional,
                             const char **pair)
{
    const char *key = "string";
    if (n > 0 && !write_other_key(s, name, list, n, &key)) {
        return false;
    }
    const char *value =
        qn__schema_rule(s, additional, name, qn__schema_path(s, path, "additionalProperties"));
    *pair = value ? qn__schema_name(s, name, "-additional-kv") : NULL;
    if (!*pair) {
        return false;
    }
    qn__buf_printf(&s->out, "%s ::= %s \":\" space %s\n", *pair, key, value);
    return true;
}

/* What is being written: `order` holds the required pairs first, then the optional ones; `rests`
 * what may follow each optional one. */
typedef struct object_parts {
    const char **order, **rests;
    size_t n_required, n;
    const char *other; /* pair of a further property, or NULL */
} object_parts;

/* "a a-rest | b b-rest | other …", the ways to begin the optional part. */
static void add_beginnings(qn_buf *out, const object_parts *o)
{
    for (size_t i = o->n_required; i < o->n; i++) {
        qn__buf_printf(out, "%s%s %s", i > o->n_required ? " | " : "", o->order[i], o->rests[i]);
    }
    if (o->other) {
        qn__buf_printf(out, "%s%s ( \",\" space %s )*", o->n > o->n_required ? " | " : "", o->other,
                       o->other);
    }
}

static void write_body(qn_schema *s, const char *name, const object_parts *o)
{
    qn_buf *out = &s->out;
    bool optional = o->n > o->n_required || o->other;
    qn__buf_printf(out, "%s ::= \"{\" space", name);
    for (size_t i = 0; i < o->n_required; i++) {
        qn__buf_printf(out, "%s %s", i > 0 ? " \",\" space" : "", o->order[i]);
    }
    if (optional && o->n_required > 0) {
        qn__buf_add_text(out, " ( \",\" space ( ");
        add_beginnings(out, o);
        qn__buf_add_text(out, " ) )?");
    } else if (optional) {
        qn__buf_add_text(out, " ( ( ");
        add_beginnings(out, o);
        qn__buf_add_text(out, " ) space )?");
    }
    qn__buf_add_text(out, o->n_required > 0 ? " space \"}\"\n" : " \"}\"\n");
    /* after optional property i: each of the later ones may come */
    for (size_t i = o->n_required; i < o->n; i++) {
        qn__buf_printf(out, "%s ::= ", o->rests[i]);
        if (i + 1 < o->n) {
            qn__buf_printf(out, "( \",\" space %s )? %s\n", o->order[i + 1], o->rests[i + 1]);
        } else if (o->other) {
            qn__buf_printf(out, "( \",\" space %s )*\n", o->other);
        } else {
            qn__buf_add_text(out, "\"\"\n");
        }
    }
}

bool qn__schema_object(qn_schema *s, const char *name, const char *path, const qn_property *list,
                       size_t n, json_t *additional)
{
    object_parts o = {.order = qn__calloc(n + 1, sizeof(char *)),
                      .rests = qn__calloc(n + 1, sizeof(char *)),
                      .n = n};
    const qn_property **sorted = qn__calloc(n + 1, sizeof *sorted);
    bool ok = (o.order && o.rests && sorted) || qn__schema_no_memory(s);
    size_t at = 0;
    for (int optional = 0; ok && optional < 2; optional++) {
        for (size_t i = 0; ok && i < n; i++) {
            if (list[i].required == !optional) {
                sorted[at] = &list[i];
                o.order[at] = name_pair(s, name, &list[i]);
                o.rests[at] = optional ? qn__schema_name(s, name, "-rest") : name;
                ok = o.order[at] && o.rests[at];
                o.n_required += !optional;
                at++;
            }
        }
    }
    if (ok && additional) {
        ok = write_other_pair(s, name, path, list, n, additional, &o.other);
    }
    if (ok) {
        write_body(s, name, &o);
    }
    for (size_t i = 0; ok && i < n; i++) {
        ok = write_pair(s, o.order[i], name, sorted[i]);
    }
    free(o.order);
    free(o.rests);
    free(sorted);
    return ok;
}
