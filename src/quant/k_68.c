/*
 * k_68.c: q6_K: super-blocks of 256 in sixteen sub-blocks of 16 with eight-bit scales and no
 * minimum; and q8_K, the activations that go with the K formats elsewhere.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum { SUBS = 16, SUB = 16 };

/* Place of value i in q6_K: low four bits and high two bits. */
static int low_byte(int i)
{
    return 64 * (i / 128) + 32 * (i / 32 % 2) + i % 32;
}

static int low_shift(int i)
{
    return 4 * (i / 64 % 2);
}

static int high_byte(int i)
{
    return 32 * (i / 128) + i % 32;
}

static int high_shift(int i)
{
    return 2 * (i / 32 % 4);
}

QN_DECODER(q6_k)
{
    const qn_block_q6_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        float d = qn__f16_to_f32(b->d);
        for (int s = 0; s < SUBS; s++) {
            float sub_d = d * (float)b->scales[s];
            for (int i = s * SUB; i < (s + 1) * SUB; i++) {
                int q = b->ql[low_byte(i)] >> low_shift(i) & 15;
                q |= (b->qh[high_byte(i)] >> high_shift(i) & 3) << 4;
                y[i] = sub_d * (float)(q - 32);
            }
        }
    }
}

static void encode_q6_k_block(const float *x, const float *weights, qn_block_q6_k *b)
{
    float scale[SUBS];
    uint8_t level[QN_SUPER_BLOCK];
    memset(b, 0, sizeof *b);
    for (int s = 0; s < SUBS; s++) {
        scale[s] = qn__fit_symmetric(x + s * SUB, weights ? weights + s * SUB : NULL, SUB, 32,
                                     level + s * SUB);
    }
    float extreme = qn__extreme(scale, SUBS);
    if (fabsf(extreme) < 1e-15F) {
        return;
    }
    float f = -128.0F / extreme;
    b->d = qn__f32_to_f16(1.0F / f);
    float d = qn__f16_to_f32(b->d);
    for (int s = 0; s < SUBS; s++) {
        int small = qn__clamp_int(qn__round_even(f * scale[s]), -128, 127);
        b->scales[s] = (int8_t)small;
        float sub_d = d * (float)small;
        for (int i = s * SUB; sub_d != 0.0F && i < (s + 1) * SUB; i++) {
            level[i] = (uint8_t)(qn__clamp_int(qn__round_even(x[i] / sub_d), -32, 31) + 32);
        }
    }
    for (int i = 0; i < QN_SUPER_BLOCK; i++) {
        b->ql[low_byte(i)] |= (uint8_t)((level[i] & 15) << low_shift(i));
        b->qh[high_byte(i)] |= (uint8_t)(level[i] >> 4 << high_shift(i));
    }
}

QN_ENCODER(q6_k)
{
    (void)tables;
    qn_block_q6_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        encode_q6_k_block(x + at, weights ? weights + at : NULL, b);
    }
}

QN_DECODER(q8_k)
{
    const qn_block_q8_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, y += QN_SUPER_BLOCK) {
        float d = b->d;
        for (int i = 0; i < QN_SUPER_BLOCK; i++) {
            y[i] = d * (float)b->qs[i];
        }
    }
}

QN_ENCODER(q8_k)
{
    (void)weights;
    (void)tables;
    qn_block_q8_k *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++, x += QN_SUPER_BLOCK) {
        memset(b, 0, sizeof *b);
        float extreme = qn__extreme(x, QN_SUPER_BLOCK);
        if (extreme == 0.0F) {
            continue;
        }
        float f = -127.0F / extreme;
        b->d = 1.0F / f;
        for (int s = 0; s < SUBS; s++) {
            int sum = 0;
            for (int i = s * SUB; i < (s + 1) * SUB; i++) {
                int level = qn__clamp_int(qn__round_even(f * x[i]), -127, 127);
                b->qs[i] = (int8_t)level;
                sum += level;
            }
            b->bsums[s] = (int16_t)sum;
        }
    }
}

QN_FINDER(q8_k)
{
    const qn_block_q8_k *b = blocks;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(b[i].d)) {
            return i;
        }
    }
    return -1;
}
