/*
 * merge.h: the merging loop of SPM and BPE. Neighbouring symbols are joined, best pair first, equal
 * pairs from left to right, until no pair can be joined. O(n log n) time, O(n) memory.
 */
#ifndef QUERN_VOCAB_MERGE_H
#define QUERN_VOCAB_MERGE_H

#include "vocab/internal.h"

typedef struct qn_symbol {
    uint32_t start, size; /* bytes of the word; size 0: was joined to its left neighbour */
    int32_t next;         /* index of the right neighbour, -1 at the end */
    int32_t previous;
    int32_t id; /* what the tokenizer model knows it by; -1: nothing */
} qn_symbol;

/* Whether left and right may be joined: *rank (lower joins first) and the id of the result. */
typedef bool (*qn_pair_fn)(const void *context, const qn_symbol *left, const qn_symbol *right,
                           uint32_t *rank, int32_t *id);

/* Joins symbols[0, n), which are linked in order and all have size > 0. Symbol 0 stays first. */
qn_status qn__merge(qn_run *run, qn_symbol *symbols, size_t n, qn_pair_fn pair,
                    const void *context);

/* Links symbols[0, n) in order. */
void qn__merge_link(qn_symbol *symbols, size_t n);

#endif
