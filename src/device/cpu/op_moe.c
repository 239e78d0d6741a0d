/*
 * op_moe.c: which experts a token takes (MOE_SELECT), with what weights (MOE_WEIGHTS), and the sum
 * of what they gave (MOE_SUM); ADD_ID, the bias of a token's experts.
 */
#include <math.h>

#include "device/cpu/op.h"

/* Weights are divided by their sum, or by this where the sum is smaller. */
#define MIN_WEIGHT_SUM 6.103515625e-5F

/* Scratch of a worker: scores and gate values of one token, group scores, marks. */
static void prepare_token(qn_cpu_step *step)
{
    const int64_t n_experts = step->node->src[0]->ne[0];
    qn__cut_rows(step, step->node->src[0], QN_TASK_COSTLY);
    step->scratch_bytes = (size_t)n_experts * 4 * sizeof(float);
}

static int64_t count_token(const qn_cpu_step *step, int phase)
{
    (void)phase;
    return qn__div_up(step->node->src[0]->ne[1], step->tile[0]);
}

/* The gate's values of all experts of a token. */
static void gate_values(const qn_cpu_row_fns *fns, const qn_moe_params *p, const float *logits,
                        int64_t n, float *out)
{
    switch (p->gate) {
    case QN_MOE_SOFT_MAX:
        fns->soft_max(out, logits, n);
        break;
    case QN_MOE_SIGMOID:
        fns->unary[QN_UNARY_SIGMOID](out, logits, n, 0.0F);
        break;
    case QN_MOE_SQRT_SOFTPLUS:
        fns->unary[QN_UNARY_SOFTPLUS](out, logits, n, 0.0F);
        fns->unary[QN_UNARY_SQRT](out, out, n, 0.0F);
        break;
    case QN_MOE_SOFT_MAX_CHOSEN:
        memcpy(out, logits, (size_t)n * sizeof *out);
        break;
    }
}

/* Index of the largest score that is not taken, the lowest among equals; a NaN is below all. Marks
 * it as taken. There is one. */
static int32_t take_best(const float *scores, bool *taken, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!taken[i] &&
            (best < 0 || scores[i] > scores[best] || (isnan(scores[best]) && !isnan(scores[i])))) {
            best = i;
        }
    }
    taken[best] = true;
    return (int32_t)best;
}

