/*
 * merge.h: the merging loop of SPM and BPE. Neighbouring symbols are joined, best pair first, equal
 * pairs from left to right, until no pair can be joined. O(n log n) time, O(n) memory.
 */
#ifndef QUERN_VOCAB_MERGE_H
#define QUERN_VOCAB_MERGE_H

#include "vocab/internal.h"

#define QN_NO_RANK UINT32_MAX

typedef struct qn_symbol {
    uint32_t start, size; /* bytes of the word; size 0: was joined to its left neighbour */
    int32_t next;         /* index of the right neighbour, -1 at the end */
    int32_t previous;
    int32_t id;     /* what the tokenizer model knows it by; -1: nothing */
    int32_t joined; /* id of this one and its right neighbour joined */
    uint32_t rank;  /* of that pair, lower joins first; QN_NO_RANK: the two are not joined */
} qn_symbol;

/* Fills left->joined and left->rank for a pair that may be joined; returns false for another. */
typedef bool (*qn_pair_fn)(const void *context, qn_symbol *left, const qn_symbol *right);

/* Joins symbols[0, n), n > 0, in order, all of size > 0. Afterwards symbol 0 is the first, and
 * `next` leads to the others. */
qn_status qn__merge(qn_run *run, qn_symbol *symbols, size_t n, qn_pair_fn pair,
                    const void *context);

#endif
