/* test_quantize.c: whole quantization runs over small models made here. */
#define _GNU_SOURCE
#include "support/support.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <quern/gguf.h>
#include <quern/quantize.h>

#include "quant/quant.h"
#include "support/tiny_model.h"

static qn_error err;

/* A fresh model of the kind in the type; the caller removes the file. */
static const char *make_model(qn_test_tiny_kind kind, qn_type type)
{
    const char *path = qn_test_temporary(".gguf");
    qn_test_tiny_write(path, kind, type, 0);
    return path;
}

static qn_gguf *open_model(const char *path)
{
    qn_gguf *g;
    qn_test_ok(qn_gguf_open(&g, path, NULL, &err), err);
    return g;
}

static uint32_t file_type(const qn_gguf *g)
{
    uint32_t value = UINT32_MAX;
    qn_test_ok(qn_gguf_get_u32(g, "general.file_type", &value, &err), err);
    return value;
}

static qn_type type_of(const qn_gguf *g, const char *name)
{
    const qn_gguf_tensor *t = qn_gguf_find_tensor(g, name);
    assert_non_null(t);
    return t->type;
}

/* The tensor's values, to be freed. */
static float *values_of(const qn_gguf *g, const qn_gguf_tensor *t, size_t *count)
{
    size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    uint8_t *bytes = malloc(t->bytes);
    float *y = malloc(n * sizeof *y);
    assert_true(bytes && y);
    qn_test_ok(qn_gguf_read_tensor(g, t, 0, t->bytes, bytes, &err), err);
    qn__quant_get(t->type)->decode(bytes, y, (int64_t)n);
    free(bytes);
    *count = n;
    return y;
}

static void expect_same_file(const char *a, const char *b)
{
    size_t size_a;
    size_t size_b;
    uint8_t *data_a = qn_test_read(a, &size_a);
    uint8_t *data_b = qn_test_read(b, &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(data_a, data_b, size_a);
    free(data_a);
    free(data_b);
}

static void matrices_go_to_the_format_and_the_rest_stays(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32);
    const char *out = qn_test_temporary(".gguf");
    qn_quantize_options options = qn_quantize_defaults();
    options.mix = QN_MIX_Q8_0;
    qn_quantize_result result;
    qn_test_ok(qn_quantize_file(in, out, &options, &result, &err), err);

    qn_gguf *source = open_model(in);
    qn_gguf *target = open_model(out);
    assert_int_equal(file_type(target), 7);
    assert_int_equal(qn_gguf_tensor_count(source), qn_gguf_tensor_count(target));
    assert_int_equal(result.tensors, qn_gguf_tensor_count(source));
    size_t converted = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < qn_gguf_tensor_count(source); i++) {
        const qn_gguf_tensor *s = qn_gguf_tensor_at(source, i);
        const qn_gguf_tensor *t = qn_gguf_find_tensor(target, s->name);
        assert_non_null(t);
        assert_memory_equal(s->ne, t->ne, sizeof s->ne);
        size_t n;
        float *x = values_of(source, s, &n);
        float *y = values_of(target, t, &n);
        bytes += t->bytes;
        if (s->ne[1] == 1) {
            assert_int_equal(t->type, QN_TYPE_F32);
            assert_memory_equal(x, y, n * sizeof *x);
        } else {
            assert_int_equal(t->type, QN_TYPE_Q8_0);
            assert_true(qn_test_nmse(y, x, n) < 1e-4);
            converted++;
        }
        free(x);
        free(y);
    }
    assert_int_equal(result.converted, converted);
    assert_int_equal(result.target_bytes, bytes);
    uint32_t version = 0;
    qn_test_ok(qn_gguf_get_u32(target, "general.quantization_version", &version, &err), err);
    assert_int_equal(version, 2);
    qn_gguf_free(source);
    qn_gguf_free(target);
    unlink(in);
    unlink(out);
}

static void threads_and_slabs_change_nothing(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_F16);
    const char *one = qn_test_temporary(".gguf");
    const char *other = qn_test_temporary(".gguf");
    qn_quantize_options options = qn_quantize_defaults();
    options.threads = 1;
    qn_test_ok(qn_quantize_file(in, one, &options, NULL, &err), err);
    static const struct {
        int threads;
        size_t buffer;
    } cases[] = {{7, 1}, {3, 10000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.threads = cases[i].threads;
        options.buffer_bytes = cases[i].buffer;
        qn_test_ok(qn_quantize_file(in, other, &options, NULL, &err), err);
        expect_same_file(one, other);
    }
    unlink(in);
    unlink(one);
    unlink(other);
}

