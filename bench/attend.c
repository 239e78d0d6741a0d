/*
 * attend.c: speed of attention over a paged store, for each cell type: one token over a long
 * context, and a prompt. Counts 4 d operations for a key of a query (two fused multiply-adds of d)
 * and the bytes of K and V that a pass must read; the limits are measured in the same run.
 *
 *   bench_attend [-d HEAD_SIZE] [-h HEADS] [-k KV_HEADS] [-c CONTEXT] [-p PROMPT] [-i ISA] [-t
 * THREADS] [-y TYPE]
 */
#define _POSIX_C_SOURCE 200809L /* getopt */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/attend.h"
#include "device/cpu/measure.h"
#include "device/kv_layout.h"

enum { MIN_NS = 300000000, N_SOURCES = 6 };

typedef struct setting {
    int64_t d, heads, kv_heads, context, prompt, threads;
    const char *isa, *type;
} setting;

/* A step, and where each worker works. */
typedef struct bench {
    qn_pool *pool;
    qn_cpu_step step;
    int phase;
    uint8_t *scratch;
    size_t scratch_bytes; /* of a worker */
    double read, peak;    /* limits, a second */
} bench;

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

static void run_task(void *user, int64_t task, int32_t worker)
{
    bench *b = user;
    qn__cpu_kernel_attend.run(&b->step, b->phase, task,
                              b->scratch + (size_t)worker * b->scratch_bytes);
}

