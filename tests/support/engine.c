/* engine.c: see engine.h. */
#include "support/engine.h"

#include <unistd.h>

#define WIDTH QN_TEST_TINY_VOCAB

qn_model *qn_test_model(qn_test_tiny_kind kind, qn_type type, int n_layer)
{
    qn_error err = {0};
    qn_model *model = NULL;
    const char *path = qn_test_temporary(".gguf");
    qn_test_tiny_write(path, kind, type, n_layer);
    qn_status status = qn_model_load(&model, path, NULL, &err);
    unlink(path);
    if (status != QN_OK) {
        fail_msg("%s: %s", qn_test_tiny_name(kind), err.message);
    }
    return model;
}

qn_context_options qn_test_context_options(void)
{
    qn_context_options o = qn_context_defaults();
    o.n_seq_max = 4;
    o.n_threads = o.n_threads_batch = 1;
    return o;
}

qn_context *qn_test_context(const qn_model *model, const qn_context_options *options)
{
    qn_error err = {0};
    qn_context *ctx = NULL;
    qn_context_options o = options ? *options : qn_test_context_options();
    qn_test_ok(qn_context_make(model, &o, &ctx, &err), err);
    return ctx;
}

void qn_test_tokens(uint32_t which, int32_t *tokens, int32_t n)
{
    qn_test_random r = {which * 7919 + 1};
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(qn_test_bits(&r) % WIDTH);
    }
}

void qn_test_compute(qn_context *ctx, int32_t seq, const int32_t *tokens, int32_t n, int32_t pos,
                     int32_t cut, float *rows)
{
    qn_error err = {0};
    int32_t positions[1024], ids[1024];
    int8_t output[1024];
    assert_true(n <= 1024);
    for (int32_t i = 0; i < n; i++) {
        positions[i] = pos + i;
        ids[i] = seq;
        output[i] = 1;
    }
    for (int32_t i = 0; i < n;) {
        int32_t count = cut && cut < n - i ? cut : n - i;
        qn_batch batch = {.n_tokens = count,
                          .tokens = tokens + i,
                          .pos = positions + i,
                          .seq_id = ids + i,
                          .output = output + i};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        for (int32_t j = 0; j < count; j++) {
            const float *row = qn_context_logits(ctx, j, &err);
            assert_non_null(row);
            memcpy(rows + (size_t)(i + j) * WIDTH, row, WIDTH * sizeof(float));
        }
        i += count;
    }
}

void qn_test_same_rows(const float *a, const float *b, int32_t n_rows, const char *what)
{
    for (int32_t i = 0; i < n_rows; i++) {
        if (memcmp(a + (size_t)i * WIDTH, b + (size_t)i * WIDTH, WIDTH * sizeof(float)) != 0) {
            fail_msg("%s: row %d differs (%.9g, %.9g, …)", what, i, (double)a[(size_t)i * WIDTH],
                     (double)b[(size_t)i * WIDTH]);
        }
    }
}
