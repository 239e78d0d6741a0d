/*
 * attend.c: speed of attention over a paged store on one thread, each instruction set and cell
 * type: one token over a long context, and a prompt. Counts 4 d operations for a key of a query
 * (two fused multiply-adds of d) and the bytes of K and V that a pass must read.
 *
 *   bench_attend [head size] [heads] [KV heads] [context] [prompt]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/attend.h"
#include "device/kv_layout.h"

enum { MIN_NS = 300000000 };

typedef struct setting {
    int64_t d, heads, kv_heads, context, prompt;
} setting;

static qn_node make_node(qn_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                         void *data)
{
    qn_node node = {.type = type, .ne = {ne0, ne1, ne2, ne3}, .data = data};
    const qn_type_info *info = qn_type_get_info(type);
    node.nb[0] = info->block_bytes;
    node.nb[1] = (size_t)ne0 / info->block_values * info->block_bytes;
    node.nb[2] = node.nb[1] * (size_t)ne1;
    node.nb[3] = node.nb[2] * (size_t)ne2;
    return node;
}

static void run_once(qn_cpu_step *step, void *scratch)
{
    for (int phase = 0; phase < step->n_phases; phase++) {
        int64_t n = qn__cpu_kernel_attend.count(step, phase);
        for (int64_t task = 0; task < n; task++) {
            qn__cpu_kernel_attend.run(step, phase, task, scratch);
        }
    }
}

/* n tokens, the last of which is at the end of a sequence of `length` positions. */
static void measure(const setting *s, const qn_cpu_isa *isa, qn_type type, int64_t length,
                    int64_t n)
{
    int64_t blocks = (length + 31) / 32;
    size_t bytes = qn__kv_block_bytes(type, s->d) * (size_t)(s->kv_heads * blocks);
    void *k = qn__block_alloc(bytes), *v = qn__block_alloc(bytes);
    float *q = calloc((size_t)(n * s->heads * s->d), sizeof *q);
    float *out = calloc((size_t)(n * s->heads * s->d), sizeof *out);
    int32_t *tables = calloc((size_t)blocks, 4), *masks = calloc((size_t)blocks, 4);
    int32_t *rows = calloc((size_t)n, 16);
    for (int64_t i = 0; i < n * s->heads * s->d; i++) {
        q[i] = (float)(i * 7919 % 1000) / 500.0F - 1.0F;
    }
    memset(k, 0x21, bytes);
    memset(v, 0x21, bytes);
    int64_t pairs = 0;
    for (int64_t i = 0; i < blocks; i++) {
        tables[i] = (int32_t)i;
        masks[i] = -1;
    }
    for (int64_t i = 0; i < n; i++) {
        rows[4 * i + 1] = (int32_t)blocks;
        rows[4 * i + 3] = (int32_t)(length - n + i);
        pairs += length - n + i + 1;
    }
    qn_node nodes[] = {make_node(QN_TYPE_F32, s->d, s->heads, n, 1, q),
                       make_node(type, 32, s->d, s->kv_heads, blocks, k),
                       make_node(type, s->d, 32, s->kv_heads, blocks, v),
                       make_node(QN_TYPE_I32, blocks, 1, 1, 1, tables),
                       make_node(QN_TYPE_I32, blocks, 1, 1, 1, masks),
                       make_node(QN_TYPE_I32, 4, n, 1, 1, rows)};
    qn_node node = make_node(QN_TYPE_F32, s->d, s->heads, n, 1, out);
    node.params.attend =
        (qn_attend_params){.scale = 0.1F, .causal = true, .n_kv_heads = (int32_t)s->kv_heads};
    for (int i = 0; i < 6; i++) {
        node.src[i] = &nodes[i];
    }
    qn_cpu_step step = {
        .node = &node, .kernel = &qn__cpu_kernel_attend, .isa = isa, .n_threads = 1, .n_phases = 1};
    qn__cpu_kernel_attend.prepare(&step);
    step.shared = qn__block_alloc(step.shared_bytes + 64);
    void *scratch = qn__block_alloc(step.scratch_bytes + 64);
    run_once(&step, scratch);
    uint64_t start = qn__clock_ns(), taken;
    int turns = 0;
    do {
        run_once(&step, scratch);
        turns++;
        taken = qn__clock_ns() - start;
    } while (taken < MIN_NS);
    double seconds = (double)taken * 1e-9 / turns;
    printf("%-7s %-5s %5lld tokens, %6lld positions: %8.3f ms, %7.1f GFLOP/s, %6.2f GB/s\n",
           isa->name, qn_type_get_info(type)->name, (long long)n, (long long)length, seconds * 1e3,
           4e-9 * (double)(s->d * s->heads * pairs) / seconds, 2e-9 * (double)bytes / seconds);
    qn__block_free(step.shared, step.shared_bytes + 64);
    qn__block_free(scratch, step.scratch_bytes + 64);
    qn__block_free(k, bytes);
    qn__block_free(v, bytes);
    free(q);
    free(out);
    free(tables);
    free(masks);
    free(rows);
}

int main(int argc, char **argv)
{
    int64_t numbers[] = {128, 32, 8, 8192, 512};
    for (int i = 1; i < argc && i < 6; i++) {
        numbers[i - 1] = atoll(argv[i]);
    }
    setting s = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    static const qn_type types[] = {QN_TYPE_F32, QN_TYPE_F16, QN_TYPE_BF16, QN_TYPE_Q8_0};
    const qn_cpu_isa *isa;
    for (int32_t i = 1; (isa = qn__cpu_isa_at(i)); i++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            measure(&s, isa, types[t], s.context, 1);
            measure(&s, isa, types[t], s.prompt, s.prompt);
        }
    }
    return 0;
}
