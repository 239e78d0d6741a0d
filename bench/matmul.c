/*
 * matmul.c: how fast the matrix products are, and what share of the machine's limits that is.
 *
 *   bench_matmul [-t THREADS] [-k K] [-r ROWS] [-i ISA] [-y TYPE] [-c COLUMNS] [-s SECONDS]
 *
 * Read bandwidth is the sum over a block of 1 GiB by all threads; a multiply peak is a loop of the
 * instructions that the type is multiplied with, in registers. Weights are as large as needed to
 * come from memory (several matrices in turn, 256 MiB and more); activations are quantized before.
 */
#define _POSIX_C_SOURCE 200809L /* getopt */

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/matmul.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MAX_THREADS = 64, MAX_COLS = 512, TILE_COLS = 128, TASK_GROUPS = 8 };

typedef struct options {
    int threads;
    int64_t k, rows, cols; /* cols 0: several */
    const char *isa, *type;
    double seconds;
} options;

/* Threads ----------------------------------------------------------------------------------------
 */

typedef struct work {
    void (*run)(void *user, int64_t task);
    void *user;
    int64_t n_tasks;
    atomic_int_least64_t next;
} work;

static void *worker(void *user)
{
    work *w = user;
    for (;;) {
        const int64_t task = atomic_fetch_add(&w->next, 1);
        if (task >= w->n_tasks) {
            return NULL;
        }
        w->run(w->user, task);
    }
}

/* Seconds for all tasks on n threads. */
static double run_tasks(int threads, void (*run)(void *, int64_t), void *user, int64_t n_tasks)
{
    pthread_t thread[MAX_THREADS];
    work w = {.run = run, .user = user, .n_tasks = n_tasks};
    const uint64_t start = qn__clock_ns();
    for (int i = 1; i < threads; i++) {
        if (pthread_create(&thread[i], NULL, worker, &w) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            exit(1);
        }
    }
    worker(&w);
    for (int i = 1; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    return (double)(qn__clock_ns() - start) * 1e-9;
}

/* Limits -----------------------------------------------------------------------------------------
 */

typedef enum peak_kind { PEAK_U4, PEAK_S8, PEAK_F32, PEAK_COUNT } peak_kind;

static const char *const peak_names[PEAK_COUNT] = {
    "unsigned levels x int8",
    "signed bytes x int8",
    "fma, F32",
};

enum { PEAK_ROUNDS = 1000000, PEAK_CHAINS = 8 };

#if defined(__x86_64__)
#define TARGET_AVX2 __attribute__((target("avx2,fma")))

/* Keeps a value in a register and unknown to the compiler. */
#define OPAQUE(x) __asm__ volatile("" : "+x"(x))

TARGET_AVX2 static void peak_avx2_u4(void)
{
    __m256i sum[PEAK_CHAINS] = {0}, w = _mm256_set1_epi8(7), x = _mm256_set1_epi8(-3);
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 8
        for (int c = 0; c < PEAK_CHAINS; c++) {
            OPAQUE(x);
            sum[c] = _mm256_add_epi16(sum[c], _mm256_maddubs_epi16(w, x));
        }
    }
    for (int c = 0; c < PEAK_CHAINS; c++) {
        OPAQUE(sum[c]);
    }
}

