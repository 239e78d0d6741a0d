/* measure.c: peaks of AVX2. Twelve independent chains hide the latency of each instruction. */
#include "device/cpu/measure.h"

#include <immintrin.h>

#define CHAINS 12

/* One kind: `step` is one multiplication into acc[j] with the operands a and b. */
#define PEAK(name, type, zero, step)                                                               \
    static void name(int64_t rounds)                                                               \
    {                                                                                              \
        type acc[CHAINS], a = zero(), b = zero();                                                  \
        _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)                                  \
        {                                                                                          \
            acc[j] = zero();                                                                       \
        }                                                                                          \
        for (int64_t i = 0; i < rounds; i++) {                                                     \
            _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)                              \
            {                                                                                      \
                QN_OPAQUE(a);                                                                      \
                QN_OPAQUE(b);                                                                      \
                acc[j] = step(acc[j], a, b);                                                       \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++)                                  \
        {                                                                                          \
            QN_OPAQUE(acc[j]);                                                                     \
        }                                                                                          \
    }

static inline __m256 step_f32(__m256 acc, __m256 a, __m256 b)
{
    return _mm256_fmadd_ps(a, b, acc);
}

static inline __m256i step_int8_pair(__m256i acc, __m256i a, __m256i b)
{
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(a, b));
}

static inline __m256i step_int8(__m256i acc, __m256i a, __m256i b)
{
    __m256i pairs = _mm256_maddubs_epi16(a, _mm256_sign_epi8(b, a));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline __m256i step_int16(__m256i acc, __m256i a, __m256i b)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}

PEAK(peak_f32, __m256, _mm256_setzero_ps, step_f32)
PEAK(peak_int8_pair, __m256i, _mm256_setzero_si256, step_int8_pair)
PEAK(peak_int8, __m256i, _mm256_setzero_si256, step_int8)
PEAK(peak_int16, __m256i, _mm256_setzero_si256, step_int16)

const qn_cpu_measure_fns qn__cpu_measure_avx2 = {
    .peaks =
        {
            [QN_MEASURE_F32] = {.run = peak_f32, .operations = 2.0 * 8 * CHAINS},
            [QN_MEASURE_INT8_PAIR] = {.run = peak_int8_pair, .operations = 2.0 * 32 * CHAINS},
            [QN_MEASURE_INT8] = {.run = peak_int8, .operations = 2.0 * 32 * CHAINS},
            [QN_MEASURE_INT16] = {.run = peak_int16, .operations = 2.0 * 16 * CHAINS},
        },
};
