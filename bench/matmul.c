/*
 * matmul.c: how fast the matrix products are, and what share of the machine's limits that is.
 *
 *   bench_matmul [-t THREADS] [-k K] [-r ROWS] [-i ISA] [-y TYPE] [-c COLUMNS] [-s SECONDS] [-u]
 * [-w]
 *
 * A figure is the best of many short runs within SECONDS. Limits are measured in the same way
 * (device/cpu/measure.h): reading memory, and the instructions that suit the type. Weights come
 * from memory where one column meets them (several matrices in turn, 256 MiB), and from the cache
 * with -w, which takes one matrix again and again; activations are quantized before. -u counts the
 * time that the threads compute instead of the clock on the wall: for machines with other work.
 */
#define _POSIX_C_SOURCE 200809L /* getopt, clock_gettime */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "device/cpu/matmul.h"
#include "device/cpu/measure.h"

enum {
    MAX_THREADS = 64,
    MAX_COLS = 512,
    TILE_COLS = 128, /* columns and bytes of a task, as op_matmul.c has them */
    MANY_COLS = 32,
    TASK_BYTES_FEW = 1 << 20,
    TASK_BYTES_MANY = 128 << 10,
    BEST_OF = 5, /* runs at least */
    PEAK_ROUNDS = 50000
};

#define RUN_SECONDS  1e-3 /* of a run, at least */
#define MEMORY_BYTES ((size_t)256 << 20)

typedef struct options {
    int threads;
    int64_t k, rows, cols; /* cols 0: several */
    const char *isa, *type;
    double seconds;
    bool cpu_time, warm;
} options;

/* Seconds of a clock that stands still while the threads do not run, where that is asked for. */
static double seconds_now(const options *o)
{
    struct timespec t;
    if (!o->cpu_time) {
        return (double)qn__clock_ns() * 1e-9;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec + (double)t.tv_nsec * 1e-9) / o->threads;
}

/* n_tasks tasks on the pool. */
typedef struct work {
    qn_pool *pool;
    void (*task)(void *user, int64_t task, int32_t worker);
    void *user;
    int64_t n_tasks;
} work;

static double seconds_of(const options *o, const work *w)
{
    const double start = seconds_now(o);
    qn__pool_for(w->pool, w->n_tasks, w->task, w->user);
    return seconds_now(o) - start;
}

/* The best of as many runs as fit. */
static double best_of(const options *o, const work *w)
{
    const uint64_t begin = qn__clock_ns();
    double best = seconds_of(o, w);
    for (int i = 0; i < BEST_OF || (double)(qn__clock_ns() - begin) * 1e-9 < o->seconds; i++) {
        const double s = seconds_of(o, w);
        best = s < best ? s : best;
    }
    return best;
}

/* Limits -----------------------------------------------------------------------------------------
 */

/* The loop whose instructions multiply this type. */
static qn_measure limit_of(const qn_cpu_isa *isa, qn_type type)
{
    if (!qn_type_get_info(type)->quantized) {
        return QN_MEASURE_F32;
    }
    if (strcmp(isa->name, "avx512") == 0) {
        return QN_MEASURE_INT8_DOT;
    }
    const bool is_signed = type == QN_TYPE_Q8_0 || type == QN_TYPE_IQ4_NL || type == QN_TYPE_IQ4_XS;
    return is_signed ? QN_MEASURE_INT8 : QN_MEASURE_INT8_PAIR;
}

/* Memory that is read, a part a task. */
typedef struct reading {
    const uint64_t *words;
    size_t n_words;            /* of a part */
    uint64_t sum[MAX_THREADS]; /* so that what was read is used */
} reading;

static void run_read(void *user, int64_t task, int32_t worker)
{
    reading *r = user;
    uint64_t sum[8] = {0};
    const uint64_t *p = r->words + (size_t)task * r->n_words;
    for (size_t i = 0; i + 8 <= r->n_words; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            sum[j] |= p[i + j];
        }
    }
    r->sum[worker] |= sum[0] | sum[1] | sum[2] | sum[3] | sum[4] | sum[5] | sum[6] | sum[7];
}

static double measure_read(const options *o, qn_pool *pool)
{
    static reading r;
    void *block = qn__block_alloc(MEMORY_BYTES);
    if (!block) {
        return 0;
    }
    memset(block, 1, MEMORY_BYTES); /* pages of their own, not the one zero page */
    r.words = block;
    r.n_words = MEMORY_BYTES / sizeof *r.words / (size_t)o->threads;
    const double s = best_of(o, &(work){pool, run_read, &r, o->threads});
    qn__block_free(block, MEMORY_BYTES);
    return (double)(r.n_words * sizeof *r.words) * o->threads / s;
}

