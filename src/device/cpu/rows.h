/*
 * rows.h: leaf functions on rows of floats, one table an instruction set. The scalar table
 * (scalar/rows.c) is the definition; the vector tables (vector_rows.h over vector.h) have its bits.
 *
 * Rows have n >= 0 contiguous values of any alignment. `out` may be the same row as the first
 * operand (and as the second where it has n values), but may not overlap otherwise.
 *
 * Sums over a row: element i goes to lane i mod 16, each lane from +0 ascending; then lane j takes
 * lane j + 8, then j + 4, j + 2, j + 1. Squares enter by fmaf. The maximum of a row starts at -inf
 * and passes over NaN.
 */
#ifndef QUERN_DEVICE_CPU_ROWS_H
#define QUERN_DEVICE_CPU_ROWS_H

#include "tensor/graph.h"

#define QN_CPU_N_BINARY (QN_OP_DIV - QN_OP_ADD + 1) /* index: op - QN_OP_ADD */

typedef void (*qn_binary_fn)(float *out, const float *a, const float *b, int64_t n);
typedef void (*qn_binary_one_fn)(float *out, const float *a, float b, int64_t n);
typedef void (*qn_unary_fn)(float *out, const float *x, int64_t n, float value);
typedef void (*qn_glu_fn)(float *out, const float *gate, const float *up, int64_t n, float limit);
/* weight, bias: n values each or NULL */
typedef void (*qn_norm_fn)(float *out, const float *x, int64_t n, float eps, const float *weight,
                           const float *bias);
/* table: cos and sin of n_pairs pairs, [2 j] and [2 j + 1] */
typedef void (*qn_rope_fn)(float *out, const float *x, const float *table, int64_t n_pairs);

typedef struct qn_cpu_row_fns {
    qn_binary_fn binary[QN_CPU_N_BINARY];
    qn_binary_one_fn binary_one[QN_CPU_N_BINARY]; /* b is one value for the whole row */
    /* out = fmaf(x, scale, bias) */
    void (*scale_bias)(float *out, const float *x, int64_t n, float scale, float bias);
    /* out = x below low ? low : x above high ? high : x; NaN passes */
    void (*clamp)(float *out, const float *x, int64_t n, float low, float high);
    qn_unary_fn unary[QN_UNARY_COUNT];
    qn_glu_fn glu[QN_GLU_COUNT];
    qn_norm_fn norm[QN_NORM_COUNT];
    /* e^(x - max) / sum; all NaN where the maximum is not finite */
    void (*soft_max)(float *out, const float *x, int64_t n);
    float (*sum)(const float *x, int64_t n);
    /* Index of the largest value, the lowest among equals; NaN never wins; 0 if nothing does. */
    int32_t (*argmax)(const float *x, int64_t n);
    /* Pairs (2 j, 2 j + 1), and (j, j + n_pairs): x cos - y sin, fma(x, sin, y cos): see rows.c */
    qn_rope_fn rope_norm, rope_neox;
    /* out = fmaf(x, w, out) */
    void (*add_scaled)(float *out, const float *x, int64_t n, float w);
    /* Half floats: widening is exact, narrowing to nearest even. */
    void (*from_f16)(float *out, const uint16_t *x, int64_t n);
    void (*from_bf16)(float *out, const uint16_t *x, int64_t n);
    void (*to_f16)(uint16_t *out, const float *x, int64_t n);
    void (*to_bf16)(uint16_t *out, const float *x, int64_t n);
} qn_cpu_row_fns;

extern const qn_cpu_row_fns qn__cpu_rows_scalar, qn__cpu_rows_avx2, qn__cpu_rows_avx512,
    qn__cpu_rows_neon;

#endif
