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

/* Maxima of the blocks, in the second half of the work space: the first one holds keys. */
static float *find_peaks(const qn_candidates *c)
{
    float *peaks = (float *)(c->work + c->n_max);
    qn__scan()->peaks(c->logits, c->size, peaks);
    return peaks;
}

static size_t n_blocks(const qn_candidates *c)
{
    return (c->size + QN_SCAN_BLOCK - 1) / QN_SCAN_BLOCK;
}

static size_t block_end(const qn_candidates *c, size_t block)
{
    size_t end = (block + 1) * QN_SCAN_BLOCK;
    return end < c->size ? end : c->size;
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

/* What the k best reach, if so many are not banned; never -inf. */
static float bound_of(const qn_candidates *c, const float *peaks, size_t k)
{
    const qn_scan *scan = qn__scan();
    size_t blocks = n_blocks(c);
    if (k <= blocks / 2 && scan->count(peaks, blocks, -FLT_MAX) >= k) {
        return lower_bound(peaks, blocks, k);
    }
    if (k <= c->size / 4 && scan->count(c->logits, c->size, -FLT_MAX) >= k) {
        return lower_bound(c->logits, c->size, k);
    }
    return -FLT_MAX;
}

/* Keys of those that reach the bound; their number. */
static size_t gather_keys(qn_candidates *c, const float *peaks, float bound)
{
    size_t n = 0;
    for (size_t b = 0; b < n_blocks(c); b++) {
        if (!(peaks[b] >= bound)) {
            continue;
        }
        for (size_t i = b * QN_SCAN_BLOCK; i < block_end(c, b); i++) {
            if (c->logits[i] >= bound) {
                c->work[n++] = qn__candidate_key(c->logits[i], c->ids[i]);
            }
        }
    }
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
    const float *peaks = find_peaks(c);
    size_t n = gather_keys(c, peaks, bound_of(c, peaks, k));
    qn__sort_keys(c->work, n, c->work + c->n_max);
    if (n < k) {
        add_banned(c, c->work + n, k - n);
    }
}

void qn__row_cut(qn_candidates *c, float least)
{
    const float *peaks = find_peaks(c);
    size_t n = 0;
    for (size_t b = 0; b < n_blocks(c); b++) {
        if (!(peaks[b] >= least)) {
            continue;
        }
        for (size_t i = b * QN_SCAN_BLOCK; i < block_end(c, b); i++) {
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