static void run_peak(void *user, int64_t task, int32_t worker)
{
    const qn_cpu_peak *peak = user;
    (void)task;
    (void)worker;
    peak->run(PEAK_ROUNDS);
}

/* Prints what the machine can do; 0 where it cannot. */
static void measure_limits(const options *o, qn_pool *pool, const qn_cpu_isa *isa, double *limit)
{
    for (int i = 0; i < QN_MEASURE_COUNT; i++) {
        qn_cpu_peak peak = isa->measure->peaks[i];
        limit[i] = 0;
        if (i == QN_MEASURE_READ) {
            limit[i] = measure_read(o, pool);
        } else if (peak.run && (!peak.usable || peak.usable())) {
            const work w = {pool, run_peak, &peak, o->threads};
            limit[i] = peak.operations * PEAK_ROUNDS * o->threads / best_of(o, &w);
        }
        if (limit[i] > 0) {
            printf("%-10s %8.1f %s\n", qn_measure_name((qn_measure)i), limit[i] * 1e-9,
                   i == QN_MEASURE_READ ? "GB/s" : "GOP/s");
        }
    }
}

/* Products ---------------------------------------------------------------------------------------
 */

typedef struct product {
    const qn_cpu_isa *isa;
    qn_type type;
    int64_t k, rows, cols, matrices; /* matrices one behind the other */
    uint8_t *weights;
    size_t matrix_bytes;
    const void *x[MAX_COLS];
    float *y[MAX_COLS];
    size_t x_stride;
    uint8_t *scratch; /* [thread][QN_MATMUL_SCRATCH] */
} product;

static int64_t groups_of_task(const product *p)
{
    return qn__div_up(p->cols < MANY_COLS ? TASK_BYTES_FEW : TASK_BYTES_MANY,
                      (int64_t)qn__pack_group_bytes(p->type, p->k));
}

static int64_t tasks_of_matrix(const product *p)
{
    return qn__div_up(qn__div_up(p->rows, QN_PACK_ROWS), groups_of_task(p));
}

/* A task: some groups of one matrix with all columns. */
static void run_product(void *user, int64_t task, int32_t worker)
{
    const product *p = user;
    const int64_t matrix = task / tasks_of_matrix(p) % p->matrices;
    const int64_t groups = groups_of_task(p);
    const int64_t group = task % tasks_of_matrix(p) * groups, row = group * QN_PACK_ROWS;
    for (int64_t c = 0; c < p->cols; c += TILE_COLS) {
        float *y[TILE_COLS];
        const int64_t cols = qn__min_i64(p->cols - c, TILE_COLS);
        for (int64_t i = 0; i < cols; i++) {
            y[i] = p->y[c + i] + row;
        }
        const qn_matmul_tile t = {.weights = p->weights + (size_t)matrix * p->matrix_bytes +
                                             (size_t)group * qn__pack_group_bytes(p->type, p->k),
                                  .k = p->k,
                                  .n_rows = qn__min_i64(groups * QN_PACK_ROWS, p->rows - row),
                                  .n_cols = cols,
                                  .x = p->x + c,
                                  .x_stride = p->x_stride,
                                  .y = y,
                                  .scratch = p->scratch + (size_t)worker * QN_MATMUL_SCRATCH};
        p->isa->matmul->mul[p->type](&t);
    }
}

