/* peaks.h: the multiplications of NEON for measure.h, written once for processors with and without
 * dot products: a file that includes this sets QN_NEON_DOT to 1 or 0 and QN_MEASURE_TABLE to the
 * name of its table. Sixteen independent chains hide the latency of each instruction; with both
 * operands they fit the 32 registers. */
#include "device/cpu/measure.h"

#include <arm_neon.h>

#define CHAINS 16

/* One kind: `step` is one multiplication into acc[j] with the operands a and b. */
#define PEAK(name, sums, operand, step)                                                            \
    static void name(int64_t rounds)                                                               \
    {                                                                                              \
        sums acc[CHAINS] = {0};                                                                    \
        operand a = {0}, b = {0};                                                                  \
        for (int64_t i = 0; i < rounds; i++) {                                                     \
            _Pragma("GCC unroll 16") for (int j = 0; j < CHAINS; j++)                              \
            {                                                                                      \
                QN_OPAQUE(a);                                                                      \
                QN_OPAQUE(b);                                                                      \
                acc[j] = step(acc[j], a, b);                                                       \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int j = 0; j < CHAINS; j++)                                  \
        {                                                                                          \
            QN_OPAQUE(acc[j]);                                                                     \
        }                                                                                          \
    }

static inline int16x8_t step_int8_pair(int16x8_t acc, int8x16_t a, int8x16_t b)
{
    return vmlal_high_s8(vmlal_s8(acc, vget_low_s8(a), vget_low_s8(b)), a, b);
}

static inline int32x4_t step_int8(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    return vpadalq_s16(vpadalq_s16(acc, low), vmull_high_s8(a, b));
}

static inline int32x4_t step_int16(int32x4_t acc, int16x8_t a, int16x8_t b)
{
    return vmlal_high_s16(vmlal_s16(acc, vget_low_s16(a), vget_low_s16(b)), a, b);
}

PEAK(peak_f32, float32x4_t, float32x4_t, vfmaq_f32)
PEAK(peak_int8_pair, int16x8_t, int8x16_t, step_int8_pair)
PEAK(peak_int8, int32x4_t, int8x16_t, step_int8)
PEAK(peak_int16, int32x4_t, int16x8_t, step_int16)
#if QN_NEON_DOT
PEAK(peak_int8_dot, int32x4_t, int8x16_t, vdotq_s32)
#endif

const qn_cpu_measure_fns QN_MEASURE_TABLE = {
    .peaks =
        {
            [QN_MEASURE_F32] = {.run = peak_f32, .operations = 2.0 * 4 * CHAINS},
            [QN_MEASURE_INT8_PAIR] = {.run = peak_int8_pair, .operations = 2.0 * 16 * CHAINS},
            [QN_MEASURE_INT8] = {.run = peak_int8, .operations = 2.0 * 16 * CHAINS},
            [QN_MEASURE_INT16] = {.run = peak_int16, .operations = 2.0 * 8 * CHAINS},
#if QN_NEON_DOT
            [QN_MEASURE_INT8_DOT] = {.run = peak_int8_dot, .operations = 2.0 * 16 * CHAINS},
#endif
        },
};
