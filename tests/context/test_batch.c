/* What a batch may hold: every rule, once broken. A refused batch changes nothing. */
#include "support/engine.h"

#define WIDTH QN_TEST_TINY_VOCAB
#define SEQS  4

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

static const int32_t text[16] = {5, 9, 200, 7, 7, 31, 2, 100, 90, 3, 77, 6, 1, 0, 12, 13};

/* Sequence 0 holds 10 tokens, 1 holds 3, 2 holds the same 3 shared, 3 none. */
static qn_context *make_filled(void)
{
    qn_context_options o = qn_test_context_options();
    o.n_batch = 12;
    o.n_outputs_max = 4;
    qn_context *ctx = qn_test_context(model, &o);
    qn_batch first = {.n_tokens = 10, .tokens = text};
    qn_test_ok(qn_context_decode(ctx, &first, &err), err);
    static const int32_t ones[3] = {1, 1, 1};
    qn_batch second = {.n_tokens = 3, .tokens = text, .seq_id = ones};
    qn_test_ok(qn_context_decode(ctx, &second, &err), err);
    qn_test_ok(qn_context_seq_cp(ctx, 1, 2, 0, -1, &err), err);
    return ctx;
}

typedef struct fingerprint {
    int32_t low[SEQS], high[SEQS];
    size_t size;
    uint8_t *state;
} fingerprint;

static fingerprint look(const qn_context *ctx)
{
    fingerprint f;
    size_t written;
    for (int32_t s = 0; s < SEQS; s++) {
        f.low[s] = qn_context_pos_min(ctx, s);
        f.high[s] = qn_context_pos_max(ctx, s);
    }
    f.size = qn_context_state_size(ctx, -1);
    f.state = malloc(f.size);
    qn_test_ok(qn_context_state_get(ctx, -1, f.state, f.size, &written, &err), err);
    return f;
}

static void expect_refused(const qn_batch *batch, const char *what)
{
    qn_context *ctx = make_filled();
    fingerprint before = look(ctx);
    err = (qn_error){0};
    qn_status status = qn_context_decode(ctx, batch, &err);
    if (status != QN_ERR_ARGUMENT || err.message[0] == 0) {
        fail_msg("%s: %s (%s)", what, qn_status_name(status), err.message);
    }
    fingerprint after = look(ctx);
    assert_memory_equal(before.low, after.low, sizeof before.low);
    assert_memory_equal(before.high, after.high, sizeof before.high);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.state, after.state, before.size);
    free(before.state);
    free(after.state);
    assert_null(qn_context_logits(ctx, -1, &err)); /* no rows of a refused batch */
    assert_int_equal(qn_context_n_outputs(ctx), 0);
    qn_batch good = {.n_tokens = 2, .tokens = text};
    qn_test_ok(qn_context_decode(ctx, &good, &err), err);
    assert_int_equal(qn_context_pos_max(ctx, 0), 11);
    qn_context_free(ctx);
}

static void test_sizes(void **state)
{
    (void)state;
    expect_refused(&(qn_batch){.n_tokens = 0, .tokens = text}, "no tokens");
    expect_refused(&(qn_batch){.n_tokens = -1, .tokens = text}, "negative count");
    expect_refused(&(qn_batch){.n_tokens = 13, .tokens = text}, "more than n_batch");
    expect_refused(&(qn_batch){.n_tokens = 1}, "neither tokens nor embeddings");
    static const float embedding[1024];
    expect_refused(&(qn_batch){.n_tokens = 1, .tokens = text, .embeddings = embedding}, "both");
    static const int32_t one = 1;
    expect_refused(&(qn_batch){.n_tokens = 1, .tokens = text, .n_seq_id = &one}, "no seq_id");
}

static void test_token_ids(void **state)
{
    (void)state;
    const int32_t negative[2] = {1, -1}, large[2] = {WIDTH, 1};
    expect_refused(&(qn_batch){.n_tokens = 2, .tokens = negative}, "negative token");
    expect_refused(&(qn_batch){.n_tokens = 2, .tokens = large}, "token beyond the vocabulary");
}