static bool product_make(product *p, bool warm, size_t *bytes)
{
    const int64_t ne[4] = {p->k, p->rows, 1, 1};
    p->matrix_bytes = qn__cpu_pack_bytes(p->type, ne);
    p->matrices = warm ? 1 : qn__max_i64(1, (int64_t)(MEMORY_BYTES / p->matrix_bytes));
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

/* What `matrices` products in so many seconds come to. */
static void print_row(const product *p, const double *limit, double matrices, double seconds)
{
    const double bytes = (double)p->matrix_bytes * matrices;
    const double ops = 2.0 * (double)(p->k * p->rows * p->cols) * matrices;
    const double most = limit[limit_of(p->isa, p->type)];
    printf("%-8s %5" PRId64 " %8.1f %9.2f %8.1f", qn_type_get_info(p->type)->name, p->cols,
           bytes * 1e-6, ops * 1e-9, bytes / seconds * 1e-9);
    printf(" %6.1f%% %9.1f", 100 * bytes / seconds / limit[QN_MEASURE_READ], ops / seconds * 1e-9);
    printf(most > 0 ? " %6.1f%%\n" : "\n", most > 0 ? 100 * ops / seconds / most : 0);
    fflush(stdout);
}

static void measure(qn_pool *pool, product *p, const options *o, const double *limit)
{
    const bool blocks = qn_type_get_info(p->type)->quantized;
    const int64_t n_chunks = qn__div_up(p->k, QN_PACK_CHUNK);
    const size_t act_bytes = (size_t)(n_chunks * p->cols) * sizeof(qn_act_chunk);
    const size_t chunk_bytes = blocks ? sizeof(qn_act_chunk) : QN_PACK_CHUNK * sizeof(float);
    const size_t in_bytes = (size_t)(n_chunks * QN_PACK_CHUNK * p->cols) * sizeof(float);
    qn_act_chunk *chunks = qn__block_alloc(act_bytes);
    float *in = qn__block_alloc(in_bytes);
    float *out = qn__block_alloc((size_t)(p->rows * p->cols) * sizeof(float));
    const size_t scratch_bytes = (size_t)o->threads * QN_MATMUL_SCRATCH;
    p->scratch = qn__block_alloc(scratch_bytes);
    if (!chunks || !in || !out || !p->scratch) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < n_chunks * QN_PACK_CHUNK * p->cols; i++) {
        in[i] = (float)(i * 7919 % 255 - 127);
    }
    for (int64_t c = 0; c < p->cols; c++) {
        /* [chunk][column], as op_matmul.c has them. */
        p->x[c] = (uint8_t *)(blocks ? (void *)chunks : (void *)in) + (size_t)c * chunk_bytes;
        p->y[c] = out + c * p->rows;
        p->x_stride = (size_t)p->cols * chunk_bytes;
        if (blocks) {
            p->isa->matmul->quantize(in + c * p->k, p->k, qn__act_form(p->type), chunks + c,
                                     p->x_stride);
        }
    }
    work w = {pool, run_product, p, tasks_of_matrix(p) * (p->cols == 1 ? p->matrices : 1)};
    const double once = seconds_of(o, &w);
    if (once < RUN_SECONDS) {
        w.n_tasks *= 1 + (int64_t)(RUN_SECONDS / (once + 1e-6));
    }
    print_row(p, limit, (double)w.n_tasks / (double)tasks_of_matrix(p), best_of(o, &w));
    qn__block_free(chunks, act_bytes);
    qn__block_free(in, in_bytes);
    qn__block_free(p->scratch, scratch_bytes);
    qn__block_free(out, (size_t)(p->rows * p->cols) * sizeof(float));
}

static bool parse(int argc, char **argv, options *o)
{
    int c;
    while ((c = getopt(argc, argv, "t:k:r:i:y:c:s:uw")) != -1) {
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
        case 'u':
            o->cpu_time = true;
            break;
        case 'w':
            o->warm = true;
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
                        "[-c COLUMNS] [-s SECONDS] [-u] [-w]\n");
        return 2;
    }
    const qn_cpu_isa *isa = qn__cpu_isa_find(o.isa);
    qn_thread_options threads = {.poll = 50};
    qn_pool *pool = NULL;
    qn_error err;
    if (!isa) {
        fprintf(stderr, "this machine has no %s\n", o.isa);
        return 1;
    }
    threads.n_threads = o.threads;
    if (qn__pool_make(&threads, NULL, &pool, &err) != QN_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double limit[QN_MEASURE_COUNT];
    printf("%s, %d threads, K %" PRId64 ", %" PRId64 " rows\n", isa->name, o.threads, o.k, o.rows);
    measure_limits(&o, pool, isa, limit);
    printf("type  columns       MB       GOP     GB/s   share     GOP/s   share\n");
    for (int type = 0; type < QN_TYPE_COUNT; type++) {
        const qn_type_info *info = qn_type_get_info(type);
        product p = {.isa = isa, .type = (qn_type)type, .k = o.k, .rows = o.rows};
        size_t bytes;
        if (!info || !isa->matmul->mul[type] || (o.type && strcasecmp(o.type, info->name) != 0) ||
            o.k % info->block_values != 0 || !product_make(&p, o.warm, &bytes)) {
            continue;
        }
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            if (o.cols == 0 || c == 0) {
                p.cols = o.cols ? o.cols : columns[c];
                measure(pool, &p, &o, limit);
            }
        }
        qn__block_free(p.weights, bytes);
    }
    qn__pool_free(pool);
    return 0;
}
