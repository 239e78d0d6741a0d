/*
 * k_45.c: q4_K and q5_K: super-blocks of 256 in eight sub-blocks of 32 with a scale and a minimum
 * of six bits each, four bits a value in packing P4 (blocks.h), q5_K with a fifth bit.
 *
 * Encoding as in k_23.c: search, bring scales and minima to six bits, round the levels again.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum { SUBS = 8, SUB = 32, FIELD_TOP = 63 };

/* Place of value i in packing P4: byte and shift. */
static int p4_byte(int i)
{
    return 32 * (i / 64) + i % 32;
}

static int p4_shift(int i)
{
    return 4 * (i % 64 / 32);
}

static void pack_p4(const uint8_t level[QN_SUPER_BLOCK], uint8_t qs[128])
{
    memset(qs, 0, 128);
    for (int i = 0; i < QN_SUPER_BLOCK; i++) {
        qs[p4_byte(i)] |= (uint8_t)((level[i] & 15) << p4_shift(i));
    }
}

void qn__q4_k_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t minimum[8])
{
    for (int s = 0; s < 4; s++) {
        scale[s] = packed[s] & 63;
        minimum[s] = packed[s + 4] & 63;
        scale[s + 4] = (uint8_t)((packed[s + 8] & 15) | packed[s] >> 6 << 4);
        minimum[s + 4] = (uint8_t)(packed[s + 8] >> 4 | packed[s + 4] >> 6 << 4);
    }
}

static void pack_scales(const uint8_t scale[SUBS], const uint8_t minimum[SUBS], uint8_t packed[12])
{
    for (int s = 0; s < 4; s++) {
        packed[s] = (uint8_t)(scale[s] | scale[s + 4] >> 4 << 6);
        packed[s + 4] = (uint8_t)(minimum[s] | minimum[s + 4] >> 4 << 6);
        packed[s + 8] = (uint8_t)((scale[s + 4] & 15) | (minimum[s + 4] & 15) << 4);
    }
}

QN_DECODER(q4_k)
{
    const qn_block_q4_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        uint8_t scale[SUBS];
        uint8_t minimum[SUBS];
        float d = qn__f16_to_f32(b->d);
        float dmin = qn__f16_to_f32(b->dmin);
        qn__q4_k_scales(b->scales, scale, minimum);
        for (int s = 0; s < SUBS; s++) {
            float sub_d = d * (float)scale[s];
            float sub_min = dmin * (float)minimum[s];
            for (int i = s * SUB; i < (s + 1) * SUB; i++) {
                y[i] = sub_d * (float)(b->qs[p4_byte(i)] >> p4_shift(i) & 15) - sub_min;
            }
        }
    }
}

QN_DECODER(q5_k)
{
    const qn_block_q5_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        uint8_t scale[SUBS];
        uint8_t minimum[SUBS];
        float d = qn__f16_to_f32(b->d);
        float dmin = qn__f16_to_f32(b->dmin);
        qn__q4_k_scales(b->scales, scale, minimum);
        for (int s = 0; s < SUBS; s++) {
            float sub_d = d * (float)scale[s];
            float sub_min = dmin * (float)minimum[s];
            for (int i = s * SUB; i < (s + 1) * SUB; i++) {
                int q = b->qs[p4_byte(i)] >> p4_shift(i) & 15;
                q |= (b->qh[i % 32] >> s & 1) << 4;
                y[i] = sub_d * (float)q - sub_min;
            }
        }
    }
}

/* What both encoders find for a super-block. */
typedef struct k_fit {
    uint16_t d, dmin; /* half floats */
    uint8_t packed[12];
    uint8_t level[QN_SUPER_BLOCK];
} k_fit;

