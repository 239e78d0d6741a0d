/*
 * simple.c: blocks of 32 values with one scale: q4_0, q5_0 (symmetric), q4_1, q5_1 (scale and
 * minimum), q8_0, and q8_1 for activations.
 *
 * Encoding makes 32 levels and one or two scales, then packs: low four bits as nibbles (value j
 * with value j + 16), the fifth bits as a word.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum { HALF = QN_BLOCK / 2 };

static void pack_nibbles(const uint8_t level[QN_BLOCK], uint8_t qs[HALF])
{
    for (int j = 0; j < HALF; j++) {
        qs[j] = (uint8_t)((level[j] & 15) | (level[j + HALF] & 15) << 4);
    }
}

static uint32_t pack_fifth_bits(const uint8_t level[QN_BLOCK])
{
    uint32_t bits = 0;
    for (int i = 0; i < QN_BLOCK; i++) {
        bits |= (uint32_t)(level[i] >> 4 & 1) << i;
    }
    return bits;
}

QN_DECODER(q4_0)
{
    const qn_block_q4_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < HALF; j++) {
            y[j] = (float)((b->qs[j] & 15) - 8) * d;
            y[j + HALF] = (float)((b->qs[j] >> 4) - 8) * d;
        }
    }
}

QN_DECODER(q4_1)
{
    const qn_block_q4_1 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        float m = qn__f16_to_f32(b->m);
        for (int j = 0; j < HALF; j++) {
            y[j] = (float)(b->qs[j] & 15) * d + m;
            y[j + HALF] = (float)(b->qs[j] >> 4) * d + m;
        }
    }
}

QN_DECODER(q5_0)
{
    const qn_block_q5_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        uint32_t qh = b->qh;
        for (int j = 0; j < HALF; j++) {
            int low = (b->qs[j] & 15) | (int)(qh >> j & 1) << 4;
            int high = b->qs[j] >> 4 | (int)(qh >> (j + HALF) & 1) << 4;
            y[j] = (float)(low - 16) * d;
            y[j + HALF] = (float)(high - 16) * d;
        }
    }
}

QN_DECODER(q5_1)
{
    const qn_block_q5_1 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        float m = qn__f16_to_f32(b->m);
        uint32_t qh = b->qh;
        for (int j = 0; j < HALF; j++) {
            int low = (b->qs[j] & 15) | (int)(qh >> j & 1) << 4;
            int high = b->qs[j] >> 4 | (int)(qh >> (j + HALF) & 1) << 4;
            y[j] = (float)low * d + m;
            y[j + HALF] = (float)high * d + m;
        }
    }
}

QN_DECODER(q8_0)
{
    const qn_block_q8_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < QN_BLOCK; j++) {
            y[j] = (float)b->qs[j] * d;
        }
    }
}

QN_DECODER(q8_1)
{
    const qn_block_q8_1 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < QN_BLOCK; j++) {
            y[j] = (float)b->qs[j] * d;
        }
    }
}

/* q4_0, q5_0: scale and stored levels 0 .. 2 half - 1. `qw`: weights of the columns or NULL. */
static float fit_symmetric(const float *x, const float *qw, float sigma2, int half, uint8_t *level)
{
    if (qw) {
        float w[QN_BLOCK];
        qn__weigh(qw, x, sigma2, w, QN_BLOCK);
        return qn__fit_symmetric(x, w, QN_BLOCK, half, level);
    }
    float d = qn__extreme(x, QN_BLOCK) / -(float)half;
    float inverse = qn__inverse(d);
    for (int i = 0; i < QN_BLOCK; i++) {
        level[i] = (uint8_t)qn__truncate(x[i] * inverse + ((float)half + 0.5F), 2 * half - 1);
    }
    return d;
}