TARGET_AVX2 static void peak_avx2_s8(void)
{
    __m256i sum[PEAK_CHAINS] = {0}, w = _mm256_set1_epi8(7), x = _mm256_set1_epi8(-3);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 8
        for (int c = 0; c < PEAK_CHAINS; c++) {
            OPAQUE(x);
            const __m256i pairs = _mm256_maddubs_epi16(w, _mm256_sign_epi8(x, w));
            sum[c] = _mm256_add_epi32(sum[c], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int c = 0; c < PEAK_CHAINS; c++) {
        OPAQUE(sum[c]);
    }
}

TARGET_AVX2 static void peak_avx2_f32(void)
{
    __m256 sum[PEAK_CHAINS + 2] = {0}, w = _mm256_set1_ps(0.5F), x = _mm256_set1_ps(1.5F);
    for (int i = 0; i < PEAK_ROUNDS; i++) {
#pragma GCC unroll 10
        for (int c = 0; c < PEAK_CHAINS + 2; c++) {
            OPAQUE(x);
            sum[c] = _mm256_fmadd_ps(w, x, sum[c]);
        }
    }
    for (int c = 0; c < PEAK_CHAINS + 2; c++) {
        OPAQUE(sum[c]);
    }
}
#endif

typedef struct isa_row {
    const char *name;
    const qn_cpu_matmul_fns *fns;
    void (*peak[PEAK_COUNT])(void);
    double ops[PEAK_COUNT]; /* of one call: two for each product */
} isa_row;

#define OPS(chains, products) (2.0 * (products) * (chains)*PEAK_ROUNDS)

static const isa_row isas[] = {
    {"scalar", &qn__matmul_scalar, {NULL}, {0}},
#if defined(__x86_64__)
    {"avx2",
     &qn__matmul_avx2,
     {peak_avx2_u4, peak_avx2_s8, peak_avx2_f32},
     {OPS(PEAK_CHAINS, 32), OPS(PEAK_CHAINS, 32), OPS(PEAK_CHAINS + 2, 8)}},
#endif
};

static const isa_row *find_isa(const char *name)
{
    const isa_row *best = &isas[0];
#if defined(__x86_64__)
    const bool has[] = {true, __builtin_cpu_supports("avx2") != 0,
                        __builtin_cpu_supports("avx512vnni") != 0};
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (has[i] && (!name || strcmp(name, isas[i].name) == 0)) {
            best = &isas[i];
        }
    }
#endif
    return best;
}

static void run_peak(void *user, int64_t task)
{
    void (*const *fn)(void) = user;
    (void)task;
    (*fn)();
}

static double measure_peak(const isa_row *isa, peak_kind kind, int threads)
{
    void (*fn)(void) = isa->peak[kind];
    double best = 0;
    for (int i = 0; fn && i < 5; i++) {
        const double s = run_tasks(threads, run_peak, &fn, threads * 4);
        const double rate = isa->ops[kind] * threads * 4 / s;
        best = rate > best ? rate : best;
    }
    return best;
}

typedef struct read_case {
    const uint64_t *data;
    size_t words; /* of a task */
    atomic_uint_least64_t sink;
} read_case;

static void run_read(void *user, int64_t task)
{
    read_case *c = user;
    const uint64_t *p = c->data + (size_t)task * c->words;
    uint64_t s[16] = {0};
    for (size_t i = 0; i < c->words; i += 16) {
        for (int j = 0; j < 16; j++) {
            s[j] |= p[i + (size_t)j];
        }
    }
    for (int j = 1; j < 16; j++) {
        s[0] |= s[j];
    }
    atomic_fetch_or(&c->sink, s[0]);
}

static double measure_bandwidth(int threads)
{
    const size_t bytes = (size_t)1 << 30, part = (size_t)1 << 20;
    void *block = qn__block_alloc(bytes);
    if (!block) {
        return 0;
    }
    memset(block, 1, bytes);
    read_case c = {.data = block, .words = part / 8};
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const double s = run_tasks(threads, run_read, &c, (int64_t)(bytes / part));
        best = (double)bytes / s > best ? (double)bytes / s : best;
    }
    qn__block_free(block, bytes);
    return best;
}

/* Products ---------------------------------------------------------------------------------------
 */

typedef struct product {
    const isa_row *isa;
    qn_type type;
    int64_t k, rows, cols, matrices; /* matrices one behind the other */
    uint8_t *weights;
    size_t matrix_bytes;
    const void *x[MAX_COLS];
    float *y[MAX_COLS];
    size_t x_stride;
} product;

