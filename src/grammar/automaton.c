/* automaton.c: see automaton.h. */
#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* ---- Tables ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDU;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53U;
    return x ^ x >> 33;
}

static bool table_resize(qn_table *t, size_t slots)
{
    qn_table next = {qn__calloc(slots, sizeof(uint64_t)), qn__calloc(slots, sizeof(uint32_t)),
                     slots - 1, t->count};
    if (!next.keys || !next.values) {
        free(next.keys);
        free(next.values);
        return false;
    }
    for (size_t i = 0; t->keys && i <= t->mask; i++) {
        if (t->keys[i] != 0) {
            size_t slot = mix(t->keys[i]) & next.mask;
            while (next.keys[slot] != 0) {
                slot = (slot + 1) & next.mask;
            }
            next.keys[slot] = t->keys[i];
            next.values[slot] = t->values[i];
        }
    }
    free(t->keys);
    free(t->values);
    *t = next;
    return true;
}

bool qn__table_reserve(qn_table *t)
{
    if (t->keys && 2 * (t->count + 1) <= t->mask + 1) {
        return true;
    }
    return table_resize(t, t->keys ? 2 * (t->mask + 1) : 64);
}

void qn__table_free(qn_table *t)
{
    free(t->keys);
    free(t->values);
    *t = (qn_table){0};
}

size_t qn__table_slot(const qn_table *t, uint64_t key)
{
    size_t slot = mix(key) & t->mask;
    while (t->keys[slot] != 0 && t->keys[slot] != key) {
        slot = (slot + 1) & t->mask;
    }
    return slot;
}

void qn__table_set(qn_table *t, size_t slot, uint64_t key, uint32_t value)
{
    t->keys[slot] = key;
    t->values[slot] = value;
    t->count++;
}

/* ---- Bounds ---- */

bool qn__automaton_no_memory(qn_automaton *a)
{
    a->status = qn__error_memory(&a->error, "states of a grammar");
    return false;
}

bool qn__automaton_too_much(qn_automaton *a)
{
    a->status = qn__error(&a->error, QN_ERR_LIMIT,
                          "the grammar is too ambiguous to follow: too many ways to read the text");
    return false;
}

void qn__automaton_begin(qn_automaton *a, uint64_t work)
{
    a->status = QN_OK;
    a->work = work;
}

bool qn__automaton_is_large(const qn_automaton *a)
{
    return a->n_nodes > QN_NODES_MAX / 2 || a->n_members > QN_MEMBERS_MAX / 2 ||
           a->steps.count > QN_NODES_MAX;
}

/* ---- Nodes ---- */

/* The node (at, next), made if it is new. */
static bool node_of(qn_automaton *a, uint32_t at, uint32_t next, uint32_t *node)
{
    uint64_t key = (uint64_t)at << 32 | next; /* at > 0 */
    if (!qn__table_reserve(&a->node_table)) {
        return qn__automaton_no_memory(a);
    }
    size_t slot = qn__table_slot(&a->node_table, key);
    if (a->node_table.keys[slot] == key) {
        *node = a->node_table.values[slot];
        return true;
    }
    if (a->n_nodes >= QN_NODES_MAX) {
        return qn__automaton_too_much(a);
    }
    if (!qn__grow(&a->nodes, &a->nodes_room, (size_t)a->n_nodes + 1, sizeof *a->nodes) ||
        !qn__grow(&a->stamps, &a->stamps_room, (size_t)a->n_nodes + 1, sizeof *a->stamps)) {
        return qn__automaton_no_memory(a);
    }
    a->nodes[a->n_nodes] = (qn_node){at, next};
    a->stamps[a->n_nodes] = 0;
    qn__table_set(&a->node_table, slot, key, a->n_nodes);
    *node = a->n_nodes++;
    return true;
}

/* ---- Expansion ---- */

static void expansion_begin(qn_automaton *a)
{
    if (++a->stamp == 0) {
        memset(a->stamps, 0, a->n_nodes * sizeof *a->stamps);
        a->stamp = 1;
    }
    a->n_open = a->n_found = 0;
}

static bool open_node(qn_automaton *a, uint32_t node)
{
    if (a->stamps[node] == a->stamp) {
        return true;
    }
    a->stamps[node] = a->stamp;
    if (!qn__grow(&a->open, &a->open_room, (size_t)a->n_open + 1, sizeof *a->open)) {
        return qn__automaton_no_memory(a);
    }
    a->open[a->n_open++] = node;
    return true;
}

