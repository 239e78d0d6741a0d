/* op_rows.c: NORM, SOFT_MAX, SUM_ROWS, ARGMAX: operations on whole rows. */
#include "device/cpu/op.h"

/* The operand's rows are what is walked: results of SUM_ROWS and ARGMAX have rows of one value. */
static void prepare_rows(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node->src[0], QN_TASK_COSTLY);
}

static void run_norm(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *weight = node->src[1], *bias = node->src[2];
    const qn_norm_fn fn = step->isa->rows->norm[node->params.norm.kind];
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        fn(qn__row(node, at), qn__row(node->src[0], at), node->ne[0], node->params.norm.eps,
           weight ? qn__row_repeated(weight, at) : NULL, bias ? bias->data : NULL);
    }
}

const qn_cpu_kernel qn__kernel_norm = {
    .prepare = prepare_rows,
    .count = qn__cut_count,
    .run = run_norm,
};

static void run_soft_max(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        step->isa->rows->soft_max(qn__row(node, at), qn__row(node->src[0], at), node->ne[0]);
    }
}

const qn_cpu_kernel qn__kernel_soft_max = {
    .prepare = prepare_rows,
    .count = qn__cut_count,
    .run = run_soft_max,
};

static void run_sum_rows(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_block block = qn__cut_block(step, node->src[0], task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        float *out = qn__row(node, at);
        *out = step->isa->rows->sum(qn__row(node->src[0], at), node->src[0]->ne[0]);
    }
}

const qn_cpu_kernel qn__kernel_sum_rows = {
    .prepare = prepare_rows,
    .count = qn__cut_count,
    .run = run_sum_rows,
};

static void run_argmax(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_block block = qn__cut_block(step, node->src[0], task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        int32_t *out = qn__row(node, at);
        *out = step->isa->rows->argmax(qn__row(node->src[0], at), node->src[0]->ne[0]);
    }
}

const qn_cpu_kernel qn__kernel_argmax = {
    .prepare = prepare_rows,
    .count = qn__cut_count,
    .run = run_argmax,
};
