/*
 * bench_table.c: results as a Markdown table, CSV, JSON, JSON lines or SQL. Names and order of the
 * columns are those of llama-bench, so that its readers work; share_of_peak is our own.
 */
#include <math.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/json.h"

enum { MAX_FIELDS = 48, VALUE_ROOM = 160 };

void bench_test_name(const bench_setting *s, char *out, size_t room)
{
    char prompt[32] = "", gen[32] = "", depth[32] = "", sequences[32] = "";
    if (s->n_prompt > 0) {
        snprintf(prompt, sizeof prompt, "pp%d", s->n_prompt);
    }
    if (s->n_gen > 0) {
        snprintf(gen, sizeof gen, "%stg%d", s->n_prompt > 0 ? "+" : "", s->n_gen);
    }
    if (s->n_seq > 1) {
        snprintf(sequences, sizeof sequences, " x %d", s->n_seq);
    }
    if (s->n_depth > 0) {
        snprintf(depth, sizeof depth, " @ d%d", s->n_depth);
    }
    snprintf(out, room, "%s%s%s%s", prompt, gen, sequences, depth);
}

static double tokens_of(const bench_setting *s)
{
    return (double)s->n_seq * (double)(s->n_prompt + s->n_gen);
}

static void spread(const double *values, int32_t n, double *average, double *deviation)
{
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += values[i];
    }
    *average = n > 0 ? sum / n : 0;
    for (int32_t i = 0; i < n; i++) {
        squares += (values[i] - *average) * (values[i] - *average);
    }
    *deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

/* Average and sample deviation of the tokens a second. */
static void speed_of(const bench_result *r, double *average, double *deviation)
{
    double tokens = tokens_of(&r->setting), speeds[256];
    int32_t n = r->n_samples < 256 ? r->n_samples : 256;
    for (int32_t i = 0; i < n; i++) {
        speeds[i] = tokens * 1e9 / r->samples_ns[i];
    }
    spread(speeds, n, average, deviation);
}

/* ---- Rows of named values ---- */

typedef enum field_kind { FIELD_TEXT, FIELD_INTEGER, FIELD_REAL, FIELD_BOOL } field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    char value[VALUE_ROOM];
} field;

typedef struct row {
    field fields[MAX_FIELDS];
    size_t n;
} row;

static void add(row *r, const char *name, field_kind kind, const char *format, ...) QN_PRINTF(4, 5);
static void add(row *r, const char *name, field_kind kind, const char *format, ...)
{
    if (r->n == MAX_FIELDS) {
        return;
    }
    field *f = &r->fields[r->n++];
    f->name = name;
    f->kind = kind;
    va_list list;
    va_start(list, format);
    vsnprintf(f->value, sizeof f->value, format, list);
    va_end(list);
}

static void add_places(row *r, const bench_setting *s)
{
    add(r, "n_batch", FIELD_INTEGER, "%d", s->n_batch);
    add(r, "n_ubatch", FIELD_INTEGER, "%d", s->n_ubatch);
    add(r, "n_threads", FIELD_INTEGER, "%d", s->n_threads);
    add(r, "cpu_mask", FIELD_TEXT, "0x0");
    add(r, "cpu_strict", FIELD_BOOL, "false");
    add(r, "poll", FIELD_INTEGER, "50");
    add(r, "type_k", FIELD_TEXT, "%s", s->type_k);
    add(r, "type_v", FIELD_TEXT, "%s", s->type_v);
    add(r, "n_gpu_layers", FIELD_INTEGER, "0");
    add(r, "n_cpu_moe", FIELD_INTEGER, "0");
    add(r, "split_mode", FIELD_TEXT, "layer");
    add(r, "main_gpu", FIELD_INTEGER, "0");
    add(r, "no_kv_offload", FIELD_BOOL, "false");
    add(r, "flash_attn", FIELD_TEXT, "on");
    add(r, "devices", FIELD_TEXT, "auto");
    add(r, "tensor_split", FIELD_TEXT, "0.00");
    add(r, "tensor_buft_overrides", FIELD_TEXT, "none");
}

