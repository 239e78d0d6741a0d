/* op_elements.c: ADD, SUB, MUL, DIV, SCALE_BIAS, UNARY, CLAMP, GLU. */
#include "device/cpu/op.h"

static void prepare_cheap(qn_cpu_step *step)
{
    qn__cut_elements(step, step->node, QN_TASK_CHEAP);
}

static void prepare_costly(qn_cpu_step *step)
{
    qn__cut_elements(step, step->node, QN_TASK_COSTLY);
}

static void run_binary(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *a = node->src[0], *b = node->src[1];
    const qn_binary_fn fn = step->isa->rows->binary[node->op - QN_OP_ADD];
    const qn_binary_one_fn fn_one = step->isa->rows->binary_one[node->op - QN_OP_ADD];
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        float *out = (float *)qn__row(node, at) + block.column;
        const float *x = (const float *)qn__row(a, at) + block.column;
        const float *y = qn__row_repeated(b, at);
        if (b->ne[0] == node->ne[0]) {
            fn(out, x, y + block.column, block.n_columns);
        } else {
            fn_one(out, x, *y, block.n_columns);
        }
    }
}

const qn_cpu_kernel qn__kernel_binary = {
    .prepare = prepare_cheap,
    .count = qn__cut_count,
    .run = run_binary,
};

/* The element-wise operations of one operand differ in the call alone. */
static void row_of_one(const qn_node *node, const qn_cpu_row_fns *fns, float *out, const float *x,
                       int64_t n)
{
    const float value = node->params.scalar.value, value2 = node->params.scalar.value2;
    if (node->op == QN_OP_SCALE_BIAS) {
        fns->scale_bias(out, x, n, value, value2);
    } else if (node->op == QN_OP_CLAMP) {
        fns->clamp(out, x, n, value, value2);
    } else {
        fns->unary[node->params.scalar.kind](out, x, n, value);
    }
}

static void run_one(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        row_of_one(node, step->isa->rows, (float *)qn__row(node, at) + block.column,
                   (const float *)qn__row(node->src[0], at) + block.column, block.n_columns);
    }
}

const qn_cpu_kernel qn__kernel_scale_bias = {
    .prepare = prepare_cheap,
    .count = qn__cut_count,
    .run = run_one,
};

const qn_cpu_kernel qn__kernel_clamp = {
    .prepare = prepare_cheap,
    .count = qn__cut_count,
    .run = run_one,
};

const qn_cpu_kernel qn__kernel_unary = {
    .prepare = prepare_costly,
    .count = qn__cut_count,
    .run = run_one,
};

static void run_glu(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_glu_fn fn = step->isa->rows->glu[node->params.scalar.kind];
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        fn((float *)qn__row(node, at) + block.column,
           (const float *)qn__row(node->src[0], at) + block.column,
           (const float *)qn__row(node->src[1], at) + block.column, block.n_columns,
           node->params.scalar.value);
    }
}

const qn_cpu_kernel qn__kernel_glu = {
    .prepare = prepare_costly,
    .count = qn__cut_count,
    .run = run_glu,
};
