/*
 * pair_table.h: the merges of a BPE vocabulary: (left, right) to rank and result. Texts are known
 * by their index in the vocabulary's text map; parts and results that are no tokens are added to it
 * behind the tokens.
 */
#ifndef QUERN_VOCAB_PAIR_TABLE_H
#define QUERN_VOCAB_PAIR_TABLE_H

#include "vocab/internal.h"

typedef struct qn_pair {
    int32_t left, right;
    uint32_t rank_1; /* rank + 1; 0: an empty slot */
    int32_t result;
} qn_pair;

typedef struct qn_pair_table {
    qn_pair *slots;
    size_t mask;
    uint64_t seed;
} qn_pair_table;

/* Reads tokenizer.ggml.merges; a missing key is an error unless `optional`. */
qn_status qn__pair_table_load(qn_pair_table *table, qn_vocab *v, const qn_vocab_source *from,
                              bool optional, qn_error *err);
void qn__pair_table_free(qn_pair_table *table);

/* NULL where the two are not joined. */
static inline const qn_pair *qn__pair_find(const qn_pair_table *table, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = qn__hash_key(table->seed, key) & table->mask;
    for (; table->slots[at].rank_1 != 0; at = (at + 1) & table->mask) {
        if (table->slots[at].left == left && table->slots[at].right == right) {
            return &table->slots[at];
        }
    }
    return NULL;
}

#endif
