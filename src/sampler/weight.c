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

#define LANES 16

/* Below it the weight rounds to 0: 2^31 e^d < 1/2. Cut a little later; the shifts do the rest. */
#define LOWEST_D (-22.5F)

#define LOG2_E     0x1.715476p+0F
#define LN2_HIGH   0x1.62e4p-1F /* 15 bits: times an exponent it is exact */
#define LN2_LOW    0x1.7f7d1cp-20F
#define ROUND_BIAS 12582912.0F /* 1.5 * 2^23: adding it rounds to an integer in the low bits */

/*
 * e^d = 2^k e^r with |r| <= ln(2) / 2; e^r by a polynomial of degree 6 (error 2^-27, fitted for
 * this interval); then its 24-bit mantissa is shifted to its place, half rounding up.
 */
__attribute__((always_inline)) static inline uint32_t exp_weight(float d)
{
    float x = d > LOWEST_D ? d : LOWEST_D; /* also for NaN */
    float shifted = fmaf(x, LOG2_E, ROUND_BIAS);
    float k = shifted - ROUND_BIAS;
    float r = fmaf(-k, LN2_HIGH, x);
    r = fmaf(-k, LN2_LOW, r);
    float p = 0x1.6a214cp-10F;
    p = fmaf(p, r, 0x1.123b9ap-7F);
    p = fmaf(p, r, 0x1.5558fcp-5F);
    p = fmaf(p, r, 0x1.555490p-3F);
    p = fmaf(p, r, 0x1.fffffcp-2F);
    p = fmaf(p, r, 1.0F);
    p = fmaf(p, r, 1.0F);
    uint32_t bits = qn__float_bits(p);
    uint32_t mantissa = ((bits & 0x7fffffU) | 0x800000U) << 8;
    /* value = mantissa / 2^31 * 2^(31 - down): down is 0 for d = 0 and at most 34 */
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    int32_t power = (int32_t)(qn__float_bits(shifted) - qn__float_bits(ROUND_BIAS));
    int32_t down = -(exponent + power);
    uint32_t half = (uint32_t)(down > 32 ? 31 : down - 1) & 31U;
    uint32_t rounded = ((mantissa >> half) + 1U) >> 1;
    rounded = down <= 0 ? mantissa : rounded;
    return down > 32 || !(d > LOWEST_D) ? 0U : rounded;
}

uint32_t qn__exp_weight(float d)
{
    return exp_weight(d);
}

__attribute__((always_inline)) static inline uint64_t weigh(const float *logits, size_t n,
                                                            float max, uint32_t *weights)
{
    uint64_t lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            weights[i + j] = exp_weight(logits[i + j] - max);
        }
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] += weights[i + j];
        }
    }
    uint64_t sum = 0;
    for (; i < n; i++) {
        weights[i] = exp_weight(logits[i] - max);
        sum += weights[i];
    }
    for (size_t j = 0; j < LANES; j++) {
        sum += lanes[j];
    }
    return sum;
}

/* The same code compiled for machines whose fused multiply-add is an instruction: same bits. */
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static uint64_t weigh_fma(const float *logits, size_t n,
                                                              float max, uint32_t *weights)
{
    return weigh(logits, n, max, weights);
}
#endif

uint64_t qn__row_weigh(const float *logits, size_t n, float max, uint32_t *weights)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return weigh_fma(logits, n, max, weights);
    }
#endif
    return weigh(logits, n, max, weights);
}

float qn__row_max(const float *logits, size_t n)
{
    float lanes[LANES];
    for (size_t j = 0; j < LANES; j++) {
        lanes[j] = -INFINITY;
    }
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
        }
    }
    for (; i < n; i++) {
        lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
    }
    for (size_t j = 1; j < LANES; j++) {
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    }
    return lanes[0];
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
