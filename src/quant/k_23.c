/*
 * k_23.c: q2_K and q3_K: super-blocks of 256 in sixteen sub-blocks of 16, two bits a value in
 * packing P2 (blocks.h), q3_K with a third bit.
 *
 * Encoding: a scale a sub-block is searched, the sixteen scales are themselves brought to few bits
 * under one half-float scale, and with the scales as stored the levels are rounded again.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum { SUBS = 16, SUB = 16 };

/* Place of value i in packing P2: byte and shift. */
static int p2_byte(int i)
{
    return 32 * (i / 128) + i % 32;
}

static int p2_shift(int i)
{
    return 2 * (i % 128 / 32);
}

static void pack_p2(const uint8_t level[QN_SUPER_BLOCK], uint8_t qs[64])
{
    memset(qs, 0, 64);
    for (int i = 0; i < QN_SUPER_BLOCK; i++) {
        qs[p2_byte(i)] |= (uint8_t)((level[i] & 3) << p2_shift(i));
    }
}

QN_DECODER(q2_k)
{
    const qn_block_q2_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        float dmin = qn__f16_to_f32(b->dmin);
        for (int s = 0; s < SUBS; s++) {
            float scale = d * (float)(b->scales[s] & 15);
            float minimum = dmin * (float)(b->scales[s] >> 4);
            for (int i = s * SUB; i < (s + 1) * SUB; i++) {
                y[i] = scale * (float)(b->qs[p2_byte(i)] >> p2_shift(i) & 3) - minimum;
            }
        }
    }
}

/* The search over the sub-blocks of q2_K: scale, offset, levels and the sum of weights of each. */
static void fit_q2_k(const float *x, const float *weights, float scale[SUBS], float offset[SUBS],
                     float sum_w[SUBS], uint8_t level[QN_SUPER_BLOCK])
{
    static const qn_fit_range plain = {.start = -0.5F, .step = 0.1F, .steps = 15, .absolute = true};
    float sigma2 = weights ? qn__sum_squares(x, QN_SUPER_BLOCK) / (float)QN_SUPER_BLOCK : 0.0F;
    float w[QN_SUPER_BLOCK];
    for (int s = 0; s < SUBS; s++) {
        const float *v = x + s * SUB;
        float *sub_w = w + s * SUB;
        if (weights) {
            qn__weigh(weights + s * SUB, v, sigma2, sub_w, SUB);
        } else {
            for (int i = 0; i < SUB; i++) {
                sub_w[i] = fabsf(v[i]);
            }
        }
        sum_w[s] = 0.0F;
        for (int i = 0; i < SUB; i++) {
            sum_w[s] += sub_w[i];
        }
    }
    for (int s = 0; s < SUBS; s += QN_FIT_LANES) {
        qn__fit_offset_lanes(x + s * SUB, w + s * SUB, SUB, 3, weights ? qn__fit_weighted : plain,
                             level + s * SUB, scale + s, offset + s);
    }
}

/* Non-negative values to four bits under one scale, which is returned. */
static float to_four_bits(const float value[SUBS], const float *sum_w, uint8_t out[SUBS])
{
    if (sum_w) {
        return qn__fit_positive(value, sum_w, SUBS, 15, out);
    }
    float largest = 0.0F;
    for (int s = 0; s < SUBS; s++) {
        largest = value[s] > largest ? value[s] : largest;
    }
    if (!(largest > 0.0F)) {
        memset(out, 0, SUBS);
        return 0.0F;
    }
    float inverse = 15.0F / largest;
    for (int s = 0; s < SUBS; s++) {
        out[s] = (uint8_t)qn__clamp_int(qn__round_even(inverse * value[s]), 0, 15);
    }
    return largest / 15.0F;
}

QN_ENCODER(q2_k)
{
    (void)tables;
    qn_block_q2_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, x += QN_SUPER_BLOCK) {
        float scale[SUBS];
        float offset[SUBS];
        float sum_w[SUBS];
        uint8_t level[QN_SUPER_BLOCK];
        uint8_t small_scale[SUBS];
        uint8_t small_min[SUBS];
        fit_q2_k(x, weights ? weights + at : NULL, scale, offset, sum_w, level);
        b->d = qn__f32_to_f16(to_four_bits(scale, weights ? sum_w : NULL, small_scale));
        b->dmin = qn__f32_to_f16(to_four_bits(offset, weights ? sum_w : NULL, small_min));
        float d = qn__f16_to_f32(b->d);
        float dmin = qn__f16_to_f32(b->dmin);
        for (int s = 0; s < SUBS; s++) {
            b->scales[s] = (uint8_t)(small_scale[s] | small_min[s] << 4);
            float sub_d = d * (float)small_scale[s];
            float sub_min = dmin * (float)small_min[s];
            for (int i = s * SUB; sub_d != 0.0F && i < (s + 1) * SUB; i++) {
                level[i] = (uint8_t)qn__clamp_int(qn__round_even((x[i] + sub_min) / sub_d), 0, 3);
            }
        }
        pack_p2(level, b->qs);
    }
}

