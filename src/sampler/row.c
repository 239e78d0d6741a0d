/* row.c: what the row functions share: sparse changes, distances from the best, the history. */
#include <float.h>
#include <math.h>

#include "base/fmath.h"
#include "sampler/sampler.h"
#include "sampler/scan.h"

float qn__finite(float x)
{
    x = x > FLT_MAX ? FLT_MAX : x;
    return x < -FLT_MAX ? -FLT_MAX : x;
}

/* Index of an id in an ascending list, or n. */
static size_t find_id(const int32_t *ids, size_t n, int32_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && ids[low] == id ? low : n;
}

void qn__row_change(qn_candidates *c, const int32_t *ids, size_t n, qn_sparse_change change,
                    const void *with)
{
    c->sorted = c->has_weights = false;
    bool elsewhere = false; /* some id is not at its own index */
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)ids[i];
        if (ids[i] >= 0 && at < c->size && c->ids[at] == ids[i]) {
            c->logits[at] = change(c->logits[at], i, with);
        } else {
            elsewhere = true;
        }
    }
    for (size_t at = 0; elsewhere && at < c->size; at++) {
        size_t i = (size_t)c->ids[at] == at ? n : find_id(ids, n, c->ids[at]);
        if (i < n) {
            c->logits[at] = change(c->logits[at], i, with);
        }
    }
}

size_t qn__row_active(const qn_candidates *c)
{
    return qn__scan()->count(c->logits, c->size, -FLT_MAX);
}

uint32_t qn__row_distance(float max, float logit)
{
    float d = max - logit;
    d = d < QN_DISTANCE_MAX ? d : QN_DISTANCE_MAX;
    return (uint32_t)(d * QN_DISTANCE_UNIT + 0.5F);
}

float qn__row_mean_distance(const qn_candidates *c, float max)
{
    /* w * d <= 2^31 2^12 / e, for up to 2^20 candidates */
    uint64_t sum = qn__scan()->sum_distances(c->logits, c->weights, c->size, max);
    return (float)((double)sum / (double)c->total / (double)QN_DISTANCE_UNIT);
}

float qn__row_log_sum(const qn_candidates *c)
{
    return qn__logf((float)((double)c->total * 0x1p-31));
}

void qn__history_push(qn_history *h, int32_t *ring, int32_t token)
{
    ring[h->next] = token;
    h->next = h->next + 1 < h->capacity ? h->next + 1 : 0;
    h->count += h->count < h->capacity;
}

void qn__history_draft(qn_history *h, int32_t *ring, int32_t token)
{
    ring[h->capacity + h->draft_next] = token;
    h->draft_next = h->draft_next + 1 < h->capacity ? h->draft_next + 1 : 0;
    h->draft_count += h->draft_count < h->capacity;
}

void qn__history_forget_drafts(qn_history *h)
{
    h->draft_count = h->draft_next = 0;
}

void qn__history_clear(qn_history *h)
{
    h->count = h->next = 0;
    qn__history_forget_drafts(h);
}

uint32_t qn__history_count(const qn_history *h, bool with_drafts)
{
    uint32_t room = h->capacity - h->count, more = with_drafts ? h->draft_count : 0;
    return h->count + (more < room ? more : room);
}

int32_t qn__history_back(const qn_history *h, const int32_t *ring, bool with_drafts, uint32_t i)
{
    uint32_t n_drafts = with_drafts ? h->draft_count : 0, next = h->next, back = i + 1;
    if (back <= n_drafts) {
        ring += h->capacity;
        next = h->draft_next;
    } else {
        back -= n_drafts;
    }
    return ring[next >= back ? next - back : next + h->capacity - back];
}
