/*
 * trie.c: see trie.h.
 *
 * Built level by level: each node stands for a range of texts that share the bytes so far; the
 * range is sorted by its next byte, and each run of equal bytes becomes a child. Linear in the
 * bytes of all texts.
 */
#include "vocab/trie.h"

#include "base/mem.h"

#include <stdlib.h>

#define SMALL_RANGE 24 /* below it insertion sort is faster than counting 257 keys */

typedef struct build {
    qn_trie *trie;
    qn_slice *texts, *spare; /* spare: room for as many */
    uint32_t *begin;         /* of node i: where its range starts; its end is begin[i + 1] only */
    uint32_t *end;           /* among siblings, so it is kept too */
    size_t capacity;
} build;

static bool add_node(build *b, uint8_t byte, uint32_t begin, uint32_t end)
{
    qn_trie *t = b->trie;
    if (t->count == b->capacity) {
        size_t capacity = b->capacity ? b->capacity * 2 : 1024;
        void *blocks[5] = {t->byte, t->value, t->first, b->begin, b->end};
        static const size_t sizes[5] = {1, 4, 4, 4, 4};
        bool grown = capacity < UINT32_MAX;
        for (int i = 0; grown && i < 5; i++) {
            grown = qn__realloc(&blocks[i], capacity + 1, sizes[i]);
        }
        t->byte = blocks[0];
        t->value = blocks[1];
        t->first = blocks[2];
        b->begin = blocks[3];
        b->end = blocks[4];
        if (!grown) {
            return false;
        }
        b->capacity = capacity;
    }
    t->byte[t->count] = byte;
    t->value[t->count] = -1;
    b->begin[t->count] = begin;
    b->end[t->count] = end;
    t->count++;
    return true;
}

/* Sort key of a text at a depth: texts that end there come first. */
static unsigned key_at(const qn_slice *text, uint32_t depth)
{
    return text->size == depth ? 0 : 1U + (uint8_t)text->data[depth];
}

static void sort_range(build *b, uint32_t begin, uint32_t end, uint32_t depth)
{
    qn_slice *s = b->texts + begin;
    size_t n = end - begin;
    if (n < SMALL_RANGE) {
        for (size_t i = 1; i < n; i++) {
            qn_slice moving = s[i];
            unsigned key = key_at(&moving, depth);
            size_t at = i;
            for (; at > 0 && key_at(&s[at - 1], depth) > key; at--) {
                s[at] = s[at - 1];
            }
            s[at] = moving;
        }
        return;
    }
    size_t start[258] = {0};
    for (size_t i = 0; i < n; i++) {
        start[key_at(&s[i], depth) + 1]++;
    }
    for (size_t k = 1; k < 258; k++) {
        start[k] += start[k - 1];
    }
    for (size_t i = 0; i < n; i++) {
        b->spare[start[key_at(&s[i], depth)]++] = s[i];
    }
    memcpy(s, b->spare, n * sizeof *s);
}

/* Makes the children of one node. */
static bool expand(build *b, uint32_t node, uint32_t depth)
{
    uint32_t at = b->begin[node];
    uint32_t end = b->end[node];
    sort_range(b, at, end, depth);
    for (; at < end && b->texts[at].size == depth; at++) {
        if (depth > 0 && b->texts[at].value > b->trie->value[node]) {
            b->trie->value[node] = b->texts[at].value;
        }
    }
    while (at < end) {
        uint8_t byte = (uint8_t)b->texts[at].data[depth];
        uint32_t run = at + 1;
        while (run < end && (uint8_t)b->texts[run].data[depth] == byte) {
            run++;
        }
        if (!add_node(b, byte, at, run)) {
            return false;
        }
        at = run;
    }
    return true;
}

bool qn__trie_build(qn_trie *trie, qn_slice *texts, size_t n)
{
    *trie = (qn_trie){0};
    if (n >= UINT32_MAX) {
        return false;
    }
    build b = {.trie = trie, .texts = texts};
    b.spare = qn__calloc(n + 1, sizeof *b.spare);
    bool good = b.spare && add_node(&b, 0, 0, (uint32_t)n);
    uint32_t depth = 0;
    uint32_t level_end = 1;
    for (uint32_t node = 0; good && node < trie->count; node++) {
        if (node == level_end) {
            depth++;
            level_end = trie->count;
        }
        trie->first[node] = trie->count;
        good = expand(&b, node, depth);
    }
    if (good) {
        trie->first[trie->count] = trie->count;
        for (uint32_t c = trie->first[0]; c < trie->first[1]; c++) {
            trie->root[trie->byte[c]] = c;
        }
    }
    free(b.spare);
    free(b.begin);
    free(b.end);
    if (!good) {
        qn__trie_free(trie);
    }
    return good;
}

void qn__trie_free(qn_trie *trie)
{
    free(trie->byte);
    free(trie->value);
    free(trie->first);
    *trie = (qn_trie){0};
}

size_t qn__trie_longest(const qn_trie *t, const char *text, size_t n, int32_t *value)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        node = qn__trie_step(t, node, (uint8_t)text[i]);
        if (node == QN_TRIE_NONE) {
            break;
        }
        if (t->value[node] >= 0) {
            longest = i + 1;
            *value = t->value[node];
        }
    }
    return longest;
}