static void mix_decides_per_tensor(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_BF16);
    const char *out = qn_test_temporary(".gguf");
    qn_quantize_options options = qn_quantize_defaults();
    qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
    qn_gguf *g = open_model(out);
    assert_int_equal(file_type(g), 15);
    assert_int_equal(type_of(g, "token_embd.weight"), QN_TYPE_Q6_K); /* serves as output */
    assert_int_equal(type_of(g, "blk.0.attn_q.weight"), QN_TYPE_Q4_K);
    assert_int_equal(type_of(g, "blk.1.ffn_down.weight"), QN_TYPE_Q6_K);
    assert_int_equal(type_of(g, "blk.0.attn_norm.weight"), QN_TYPE_F32);
    qn_gguf_free(g);

    options.pure = true;
    options.embedding_type = QN_TYPE_Q8_0;
    qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
    g = open_model(out);
    assert_int_equal(type_of(g, "token_embd.weight"), QN_TYPE_Q8_0);
    assert_int_equal(type_of(g, "blk.1.ffn_down.weight"), QN_TYPE_Q4_K);
    qn_gguf_free(g);
    unlink(in);
    unlink(out);
}

static void caller_decides_before_the_mix(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_QWEN3MOE, QN_TYPE_F32);
    const char *out = qn_test_temporary(".gguf");
    const qn_quantize_override overrides[] = {{"blk\\.1\\.ffn_.*_exps", QN_TYPE_MXFP4},
                                              {"ffn_down", QN_TYPE_IQ4_NL}};
    qn_quantize_options options = qn_quantize_defaults();
    options.mix = QN_MIX_Q4_0;
    options.leave_output = true;
    options.overrides = overrides;
    options.override_count = 2;
    qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
    qn_gguf *g = open_model(out);
    assert_int_equal(type_of(g, "output.weight"), QN_TYPE_F32);
    assert_int_equal(type_of(g, "blk.1.ffn_down_exps.weight"), QN_TYPE_MXFP4);
    assert_int_equal(type_of(g, "blk.0.ffn_down_exps.weight"), QN_TYPE_IQ4_NL);
    assert_int_equal(type_of(g, "blk.0.ffn_up_exps.weight"), QN_TYPE_Q4_0);
    assert_int_equal(type_of(g, "blk.0.attn_q.weight"), QN_TYPE_Q4_0);
    assert_int_equal(type_of(g, "blk.0.ffn_gate_inp.weight"), QN_TYPE_F32);
    qn_gguf_free(g);

    options.leave_output = false;
    options.output_type = QN_TYPE_Q5_K;
    qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
    g = open_model(out);
    assert_int_equal(type_of(g, "output.weight"), QN_TYPE_Q5_K);
    qn_gguf_free(g);

    const qn_quantize_override broken = {"blk.(", QN_TYPE_Q8_0};
    options.overrides = &broken;
    options.override_count = 1;
    assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "blk.("));
    const qn_quantize_override activation = {"ffn", QN_TYPE_Q8_1};
    options.overrides = &activation;
    assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_ARGUMENT);
    const qn_quantize_override integer = {"ffn_up", QN_TYPE_I32};
    options.overrides = &integer;
    assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_UNSUPPORTED);
    unlink(in);
    unlink(out);
}

static void quantized_input_needs_permission(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_Q4_1);
    const char *out = qn_test_temporary(".gguf");
    qn_quantize_options options = qn_quantize_defaults();
    options.mix = QN_MIX_F32;
    assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "--allow-requantize"));
    assert_non_null(strstr(err.message, ".weight"));
    assert_int_not_equal(access(out, F_OK), 0);

    options.allow_requantize = true;
    qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
    qn_gguf *source = open_model(in);
    qn_gguf *target = open_model(out);
    assert_int_equal(file_type(target), 0);
    for (size_t i = 0; i < qn_gguf_tensor_count(source); i++) {
        const qn_gguf_tensor *s = qn_gguf_tensor_at(source, i);
        const qn_gguf_tensor *t = qn_gguf_find_tensor(target, s->name);
        size_t n;
        float *x = values_of(source, s, &n);
        float *y = values_of(target, t, &n);
        assert_int_equal(t->type, QN_TYPE_F32);
        assert_memory_equal(x, y, n * sizeof *x);
        free(x);
        free(y);
    }
    qn_gguf_free(source);
    qn_gguf_free(target);

    /* A target equal to the source is a copy and needs no permission. */
    options.allow_requantize = false;
    options.mix = QN_MIX_Q4_1;
    options.pure = true;
    qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
    options.mix = QN_MIX_COPY;
    qn_quantize_result result;
    qn_test_ok(qn_quantize_file(in, out, &options, &result, &err), err);
    assert_int_equal(result.converted, 0);
    assert_int_equal(result.source_bytes, result.target_bytes);
    unlink(in);
    unlink(out);
}

