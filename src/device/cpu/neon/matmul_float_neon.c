/*
 * matmul_float_neon.c: F32, F16 and BF16 weights with F32 activations for NEON.
 *
 * A walk goes through a chunk with 16 rows and up to four columns (sixteen sums in registers, of
 * 32), or with one column and two groups of rows, so that eight chains of fmas run beside each
 * other.
 */
#include "device/cpu/neon/matmul_neon.h"

enum { COLS = 4, REGS = QN_NEON_REGS };

/* The rows of register r of weight k of a chunk. BF16: of the pair k, k + 1, the even one. */
QN_INLINE float32x4_t load_weight(qn_type type, const uint8_t *w, int64_t k, int r)
{
    switch (type) {
    case QN_TYPE_F32:
        return vld1q_f32((const float *)(const void *)(w + 64 * k) + 4 * r);
    case QN_TYPE_F16:
        return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(w + 32 * k + 8 * r)));
    default:
        return vreinterpretq_f32_u32(
            vshlq_n_u32(vreinterpretq_u32_u8(vld1q_u8(w + 32 * k + 16 * r)), 16));
    }
}

/* BF16: of the pair k, k + 1, the odd one. */
QN_INLINE float32x4_t load_odd(const uint8_t *w, int64_t k, int r)
{
    const uint32x4_t pair = vreinterpretq_u32_u8(vld1q_u8(w + 32 * k + 16 * r));
    return vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xffff0000U)));
}

/* acc[column][register] += the weight of 16 rows times x[column][k]. */
QN_INLINE void take(float32x4_t acc[][REGS], const float32x4_t w[REGS], const float *const x[],
                    int64_t k, int cols)
{
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        const float v = x[c][k];
#pragma GCC unroll 4
        for (int r = 0; r < REGS; r++) {
            acc[c][r] = vfmaq_n_f32(acc[c][r], w[r], v);
        }
    }
}

/* One chunk of n values of `groups` groups, group_bytes apart, with `cols` columns, joined to their
 * stacks. */
QN_INLINE void walk(qn_type type, const uint8_t *w, size_t group_bytes, int groups,
                    const float *const x[], int cols, int64_t n, int64_t index,
                    qn_neon_stack *stack)
{
    float32x4_t acc[2][COLS][REGS], v[REGS];
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
#pragma GCC unroll 16
        for (int i = 0; i < cols * REGS; i++) {
            acc[g][i / REGS][i % REGS] = vdupq_n_f32(0.0F);
        }
    }
    const int step = type == QN_TYPE_BF16 ? 2 : 1;
    for (int64_t k = 0; k < n; k += step) {
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const uint8_t *at = w + (size_t)g * group_bytes;
#pragma GCC unroll 4
            for (int r = 0; r < REGS; r++) {
                v[r] = load_weight(type, at, k, r);
            }
            take(acc[g], v, x, k, cols);
            if (type == QN_TYPE_BF16 && k + 1 < n) {
#pragma GCC unroll 4
                for (int r = 0; r < REGS; r++) {
                    v[r] = load_odd(at, k, r);
                }
                take(acc[g], v, x, k + 1, cols);
            }
        }
    }
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
#pragma GCC unroll 4
            for (int r = 0; r < REGS; r++) {
                qn__neon_join(stack[g + c], index, r, acc[g][c][r]);
            }
        }
    }
}

/* The groups at row `row` (one, or two for a single column) with columns first .. first + n_cols */
QN_INLINE void mul_groups(qn_type type, const qn_matmul_tile *t, int64_t row, int groups,
                          int64_t first, int64_t n_cols)
{
    const size_t group_bytes = qn__pack_group_bytes(type, t->k);
    const uint8_t *w = (const uint8_t *)t->weights + (size_t)(row / QN_PACK_ROWS) * group_bytes;
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    qn_neon_stack *stack = t->scratch;
    for (int64_t i = 0; i < n_chunks; i++) {
        const int64_t n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK);
        for (int64_t c = 0, cols = COLS; c < n_cols; c += cols) {
            const float *x[COLS];
            while (cols > n_cols - c) {
                cols /= 2;
            }
            for (int64_t j = 0; j < cols; j++) {
                x[j] =
                    (const float *)((const uint8_t *)t->x[first + c + j] + (size_t)i * t->x_stride);
            }
            if (cols == 4) {
                walk(type, w, group_bytes, 1, x, 4, n, i, stack + c);
            } else if (cols == 2) {
                walk(type, w, group_bytes, 1, x, 2, n, i, stack + c);
            } else {
                walk(type, w, group_bytes, groups, x, 1, n, i, stack + c);
            }
        }
        w += qn__pack_chunk_bytes(type, n);
    }
    for (int64_t i = 0; i < (groups == 2 ? 2 : n_cols); i++) {
        const int64_t at = groups == 2 ? row + i * QN_PACK_ROWS : row;
        qn__neon_finish(stack[i], n_chunks, qn__min_i64(t->n_rows - at, QN_PACK_ROWS),
                        t->bias ? t->bias + at : NULL, t->y[groups == 2 ? first : first + i] + at);
    }
}

QN_INLINE void mul(qn_type type, const qn_matmul_tile *t)
{
    int64_t row = 0;
    for (; t->n_cols == 1 && row + QN_PACK_ROWS < t->n_rows; row += 2 * QN_PACK_ROWS) {
        mul_groups(type, t, row, 2, 0, 1);
    }
    for (; row < t->n_rows; row += QN_PACK_ROWS) {
        for (int64_t c = 0; c < t->n_cols; c += QN_NEON_COLS) {
            mul_groups(type, t, row, 1, c, qn__min_i64(t->n_cols - c, QN_NEON_COLS));
        }
    }
}

#define QN_MUL(name, type)                                                                         \
    void qn__neon_mul_##name(const qn_matmul_tile *t)                                              \
    {                                                                                              \
        mul(type, t);                                                                              \
    }
QN_MATMUL_FLOAT_TYPES(QN_MUL)
