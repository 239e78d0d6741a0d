/*
 * dry_breakers.c: which tokens break a repetition. A token whose text contains a breaker does so
 * alone; one whose text ends with the beginning of a breaker does so if the tokens of the rest of
 * the breaker follow: its tail.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/sampler.h"

#define TEXT_MAX    40 /* bytes of a breaker that count */
#define TAIL_MAX    20 /* tokens of a tail that count */
#define ENTRIES_MAX (1 << 23)

void qn__dry_breakers_free(qn_dry_breakers *b)
{
    free(b->entries);
    free(b->tails);
    *b = (qn_dry_breakers){0};
}

/* Room for one more entry and n more tail tokens. */
static bool reserve(qn_dry_breakers *b, size_t n)
{
    if (b->n_entries == b->entry_room) {
        size_t room = b->entry_room ? 2 * b->entry_room : 64;
        void *block = b->entries;
        if (!qn__realloc(&block, room, sizeof *b->entries)) {
            return false;
        }
        b->entries = block;
        b->entry_room = room;
    }
    if (b->n_tails + n > b->tail_room) {
        size_t room = 2 * (b->n_tails + n);
        void *block = b->tails;
        if (!qn__realloc(&block, room, sizeof *b->tails)) {
            return false;
        }
        b->tails = block;
        b->tail_room = room;
    }
    return true;
}

static qn_status add_entry(qn_dry_breakers *b, int32_t head, size_t at, size_t n, qn_error *err)
{
    if (b->n_entries >= ENTRIES_MAX) {
        return qn__error(err, QN_ERR_LIMIT, "dry: too many tokens break repetitions");
    }
    if (!reserve(b, 0)) {
        return qn__error_memory(err, "dry breakers");
    }
    b->entries[b->n_entries++] = (qn_dry_entry){head, (uint32_t)at, (uint32_t)n};
    return QN_OK;
}

qn_status qn__dry_breakers_add(qn_dry_breakers *b, int32_t head, const int32_t *tail, size_t n,
                               qn_error *err)
{
    n = n < TAIL_MAX ? n : TAIL_MAX;
    if (!reserve(b, n)) {
        return qn__error_memory(err, "dry breakers");
    }
    size_t at = b->n_tails;
    if (n > 0) {
        memcpy(b->tails + at, tail, n * sizeof *tail);
        b->n_tails += n;
    }
    return add_entry(b, head, at, n, err);
}

static int by_head(const void *a, const void *b)
{
    const qn_dry_entry *x = a, *y = b;
    if (x->head != y->head) {
        return x->head < y->head ? -1 : 1;
    }
    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

void qn__dry_breakers_sort(qn_dry_breakers *b)
{
    if (b->n_entries > 1) {
        qsort(b->entries, b->n_entries, sizeof *b->entries, by_head);
    }
    size_t n = 0; /* the same tail of the same token counts once */
    for (size_t i = 0; i < b->n_entries; i++) {
        const qn_dry_entry *e = &b->entries[i], *last = &b->entries[n ? n - 1 : 0];
        if (n > 0 && e->head == last->head && e->n == last->n &&
            (e->n == 0 ||
             memcmp(b->tails + e->at, b->tails + last->at, e->n * sizeof *b->tails) == 0)) {
            continue;
        }
        b->entries[n++] = *e;
    }
    b->n_entries = n;
}

static bool contains(const char *text, size_t size, const char *part, size_t n)
{
    for (size_t i = 0; i + n <= size; i++) {
        if (text[i] == part[0] && memcmp(text + i, part, n) == 0) {
            return true;
        }
    }
    return false;
}

/* One breaker. at[i], n[i]: the tail for its rest from byte i on, in b->tails. */
static qn_status add_breaker(const qn_vocab *vocab, const char *text, size_t size,
                             qn_dry_breakers *b, qn_error *err)
{
    size_t at[TEXT_MAX], n[TEXT_MAX];
    for (size_t i = 1; i < size; i++) {
        qn_tokens tokens = {0};
        qn_status status = qn_vocab_tokenize(vocab, text + i, size - i, 0, &tokens, err);
        n[i] = tokens.count < TAIL_MAX ? tokens.count : TAIL_MAX;
        at[i] = b->n_tails;
        if (status == QN_OK && !reserve(b, n[i])) {
            status = qn__error_memory(err, "dry breakers");
        }
        if (status == QN_OK && n[i] > 0) {
            memcpy(b->tails + at[i], tokens.ids, n[i] * sizeof *b->tails);
            b->n_tails += n[i];
        }
        qn_tokens_free(&tokens);
        if (status != QN_OK) {
            return status;
        }
    }
    qn_status status = QN_OK;
    for (int32_t id = 0; id < qn_vocab_size(vocab) && status == QN_OK; id++) {
        size_t length;
        const char *piece = qn_vocab_piece(vocab, id, true, &length);
        if (!piece) {
            continue;
        }
        if (contains(piece, length, text, size)) {
            status = add_entry(b, id, 0, 0, err);
            continue;
        }
        size_t first = length > size - 1 ? length - (size - 1) : 0; /* a proper beginning of it */
        for (size_t i = first; i < length && status == QN_OK; i++) {
            if (memcmp(piece + i, text, length - i) == 0) {
                status = add_entry(b, id, at[length - i], n[length - i], err);
            }
        }
    }
    return status;
}

qn_status qn__dry_breakers_make(const qn_vocab *vocab, const char *const *texts, size_t n,
                                qn_dry_breakers *out, qn_error *err)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < n && status == QN_OK; i++) {
        size_t size = texts[i] ? strlen(texts[i]) : 0;
        size = size < TEXT_MAX ? size : TEXT_MAX;
        if (size > 0) {
            status = add_breaker(vocab, texts[i], size, out, err);
        }
    }
    qn__dry_breakers_sort(out);
    return status;
}
