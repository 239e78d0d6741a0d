/* pair_table.c: see pair_table.h. Open addressing, at most half full. */
#include "vocab/pair_table.h"

#include "base/error.h"

#define MERGES_KEY "tokenizer.ggml.merges"

#define BLOCK 32 /* merges that are looked up together, so that cache misses overlap */

typedef struct merge_text {
    const char *left, *right;
    size_t left_size, right_size;
    uint64_t left_hash, right_hash;
    qn_pair pair;
} merge_text;

typedef struct adder {
    qn_pair_table *table;
    qn_vocab *v;
    merge_text block[BLOCK];
    size_t count;
    qn_buf joined;
    int32_t last; /* result of the merge before */
} adder;

/* A text that is not in the map: copied, since the map keeps pointers. */
static int32_t add_text(qn_vocab *v, const char *data, size_t size)
{
    const char *copy = qn__arena_strndup(&v->arena, data, size);
    return copy ? qn__text_map_add(&v->map, copy, size) : -1;
}

static int32_t intern(qn_vocab *v, uint64_t hash, const char *data, size_t size)
{
    int32_t index = qn__text_map_find_hashed(&v->map, hash, data, size);
    return index >= 0 ? index : add_text(v, data, size);
}

/*
 * Index of the joined text. Most vocabularies number their tokens in the order of the merges, so
 * the next text after the last result is tried first: it is in the cache, a look-up is not.
 */
static int32_t intern_result(adder *a)
{
    const char *text = (const char *)a->joined.data;
    size_t size = a->joined.size;
    for (int32_t guess = a->last; guess < a->v->n_tokens && guess <= a->last + 1; guess++) {
        const qn_slice *e = &a->v->map.entries[guess];
        if (e->size == size && memcmp(e->data, text, size) == 0) {
            return guess;
        }
    }
    return intern(a->v, qn__text_map_hash(&a->v->map, text, size), text, size);
}

static size_t slot_of(const qn_pair_table *table, const qn_pair *pair)
{
    uint64_t key = (uint64_t)(uint32_t)pair->left << 32 | (uint32_t)pair->right;
    return qn__hash_key(table->seed, key) & table->mask;
}

static void insert(qn_pair_table *table, const qn_pair *pair)
{
    size_t at = slot_of(table, pair);
    for (; table->slots[at].rank_1 != 0; at = (at + 1) & table->mask) {
        if (table->slots[at].left == pair->left && table->slots[at].right == pair->right) {
            return; /* the first rank counts */
        }
    }
    table->slots[at] = *pair;
}

/* Looks up the merges that wait in the block, in order, and inserts them. False without memory. */
static bool add_block(adder *a)
{
    for (size_t i = 0; i < a->count; i++) {
        merge_text *m = &a->block[i];
        a->joined.size = 0;
        qn__buf_add(&a->joined, m->left, m->left_size);
        qn__buf_add(&a->joined, m->right, m->right_size);
        if (a->joined.failed ||
            (m->pair.left = intern(a->v, m->left_hash, m->left, m->left_size)) < 0 ||
            (m->pair.right = intern(a->v, m->right_hash, m->right, m->right_size)) < 0 ||
            (m->pair.result = intern_result(a)) < 0) {
            return false;
        }
        a->last = m->pair.result;
        __builtin_prefetch(&a->table->slots[slot_of(a->table, &m->pair)], 1);
    }
    for (size_t i = 0; i < a->count; i++) {
        insert(a->table, &a->block[i].pair);
    }
    a->count = 0;
    return true;
}

/* One merge text, "left right": split at the first space behind its first byte. */
static bool add_merge(adder *a, qn_gguf_text text, uint32_t rank)
{
    const char *nul = memchr(text.data, 0, text.size);
    size_t size = nul ? (size_t)(nul - text.data) : text.size;
    const char *space = size > 1 ? memchr(text.data + 1, ' ', size - 1) : NULL;
    if (!space) {
        return true; /* joins nothing */
    }
    merge_text m = {.left = text.data, .right = space + 1, .pair = {.rank_1 = rank + 1}};
    m.left_size = (size_t)(space - text.data);
    m.right_size = size - m.left_size - 1;
    if (text.data[0] == ' ' || m.right_size == 0 || memchr(m.right, ' ', m.right_size)) {
        return true; /* symbols with a space in them are never joined */
    }
    m.left_hash = qn__text_map_hash(&a->v->map, m.left, m.left_size);
    m.right_hash = qn__text_map_hash(&a->v->map, m.right, m.right_size);
    a->block[a->count++] = m;
    return a->count < BLOCK || add_block(a);
}

static qn_status make_slots(qn_pair_table *table, size_t count, qn_error *err)
{
    size_t slots = 16;
    while (slots < count * 2) {
        slots *= 2;
    }
    table->slots = qn__calloc(slots, sizeof *table->slots);
    table->mask = slots - 1;
    return table->slots ? QN_OK : qn__error_memory(err, "the merges");
}

qn_status qn__pair_table_load(qn_pair_table *table, qn_vocab *v, const qn_vocab_source *from,
                              bool optional, qn_error *err)
{
    *table = (qn_pair_table){.seed = v->map.seed};
    const qn_gguf_pair *merges = qn_gguf_find(from->gguf, MERGES_KEY);
    if (!merges && optional) {
        return make_slots(table, 0, err);
    }
    size_t count = 0;
    qn_status status = qn_gguf_get_array(from->gguf, MERGES_KEY, QN_GGUF_STR, &count, err);
    if (status != QN_OK) {
        return status;
    }
    if (count > QN_TEXT_MAP_MAX / 4) {
        return qn__vocab_error(from, err, QN_ERR_LIMIT, MERGES_KEY, "%zu merges are too many",
                               count);
    }
    status = make_slots(table, count, err);
    adder a = {.table = table, .v = v};
    size_t bytes = 0;
    for (size_t i = 0; status == QN_OK && i < count; i++) {
        qn_gguf_text text = qn_gguf_array_text(from->gguf, merges, i);
        bytes += text.size;
        if (bytes > QN_VOCAB_MAX_TEXT_BYTES) {
            status = qn__vocab_error(from, err, QN_ERR_LIMIT, MERGES_KEY, "the texts are too long");
        } else if (!add_merge(&a, text, (uint32_t)i)) {
            status = qn__error_memory(err, "the merges");
        }
    }
    if (status == QN_OK && !add_block(&a)) {
        status = qn__error_memory(err, "the merges");
    }
    qn__buf_free(&a.joined);
    return status;
}

void qn__pair_table_free(qn_pair_table *table)
{
    free(table->slots);
    *table = (qn_pair_table){0};
}
