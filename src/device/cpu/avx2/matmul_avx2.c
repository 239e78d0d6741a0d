/* matmul_avx2.c: the table of matrix products for AVX2, quantization, and the end of a tile. */
#include "device/cpu/avx2/matmul_avx2.h"

#include "base/fmath.h"

void qn__avx2_finish(const float *stack, size_t step, int64_t n_chunks, int64_t n_rows,
                     const float *bias, float *y)
{
    int level = __builtin_ctzll((unsigned long long)n_chunks);
    stack += (size_t)level * step;
    __m256 low = _mm256_loadu_ps(stack), high = _mm256_loadu_ps(stack + 8);
    for (level++, stack += step; n_chunks >> level != 0; level++, stack += step) {
        if (n_chunks >> level & 1) {
            low = _mm256_add_ps(_mm256_loadu_ps(stack), low);
            high = _mm256_add_ps(_mm256_loadu_ps(stack + 8), high);
        }
    }
    if (n_rows == QN_PACK_ROWS) {
        if (bias) {
            low = _mm256_add_ps(low, _mm256_loadu_ps(bias));
            high = _mm256_add_ps(high, _mm256_loadu_ps(bias + 8));
        }
        _mm256_storeu_ps(y, low);
        _mm256_storeu_ps(y + 8, high);
        return;
    }
    float sum[QN_PACK_ROWS];
    _mm256_storeu_ps(sum, low);
    _mm256_storeu_ps(sum + 8, high);
    for (int64_t r = 0; r < n_rows; r++) {
        y[r] = bias ? sum[r] + bias[r] : sum[r];
    }
}

/* Greatest of eight non-negative integers. */
static uint32_t greatest(__m256i x)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

_Static_assert(QN_ACT_SCALES == 4, "one lane a scale");

/* The four trees over 16 lanes, 8, 4, 2, 1 apart, of low[i], high[i]. */
static __m128 join_lanes(const __m256 low[4], const __m256 high[4])
{
    __m128 four[4];
    for (int i = 0; i < 4; i++) {
        const __m256 eight = _mm256_add_ps(low[i], high[i]);
        four[i] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    }
    const __m128 two01 =
        _mm_add_ps(_mm_movelh_ps(four[0], four[1]), _mm_movehl_ps(four[1], four[0]));
    const __m128 two23 =
        _mm_add_ps(_mm_movelh_ps(four[2], four[3]), _mm_movehl_ps(four[3], four[2]));
    return _mm_add_ps(_mm_shuffle_ps(two01, two23, _MM_SHUFFLE(2, 0, 2, 0)),
                      _mm_shuffle_ps(two01, two23, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* Which of the scales amax / divisor, with their inverses, has the least sum of squared errors: the
 * first of equal ones. All are computed, without branches that nobody could foretell. */
static int best_scale(const __m256 v[4], const float inverse[4], const float d[4])
{
    __m256 sum[4][2];
    for (int s = 0; s < 4; s++) {
        const __m256 by = _mm256_broadcast_ss(&inverse[s]), scale = _mm256_broadcast_ss(&d[s]);
        sum[s][0] = sum[s][1] = _mm256_setzero_ps();
        for (int i = 0; i < 4; i++) {
            const __m256 q = _mm256_cvtepi32_ps(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], by)));
            const __m256 error = _mm256_fnmadd_ps(q, scale, v[i]);
            sum[s][i % 2] = _mm256_fmadd_ps(error, error, sum[s][i % 2]);
        }
    }
    const __m256 low[4] = {sum[0][0], sum[1][0], sum[2][0], sum[3][0]};
    const __m256 high[4] = {sum[0][1], sum[1][1], sum[2][1], sum[3][1]};
    const __m128 error = join_lanes(low, high);
    __m128 least = _mm_min_ps(error, _mm_movehl_ps(error, error));
    least = _mm_min_ps(least, _mm_movehdup_ps(least));
    least = _mm_shuffle_ps(least, least, 0);
    return __builtin_ctz((unsigned)_mm_movemask_ps(_mm_cmpeq_ps(error, least)));
}

/* Levels of 32 values, in order; *d their scale. */
static __m256i quantize_levels(const float *x, float *d)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    const uint32_t bits = greatest(most);
    const float amax = qn__bits_float(bits);
    if (bits >= 0x7f800000U) {
        *d = qn__bits_float(0x7fc00000U);
        return _mm256_setzero_si256();
    }
    if (amax < QN_ACT_MIN) {
        *d = 0.0F;
        return _mm256_setzero_si256();
    }
    const __m128 divisors = _mm_setr_ps(127.0F, 126.0F, 125.0F, 124.0F);
    float inverse[4], scale[4];
    _mm_storeu_ps(inverse, _mm_div_ps(divisors, _mm_set1_ps(amax)));
    _mm_storeu_ps(scale, _mm_div_ps(_mm_set1_ps(amax), divisors));
    const int best = best_scale(v, inverse, scale);
    const __m256 by = _mm256_broadcast_ss(&inverse[best]);
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], by));
    }
    *d = scale[best];
    /* The packs work in halves of 128 bits: quads come out as 0 2 4 6 1 3 5 7. */
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

void qn__avx2_quantize(const float *x, int64_t n, qn_act_form form, void *chunks, size_t stride)
{
    const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    const __m256i factor = _mm256_set1_epi16((int16_t)form.factor);
    for (int64_t i = 0; i < n / QN_PACK_BLOCK; i++) {
        qn_act_chunk *chunk = (qn_act_chunk *)((uint8_t *)chunks + (size_t)(i / 8) * stride);
        const int64_t b = i % 8;
        const __m256i q = quantize_levels(x + i * QN_PACK_BLOCK, &chunk->d[b]);
        _mm256_storeu_si256((__m256i *)chunk->q[b], q);
        /* A half of 128 bits is a sub-block of 16: its four pairs of 16-bit sums become one. */
        __m256i part = _mm256_maddubs_epi16(ones8, q);
        part = _mm256_add_epi16(part, _mm256_shuffle_epi32(part, _MM_SHUFFLE(1, 0, 3, 2)));
        part = _mm256_add_epi16(part, _mm256_shuffle_epi32(part, _MM_SHUFFLE(2, 3, 0, 1)));
        __m256i sums = _mm256_madd_epi16(part, ones16);
        const int32_t sum = _mm256_extract_epi32(sums, 0) + _mm256_extract_epi32(sums, 4);
        if (form.sub == QN_PACK_BLOCK) {
            const __m256i zero = _mm256_setzero_si256();
            part = _mm256_add_epi16(part, _mm256_permute2x128_si256(part, part, 1));
            part = _mm256_blend_epi32(part, zero, 0xf0);
            sums = _mm256_madd_epi16(part, ones16);
        }
        part = _mm256_mullo_epi16(part, factor);
        const int32_t pair[2] = {_mm256_extract_epi32(part, 0), _mm256_extract_epi32(part, 4)};
        memcpy(chunk->pair[b], pair, sizeof pair);
        chunk->half[b][0] = form.factor * _mm256_extract_epi32(sums, 0);
        chunk->half[b][1] = form.factor * _mm256_extract_epi32(sums, 4);
        chunk->s[b] = chunk->d[b] * (float)sum;
    }
}

#define QN_ROW(name, type) [type] = qn__avx2_mul_##name,
const qn_cpu_matmul_fns qn__matmul_avx2 = {
    .quantize = qn__avx2_quantize,
    .mul = {QN_MATMUL_TYPES(QN_ROW)},
};
