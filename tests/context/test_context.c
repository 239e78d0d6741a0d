/* Making contexts, aborting, shifting, sampling, counting. */
#include "support/engine.h"

#include <math.h>

#define WIDTH QN_TEST_TINY_VOCAB

static qn_error err;

static void test_options_are_checked(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 1);
    const qn_context_options good = qn_test_context_options();
    struct {
        qn_context_options o;
        const char *names;
    } bad[12];
    size_t n = 0;
#define BAD(field, value, name)                                                                    \
    bad[n].o = good;                                                                               \
    bad[n].o.field = value;                                                                        \
    bad[n++].names = name
    BAD(n_ctx, -1, "n_ctx");
    BAD(n_ctx, INT32_MAX, "n_ctx");
    BAD(n_batch, -5, "n_batch");
    BAD(n_ubatch, -1, "n_ubatch");
    BAD(n_outputs_max, -1, "n_outputs_max");
    BAD(n_seq_max, 0, "n_seq_max");
    BAD(n_seq_max, 257, "n_seq_max");
    BAD(n_threads, 513, "n_threads");
    BAD(n_threads_batch, -1, "n_threads_batch");
    BAD(type_k, QN_TYPE_Q4_K, "type_k");
    BAD(type_v, (qn_type)99, "type_v");
    bad[n].o = good;
    bad[n].o.n_batch = bad[n].o.n_ubatch = 0;
    bad[n++].names = "n_batch";
    for (size_t i = 0; i < n; i++) {
        qn_context *ctx = (qn_context *)&bad;
        err = (qn_error){0};
        assert_int_equal(qn_context_make(model, &bad[i].o, &ctx, &err), QN_ERR_ARGUMENT);
        assert_null(ctx);
        assert_non_null(strstr(err.message, bad[i].names));
    }

    qn_context *ctx = NULL; /* defaults, rounding, cutting */
    qn_test_ok(qn_context_make(model, NULL, &ctx, &err), err);
    qn_context_options o = qn_context_get_options(ctx);
    assert_int_equal(o.n_ctx, 512);
    assert_int_equal(o.n_batch, 512);
    assert_int_equal(o.n_ubatch, 512);
    assert_true(o.n_threads >= 1 && o.n_threads_batch >= 1 && o.device && o.isa);
    assert_ptr_equal(qn_context_model(ctx), model);
    qn_context_free(ctx);
    o = good;
    o.n_ctx = 257;
    o.n_batch = 100;
    o.n_ubatch = 0;
    ctx = qn_test_context(model, &o);
    o = qn_context_get_options(ctx);
    assert_true(o.n_ctx == 512 && o.n_batch == 100 && o.n_ubatch == 100);
    qn_memory_report report = qn_context_memory(ctx);
    assert_true(report.store_bytes > 0 && report.output_bytes == 100 * WIDTH * sizeof(float));
    assert_true(report.n_positions >= 512 && report.n_positions_used == 0);
    assert_int_equal(qn_context_set_n_threads(ctx, 0, 1, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_set_n_threads(ctx, 1, 513, &err), QN_ERR_ARGUMENT);
    qn_test_ok(qn_context_set_n_threads(ctx, 1, 2, &err), err);
    qn_context_free(ctx);
    qn_context_free(NULL);
    qn_model_free(model);
}

/* Two contexts with one device that the caller made. */
static void test_shared_device(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_Q8_0, 0);
    qn_device *device = NULL;
    qn_test_ok(qn_device_open(0, NULL, &device, &err), err);
    qn_context_options o = qn_test_context_options();
    o.device = device;
    qn_context *a = qn_test_context(model, &o), *b = qn_test_context(model, &o);
    int32_t tokens[10];
    qn_test_tokens(2, tokens, 10);
    float first[10 * WIDTH], second[10 * WIDTH];
    qn_test_compute(a, 0, tokens, 10, 0, 0, first);
    qn_test_compute(b, 1, tokens, 10, 0, 3, second);
    qn_test_same_rows(first, second, 10, "two contexts");
    qn_context_free(a);
    qn_context_free(b);
    qn_device_free(device);
    qn_model_free(model);
}

typedef struct countdown {
    int32_t left;
    int32_t asked;
} countdown;

