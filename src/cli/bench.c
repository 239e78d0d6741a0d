/*
 * bench.c: "quern bench": how fast prompts are read and text is made, for all combinations of the
 * settings that are given, and what share of the machine's measured limits that is.
 *
 * A test: a fresh context, one warm-up, then repetitions of (clear, fill to the depth untimed, time
 * the rest). Tokens are random ids; neither tokenizing nor sampling is in the times.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <quern/vocab.h>

#include "cli/commands.h"
#include "cli/support.h"

enum { MAX_REPETITIONS = 256, MAX_THREAD_COUNT = 512, BLOCK = 32, MAX_TESTS = 1 << 20 };

/* All that stays between tests. */
typedef struct bench {
    const bench_options *o;
    qn_log log;
    qn_model *model;
    qn_device *device;
    int32_t device_threads;
    bench_weight weight;
    bench_table tables[2];
    uint32_t random; /* state of the token ids */
    int32_t n_done, n_tests;
    char *shares; /* the lines below a Markdown table */
    size_t shares_size;
} bench;

/* ---- One repetition ---- */

static int32_t random_token(bench *b)
{
    b->random = b->random * 1664525U + 1013904223U;
    return (int32_t)((b->random >> 8) % (uint32_t)qn_model_n_vocab(b->model));
}

/* Arrays of a batch, n_batch entries each. */
typedef struct arrays {
    int32_t *tokens, *pos, *seq, *n_seq;
    int8_t *output;
} arrays;

static bool arrays_make(arrays *a, int32_t n)
{
    size_t count = (size_t)n;
    *a = (arrays){.tokens = calloc(count, sizeof *a->tokens),
                  .pos = calloc(count, sizeof *a->pos),
                  .seq = calloc(count, sizeof *a->seq),
                  .n_seq = calloc(count, sizeof *a->n_seq),
                  .output = calloc(count, sizeof *a->output)};
    return a->tokens && a->pos && a->seq && a->n_seq && a->output;
}

static void arrays_free(arrays *a)
{
    free(a->tokens);
    free(a->pos);
    free(a->seq);
    free(a->n_seq);
    free(a->output);
}

static qn_status decode(qn_context *ctx, const arrays *a, int32_t n, qn_error *err)
{
    qn_batch batch = {.n_tokens = n,
                      .tokens = a->tokens,
                      .pos = a->pos,
                      .n_seq_id = a->n_seq,
                      .seq_id = a->seq,
                      .output = a->output};
    return qn_context_decode(ctx, &batch, err);
}

/* `n` tokens for each sequence, from position `first` on; the last of each has an output row. */
static qn_status read_prompts(bench *b, qn_context *ctx, const arrays *a, const bench_setting *s,
                              int32_t first, int32_t n, qn_error *err)
{
    int32_t bos = qn_vocab_special(qn_model_vocab(b->model), QN_ROLE_BOS);
    int32_t capacity = s->n_batch, filled = 0;
    qn_status status = QN_OK;
    for (int32_t seq = 0; seq < s->n_seq && status == QN_OK; seq++) {
        for (int32_t i = 0; i < n && status == QN_OK; i++) {
            int32_t pos = first + i;
            bool begins = pos == 0 && bos >= 0 && bos < qn_model_n_vocab(b->model);
            a->tokens[filled] = begins ? bos : random_token(b);
            a->pos[filled] = pos;
            a->seq[filled] = seq;
            a->n_seq[filled] = 1;
            a->output[filled] = i == n - 1;
            filled++;
            if (filled == capacity) {
                status = decode(ctx, a, filled, err);
                filled = 0;
            }
        }
    }
    return status == QN_OK && filled > 0 ? decode(ctx, a, filled, err) : status;
}

/* Steps of one token a sequence. */
static qn_status make_tokens(bench *b, qn_context *ctx, const arrays *a, const bench_setting *s,
                             int32_t first, int32_t n, qn_error *err)
{
    qn_status status = QN_OK;
    for (int32_t i = 0; i < n && status == QN_OK; i++) {
        for (int32_t seq = 0; seq < s->n_seq; seq++) {
            a->tokens[seq] = random_token(b);
            a->pos[seq] = first + i;
            a->seq[seq] = seq;
            a->n_seq[seq] = 1;
            a->output[seq] = 1;
        }
        status = decode(ctx, a, s->n_seq, err);
    }
    return status;
}

