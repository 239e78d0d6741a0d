/* pair_table.c: see pair_table.h. Open addressing, at most half full. */
#include "vocab/pair_table.h"

#include "base/error.h"

#define MERGES_KEY "tokenizer.ggml.merges"

/* Index of a text in the map; a new one is copied first, since the map keeps pointers. */
static int32_t intern(qn_vocab *v, const char *data, size_t size)
{
    int32_t index = qn__text_map_find(&v->map, data, size);
    if (index >= 0) {
        return index;
    }
    const char *copy = qn__arena_strndup(&v->arena, data, size);
    return copy ? qn__text_map_add(&v->map, copy, size) : -1;
}

static void insert(qn_pair_table *table, qn_pair pair)
{
    uint64_t key = (uint64_t)(uint32_t)pair.left << 32 | (uint32_t)pair.right;
    size_t at = qn__hash_key(table->seed, key) & table->mask;
    for (; table->slots[at].rank_1 != 0; at = (at + 1) & table->mask) {
        if (table->slots[at].left == pair.left && table->slots[at].right == pair.right) {
            return; /* the first rank counts */
        }
    }
    table->slots[at] = pair;
}

/* One merge text, "left right": split at the first space behind its first byte. */
static bool add_merge(qn_pair_table *table, qn_vocab *v, qn_gguf_text text, uint32_t rank,
                      qn_buf *joined)
{
    const char *nul = memchr(text.data, 0, text.size);
    size_t size = nul ? (size_t)(nul - text.data) : text.size;
    const char *space = size > 1 ? memchr(text.data + 1, ' ', size - 1) : NULL;
    if (!space) {
        return true; /* joins nothing */
    }
    size_t left = (size_t)(space - text.data);
    size_t right = size - left - 1;
    if (text.data[0] == ' ' || right == 0 || memchr(space + 1, ' ', right)) {
        return true; /* symbols with a space in them are never joined */
    }
    joined->size = 0;
    qn__buf_add(joined, text.data, left);
    qn__buf_add(joined, space + 1, right);
    qn_pair pair = {.rank_1 = rank + 1};
    if (joined->failed || (pair.left = intern(v, text.data, left)) < 0 ||
        (pair.right = intern(v, space + 1, right)) < 0 ||
        (pair.result = intern(v, (const char *)joined->data, joined->size)) < 0) {
        return false;
    }
    insert(table, pair);
    return true;
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
    qn_buf joined = {0};
    size_t bytes = 0;
    for (size_t i = 0; status == QN_OK && i < count; i++) {
        qn_gguf_text text = qn_gguf_array_text(from->gguf, merges, i);
        bytes += text.size;
        if (bytes > QN_VOCAB_MAX_TEXT_BYTES) {
            status = qn__vocab_error(from, err, QN_ERR_LIMIT, MERGES_KEY, "the texts are too long");
        } else if (!add_merge(table, v, text, (uint32_t)i, &joined)) {
            status = qn__error_memory(err, "the merges");
        }
    }
    qn__buf_free(&joined);
    return status;
}

void qn__pair_table_free(qn_pair_table *table)
{
    free(table->slots);
    *table = (qn_pair_table){0};
}