static bool count_down(void *user)
{
    countdown *c = user;
    c->asked++;
    return c->left-- == 0;
}

/* Stopped at every step: finished micro-batches stay, and going on from there is exact. */
static void test_abort_at_every_step(void **state)
{
    (void)state;
    static const qn_test_tiny_kind kinds[] = {QN_TEST_TINY_LLAMA, QN_TEST_TINY_GEMMA3};
    enum { STRIDE = QN_TEST_LIGHT ? 5 : 1 };
    for (size_t k = 0; k < 2; k++) {
        qn_model *model = qn_test_model(kinds[k], QN_TYPE_F32, 2);
        countdown c = {-1, 0};
        qn_context_options o = qn_test_context_options();
        o.n_ubatch = 8;
        o.abort = count_down;
        o.abort_user = &c;
        qn_context *ctx = qn_test_context(model, &o);
        int32_t tokens[20];
        qn_test_tokens(3, tokens, 20);
        float want[20 * WIDTH], got[20 * WIDTH];
        qn_test_compute(ctx, 0, tokens, 20, 0, 0, want);
        int32_t steps = c.asked, stopped = 0;
        assert_true(steps >= 3 * 2); /* at least once a layer */
        for (int32_t at = 0; at < steps; at += STRIDE) {
            qn_context_clear(ctx);
            c = (countdown){at, 0};
            qn_batch batch = qn_batch_of(tokens, 20);
            qn_status status = qn_context_decode(ctx, &batch, &err);
            if (status == QN_OK) {
                continue; /* which step asks may depend on the threads */
            }
            stopped++;
            assert_int_equal(status, QN_ERR_ABORTED);
            assert_null(qn_context_logits(ctx, -1, &err));
            int32_t held = qn_context_pos_max(ctx, 0) + 1;
            assert_true(held == 0 || held == 8 || held == 16);
            c = (countdown){-1, 0};
            qn_test_compute(ctx, 0, tokens + held, 20 - held, held, 0, got);
            qn_test_same_rows(got, want + (size_t)held * WIDTH, 20 - held, "after an abort");
        }
        assert_true(stopped > steps / STRIDE / 2);
        qn_context_free(ctx);
        qn_model_free(model);
    }
}

/* The first `keep` tokens stay, `drop` go, the rest moves up: with one layer that equals a fresh
 * reading of what is left. */
static void test_shift_of_one_layer_is_exact(void **state)
{
    (void)state;
    static const qn_test_tiny_kind kinds[] = {QN_TEST_TINY_LLAMA, QN_TEST_TINY_QWEN3MOE};
    for (size_t k = 0; k < 2; k++) {
        qn_model *model = qn_test_model(kinds[k], QN_TYPE_F32, 1);
        qn_context_options o = qn_test_context_options();
        o.type_k = o.type_v = QN_TYPE_F32;
        qn_context *ctx = qn_test_context(model, &o);
        assert_true(qn_context_can_shift(ctx));
        enum { TOTAL = 90, KEEP = 10, DROP = 37 };
        int32_t tokens[TOTAL + 1], left[TOTAL + 1];
        static float rows[(TOTAL + 1) * WIDTH];
        float want[WIDTH];
        qn_test_tokens(4, tokens, TOTAL + 1);
        memcpy(left, tokens, KEEP * sizeof *left);
        memcpy(left + KEEP, tokens + KEEP + DROP, (TOTAL + 1 - KEEP - DROP) * sizeof *left);
        qn_test_compute(ctx, 1, left, TOTAL + 1 - DROP, 0, 0, rows);
        memcpy(want, rows + (size_t)(TOTAL - DROP) * WIDTH, sizeof want);

        qn_test_compute(ctx, 0, tokens, TOTAL, 0, 0, rows);
        qn_test_ok(qn_context_seq_cp(ctx, 0, 2, 0, -1, &err), err);
        qn_test_ok(qn_context_seq_rm(ctx, 0, KEEP, KEEP + DROP, &err), err);
        qn_test_ok(qn_context_seq_add(ctx, 0, KEEP + DROP, -1, -DROP, &err), err);
        assert_int_equal(qn_context_pos_max(ctx, 0), TOTAL - 1 - DROP);
        qn_test_compute(ctx, 0, tokens + TOTAL, 1, TOTAL - DROP, 0, rows);
        assert_true(qn_test_nmse(rows, want, WIDTH) < 1e-10);

        /* The same in two moves, on a copy whose memory was shared. */
        qn_test_ok(qn_context_seq_rm(ctx, 2, KEEP, KEEP + DROP, &err), err);
        qn_test_ok(qn_context_seq_add(ctx, 2, KEEP + DROP, -1, -10, &err), err);
        qn_test_ok(qn_context_seq_add(ctx, 2, KEEP + DROP - 10, -1, 10 - DROP, &err), err);
        qn_test_compute(ctx, 2, tokens + TOTAL, 1, TOTAL - DROP, 0, rows);
        assert_true(qn_test_nmse(rows, want, WIDTH) < 1e-10);
        qn_context_free(ctx);
        qn_model_free(model);
    }
}

