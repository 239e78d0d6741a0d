/* op_copy.c: COPY, CONCAT, GET_ROWS, SET_ROWS: moving and converting. */
#include "base/fmath.h"
#include "device/cpu/op.h"
#include "device/cpu/pack.h"
#include "quant/quant.h"

static void prepare_copy(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node, QN_TASK_CHEAP);
}

/* COPY ------------------------------------------------------------------------------------------
 */

/* Values converted at once where both types are half floats or the source is not contiguous. */
#define PIECE 256

static void widen(const qn_cpu_row_fns *fns, qn_type type, float *out, const void *x, int64_t n)
{
    if (type == QN_TYPE_F16) {
        fns->from_f16(out, x, n);
    } else if (type == QN_TYPE_BF16) {
        fns->from_bf16(out, x, n);
    } else {
        memcpy(out, x, (size_t)n * sizeof *out);
    }
}

static void narrow(const qn_cpu_row_fns *fns, qn_type type, void *out, const float *x, int64_t n)
{
    if (type == QN_TYPE_F16) {
        fns->to_f16(out, x, n);
    } else if (type == QN_TYPE_BF16) {
        fns->to_bf16(out, x, n);
    } else {
        memcpy(out, x, (size_t)n * sizeof *x);
    }
}

/* n elements of `size` bytes, `stride` bytes apart, to contiguous ones. */
static void gather(void *out, const uint8_t *x, int64_t n, size_t size, size_t stride)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy((uint8_t *)out + (size_t)i * size, x + (size_t)i * stride, size);
    }
}

static void copy_row(const qn_cpu_row_fns *fns, const qn_node *node, void *out, const void *in)
{
    const qn_node *x = node->src[0];
    const size_t in_size = qn_type_get_info(x->type)->block_bytes;
    const size_t out_size = qn_type_get_info(node->type)->block_bytes;
    float values[PIECE];
    uint32_t packed[PIECE];
    if (x->type == node->type) {
        if (x->nb[0] == in_size) {
            memcpy(out, in, (size_t)node->ne[0] * in_size);
        } else {
            gather(out, in, node->ne[0], in_size, x->nb[0]);
        }
        return;
    }
    for (int64_t i = 0; i < node->ne[0]; i += PIECE) {
        int64_t n = qn__min_i64(node->ne[0] - i, PIECE);
        const uint8_t *from = (const uint8_t *)in + (size_t)i * x->nb[0];
        if (x->nb[0] != in_size) {
            gather(packed, from, n, in_size, x->nb[0]);
            from = (const uint8_t *)packed;
        }
        widen(fns, x->type, values, from, n);
        narrow(fns, node->type, (uint8_t *)out + (size_t)i * out_size, values, n);
    }
}

static void run_copy(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        copy_row(step->isa->rows, node, qn__row(node, at), qn__row(node->src[0], at));
    }
}

const qn_cpu_kernel qn__kernel_copy = {
    .prepare = prepare_copy,
    .count = qn__cut_count,
    .run = run_copy,
};

/* CONCAT ----------------------------------------------------------------------------------------
 */

static void run_concat(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *a = node->src[0], *b = node->src[1];
    const int dim = node->params.concat.dim;
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        qn_row_at at = qn__row_at(node, row);
        float *out = qn__row(node, at);
        if (dim == 0) {
            memcpy(out, qn__row(a, at), (size_t)a->ne[0] * sizeof *out);
            memcpy(out + a->ne[0], qn__row(b, at), (size_t)b->ne[0] * sizeof *out);
            continue;
        }
        int64_t *index = dim == 1 ? &at.i1 : dim == 2 ? &at.i2 : &at.i3;
        const qn_node *x = *index < a->ne[dim] ? a : b;
        *index -= x == b ? a->ne[dim] : 0;
        memcpy(out, qn__row(x, at), (size_t)node->ne[0] * sizeof *out);
    }
}

const qn_cpu_kernel qn__kernel_concat = {
    .prepare = prepare_copy,
    .count = qn__cut_count,
    .run = run_concat,
};

/* GET_ROWS --------------------------------------------------------------------------------------
 */

static bool supports_get_rows(const qn_node *node)
{
    return qn__quant_get(node->src[0]->type) != NULL;
}

/* A table that lies packed only: its rows are unpacked where they are needed. */
static const qn_weight *packed_table(const qn_node *table)
{
    return !table->data && table->weight && table->weight->packed ? table->weight : NULL;
}

static void prepare_get_rows(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node, QN_TASK_COSTLY);
    if (packed_table(step->node->src[0])) {
        step->scratch_bytes = step->node->src[0]->nb[1];
    }
}

/* An id that is no row gives zeros. */
static void run_get_rows(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *table = node->src[0];
    const int32_t *ids = node->src[1]->data;
    const qn_block block = qn__cut_block(step, node, task);
    const bool plain =
        table->type == QN_TYPE_F32 || table->type == QN_TYPE_F16 || table->type == QN_TYPE_BF16;
    const qn_weight *packed = packed_table(table);
    (void)phase;
    for (int64_t row = block.row; row < block.row_end; row++) {
        float *out = qn__row(node, qn__row_at(node, row));
        if (ids[row] < 0 || ids[row] >= table->ne[1]) {
            memset(out, 0, (size_t)node->ne[0] * sizeof *out);
            continue;
        }
        const void *in = scratch;
        if (packed) {
            qn__cpu_unpack_row(packed->type, packed->ne, packed->packed, ids[row], scratch);
        } else {
            in = qn__row(table, (qn_row_at){ids[row], 0, 0});
        }
        if (plain) {
            widen(step->isa->rows, table->type, out, in, node->ne[0]);
        } else {
            qn__quant_get(table->type)->decode(in, out, node->ne[0]);
        }
    }
}

const qn_cpu_kernel qn__kernel_get_rows = {
    .supports = supports_get_rows,
    .prepare = prepare_get_rows,
    .count = qn__cut_count,
    .run = run_get_rows,
};

/* SET_ROWS: phase 0 copies src0 (unless the result lies there), phase 1 puts the rows in. ---------
 */

static void prepare_set_rows(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node, QN_TASK_CHEAP);
    step->n_phases = 2;
}

static int64_t count_set_rows(const qn_cpu_step *step, int phase)
{
    const qn_node *node = step->node;
    if (phase == 0) {
        return node->data == node->src[0]->data ? 0 : qn__cut_count(step, phase);
    }
    return qn__div_up(node->src[1]->ne[1], step->tile[0]);
}

static void run_set_rows(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *x = phase == 0 ? node->src[0] : node->src[1];
    const int32_t *ids = node->src[2]->data;
    const qn_block block = qn__cut_block(step, x, task);
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        int64_t to = phase == 0 ? row : ids[row];
        if (to >= 0 && to < node->ne[1]) {
            memcpy(qn__row(node, (qn_row_at){to, 0, 0}), qn__row(x, (qn_row_at){row, 0, 0}),
                   (size_t)node->ne[0] * sizeof(float));
        }
    }
}

const qn_cpu_kernel qn__kernel_set_rows = {
    .prepare = prepare_set_rows,
    .count = count_set_rows,
    .run = run_set_rows,
};
