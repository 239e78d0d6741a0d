/* merge.c: see merge.h. A binary heap of candidate pairs; pairs that changed since are skipped. */
#include "vocab/merge.h"

typedef struct candidate {
    uint64_t key;  /* rank, then index of the left symbol */
    uint32_t size; /* of both symbols together: another size means that the pair has changed */
    int32_t id;
} candidate;

typedef struct heap {
    candidate *items;
    size_t count;
} heap;

static void sift_down(heap *h, size_t at, candidate moving)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= h->count) {
            break;
        }
        if (child + 1 < h->count && h->items[child + 1].key < h->items[child].key) {
            child++;
        }
        if (h->items[child].key >= moving.key) {
            break;
        }
        h->items[at] = h->items[child];
        at = child;
    }
    h->items[at] = moving;
}

static void push(heap *h, candidate moving)
{
    size_t at = h->count++;
    while (at > 0 && h->items[(at - 1) / 2].key > moving.key) {
        h->items[at] = h->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->items[at] = moving;
}

static candidate pop(heap *h)
{
    candidate top = h->items[0];
    candidate last = h->items[--h->count];
    if (h->count > 0) {
        sift_down(h, 0, last);
    }
    return top;
}

void qn__merge_link(qn_symbol *symbols, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        symbols[i].previous = (int32_t)i - 1;
        symbols[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
}

qn_status qn__merge(qn_run *run, qn_symbol *symbols, size_t n, qn_pair_fn pair, const void *context)
{
    /* At first n - 1 pairs; a join takes one out, makes two, and happens at most n - 1 times. */
    heap h = {.items = qn__run_need(run, QN_SCRATCH_HEAP, 2 * n, sizeof(candidate))};
    if (!h.items) {
        return qn__run_no_memory(run);
    }
    for (size_t i = 0; i + 1 < n; i++) {
        uint32_t rank;
        candidate c = {.size = symbols[i].size + symbols[i + 1].size};
        if (pair(context, &symbols[i], &symbols[i + 1], &rank, &c.id)) {
            c.key = (uint64_t)rank << 32 | i;
            h.items[h.count++] = c;
        }
    }
    for (size_t i = h.count / 2; i-- > 0;) {
        sift_down(&h, i, h.items[i]);
    }
    while (h.count > 0) {
        candidate best = pop(&h);
        int32_t at = (int32_t)(uint32_t)best.key;
        qn_symbol *left = &symbols[at];
        if (left->size == 0 || left->next < 0 ||
            left->size + symbols[left->next].size != best.size) {
            continue;
        }
        qn_symbol *right = &symbols[left->next];
        left->size = best.size;
        left->id = best.id;
        left->next = right->next;
        right->size = 0;
        candidate c;
        uint32_t rank;
        if (left->next >= 0) {
            symbols[left->next].previous = at;
            if (pair(context, left, &symbols[left->next], &rank, &c.id)) {
                c.key = (uint64_t)rank << 32 | (uint32_t)at;
                c.size = left->size + symbols[left->next].size;
                push(&h, c);
            }
        }
        if (left->previous >= 0 && pair(context, &symbols[left->previous], left, &rank, &c.id)) {
            c.key = (uint64_t)rank << 32 | (uint32_t)left->previous;
            c.size = symbols[left->previous].size + left->size;
            push(&h, c);
        }
    }
    return QN_OK;
}