/* A group's score: the sum of its two largest scores (of its only one). */
static float group_score(const float *scores, int64_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (scores[i] > first) {
            second = first;
            first = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    return n < 2 ? first : first + second;
}

/* Marks the experts of all groups but the best ones as taken. */
static void close_groups(const qn_moe_params *p, const float *scores, int64_t n, float *sums,
                         bool *group_taken, bool *taken)
{
    const int64_t size = n / p->n_groups;
    for (int32_t i = 0; i < p->n_groups; i++) {
        sums[i] = group_score(scores + i * size, size);
        group_taken[i] = false;
    }
    for (int32_t i = 0; i < p->n_groups_used; i++) {
        take_best(sums, group_taken, p->n_groups);
    }
    for (int64_t i = 0; i < n; i++) {
        taken[i] = !group_taken[i / size];
    }
}

static void select_token(const qn_cpu_step *step, int64_t token, float *scores)
{
    const qn_node *node = step->node, *bias = node->src[1];
    const qn_moe_params *p = &node->params.moe;
    const int64_t n = node->src[0]->ne[0];
    const float *logits = qn__row(node->src[0], (qn_row_at){token, 0, 0});
    int32_t *out = qn__row(node, (qn_row_at){token, 0, 0});
    float *sums = scores + n;
    bool *taken = (bool *)(scores + 2 * n), *group_taken = (bool *)(scores + 3 * n);
    if (p->select_by_logit) {
        memcpy(scores, logits, (size_t)n * sizeof *scores);
    } else {
        gate_values(step->isa->rows, p, logits, n, scores);
    }
    if (bias) {
        step->isa->rows->binary[0](scores, scores, bias->data, n);
    }
    memset(taken, 0, (size_t)n * sizeof *taken);
    if (p->n_groups > 1) {
        close_groups(p, scores, n, sums, group_taken, taken);
    }
    for (int32_t k = 0; k < p->n_used; k++) {
        out[k] = take_best(scores, taken, n);
    }
}

static void run_select(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const int64_t end = qn__min_i64((task + 1) * step->tile[0], step->node->ne[1]);
    (void)phase;
    for (int64_t token = task * step->tile[0]; token < end; token++) {
        select_token(step, token, scratch);
    }
}

const qn_cpu_kernel qn__kernel_moe_select = {
    .prepare = prepare_token,
    .count = count_token,
    .run = run_select,
};

static void weigh_token(const qn_cpu_step *step, int64_t token, float *values)
{
    const qn_node *node = step->node;
    const qn_cpu_row_fns *fns = step->isa->rows;
    const qn_moe_params *p = &node->params.moe;
    const int64_t n = node->src[0]->ne[0], n_used = p->n_used;
    const int32_t *ids = qn__row(node->src[1], (qn_row_at){token, 0, 0});
    float *out = qn__row(node, (qn_row_at){token, 0, 0});
    gate_values(fns, p, qn__row(node->src[0], (qn_row_at){token, 0, 0}), n, values);
    for (int64_t k = 0; k < n_used; k++) {
        out[k] = ids[k] >= 0 && ids[k] < n ? values[ids[k]] : 0.0F;
    }
    if (p->gate == QN_MOE_SOFT_MAX_CHOSEN) {
        fns->soft_max(out, out, n_used);
    }
    if (p->normalize) {
        float total = fns->sum(out, n_used);
        fns->binary_one[QN_OP_DIV - QN_OP_ADD](
            out, out, MIN_WEIGHT_SUM > total ? MIN_WEIGHT_SUM : total, n_used);
    }
    if (p->scale != 0.0F && p->scale != 1.0F) {
        fns->binary_one[QN_OP_MUL - QN_OP_ADD](out, out, p->scale, n_used);
    }
}

static void run_weights(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const int64_t end = qn__min_i64((task + 1) * step->tile[0], step->node->ne[1]);
    (void)phase;
    for (int64_t token = task * step->tile[0]; token < end; token++) {
        weigh_token(step, token, scratch);
    }
}

const qn_cpu_kernel qn__kernel_moe_weights = {
    .prepare = prepare_token,
    .count = count_token,
    .run = run_weights,
};

/* MOE_SUM: best expert first; the first product is rounded, the others are fused. ----------------
 */

static void prepare_sum(qn_cpu_step *step)
{
    int64_t n_used = qn__max_i64(step->node->src[0]->ne[1], 1);
    qn__cut_elements(step, step->node, qn__max_i64(QN_TASK_CHEAP / n_used, 256));
}

static void run_sum(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *x = node->src[0], *weights = node->src[1];
    const qn_cpu_row_fns *fns = step->isa->rows;
    const qn_block block = qn__cut_block(step, node, task);
    const int64_t n = block.n_columns;
    (void)phase;
    (void)scratch;
    for (int64_t token = block.row; token < block.row_end; token++) {
        float *out = (float *)qn__row(node, (qn_row_at){token, 0, 0}) + block.column;
        const float *w = weights ? qn__row(weights, (qn_row_at){token, 0, 0}) : NULL;
        if (x->ne[1] == 0) {
            memset(out, 0, (size_t)n * sizeof *out);
        }
        for (int64_t k = 0; k < x->ne[1]; k++) {
            const float *in = (const float *)qn__row(x, (qn_row_at){k, token, 0}) + block.column;
            if (k == 0) {
                fns->binary_one[QN_OP_MUL - QN_OP_ADD](out, in, w ? w[0] : 1.0F, n);
            } else {
                fns->add_scaled(out, in, n, w ? w[k] : 1.0F);
            }
        }
    }
}

const qn_cpu_kernel qn__kernel_moe_sum = {
    .prepare = prepare_sum,
    .count = qn__cut_count,
    .run = run_sum,
};

/* ADD_ID ----------------------------------------------------------------------------------------
 */

static void prepare_add_id(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node, QN_TASK_CHEAP);
}

/* An id that is no row adds nothing. */
static void run_add_id(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *rows = node->src[1];
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        float *out = qn__row(node, at);
        const float *in = qn__row(node->src[0], at);
        const int32_t id =
            *((const int32_t *)qn__row(node->src[2], (qn_row_at){at.i2, 0, 0}) + at.i1);
        if (id >= 0 && id < rows->ne[1]) {
            step->isa->rows->binary[0](out, in, qn__row(rows, (qn_row_at){id, 0, 0}), node->ne[0]);
        } else if (out != in) {
            memcpy(out, in, (size_t)node->ne[0] * sizeof *out);
        }
    }
}

const qn_cpu_kernel qn__kernel_add_id = {
    .prepare = prepare_add_id,
    .count = qn__cut_count,
    .run = run_add_id,
};
