/*
 * matmul_float_avx512.c: F32, F16 and BF16 weights with F32 activations for AVX-512.
 *
 * A walk goes through a chunk with two groups of 16 rows and up to eight columns: sixteen sums in
 * registers, which hide the latency of fma and read each activation once for 32 rows.
 */
#include "device/cpu/avx512/matmul_avx512.h"

enum { COLS = 8, GROUPS = 2 };

QN_INLINE __m512 bf16_even(__m512i pair)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
}

QN_INLINE __m512 bf16_odd(__m512i pair)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000U)));
}

/* The 16 rows of weight k of a chunk; BF16: of an even k. */
QN_INLINE __m512 load_weight(qn_type type, const uint8_t *w, int64_t k)
{
    switch (type) {
    case QN_TYPE_F32:
        return _mm512_loadu_ps((const float *)(w + 64 * k));
    case QN_TYPE_F16:
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + 32 * k)));
    default:
        return bf16_even(_mm512_loadu_si512(w + 32 * k));
    }
}

/* acc[group][column] += w[group] * x[column][k] */
QN_INLINE void take(__m512 acc[GROUPS][COLS], const __m512 w[GROUPS], int groups,
                    const float *const x[], int cols, int64_t k)
{
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        const __m512 v = _mm512_set1_ps(x[c][k]);
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            acc[g][c] = _mm512_fmadd_ps(w[g], v, acc[g][c]);
        }
    }
}

/* A chunk of n values of `groups` groups, group_bytes apart, with `cols` columns, joined to the
 * stacks [column][group]. */
QN_INLINE void walk(qn_type type, const uint8_t *w, size_t group_bytes, int groups,
                    const float *const x[], int cols, int64_t n, int64_t index,
                    qn_avx512_stack (*stack)[GROUPS])
{
    __m512 acc[GROUPS][COLS], v[GROUPS];
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        acc[0][c] = acc[1][c] = _mm512_setzero_ps();
    }
    int64_t k = 0;
    for (; type == QN_TYPE_BF16 && k + 1 < n; k += 2) {
        __m512i pair[GROUPS];
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            pair[g] = _mm512_loadu_si512(w + (size_t)g * group_bytes + 32 * k);
            v[g] = bf16_even(pair[g]);
        }
        take(acc, v, groups, x, cols, k);
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            v[g] = bf16_odd(pair[g]);
        }
        take(acc, v, groups, x, cols, k + 1);
    }
    for (; k < n; k++) {
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            v[g] = load_weight(type, w + (size_t)g * group_bytes, k);
        }
        take(acc, v, groups, x, cols, k);
    }
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            qn__avx512_join(stack[c][g], index, acc[g][c]);
        }
    }
}

/* All columns from `first` on, of up to QN_AVX512_COLS, in one chunk. */
QN_INLINE void walk_columns(qn_type type, const qn_matmul_tile *t, const uint8_t *w,
                            size_t group_bytes, int groups, int64_t first, int64_t n_cols,
                            int64_t index, qn_avx512_stack (*stack)[GROUPS])
{
    const int64_t n = qn__min_i64(t->k - index * QN_PACK_CHUNK, QN_PACK_CHUNK);
    const float *x[QN_AVX512_COLS];
    for (int64_t c = 0; c < n_cols; c++) {
        x[c] = (const float *)((const uint8_t *)t->x[first + c] + (size_t)index * t->x_stride);
    }
    int64_t c = 0;
    for (; c + 8 <= n_cols; c += 8) {
        walk(type, w, group_bytes, groups, x + c, 8, n, index, stack + c);
    }
    if (n_cols - c >= 4) {
        walk(type, w, group_bytes, groups, x + c, 4, n, index, stack + c);
        c += 4;
    }
    if (n_cols - c >= 2) {
        walk(type, w, group_bytes, groups, x + c, 2, n, index, stack + c);
        c += 2;
    }
    if (n_cols - c >= 1) {
        walk(type, w, group_bytes, groups, x + c, 1, n, index, stack + c);
    }
}

_Static_assert(sizeof(qn_avx512_stack[QN_AVX512_COLS][GROUPS]) <= QN_MATMUL_SCRATCH, "stacks");

/* The one or two groups at row `row` with columns first .. first + n_cols. */
QN_INLINE void mul_groups(qn_type type, const qn_matmul_tile *t, int64_t row, int groups,
                          int64_t first, int64_t n_cols)
{
    const size_t group_bytes = qn__pack_group_bytes(type, t->k);
    const uint8_t *w = (const uint8_t *)t->weights + (size_t)(row / QN_PACK_ROWS) * group_bytes;
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    qn_avx512_stack(*stack)[GROUPS] = t->scratch;
    for (int64_t i = 0; i < n_chunks; i++) {
        walk_columns(type, t, w, group_bytes, groups, first, n_cols, i, stack);
        w += qn__pack_chunk_bytes(type, QN_PACK_CHUNK);
    }
    for (int64_t c = 0; c < n_cols; c++) {
        for (int g = 0; g < groups; g++) {
            const int64_t at = row + g * QN_PACK_ROWS;
            qn__avx512_finish(stack[c][g], n_chunks, qn__min_i64(t->n_rows - at, QN_PACK_ROWS),
                              t->bias ? t->bias + at : NULL, t->y[first + c] + at);
        }
    }
}

QN_INLINE void mul(qn_type type, const qn_matmul_tile *t)
{
    for (int64_t c = 0; c < t->n_cols; c += QN_AVX512_COLS) {
        const int64_t n_cols = qn__min_i64(t->n_cols - c, QN_AVX512_COLS);
        int64_t row = 0;
        for (; row + QN_PACK_ROWS < t->n_rows; row += GROUPS * QN_PACK_ROWS) {
            mul_groups(type, t, row, GROUPS, c, n_cols);
        }
        if (row < t->n_rows) {
            mul_groups(type, t, row, 1, c, n_cols);
        }
    }
}

#define QN_MUL(name, type)                                                                         \
    void qn__avx512_mul_##name(const qn_matmul_tile *t)                                            \
    {                                                                                              \
        mul(type, t);                                                                              \
    }
QN_MATMUL_FLOAT_TYPES(QN_MUL)