static row make_row(const bench_table *table, const bench_result *result)
{
    const bench_setting *s = &result->setting;
    row r = {.n = 0};
    double ns, ns_deviation, ts, ts_deviation;
    spread(result->samples_ns, result->n_samples, &ns, &ns_deviation);
    speed_of(result, &ts, &ts_deviation);
    add(&r, "build_commit", FIELD_TEXT, "%s", qn_version());
    add(&r, "build_number", FIELD_INTEGER, "0");
    add(&r, "cpu_info", FIELD_TEXT, "%s", result->cpu);
    add(&r, "gpu_info", FIELD_TEXT, "%s", "");
    add(&r, "backends", FIELD_TEXT, "CPU");
    add(&r, "model_filename", FIELD_TEXT, "%s", s->model);
    add(&r, "model_type", FIELD_TEXT, "%s", qn_model_description(result->model));
    add(&r, "model_size", FIELD_INTEGER, "%llu",
        (unsigned long long)qn_model_n_bytes(result->model));
    add(&r, "model_n_params", FIELD_INTEGER, "%llu",
        (unsigned long long)qn_model_n_params(result->model));
    add_places(&r, s);
    add(&r, "load_mode", FIELD_TEXT, "%s", table->options->common.load_mode);
    add(&r, "lazy_mode", FIELD_TEXT, "off");
    add(&r, "embeddings", FIELD_BOOL, "false");
    add(&r, "no_op_offload", FIELD_INTEGER, "0");
    add(&r, "no_host", FIELD_BOOL, "false");
    add(&r, "fit_target", FIELD_INTEGER, "0");
    add(&r, "fit_min_ctx", FIELD_INTEGER, "0");
    add(&r, "n_prompt", FIELD_INTEGER, "%d", s->n_prompt);
    add(&r, "n_gen", FIELD_INTEGER, "%d", s->n_gen);
    add(&r, "n_depth", FIELD_INTEGER, "%d", s->n_depth);
    add(&r, "test_time", FIELD_TEXT, "%s", result->time);
    add(&r, "avg_ns", FIELD_INTEGER, "%.0f", ns);
    add(&r, "stddev_ns", FIELD_INTEGER, "%.0f", ns_deviation);
    add(&r, "avg_ts", FIELD_REAL, "%.6f", ts);
    add(&r, "stddev_ts", FIELD_REAL, "%.6f", ts_deviation);
    add(&r, "n_seq", FIELD_INTEGER, "%d", s->n_seq);
    return r;
}

/* ---- Formats ---- */

/* Text between quotes, with the quote doubled. */
static void put_quoted(FILE *out, const char *text, char quote)
{
    fputc(quote, out);
    for (; *text; text++) {
        if (*text == quote) {
            fputc(quote, out);
        }
        fputc(*text, out);
    }
    fputc(quote, out);
}

static void print_csv(const bench_table *table, const row *r)
{
    for (size_t i = 0; table->n_rows == 0 && i < r->n; i++) {
        fprintf(table->out, "%s%s", i > 0 ? "," : "", r->fields[i].name);
    }
    fputs(table->n_rows == 0 ? "\n" : "", table->out);
    for (size_t i = 0; i < r->n; i++) {
        fputs(i > 0 ? "," : "", table->out);
        put_quoted(table->out, r->fields[i].value, '"');
    }
    fputc('\n', table->out);
}

