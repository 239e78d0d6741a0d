/*
 * merge.c: see merge.h. A heap of candidate pairs; each is one number, (rank, index of the left
 * symbol). A candidate whose left symbol has gone, or now has a pair of another rank, is skipped:
 * whatever changed a pair has added a candidate for the new one.
 */
#include "vocab/merge.h"

#define ARITY 4 /* the children of an entry lie in one cache line */

typedef struct heap {
    uint64_t *items;
    size_t count;
} heap;

static void sift_down(heap *h, size_t at, uint64_t moving)
{
    uint64_t *items = h->items;
    for (;;) {
        size_t child = ARITY * at + 1;
        if (child >= h->count) {
            break;
        }
        size_t end = child + ARITY < h->count ? child + ARITY : h->count;
        size_t least = child;
        for (size_t i = child + 1; i < end; i++) {
            least = items[i] < items[least] ? i : least;
        }
        if (items[least] >= moving) {
            break;
        }
        items[at] = items[least];
        at = least;
    }
    items[at] = moving;
}

static void push(heap *h, uint64_t moving)
{
    size_t at = h->count++;
    while (at > 0 && h->items[(at - 1) / ARITY] > moving) {
        h->items[at] = h->items[(at - 1) / ARITY];
        at = (at - 1) / ARITY;
    }
    h->items[at] = moving;
}

static uint64_t pop(heap *h)
{
    uint64_t top = h->items[0];
    uint64_t last = h->items[--h->count];
    if (h->count > 0) {
        sift_down(h, 0, last);
    }
    return top;
}

/* Looks at the pair that begins at `left`; whether it is a candidate, and which. */
static bool find_pair(qn_symbol *symbols, int32_t left, qn_pair_fn pair, const void *context,
                      uint64_t *candidate)
{
    qn_symbol *s = &symbols[left];
    if (s->next < 0 || !pair(context, s, &symbols[s->next])) {
        s->rank = QN_NO_RANK;
        return false;
    }
    *candidate = (uint64_t)s->rank << 32 | (uint32_t)left;
    return true;
}

qn_status qn__merge(qn_run *run, qn_symbol *symbols, size_t n, qn_pair_fn pair, const void *context)
{
    /* At first n - 1 pairs; a join takes one out, makes two, and happens at most n - 1 times. */
    heap h = {.items = qn__run_need(run, QN_SCRATCH_HEAP, 2 * n, sizeof *h.items)};
    if (!h.items) {
        return qn__run_no_memory(run);
    }
    for (size_t i = 0; i < n; i++) {
        symbols[i].previous = (int32_t)i - 1;
        symbols[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        h.count += find_pair(symbols, (int32_t)i, pair, context, &h.items[h.count]);
    }
    for (size_t i = h.count / ARITY + 1; i-- > 0;) {
        if (i < h.count) {
            sift_down(&h, i, h.items[i]);
        }
    }
    while (h.count > 0) {
        uint64_t best = pop(&h);
        int32_t at = (int32_t)(uint32_t)best;
        qn_symbol *left = &symbols[at];
        if (left->size == 0 || left->rank != best >> 32) {
            continue;
        }
        qn_symbol *right = &symbols[left->next];
        left->size += right->size;
        left->id = left->joined;
        left->next = right->next;
        right->size = 0;
        if (left->next >= 0) {
            symbols[left->next].previous = at;
        }
        uint64_t candidate;
        if (find_pair(symbols, at, pair, context, &candidate)) {
            push(&h, candidate);
        }
        if (left->previous >= 0 && find_pair(symbols, left->previous, pair, context, &candidate)) {
            push(&h, candidate);
        }
    }
    return QN_OK;
}
