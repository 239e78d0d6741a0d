/* matmul_avx2.h: what the files of the matrix products for AVX2 share: the join of chunk sums. */
#ifndef QUERN_DEVICE_CPU_AVX2_MATMUL_AVX2_H
#define QUERN_DEVICE_CPU_AVX2_MATMUL_AVX2_H

#include "device/cpu/join.h"
#include "device/cpu/matmul.h"

#include <immintrin.h>

/*
 * A value that the compiler shall have in a register here, in this order: it would otherwise turn
 * chains of integer additions into trees and need more registers than there are.
 */
#define QN_IN_REGISTER(x) __asm__("" : "+x"(x))

/* Adds the sums of chunk `index`, rows 0..7 and 8..15, to those of a column that wait: 16 on each
 * level, `step` floats from one level to the next (join.h). */
QN_INLINE void qn__avx2_join(float *stack, size_t step, int64_t index, __m256 low, __m256 high)
{
    for (int level = qn__join_count(index); level > 0; level--, stack += step) {
        low = _mm256_add_ps(_mm256_loadu_ps(stack), low);
        high = _mm256_add_ps(_mm256_loadu_ps(stack + 8), high);
    }
    _mm256_storeu_ps(stack, low);
    _mm256_storeu_ps(stack + 8, high);
}

/* Joins what waits after n_chunks, adds the bias and writes n_rows <= 16 results to y. */
void qn__avx2_finish(const float *stack, size_t step, int64_t n_chunks, int64_t n_rows,
                     const float *bias, float *y);

void qn__avx2_quantize(const float *x, int64_t n, qn_act_form form, void *chunks, size_t stride);

/* One function a type: qn__avx2_mul_<name>. */
#define QN_AVX2_DECLARE(name, type) void qn__avx2_mul_##name(const qn_matmul_tile *t);
QN_MATMUL_TYPES(QN_AVX2_DECLARE)
#undef QN_AVX2_DECLARE

#endif
