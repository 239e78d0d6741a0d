/* The rows of a sequence are the same bits, however they came to be. */
#include "support/engine.h"

#include <unistd.h>

#define N     100
#define WIDTH QN_TEST_TINY_VOCAB

static qn_error err;

/* What is tested with: each kind of model with two types of weights and a type of store. */
static const struct {
    qn_test_tiny_kind kind;
    qn_type weights, store;
} cases[] = {
    {QN_TEST_TINY_LLAMA, QN_TYPE_F32, QN_TYPE_F16},
    {QN_TEST_TINY_GEMMA3, QN_TYPE_Q4_K, QN_TYPE_F16},
    {QN_TEST_TINY_QWEN3MOE, QN_TYPE_Q8_0, QN_TYPE_F16},
    {QN_TEST_TINY_LLAMA, QN_TYPE_Q4_0, QN_TYPE_Q8_0},
    {QN_TEST_TINY_GEMMA3, QN_TYPE_BF16, QN_TYPE_F32},
    {QN_TEST_TINY_QWEN3MOE, QN_TYPE_F32, QN_TYPE_BF16},
};
#define N_CASES (QN_TEST_LIGHT ? 2 : (int)(sizeof cases / sizeof *cases))

typedef struct bench {
    qn_model *model;
    qn_context_options options;
    int32_t tokens[N];
    float *want, *got; /* [N, WIDTH] */
} bench;

static bench benches[sizeof cases / sizeof *cases];

static void bench_make(bench *b, int i)
{
    b->model = qn_test_model(cases[i].kind, cases[i].weights, 0);
    b->options = qn_test_context_options();
    b->options.type_k = b->options.type_v = cases[i].store;
    qn_test_tokens(1, b->tokens, N);
    b->want = calloc(N * WIDTH, sizeof(float));
    b->got = calloc(N * WIDTH, sizeof(float));
    qn_context *ctx = qn_test_context(b->model, &b->options);
    qn_test_compute(ctx, 0, b->tokens, N, 0, 0, b->want);
    qn_context_free(ctx);
}

static void bench_free(bench *b)
{
    free(b->want);
    free(b->got);
    qn_model_free(b->model);
}

static void check_cuts(bench *b)
{
    static const int32_t cuts[] = {1, 2, 7, 64};
    for (size_t i = 0; i < 4; i++) {
        qn_context_options o = b->options;
        o.n_ubatch = cuts[i];
        qn_context *ctx = qn_test_context(b->model, &o);
        qn_test_compute(ctx, 0, b->tokens, N, 0, 0, b->got); /* cut by the context */
        qn_test_same_rows(b->got, b->want, N, "micro-batches");
        qn_context_clear(ctx);
        qn_test_compute(ctx, 2, b->tokens, N, 0, cuts[i] + 3, b->got); /* and by the caller */
        qn_test_same_rows(b->got, b->want, N, "batches");
        qn_context_free(ctx);
    }
}

static void check_threads(bench *b)
{
    static const int32_t threads[] = {2, 3, 7};
    for (size_t i = 0; i < 3; i++) {
        qn_context_options o = b->options;
        o.n_threads = o.n_threads_batch = threads[i];
        qn_context *ctx = qn_test_context(b->model, &o);
        qn_test_compute(ctx, 0, b->tokens, N, 0, 47, b->got);
        qn_test_same_rows(b->got, b->want, N, "threads");
        qn_test_compute(ctx, 1, b->tokens, 8, 0, 1, b->got);
        qn_test_same_rows(b->got, b->want, 8, "threads, token by token");
        qn_context_free(ctx);
    }
}

