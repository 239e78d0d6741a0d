/* The recorded models of several architectures: rows are the same bits for any cut of the batch,
 * beside another sequence, behind a shared prefix, and restored. */
#include "support/engine.h"

enum { N = 48, WIDTH = 128 };

static qn_error err;

static const char *const names[] = {"llama",    "llama-yarn", "gemma2",     "gemma3",
                                    "qwen3moe", "gpt-oss",    "glm4-mrope", "cohere2",
                                    "gpt2",     "olmo2",      "smollm3"};

/* Decodes [from, to) of the recorded tokens as sequence `seq`, in batches of `cut`, each with a
 * token of sequence 3 in front; rows go to rows[from …]. */
static void compute(qn_context *ctx, int32_t seq, int32_t from, int32_t to, int32_t cut,
                    float *rows)
{
    int32_t tokens[N + 1], ids[N + 1];
    int8_t output[N + 1];
    for (int32_t i = from; i < to; i += cut) {
        int32_t n = cut < to - i ? cut : to - i;
        tokens[0] = (i * 5 + 3) % WIDTH;
        ids[0] = 3;
        output[0] = 0;
        for (int32_t j = 0; j < n; j++) {
            tokens[1 + j] = (37 * (i + j) + 11) % WIDTH;
            ids[1 + j] = seq;
            output[1 + j] = 1;
        }
        qn_batch batch = {.n_tokens = n + 1, .tokens = tokens, .seq_id = ids, .output = output};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        for (int32_t j = 0; j < n; j++) {
            const float *row = qn_context_logits(ctx, 1 + j, &err);
            assert_non_null(row);
            memcpy(rows + (size_t)(i + j) * WIDTH, row, WIDTH * sizeof(float));
        }
    }
}

static void expect_same(const float *got, const float *want, int32_t from, const char *name,
                        const char *what)
{
    for (int32_t i = from; i < N; i++) {
        if (memcmp(got + i * WIDTH, want + i * WIDTH, WIDTH * sizeof(float)) != 0) {
            fail_msg("%s: %s: row %d differs", name, what, i);
        }
    }
}

static void check(const char *name, const char *path)
{
    qn_model *model = NULL;
    qn_test_ok(qn_model_load(&model, path, NULL, &err), err);
    assert_int_equal(qn_model_n_vocab(model), WIDTH);
    static float want[N * WIDTH], got[N * WIDTH];
    qn_context_options o = qn_test_context_options();
    qn_context *ctx = qn_test_context(model, &o);
    compute(ctx, 0, 0, N, N, want);
    qn_context_free(ctx);
    static const int32_t cuts[] = {1, 2, 7};
    for (size_t i = 0; i < 3; i++) {
        o.n_ubatch = cuts[i];
        o.n_threads_batch = (int32_t)i + 1;
        ctx = qn_test_context(model, &o);
        compute(ctx, 1, 0, N, 11, got);
        expect_same(got, want, 0, name, "micro-batches");
        qn_context_free(ctx);
    }
    ctx = qn_test_context(model, &o);
    compute(ctx, 0, 0, 30, 30, got);
    qn_test_ok(qn_context_seq_cp(ctx, 0, 2, 0, -1, &err), err);
    compute(ctx, 2, 30, N, 4, got);
    expect_same(got, want, 0, name, "fork");
    size_t size = qn_context_state_size(ctx, 0), written;
    uint8_t *state = malloc(size);
    qn_test_ok(qn_context_state_get(ctx, 0, state, size, &written, &err), err);
    qn_test_ok(qn_context_state_set(ctx, 1, state, written, &err), err);
    memset(got, 0, sizeof got);
    compute(ctx, 1, 30, N, 5, got);
    expect_same(got, want, 30, name, "restored");
    free(state);
    qn_context_free(ctx);
    qn_model_free(model);
}

static void test_recorded_models(void **state)
{
    (void)state;
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[64];
        snprintf(file, sizeof file, "archs/%s.gguf", names[i]);
        const char *path = qn_test_shared(file);
        if (path) {
            check(names[i], path);
            n++;
        }
    }
    if (n == 0) {
        qn_test_skip("no recorded models");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