static void print_sql(const bench_table *table, const row *r)
{
    static const char *const types[] = {"TEXT", "INTEGER", "REAL", "INTEGER"};
    if (table->n_rows == 0) {
        fprintf(table->out, "CREATE TABLE IF NOT EXISTS llama_bench (\n");
        for (size_t i = 0; i < r->n; i++) {
            fprintf(table->out, "  %s %s%s\n", r->fields[i].name, types[r->fields[i].kind],
                    i + 1 < r->n ? "," : "");
        }
        fprintf(table->out, ");\n");
    }
    fprintf(table->out, "INSERT INTO llama_bench (");
    for (size_t i = 0; i < r->n; i++) {
        fprintf(table->out, "%s%s", i > 0 ? ", " : "", r->fields[i].name);
    }
    fprintf(table->out, ") VALUES (");
    for (size_t i = 0; i < r->n; i++) {
        const field *f = &r->fields[i];
        fputs(i > 0 ? ", " : "", table->out);
        put_quoted(table->out,
                   f->kind != FIELD_BOOL           ? f->value
                   : strcmp(f->value, "true") == 0 ? "1"
                                                   : "0",
                   '\'');
    }
    fprintf(table->out, ");\n");
}

static void json_samples(cli_json *j, const bench_result *result)
{
    double tokens = tokens_of(&result->setting);
    cli_json_key(j, "samples_ns");
    cli_json_open(j, '[');
    for (int32_t i = 0; i < result->n_samples; i++) {
        cli_json_i64(j, (int64_t)result->samples_ns[i]);
    }
    cli_json_close(j, ']');
    cli_json_key(j, "samples_ts");
    cli_json_open(j, '[');
    for (int32_t i = 0; i < result->n_samples; i++) {
        cli_json_number(j, tokens * 1e9 / result->samples_ns[i], 8);
    }
    cli_json_close(j, ']');
    if (result->share_of_peak >= 0) {
        cli_json_key(j, "share_of_peak");
        cli_json_number(j, result->share_of_peak, 4);
    }
}

static void print_json(const bench_table *table, const row *r, const bench_result *result)
{
    cli_json json = {.out = table->out, .compact = strcmp(table->format, "jsonl") == 0};
    if (!json.compact) {
        fputs(table->n_rows > 0 ? ",\n" : "", table->out);
    }
    cli_json_open(&json, '{');
    for (size_t i = 0; i < r->n; i++) {
        const field *f = &r->fields[i];
        cli_json_key(&json, f->name);
        if (f->kind == FIELD_TEXT) {
            cli_json_text(&json, f->value);
        } else { /* numbers and booleans stand as they are written */
            fputs(f->value, table->out);
            json.keyed = false;
        }
    }
    json_samples(&json, result);
    cli_json_close(&json, '}');
}

/* ---- Markdown ---- */

typedef struct column {
    const char *name;
    int width; /* negative: left-aligned */
    bool shown;
} column;

enum { COLUMN_TEST = 10, COLUMN_SPEED = 11, N_COLUMNS = 12 };

static bool is_default(const cli_ints *list, int32_t value)
{
    return list->count == 1 && list->items[0] == value;
}

static bool is_f16(const cli_texts *list)
{
    return list->count == 1 && strcmp(list->items[0], "f16") == 0;
}

static void choose_columns(const bench_options *o, column columns[N_COLUMNS])
{
    const column all[N_COLUMNS] = {
        {"model", -30, true},
        {"size", 10, true},
        {"params", 10, true},
        {"backend", -10, true},
        {"threads", 7, true},
        {"n_batch", 7, !is_default(&o->n_batch, 2048)},
        {"n_ubatch", 8, !is_default(&o->n_ubatch, 512)},
        {"type_k", 6, !is_f16(&o->type_k)},
        {"type_v", 6, !is_f16(&o->type_v)},
        {"n_seq", 5, !is_default(&o->n_seq, 1)},
        {"test", 15, true},
        {"t/s", 20, true},
    };
    memcpy(columns, all, sizeof all);
}

static void print_cell(FILE *out, int width, const char *text)
{
    int extra = strstr(text, "\xC2\xB1") ? 1 : 0; /* the sign ± is two bytes wide */
    if (width < 0) {
        fprintf(out, " %-*s |", -width, text);
    } else {
        fprintf(out, " %*s |", width + extra, text);
    }
}