void qn__q3_k_scales(const uint8_t packed[12], uint8_t scale[16])
{
    for (int s = 0; s < SUBS; s++) {
        int low = packed[s % 8] >> (4 * (s / 8)) & 15;
        int high = packed[8 + s % 4] >> (2 * (s / 4)) & 3;
        scale[s] = (uint8_t)(low | high << 4);
    }
}

static void pack_q3_k_scales(const uint8_t scale[SUBS], uint8_t packed[12])
{
    memset(packed, 0, 12);
    for (int s = 0; s < SUBS; s++) {
        packed[s % 8] |= (uint8_t)((scale[s] & 15) << (4 * (s / 8)));
        packed[8 + s % 4] |= (uint8_t)(scale[s] >> 4 << (2 * (s / 4)));
    }
}

QN_DECODER(q3_k)
{
    const qn_block_q3_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        uint8_t scale[SUBS];
        float d = qn__f16_to_f32(b->d);
        qn__q3_k_scales(b->scales, scale);
        for (int s = 0; s < SUBS; s++) {
            float sub_d = d * (float)((int)scale[s] - 32);
            for (int i = s * SUB; i < (s + 1) * SUB; i++) {
                int q = b->qs[p2_byte(i)] >> p2_shift(i) & 3;
                q -= b->hmask[i % 32] >> (i / 32) & 1 ? 0 : 4;
                y[i] = sub_d * (float)q;
            }
        }
    }
}

/* Scale and levels of each sub-block of q3_K, then the six-bit fields; returns d. */
static float fit_q3_k(const float *x, const float *weights, uint8_t field[SUBS],
                      uint8_t level[QN_SUPER_BLOCK])
{
    float scale[SUBS];
    float sum_w[SUBS];
    float sigma2 =
        weights ? 2.0F * qn__sum_squares(x, QN_SUPER_BLOCK) / (float)QN_SUPER_BLOCK : 0.0F;
    for (int s = 0; s < SUBS; s++) {
        const float *v = x + s * SUB;
        if (!weights) {
            scale[s] = qn__fit_descent(v, SUB, 4, level + s * SUB);
            continue;
        }
        float w[SUB];
        qn__weigh(weights + s * SUB, v, sigma2, w, SUB);
        sum_w[s] = 0.0F;
        for (int i = 0; i < SUB; i++) {
            sum_w[s] += w[i];
        }
        scale[s] = qn__fit_symmetric(v, w, SUB, 4, level + s * SUB);
    }
    if (weights) {
        return qn__fit_symmetric(scale, sum_w, SUBS, 32, field);
    }
    float extreme = qn__extreme(scale, SUBS);
    if (extreme == 0.0F) {
        memset(field, 0, SUBS);
        return 0.0F;
    }
    float f = -32.0F / extreme;
    for (int s = 0; s < SUBS; s++) {
        field[s] = (uint8_t)(qn__clamp_int(qn__round_even(f * scale[s]), -32, 31) + 32);
    }
    return 1.0F / f;
}

QN_ENCODER(q3_k)
{
    (void)tables;
    qn_block_q3_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, x += QN_SUPER_BLOCK) {
        uint8_t field[SUBS];
        uint8_t level[QN_SUPER_BLOCK];
        b->d = qn__f32_to_f16(fit_q3_k(x, weights ? weights + at : NULL, field, level));
        pack_q3_k_scales(field, b->scales);
        float d = qn__f16_to_f32(b->d);
        memset(b->hmask, 0, sizeof b->hmask);
        for (int i = 0; i < QN_SUPER_BLOCK; i++) {
            float sub_d = d * (float)((int)field[i / SUB] - 32);
            if (sub_d != 0.0F) {
                level[i] = (uint8_t)(qn__clamp_int(qn__round_even(x[i] / sub_d), -4, 3) + 4);
            }
            b->hmask[i % 32] |= (uint8_t)((level[i] >> 2 & 1) << (i / 32));
        }
        pack_p2(level, b->qs);
    }
}