typedef struct counting {
    size_t tensors;
    uint64_t bytes;
    float last;
    int calls, stop_at;
} counting;

static void count_tensor(void *user, const qn_quantize_tensor *t)
{
    counting *c = user;
    assert_int_equal(t->index, c->tensors);
    c->tensors++;
    c->bytes += t->target_bytes;
}

static bool count_progress(void *user, float fraction)
{
    counting *c = user;
    assert_true(fraction >= 0.0F && fraction <= 1.0F);
    c->last = fraction;
    return ++c->calls != c->stop_at;
}

static void dry_run_tells_what_the_run_does(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_GEMMA3, QN_TYPE_F32);
    const char *out = qn_test_temporary(".gguf");
    counting dry = {0};
    counting wet = {0};
    qn_quantize_options options = qn_quantize_defaults();
    options.on_tensor = count_tensor;
    options.progress = count_progress;
    options.user = &dry;
    options.dry_run = true;
    qn_quantize_result expected;
    qn_quantize_result result;
    qn_test_ok(qn_quantize_file(in, NULL, &options, &expected, &err), err);
    options.dry_run = false;
    options.user = &wet;
    qn_test_ok(qn_quantize_file(in, out, &options, &result, &err), err);
    assert_memory_equal(&expected, &result, sizeof result);
    assert_int_equal(dry.tensors, wet.tensors);
    assert_int_equal(dry.bytes, wet.bytes);
    assert_int_equal(dry.bytes, result.target_bytes);
    assert_int_equal(dry.calls, 0);
    assert_true(wet.calls > 0);
    assert_true(wet.last == 1.0F);
    unlink(in);
    unlink(out);
}

/* Whether a temporary file of a run stands beside `path`. */
static bool left_over(const char *path)
{
    char command[1200];
    snprintf(command, sizeof command, "ls %s.* >/dev/null 2>&1", path);
    return system(command) == 0;
}

static void stopping_leaves_no_file(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32);
    const char *out = qn_test_temporary(".gguf");
    for (int stop_at = 1; stop_at < 40; stop_at += 13) {
        counting c = {.stop_at = stop_at};
        qn_quantize_options options = qn_quantize_defaults();
        options.progress = count_progress;
        options.user = &c;
        assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_ABORTED);
        assert_int_equal(c.calls, stop_at);
        assert_int_not_equal(access(out, F_OK), 0);
        assert_false(left_over(out));
    }
    unlink(in);
}

static void full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32);
    const char *out = qn_test_temporary(".gguf");
    FILE *f = fopen(out, "w");
    assert_non_null(f);
    fputs("old", f);
    fclose(f);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit small = {.rlim_cur = 100000, .rlim_max = old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    qn_quantize_options options = qn_quantize_defaults();
    qn_status status = qn_quantize_file(in, out, &options, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, QN_ERR_IO);
    size_t size;
    uint8_t *data = qn_test_read(out, &size);
    assert_string_equal((char *)data, "old");
    assert_false(left_over(out));
    free(data);
    unlink(in);
    unlink(out);
}

