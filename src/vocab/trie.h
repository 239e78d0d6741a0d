/*
 * trie.h: a set of byte strings, each with a value, walked byte by byte. Nodes are numbered breadth
 * first, so the children of a node are neighbours and their bytes lie in a row.
 */
#ifndef QUERN_VOCAB_TRIE_H
#define QUERN_VOCAB_TRIE_H

#include "vocab/text_map.h"

#include <string.h>

typedef struct qn_trie {
    uint8_t *byte;   /* of node i: the byte that leads to it */
    int32_t *value;  /* of node i: the value of the text that ends there, -1 if none does */
    uint32_t *first; /* children of node i: first[i] .. first[i + 1] - 1, ascending by byte */
    uint32_t count;  /* nodes; node 0 is the root; 0 for a trie that was not built */
    uint32_t root[256];
} qn_trie;

#define QN_TRIE_NONE 0U /* the root is nobody's child */

/*
 * Builds from n texts, which it reorders; equal texts keep the highest value; empty texts are left
 * out. False without memory (or with more than 2^32 - 2 nodes).
 */
bool qn__trie_build(qn_trie *trie, qn_slice *texts, size_t n);
void qn__trie_free(qn_trie *trie);

/* The node one byte further, or QN_TRIE_NONE. The trie must be built. */
static inline uint32_t qn__trie_step(const qn_trie *t, uint32_t node, uint8_t byte)
{
    if (node == 0) {
        return t->root[byte];
    }
    uint32_t first = t->first[node];
    uint32_t n = t->first[node + 1] - first;
    if (n == 0) {
        return QN_TRIE_NONE;
    }
    const uint8_t *found = memchr(t->byte + first, byte, n);
    return found ? (uint32_t)(found - t->byte) : QN_TRIE_NONE;
}

/* Size of the longest text of the trie that text[0, n) begins with (0: none); its value in *value.
 */
size_t qn__trie_longest(const qn_trie *t, const char *text, size_t n, int32_t *value);

#endif
