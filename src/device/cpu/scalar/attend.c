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

static float element(qn_type type, const void *b, size_t at)
{
    switch (type) {
    case QN_TYPE_F16:
        return qn__f16_to_f32(((const uint16_t *)b)[at]);
    case QN_TYPE_BF16:
        return qn__bf16_to_f32(((const uint16_t *)b)[at]);
    default:
        return ((const float *)b)[at];
    }
}

static void accumulate(const qn_attend_product *p)
{
    for (int64_t q = 0; q < p->n_q; q++) {
        const float *a = p->a + (size_t)q * p->lda;
        float *c = p->c + (size_t)q * p->ldc;
        for (int64_t i = 0; i < p->n; i++) {
            float acc = p->fresh ? 0.0F : c[i];
            for (int64_t j = 0; j < p->n_k; j++) {
                acc = fmaf(a[j], element(p->b_type, p->b, (size_t)j * p->ldb + (size_t)i), acc);
            }
            c[i] = acc;
        }
    }
}

static float soften(const qn_attend_soft *p, uint32_t mask, int64_t distance, float s[32], float *m,
                    float l[32])
{
    float before = *m, largest = before;
    for (int j = 0; j < LANES; j++) {
        if (!(mask >> j & 1U)) {
            continue;
        }
        float x = s[j] * p->scale;
        if (p->soft_cap != 0.0F) {
            x = p->soft_cap * qn__tanhf(x / p->soft_cap);
        }
        if (p->slope != 0.0F) {
            int64_t apart = distance - j;
            x = fmaf(-p->slope, (float)(apart < 0 ? -apart : apart), x);
        }
        s[j] = x;
        largest = x > largest ? x : largest;
    }
    float c = qn__expf(before - largest);
    for (int j = 0; j < LANES; j++) {
        s[j] = mask >> j & 1U ? qn__expf(s[j] - largest) : 0.0F;
        l[j] = fmaf(l[j], c, s[j]);
    }
    *m = largest;
    return c;
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