static int64_t tasks_of_matrix(const product *p)
{
    return qn__div_up(qn__div_up(p->rows, QN_PACK_ROWS), TASK_GROUPS);
}

/* A task: TASK_GROUPS groups of one matrix with all columns, as op_matmul.c cuts them. */
static void run_product(void *user, int64_t task)
{
    const product *p = user;
    const int64_t matrix = task / tasks_of_matrix(p) % p->matrices;
    const int64_t group = task % tasks_of_matrix(p) * TASK_GROUPS, row = group * QN_PACK_ROWS;
    for (int64_t c = 0; c < p->cols; c += TILE_COLS) {
        float *y[TILE_COLS];
        const int64_t cols = qn__min_i64(p->cols - c, TILE_COLS);
        for (int64_t i = 0; i < cols; i++) {
            y[i] = p->y[c + i] + row;
        }
        const qn_matmul_tile t = {.weights = p->weights + (size_t)matrix * p->matrix_bytes +
                                             (size_t)group * qn__pack_group_bytes(p->type, p->k),
                                  .k = p->k,
                                  .n_rows = qn__min_i64(TASK_GROUPS * QN_PACK_ROWS, p->rows - row),
                                  .n_cols = cols,
                                  .x = p->x + c,
                                  .x_stride = p->x_stride,
                                  .y = y};
        p->isa->fns->mul[p->type](&t);
    }
}

static bool product_make(product *p, size_t *bytes)
{
    const int64_t ne[4] = {p->k, p->rows, 1, 1};
    p->matrix_bytes = qn__cpu_pack_bytes(p->type, ne);
    p->matrices = qn__max_i64(1, (int64_t)(((size_t)256 << 20) / p->matrix_bytes));
    *bytes = p->matrix_bytes * (size_t)p->matrices;
    p->weights = qn__block_alloc(*bytes);
    if (!p->weights || p->matrix_bytes == 0) {
        return false;
    }
    uint32_t state = 1;
    for (size_t i = 0; i < *bytes; i++) {
        state = state * 1664525U + 1013904223U;
        p->weights[i] = (uint8_t)(state >> 26); /* half floats below 2 */
    }
    return true;
}

static peak_kind peak_of(qn_type type)
{
    switch (type) {
    case QN_TYPE_F32:
    case QN_TYPE_F16:
    case QN_TYPE_BF16:
        return PEAK_F32;
    case QN_TYPE_Q8_0:
    case QN_TYPE_IQ4_NL:
    case QN_TYPE_IQ4_XS:
        return PEAK_S8;
    default:
        return PEAK_U4;
    }
}

static void measure(product *p, const options *o, double bandwidth, const double *peak)
{
    const bool blocks = qn_type_get_info(p->type)->quantized;
    const int64_t n_chunks = qn__div_up(p->k, QN_PACK_CHUNK);
    const size_t act_bytes = (size_t)(n_chunks * p->cols) * sizeof(qn_act_chunk);
    const size_t in_bytes = (size_t)(p->k * p->cols) * sizeof(float);
    qn_act_chunk *chunks = qn__block_alloc(act_bytes);
    float *in = qn__block_alloc(in_bytes);
    float *out = qn__block_alloc((size_t)(p->rows * p->cols) * sizeof(float));
    if (!chunks || !in || !out) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < p->k * p->cols; i++) {
        in[i] = (float)(i * 7919 % 255 - 127);
    }
    for (int64_t c = 0; c < p->cols; c++) {
        p->x[c] = blocks ? (const void *)(chunks + c) : (const void *)(in + c * p->k);
        p->y[c] = out + c * p->rows;
        p->x_stride = blocks ? (size_t)p->cols * sizeof *chunks : QN_PACK_CHUNK * sizeof(float);
        if (blocks) {
            p->isa->fns->quantize(in + c * p->k, p->k, qn__act_form(p->type), chunks + c,
                                  p->x_stride);
        }
    }
    int64_t n_tasks = tasks_of_matrix(p) * (p->cols == 1 ? p->matrices : 1);
    double s = run_tasks(o->threads, run_product, p, n_tasks), best = 1e30;
    n_tasks = qn__max_i64(n_tasks, (int64_t)((double)n_tasks * o->seconds / 5 / s));
    for (int i = 0; i < 5; i++) {
        s = run_tasks(o->threads, run_product, p, n_tasks);
        best = s < best ? s : best;
    }
    const double matrices = (double)n_tasks / (double)tasks_of_matrix(p);
    const double bytes = (double)p->matrix_bytes * matrices / best;
    const double ops = 2.0 * (double)(p->k * p->rows * p->cols) * matrices / best;
    const double limit = peak[peak_of(p->type)];
    printf("%-8s %5" PRId64 " %8.1f %6.1f%% %9.1f %6.1f%%\n", qn_type_get_info(p->type)->name,
           p->cols, bytes * 1e-9, 100 * bytes / bandwidth, ops * 1e-9,
           limit > 0 ? 100 * ops / limit : 0);
    fflush(stdout);
    qn__block_free(chunks, act_bytes);
    qn__block_free(in, in_bytes);
    qn__block_free(out, (size_t)(p->rows * p->cols) * sizeof(float));
}

