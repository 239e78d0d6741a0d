/*
 * matmul_avx512.h: what the files of the matrix products for AVX-512 share: the join of chunk sums.
 * A register of 512 bits holds the 16 rows of a group.
 */
#ifndef QUERN_DEVICE_CPU_AVX512_MATMUL_AVX512_H
#define QUERN_DEVICE_CPU_AVX512_MATMUL_AVX512_H

#include "device/cpu/join.h"
#include "device/cpu/matmul.h"

#include <immintrin.h>

enum { QN_AVX512_COLS = 32 }; /* columns that share one walk through the chunks of a group */

/* The waiting chunk sums of one column: [level][16 rows]. */
typedef float qn_avx512_stack[QN_JOIN_LEVELS][QN_PACK_ROWS];

/* Adds the sums of chunk `index` (join.h). */
QN_INLINE void qn__avx512_join(qn_avx512_stack stack, int64_t index, __m512 sum)
{
    const int count = qn__join_count(index);
    for (int level = 0; level < count; level++) {
        sum = _mm512_add_ps(_mm512_loadu_ps(stack[level]), sum);
    }
    _mm512_storeu_ps(stack[count], sum);
}

/* Joins what waits after n_chunks, adds the bias and writes n_rows <= 16 results to y. */
QN_INLINE void qn__avx512_finish(qn_avx512_stack stack, int64_t n_chunks, int64_t n_rows,
                                 const float *bias, float *y)
{
    int level = __builtin_ctzll((unsigned long long)n_chunks);
    __m512 sum = _mm512_loadu_ps(stack[level]);
    for (level++; n_chunks >> level != 0; level++) {
        if (n_chunks >> level & 1) {
            sum = _mm512_add_ps(_mm512_loadu_ps(stack[level]), sum);
        }
    }
    const __mmask16 rows = (__mmask16)((1U << n_rows) - 1);
    if (bias) {
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(rows, bias));
    }
    _mm512_mask_storeu_ps(y, rows, sum);
}

/* One function a type: qn__avx512_mul_<name>. */
#define QN_AVX512_DECLARE(name, type) void qn__avx512_mul_##name(const qn_matmul_tile *t);
QN_MATMUL_TYPES(QN_AVX512_DECLARE)
#undef QN_AVX512_DECLARE

#endif
