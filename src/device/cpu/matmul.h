/*
 * matmul.h: leaf functions of the matrix products, one table an instruction set.
 *
 * A node's activations are brought into chunks once (quantize; float weights read them as they
 * are); a tile then multiplies some groups of 16 packed weight rows (pack.h) with some columns.
 * The scalar functions are the definition of the arithmetic, the others have their bits:
 *
 * K is cut into chunks of 256 values at the absolute indices 256, 512, …; chunk sums are joined
 * pairwise by index like a binary counter (docs/determinism.md). In a chunk, from acc = +0:
 *
 *   float formats, for each k:      acc = fmaf(w[k], x[k], acc)
 *   block formats, for each 32:     acc = fmaf((float)isum, dw * dx, acc)
 *     and, with a minimum, then     acc = fmaf(mw, sx, acc)
 *
 * dx is the block's activation scale, q its levels and sx = dx * (float)(sum of q) (one rounding).
 * With L the level of a weight as stored:
 *
 *   Q4_0, Q5_0     isum = sum (L - 8 or 16) q           dw = d
 *   Q4_1, Q5_1     isum = sum L q                       dw = d              mw = m
 *   Q8_0           isum = sum L q                       dw = d
 *   IQ4_NL, MXFP4  isum = sum table[L] q                dw = d or half of E8M0
 *   Q4_K, Q5_K     isum = sum L q                       dw = d * scale      mw = -(dmin * minimum)
 *   IQ4_XS         isum = sum table[L] q                dw = d * (scale - 32)
 *   Q6_K, Q3_K     isum = scale0 * sum_0 (L - 32 or 4) q + scale1 * sum_1 …     dw = d
 *   Q2_K           isum = scale0 * sum_0 L q + scale1 * sum_1 L q               dw = d
 *                  and then acc = fmaf((float)(min0 * sum_0 q + min1 * sum_1 q), -dmin * dx, acc)
 *
 * sum_0 and sum_1 run over the two sub-blocks of 16. A half float times a 6-bit integer is exact in
 * binary32, so nothing is rounded in dw and mw: the scale of 32 values enters once for all columns.
 */
#ifndef QUERN_DEVICE_CPU_MATMUL_H
#define QUERN_DEVICE_CPU_MATMUL_H

#include "device/cpu/pack.h"

/* For functions that a constant argument (a type, a number of columns) turns into different code.
 */
#define QN_INLINE static inline __attribute__((always_inline))

/*
 * A column's 256 activations as the block formats meet them; the last chunk of a column may use
 * fewer blocks. `half` and `pair` serve kernels that multiply unsigned levels: the sums of q over a
 * sub-block times a factor that the weight's format fixes (qn_act_form): the offset of its levels,
 * negative, or 1 where the format has minima by sub-block.
 */
typedef struct qn_act_chunk {
    int8_t q[8][32];
    float d[8];            /* dx */
    float s[8];            /* sx */
    int32_t half[8][2];    /* factor * sum of q of sub-block 0, 1 */
    int16_t pair[8][2][2]; /* the same in two parts: values with index mod 4 < 2, and the others;
                              modulo 2^16 */
} qn_act_chunk;

/* What a format wants in `half` and `pair`. sub is 16, or 32: then [b][1] is zero. */
typedef struct qn_act_form {
    int32_t factor, sub;
} qn_act_form;

/* Blocks whose largest magnitude lies below this count as zero: 127 / amax would overflow. */
#define QN_ACT_MIN 0x1p-119F

/* How many scales a block of activations tries: amax / 127, amax / 126, … The one with the least
 * sum of squared errors is taken, the first of equal ones. */
#define QN_ACT_SCALES 4

/* The form for a weight type. */
static inline qn_act_form qn__act_form(qn_type type)
{
    switch (type) {
    case QN_TYPE_Q4_0:
        return (qn_act_form){-8, 32};
    case QN_TYPE_Q5_0:
        return (qn_act_form){-16, 32};
    case QN_TYPE_MXFP4:
        return (qn_act_form){-12, 32};
    case QN_TYPE_Q8_0:
    case QN_TYPE_IQ4_NL:
    case QN_TYPE_IQ4_XS:
        return (qn_act_form){-128, 32}; /* for multipliers of unsigned by signed bytes */
    case QN_TYPE_Q3_K:
        return (qn_act_form){-4, 16};
    case QN_TYPE_Q6_K:
        return (qn_act_form){-32, 16};
    case QN_TYPE_Q2_K:
        return (qn_act_form){1, 16};
    default:
        return (qn_act_form){0, 32};
    }
}

