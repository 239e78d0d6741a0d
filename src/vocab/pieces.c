/* pieces.c: see pieces.h. */
#include "vocab/pieces.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "vocab/internal.h"

struct qn_pieces_slot {
    pthread_mutex_t lock;
    qn_pieces *made;
};

uint32_t qn__byte_group(uint8_t byte)
{
    enum { DIGIT, LOWER_HEX, LOWER, UPPER_HEX, UPPER, TAB, NEWLINE, RETURN, CONTROL, FIRST_MARK };
    if (byte >= 0x80) {
        return QN_BYTE_GROUP_OTHER;
    }
    if (byte >= 'a' && byte <= 'z') {
        return byte <= 'f' ? LOWER_HEX : LOWER;
    }
    if (byte >= 'A' && byte <= 'Z') {
        return byte <= 'F' ? UPPER_HEX : UPPER;
    }
    if (byte >= '0' && byte <= '9') {
        return DIGIT;
    }
    if (byte < ' ' || byte == 0x7F) {
        return byte == '\t' ? TAB : byte == '\n' ? NEWLINE : byte == '\r' ? RETURN : CONTROL;
    }
    /* the blank and 32 marks, each a group */
    uint32_t passed = (byte > '9' ? 10U : 0) + (byte > 'Z' ? 26U : 0) + (byte > 'z' ? 26U : 0);
    return (uint32_t)FIRST_MARK + byte - 0x20U - passed;
}

/* A piece that is being sorted: its first eight bytes as a number decide most comparisons. */
typedef struct sorted_piece {
    uint64_t head;
    const char *text;
    uint32_t size;
    int32_t id;
} sorted_piece;

static int by_bytes(const void *a, const void *b)
{
    const sorted_piece *x = a, *y = b;
    if (x->head != y->head) {
        return x->head < y->head ? -1 : 1;
    }
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (order != 0) {
        return order;
    }
    return x->size != y->size ? (x->size < y->size ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

static uint64_t head_of(const char *text, size_t size)
{
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++) {
        head = head << 8 | (i < size ? (uint8_t)text[i] : 0U);
    }
    return head;
}

static void pieces_free(qn_pieces *p)
{
    if (p) {
        free(p->entries);
        free(p->ids);
        free(p->stream);
        free(p->ends);
        free(p);
    }
}

/* Takes the tokens that have a piece into `list`, sorted; returns how many. */
static uint32_t collect(const qn_vocab *v, qn_pieces *p, sorted_piece *list)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        size_t size;
        const char *text = qn_vocab_piece(v, id, true, &size);
        if (qn_vocab_is_end(v, id)) {
            p->ends[p->n_ends++] = id;
        } else if (text && size > 0 && text[0] != '\0' && size < UINT32_MAX) {
            list[n++] = (sorted_piece){head_of(text, size), text, (uint32_t)size, id};
        }
    }
    qsort(list, n, sizeof *list, by_bytes);
    return n;
}

static uint32_t shared_bytes(const sorted_piece *a, const sorted_piece *b)
{
    uint32_t n = 0, most = a->size < b->size ? a->size : b->size;
    while (n < most && a->text[n] == b->text[n]) {
        n++;
    }
    return n;
}

static bool fill(qn_pieces *p, const sorted_piece *list, uint32_t n)
{
    qn_buf stream = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i > 0 ? shared_bytes(&list[i - 1], &list[i]) : 0;
        uint32_t added = list[i].size - shared;
        if (stream.size > UINT32_MAX - added) {
            stream.failed = true;
            break;
        }
        p->entries[i] = (qn_piece){.shared = shared, .added = added, .at = (uint32_t)stream.size};
        p->ids[i] = list[i].id;
        qn__buf_add(&stream, list[i].text + shared, added);
        p->longest = list[i].size > p->longest ? list[i].size : p->longest;
    }
    p->count = n;
    p->stream = stream.data;
    return !stream.failed;
}

/* Branches, from the last entry on: those behind an entry are known. */
static void find_branches(qn_pieces *p)
{
    for (uint32_t i = p->count; i-- > 0;) {
        qn_piece *entry = &p->entries[i];
        for (uint32_t k = 0; k < entry->added; k++) {
            entry->groups |= UINT64_C(1) << qn__byte_group(p->stream[entry->at + k]);
        }
        entry->reach = entry->added;
        entry->next = i + 1;
        while (entry->next < p->count && p->entries[entry->next].shared > entry->shared) {
            const qn_piece *branch = &p->entries[entry->next];
            uint32_t reach = branch->shared - entry->shared + branch->reach;
            entry->reach = entry->reach > reach ? entry->reach : reach;
            entry->groups |= branch->groups;
            entry->next = branch->next;
        }
    }
}

static qn_pieces *pieces_make(const qn_vocab *v, qn_error *err)
{
    size_t n = (size_t)v->n_tokens;
    qn_pieces *p = qn__calloc(1, sizeof *p);
    sorted_piece *list = qn__calloc(n + 1, sizeof *list);
    bool ok = p && list;
    if (ok) {
        p->entries = qn__calloc(n + 1, sizeof *p->entries);
        p->ids = qn__calloc(n + 1, sizeof *p->ids);
        p->ends = qn__calloc(n + 1, sizeof *p->ends);
        ok = p->entries && p->ids && p->ends && fill(p, list, collect(v, p, list));
    }
    free(list);
    if (!ok) {
        pieces_free(p);
        qn__error_memory(err, "index of the vocabulary's pieces");
        return NULL;
    }
    find_branches(p);
    return p;
}

qn_pieces_slot *qn__pieces_slot_make(void)
{
    qn_pieces_slot *slot = qn__calloc(1, sizeof *slot);
    if (slot && pthread_mutex_init(&slot->lock, NULL) != 0) {
        free(slot);
        slot = NULL;
    }
    return slot;
}

void qn__pieces_slot_free(qn_pieces_slot *slot)
{
    if (slot) {
        pieces_free(slot->made);
        pthread_mutex_destroy(&slot->lock);
        free(slot);
    }
}

const qn_pieces *qn__vocab_pieces(const qn_vocab *vocab, qn_error *err)
{
    qn_pieces_slot *slot = vocab->pieces_slot;
    pthread_mutex_lock(&slot->lock);
    if (!slot->made) {
        slot->made = pieces_make(vocab, err);
    }
    const qn_pieces *made = slot->made;
    pthread_mutex_unlock(&slot->lock);
    return made;
}