/* q4_1, q5_1: scale, minimum and levels 0 .. top. */
static float fit_range(const float *x, const float *qw, float sigma2, int top, uint8_t *level,
                       float *minimum)
{
    if (qw) {
        float w[QN_BLOCK];
        float offset;
        qn__weigh(qw, x, sigma2, w, QN_BLOCK);
        float scale = qn__fit_offset(x, w, QN_BLOCK, top, qn__fit_weighted, level, &offset);
        *minimum = -offset;
        return scale;
    }
    float low = x[0];
    float high = x[0];
    for (int i = 1; i < QN_BLOCK; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float d = (high - low) / (float)top;
    float inverse = qn__inverse(d);
    for (int i = 0; i < QN_BLOCK; i++) {
        level[i] = (uint8_t)qn__truncate((x[i] - low) * inverse + 0.5F, top);
    }
    *minimum = low;
    return d;
}

static float row_sigma2(const float *x, int64_t n, const float *weights)
{
    return weights ? qn__sum_squares(x, n) / (float)n : 0.0F;
}

/* Moves on to the weights of the next block, where there are any. */
static const float *block_weights(const float *weights, int64_t i)
{
    return weights ? weights + i : NULL;
}

QN_ENCODER(q4_0)
{
    (void)tables;
    qn_block_q4_0 *b = blocks;
    float sigma2 = row_sigma2(x, n, weights);
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++) {
        uint8_t level[QN_BLOCK];
        b->d = qn__f32_to_f16(fit_symmetric(x + i, block_weights(weights, i), sigma2, 8, level));
        pack_nibbles(level, b->qs);
    }
}

QN_ENCODER(q5_0)
{
    (void)tables;
    qn_block_q5_0 *b = blocks;
    float sigma2 = row_sigma2(x, n, weights);
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++) {
        uint8_t level[QN_BLOCK];
        b->d = qn__f32_to_f16(fit_symmetric(x + i, block_weights(weights, i), sigma2, 16, level));
        b->qh = pack_fifth_bits(level);
        pack_nibbles(level, b->qs);
    }
}

QN_ENCODER(q4_1)
{
    (void)tables;
    qn_block_q4_1 *b = blocks;
    float sigma2 = row_sigma2(x, n, weights);
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++) {
        uint8_t level[QN_BLOCK];
        float m;
        b->d = qn__f32_to_f16(fit_range(x + i, block_weights(weights, i), sigma2, 15, level, &m));
        b->m = qn__f32_to_f16(m);
        pack_nibbles(level, b->qs);
    }
}

QN_ENCODER(q5_1)
{
    (void)tables;
    qn_block_q5_1 *b = blocks;
    float sigma2 = row_sigma2(x, n, weights);
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++) {
        uint8_t level[QN_BLOCK];
        float m;
        b->d = qn__f32_to_f16(fit_range(x + i, block_weights(weights, i), sigma2, 31, level, &m));
        b->m = qn__f32_to_f16(m);
        b->qh = pack_fifth_bits(level);
        pack_nibbles(level, b->qs);
    }
}

/* Levels of q8_0 and q8_1; returns the exact scale. */
static float fit_eight(const float *x, int8_t level[QN_BLOCK])
{
    float d = fabsf(qn__extreme(x, QN_BLOCK)) / 127.0F;
    float inverse = qn__inverse(d);
    for (int i = 0; i < QN_BLOCK; i++) {
        level[i] = (int8_t)qn__round_away(x[i] * inverse, -127, 127);
    }
    return d;
}

QN_ENCODER(q8_0)
{
    (void)weights;
    (void)tables;
    qn_block_q8_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++) {
        b->d = qn__f32_to_f16(fit_eight(x + i, b->qs));
    }
}

QN_ENCODER(q8_1)
{
    (void)weights;
    (void)tables;
    qn_block_q8_1 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_BLOCK, b++) {
        float d = fit_eight(x + i, b->qs);
        int sum = 0;
        for (int j = 0; j < QN_BLOCK; j++) {
            sum += b->qs[j];
        }
        b->d = qn__f32_to_f16(d);
        b->s = qn__f32_to_f16((float)sum * d);
    }
}

/* q8_1 is no weight type: a block of it in a file is never valid. */
QN_FINDER(q8_1)
{
    (void)blocks;
    return count > 0 ? 0 : -1;
}
