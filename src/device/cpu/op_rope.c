/*
 * op_rope.c: ROPE_TABLE and ROPE. The table holds cos and sin of every pair of every token
 * (device/rope.h), so that the angles are made once a batch and not once a layer.
 */
#include "device/rope.h"

#include "device/cpu/op.h"

/* Tokens of a task. */
#define TABLE_TOKENS 8

static int64_t count_table(const qn_cpu_step *step, int phase)
{
    (void)phase;
    return qn__div_up(step->node->ne[1], TABLE_TOKENS);
}

static void run_table(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *positions = node->src[0], *factors = node->src[1];
    const qn_rope_params *p = &node->params.rope_table;
    const int64_t n_tokens = node->ne[1];
    const int64_t end = qn__min_i64((task + 1) * TABLE_TOKENS, n_tokens);
    const qn_rope_turn turn = qn__rope_turn(p);
    (void)phase;
    (void)scratch;
    for (int64_t token = task * TABLE_TOKENS; token < end; token++) {
        int32_t position[4] = {0};
        for (int64_t i = 0; i < positions->ne[1]; i++) {
            position[i] = ((const int32_t *)positions->data)[i * n_tokens + token];
        }
        qn__rope_row(p, &turn, factors ? factors->data : NULL, position,
                     (float *)node->data + token * p->n_rot);
    }
}

const qn_cpu_kernel qn__kernel_rope_table = {
    .count = count_table,
    .run = run_table,
};

static void prepare_rope(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node, QN_TASK_CHEAP);
}

static void run_rope(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *x = node->src[0], *table = node->src[1];
    const int64_t first = node->params.rope.first, n_rot = node->params.rope.n_rot;
    const qn_rope_fn fn = node->params.rope.mode == QN_ROPE_NORM ? step->isa->rows->rope_norm
                                                                 : step->isa->rows->rope_neox;
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        float *out = qn__row(node, at);
        const float *in = qn__row(x, at);
        const float *angles = qn__row(table, (qn_row_at){at.i2, 0, 0});
        if (out != in) {
            int64_t behind = first + n_rot;
            memcpy(out, in, (size_t)first * sizeof *out);
            memcpy(out + behind, in + behind, (size_t)(node->ne[0] - behind) * sizeof *out);
        }
        fn(out + first, in + first, angles, n_rot / 2);
    }
}

const qn_cpu_kernel qn__kernel_rope = {
    .prepare = prepare_rope,
    .count = qn__cut_count,
    .run = run_rope,
};