static void print_markdown_head(const bench_table *table, const column columns[N_COLUMNS])
{
    fputc('|', table->out);
    for (int i = 0; i < N_COLUMNS; i++) {
        if (columns[i].shown) {
            print_cell(table->out, columns[i].width, columns[i].name);
        }
    }
    fputs("\n|", table->out);
    for (int i = 0; i < N_COLUMNS; i++) {
        int width = columns[i].width < 0 ? -columns[i].width : columns[i].width - 1;
        for (int c = 0; columns[i].shown && c < width; c++) {
            fputs(c == 0 ? " -" : "-", table->out);
        }
        if (columns[i].shown) {
            fputs(columns[i].width < 0 ? " |" : ": |", table->out);
        }
    }
    fputc('\n', table->out);
}

static void print_markdown(const bench_table *table, const bench_result *result)
{
    column columns[N_COLUMNS];
    char cells[N_COLUMNS][VALUE_ROOM];
    const bench_setting *s = &result->setting;
    const double gib = 1024.0 * 1024.0 * 1024.0;
    double bytes = (double)qn_model_n_bytes(result->model);
    double params = (double)qn_model_n_params(result->model);
    double average, deviation;
    speed_of(result, &average, &deviation);
    choose_columns(table->options, columns);
    if (table->n_rows == 0) {
        print_markdown_head(table, columns);
    }
    snprintf(cells[0], VALUE_ROOM, "%s", qn_model_description(result->model));
    snprintf(cells[1], VALUE_ROOM, bytes < gib ? "%.2f MiB" : "%.2f GiB",
             bytes < gib ? bytes * 1024 / gib : bytes / gib);
    snprintf(cells[2], VALUE_ROOM, params < 1e9 ? "%.2f M" : "%.2f B",
             params < 1e9 ? params * 1e-6 : params * 1e-9);
    snprintf(cells[3], VALUE_ROOM, "CPU");
    snprintf(cells[4], VALUE_ROOM, "%d", s->n_threads);
    snprintf(cells[5], VALUE_ROOM, "%d", s->n_batch);
    snprintf(cells[6], VALUE_ROOM, "%d", s->n_ubatch);
    snprintf(cells[7], VALUE_ROOM, "%s", s->type_k);
    snprintf(cells[8], VALUE_ROOM, "%s", s->type_v);
    snprintf(cells[9], VALUE_ROOM, "%d", s->n_seq);
    bench_test_name(s, cells[COLUMN_TEST], VALUE_ROOM);
    snprintf(cells[COLUMN_SPEED], VALUE_ROOM, "%.2f \xC2\xB1 %.2f", average, deviation);
    fputc('|', table->out);
    for (int i = 0; i < N_COLUMNS; i++) {
        if (columns[i].shown) {
            print_cell(table->out, columns[i].width, cells[i]);
        }
    }
    fputc('\n', table->out);
}

/* ---- The table ---- */

void bench_table_begin(bench_table *table)
{
    if (strcmp(table->format, "json") == 0) {
        fputs("[\n", table->out);
    }
}

void bench_table_row(bench_table *table, const bench_result *result)
{
    if (strcmp(table->format, "none") == 0) {
        return;
    }
    if (strcmp(table->format, "md") == 0) {
        print_markdown(table, result);
    } else {
        row r = make_row(table, result);
        if (strcmp(table->format, "csv") == 0) {
            print_csv(table, &r);
        } else if (strcmp(table->format, "sql") == 0) {
            print_sql(table, &r);
        } else {
            print_json(table, &r, result);
        }
    }
    table->n_rows++;
    fflush(table->out);
}

void bench_table_end(bench_table *table)
{
    if (strcmp(table->format, "json") == 0) {
        fputs("]\n", table->out);
    } else if (strcmp(table->format, "md") == 0) {
        fprintf(table->out, "\nbuild: %s (0)\n", qn_version());
    }
}