static void test_sequence_ids(void **state)
{
    (void)state;
    const int32_t large[2] = {0, SEQS}, negative[2] = {-1, 0};
    expect_refused(&(qn_batch){.n_tokens = 2, .tokens = text, .seq_id = large}, "id too large");
    expect_refused(&(qn_batch){.n_tokens = 2, .tokens = text, .seq_id = negative}, "negative id");
    const int32_t twice[2] = {3, 3}, two = 2, none = 0, many = SEQS + 1;
    qn_batch batch = {.n_tokens = 1, .tokens = text, .n_seq_id = &two, .seq_id = twice};
    expect_refused(&batch, "the same id twice");
    batch.n_seq_id = &none;
    expect_refused(&batch, "no ids");
    batch.n_seq_id = &many;
    expect_refused(&batch, "more ids than there are");
}

static void test_positions(void **state)
{
    (void)state;
    static const struct {
        int32_t pos[3], seq;
        const char *what;
    } bad[] = {
        {{11, 12, 13}, 0, "gap after the memory"},
        {{9, 10, 11}, 0, "overlap with the memory"},
        {{0, 1, 2}, 0, "from the start again"},
        {{10, 12, 13}, 0, "gap inside"},
        {{10, 11, 11}, 0, "the same position twice"},
        {{11, 10, 12}, 0, "out of order"},
        {{-1, 0, 1}, 3, "negative"},
        {{1 << 30, (1 << 30) + 1, (1 << 30) + 2}, 3, "beyond all bounds"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t seq[3] = {bad[i].seq, bad[i].seq, bad[i].seq};
        qn_batch batch = {.n_tokens = 3, .tokens = text, .pos = bad[i].pos, .seq_id = seq};
        expect_refused(&batch, bad[i].what);
    }
    qn_context *ctx = make_filled(); /* an empty sequence starts anywhere */
    const int32_t pos[2] = {7, 8}, seq[2] = {3, 3};
    qn_batch batch = {.n_tokens = 2, .tokens = text, .pos = pos, .seq_id = seq};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    assert_int_equal(qn_context_pos_min(ctx, 3), 7);
    assert_int_equal(qn_context_pos_max(ctx, 3), 8);
    qn_context_free(ctx);
}

static void test_coupled_sequences(void **state)
{
    (void)state;
    const int32_t two = 2, diverged[2] = {0, 1}, pos = 10;
    qn_batch batch = {.n_tokens = 1, .tokens = text, .n_seq_id = &two, .seq_id = diverged};
    expect_refused(&batch, "sequences of different length");
    batch.pos = &pos;
    expect_refused(&batch, "the same with a position");

    qn_context *ctx = make_filled(); /* 1 and 2 hold the same */
    const int32_t same[2] = {1, 2};
    batch = (qn_batch){.n_tokens = 1, .tokens = text, .n_seq_id = &two, .seq_id = same};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    assert_int_equal(qn_context_pos_max(ctx, 1), 3);
    assert_int_equal(qn_context_pos_max(ctx, 2), 3);
    assert_int_equal(qn_context_pos_max(ctx, 0), 9);
    qn_context_free(ctx);
}

static void test_sequences_only_part(void **state)
{
    (void)state;
    const int32_t counts[3] = {2, 1, 2}, again[5] = {1, 2, 1, 1, 2};
    expect_refused(&(qn_batch){.n_tokens = 3, .tokens = text, .n_seq_id = counts, .seq_id = again},
                   "part and join");
    const int32_t counts2[2] = {1, 2}, joined[3] = {1, 1, 2}, pos[2] = {3, 4};
    expect_refused(
        &(qn_batch){
            .n_tokens = 2, .tokens = text, .pos = pos, .n_seq_id = counts2, .seq_id = joined},
        "a set that grows");
    const int32_t branch_counts[4] = {2, 1, 1, 1}, branch[5] = {1, 2, 1, 2, 1};
    qn_context *ctx = make_filled();
    qn_batch batch = {.n_tokens = 4, .tokens = text, .n_seq_id = branch_counts, .seq_id = branch};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    assert_int_equal(qn_context_pos_max(ctx, 1), 5);
    assert_int_equal(qn_context_pos_max(ctx, 2), 4);
    qn_context_free(ctx);
}

static void test_outputs(void **state)
{
    (void)state;
    const int8_t all[8] = {1, 1, 0, 1, 0, 1, 0, 1};
    expect_refused(&(qn_batch){.n_tokens = 8, .tokens = text, .output = all}, "too many rows");

    qn_context *ctx = make_filled();
    const int8_t none[3] = {0, 0, 0};
    qn_batch batch = {.n_tokens = 3, .tokens = text, .output = none};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    assert_int_equal(qn_context_n_outputs(ctx), 0);
    assert_null(qn_context_logits(ctx, -1, &err));
    assert_string_equal(err.message, "there are no output rows");
    batch.output = NULL; /* the last one */
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    assert_int_equal(qn_context_n_outputs(ctx), 1);
    assert_non_null(qn_context_logits(ctx, 2, &err));
    assert_ptr_equal(qn_context_logits(ctx, -1, &err), qn_context_logits(ctx, 2, &err));
    static const int32_t wrong[] = {0, 1, 3, -2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (qn_error){0};
        assert_null(qn_context_logits(ctx, wrong[i], &err));
        assert_int_equal(err.code, QN_ERR_NOT_FOUND);
    }
    assert_null(qn_context_embeddings(ctx, -1, &err));
    qn_context_set_embeddings(ctx, true); /* now all tokens are outputs */
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    assert_int_equal(qn_context_n_outputs(ctx), 3);
    assert_non_null(qn_context_embeddings(ctx, 0, &err));
    qn_context_free(ctx);
}

static void test_full_changes_nothing(void **state)
{
    (void)state;
    qn_context_options o = qn_test_context_options();
    o.n_ctx = 256;
    o.n_seq_max = 1;
    qn_context *ctx = qn_test_context(model, &o);
    int32_t tokens[256];
    qn_test_tokens(1, tokens, 256);
    int32_t held = 0;
    qn_status status = QN_OK;
    while (status == QN_OK) {
        qn_batch batch = qn_batch_of(tokens, 50);
        status = qn_context_decode(ctx, &batch, &err);
        held += status == QN_OK ? 50 : 0;
    }
    assert_int_equal(status, QN_ERR_FULL);
    assert_in_range(held, 250, 350); /* at least n_ctx in whole batches */
    assert_int_equal(qn_context_pos_max(ctx, 0), held - 1);
    qn_test_ok(qn_context_seq_rm(ctx, 0, 0, -1, &err), err);
    qn_batch batch = qn_batch_of(tokens, 50);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_context_free(ctx);
}

/* Rows of the embedding table as input give the rows of the ids. */
static void test_embeddings_as_input(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    int32_t width = qn_model_n_embd(model);
    float *rows = calloc((size_t)(4 * width), sizeof *rows);
    qn_test_random r = {4};
    for (int32_t i = 0; i < 4 * width; i++) {
        rows[i] = qn_test_normal(&r);
    }
    float want[WIDTH];
    qn_batch batch = {.n_tokens = 4, .embeddings = rows};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    memcpy(want, qn_context_logits(ctx, -1, &err), sizeof want);
    qn_context_clear(ctx);
    for (int32_t i = 0; i < 4; i++) { /* one by one */
        batch = (qn_batch){.n_tokens = 1, .embeddings = rows + i * width};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    }
    qn_test_same_rows(qn_context_logits(ctx, 0, &err), want, 1, "embeddings");
    free(rows);
    qn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_sequence_ids),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_coupled_sequences),
        cmocka_unit_test(test_sequences_only_part),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_full_changes_nothing),
        cmocka_unit_test(test_embeddings_as_input),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