static void test_bad_sequence_ids(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 1);
    qn_context *ctx = qn_test_context(model, NULL);
    static const int32_t bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        int32_t s = bad[i];
        assert_int_equal(qn_context_seq_cp(ctx, s, 0, 0, -1, &err), QN_ERR_ARGUMENT);
        assert_int_equal(qn_context_seq_cp(ctx, 0, s, 0, -1, &err), QN_ERR_ARGUMENT);
        assert_int_equal(qn_context_seq_keep(ctx, s, &err), QN_ERR_ARGUMENT);
        assert_int_equal(qn_context_seq_add(ctx, s, 0, -1, 1, &err), QN_ERR_ARGUMENT);
        assert_int_equal(qn_context_pos_min(ctx, s), -1);
        assert_int_equal(qn_context_pos_max(ctx, s), -1);
        assert_false(qn_context_can_resume(ctx, s, 0));
    }
    assert_int_equal(qn_context_seq_rm(ctx, 4, 0, -1, &err), QN_ERR_ARGUMENT);
    qn_test_ok(qn_context_seq_rm(ctx, -1, 0, -1, &err), err);
    assert_int_equal(qn_context_state_size(ctx, 4), 0);
    qn_context_free(ctx);
    qn_model_free(model);
}

/* A window of 16 with little kept behind it: a far tail cannot be taken back, and nothing changes.
 */
static void test_window_refuses_what_it_cannot(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_GEMMA3, QN_TYPE_F32, 0);
    qn_context_options o = qn_test_context_options();
    o.window_slack = 4;
    o.n_ubatch = 16;
    qn_context *ctx = qn_test_context(model, &o);
    enum { TOTAL = 200 };
    int32_t tokens[TOTAL];
    static float want[TOTAL * WIDTH], got[TOTAL * WIDTH];
    qn_test_tokens(8, tokens, TOTAL);
    qn_test_compute(ctx, 0, tokens, TOTAL, 0, 0, want);
    int32_t first = 1; /* at 0 nothing is needed */
    while (first < TOTAL && !qn_context_can_resume(ctx, 0, first)) {
        first++;
    }
    assert_in_range(first, 2, TOTAL - 4);
    assert_int_equal(qn_context_seq_rm(ctx, 0, first - 1, -1, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_pos_max(ctx, 0), TOTAL - 1);
    qn_test_ok(qn_context_seq_rm(ctx, 0, first, -1, &err), err);
    qn_test_compute(ctx, 0, tokens + first, TOTAL - first, first, 0, got);
    qn_test_same_rows(got, want + (size_t)first * WIDTH, TOTAL - first, "resumed window");

    o.full_windows = true; /* and with everything kept any tail goes; the rows are the same */
    qn_context *full = qn_test_context(model, &o);
    qn_test_compute(full, 0, tokens, TOTAL, 0, 0, got);
    qn_test_same_rows(got, want, TOTAL, "full windows");
    qn_test_ok(qn_context_seq_rm(full, 0, 20, -1, &err), err);
    qn_test_compute(full, 0, tokens + 20, TOTAL - 20, 20, 0, got);
    qn_test_same_rows(got, want + (size_t)20 * WIDTH, TOTAL - 20, "full windows, resumed");
    qn_context_free(full);
    qn_context_free(ctx);
    qn_model_free(model);
}