static bool parse(int argc, char **argv, options *o)
{
    int c;
    while ((c = getopt(argc, argv, "t:k:r:i:y:c:s:")) != -1) {
        switch (c) {
        case 't':
            o->threads = atoi(optarg);
            break;
        case 'k':
            o->k = atoll(optarg);
            break;
        case 'r':
            o->rows = atoll(optarg);
            break;
        case 'c':
            o->cols = atoll(optarg);
            break;
        case 'i':
            o->isa = optarg;
            break;
        case 'y':
            o->type = optarg;
            break;
        case 's':
            o->seconds = atof(optarg);
            break;
        default:
            return false;
        }
    }
    return o->threads >= 1 && o->threads <= MAX_THREADS && o->k > 0 && o->rows > 0 &&
           o->cols >= 0 && o->cols <= MAX_COLS;
}

int main(int argc, char **argv)
{
    static const int64_t columns[] = {1, 2, 4, 8, 32, 128};
    options o = {.threads = 2, .k = 2048, .rows = 2048, .seconds = 0.5};
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_matmul [-t THREADS] [-k K] [-r ROWS] [-i ISA] [-y TYPE] "
                        "[-c COLUMNS] [-s SECONDS]\n");
        return 2;
    }
    const isa_row *isa = find_isa(o.isa);
    const double bandwidth = measure_bandwidth(o.threads);
    double peak[PEAK_COUNT];
    printf("%s, %d threads, K %" PRId64 ", %" PRId64 " rows\nread: %.1f GB/s\n", isa->name,
           o.threads, o.k, o.rows, bandwidth * 1e-9);
    for (int i = 0; i < PEAK_COUNT; i++) {
        peak[i] = measure_peak(isa, (peak_kind)i, o.threads);
        printf("peak, %s: %.0f GOP/s\n", peak_names[i], peak[i] * 1e-9);
    }
    printf("type     columns   GB/s   share     GOP/s   share\n");
    for (int type = 0; type < QN_TYPE_COUNT; type++) {
        const qn_type_info *info = qn_type_get_info(type);
        product p = {.isa = isa, .type = (qn_type)type, .k = o.k, .rows = o.rows};
        size_t bytes;
        if (!info || !isa->fns->mul[type] || (o.type && strcmp(o.type, info->name) != 0) ||
            o.k % info->block_values != 0 || !product_make(&p, &bytes)) {
            continue;
        }
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            if (o.cols == 0 || c == 0) {
                p.cols = o.cols ? o.cols : columns[c];
                measure(&p, &o, bandwidth, peak);
            }
        }
        qn__block_free(p.weights, bytes);
    }
    return 0;
}