static void input_is_not_overwritten(void **state)
{
    (void)state;
    const char *in = make_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32);
    const char *link_name = qn_test_temporary(".gguf");
    assert_int_equal(symlink(in, link_name), 0);
    qn_quantize_options options = qn_quantize_defaults();
    assert_int_equal(qn_quantize_file(in, in, &options, NULL, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_quantize_file(in, link_name, &options, NULL, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_quantize_file(in, NULL, &options, NULL, &err), QN_ERR_ARGUMENT);
    unlink(link_name);
    unlink(in);
}

/* A model of one matrix [n, rows] with the given values; no layers. */
static const char *one_matrix(const char *architecture, const char *name, const float *x, int64_t n,
                              int64_t rows)
{
    const char *path = qn_test_temporary(".gguf");
    qn_gguf_writer *w;
    const int64_t ne[4] = {n, rows, 1, 1};
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_set_str(w, "general.architecture", architecture);
    qn_gguf_writer_add_tensor(w, name, QN_TYPE_F32, 2, ne);
    qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
    qn_test_ok(qn_gguf_writer_write(w, x, (size_t)(n * rows) * sizeof *x, &err), err);
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
    return path;
}

enum { BAD_ROWS = 700, BAD_WIDTH = 256 };

static void bad_values_are_named(void **state)
{
    (void)state;
    float *x = calloc(BAD_ROWS * BAD_WIDTH, sizeof *x);
    assert_non_null(x);
    static const struct {
        float value;
        qn_mix mix;
        const char *text;
    } cases[] = {{NAN, QN_MIX_Q4_0, "infinity or a NaN"},
                 {INFINITY, QN_MIX_Q4_K_M, "infinity or a NaN"},
                 {1e30F, QN_MIX_Q8_0, "too large"},
                 {70000.0F, QN_MIX_F16, "too large"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        x[650 * BAD_WIDTH + 3] = x[300 * BAD_WIDTH + 255] = cases[i].value;
        const char *in = one_matrix("llama", "a.weight", x, BAD_WIDTH, BAD_ROWS);
        const char *out = qn_test_temporary(".gguf");
        for (int threads = 1; threads <= 3; threads++) {
            qn_quantize_options options = qn_quantize_defaults();
            options.mix = cases[i].mix;
            options.threads = threads;
            assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_FORMAT);
            assert_non_null(strstr(err.message, "a.weight"));
            assert_non_null(strstr(err.message, "row 300 "));
            assert_non_null(strstr(err.message, cases[i].text));
            assert_non_null(strstr(err.message, in));
            assert_int_not_equal(access(out, F_OK), 0);
        }
        unlink(in);
    }
    free(x);
}

static void rows_that_do_not_fit_fall_back(void **state)
{
    (void)state;
    float x[288 * 2];
    for (int i = 0; i < 288 * 2; i++) {
        x[i] = (float)(i % 37) / 37.0F - 0.5F;
    }
    const char *in = one_matrix("llama", "blk.0.attn_q.weight", x, 288, 2);
    const char *out = qn_test_temporary(".gguf");
    qn_quantize_options options = qn_quantize_defaults();
    qn_quantize_result result;
    qn_test_ok(qn_quantize_file(in, out, &options, &result, &err), err);
    assert_int_equal(result.shape_fallbacks, 1);
    qn_gguf *g = open_model(out);
    assert_int_equal(type_of(g, "blk.0.attn_q.weight"), QN_TYPE_Q5_0);
    qn_gguf_free(g);
    options.mix = QN_MIX_Q1_0;
    assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_FORMAT);
    unlink(in);
    unlink(out);
}

/* Writes importance of one weight in the older form: value * calls. */
static const char *old_importance(const char *name, const float *values, int32_t n, int32_t calls)
{
    const char *path = qn_test_temporary(".imatrix");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    const int32_t one = 1;
    const int32_t length = (int32_t)strlen(name);
    const int32_t tail[2] = {5, 4};
    fwrite(&one, 4, 1, f);
    fwrite(&length, 4, 1, f);
    fwrite(name, 1, (size_t)length, f);
    fwrite(&calls, 4, 1, f);
    fwrite(&n, 4, 1, f);
    for (int32_t i = 0; i < n; i++) {
        float sum = values[i] * (float)calls;
        fwrite(&sum, 4, 1, f);
    }
    fwrite(tail, 4, 2, f);
    fwrite("text", 1, 4, f);
    fclose(f);
    return path;
}

static const char *new_importance(const char *name, const float *values, int64_t n, float count)
{
    const char *path = qn_test_temporary(".imatrix.gguf");
    char sums_name[64];
    char counts_name[64];
    snprintf(sums_name, sizeof sums_name, "%s.in_sum2", name);
    snprintf(counts_name, sizeof counts_name, "%s.counts", name);
    qn_gguf_writer *w;
    const int64_t wide[2] = {n, 1};
    const int64_t single[2] = {1, 1};
    const qn_gguf_text dataset = {"text", 4};
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_set_str(w, "general.type", "imatrix");
    qn_gguf_writer_set_texts(w, "imatrix.datasets", &dataset, 1);
    qn_gguf_writer_set_u32(w, "imatrix.chunk_count", 5);
    qn_gguf_writer_set_u32(w, "imatrix.chunk_size", 512);
    qn_gguf_writer_add_tensor(w, sums_name, QN_TYPE_F32, 2, wide);
    qn_gguf_writer_add_tensor(w, counts_name, QN_TYPE_F32, 2, single);
    qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
    for (int64_t i = 0; i < n; i++) {
        float sum = values[i] * count;
        qn_test_ok(qn_gguf_writer_write(w, &sum, sizeof sum, &err), err);
    }
    qn_test_ok(qn_gguf_writer_write(w, &count, sizeof count, &err), err);
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
    return path;
}