/* One thread is measured by its own time, which other work on the machine disturbs less. */
static uint64_t clock_of(const bench *b)
{
    struct timespec t;
    if (b->step.n_threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) {
        return qn__clock_ns();
    }
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t run_once(bench *b)
{
    uint64_t start = clock_of(b);
    for (b->phase = 0; b->phase < b->step.n_phases; b->phase++) {
        int64_t n = qn__cpu_kernel_attend.count(&b->step, b->phase);
        qn__pool_for(b->pool, n, run_task, b);
    }
    return clock_of(b) - start;
}

/* Seconds of the fastest of some runs. */
static double best_time(bench *b)
{
    uint64_t best = UINT64_MAX, sum = 0;
    run_once(b);
    while (sum < MIN_NS) {
        uint64_t taken = run_once(b);
        best = taken < best ? taken : best;
        sum += taken;
    }
    return (double)best * 1e-9;
}

/* Cells with values of about -1 .. 1. */
static void fill(qn_type type, uint8_t *block, int64_t d, int64_t n_blocks)
{
    size_t bytes = qn__kv_block_bytes(type, d);
    float row[1024];
    for (int64_t b = 0; b < n_blocks; b++) {
        for (int place = 0; place < QN_KV_BLOCK; place++) {
            for (int64_t i = 0; i < d; i++) {
                row[i] = (float)((b * 31 + place * 7 + i * 13) % 101) / 50.0F - 1.0F;
            }
            if (b < 8) {
                qn__kv_put_k(type, block + (size_t)b * bytes, d, place, row);
            }
        }
        if (b >= 8) {
            memcpy(block + (size_t)b * bytes, block + (size_t)(b % 8) * bytes, bytes);
        }
    }
}

/* n tokens, the last of which is at the end of a sequence of `length` positions. */
static void measure(bench *b, const setting *s, const qn_cpu_isa *isa, qn_type type, int64_t length,
                    int64_t n)
{
    int64_t blocks = (length + QN_KV_BLOCK - 1) / QN_KV_BLOCK, n_q = n * s->heads * s->d;
    size_t bytes = qn__kv_block_bytes(type, s->d) * (size_t)(s->kv_heads * blocks);
    void *k = qn__block_alloc(bytes), *v = qn__block_alloc(bytes);
    float *q = calloc((size_t)n_q, sizeof *q), *out = calloc((size_t)n_q, sizeof *out);
    int32_t *tables = calloc((size_t)blocks, 4), *masks = calloc((size_t)blocks, 4);
    int32_t *rows = calloc((size_t)n, 16);
    for (int64_t i = 0; i < n_q; i++) {
        q[i] = (float)(i * 7919 % 1000) / 500.0F - 1.0F;
    }
    fill(type, k, s->d, s->kv_heads * blocks);
    fill(type, v, s->d, s->kv_heads * blocks);
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
    qn_node nodes[N_SOURCES] = {make_node(QN_TYPE_F32, s->d, s->heads, n, 1, q),
                                make_node(type, QN_KV_BLOCK, s->d, s->kv_heads, blocks, k),
                                make_node(type, s->d, QN_KV_BLOCK, s->kv_heads, blocks, v),
                                make_node(QN_TYPE_I32, blocks, 1, 1, 1, tables),
                                make_node(QN_TYPE_I32, blocks, 1, 1, 1, masks),
                                make_node(QN_TYPE_I32, 4, n, 1, 1, rows)};
    qn_node node = make_node(QN_TYPE_F32, s->d, s->heads, n, 1, out);
    node.params.attend =
        (qn_attend_params){.scale = 0.1F, .causal = true, .n_kv_heads = (int32_t)s->kv_heads};
    for (int i = 0; i < N_SOURCES; i++) {
        node.src[i] = &nodes[i];
    }
    b->step = (qn_cpu_step){.node = &node,
                            .kernel = &qn__cpu_kernel_attend,
                            .isa = isa,
                            .n_threads = (int32_t)s->threads,
                            .n_phases = 1};
    qn__cpu_kernel_attend.prepare(&b->step);
    b->scratch_bytes = qn__align_up(b->step.scratch_bytes, 64);
    size_t scratch_bytes = b->scratch_bytes * (size_t)s->threads + 64;
    b->step.shared = qn__block_alloc(b->step.shared_bytes + 64);
    b->scratch = qn__block_alloc(scratch_bytes);
    double seconds = best_time(b);
    double ops = 4.0 * (double)(s->d * s->heads * pairs) / seconds;
    double read = 2.0 * (double)bytes / seconds;
    printf("%-7s %-5s %5lld tokens, %6lld positions: %8.3f ms, %7.1f GFLOP/s %3.0f %%, %6.2f GB/s "
           "%3.0f %%\n",
           isa->name, qn_type_get_info(type)->name, (long long)n, (long long)length, seconds * 1e3,
           ops * 1e-9, 100 * ops / b->peak, read * 1e-9, 100 * read / b->read);
    qn__block_free(b->step.shared, b->step.shared_bytes + 64);
    qn__block_free(b->scratch, scratch_bytes);
    qn__block_free(k, bytes);
    qn__block_free(v, bytes);
    free(q);
    free(out);
    free(tables);
    free(masks);
    free(rows);
}

static bool parse(int argc, char **argv, setting *s)
{
    int c;
    while ((c = getopt(argc, argv, "d:h:k:c:p:i:t:y:")) != -1) {
        int64_t n = optarg ? atoll(optarg) : 0;
        switch (c) {
        case 'd':
            s->d = n;
            break;
        case 'h':
            s->heads = n;
            break;
        case 'k':
            s->kv_heads = n;
            break;
        case 'c':
            s->context = n;
            break;
        case 'p':
            s->prompt = n;
            break;
        case 't':
            s->threads = n;
            break;
        case 'i':
            s->isa = optarg;
            break;
        case 'y':
            s->type = optarg;
            break;
        default:
            return false;
        }
    }
    return s->d > 0 && s->d <= 1024 && s->kv_heads > 0 && s->heads % s->kv_heads == 0 &&
           s->context > 0 && s->prompt >= 0 && s->threads >= 1 && s->threads <= 64;
}

int main(int argc, char **argv)
{
    static const qn_type types[] = {QN_TYPE_F32, QN_TYPE_F16, QN_TYPE_BF16, QN_TYPE_Q8_0};
    setting s = {
        .d = 128, .heads = 32, .kv_heads = 8, .context = 8192, .prompt = 512, .threads = 1};
    bench b = {0};
    qn_error err;
    if (!parse(argc, argv, &s)) {
        fprintf(stderr, "usage: bench_attend [-d HEAD_SIZE] [-h HEADS] [-k KV_HEADS] [-c CONTEXT] "
                        "[-p PROMPT] [-i ISA] [-t THREADS] [-y TYPE]\n");
        return 2;
    }
    const qn_cpu_isa *isa = qn__cpu_isa_find(s.isa);
    qn_thread_options threads = {.n_threads = (int32_t)s.threads, .poll = 50};
    if (!isa || qn__pool_make(&threads, NULL, &b.pool, &err) != QN_OK) {
        fprintf(stderr, "no such instruction set, or no threads\n");
        return 1;
    }
    if (qn__cpu_measure(b.pool, isa, QN_MEASURE_READ, threads.n_threads, 0.3, &b.read, &err) !=
            QN_OK ||
        qn__cpu_measure(b.pool, isa, QN_MEASURE_F32, threads.n_threads, 0.3, &b.peak, &err) !=
            QN_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%d threads, read %.1f GB/s, f32 %.0f GFLOP/s\n", (int)s.threads, b.read * 1e-9,
           b.peak * 1e-9);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        if (s.type && strcmp(s.type, qn_type_get_info(types[t])->name) != 0) {
            continue;
        }
        measure(&b, &s, isa, types[t], s.context, 1);
        if (s.prompt > 0) {
            measure(&b, &s, isa, types[t], s.prompt, s.prompt);
        }
    }
    qn__pool_free(b.pool);
    return 0;
}
