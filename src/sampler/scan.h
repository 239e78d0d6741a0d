/*
 * scan.h: passes over a whole row of candidates, as vectors.
 *
 * A pass is a maximum, a count, an exact integer sum or element-wise, so it has one result whatever
 * the number of lanes: the tables below differ in speed alone. scan_vector.h is their one source.
 *
 * A large row is rarely looked at candidate by candidate. It is cut into blocks, the maxima of the
 * blocks (its peaks) tell where the likely candidates are, and the other blocks are passed over.
 */
#ifndef QUERN_SAMPLER_SCAN_H
#define QUERN_SAMPLER_SCAN_H

#include <quern/base.h>

/* Candidates of a block; the last block of a row may be shorter. */
#define QN_SCAN_BLOCK 64

/* Sums over the candidates that are not banned, of d = qn__row_distance(max, logit). */
typedef struct qn_scan_spread {
    uint64_t count, sum, squares;
} qn_scan_spread;

typedef struct qn_scan {
    const char *name;
    /* Clean logits (NaN becomes -inf, +inf the largest float) and ids 0 .. n-1. */
    void (*clean)(const float *from, size_t n, float *logits, int32_t *ids);
    /* Largest logit; -inf for n = 0. The logits of this and of all below are clean. */
    float (*max)(const float *logits, size_t n);
    /* The maximum of each block; of logits as they come: a NaN is no maximum. */
    void (*peaks)(const float *logits, size_t n, float *peaks);
    /* How many are at least `least`. */
    size_t (*count)(const float *logits, size_t n, float least);
    /* weights[i] = qn__exp_weight(logits[i] - max); returns their sum. */
    uint64_t (*weigh)(const float *logits, size_t n, float max, uint32_t *weights);
    /* Index of the first weight at which the running sum exceeds `target`; n: none. */
    size_t (*reach)(const uint32_t *weights, size_t n, uint64_t target);
    /* Sum of the weights, and count, of the candidates whose logit is at least `least`. */
    uint64_t (*sum_from)(const float *logits, const uint32_t *weights, size_t n, float least,
                         size_t *count);
    /* Sum of weight * distance. */
    uint64_t (*sum_distances)(const float *logits, const uint32_t *weights, size_t n, float max);
    void (*spread)(const float *logits, size_t n, float max, qn_scan_spread *out);
    /* Bans the candidates whose id has no bit set; ids past the words have none. */
    void (*mask)(float *logits, const int32_t *ids, size_t n, const uint32_t *bits, size_t words);
} qn_scan;

extern const qn_scan qn__scan_128, qn__scan_avx2, qn__scan_avx512;

/* The fastest table for this machine. */
const qn_scan *qn__scan(void);

#endif
