/*
 * weight.c: probabilities as integers.
 *
 * The weight of a candidate is 2^31 e^d, d = logit - largest logit, rounded to an integer: 2^31 for
 * the best, 0 below about 2^-32 of it. One fixed procedure of IEEE operations and shifts, so the
 * weights are the same on every machine; sums of them are exact in any order.
 */
#include "sampler/sampler.h"

#include <math.h>

#include "base/fmath.h"
#include "sampler/exp_weight.h"
#include "sampler/scan.h"

/*
 * e^d = 2^k e^r with |r| <= ln(2) / 2; e^r by a polynomial of degree 6; then its 24-bit mantissa is
 * shifted to its place, half rounding up.
 */
uint32_t qn__exp_weight(float d)
{
    float x = d > QN_EXP_LOWEST ? d : QN_EXP_LOWEST; /* also for NaN */
    float shifted = fmaf(x, QN_EXP_LOG2_E, QN_EXP_ROUND);
    float k = shifted - QN_EXP_ROUND;
    float r = fmaf(-k, QN_EXP_LN2_HIGH, x);
    r = fmaf(-k, QN_EXP_LN2_LOW, r);
    float p = QN_EXP_P6;
    p = fmaf(p, r, QN_EXP_P5);
    p = fmaf(p, r, QN_EXP_P4);
    p = fmaf(p, r, QN_EXP_P3);
    p = fmaf(p, r, QN_EXP_P2);
    p = fmaf(p, r, 1.0F);
    p = fmaf(p, r, 1.0F);
    uint32_t bits = qn__float_bits(p);
    uint32_t mantissa = ((bits & 0x7fffffU) | 0x800000U) << 8;
    /* value = mantissa / 2^31 * 2^(31 - down): down is 0 for d = 0 and at most 34 */
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    int32_t power = (int32_t)(qn__float_bits(shifted) - qn__float_bits(QN_EXP_ROUND));
    int32_t down = -(exponent + power);
    uint32_t half = (uint32_t)(down > 32 ? 31 : down - 1) & 31U;
    uint32_t rounded = ((mantissa >> half) + 1U) >> 1;
    rounded = down <= 0 ? mantissa : rounded;
    return down > 32 || !(d > QN_EXP_LOWEST) ? 0U : rounded;
}

uint64_t qn__row_weigh(const float *logits, size_t n, float max, uint32_t *weights)
{
    return qn__scan()->weigh(logits, n, max, weights);
}

float qn__row_max(const float *logits, size_t n)
{
    return qn__scan()->max(logits, n);
}

uint64_t qn__mul_high(uint64_t a, uint64_t b)
{
    uint64_t a0 = a & 0xffffffffU, a1 = a >> 32;
    uint64_t b0 = b & 0xffffffffU, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32); /* < 2^64: (2^32 - 1)^2 + 2^32 - 1 */
    uint64_t middle2 = a0 * b1 + (middle & 0xffffffffU);
    return a1 * b1 + (middle >> 32) + (middle2 >> 32);
}

uint64_t qn__fraction_of(float p)
{
    if (!(p > 0.0F)) {
        return 0;
    }
    return p >= 1.0F ? UINT64_MAX : (uint64_t)ldexp((double)p, 64);
}

uint64_t qn_candidates_weigh(qn_candidates *c)
{
    float max = qn__row_max(c->logits, c->size);
    c->total = max == -INFINITY ? 0 : qn__row_weigh(c->logits, c->size, max, c->weights);
    c->has_weights = c->total > 0;
    return c->total;
}

float qn_candidates_prob(const qn_candidates *c, size_t i)
{
    if (!c->has_weights || i >= c->size) {
        return 0.0F;
    }
    return (float)((double)c->weights[i] / (double)c->total);
}
