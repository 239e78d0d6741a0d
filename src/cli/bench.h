/* bench.h: what the files of "quern bench" share: bench.c runs the tests, bench_limits.c says how
 * fast they could be, bench_table.c prints the results. */
#ifndef QUERN_CLI_BENCH_H
#define QUERN_CLI_BENCH_H

#include <stdio.h>

#include <quern/context.h>
#include <quern/device.h>
#include <quern/model.h>

#include "cli/args.h"

typedef struct bench_options {
    cli_common common;
    cli_texts models;
    cli_ints n_prompt, n_gen, n_depth, n_batch, n_ubatch, n_threads, n_seq;
    cli_texts prompt_gen; /* "pp,tg" */
    cli_texts type_k, type_v;
    int32_t repetitions, delay;
    const char *output, *output_error;
    bool progress, limits;
} bench_options;

/* What is tested. */
typedef struct bench_setting {
    const char *model;
    int32_t n_prompt, n_gen, n_depth; /* tokens a sequence */
    int32_t n_batch, n_ubatch, n_threads, n_seq;
    const char *type_k, *type_v;
} bench_setting;

/* What a model weighs for one token: what must be read and multiplied. */
typedef struct bench_weight {
    double bytes, operations;               /* of all layers */
    double output_bytes, output_operations; /* of the output matrix */
    qn_measure peak;                        /* what multiplies its main type */
} bench_weight;

typedef struct bench_result {
    bench_setting setting;
    const qn_model *model;
    char cpu[128];
    double *samples_ns; /* one a repetition */
    int32_t n_samples;
    char time[32];                 /* when it began, ISO 8601, UTC */
    double read_speed, peak_speed; /* of the machine: bytes, operations a second */
    double share_of_peak;          /* 0 .. 1; below 0: not known */
} bench_result;

bench_weight bench_weigh(const qn_model *model, const char *isa);

/* The shortest time in nanoseconds that the machine needs for a test, by its measured speeds.
 * position_bytes: of keys and values. */
double bench_time_limit(const bench_weight *weight, const bench_setting *setting,
                        double position_bytes, double read_speed, double peak_speed);

/* A place where results go: a format and a file. */
typedef struct bench_table {
    const bench_options *options;
    const char *format; /* "md", "csv", "json", "jsonl", "sql"; "none": nothing */
    FILE *out;
    int32_t n_rows;
} bench_table;

void bench_table_begin(bench_table *table);
void bench_table_row(bench_table *table, const bench_result *result);
void bench_table_end(bench_table *table);

/* "pp512", "tg128 @ d1024", … */
void bench_test_name(const bench_setting *setting, char *out, size_t room);

#endif