/* Sequence 1 takes part in batches with three others, in changing order and numbers. */
static void check_interleaved(bench *b)
{
    qn_context_options o = b->options;
    o.n_ubatch = 13;
    qn_context *ctx = qn_test_context(b->model, &o);
    int32_t others[4][N], done[4] = {0}, tokens[64], seq[64];
    int8_t output[64];
    for (uint32_t s = 0; s < 4; s++) {
        qn_test_tokens(s == 1 ? 1 : s + 10, others[s], N);
    }
    qn_test_random r = {3};
    while (done[1] < N) {
        int32_t n = 0, from = done[1];
        for (int tries = 0; tries < 40; tries++) {
            uint32_t s = qn_test_bits(&r) % 4;
            if (done[s] < N) {
                tokens[n] = others[s][done[s]++];
                seq[n] = (int32_t)s;
                output[n++] = s == 1;
            }
        }
        qn_batch batch = {.n_tokens = n, .tokens = tokens, .seq_id = seq, .output = output};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        for (int32_t i = 0; i < n; i++) {
            if (seq[i] == 1) {
                const float *row = qn_context_logits(ctx, i, &err);
                assert_non_null(row);
                memcpy(b->got + (size_t)from++ * WIDTH, row, WIDTH * sizeof(float));
            }
        }
        assert_int_equal(from, done[1]);
    }
    qn_test_same_rows(b->got, b->want, N, "interleaved");
    qn_context_free(ctx);
}

/* A prefix of one sequence becomes that of others; a common prefix in one batch. */
static void check_shared_prefix(bench *b)
{
    qn_context *ctx = qn_test_context(b->model, &b->options);
    int32_t other[N];
    qn_test_tokens(5, other, N);
    static const int32_t prefixes[] = {1, 31, 32, 45, 64};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        int32_t n = prefixes[i];
        qn_context_clear(ctx);
        qn_test_compute(ctx, 0, b->tokens, n, 0, 0, b->got);
        qn_test_ok(qn_context_seq_cp(ctx, 0, 3, 0, -1, &err), err);
        qn_test_compute(ctx, 0, other, 20, n, 0, b->got + (size_t)n * WIDTH); /* goes another way */
        qn_test_compute(ctx, 3, b->tokens + n, N - n, n, 9, b->got + (size_t)n * WIDTH);
        qn_test_same_rows(b->got, b->want, N, "fork");
    }
    qn_context_clear(ctx);
    int32_t n_seq[N], seq[3 * N], n_ids = 0;
    int8_t output[N] = {0};
    for (int32_t i = 0; i < 40; i++) {
        n_seq[i] = 3;
        for (int32_t s = 0; s < 3; s++) {
            seq[n_ids++] = s;
        }
    }
    output[39] = 1;
    qn_batch batch = {
        .n_tokens = 40, .tokens = b->tokens, .n_seq_id = n_seq, .seq_id = seq, .output = output};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_test_same_rows(qn_context_logits(ctx, -1, &err), b->want + (size_t)39 * WIDTH, 1,
                      "common prefix");
    qn_test_compute(ctx, 0, other, 20, 40, 0, b->got);
    for (int32_t s = 1; s < 3; s++) {
        qn_test_compute(ctx, s, b->tokens + 40, N - 40, 40, 0, b->got);
        qn_test_same_rows(b->got, b->want + (size_t)40 * WIDTH, N - 40, "parted sequences");
    }
    qn_context_free(ctx);
}

static void check_removed_tail(bench *b)
{
    qn_context *ctx = qn_test_context(b->model, &b->options);
    int32_t other[N];
    qn_test_tokens(6, other, N);
    qn_test_compute(ctx, 0, b->tokens, 60, 0, 0, b->got);
    static const int32_t backs[] = {59, 40, 32, 31, 0};
    for (size_t i = 0; i < sizeof backs / sizeof *backs; i++) {
        int32_t p = backs[i];
        qn_test_ok(qn_context_seq_rm(ctx, 0, p, -1, &err), err);
        assert_int_equal(qn_context_pos_max(ctx, 0), p - 1);
        qn_test_compute(ctx, 0, other, 25, p, 0, b->got); /* tokens that are thrown away */
        qn_test_ok(qn_context_seq_rm(ctx, 0, p, -1, &err), err);
        qn_test_compute(ctx, 0, b->tokens + p, 60 - p, p, 0, b->got);
        qn_test_same_rows(b->got, b->want + (size_t)p * WIDTH, 60 - p, "tail again");
    }
    qn_context_free(ctx);
}

