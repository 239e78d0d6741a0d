/* attend.c: the definition of the leaf functions of attention, in plain C; see attend.h. */
#include "device/cpu/attend.h"

#include <math.h>

#include "base/fmath.h"

#define LANES QN_KV_BLOCK

static void widen_q8_0(const void *block, int64_t d, bool is_v, float *to)
{
    const int8_t *levels = block;
    const uint16_t *scales = (const uint16_t *)(const void *)(levels + d * LANES);
    for (int64_t i = 0; i < d * LANES; i++) {
        int64_t scale = is_v ? i / 32 : i / (32 * LANES) * LANES + i % LANES;
        to[i] = (float)levels[i] * qn__f16_to_f32(scales[scale]);
    }
}

/* b[j][i]. */
static float element(const qn_attend_product *p, int64_t j, int64_t i)
{
    size_t at = (size_t)j * p->ldb + (size_t)i;
    switch (p->b_type) {
    case QN_TYPE_F16:
        return qn__f16_to_f32(((const uint16_t *)p->b)[at]);
    case QN_TYPE_BF16:
        return qn__bf16_to_f32(((const uint16_t *)p->b)[at]);
    case QN_TYPE_Q8_0: {
        int64_t scale = p->is_v ? (int64_t)at / 32 : j / 32 * LANES + i;
        return (float)((const int8_t *)p->b)[at] * qn__f16_to_f32(p->scales[scale]);
    }
    default:
        return ((const float *)p->b)[at];
    }
}

static void accumulate(const qn_attend_product *p)
{
    for (int64_t q = 0; q < p->n_q; q++) {
        const float *a = p->a + (size_t)q * p->lda;
        float *c = p->c + (size_t)q * p->ldc;
        for (int64_t i = 0; i < p->n; i++) {
            float acc = p->fresh ? 0.0F : p->factors ? c[i] * p->factors[q] : c[i];
            for (int64_t j = 0; j < p->n_k; j++) {
                acc = fmaf(a[j], element(p, j, i), acc);
            }
            c[i] = acc;
        }
    }
}

static float soften_one(const qn_attend_soft *p, float slope, float *s, float *m, float *l)
{
    float before = *m, largest = before;
    for (int j = 0; j < LANES; j++) {
        if (!(p->mask >> j & 1U)) {
            continue;
        }
        float x = s[j] * p->scale;
        if (p->soft_cap != 0.0F) {
            x = p->soft_cap * qn__tanhf(x / p->soft_cap);
        }
        if (slope != 0.0F) {
            int64_t apart = p->distance - j;
            x = fmaf(-slope, (float)(apart < 0 ? -apart : apart), x);
        }
        s[j] = x;
        largest = x > largest ? x : largest;
    }
    float c = qn__expf(before - largest);
    for (int j = 0; j < LANES; j++) {
        s[j] = p->mask >> j & 1U ? qn__expf(s[j] - largest) : 0.0F;
        l[j] = fmaf(l[j], c, s[j]);
    }
    *m = largest;
    return c;
}

static void soften(const qn_attend_soft *p, int64_t n, float *s, float *m, float *l, float *factors)
{
    for (int64_t i = 0; i < n; i++) {
        factors[i] =
            soften_one(p, p->slopes ? p->slopes[i] : 0.0F, s + i * LANES, m + i, l + i * LANES);
    }
}

static void merge(float *a, float e, const float *b, float e2, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] = fmaf(a[i], e, b[i] * e2);
    }
}

const qn_cpu_attend_fns qn__attend_scalar = {
    .widen_q8_0 = widen_q8_0,
    .accumulate = accumulate,
    .soften = soften,
    .merge = merge,
};
