/*
 * matmul_case.h: random packed matrices and activations for the tests of the matrix products.
 * Include after support/support.h.
 */
#ifndef QUERN_TESTS_MATMUL_CASE_H
#define QUERN_TESTS_MATMUL_CASE_H

#include "base/fmath.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "device/cpu/matmul.h"
#include "quant/blocks.h"
#include "quant/quant.h"

/* Where the half floats of a block lie; -1: none. Other bytes of a block may be anything. */
typedef struct matmul_type {
    qn_type type;
    int d, m;
} matmul_type;

static const matmul_type matmul_types[] = {
    {QN_TYPE_F32, -1, -1},
    {QN_TYPE_F16, -1, -1},
    {QN_TYPE_BF16, -1, -1},
    {QN_TYPE_Q4_0, offsetof(qn_block_q4_0, d), -1},
    {QN_TYPE_Q4_1, offsetof(qn_block_q4_1, d), offsetof(qn_block_q4_1, m)},
    {QN_TYPE_Q5_0, offsetof(qn_block_q5_0, d), -1},
    {QN_TYPE_Q5_1, offsetof(qn_block_q5_1, d), offsetof(qn_block_q5_1, m)},
    {QN_TYPE_Q8_0, offsetof(qn_block_q8_0, d), -1},
    {QN_TYPE_Q2_K, offsetof(qn_block_q2_k, d), offsetof(qn_block_q2_k, dmin)},
    {QN_TYPE_Q3_K, offsetof(qn_block_q3_k, d), -1},
    {QN_TYPE_Q4_K, offsetof(qn_block_q4_k, d), offsetof(qn_block_q4_k, dmin)},
    {QN_TYPE_Q5_K, offsetof(qn_block_q5_k, d), offsetof(qn_block_q5_k, dmin)},
    {QN_TYPE_Q6_K, offsetof(qn_block_q6_k, d), -1},
    {QN_TYPE_IQ4_NL, offsetof(qn_block_iq4_nl, d), -1},
    {QN_TYPE_IQ4_XS, offsetof(qn_block_iq4_xs, d), -1},
    {QN_TYPE_MXFP4, -1, -1},
};
enum { N_MATMUL_TYPES = sizeof matmul_types / sizeof matmul_types[0] };

static inline size_t matmul_row_bytes(qn_type type, int64_t k)
{
    const qn_type_info *info = qn_type_get_info(type);
    return (size_t)(k / info->block_values) * info->block_bytes;
}

static inline void matmul_put_half(uint8_t *at, float x)
{
    const uint16_t h = qn__f32_to_f16(x);
    memcpy(at, &h, sizeof h);
}

/* Rows as in a file: levels and integer scales of any bits, so that all extremes occur. */
static inline uint8_t *matmul_random_rows(qn_test_random *r, const matmul_type *t, int64_t k,
                                          int64_t n_rows)
{
    const qn_type_info *info = qn_type_get_info(t->type);
    const size_t bytes = matmul_row_bytes(t->type, k) * (size_t)n_rows;
    uint8_t *rows = malloc(bytes);
    assert_non_null(rows);
    for (size_t at = 0; at < bytes; at += info->block_bytes) {
        uint8_t *block = rows + at;
        if (t->type == QN_TYPE_F32) {
            const float x = qn_test_normal(r);
            memcpy(block, &x, sizeof x);
            continue;
        }
        if (t->type == QN_TYPE_F16 || t->type == QN_TYPE_BF16) {
            const float x = qn_test_normal(r);
            const uint16_t h = t->type == QN_TYPE_F16 ? qn__f32_to_f16(x) : qn__f32_to_bf16(x);
            memcpy(block, &h, sizeof h);
            continue;
        }
        const uint32_t style = qn_test_bits(r) % 8; /* now and then all bits alike */
        for (uint32_t i = 0; i < info->block_bytes; i++) {
            block[i] = style == 0 ? 0xff : style == 1 ? 0 : (uint8_t)(qn_test_bits(r) >> 8);
        }
        if (t->d >= 0) {
            matmul_put_half(block + t->d, qn_test_uniform(r, -0.1F, 0.1F));
        }
        if (t->m >= 0) {
            matmul_put_half(block + t->m, qn_test_uniform(r, -0.5F, 0.5F));
        }
        if (t->type == QN_TYPE_MXFP4) {
            block[0] = (uint8_t)(style < 2 ? qn_test_bits(r) % 3 : 120 + qn_test_bits(r) % 10);
        }
    }
    return rows;
}

/* A packed matrix; free with qn__block_free(packed, bytes) and free(rows). */
typedef struct matmul_matrix {
    qn_weight weight;
    uint8_t *rows;
} matmul_matrix;

static inline matmul_matrix matmul_make(qn_test_random *r, const matmul_type *t, int64_t k,
                                        int64_t n_rows, int64_t planes)
{
    matmul_matrix m = {.rows = matmul_random_rows(r, t, k, n_rows * planes)};
    m.weight = (qn_weight){
        .name = "w", .type = t->type, .ne = {k, n_rows, planes, 1}, .uses = QN_WEIGHT_MATRIX};
    m.weight.packed_bytes = qn__cpu_pack_bytes(t->type, m.weight.ne);
    assert_true(m.weight.packed_bytes > 0);
    m.weight.packed = qn__block_alloc(m.weight.packed_bytes);
    assert_non_null(m.weight.packed);
    const int64_t groups = qn__cpu_pack_groups(m.weight.ne);
    size_t row_bytes = 0;
    assert_int_equal(qn_type_row_bytes(t->type, k, &row_bytes, NULL), QN_OK);
    for (int64_t g = 0; g < groups; g += 3) { /* in pieces, as threads would */
        size_t at = (size_t)qn__cpu_pack_first_row(m.weight.ne, g) * row_bytes;
        qn__cpu_pack_rows(t->type, m.weight.ne, m.rows + at, g, qn__min_i64(3, groups - g),
                          m.weight.packed);
    }
    return m;
}

static inline void matmul_free(matmul_matrix *m)
{
    qn__block_free(m->weight.packed, m->weight.packed_bytes);
    free(m->rows);
}

/* Decoded row i. */
static inline void matmul_decode(const matmul_matrix *m, int64_t i, float *out)
{
    const int64_t k = m->weight.ne[0];
    qn__quant_get(m->weight.type)
        ->decode(m->rows + (size_t)i * matmul_row_bytes(m->weight.type, k), out, k);
}

/* Activations of several magnitudes; some blocks are zero, some reach the largest level often. */
static inline float *matmul_random_acts(qn_test_random *r, size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        const uint32_t style = (uint32_t)(i / 32 * 2654435761U) >> 29;
        x[i] = style == 0   ? 0.0F
               : style == 1 ? (qn_test_bits(r) & 16 ? 3.0F : -3.0F)
                            : qn_test_normal(r) * (float)(style * style);
    }
    return x;
}

#endif
