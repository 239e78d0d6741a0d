/* op_kv_store.c: writes K or V rows into the blocks of a paged store; layout in kv_layout.h. */
#include "base/mem.h"
#include "device/cpu/attend.h"
#include "device/cpu/rows.h"
#include "device/kv_layout.h"

#define LANES       QN_KV_BLOCK
#define TASK_TOKENS 32

static bool supports(const qn_node *node)
{
    const qn_node *rows = node->src[1];
    return rows->type == QN_TYPE_F32 && rows->nb[0] == sizeof(float) &&
           qn__kv_type_supported(node->type, rows->ne[0]);
}

static void prepare(qn_cpu_step *step)
{
    step->scratch_bytes = (size_t)step->node->src[1]->ne[0] * sizeof(uint16_t);
}

static int64_t count(const qn_cpu_step *step, int phase)
{
    (void)phase;
    const qn_node *rows = step->node->src[1];
    return qn__div_up(rows->ne[2], TASK_TOKENS) * rows->ne[1];
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

/* One head of some tokens. A token with a negative slot is not stored. */
static void run(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    (void)phase;
    const qn_node *node = step->node, *rows = node->src[1];
    const int32_t *slots = node->src[2]->data;
    int64_t heads = rows->ne[1], g = task % heads, first = task / heads * TASK_TOKENS;
    int64_t end = qn__min_i64(first + TASK_TOKENS, rows->ne[2]);
    size_t bytes = qn__kv_block_bytes(node->type, rows->ne[0]);
    for (int64_t t = first; t < end; t++) {
        if (slots[t] < 0) {
            continue;
        }
        size_t block = (size_t)(slots[t] / LANES) * (size_t)heads + (size_t)g;
        const uint8_t *row =
            (const uint8_t *)rows->data + (size_t)g * rows->nb[1] + (size_t)t * rows->nb[2];
        put(step, (uint8_t *)node->data + block * bytes, slots[t] % LANES,
            (const float *)(const void *)row, scratch);
    }
}

const qn_cpu_kernel qn__cpu_kernel_kv_store = {
    .supports = supports,
    .prepare = prepare,
    .count = count,
    .run = run,
};
