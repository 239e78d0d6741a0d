/*
 * check.c: no rule may begin with itself, or following a text would never end.
 *
 * Rule A leads to rule B where an alternative of A has B behind rules that may all be empty. A
 * circle of such steps is left recursion, with one exception: where every step of it is taken
 * behind something (that may be empty) and at the end of its alternative, as in the repetition
 * R ::= S R | of an S that may be empty. Such a circle leaves nothing behind on the stack, so that
 * it comes back to a position that was seen.
 */
#include "grammar/rules.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"

/* Tarjan's search for circles, with its stack in arrays. */
typedef struct search {
    const qn_rules *rules;
    bool *empty;       /* by rule: may be empty */
    uint32_t *order;   /* by rule: 1 + when it was met; 0: not yet */
    uint32_t *low;     /* by rule: the earliest rule of the stack that it reaches */
    uint32_t *group;   /* by rule: 1 + its group; rules of a group reach each other */
    uint32_t *next;    /* by rule: the element that is looked at next */
    uint32_t *path;    /* rules that are being looked at */
    uint32_t *pending; /* rules without a group yet */
    uint32_t n_path, n_pending, n_met, n_groups;
} search;

/*
 * Which rules may be empty. An alternative of nothing but rules counts those that are not known to
 * be empty; when a rule is found empty, the alternatives that use it count down, and one at zero
 * makes its own rule empty. Every use is looked at once.
 */
typedef struct emptiness {
    uint32_t *left;  /* by alternative; UINT32_MAX: has a character or token */
    uint32_t *owner; /* by alternative: its rule */
    uint32_t *first; /* by rule, and two more: where its uses begin in `uses` */
    uint32_t *uses;  /* alternatives */
    uint32_t *queue; /* rules found empty */
    uint32_t n_queue;
} emptiness;

static void found_empty(emptiness *t, bool *empty, uint32_t rule)
{
    if (!empty[rule]) {
        empty[rule] = true;
        t->queue[t->n_queue++] = rule;
    }
}

/* Fills left and owner; counts the uses of rule k in first[k + 2]. */
static void count_uses(const qn_rules *r, emptiness *t, bool *empty)
{
    for (uint32_t k = 0; k < r->n_rules; k++) {
        for (uint32_t i = 0; i < r->rules[k].n_starts; i++) {
            uint32_t a = r->rules[k].first_start + i;
            const qn_element *e = r->elements + r->starts[a], *start = e;
            while (e->kind == QN_ELEMENT_RULE) {
                e++;
            }
            t->owner[a] = k;
            t->left[a] = qn__element_is_end(e) ? (uint32_t)(e - start) : UINT32_MAX;
            for (; t->left[a] != UINT32_MAX && start < e; start++) {
                t->first[start->value + 2]++;
            }
            if (t->left[a] == 0) {
                found_empty(t, empty, k);
            }
        }
    }
}

/* Puts the uses into their rows: row k is uses[first[k] .. first[k + 1]). */
static void list_uses(const qn_rules *r, emptiness *t)
{
    for (uint32_t k = 0; k < r->n_rules; k++) {
        t->first[k + 2] += t->first[k + 1]; /* first[k + 1] is now the start of row k */
    }
    for (uint32_t a = 0; a < r->n_starts; a++) {
        const qn_element *e = r->elements + r->starts[a];
        for (; t->left[a] != UINT32_MAX && e->kind == QN_ELEMENT_RULE; e++) {
            t->uses[t->first[e->value + 1]++] = a; /* and at last its end */
        }
    }
}

static bool find_empty(const qn_rules *r, bool *empty)
{
    size_t n_rules = r->n_rules, n_starts = r->n_starts;
    uint32_t *words = qn__calloc(2 * n_starts + 2 * n_rules + 2 + r->n_elements, sizeof *words);
    if (!words) {
        return false;
    }
    emptiness t = {.left = words, .owner = words + n_starts};
    t.first = t.owner + n_starts;
    t.queue = t.first + n_rules + 2;
    t.uses = t.queue + n_rules;
    count_uses(r, &t, empty);
    list_uses(r, &t);
    for (uint32_t i = 0; i < t.n_queue; i++) {
        uint32_t rule = t.queue[i];
        for (uint32_t u = t.first[rule]; u < t.first[rule + 1]; u++) {
            if (--t.left[t.uses[u]] == 0) {
                found_empty(&t, empty, t.owner[t.uses[u]]);
            }
        }
    }
    free(words);
    return true;
}

