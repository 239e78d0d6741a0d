/* matmul_neon.c: the table of matrix products for NEON, quantization, and the end of a tile. */
#include "device/cpu/neon/matmul_neon.h"

#include "base/fmath.h"

enum { FOURS = QN_PACK_BLOCK / 4 }; /* registers of a block of activations */

void qn__neon_finish(qn_neon_stack stack, int64_t n_chunks, int64_t n_rows, const float *bias,
                     float *y)
{
    float sum[QN_PACK_ROWS];
    for (int r = 0; r < QN_NEON_REGS; r++) {
        int level = __builtin_ctzll((unsigned long long)n_chunks);
        float32x4_t s = vld1q_f32(stack[level] + 4 * r);
        for (level++; n_chunks >> level != 0; level++) {
            if (n_chunks >> level & 1) {
                s = vaddq_f32(vld1q_f32(stack[level] + 4 * r), s);
            }
        }
        vst1q_f32(sum + 4 * r, s);
    }
    for (int64_t r = 0; r < n_rows; r++) {
        y[r] = bias ? sum[r] + bias[r] : sum[r];
    }
}

/* Levels for one scale; returns the sum of the squared errors, joined from 16 lanes. */
static float quantize_by(const float32x4_t v[FOURS], float amax, float divisor, int32x4_t q[FOURS])
{
    const float inverse = divisor / amax, d = amax / divisor;
    float32x4_t lanes[4];
    for (int i = 0; i < 4; i++) {
        lanes[i] = vdupq_n_f32(0.0F);
    }
    for (int i = 0; i < FOURS; i++) {
        q[i] = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse));
        const float32x4_t error = vfmsq_n_f32(v[i], vcvtq_f32_s32(q[i]), d);
        lanes[i % 4] = vfmaq_f32(lanes[i % 4], error, error);
    }
    const float32x4_t four =
        vaddq_f32(vaddq_f32(lanes[0], lanes[2]), vaddq_f32(lanes[1], lanes[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Levels of 32 values; returns their scale. */
static float quantize_levels(const float *x, int32x4_t q[FOURS])
{
    float32x4_t v[FOURS];
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < FOURS; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(v[i])));
        q[i] = vdupq_n_s32(0);
    }
    const uint32_t bits = vmaxvq_u32(most); /* as integers so that a NaN wins */
    const float amax = qn__bits_float(bits);
    if (bits >= 0x7f800000U) {
        return qn__bits_float(0x7fc00000U);
    }
    if (amax < QN_ACT_MIN) {
        return 0.0F;
    }
    float divisor = 127.0F;
    float least = quantize_by(v, amax, divisor, q);
    for (float next = 126.0F; next > 127.0F - (float)QN_ACT_SCALES; next -= 1.0F) {
        int32x4_t levels[FOURS];
        const float error = quantize_by(v, amax, next, levels);
        if (error < least) {
            least = error;
            divisor = next;
            memcpy(q, levels, sizeof levels);
        }
    }
    return amax / divisor;
}

/* The sums of a sub-block of 16: over values with index mod 4 < 2, and over the others. */
static void sum_pairs(int8x16_t q, int32_t part[2])
{
    const int16x8_t pairs = vpaddlq_s8(q);
    const int16x4_t x = vadd_s16(vget_low_s16(pairs), vget_high_s16(pairs));
    part[0] = vget_lane_s16(x, 0) + vget_lane_s16(x, 2);
    part[1] = vget_lane_s16(x, 1) + vget_lane_s16(x, 3);
}

void qn__neon_quantize(const float *x, int64_t n, qn_act_form form, void *chunks, size_t stride)
{
    for (int64_t i = 0; i < n / QN_PACK_BLOCK; i++) {
        qn_act_chunk *chunk = (qn_act_chunk *)((uint8_t *)chunks + (size_t)(i / 8) * stride);
        const int64_t b = i % 8;
        int32x4_t q[FOURS];
        int32_t part[2][2];
        chunk->d[b] = quantize_levels(x + i * QN_PACK_BLOCK, q);
        for (int h = 0; h < 2; h++) {
            const int16x8_t low = vcombine_s16(vmovn_s32(q[4 * h]), vmovn_s32(q[4 * h + 1]));
            const int16x8_t high = vcombine_s16(vmovn_s32(q[4 * h + 2]), vmovn_s32(q[4 * h + 3]));
            const int8x16_t levels = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
            vst1q_s8(chunk->q[b] + 16 * h, levels);
            sum_pairs(levels, part[h]);
        }
        const int32_t sum = part[0][0] + part[0][1] + part[1][0] + part[1][1];
        chunk->s[b] = chunk->d[b] * (float)sum;
        for (int p = 0; form.sub == QN_PACK_BLOCK && p < 2; p++) {
            part[0][p] += part[1][p];
            part[1][p] = 0;
        }
        for (int h = 0; h < 2; h++) {
            chunk->half[b][h] = form.factor * (part[h][0] + part[h][1]);
            chunk->pair[b][h][0] = (int16_t)(form.factor * part[h][0]);
            chunk->pair[b][h][1] = (int16_t)(form.factor * part[h][1]);
        }
    }
}

#define QN_ROW(name, type) [type] = qn__neon_mul_##name,
const qn_cpu_matmul_fns qn__matmul_neon = {
    .quantize = qn__neon_quantize,
    .mul = {QN_MATMUL_TYPES(QN_ROW)},
};
