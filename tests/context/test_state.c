/* State files: damaged ones are refused and nothing is changed. */
#include "support/engine.h"

#include <unistd.h>

#include "context/state.h"

#define WIDTH QN_TEST_TINY_VOCAB

static qn_error err;
static qn_model *model;

static int setup(void **state)
{
    (void)state;
    model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 1);
    return model ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    qn_model_free(model);
    return 0;
}

static void write_file(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_checksum(uint8_t *bytes, size_t n)
{
    uint64_t sum = qn__state_checksum(bytes, n - 8);
    for (int i = 0; i < 8; i++) {
        bytes[n - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    }
}

typedef struct fixture {
    qn_context *ctx;
    const char *path;
    uint8_t *file;
    size_t n_file;
    uint8_t *before; /* state of the whole context */
    size_t n_before;
} fixture;

/* A context that holds something, and the file of a sequence of 5 tokens. */
static fixture make(void)
{
    fixture f = {0};
    int32_t tokens[20];
    float rows[20 * WIDTH];
    qn_context_options o = qn_test_context_options();
    o.n_ctx = 256;
    f.ctx = qn_test_context(model, &o);
    f.path = qn_test_temporary(".state");
    qn_test_tokens(1, tokens, 20);
    qn_test_compute(f.ctx, 0, tokens, 5, 0, 0, rows);
    qn_test_ok(qn_context_state_save(f.ctx, 0, f.path, tokens, 5, &err), err);
    f.file = qn_test_read(f.path, &f.n_file);
    qn_test_ok(qn_context_seq_rm(f.ctx, -1, 0, -1, &err), err);
    qn_test_compute(f.ctx, 1, tokens + 3, 17, 0, 0, rows);
    f.n_before = qn_context_state_size(f.ctx, -1);
    f.before = malloc(f.n_before);
    size_t written;
    qn_test_ok(qn_context_state_get(f.ctx, -1, f.before, f.n_before, &written, &err), err);
    return f;
}

static void drop(fixture *f)
{
    unlink(f->path);
    free(f->file);
    free(f->before);
    qn_context_free(f->ctx);
}

static void expect_unchanged(const fixture *f)
{
    size_t n = qn_context_state_size(f->ctx, -1), written;
    assert_int_equal(n, f->n_before);
    uint8_t *now = malloc(n);
    qn_test_ok(qn_context_state_get(f->ctx, -1, now, n, &written, &err), err);
    assert_memory_equal(now, f->before, n);
    free(now);
}

static void expect_refused(const fixture *f, const uint8_t *bytes, size_t n, const char *what)
{
    size_t n_tokens = 99;
    int32_t tokens[8] = {0};
    write_file(f->path, bytes, n);
    err = (qn_error){0};
    qn_status status = qn_context_state_load(f->ctx, 2, f->path, tokens, 8, &n_tokens, &err);
    if (status == QN_OK || err.message[0] == 0 || !strstr(err.message, f->path)) {
        fail_msg("%s: %s (%s)", what, qn_status_name(status), err.message);
    }
    assert_int_equal(n_tokens, 0);
    expect_unchanged(f);
}

static void test_truncated(void **state)
{
    (void)state;
    fixture f = make();
    for (size_t n = 0; n < f.n_file; n += n < 200 || n > f.n_file - 40 ? 1 : 97) {
        expect_refused(&f, f.file, n, "cut");
        if (n >= 48) { /* with a checksum that fits, the inside must notice */
            uint8_t *cut = malloc(n);
            memcpy(cut, f.file, n);
            put_checksum(cut, n);
            expect_refused(&f, cut, n, "cut, checksum made to fit");
            free(cut);
        }
    }
    uint8_t *longer = malloc(f.n_file + 8);
    memcpy(longer, f.file, f.n_file);
    memset(longer + f.n_file, 0, 8);
    put_checksum(longer, f.n_file + 8);
    expect_refused(&f, longer, f.n_file + 8, "bytes left over");
    free(longer);
    drop(&f);
}

static void test_flipped(void **state)
{
    (void)state;
    fixture f = make();
    for (size_t i = 0; i < f.n_file; i += i < 300 ? 1 : 61) {
        f.file[i] ^= (uint8_t)(1U << i % 8);
        expect_refused(&f, f.file, f.n_file, "a bit turned");
        f.file[i] ^= (uint8_t)(1U << i % 8);
    }
    drop(&f);
}

static void test_heads(void **state)
{
    (void)state;
    fixture f = make();
    static const struct {
        size_t at;
        uint8_t value;
        const char *what;
    } heads[] = {
        {0, 'Q', "magic"},   {8, 2, "version"},        {12, 0, "scope whole"},
        {12, 7, "no scope"}, {16, 6, "a token more"},  {23, 255, "absurd count of tokens"},
        {24, 1, "size"},     {31, 128, "absurd size"}, {33, 2, "token beyond the vocabulary"},
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        uint8_t *copy = malloc(f.n_file);
        memcpy(copy, f.file, f.n_file);
        copy[heads[i].at] = heads[i].value;
        put_checksum(copy, f.n_file);
        expect_refused(&f, copy, f.n_file, heads[i].what);
        free(copy);
    }
    drop(&f);
}

static void test_load_rules(void **state)
{
    (void)state;
    fixture f = make();
    int32_t tokens[5] = {0}, text[5];
    size_t n = 0;
    qn_test_tokens(1, text, 5);
    write_file(f.path, f.file, f.n_file);
    assert_int_equal(qn_context_state_load(f.ctx, 2, f.path, tokens, 4, &n, &err), QN_ERR_LIMIT);
    assert_int_equal(qn_context_state_load(f.ctx, -1, f.path, tokens, 5, &n, &err),
                     QN_ERR_FORMAT); /* not of a whole context */
    assert_int_equal(qn_context_state_load(f.ctx, 4, f.path, tokens, 5, &n, &err), QN_ERR_ARGUMENT);
    expect_unchanged(&f);
    qn_test_ok(qn_context_state_load(f.ctx, 2, f.path, tokens, 5, &n, &err), err);
    assert_int_equal(n, 5);
    assert_memory_equal(tokens, text, sizeof text);
    assert_int_equal(qn_context_pos_max(f.ctx, 2), 4);
    assert_int_equal(qn_context_pos_max(f.ctx, 1), 16);
    unlink(f.path);
    assert_int_equal(qn_context_state_load(f.ctx, 2, f.path, tokens, 5, &n, &err), QN_ERR_IO);
    int32_t bad = WIDTH;
    assert_int_equal(qn_context_state_save(f.ctx, 2, f.path, &bad, 1, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_state_save(f.ctx, 2, "/nowhere/x", text, 5, &err), QN_ERR_IO);
    assert_int_equal(access(f.path, F_OK), -1);

    /* Another model's state is refused. */
    qn_model *other = qn_test_model(QN_TEST_TINY_QWEN3MOE, QN_TYPE_F32, 1);
    qn_context *ctx = qn_test_context(other, NULL);
    write_file(f.path, f.file, f.n_file);
    assert_int_equal(qn_context_state_load(ctx, 0, f.path, NULL, 0, &n, &err), QN_ERR_FORMAT);
    assert_int_equal(qn_context_pos_max(ctx, 0), -1);
    qn_context_free(ctx);
    qn_model_free(other);
    drop(&f);
}

static void test_buffers(void **state)
{
    (void)state;
    fixture f = make();
    size_t n = qn_context_state_size(f.ctx, 1), written = 7;
    uint8_t *bytes = malloc(n + 1);
    bytes[n] = bytes[n - 1] = 0x5a;
    assert_int_equal(qn_context_state_get(f.ctx, 1, bytes, n - 1, &written, &err), QN_ERR_ARGUMENT);
    assert_int_equal(written, 0);
    assert_int_equal(bytes[n - 1], 0x5a);
    qn_test_ok(qn_context_state_get(f.ctx, 1, bytes, n + 1, &written, &err), err);
    assert_int_equal(written, n);
    assert_int_equal(bytes[n], 0x5a);
    for (size_t cut = 0; cut < n; cut += cut < 100 ? 1 : 53) {
        assert_true(qn_context_state_set(f.ctx, 3, bytes, cut, &err) != QN_OK);
    }
    assert_true(qn_context_state_set(f.ctx, 3, bytes, n + 1, &err) != QN_OK);
    expect_unchanged(&f);
    qn_test_ok(qn_context_state_set(f.ctx, 3, bytes, n, &err), err);
    assert_int_equal(qn_context_pos_max(f.ctx, 3), 16);
    free(bytes);
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_heads),     cmocka_unit_test(test_load_rules),
        cmocka_unit_test(test_buffers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
