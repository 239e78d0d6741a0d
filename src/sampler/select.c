/*
 * select.c: the best of a large set without sorting it. A bound is found that enough candidates
 * reach; the blocks (sampler/scan.h) whose maximum is below it are passed over.
 */
#include <float.h>
#include <math.h>

#include "sampler/sampler.h"
#include "sampler/scan.h"

/* Halvings of the interval in which the bound lies; where that is not enough, more candidates than
 * needed reach it, and they are sorted for nothing. */
#define HALVINGS 24

/* A set that is only looked at. */
typedef struct view {
    const float *logits;
    const int32_t *ids; /* NULL: 0, 1, … */
    size_t n, n_blocks;
    float *peaks; /* maxima of the blocks */
} view;

/* The peaks go into the second half of the work space: the first one holds keys. */
static view view_of(const qn_candidates *c, const float *logits, const int32_t *ids, size_t n)
{
    view v = {logits, ids, n, (n + QN_SCAN_BLOCK - 1) / QN_SCAN_BLOCK,
              (float *)(c->work + c->n_max)};
    qn__scan()->peaks(logits, n, v.peaks);
    return v;
}

static size_t block_end(const view *v, size_t block)
{
    size_t end = (block + 1) * QN_SCAN_BLOCK;
    return end < v->n ? end : v->n;
}

/* A number that at least k of the values reach, and hardly more. At least k are not banned. */
static float lower_bound(const float *values, size_t n, size_t k)
{
    const qn_scan *scan = qn__scan();
    float high = scan->max(values, n), low = high;
    for (float down = 1.0F; scan->count(values, n, low) < k; down *= 2.0F) {
        high = low;
        low = qn__finite(low - down);
    }
    for (int i = 0; i < HALVINGS && low < high; i++) {
        float middle = low + (high - low) * 0.5F;
        size_t count = scan->count(values, n, middle);
        if (count < k) {
            high = middle;
            continue;
        }
        low = middle;
        if (count <= k + k / 4) {
            break;
        }
    }
    return low;
}

/* What the k best reach, if that can be told by the peaks; else -inf. */
static float bound_by_peaks(const view *v, size_t k)
{
    bool enough = k <= v->n_blocks / 2 && qn__scan()->count(v->peaks, v->n_blocks, -FLT_MAX) >= k;
    return enough ? lower_bound(v->peaks, v->n_blocks, k) : -INFINITY;
}

/* The same, of clean logits; the least number where not so many are left. Never -inf. */
static float bound_of(const view *v, size_t k)
{
    float bound = bound_by_peaks(v, k);
    if (bound == -INFINITY && k <= v->n / 4 && qn__scan()->count(v->logits, v->n, -FLT_MAX) >= k) {
        bound = lower_bound(v->logits, v->n, k);
    }
    return bound > -INFINITY ? bound : -FLT_MAX;
}

/* Keys of those that reach the bound, sorted; their number. */
static size_t take_best(qn_candidates *c, const view *v, float bound)
{
    size_t n = 0;
    for (size_t b = 0; b < v->n_blocks; b++) {
        if (!(v->peaks[b] >= bound)) {
            continue;
        }
        for (size_t i = b * QN_SCAN_BLOCK; i < block_end(v, b); i++) {
            if (v->logits[i] >= bound) {
                int32_t id = v->ids ? v->ids[i] : (int32_t)i;
                c->work[n++] = qn__candidate_key(qn__finite(v->logits[i]), id);
            }
        }
    }
    qn__sort_keys(c->work, n, c->work + c->n_max);
    return n;
}

/* Keys of the k banned candidates of lowest id. Most often the set is in the order of ids, and the
 * first ones are these. */
static void add_banned(qn_candidates *c, uint64_t *keys, size_t k)
{
    size_t n = 0, i = 0;
    int32_t last = -1;
    bool ascend = true;
    for (; i < c->size && n < k; i++) {
        if (c->logits[i] == -INFINITY) {
            ascend = ascend && c->ids[i] > last;
            last = c->ids[i];
            keys[n++] = qn__candidate_key(-INFINITY, last);
        }
    }
    int lower = 0; /* whether a later one has a lower id; no branches, so that vectors do it */
    for (size_t j = i; j < c->size; j++) {
        lower |= (c->logits[j] == -INFINITY) & (c->ids[j] < last);
    }
    if (ascend && !lower) {
        return;
    }
    for (; i < c->size; i++) {
        if (c->logits[i] == -INFINITY) {
            keys[n++] = qn__candidate_key(-INFINITY, c->ids[i]);
        }
    }
    qn__sort_keys(keys, n, c->work + c->n_max);
}

void qn__row_best_keys(qn_candidates *c, size_t k)
{
    view v = view_of(c, c->logits, c->ids, c->size);
    size_t n = take_best(c, &v, bound_of(&v, k));
    if (n < k) {
        add_banned(c, c->work + n, k - n);
    }
}

/* Adds the ids that are not there yet, with the logits of the row. The first n_best of the set are
 * the best of the row, so whether an id is among them its own key tells. */
static void add_ids(qn_candidates *c, const float *logits, size_t n, size_t n_best,
                    const qn_id_list *list)
{
    uint64_t last = qn__candidate_key(c->logits[n_best - 1], c->ids[n_best - 1]);
    for (size_t i = 0; i < list->n; i++) {
        int32_t id = list->ids[i];
        if (id < 0 || (size_t)id >= n) {
            continue;
        }
        float logit = logits[id];
        logit = logit >= -FLT_MAX ? qn__finite(logit) : -INFINITY; /* also for NaN */
        if (qn__candidate_key(logit, id) <= last) {
            continue;
        }
        size_t at = n_best;
        while (at < c->size && c->ids[at] != id) {
            at++;
        }
        c->ids[at] = id;
        c->logits[at] = logit;
        c->size += at == c->size;
        c->sorted = false;
    }
}

bool qn__row_begin(qn_candidates *c, const float *logits, size_t n, size_t k,
                   const qn_id_list *lists, size_t n_lists)
{
    n = n < c->n_max ? n : c->n_max;
    for (size_t i = 0; i < n_lists; i++) { /* so many of the best may become worse */
        k += k < n ? lists[i].n : 0;
    }
    view v = view_of(c, logits, NULL, n);
    for (size_t b = 0; b < v.n_blocks; b++) {
        v.peaks[b] = v.peaks[b] < FLT_MAX ? v.peaks[b] : FLT_MAX; /* banned ones stay so */
    }
    float bound = k > 0 ? bound_by_peaks(&v, k) : -INFINITY;
    if (bound == -INFINITY) {
        return false;
    }
    (void)take_best(c, &v, bound);
    qn__row_take_keys(c, c->work, k);
    for (size_t i = 0; i < n_lists; i++) {
        add_ids(c, logits, n, k, &lists[i]);
    }
    c->selected = -1;
    c->total = 0;
    c->row = logits;
    c->n_row = n;
    return true;
}

void qn__row_cut(qn_candidates *c, float least)
{
    view v = view_of(c, c->logits, c->ids, c->size);
    size_t n = 0;
    for (size_t b = 0; b < v.n_blocks; b++) {
        if (!(v.peaks[b] >= least)) {
            continue;
        }
        for (size_t i = b * QN_SCAN_BLOCK; i < block_end(&v, b); i++) {
            float logit = c->logits[i];
            c->logits[n] = logit;
            c->ids[n] = c->ids[i];
            if (c->has_weights) {
                c->weights[n] = c->weights[i];
            }
            n += logit >= least;
        }
    }
    c->size = n;
}
