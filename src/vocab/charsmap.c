/* charsmap.c: see charsmap.h. The layout of a word is that of the Darts-clone double array. */
#include "vocab/charsmap.h"

#include "base/error.h"

#define CHARSMAP_KEY "tokenizer.ggml.precompiled_charsmap"

static uint32_t base_of(uint32_t word)
{
    return (word >> 10) << ((word & 0x200U) ? 8 : 0);
}

qn_status qn__charsmap_load(qn_charsmap *map, const qn_vocab_source *from, qn_error *err)
{
    *map = (qn_charsmap){0};
    const qn_gguf_pair *pair = qn_gguf_find(from->gguf, CHARSMAP_KEY);
    if (!pair) {
        return QN_OK;
    }
    if (pair->type != QN_GGUF_ARR ||
        (pair->element_type != QN_GGUF_U8 && pair->element_type != QN_GGUF_I8)) {
        return qn__vocab_error(from, err, QN_ERR_FORMAT, CHARSMAP_KEY,
                               "should be an array of u8 or i8");
    }
    size_t size = pair->count;
    if (size < 4 || size > QN_VOCAB_MAX_TEXT_BYTES) {
        return qn__vocab_error(from, err, QN_ERR_FORMAT, CHARSMAP_KEY,
                               "%zu bytes cannot be a charsmap", size);
    }
    uint8_t *bytes = qn__calloc(size, 1);
    qn_status status = bytes ? QN_OK : qn__error_memory(err, "the charsmap");
    if (status == QN_OK) {
        status = qn_gguf_get_bytes(from->gguf, CHARSMAP_KEY, 0, size, bytes, err);
    }
    if (status == QN_OK) {
        size_t trie =
            bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
        if (trie + 4 >= size || trie < 4) {
            status = qn__vocab_error(from, err, QN_ERR_FORMAT, CHARSMAP_KEY,
                                     "a trie of %zu bytes does not fit in %zu bytes", trie, size);
            goto done;
        }
        map->n_words = trie / 4;
        map->n_bytes = size - 4 - trie;
        map->words = qn__calloc(map->n_words, sizeof *map->words);
        map->strings = qn__calloc(map->n_bytes, 1);
        if (!map->words || !map->strings) {
            status = qn__error_memory(err, "the charsmap");
            goto done;
        }
        for (size_t i = 0; i < map->n_words; i++) {
            const uint8_t *b = bytes + 4 + 4 * i;
            map->words[i] =
                b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        }
        memcpy(map->strings, bytes + 4 + trie, map->n_bytes);
    }
done:
    free(bytes);
    if (status != QN_OK) {
        qn__charsmap_free(map);
    }
    return status;
}

void qn__charsmap_free(qn_charsmap *map)
{
    free(map->words);
    free(map->strings);
    *map = (qn_charsmap){0};
}

static qn_status damaged(qn_error *err, const char *what, uint32_t where)
{
    return qn__error(err, QN_ERR_FORMAT, CHARSMAP_KEY ": %s %u lies outside the table", what,
                     where);
}

qn_status qn__charsmap_match(const qn_charsmap *map, const char *text, size_t n, size_t *used,
                             const char **replacement, size_t *size, qn_error *err)
{
    *used = 0;
    if (!map->words) {
        return QN_OK;
    }
    uint32_t offset = 0;
    uint32_t node = base_of(map->words[0]);
    for (size_t i = 0; i < n && text[i] != '\0'; i++) {
        uint8_t c = (uint8_t)text[i];
        node ^= c;
        if (node >= map->n_words) {
            return damaged(err, "node", node);
        }
        uint32_t word = map->words[node];
        if ((word & 0x800000FFU) != c) {
            break;
        }
        node ^= base_of(word);
        if (word & 0x100U) {
            if (node >= map->n_words) {
                return damaged(err, "node", node);
            }
            offset = map->words[node] & 0x7FFFFFFFU;
            *used = i + 1;
        }
    }
    if (*used > 0) {
        const char *end =
            offset < map->n_bytes ? memchr(map->strings + offset, 0, map->n_bytes - offset) : NULL;
        if (!end) {
            return damaged(err, "replacement", offset);
        }
        *replacement = map->strings + offset;
        *size = (size_t)(end - *replacement);
    }
    return QN_OK;
}