/* The element after `at` (with `begins`: from `at` on) that leads on from its rule; 0: none. */
static uint32_t next_step(const search *s, uint32_t at, bool begins)
{
    const qn_element *elements = s->rules->elements;
    bool open = true; /* what is before may be empty */
    if (!begins) {
        open = s->empty[elements[at].value];
        at++;
    }
    for (;; at++) {
        const qn_element *e = &elements[at];
        if (e->kind == QN_ELEMENT_END) {
            return 0;
        }
        if (e->kind == QN_ELEMENT_OR) {
            open = true;
        } else if (open && e->kind == QN_ELEMENT_RULE) {
            return at;
        } else {
            open = false;
        }
    }
}

static void meet(search *s, uint32_t rule)
{
    s->order[rule] = s->low[rule] = ++s->n_met;
    s->next[rule] = next_step(s, s->rules->rules[rule].first, true);
    s->path[s->n_path++] = rule;
    s->pending[s->n_pending++] = rule;
}

static void leave(search *s)
{
    uint32_t rule = s->path[--s->n_path];
    if (s->low[rule] == s->order[rule]) {
        s->n_groups++;
        uint32_t member;
        do {
            member = s->pending[--s->n_pending];
            s->group[member] = s->n_groups;
        } while (member != rule);
    }
    if (s->n_path > 0) {
        uint32_t above = s->path[s->n_path - 1];
        s->low[above] = s->low[rule] < s->low[above] ? s->low[rule] : s->low[above];
    }
}

static void find_groups(search *s)
{
    for (uint32_t root = 0; root < s->rules->n_rules; root++) {
        if (s->order[root] == 0) {
            meet(s, root);
        }
        while (s->n_path > 0) {
            uint32_t rule = s->path[s->n_path - 1];
            uint32_t at = s->next[rule];
            if (at == 0) {
                leave(s);
                continue;
            }
            s->next[rule] = next_step(s, at, false);
            uint32_t to = s->rules->elements[at].value;
            if (s->order[to] == 0) {
                meet(s, to);
            } else if (s->group[to] == 0 && s->order[to] < s->low[rule]) {
                s->low[rule] = s->order[to];
            }
        }
    }
}

/* A step inside a group that is not the harmless kind. */
static qn_status find_recursion(const search *s, qn_error *err)
{
    const qn_rules *r = s->rules;
    for (uint32_t k = 0; k < r->n_rules; k++) {
        uint32_t at = next_step(s, r->rules[k].first, true);
        for (; at != 0; at = next_step(s, at, false)) {
            bool first = at == r->rules[k].first || r->elements[at - 1].kind == QN_ELEMENT_OR;
            bool last = qn__element_is_end(&r->elements[at + 1]);
            if (s->group[k] == s->group[r->elements[at].value] && (first || !last)) {
                return qn__error(err, QN_ERR_FORMAT,
                                 "grammar: unsupported grammar, left recursion detected for "
                                 "nonterminal at index %u",
                                 k);
            }
        }
    }
    return QN_OK;
}

qn_status qn__rules_check_recursion(const qn_rules *rules, qn_error *err)
{
    size_t n = rules->n_rules;
    search s = {.rules = rules, .empty = qn__calloc(n, sizeof(bool))};
    uint32_t *words = qn__calloc(n, 6 * sizeof(uint32_t));
    qn_status status = QN_ERR_MEMORY;
    if (s.empty && words && find_empty(rules, s.empty)) {
        s.order = words;
        s.low = words + n;
        s.group = words + 2 * n;
        s.next = words + 3 * n;
        s.path = words + 4 * n;
        s.pending = words + 5 * n;
        find_groups(&s);
        status = find_recursion(&s, err);
    } else {
        qn__error_memory(err, "grammar");
    }
    free(s.empty);
    free(words);
    return status;
}