static qn_status repeat(bench *b, qn_context *ctx, const arrays *a, const bench_setting *s,
                        double *ns, qn_error *err)
{
    qn_context_clear(ctx);
    qn_status status = read_prompts(b, ctx, a, s, 0, s->n_depth, err);
    double start = cli_now_ms();
    if (status == QN_OK) {
        status = read_prompts(b, ctx, a, s, s->n_depth, s->n_prompt, err);
    }
    if (status == QN_OK) {
        status = make_tokens(b, ctx, a, s, s->n_depth + s->n_prompt, s->n_gen, err);
    }
    *ns = (cli_now_ms() - start) * 1e6;
    return status;
}

/* ---- One test ---- */

static bool open_device(bench *b, int32_t n_threads)
{
    if (b->device && b->device_threads == n_threads) {
        return true;
    }
    qn_device_free(b->device);
    b->device = NULL;
    cli_common common = b->o->common;
    common.n_threads = common.n_threads_batch = n_threads;
    b->device_threads = n_threads;
    return cli_open_device(&common, &b->log, &b->device);
}

/* Adds half of a measured speed; what cannot be measured makes it -infinity. */
static void add_speed(bench *b, qn_measure what, double *sum)
{
    qn_error err = {0};
    double speed = 0;
    if (qn_device_measure(b->device, what, b->device_threads, 0, &speed, &err) != QN_OK) {
        speed = -INFINITY;
    }
    *sum += speed / 2;
}

/* Called before a test and after it, since other guests of a machine make its speed drift. */
static void measure_limits(bench *b, bench_result *r)
{
    if (b->o->limits) {
        add_speed(b, QN_MEASURE_READ, &r->read_speed);
        add_speed(b, b->weight.peak, &r->peak_speed);
    }
}

/* Share of the limit, or -1 where it is not known. */
static double share_of_limit(bench *b, const bench_result *r, double position_bytes)
{
    double ns = 0;
    for (int32_t i = 0; i < r->n_samples; i++) {
        ns += r->samples_ns[i];
    }
    if (r->read_speed <= 0 || r->peak_speed <= 0 || ns <= 0) {
        return -1;
    }
    return bench_time_limit(&b->weight, &r->setting, position_bytes, r->read_speed, r->peak_speed) *
           r->n_samples / ns;
}

static void remember_share(bench *b, const bench_result *r)
{
    char name[64], line[256];
    if (r->share_of_peak < 0) {
        return;
    }
    bench_test_name(&r->setting, name, sizeof name);
    int n = snprintf(line, sizeof line,
                     "%s, %d threads: %.0f %% of the limit (read %.1f GB/s, %s %.0f GOP/s)\n", name,
                     b->device_threads, 100 * r->share_of_peak, r->read_speed * 1e-9,
                     qn_measure_name(b->weight.peak), r->peak_speed * 1e-9);
    char *more = realloc(b->shares, b->shares_size + (size_t)n + 1);
    if (more) {
        memcpy(more + b->shares_size, line, (size_t)n + 1);
        b->shares = more;
        b->shares_size += (size_t)n;
    }
}

static bool make_context(bench *b, const bench_setting *s, qn_context **out)
{
    qn_error err = {0};
    cli_common common = b->o->common;
    common.n_batch = s->n_batch;
    common.n_ubatch = s->n_ubatch;
    common.type_k = s->type_k;
    common.type_v = s->type_v;
    common.n_threads = common.n_threads_batch = s->n_threads;
    qn_context_options options = cli_context_options(&common, &b->log);
    int64_t positions = (int64_t)s->n_prompt + s->n_gen + s->n_depth;
    positions = (positions + BLOCK) / BLOCK * BLOCK * s->n_seq; /* whole blocks a sequence */
    if (positions > INT32_MAX) {
        cli_error("a context of %lld positions is too large", (long long)positions);
        return false;
    }
    options.device = b->device;
    options.n_ctx = (int32_t)positions;
    options.n_seq_max = s->n_seq;
    options.n_outputs_max = s->n_seq;
    if (qn_context_make(b->model, &options, out, &err) != QN_OK) {
        cli_error("%s", err.message);
        return false;
    }
    return true;
}

