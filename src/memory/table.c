/* table.c: the entries of one sequence in one group; see internal.h. */
#include "memory/internal.h"

static int lowest(uint32_t mask)
{
    return __builtin_ctz(mask);
}

static int highest(uint32_t mask)
{
    return 31 - __builtin_clz(mask);
}

int32_t qn__kv_table_min(const table *t)
{
    return t->count == 0 ? -1 : t->first * SIDE + lowest(qn__kv_entry(t, 0)->mask);
}

int32_t qn__kv_table_max(const table *t)
{
    int32_t last = t->count - 1;
    return last < 0 ? -1 : (t->first + last) * SIDE + highest(qn__kv_entry(t, last)->mask);
}

int32_t qn__kv_table_below(const table *t, int32_t p)
{
    for (int32_t i = t->count - 1; i >= 0; i--) {
        uint32_t mask = qn__kv_entry(t, i)->mask & qn__kv_range_mask(t->first + i, 0, p);
        if (mask) {
            return (t->first + i) * SIDE + highest(mask);
        }
    }
    return -1;
}

entry *qn__kv_table_find(const table *t, int32_t index)
{
    return index < t->first || index >= t->first + t->count ? NULL
                                                            : qn__kv_entry(t, index - t->first);
}

bool qn__kv_table_extend(const group *g, table *t, int32_t index)
{
    if (t->count == 0) {
        t->head = 0;
        t->first = index;
    }
    int32_t need = index - t->first + 1;
    if (need > g->capacity) {
        return false;
    }
    if (t->head + need > g->capacity) {
        memmove(t->entries, qn__kv_entry(t, 0), (size_t)t->count * sizeof *t->entries);
        t->head = 0;
    }
    for (; t->count < need; t->count++) {
        *qn__kv_entry(t, t->count) = (entry){NONE, 0};
    }
    return true;
}

void qn__kv_table_trim(table *t)
{
    while (t->count > 0 && qn__kv_entry(t, t->count - 1)->mask == 0) {
        t->count--;
    }
    while (t->count > 0 && qn__kv_entry(t, 0)->mask == 0) {
        t->head++;
        t->first++;
        t->count--;
    }
}

uint32_t qn__kv_range_mask(int32_t index, int64_t p0, int64_t p1)
{
    int64_t low = p0 - (int64_t)index * SIDE, high = p1 - (int64_t)index * SIDE;
    if (low >= SIDE || high <= 0 || low >= high) {
        return 0;
    }
    uint32_t mask = low > 0 ? UINT32_MAX << low : UINT32_MAX;
    return high < SIDE ? mask & ~(UINT32_MAX << high) : mask;
}

/* From the end on, so that the blocks of a prefix are the last ones to be taken again. */
void qn__kv_table_remove(qn_kv *kv, int32_t gi, table *t, int64_t p0, int64_t p1)
{
    int64_t from = qn__max_i64(0, p0 / SIDE - t->first);
    for (int64_t i = qn__min_i64(t->count - 1, p1 / SIDE - t->first); i >= from; i--) {
        entry *e = qn__kv_entry(t, (int32_t)i);
        if (e->mask == 0) {
            continue;
        }
        e->mask &= ~qn__kv_range_mask(t->first + (int32_t)i, p0, p1);
        if (e->mask == 0) {
            qn__kv_block_release(kv, gi, e->block, 1);
            e->block = NONE;
        }
    }
    qn__kv_table_trim(t);
}

int32_t qn__kv_window_start(const qn_kv *kv, const group *g, int32_t p)
{
    if (kv->config.full_windows) {
        return 0;
    }
    int64_t start = 0, n = g->window_size;
    switch (g->window) {
    case QN_WINDOW_STANDARD:
        start = p - n + 1;
        break;
    case QN_WINDOW_CHUNKED:
        start = p - p % n;
        break;
    case QN_WINDOW_SYMMETRIC:
        start = p - n / 2;
        break;
    case QN_WINDOW_NONE:
        break;
    }
    return start > 0 ? (int32_t)start : 0;
}
