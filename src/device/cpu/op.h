/*
 * op.h: what the kernels of row operations share: addresses of rows, and cutting a node into tasks.
 *
 * Rows are numbered through dimensions 1..3. A task of an element-wise operation is a block of rows
 * by a piece of their columns; other operations are cut by rows only. Tasks are sized so that small
 * nodes are one task (which the pool does without waking anybody) and large ones are many.
 */
#ifndef QUERN_DEVICE_CPU_OP_H
#define QUERN_DEVICE_CPU_OP_H

#include "device/cpu/cpu.h"
#include "device/cpu/rows.h"

/* Elements of a task: cheap ones stream through memory, costly ones compute. */
#define QN_TASK_CHEAP  16384
#define QN_TASK_COSTLY 4096

/* Place of a row: its indices in dimensions 1..3. */
typedef struct qn_row_at {
    int64_t i1, i2, i3;
} qn_row_at;

static inline qn_row_at qn__row_at(const qn_node *node, int64_t row)
{
    int64_t plane = row / node->ne[1];
    return (qn_row_at){row % node->ne[1], plane % node->ne[2], plane / node->ne[2]};
}

static inline void *qn__row(const qn_node *node, qn_row_at at)
{
    return (uint8_t *)node->data + (size_t)at.i1 * node->nb[1] + (size_t)at.i2 * node->nb[2] +
           (size_t)at.i3 * node->nb[3];
}

/* The row of an operand that is repeated along the dimensions where it has length 1. */
static inline void *qn__row_repeated(const qn_node *node, qn_row_at at)
{
    return qn__row(node, (qn_row_at){node->ne[1] == 1 ? 0 : at.i1, node->ne[2] == 1 ? 0 : at.i2,
                                     node->ne[3] == 1 ? 0 : at.i3});
}

/* tile[0] rows and tile[1] columns a task, tile[2] tasks across a row. */
void qn__cut_elements(qn_cpu_step *step, const qn_node *node, int64_t task_elements);
/* The same with whole rows: tile[1] = ne[0], tile[2] = 1. */
void qn__cut_rows(qn_cpu_step *step, const qn_node *node, int64_t task_elements);

/* Blocks of a node that was cut: count for the kernel table, and the block of a task. */
int64_t qn__cut_count(const qn_cpu_step *step, int phase);
typedef struct qn_block {
    int64_t row, row_end, column, n_columns;
} qn_block;
qn_block qn__cut_block(const qn_cpu_step *step, const qn_node *node, int64_t task);

/* Kernels, by file. */
extern const qn_cpu_kernel qn__kernel_binary, qn__kernel_scale_bias, qn__kernel_unary,
    qn__kernel_clamp, qn__kernel_glu; /* op_elements.c */
extern const qn_cpu_kernel qn__kernel_norm, qn__kernel_soft_max, qn__kernel_sum_rows,
    qn__kernel_argmax;                                             /* op_rows.c */
extern const qn_cpu_kernel qn__kernel_rope_table, qn__kernel_rope; /* op_rope.c */
extern const qn_cpu_kernel qn__kernel_copy, qn__kernel_concat, qn__kernel_get_rows,
    qn__kernel_set_rows; /* op_copy.c */
extern const qn_cpu_kernel qn__kernel_add_id, qn__kernel_moe_select, qn__kernel_moe_weights,
    qn__kernel_moe_sum;                       /* op_moe.c */
extern const qn_cpu_kernel qn__kernel_sample; /* op_sample.c */

#endif
