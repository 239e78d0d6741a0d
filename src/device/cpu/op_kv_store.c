/* op_kv_store.c: writes K or V rows into the blocks of a paged store; layout in kv_layout.h. */
#include "base/mem.h"
#include "device/cpu/attend.h"
#include "device/cpu/rows.h"
#include "device/kv_layout.h"

#define LANES       QN_KV_BLOCK
#define TASK_TOKENS 32
#define ONE_TASK    4096 /* values that are not worth a job */

/* tile[] of the step: heads and tokens of a task. */
enum { TASK_HEADS, TASK_ROWS };

static bool supports(const qn_node *node)
{
    const qn_node *rows = node->src[1];
    return rows->type == QN_TYPE_F32 && rows->nb[0] == sizeof(float) &&
           qn__kv_type_supported(node->type, rows->ne[0]);
}

static void prepare(qn_cpu_step *step)
{
    const qn_node *rows = step->node->src[1];
    const bool few = rows->ne[0] * rows->ne[1] * rows->ne[2] <= ONE_TASK;
    step->scratch_bytes = (size_t)rows->ne[0] * sizeof(uint16_t);
    step->tile[TASK_HEADS] = few ? qn__max_i64(1, rows->ne[1]) : 1;
    step->tile[TASK_ROWS] = few ? qn__max_i64(1, rows->ne[2]) : TASK_TOKENS;
}

static int64_t count(const qn_cpu_step *step, int phase)
{
    (void)phase;
    const qn_node *rows = step->node->src[1];
    return qn__div_up(rows->ne[2], step->tile[TASK_ROWS]) *
           qn__div_up(rows->ne[1], step->tile[TASK_HEADS]);
}

/* Values of a plain type into their column (K) or row (V) of a block. */
static void put_half(uint16_t *block, const uint16_t *from, int64_t d, int place, bool is_v)
{
    if (is_v) {
        memcpy(block + place * d, from, (size_t)d * sizeof *from);
        return;
    }
    for (int64_t i = 0; i < d; i++) {
        block[i * LANES + place] = from[i];
    }
}

static void put(const qn_cpu_step *step, void *block, int place, const float *row, void *scratch)
{
    const qn_node *node = step->node;
    int64_t d = node->src[1]->ne[0];
    bool is_v = node->params.kv.is_v;
    if (node->type == QN_TYPE_F16 || node->type == QN_TYPE_BF16) {
        const qn_cpu_row_fns *rows = step->isa->rows;
        (node->type == QN_TYPE_F16 ? rows->to_f16 : rows->to_bf16)(scratch, row, d);
        put_half(block, scratch, d, place, is_v);
    } else if (is_v) {
        qn__kv_put_v(node->type, block, d, place, row);
    } else {
        qn__kv_put_k(node->type, block, d, place, row);
    }
}

/* Head g of tokens first .. end. A token with a negative slot is not stored. */
static void store_head(const qn_cpu_step *step, int64_t g, int64_t first, int64_t end,
                       void *scratch)
{
    const qn_node *node = step->node, *rows = node->src[1];
    const int32_t *slots = node->src[2]->data;
    size_t bytes = qn__kv_block_bytes(node->type, rows->ne[0]);
    for (int64_t t = first; t < end; t++) {
        if (slots[t] < 0) {
            continue;
        }
        size_t block = (size_t)(slots[t] / LANES) * (size_t)rows->ne[1] + (size_t)g;
        const uint8_t *row =
            (const uint8_t *)rows->data + (size_t)g * rows->nb[1] + (size_t)t * rows->nb[2];
        put(step, (uint8_t *)node->data + block * bytes, slots[t] % LANES,
            (const float *)(const void *)row, scratch);
    }
}

static void run(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    (void)phase;
    const qn_node *rows = step->node->src[1];
    const int64_t heads = step->tile[TASK_HEADS], tasks = qn__div_up(rows->ne[1], heads);
    const int64_t g = task % tasks * heads, first = task / tasks * step->tile[TASK_ROWS];
    const int64_t end = qn__min_i64(first + step->tile[TASK_ROWS], rows->ne[2]);
    for (int64_t i = g; i < qn__min_i64(g + heads, rows->ne[1]); i++) {
        store_head(step, i, first, end, scratch);
    }
}

const qn_cpu_kernel qn__cpu_kernel_kv_store = {
    .supports = supports,
    .prepare = prepare,
    .count = count,
    .run = run,
};
