/*
 * search.h: what the encoders share: rounding, importance weights, and the searches for the scale
 * that fits a few values best. All sums ascend over the values in single precision: that is what
 * makes encoded files the same bytes everywhere.
 */
#ifndef QUERN_QUANT_SEARCH_H
#define QUERN_QUANT_SEARCH_H

#include <math.h>

#include "base/fmath.h"
#include "quant/blocks.h"

/* Nearest integer, halves to even, for |x| < 2^22; some integer in that range for anything else
 * (NaN too), which callers clamp. */
static inline int qn__round_even(float x)
{
    return (int)(qn__float_bits(x + 12582912.0F) & 0x7fffffU) - 0x400000;
}

/* Nearest integer, halves away from zero, clamped to [low, high] with |low|, |high| < 2^23; NaN
 * gives `low`. */
static inline int qn__round_away(float x, int low, int high)
{
    if (!(x > (float)low)) {
        return low;
    }
    if (x >= (float)high) {
        return high;
    }
    int t = (int)x;
    float rest = x - (float)t;
    return t + (rest >= 0.5F) - (rest <= -0.5F);
}

/* Fraction dropped, clamped to [0, high]; NaN gives 0. */
static inline int qn__truncate(float x, int high)
{
    return x >= (float)high ? high : x > 0.0F ? (int)x : 0;
}

static inline int qn__clamp_int(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

/* 1 / x, or 0 where x is 0. */
static inline float qn__inverse(float x)
{
    return x != 0.0F ? 1.0F / x : 0.0F;
}

/* The value of largest magnitude, the first of equals; 0 for no values or NaN alone. */
float qn__extreme(const float *x, int n);

/* Sum of x * x. */
float qn__sum_squares(const float *x, int64_t n);

/* w = qw * sqrt(sigma2 + x * x): importance of a column to importance of a value. */
void qn__weigh(const float *qw, const float *x, float sigma2, float *w, int n);

/*
 * Symmetric levels -half .. half - 1 with weights w (NULL: x * x): returns the scale and stores
 * level + half. All levels are 0, not half, where every value is (nearly) zero.
 */
float qn__fit_symmetric(const float *x, const float *w, int n, int half, uint8_t *level);

/* As above without weights, improved value by value (q3_K). */
float qn__fit_descent(const float *x, int n, int half, uint8_t *level);

/* How qn__fit_offset searches: trials of f = (start + step * k + top) / range, k = 0 .. steps. */
typedef struct qn_fit_range {
    float start, step;
    int steps;
    bool absolute; /* error |e| instead of e * e */
} qn_fit_range;

/* x ~ scale * level - offset with levels 0 .. top, offset >= 0: returns the scale. n <= 32. */
float qn__fit_offset(const float *x, const float *w, int n, int top, qn_fit_range range,
                     uint8_t *level, float *offset);

/* The same for QN_FIT_LANES groups of n values that lie one behind the other, with the same bits,
 * several times as fast. `scale` and `offset` get one number a group. */
enum { QN_FIT_LANES = 4 };
void qn__fit_offset_lanes(const float *x, const float *w, int n, int top, qn_fit_range range,
                          uint8_t *level, float *scale, float *offset);

/* The trials of every encoder with importance weights. */
extern const qn_fit_range qn__fit_weighted;

/* x >= 0, levels 0 .. top: returns the scale. n <= 32. */
float qn__fit_positive(const float *x, const float *w, int n, int top, uint8_t *level);

#endif