static void importance_steers_the_encoder(void **state)
{
    (void)state;
    enum { N = 256, ROWS = 3 };
    static const char name[] = "blk.0.attn_q.weight";
    qn_test_random random = {7};
    float x[N * ROWS];
    float weights[N];
    for (int i = 0; i < N * ROWS; i++) {
        x[i] = qn_test_normal(&random);
    }
    for (int i = 0; i < N; i++) {
        weights[i] = (float)(1 + i % 16); /* times a power of two: exact */
    }
    const char *in = one_matrix("llama", name, x, N, ROWS);
    const char *out = qn_test_temporary(".gguf");
    const char *files[2] = {old_importance(name, weights, N, 4),
                            new_importance(name, weights, N, 8.0F)};
    uint8_t expected[144 * ROWS];
    for (int r = 0; r < ROWS; r++) {
        qn__quant_get(QN_TYPE_Q4_K)->encode(x + r * N, expected + r * 144, N, weights, NULL);
    }
    for (int i = 0; i < 2; i++) {
        qn_quantize_options options = qn_quantize_defaults();
        options.importance_file = files[i];
        options.pure = true;
        qn_test_ok(qn_quantize_file(in, out, &options, NULL, &err), err);
        qn_gguf *g = open_model(out);
        const qn_gguf_tensor *t = qn_gguf_find_tensor(g, name);
        uint8_t bytes[sizeof expected];
        assert_int_equal(t->bytes, sizeof bytes);
        qn_test_ok(qn_gguf_read_tensor(g, t, 0, sizeof bytes, bytes, &err), err);
        assert_memory_equal(bytes, expected, sizeof bytes);
        uint32_t chunks = 0;
        qn_gguf_text dataset;
        qn_test_ok(qn_gguf_get_u32(g, "quantize.imatrix.chunks_count", &chunks, &err), err);
        qn_test_ok(qn_gguf_get_str(g, "quantize.imatrix.dataset", &dataset, &err), err);
        assert_int_equal(chunks, 5);
        assert_string_equal(dataset.data, "text");
        qn_gguf_free(g);
        unlink(files[i]);
    }
    unlink(in);
    unlink(out);
}

static void importance_is_checked(void **state)
{
    (void)state;
    static const char name[] = "blk.0.attn_q.weight";
    float x[512] = {1.0F};
    float weights[256] = {1.0F};
    const char *in = one_matrix("llama", name, x, 256, 2);
    const char *out = qn_test_temporary(".gguf");
    qn_quantize_options options = qn_quantize_defaults();
    options.mix = QN_MIX_Q2_K_S;
    assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, name));
    options.dry_run = true;
    qn_quantize_result result;
    qn_test_ok(qn_quantize_file(in, NULL, &options, &result, &err), err);
    assert_int_equal(result.lacking_importance, 1);
    options.dry_run = false;

    const char *files[3];
    files[0] = old_importance(name, weights, 255, 1); /* too few */
    weights[9] = NAN;
    files[1] = old_importance(name, weights, 256, 1);
    weights[9] = 1.0F;
    files[2] = old_importance(name, weights, 256, 1);
    assert_int_equal(truncate(files[2], 500), 0);
    for (int i = 0; i < 3; i++) {
        options.importance_file = files[i];
        assert_int_equal(qn_quantize_file(in, out, &options, NULL, &err), QN_ERR_FORMAT);
        unlink(files[i]);
    }
    unlink(in);
    unlink(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_go_to_the_format_and_the_rest_stays),
        cmocka_unit_test(threads_and_slabs_change_nothing),
        cmocka_unit_test(mix_decides_per_tensor),
        cmocka_unit_test(caller_decides_before_the_mix),
        cmocka_unit_test(quantized_input_needs_permission),
        cmocka_unit_test(dry_run_tells_what_the_run_does),
        cmocka_unit_test(stopping_leaves_no_file),
        cmocka_unit_test(full_disk_leaves_the_old_file),
        cmocka_unit_test(input_is_not_overwritten),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(rows_that_do_not_fit_fall_back),
        cmocka_unit_test(importance_steers_the_encoder),
        cmocka_unit_test(importance_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
