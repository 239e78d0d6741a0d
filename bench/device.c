/*
 * device.c: what the CPU device costs beside the products: the machine's own limits, a barrier of
 * the thread pool, the row functions of each instruction set. Usage: bench_device [threads]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "device/cpu/pool.h"
#include "device/cpu/rows.h"
#include "device/device.h"

#define N       4096 /* values of a row: in the first-level cache */
#define REPEATS 2000

static void print_limits(qn_device *device)
{
    for (qn_measure m = 0; m < QN_MEASURE_COUNT; m++) {
        double rate;
        qn_error err;
        if (qn_device_measure(device, m, 0, 0.3, &rate, &err) == QN_OK) {
            printf("%-10s %8.1f G/s\n", qn_measure_name(m), rate * 1e-9);
        } else {
            printf("%-10s %s\n", qn_measure_name(m), err.message);
        }
    }
}

/* A run of jobs with one empty task a worker: what a barrier costs. */
typedef struct jobs {
    int64_t left, n_tasks;
} jobs;

static int64_t next_job(void *user, int32_t worker)
{
    jobs *j = user;
    (void)worker;
    return j->left-- > 0 ? j->n_tasks : 0;
}

static void empty_task(void *user, int64_t task, int32_t worker)
{
    (void)user;
    (void)task;
    (void)worker;
}

static void print_barrier(int32_t n_threads)
{
    qn_pool *pool = NULL;
    qn_error err;
    const qn_thread_options options = {.n_threads = n_threads, .poll = 50};
    if (qn__pool_make(&options, &(qn_log){0}, &pool, &err) != QN_OK) {
        printf("pool: %s\n", err.message);
        return;
    }
    jobs j = {.left = 20000, .n_tasks = n_threads};
    const qn_pool_work work = {.next = next_job, .task = empty_task, .user = &j};
    uint64_t begin = qn__clock_ns();
    qn__pool_run(pool, n_threads, &work);
    printf("barrier of %d threads: %.2f us\n", (int)n_threads,
           (double)(qn__clock_ns() - begin) * 1e-3 / 20000.0);
    qn__pool_free(pool);
}

/* Nanoseconds a value, the best of a few rounds. */
#define TIME(label, call)                                                                          \
    do {                                                                                           \
        double best = 1e9;                                                                         \
        for (int round = 0; round < 5; round++) {                                                  \
            uint64_t begin = qn__clock_ns();                                                       \
            for (int i = 0; i < repeats; i++) {                                                    \
                call;                                                                              \
            }                                                                                      \
            double ns = (double)(qn__clock_ns() - begin) / repeats / N;                            \
            best = ns < best ? ns : best;                                                          \
        }                                                                                          \
        printf("  %-10s %7.3f ns/value\n", label, best);                                           \
    } while (0)

static void print_rows(const qn_cpu_isa *isa, float *x, float *y, float *z)
{
    const qn_cpu_row_fns *f = isa->rows;
    const int repeats = f == &qn__cpu_rows_scalar ? REPEATS / 20 : REPEATS;
    printf("%s, rows of %d\n", isa->name, N);
    TIME("add", f->binary[0](z, x, y, N));
    TIME("rms norm", f->norm[QN_NORM_RMS](z, x, N, 1e-5F, y, NULL));
    TIME("soft_max", f->soft_max(z, x, N));
    TIME("swiglu", f->glu[QN_GLU_SWIGLU](z, x, y, N, 0.0F));
    TIME("geglu", f->glu[QN_GLU_GEGLU](z, x, y, N, 0.0F));
    TIME("rope norm", f->rope_norm(z, x, y, N / 2));
    TIME("rope neox", f->rope_neox(z, x, y, N / 2));
}

int main(int argc, char **argv)
{
    int status = EXIT_FAILURE;
    qn_device *device = NULL;
    qn_error err;
    qn_device_options options = qn_device_defaults();
    options.threads.n_threads = argc > 1 ? atoi(argv[1]) : 0;
    float *rows = qn__calloc(3 * N, sizeof *rows);
    if (!rows || qn_device_open(0, &options, &device, &err) != QN_OK) {
        fprintf(stderr, "%s\n", rows ? err.message : "out of memory");
        goto done;
    }
    for (int i = 0; i < 2 * N; i++) {
        rows[i] = (float)(i * 37 % 1000) / 250.0F - 2.0F;
    }
    print_limits(device);
    print_barrier(qn_device_n_threads(device));
    for (int32_t i = 0; qn__cpu_isa_at(i); i++) {
        print_rows(qn__cpu_isa_at(i), rows, rows + N, rows + 2 * (size_t)N);
    }
    status = EXIT_SUCCESS;
done:
    qn_device_free(device);
    free(rows);
    return status;
}
