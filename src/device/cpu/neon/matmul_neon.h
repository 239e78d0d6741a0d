/* matmul_neon.h: what the files of the matrix products for NEON share: the join of chunk sums. */
#ifndef QUERN_DEVICE_CPU_NEON_MATMUL_NEON_H
#define QUERN_DEVICE_CPU_NEON_MATMUL_NEON_H

#include "device/cpu/join.h"
#include "device/cpu/matmul.h"

#include <arm_neon.h>

enum {
    QN_NEON_COLS = 32, /* columns that share one walk through the chunks of a group */
    QN_NEON_REGS = 4   /* registers of 4 rows that make a group */
};

/* The waiting chunk sums of one column: [level][16 rows]. */
typedef float qn_neon_stack[QN_JOIN_LEVELS][QN_PACK_ROWS];

_Static_assert(sizeof(qn_neon_stack[QN_NEON_COLS]) <= QN_MATMUL_SCRATCH, "stacks");

/* Adds the sums of chunk `index` of the 4 rows of register r (join.h). */
QN_INLINE void qn__neon_join(qn_neon_stack stack, int64_t index, int r, float32x4_t sum)
{
    const int count = qn__join_count(index);
    for (int level = 0; level < count; level++) {
        sum = vaddq_f32(vld1q_f32(stack[level] + 4 * r), sum);
    }
    vst1q_f32(stack[count] + 4 * r, sum);
}

/* Joins what waits after n_chunks, adds the bias and writes n_rows <= 16 results to y. */
void qn__neon_finish(qn_neon_stack stack, int64_t n_chunks, int64_t n_rows, const float *bias,
                     float *y);

void qn__neon_quantize(const float *x, int64_t n, qn_act_form form, void *chunks, size_t stride);

/* One function a type: qn__neon_mul_<name>, and for block formats qn__dotprod_mul_<name>. */
#define QN_NEON_DECLARE(name, type)    void qn__neon_mul_##name(const qn_matmul_tile *t);
#define QN_DOTPROD_DECLARE(name, type) void qn__dotprod_mul_##name(const qn_matmul_tile *t);
QN_MATMUL_TYPES(QN_NEON_DECLARE)
QN_MATMUL_BLOCK_TYPES(QN_DOTPROD_DECLARE)
#undef QN_NEON_DECLARE
#undef QN_DOTPROD_DECLARE

#endif