/* The stack with position `at` on top of `next`; at the end of an alternative, what is below. */
static bool open_position(qn_automaton *a, uint32_t at, uint32_t next)
{
    uint32_t node = next;
    if (!qn__element_is_end(&a->rules->elements[at]) && !node_of(a, at, next, &node)) {
        return false;
    }
    return open_node(a, node);
}

static bool add_found(qn_automaton *a, uint32_t node)
{
    if (a->n_found >= QN_STACKS_MAX) {
        return qn__automaton_too_much(a);
    }
    if (!qn__grow(&a->found, &a->found_room, (size_t)a->n_found + 1, sizeof *a->found)) {
        return qn__automaton_no_memory(a);
    }
    a->found[a->n_found++] = node;
    return true;
}

/* A reference on top: what follows it is put below, and each alternative of the rule on top. */
static bool open_rule(qn_automaton *a, qn_node node)
{
    const qn_rule *rule = &a->rules->rules[a->rules->elements[node.at].value];
    uint32_t below = node.next;
    if (!qn__element_is_end(&a->rules->elements[node.at + 1]) &&
        !node_of(a, node.at + 1, node.next, &below)) {
        return false;
    }
    for (uint32_t i = 0; i < rule->n_starts; i++) {
        if (!open_position(a, a->rules->starts[rule->first_start + i], below)) {
            return false;
        }
    }
    return true;
}

/* Until every open stack has a character or token on top, or is empty. */
static bool expand(qn_automaton *a)
{
    bool ok = true;
    while (ok && a->n_open > 0) {
        uint32_t top = a->open[--a->n_open];
        qn_node node = a->nodes[top];
        if (++a->work > QN_STEP_WORK_MAX) {
            return qn__automaton_too_much(a);
        }
        if (top != 0 && a->rules->elements[node.at].kind == QN_ELEMENT_RULE) {
            ok = open_rule(a, node);
        } else {
            ok = add_found(a, top);
        }
    }
    return ok;
}

/* ---- States ---- */

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

static void sort_nodes(uint32_t *nodes, uint32_t n)
{
    if (n > 24) {
        qsort(nodes, n, sizeof *nodes, by_number);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t node = nodes[i], j = i;
        for (; j > 0 && nodes[j - 1] > node; j--) {
            nodes[j] = nodes[j - 1];
        }
        nodes[j] = node;
    }
}

static uint64_t hash_nodes(const uint32_t *nodes, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) {
        hash = mix(hash ^ (nodes[i] + 0x9E3779B97F4A7C15U));
    }
    return hash | 1; /* never the key of a free slot */
}

static qn_state describe(const qn_automaton *a, const uint32_t *nodes, uint32_t n)
{
    qn_state s = {a->n_members, n, nodes[0] == 0, false};
    for (uint32_t i = s.complete; i < n; i++) {
        uint32_t kind = a->rules->elements[a->nodes[nodes[i]].at].kind;
        s.tokens |= kind == QN_ELEMENT_TOKEN || kind == QN_ELEMENT_NOT_TOKEN;
    }
    return s;
}

/* The state of the nodes that were found, made if it is new. */
static uint32_t state_of_found(qn_automaton *a)
{
    uint32_t n = a->n_found;
    if (n == 0) {
        return QN_STATE_NONE;
    }
    sort_nodes(a->found, n);
    if (!qn__table_reserve(&a->state_table)) {
        qn__automaton_no_memory(a);
        return QN_STATE_NONE;
    }
    qn_table *t = &a->state_table;
    uint64_t key = hash_nodes(a->found, n);
    size_t slot = mix(key) & t->mask;
    for (; t->keys[slot] != 0; slot = (slot + 1) & t->mask) {
        const qn_state *s = &a->states[t->values[slot]];
        if (t->keys[slot] == key && s->count == n &&
            memcmp(a->members + s->first, a->found, n * sizeof *a->found) == 0) {
            return t->values[slot];
        }
    }
    if (a->n_members + n > QN_MEMBERS_MAX) {
        qn__automaton_too_much(a);
        return QN_STATE_NONE;
    }
    if (!qn__grow(&a->members, &a->members_room, (size_t)a->n_members + n, sizeof *a->members) ||
        !qn__grow(&a->states, &a->states_room, (size_t)a->n_states + 1, sizeof *a->states)) {
        qn__automaton_no_memory(a);
        return QN_STATE_NONE;
    }
    a->states[a->n_states] = describe(a, a->found, n);
    memcpy(a->members + a->n_members, a->found, n * sizeof *a->found);
    a->n_members += n;
    qn__table_set(t, slot, key, a->n_states);
    return a->n_states++;
}