static void check_restored(bench *b)
{
    qn_context_options o = b->options;
    qn_context *ctx = qn_test_context(b->model, &o);
    int32_t other[N], tokens[N];
    qn_test_tokens(7, other, N);
    qn_test_compute(ctx, 2, other, 30, 0, 0, b->got);
    qn_test_compute(ctx, 1, b->tokens, 70, 0, 0, b->got);
    qn_test_compute(ctx, 2, other + 30, 10, 30, 0, b->got);
    const char *whole = qn_test_temporary(".state"), *one = qn_test_temporary(".state");
    qn_test_ok(qn_context_state_save(ctx, -1, whole, b->tokens, 70, &err), err);
    qn_test_ok(qn_context_state_save(ctx, 1, one, b->tokens, 70, &err), err);
    qn_context_free(ctx);

    o.n_ctx = 1024;
    o.n_ubatch = 32;
    ctx = qn_test_context(b->model, &o);
    size_t n = 0;
    qn_test_compute(ctx, 1, other, 50, 0, 0, b->got);
    qn_test_ok(qn_context_state_load(ctx, -1, whole, tokens, N, &n, &err), err);
    assert_int_equal(n, 70);
    assert_memory_equal(tokens, b->tokens, 70 * sizeof *tokens);
    assert_int_equal(qn_context_pos_max(ctx, 2), 39);
    qn_test_compute(ctx, 1, b->tokens + 70, N - 70, 70, 0, b->got);
    qn_test_same_rows(b->got, b->want + (size_t)70 * WIDTH, N - 70, "whole state");

    qn_test_ok(qn_context_state_load(ctx, 3, one, NULL, 0, &n, &err), err);
    assert_int_equal(n, 70);
    assert_int_equal(qn_context_pos_max(ctx, 1), N - 1); /* the others stay */
    qn_test_compute(ctx, 3, b->tokens + 70, N - 70, 70, 1, b->got);
    qn_test_same_rows(b->got, b->want + (size_t)70 * WIDTH, N - 70, "state of a sequence");

    size_t size = qn_context_state_size(ctx, 3), written;
    uint8_t *bytes = malloc(size);
    qn_test_ok(qn_context_state_get(ctx, 3, bytes, size, &written, &err), err);
    assert_int_equal(written, size);
    qn_test_ok(qn_context_seq_rm(ctx, 3, 80, -1, &err), err);
    qn_test_ok(qn_context_state_set(ctx, 0, bytes, size, &err), err);
    assert_int_equal(qn_context_pos_max(ctx, 0), N - 1);
    free(bytes);
    unlink(whole);
    unlink(one);
    qn_context_free(ctx);
}

/* Rows of a random choice of tokens, with and without embeddings beside them. */
static void check_chosen_outputs(bench *b)
{
    qn_test_random r = {9};
    qn_context_options o = b->options;
    o.n_ubatch = 24;
    qn_context *ctx = qn_test_context(b->model, &o);
    for (int round = 0; round < 4; round++) {
        int8_t output[N];
        int32_t n_rows = 0, row = 0;
        for (int32_t i = 0; i < N; i++) {
            output[i] = (int8_t)(qn_test_bits(&r) % 4 == 0);
            n_rows += output[i];
        }
        qn_context_clear(ctx);
        qn_context_set_embeddings(ctx, round % 2 != 0);
        qn_batch batch = {.n_tokens = N, .tokens = b->tokens, .output = output};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        assert_int_equal(qn_context_n_outputs(ctx), n_rows);
        for (int32_t i = 0; i < N; i++) {
            const float *by_index = qn_context_logits(ctx, i, &err);
            assert_true((by_index != NULL) == (output[i] != 0));
            if (by_index) {
                qn_test_same_rows(by_index, b->want + (size_t)i * WIDTH, 1, "chosen outputs");
                assert_ptr_equal(by_index, qn_context_logits(ctx, row++ - n_rows, &err));
                assert_true((qn_context_embeddings(ctx, i, &err) != NULL) == (round % 2 != 0));
            }
        }
    }
    qn_context_free(ctx);
}

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        bench_make(&benches[i], i);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        bench_free(&benches[i]);
    }
    return 0;
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        for (int i = 0; i < N_CASES; i++) {                                                        \
            check_##name(&benches[i]);                                                             \
        }                                                                                          \
    }

TEST(cuts)
TEST(threads)
TEST(interleaved)
TEST(shared_prefix)
TEST(removed_tail)
TEST(restored)
TEST(chosen_outputs)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),           cmocka_unit_test(test_threads),
        cmocka_unit_test(test_interleaved),    cmocka_unit_test(test_shared_prefix),
        cmocka_unit_test(test_removed_tail),   cmocka_unit_test(test_restored),
        cmocka_unit_test(test_chosen_outputs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