static void describe(bench_result *r)
{
    qn_device_info info;
    time_t now = time(NULL);
    struct tm utc;
    if (qn_device_get_info(0, &info, NULL) == QN_OK) {
        snprintf(r->cpu, sizeof r->cpu, "%s", info.description);
    }
    if (gmtime_r(&now, &utc)) {
        strftime(r->time, sizeof r->time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
}

/* The repetitions of one test in a context that is made. */
static bool time_test(bench *b, qn_context *ctx, const bench_setting *wanted)
{
    bench_setting s = *wanted;
    s.n_batch = qn_context_get_options(ctx).n_batch; /* it may have been cut */
    if (s.n_batch < s.n_seq) {
        cli_error("%d sequences need a batch of as many tokens", s.n_seq);
        return false;
    }
    double samples[MAX_REPETITIONS];
    bench_result r = {.setting = *wanted, .model = b->model, .samples_ns = samples};
    arrays a;
    qn_error err = {0};
    bool ok = arrays_make(&a, s.n_batch);
    qn_status status = QN_OK;
    describe(&r);
    if (ok && b->o->common.warmup) {
        bench_setting once = s;
        once.n_depth = 0;
        once.n_gen = s.n_gen > 0 ? 1 : 0;
        status = repeat(b, ctx, &a, &once, &samples[0], &err);
    }
    measure_limits(b, &r);
    for (int32_t i = 0; ok && status == QN_OK && i < b->o->repetitions; i++) {
        status = repeat(b, ctx, &a, &s, &samples[i], &err);
        r.n_samples = i + 1;
        if (b->o->progress) {
            char name[64];
            bench_test_name(wanted, name, sizeof name);
            fprintf(stderr, "test %d of %d: %s, run %d of %d\n", b->n_done + 1, b->n_tests, name,
                    i + 1, b->o->repetitions);
        }
    }
    if (!ok || status != QN_OK) {
        cli_error("%s", ok ? err.message : "out of memory");
        arrays_free(&a);
        return false;
    }
    qn_memory_report memory = qn_context_memory(ctx);
    double position_bytes =
        memory.n_positions > 0 ? (double)memory.store_bytes / memory.n_positions : 0;
    measure_limits(b, &r);
    r.share_of_peak = share_of_limit(b, &r, position_bytes);
    for (int t = 0; t < 2; t++) {
        bench_table_row(&b->tables[t], &r);
    }
    remember_share(b, &r);
    arrays_free(&a);
    return true;
}

static bool run_test(bench *b, const bench_setting *s)
{
    qn_context *ctx = NULL;
    if (cli_interrupted() || !open_device(b, s->n_threads)) {
        return false;
    }
    b->weight = bench_weigh(b->model, qn_device_isa(b->device));
    if (b->o->delay > 0 && b->n_done > 0) {
        struct timespec pause = {.tv_sec = b->o->delay};
        nanosleep(&pause, NULL);
    }
    bool ok = make_context(b, s, &ctx) && time_test(b, ctx, s);
    qn_context_free(ctx);
    b->n_done++;
    return ok;
}

/* ---- All tests ---- */

/* "512,128"; the parser of flags does not know pairs. */
static bool parse_pair(const char *text, int32_t *prompt, int32_t *gen)
{
    char rest;
    return sscanf(text, "%d,%d%c", prompt, gen, &rest) == 2 && *prompt > 0 && *gen > 0;
}

static size_t count_shapes(const bench_options *o)
{
    return o->n_prompt.count + o->n_gen.count + o->prompt_gen.count;
}

/* Shape `i` of the prompts, generations and pairs that are asked for; false where it is nothing. */
static bool shape(const bench_options *o, size_t i, bench_setting *s)
{
    s->n_prompt = s->n_gen = 0;
    if (i < o->n_prompt.count) {
        s->n_prompt = o->n_prompt.items[i];
        return s->n_prompt > 0;
    }
    i -= o->n_prompt.count;
    if (i < o->n_gen.count) {
        s->n_gen = o->n_gen.items[i];
        return s->n_gen > 0;
    }
    i -= o->n_gen.count;
    return parse_pair(o->prompt_gen.items[i], &s->n_prompt, &s->n_gen);
}

/* The setting with number `i` of all combinations for one model: a number with a digit a list, the
 * shape the fastest one. */
static bool combination(const bench_options *o, size_t i, bench_setting *s)
{
    size_t shapes = count_shapes(o);
    size_t which_shape = i % shapes;
    i /= shapes;
    s->n_depth = o->n_depth.items[i % o->n_depth.count];
    i /= o->n_depth.count;
    s->n_seq = o->n_seq.items[i % o->n_seq.count];
    i /= o->n_seq.count;
    s->n_threads = o->n_threads.items[i % o->n_threads.count];
    i /= o->n_threads.count;
    s->type_v = o->type_v.items[i % o->type_v.count];
    i /= o->type_v.count;
    s->type_k = o->type_k.items[i % o->type_k.count];
    i /= o->type_k.count;
    s->n_ubatch = o->n_ubatch.items[i % o->n_ubatch.count];
    i /= o->n_ubatch.count;
    s->n_batch = o->n_batch.items[i % o->n_batch.count];
    return shape(o, which_shape, s);
}

static size_t count_combinations(const bench_options *o)
{
    const size_t counts[] = {count_shapes(o),    o->n_depth.count, o->n_seq.count,
                             o->n_threads.count, o->type_k.count,  o->type_v.count,
                             o->n_ubatch.count,  o->n_batch.count};
    size_t product = 1;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (product > MAX_TESTS) {
            return product;
        }
        product *= counts[i];
    }
    return product;
}

static bool run_all(bench *b, size_t n)
{
    bool ok = true;
    for (size_t m = 0; m < b->o->models.count && ok; m++) {
        cli_common common = b->o->common;
        common.model = b->o->models.items[m];
        ok = cli_load_model(&common, &b->log, &b->model);
        for (size_t i = 0; i < n && ok; i++) {
            bench_setting s = {.model = common.model};
            if (combination(b->o, i, &s)) {
                ok = run_test(b, &s);
            }
        }
        qn_model_free(b->model);
        b->model = NULL;
    }
    return ok;
}

/* Fills in the machine's core count where -t asks for it, and checks what the table cannot. */
static bool settle(bench_options *o, int32_t *cores)
{
    qn_device_info info;
    qn_error err = {0};
    int32_t prompt, gen;
    if (o->models.count == 0) {
        cli_error("--model is required");
        return false;
    }
    if (qn_device_get_info(0, &info, &err) != QN_OK) {
        cli_error("%s", err.message);
        return false;
    }
    *cores = info.n_cores;
    if (o->n_threads.count == 0) {
        o->n_threads = (cli_ints){cores, 1};
    }
    for (size_t i = 0; i < o->prompt_gen.count; i++) {
        if (!parse_pair(o->prompt_gen.items[i], &prompt, &gen)) {
            cli_error("-pg: \"%s\" is no pair of prompt and generation, as 512,128",
                      o->prompt_gen.items[i]);
            return false;
        }
    }
    if (count_combinations(o) > MAX_TESTS) {
        cli_error("more than %d tests", MAX_TESTS);
        return false;
    }
    return true;
}

static int bench_main(const cli_args *args)
{
    bench_options *o = args->options;
    int32_t cores;
    cli_log log_state;
    if (!settle(o, &cores)) {
        return 1;
    }
    bench *b = calloc(1, sizeof *b);
    if (!b || !cli_log_open(&log_state, &o->common, &b->log)) {
        free(b);
        return 1;
    }
    cli_catch_interrupt();
    size_t n = count_combinations(o);
    bench_setting s;
    for (size_t i = 0; i < n; i++) {
        b->n_tests += combination(o, i, &s) ? (int32_t)o->models.count : 0;
    }
    b->o = o;
    b->random = 1;
    b->tables[0] = (bench_table){.options = o, .format = o->output, .out = stdout};
    b->tables[1] = (bench_table){.options = o, .format = o->output_error, .out = stderr};
    for (int t = 0; t < 2; t++) {
        bench_table_begin(&b->tables[t]);
    }
    bool ok = run_all(b, n);
    for (int t = 0; t < 2; t++) {
        bench_table_end(&b->tables[t]);
        if (strcmp(b->tables[t].format, "md") == 0 && b->shares) {
            fprintf(b->tables[t].out, "%s", b->shares);
        }
    }
    qn_device_free(b->device);
    cli_log_close(&log_state);
    free(b->shares);
    free(b);
    return ok ? 0 : cli_interrupted() ? 130 : 1;
}

#define AT(field) offsetof(bench_options, field)

static const cli_flag flags[] = {
    {.names = "-m, --model",
     .arg = "FILE",
     .kind = CLI_TEXTS,
     .env = "MODEL",
     .help = "model file; may be given several times",
     .offset = AT(models)},
    {.names = "-p, --n-prompt",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 0,
     .max = 1 << 24,
     .fallback = "512",
     .help = "prompts of so many tokens",
     .offset = AT(n_prompt)},
    {.names = "-n, --n-gen",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 0,
     .max = 1 << 24,
     .fallback = "128",
     .help = "generations of so many tokens",
     .offset = AT(n_gen)},
    {.names = "-pg",
     .arg = "PP,TG",
     .kind = CLI_TEXTS,
     .help = "a prompt and a generation after it, timed together",
     .offset = AT(prompt_gen)},
    {.names = "-d, --n-depth",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 0,
     .max = 1 << 24,
     .fallback = "0",
     .help = "tokens that the context holds before the test",
     .offset = AT(n_depth)},
    {.names = "-np, --parallel",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 1,
     .max = QN_MAX_SEQUENCES,
     .fallback = "1",
     .help = "sequences at once; speeds count the tokens of all",
     .offset = AT(n_seq)},
    {.names = "-b, --batch-size",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 1,
     .max = 1 << 24,
     .fallback = "2048",
     .help = "most tokens of a batch",
     .offset = AT(n_batch)},
    {.names = "-ub, --ubatch-size",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 1,
     .max = 1 << 24,
     .fallback = "512",
     .help = "most tokens computed at once",
     .offset = AT(n_ubatch)},
    {.names = "-ctk, --cache-type-k",
     .arg = "LIST",
     .kind = CLI_CHOICES,
     .fallback = "f16",
     .choices = "f32 f16 bf16 q8_0",
     .help = "how keys are stored",
     .offset = AT(type_k)},
    {.names = "-ctv, --cache-type-v",
     .arg = "LIST",
     .kind = CLI_CHOICES,
     .fallback = "f16",
     .choices = "f32 f16 bf16 q8_0",
     .help = "how values are stored",
     .offset = AT(type_v)},
    {.names = "-t, --threads",
     .arg = "LIST",
     .kind = CLI_INTS,
     .min = 1,
     .max = MAX_THREAD_COUNT,
     .help = "threads (default: as many as there are physical cores)",
     .offset = AT(n_threads)},
    {.names = "--isa",
     .arg = "NAME",
     .kind = CLI_TEXT,
     .help = "instruction set: scalar, avx2, avx512, neon, neon-dotprod (default: the best that "
             "the machine has)",
     .offset = AT(common.isa)},
    {.names = "-lm, --load-mode",
     .arg = "MODE",
     .kind = CLI_CHOICE,
     .fallback = "auto",
     .choices = "auto none mmap mlock mmap+mlock",
     .help = "how weights are read",
     .offset = AT(common.load_mode)},
    {.names = "--mmap",
     .off = "--no-mmap",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .help = "map the file",
     .offset = AT(common.mmap)},
    {.names = "--warmup",
     .off = "--no-warmup",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .help = "run each test once for nothing before it is timed",
     .offset = AT(common.warmup)},
    {.names = "-r, --repetitions",
     .arg = "N",
     .kind = CLI_INT,
     .min = 1,
     .max = MAX_REPETITIONS,
     .fallback = "5",
     .help = "times that each test is run",
     .offset = AT(repetitions)},
    {.names = "--prio",
     .arg = "N",
     .kind = CLI_INT,
     .min = -1,
     .max = 3,
     .fallback = "0",
     .help = "priority of the threads",
     .offset = AT(common.priority)},
    {.names = "--poll",
     .arg = "N",
     .kind = CLI_INT,
     .min = 0,
     .max = 100,
     .fallback = "50",
     .help = "how long an idle thread waits awake before it sleeps",
     .offset = AT(common.poll)},
    {.names = "--delay",
     .arg = "SECONDS",
     .kind = CLI_INT,
     .min = 0,
     .max = 3600,
     .fallback = "0",
     .help = "pause between tests",
     .offset = AT(delay)},
    {.names = "-o, --output",
     .arg = "FORM",
     .kind = CLI_CHOICE,
     .fallback = "md",
     .choices = "md csv json jsonl sql none",
     .help = "form of the results on standard output",
     .offset = AT(output)},
    {.names = "-oe, --output-err",
     .arg = "FORM",
     .kind = CLI_CHOICE,
     .fallback = "none",
     .choices = "md csv json jsonl sql none",
     .help = "the same on standard error",
     .offset = AT(output_error)},
    {.names = "--progress",
     .kind = CLI_SWITCH,
     .help = "tell about each run on standard error",
     .offset = AT(progress)},
    {.names = "--limits",
     .off = "--no-limits",
     .kind = CLI_SWITCH,
     .fallback = "true",
     .help = "measure the machine and say what share of its limit each test reaches",
     .offset = AT(limits)},
};

const cli_command cli_command_bench = {
    .name = "bench",
    .peer = "llama-bench",
    .usage = "-m FILE [flags]",
    .summary = "Measures the speed of prompts and generation.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof flags[0],
    .options_size = sizeof(bench_options),
    .main = bench_main,
};