static uint32_t finish(qn_automaton *a, bool ok)
{
    return ok && expand(a) ? state_of_found(a) : QN_STATE_NONE;
}

uint32_t qn__automaton_join(qn_automaton *a, uint32_t x, uint32_t y)
{
    const uint32_t both[2] = {x, y};
    bool ok = true;
    expansion_begin(a);
    for (size_t k = 0; k < 2; k++) {
        qn_state s = a->states[both[k]];
        for (uint32_t i = 0; ok && i < s.count; i++) {
            ok = open_node(a, a->members[s.first + i]);
        }
    }
    return finish(a, ok);
}

uint32_t qn__automaton_carry(qn_automaton *to, const qn_automaton *from, uint32_t state)
{
    const qn_state *s = &from->states[state];
    bool ok = true;
    expansion_begin(to);
    for (uint32_t i = 0; ok && i < s->count; i++) {
        /* the stack from its top down, then built from its bottom up */
        to->n_open = 0;
        for (uint32_t n = from->members[s->first + i]; ok && n != 0; n = from->nodes[n].next) {
            ok = qn__grow(&to->open, &to->open_room, (size_t)to->n_open + 1, sizeof(uint32_t)) ||
                 qn__automaton_no_memory(to);
            if (ok) {
                to->open[to->n_open++] = from->nodes[n].at;
            }
        }
        uint32_t node = 0;
        while (ok && to->n_open > 0) {
            ok = node_of(to, to->open[--to->n_open], node, &node);
        }
        ok = ok && add_found(to, node);
    }
    to->n_open = 0;
    return ok ? state_of_found(to) : QN_STATE_NONE;
}

/* ---- Steps ---- */

static bool in_ranges(const qn_rules *r, const qn_set *s, uint32_t cp)
{
    if (s->count == 0) { /* maybe there are no ranges at all */
        return false;
    }
    const qn_range *ranges = r->ranges + s->first;
    uint32_t low = 0, high = s->count; /* the first range that ends at cp or later */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges[middle].high < cp) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < s->count && ranges[low].low <= cp;
}

static bool fits(const qn_rules *r, const qn_element *e, uint32_t cp)
{
    if (e->kind == QN_ELEMENT_CHAR) {
        return e->value == cp;
    }
    if (e->kind != QN_ELEMENT_SET) {
        return false;
    }
    const qn_set *s = &r->sets[e->value];
    return in_ranges(r, s, cp) != s->negated;
}

static uint32_t class_of(const qn_automaton *a, uint32_t cp)
{
    uint32_t low = 0, high = a->n_classes; /* the last class that begins at cp or before */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (a->classes[middle] <= cp) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t qn__automaton_step(qn_automaton *a, uint32_t state, uint32_t code_point)
{
    if (state == QN_STATE_NONE) {
        return QN_STATE_NONE;
    }
    uint32_t class = class_of(a, code_point);
    uint64_t key = (uint64_t)state << 32 | class;
    if (!qn__table_reserve(&a->steps)) {
        qn__automaton_no_memory(a);
        return QN_STATE_NONE;
    }
    size_t slot = qn__table_slot(&a->steps, key);
    if (a->steps.keys[slot] == key) {
        return a->steps.values[slot];
    }
    qn_state s = a->states[state];
    uint32_t cp = a->classes[class];
    bool ok = true;
    expansion_begin(a);
    a->work += s.count;
    for (uint32_t i = s.complete; ok && i < s.count; i++) {
        qn_node node = a->nodes[a->members[s.first + i]];
        if (fits(a->rules, &a->rules->elements[node.at], cp)) {
            ok = open_position(a, node.at + 1, node.next);
        }
    }
    uint32_t next = finish(a, ok);
    if (a->status == QN_OK) {
        qn__table_set(&a->steps, slot, key, next);
    }
    return next;
}

uint32_t qn__automaton_step_token(qn_automaton *a, uint32_t state, uint32_t token)
{
    qn_state s = a->states[state];
    bool ok = true;
    if (!s.tokens) {
        return QN_STATE_NONE;
    }
    expansion_begin(a);
    for (uint32_t i = s.complete; ok && i < s.count; i++) {
        qn_node node = a->nodes[a->members[s.first + i]];
        const qn_element *e = &a->rules->elements[node.at];
        if ((e->kind == QN_ELEMENT_TOKEN && e->value == token) ||
            (e->kind == QN_ELEMENT_NOT_TOKEN && e->value != token)) {
            ok = open_position(a, node.at + 1, node.next);
        }
    }
    return finish(a, ok);
}

/* Whether [low, high] and the ranges of a set meet. */
static bool ranges_meet(const qn_rules *r, const qn_set *s, uint32_t low, uint32_t high)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const qn_range *range = &r->ranges[s->first + i];
        if (range->low <= high && range->high >= low) {
            return true;
        }
    }
    return false;
}