/* Non-negative values to six bits under one scale, which is returned. */
static float to_six_bits(const float value[SUBS], const float *sum_w, uint8_t out[SUBS])
{
    if (sum_w) {
        return qn__fit_positive(value, sum_w, SUBS, FIELD_TOP, out);
    }
    float largest = 0.0F;
    for (int s = 0; s < SUBS; s++) {
        largest = value[s] > largest ? value[s] : largest;
    }
    float inverse = largest > 0.0F ? (float)FIELD_TOP / largest : 0.0F;
    for (int s = 0; s < SUBS; s++) {
        out[s] = (uint8_t)qn__clamp_int(qn__round_even(inverse * value[s]), 0, FIELD_TOP);
    }
    return largest / (float)FIELD_TOP;
}

/* Weights of the values of sub-block v: magnitudes over their mean square, or by importance. */
static void sub_weights(const float *v, const float *weights, float sigma2, float w[SUB])
{
    if (weights) {
        qn__weigh(weights, v, sigma2, w, SUB);
        return;
    }
    float mean = sqrtf(qn__sum_squares(v, SUB) / (float)SUB);
    for (int i = 0; i < SUB; i++) {
        w[i] = mean + fabsf(v[i]);
    }
}

static void fit_super_block(const float *x, const float *weights, int top, qn_fit_range range,
                            k_fit *fit)
{
    float scale[SUBS];
    float offset[SUBS];
    float sum_w[SUBS];
    uint8_t small_scale[SUBS];
    uint8_t small_min[SUBS];
    float sigma2 =
        weights ? 2.0F * qn__sum_squares(x, QN_SUPER_BLOCK) / (float)QN_SUPER_BLOCK : 0.0F;
    float w[QN_SUPER_BLOCK];
    for (int s = 0; s < SUBS; s++) {
        sub_weights(x + s * SUB, weights ? weights + s * SUB : NULL, sigma2, w + s * SUB);
        sum_w[s] = 0.0F;
        for (int i = 0; i < SUB; i++) {
            sum_w[s] += w[s * SUB + i];
        }
    }
    for (int s = 0; s < SUBS; s += QN_FIT_LANES) {
        qn__fit_offset_lanes(x + s * SUB, w + s * SUB, SUB, top, weights ? qn__fit_weighted : range,
                             fit->level + s * SUB, scale + s, offset + s);
    }
    fit->d = qn__f32_to_f16(to_six_bits(scale, weights ? sum_w : NULL, small_scale));
    fit->dmin = qn__f32_to_f16(to_six_bits(offset, weights ? sum_w : NULL, small_min));
    pack_scales(small_scale, small_min, fit->packed);

    float d = qn__f16_to_f32(fit->d);
    float dmin = qn__f16_to_f32(fit->dmin);
    for (int s = 0; s < SUBS; s++) {
        float sub_d = d * (float)small_scale[s];
        float sub_min = dmin * (float)small_min[s];
        for (int i = s * SUB; sub_d != 0.0F && i < (s + 1) * SUB; i++) {
            int level = qn__clamp_int(qn__round_even((x[i] + sub_min) / sub_d), 0, top);
            fit->level[i] = (uint8_t)level;
        }
    }
}

QN_ENCODER(q4_k)
{
    static const qn_fit_range range = {.start = -1.0F, .step = 0.1F, .steps = 20};
    (void)tables;
    qn_block_q4_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        k_fit fit;
        fit_super_block(x + at, weights ? weights + at : NULL, 15, range, &fit);
        b->d = fit.d;
        b->dmin = fit.dmin;
        memcpy(b->scales, fit.packed, sizeof b->scales);
        pack_p4(fit.level, b->qs);
    }
}

QN_ENCODER(q5_k)
{
    static const qn_fit_range range = {.start = -0.5F, .step = 0.1F, .steps = 15};
    (void)tables;
    qn_block_q5_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        k_fit fit;
        fit_super_block(x + at, weights ? weights + at : NULL, 31, range, &fit);
        b->d = fit.d;
        b->dmin = fit.dmin;
        memcpy(b->scales, fit.packed, sizeof b->scales);
        pack_p4(fit.level, b->qs);
        memset(b->qh, 0, sizeof b->qh);
        for (int i = 0; i < QN_SUPER_BLOCK; i++) {
            b->qh[i % 32] |= (uint8_t)(fit.level[i] >> 4 << (i / 32));
        }
    }
}