/*
 * Some groups of one matrix times some columns. Column c starts at x[c]: qn_act_chunk for block
 * formats, floats for float formats; its chunk i lies i * x_stride bytes further on. Row r of
 * column c goes to y[c][r].
 */
typedef struct qn_matmul_tile {
    const void *weights; /* first group */
    int64_t k;           /* inner dimension */
    int64_t n_rows;      /* 16 a group, the last may have fewer */
    int64_t n_cols;
    const void *const *x;
    size_t x_stride;
    float *const *y;
    const float *bias; /* of the first row on, added last; or NULL */
    void *scratch;     /* QN_MATMUL_SCRATCH bytes, aligned to 64; the definition needs none */
} qn_matmul_tile;

/* Room for sums that wait and for opened weights: too much for the stack of a caller's thread. */
#define QN_MATMUL_SCRATCH ((size_t)336 << 10)

typedef void (*qn_matmul_fn)(const qn_matmul_tile *tile);

typedef struct qn_cpu_matmul_fns {
    /*
     * Quantizes n activations (a multiple of 32) of a column into chunks, `stride` bytes apart.
     * A block with an infinity or a NaN gets levels 0 and scale NaN, so that the result shows it.
     */
    void (*quantize)(const float *x, int64_t n, qn_act_form form, void *chunks, size_t stride);
    qn_matmul_fn mul[QN_TYPE_COUNT]; /* NULL: not supported */
} qn_cpu_matmul_fns;

/*
 * Asks for the bytes that the products come to a while after block b of a chunk: as many as a block
 * has. The weights are one stream, but the processor's own prefetch stays so close behind it that a
 * kernel waits half of its time. Weights of eight bits do best
 * with a shorter distance (measured). It may ask for bytes past the end; that does nothing.
 */
QN_INLINE void qn__fetch_ahead(qn_type type, const uint8_t *chunk, int64_t b)
{
    const size_t bytes = qn__pack_block_bytes(type), ahead = bytes < 512 ? 1536 : 1024;
    const uint8_t *at = chunk + ahead + (size_t)b * bytes;
#pragma GCC unroll 9
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(at + i);
    }
}

/* The weight types, for tables and functions made of them: X(name, type). */
#define QN_MATMUL_FLOAT_TYPES(X)                                                                   \
    X(f32, QN_TYPE_F32)                                                                            \
    X(f16, QN_TYPE_F16)                                                                            \
    X(bf16, QN_TYPE_BF16)
#define QN_MATMUL_BLOCK_TYPES(X)                                                                   \
    X(q4_0, QN_TYPE_Q4_0)                                                                          \
    X(q4_1, QN_TYPE_Q4_1)                                                                          \
    X(q5_0, QN_TYPE_Q5_0)                                                                          \
    X(q5_1, QN_TYPE_Q5_1)                                                                          \
    X(q8_0, QN_TYPE_Q8_0)                                                                          \
    X(q2_k, QN_TYPE_Q2_K)                                                                          \
    X(q3_k, QN_TYPE_Q3_K)                                                                          \
    X(q4_k, QN_TYPE_Q4_K)                                                                          \
    X(q5_k, QN_TYPE_Q5_K)                                                                          \
    X(q6_k, QN_TYPE_Q6_K)                                                                          \
    X(iq4_nl, QN_TYPE_IQ4_NL)                                                                      \
    X(iq4_xs, QN_TYPE_IQ4_XS)                                                                      \
    X(mxfp4, QN_TYPE_MXFP4)
#define QN_MATMUL_TYPES(X) QN_MATMUL_FLOAT_TYPES(X) QN_MATMUL_BLOCK_TYPES(X)

extern const qn_cpu_matmul_fns qn__matmul_scalar, qn__matmul_avx2, qn__matmul_avx512,
    qn__matmul_neon, qn__matmul_dotprod;

/* Rows of the kernel table, in op_matmul.c. */
struct qn_cpu_kernel;
extern const struct qn_cpu_kernel qn__cpu_mul_mat, qn__cpu_mul_mat_id;

#endif
