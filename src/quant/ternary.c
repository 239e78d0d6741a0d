/*
 * ternary.c: formats of one or two bits a value with one scale: q1_0 (sign), q2_0 (levels -1 .. 2),
 * tq2_0 and tq1_0 (levels -1 .. 1, in two bits or as five ternary digits a byte). Their encoders
 * ignore importance weights.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum { Q1_VALUES = 128, Q2_VALUES = 64 };

QN_DECODER(q1_0)
{
    const qn_block_q1_0 *b = blocks;
    for (int64_t i = 0; i < n; i += Q1_VALUES, b++, y += Q1_VALUES) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < Q1_VALUES; j++) {
            y[j] = b->qs[j / 8] >> (j % 8) & 1 ? d : -d;
        }
    }
}

QN_ENCODER(q1_0)
{
    (void)weights;
    (void)tables;
    qn_block_q1_0 *b = blocks;
    for (int64_t i = 0; i < n; i += Q1_VALUES, b++, x += Q1_VALUES) {
        float sum = 0.0F;
        memset(b->qs, 0, sizeof b->qs);
        for (int j = 0; j < Q1_VALUES; j++) {
            sum += fabsf(x[j]);
            b->qs[j / 8] |= (uint8_t)((x[j] >= 0.0F) << (j % 8));
        }
        b->d = qn__f32_to_f16(sum / (float)Q1_VALUES);
    }
}

QN_DECODER(q2_0)
{
    const qn_block_q2_0 *b = blocks;
    for (int64_t i = 0; i < n; i += Q2_VALUES, b++, y += Q2_VALUES) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < Q2_VALUES; j++) {
            y[j] = (float)((b->qs[j / 4] >> (2 * (j % 4)) & 3) - 1) * d;
        }
    }
}

/* Levels 0 .. 2 of values against their largest magnitude, which is returned. */
static float fit_ternary(const float *x, int n, uint8_t *level)
{
    float d = fabsf(qn__extreme(x, n));
    float inverse = qn__inverse(d);
    for (int i = 0; i < n; i++) {
        level[i] = (uint8_t)(qn__round_away(x[i] * inverse, -1, 1) + 1);
    }
    return d;
}

QN_ENCODER(q2_0)
{
    (void)weights;
    (void)tables;
    qn_block_q2_0 *b = blocks;
    for (int64_t i = 0; i < n; i += Q2_VALUES, b++, x += Q2_VALUES) {
        uint8_t level[Q2_VALUES];
        b->d = qn__f32_to_f16(fit_ternary(x, Q2_VALUES, level));
        memset(b->qs, 0, sizeof b->qs);
        for (int j = 0; j < Q2_VALUES; j++) {
            b->qs[j / 4] |= (uint8_t)(level[j] << (2 * (j % 4)));
        }
    }
}

QN_DECODER(tq2_0)
{
    const qn_block_tq2_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        for (int j = 0; j < QN_SUPER_BLOCK; j++) {
            int q = b->qs[32 * (j / 128) + j % 32] >> (2 * (j % 128 / 32)) & 3;
            y[j] = (float)(q - 1) * d;
        }
    }
}

QN_ENCODER(tq2_0)
{
    (void)weights;
    (void)tables;
    qn_block_tq2_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_SUPER_BLOCK, b++, x += QN_SUPER_BLOCK) {
        uint8_t level[QN_SUPER_BLOCK];
        b->d = qn__f32_to_f16(fit_ternary(x, QN_SUPER_BLOCK, level));
        memset(b->qs, 0, sizeof b->qs);
        for (int j = 0; j < QN_SUPER_BLOCK; j++) {
            b->qs[32 * (j / 128) + j % 32] |= (uint8_t)(level[j] << (2 * (j % 128 / 32)));
        }
    }
}

/* How tq1_0 spreads its values: `bytes` bytes from `at` hold `digits` digits each; digit k of byte
 * j is value first + k * bytes + j. qs and qh are taken as one array of 52 bytes. */
static const struct {
    int first, at, bytes, digits;
} tq1_parts[] = {{0, 0, 32, 5}, {160, 32, 16, 5}, {240, 48, 4, 4}};
enum { TQ1_PARTS = sizeof tq1_parts / sizeof tq1_parts[0], TQ1_DIGITS = 5, TQ1_BYTES = 52 };

QN_DECODER(tq1_0)
{
    static const uint8_t power_of_3[TQ1_DIGITS] = {1, 3, 9, 27, 81};
    const qn_block_tq1_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        uint8_t bytes[TQ1_BYTES];
        memcpy(bytes, b, sizeof bytes);
        for (int p = 0; p < TQ1_PARTS; p++) {
            for (int k = 0; k < tq1_parts[p].digits; k++) {
                for (int j = 0; j < tq1_parts[p].bytes; j++) {
                    uint8_t fraction = (uint8_t)(bytes[tq1_parts[p].at + j] * power_of_3[k]);
                    int digit = fraction * 3 >> 8;
                    y[tq1_parts[p].first + k * tq1_parts[p].bytes + j] = (float)(digit - 1) * d;
                }
            }
        }
    }
}

QN_ENCODER(tq1_0)
{
    (void)weights;
    (void)tables;
    qn_block_tq1_0 *b = blocks;
    for (int64_t i = 0; i < n; i += QN_SUPER_BLOCK, b++, x += QN_SUPER_BLOCK) {
        uint8_t level[QN_SUPER_BLOCK];
        uint8_t bytes[TQ1_BYTES];
        b->d = qn__f32_to_f16(fit_ternary(x, QN_SUPER_BLOCK, level));
        for (int p = 0; p < TQ1_PARTS; p++) {
            for (int j = 0; j < tq1_parts[p].bytes; j++) {
                int number = 0;
                for (int k = 0; k < TQ1_DIGITS; k++) {
                    int at = tq1_parts[p].first + k * tq1_parts[p].bytes + j;
                    number = number * 3 + (k < tq1_parts[p].digits ? level[at] : 0);
                }
                /* Rounded up, so that the decoder's truncation finds every digit again. */
                bytes[tq1_parts[p].at + j] = (uint8_t)((number * 256 + 242) / 243);
            }
        }
        memcpy(b, bytes, sizeof bytes);
    }
}
