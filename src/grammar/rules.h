/*
 * rules.h: a grammar as compiled: rules of alternatives of elements, all in flat arrays.
 *
 * GBNF text -> gbnf.c (rules as written, repetitions rewritten) -> check.c (references, left
 * recursion) -> automaton.c follows texts through the elements.
 */
#ifndef QUERN_GRAMMAR_RULES_H
#define QUERN_GRAMMAR_RULES_H

#include <quern/grammar.h>

/* Hard limits; each is an error. */
enum {
    QN_GRAMMAR_REPEAT_MAX = 2000, /* of a repetition, and of the rules that repetitions make */
    QN_GRAMMAR_NESTING_MAX = 256, /* groups inside groups */
    QN_GRAMMAR_ELEMENTS_MAX = 1000000,
    QN_GRAMMAR_TEXT_MAX = 64 << 20 /* bytes of text */
};

typedef enum qn_element_kind {
    QN_ELEMENT_END,      /* of a rule */
    QN_ELEMENT_OR,       /* between alternatives */
    QN_ELEMENT_RULE,     /* value: rule */
    QN_ELEMENT_CHAR,     /* value: code point */
    QN_ELEMENT_SET,      /* value: index into sets */
    QN_ELEMENT_TOKEN,    /* value: token id */
    QN_ELEMENT_NOT_TOKEN /* value: token id; any other token fits */
} qn_element_kind;

typedef struct qn_element {
    uint32_t kind, value;
} qn_element;

typedef struct qn_range {
    uint32_t low, high; /* code points, both included */
} qn_range;

/* One code point of (or not of) the ranges, which ascend and do not touch. */
typedef struct qn_set {
    uint32_t first, count; /* ranges */
    bool negated;          /* "." is a negated set without ranges */
} qn_set;

typedef struct qn_rule {
    uint32_t first;       /* its elements, the last one an END; 0: not defined */
    uint32_t first_start; /* its alternatives: starts[first_start], n_starts of them */
    uint32_t n_starts;
} qn_rule;

typedef struct qn_rules {
    qn_element *elements; /* element 0 belongs to no rule */
    qn_rule *rules;
    uint32_t *starts; /* of alternatives: indices of elements */
    qn_set *sets;
    qn_range *ranges;
    uint32_t n_elements, n_rules, n_starts, n_sets, n_ranges, root;
} qn_rules;

/* Parses and checks. On failure nothing is left to free. */
qn_status qn__rules_parse(qn_rules *rules, const char *text, size_t size, const char *root,
                          const qn_vocab *vocab, qn_error *err);
void qn__rules_free(qn_rules *rules);

/* check.c: QN_ERR_FORMAT for a rule that can begin with itself. Needs the starts. */
qn_status qn__rules_check_recursion(const qn_rules *rules, qn_error *err);

static inline bool qn__element_is_end(const qn_element *e)
{
    return e->kind == QN_ELEMENT_END || e->kind == QN_ELEMENT_OR;
}

/* *block, with room for *capacity things of `size` bytes, gets room for at least `need`. */
bool qn__grow(void *block, size_t *capacity, size_t need, size_t size);

#endif