bool qn__automaton_expects(const qn_automaton *a, uint32_t state, uint32_t low, uint32_t high)
{
    const qn_rules *r = a->rules;
    const qn_state *s = &a->states[state];
    for (uint32_t i = s->complete; i < s->count; i++) {
        const qn_element *e = &r->elements[a->nodes[a->members[s->first + i]].at];
        if (e->kind == QN_ELEMENT_CHAR && e->value >= low && e->value <= high) {
            return true;
        }
        if (e->kind == QN_ELEMENT_SET &&
            ranges_meet(r, &r->sets[e->value], low, high) != r->sets[e->value].negated) {
            return true;
        }
    }
    return false;
}

/* ---- Making ---- */

/* Where the code points that the grammar tells apart begin. */
static bool find_classes(qn_automaton *a)
{
    const qn_rules *r = a->rules;
    size_t room = 2 * ((size_t)r->n_elements + r->n_ranges) + 1, n = 0;
    uint32_t *bounds = qn__calloc(room, sizeof *bounds);
    if (!bounds) {
        return qn__automaton_no_memory(a);
    }
    bounds[n++] = 0;
    for (uint32_t i = 0; i < r->n_elements; i++) {
        if (r->elements[i].kind == QN_ELEMENT_CHAR) {
            bounds[n++] = r->elements[i].value;
            bounds[n++] = r->elements[i].value + 1;
        }
    }
    for (uint32_t i = 0; i < r->n_ranges; i++) {
        bounds[n++] = r->ranges[i].low;
        bounds[n++] = r->ranges[i].high + 1;
    }
    qsort(bounds, n, sizeof *bounds, by_number);
    for (size_t i = 0; i < n; i++) {
        if (bounds[i] < QN_POINTS_END &&
            (a->n_classes == 0 || bounds[a->n_classes - 1] != bounds[i])) {
            bounds[a->n_classes++] = bounds[i];
        }
    }
    a->classes = bounds;
    return true;
}

static bool find_start(qn_automaton *a)
{
    const qn_rule *root = &a->rules->rules[a->rules->root];
    bool ok = true;
    expansion_begin(a);
    for (uint32_t i = 0; ok && i < root->n_starts; i++) {
        ok = open_position(a, a->rules->starts[root->first_start + i], 0);
    }
    a->start = finish(a, ok);
    return a->status == QN_OK;
}

qn_status qn__automaton_make(qn_automaton *a, const qn_rules *rules, qn_error *err)
{
    *a = (qn_automaton){.rules = rules};
    bool ok = qn__grow(&a->nodes, &a->nodes_room, 1, sizeof *a->nodes) &&
              qn__grow(&a->stamps, &a->stamps_room, 1, sizeof *a->stamps) &&
              qn__grow(&a->states, &a->states_room, 1, sizeof *a->states);
    if (ok) {
        a->nodes[0] = (qn_node){0, 0};
        a->stamps[0] = 0;
        a->states[0] = (qn_state){0};
        a->n_nodes = a->n_states = 1;
        ok = find_classes(a) && find_start(a);
    } else {
        qn__automaton_no_memory(a);
    }
    if (!ok) {
        qn__error(err, a->status, "%s", a->error.message);
        qn_status status = a->status;
        qn__automaton_free(a);
        return status;
    }
    return QN_OK;
}

void qn__automaton_free(qn_automaton *a)
{
    free(a->classes);
    free(a->nodes);
    free(a->stamps);
    qn__table_free(&a->node_table);
    free(a->states);
    free(a->members);
    qn__table_free(&a->state_table);
    qn__table_free(&a->steps);
    free(a->open);
    free(a->found);
    *a = (qn_automaton){0};
}
