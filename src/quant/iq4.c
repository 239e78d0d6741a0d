/*
 * iq4.c: iq4_nl and iq4_xs: four bits that index a table of sixteen unevenly spaced values; one
 * half-float scale a block of 32, or six-bit scales under one of a super-block.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum { SUBS = 8, HALF = QN_BLOCK / 2 };

const int8_t qn__iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

QN_DECODER(iq4_nl)
{
    const qn_block_iq4_nl *b = blocks;
    for (int64_t at = 0; at < n; at += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < HALF; j++) {
            y[j] = d * (float)qn__iq4_values[b->qs[j] & 15];
            y[j + HALF] = d * (float)qn__iq4_values[b->qs[j] >> 4];
        }
    }
}

QN_DECODER(iq4_xs)
{
    const qn_block_iq4_xs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int g = 0; g < SUBS; g++, y += QN_BLOCK) {
            int scale = b->scales_l[g / 2] >> (4 * (g % 2)) & 15;
            scale |= (b->scales_h >> (2 * g) & 3) << 4;
            float sub_d = d * (float)(scale - 32);
            const uint8_t *qs = b->qs + HALF * g;
            for (int j = 0; j < HALF; j++) {
                y[j] = sub_d * (float)qn__iq4_values[qs[j] & 15];
                y[j + HALF] = sub_d * (float)qn__iq4_values[qs[j] >> 4];
            }
        }
    }
}

/* The middle between a table value and the next, and the step to it. A number takes the upper of
 * two values that are equally near. */
static const float middle[15] = {-115.5F, -93.5F, -74.0F, -57.0F, -42.0F, -28.5F, -16.0F, -4.5F,
                                 7.0F,    19.0F,  31.5F,  45.5F,  61.0F,  79.0F,  101.0F};
static const float step_up[15] = {23.0F, 21.0F, 18.0F, 16.0F, 14.0F, 13.0F, 12.0F, 11.0F,
                                  12.0F, 12.0F, 13.0F, 15.0F, 16.0F, 20.0F, 24.0F};

/* Index of the table value nearest to z. */
static int nearest(float z)
{
    int index = 0;
    for (int k = 0; k < 15; k++) {
        index += z >= middle[k];
    }
    return index;
}

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t mask __attribute__((vector_size(16)));

/* The table values nearest to f * x, as sums of steps: exact, and free of look-ups. */
static void nearest_values(const float *x, float f, float q[QN_BLOCK])
{
    const float lowest = (float)qn__iq4_values[0];
    for (int i = 0; i < QN_BLOCK; i += 4) {
        lanes z;
        lanes sum = {lowest, lowest, lowest, lowest};
        memcpy(&z, x + i, sizeof z);
        z = z * f;
        for (int k = 0; k < 15; k++) {
            lanes step = {step_up[k], step_up[k], step_up[k], step_up[k]};
            mask reached = z >= middle[k];
            sum += (lanes)((mask)step & reached);
        }
        memcpy(q + i, &sum, sizeof sum);
    }
}

/* The scale of 32 values with weights w, or 0 where they are (nearly) zero. */
static float fit_scale(const float *x, const float *w)
{
    float extreme = qn__extreme(x, QN_BLOCK);
    if (fabsf(extreme) < 1e-15F) {
        return 0.0F;
    }
    float lowest = (float)qn__iq4_values[0];
    float scale = 0.0F;
    float best = 0.0F;
    /* The first trial has a way of its own to come by its factor. */
    for (int k = -8; k <= 7; k++) {
        bool first = k == -8;
        float f = first ? 1.0F / (-extreme / lowest) : ((float)k + lowest) / extreme;
        float a = 0.0F;
        float b = 0.0F;
        float q[QN_BLOCK];
        nearest_values(x, f, q);
        for (int i = 0; i < QN_BLOCK; i++) {
            a += w[i] * q[i] * x[i];
            b += w[i] * q[i] * q[i];
        }
        if (first) {
            scale = b > 0.0F ? a / b : 0.0F;
            best = scale * a;
        } else if (b > 0.0F && a * a > best * b) {
            scale = a / b;
            best = scale * a;
        }
    }
    return scale;
}

/* Weights of 32 values: by importance or their squares. */
static void block_weights(const float *x, const float *weights, float sigma2, float w[QN_BLOCK])
{
    if (weights) {
        qn__weigh(weights, x, sigma2, w, QN_BLOCK);
        return;
    }
    for (int i = 0; i < QN_BLOCK; i++) {
        w[i] = x[i] * x[i];
    }
}

/* Nibbles of 32 values for the exact scale. */
static void pack(const float *x, float scale, uint8_t qs[HALF])
{
    float inverse = qn__inverse(scale);
    for (int j = 0; j < HALF; j++) {
        qs[j] = (uint8_t)(nearest(inverse * x[j]) | nearest(inverse * x[j + HALF]) << 4);
    }
}

QN_ENCODER(iq4_nl)
{
    (void)tables;
    qn_block_iq4_nl *b = blocks;
    for (int64_t at = 0; at < n; at += QN_BLOCK, b++, x += QN_BLOCK) {
        float w[QN_BLOCK];
        float sigma2 = weights ? 2.0F / (float)QN_BLOCK * qn__sum_squares(x, QN_BLOCK) : 0.0F;
        block_weights(x, weights ? weights + at : NULL, sigma2, w);
        float scale = fit_scale(x, w);
        b->d = qn__f32_to_f16(scale);
        pack(x, scale, b->qs);
    }
}

QN_ENCODER(iq4_xs)
{
    (void)tables;
    qn_block_iq4_xs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, x += QN_SUPER_BLOCK) {
        float scale[SUBS];
        float sigma2 =
            weights ? 2.0F / (float)QN_SUPER_BLOCK * qn__sum_squares(x, QN_SUPER_BLOCK) : 0.0F;
        for (int g = 0; g < SUBS; g++) {
            float w[QN_BLOCK];
            block_weights(x + g * QN_BLOCK, weights ? weights + at + g * QN_BLOCK : NULL, sigma2,
                          w);
            scale[g] = fit_scale(x + g * QN_BLOCK, w);
        }
        float d = -qn__extreme(scale, SUBS) / 32.0F;
        float f = qn__inverse(d);
        memset(b, 0, sizeof *b);
        b->d = qn__f32_to_f16(d);
        for (int g = 0; g < SUBS; g++) {
            int field = qn__clamp_int(qn__round_even(f * scale[g]), -32, 31);
            pack(x + g * QN_BLOCK, d * (float)field, b->qs + HALF * g);
            b->scales_l[g / 2] |= (uint8_t)(((field + 32) & 15) << (4 * (g % 2)));
            b->scales_h = (uint16_t)(b->scales_h | (field + 32) >> 4 << (2 * g));
        }
    }
}