static void ban_all(void *state, qn_candidates *c)
{
    (void)state;
    for (size_t i = 0; i < c->size; i++) {
        c->logits[i] = -INFINITY;
    }
}

static void test_sampling(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 0);
    qn_context *ctx = qn_test_context(model, NULL);
    qn_sampler *greedy = qn_sampler_greedy(&err);
    int32_t tokens[3] = {1, 2, 3}, token = 0;
    assert_int_equal(qn_context_sample(ctx, greedy, -1, &token, &err), QN_ERR_NOT_FOUND);
    assert_int_equal(token, QN_TOKEN_NONE);
    qn_batch batch = qn_batch_of(tokens, 3);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_test_ok(qn_context_sample(ctx, greedy, -1, &token, &err), err);
    const float *row = qn_context_logits(ctx, -1, &err);
    for (int32_t i = 0; i < WIDTH; i++) {
        assert_true(row[i] < row[token] || i >= token);
        assert_true(row[i] <= row[token]);
    }
    /* The same seed gives the same text, and looking twice costs nothing. */
    qn_sampling_options o = qn_sampling_defaults();
    o.seed = 7;
    o.temperature = 3.0F;
    int32_t text[2][30];
    for (int round = 0; round < 2; round++) {
        qn_sampler *s = qn_sampler_from_options(&o, &err);
        qn_context_clear(ctx);
        batch = qn_batch_of(tokens, 3);
        for (int i = 0; i < 30; i++) {
            qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
            qn_test_ok(qn_context_sample(ctx, s, -1, &text[round][i], &err), err);
            batch = qn_batch_of(&text[round][i], 1);
        }
        qn_sampler_free(s);
    }
    assert_memory_equal(text[0], text[1], sizeof text[0]);

    static const qn_sampler_interface ban_fns = {.apply = ban_all};
    qn_sampler *chain = qn_sampler_chain(&err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_make(&ban_fns, NULL, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(1, &err), &err), err);
    assert_int_equal(qn_context_sample(ctx, chain, -1, &token, &err), QN_ERR_NOT_FOUND);
    assert_int_equal(token, QN_TOKEN_NONE);
    qn_sampler_free(chain);
    qn_sampler_free(greedy);
    qn_context_free(ctx);
    qn_model_free(model);
}

/* Shapes that were seen are not planned again; the counters tell. */
static void test_counters(void **state)
{
    (void)state;
    qn_model *model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 1);
    qn_context *ctx = qn_test_context(model, NULL);
    int32_t tokens[50];
    qn_test_tokens(1, tokens, 50);
    qn_batch batch = qn_batch_of(tokens, 50);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_context_reset_counters(ctx);
    for (int i = 0; i < 40; i++) {
        batch = qn_batch_of(tokens + i, 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    }
    batch = qn_batch_of(tokens, 50);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_counters c = qn_context_counters(ctx);
    assert_int_equal(c.n_plans_made, 0); /* one token: made with the context; 50: made above */
    assert_int_equal(c.n_plans_reused, 41);
    assert_int_equal(c.n_generation_tokens, 40);
    assert_int_equal(c.n_prompt_tokens, 50);
    assert_int_equal(c.n_decodes, 41);
    assert_int_equal(c.n_micro_batches, 41);
    assert_true(c.prompt_ms > 0 && c.generation_ms > 0);
    /* More shapes than the cache holds: plans are made and dropped, rows stay right. */
    float want[50 * WIDTH], got[50 * WIDTH];
    qn_context_clear(ctx);
    qn_test_compute(ctx, 0, tokens, 50, 0, 0, want);
    for (int32_t cut = 1; cut < 50; cut += QN_TEST_LIGHT ? 4 : 1) {
        qn_context_clear(ctx);
        qn_test_compute(ctx, 0, tokens, 50, 0, cut, got);
        qn_test_same_rows(got, want, 50, "many shapes");
    }
    qn_context_free(ctx);
    qn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_shared_device),
        cmocka_unit_test(test_abort_at_every_step),
        cmocka_unit_test(test_shift_of_one_layer_is_exact),
        cmocka_unit_test(test_bad_sequence_ids),
        cmocka_unit_test(test_window_refuses_what_it_cannot),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
