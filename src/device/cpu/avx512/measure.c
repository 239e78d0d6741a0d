/* measure.c: peaks of AVX-512. Twelve independent chains hide the latency of each instruction. */
#include "device/cpu/measure.h"

#include <immintrin.h>

#define CHAINS 12

/* One kind: `step` is one multiplication into acc[j] with the operands a and b. */
#define PEAK(name, attribute, type, zero, step)                                                    \
    attribute static void name(int64_t rounds)                                                     \
    {                                                                                              \
        type acc[CHAINS];                                                                          \
        __m512i a = _mm512_setzero_si512(), b = _mm512_setzero_si512();                            \
        _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)                                  \
        {                                                                                          \
            acc[j] = zero();                                                                       \
        }                                                                                          \
        for (int64_t i = 0; i < rounds; i++) {                                                     \
            _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)                              \
            {                                                                                      \
                __asm__ volatile("" : "+v"(a), "+v"(b));                                           \
                acc[j] = step(acc[j], a, b);                                                       \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)                                  \
        {                                                                                          \
            __asm__ volatile("" : "+v"(acc[j]));                                                   \
        }                                                                                          \
    }

#define F32_OF(a)                 _mm512_castsi512_ps(a)
#define STEP_F32(acc, a, b)       _mm512_fmadd_ps(F32_OF(a), F32_OF(b), acc)
#define STEP_INT8_PAIR(acc, a, b) _mm512_add_epi16(acc, _mm512_maddubs_epi16(a, b))
/* The sign of the weights moves to the activations under a mask: one instruction more. */
#define STEP_INT8(acc, a, b)                                                                       \
    _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(                                  \
                                                _mm512_abs_epi8(a),                                \
                                                _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a),    \
                                                                     _mm512_setzero_si512(), b)),  \
                                            _mm512_set1_epi16(1)))
#define STEP_INT16(acc, a, b)    _mm512_add_epi32(acc, _mm512_madd_epi16(a, b))
#define STEP_INT8_DOT(acc, a, b) _mm512_dpbusd_epi32(acc, a, b)
#define STEP_BF16_DOT(acc, a, b) _mm512_dpbf16_ps(acc, (__m512bh)(a), (__m512bh)(b))

PEAK(peak_f32, , __m512, _mm512_setzero_ps, STEP_F32)
PEAK(peak_int8_pair, , __m512i, _mm512_setzero_si512, STEP_INT8_PAIR)
PEAK(peak_int8, , __m512i, _mm512_setzero_si512, STEP_INT8)
PEAK(peak_int16, , __m512i, _mm512_setzero_si512, STEP_INT16)
PEAK(peak_int8_dot, , __m512i, _mm512_setzero_si512, STEP_INT8_DOT)
PEAK(peak_bf16_dot, __attribute__((target("avx512bf16"))), __m512, _mm512_setzero_ps, STEP_BF16_DOT)

static bool has_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

const qn_cpu_measure_fns qn__cpu_measure_avx512 = {
    .peaks =
        {
            [QN_MEASURE_F32] = {.run = peak_f32, .operations = 2.0 * 16 * CHAINS},
            [QN_MEASURE_INT8_PAIR] = {.run = peak_int8_pair, .operations = 2.0 * 64 * CHAINS},
            [QN_MEASURE_INT8] = {.run = peak_int8, .operations = 2.0 * 64 * CHAINS},
            [QN_MEASURE_INT16] = {.run = peak_int16, .operations = 2.0 * 32 * CHAINS},
            [QN_MEASURE_INT8_DOT] = {.run = peak_int8_dot, .operations = 2.0 * 64 * CHAINS},
            [QN_MEASURE_BF16_DOT] = {.run = peak_bf16_dot,
                                     .operations = 2.0 * 32 * CHAINS,
                                     .usable = has_bf16},
        },
};
