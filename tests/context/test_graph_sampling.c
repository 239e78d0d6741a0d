/*
 * Chains attached to sequences: the tokens are those of the same chain applied outside, however
 * many rows, sequences, threads and micro-batches there are; draws are consumed by accepting alone.
 */
#include "support/engine.h"
#include "support/random_chain.h"

#include <math.h>

static qn_error err;
static qn_model *model;

#define WIDTH QN_TEST_TINY_VOCAB

static int32_t decode(qn_context *ctx, int32_t seq, const int32_t *tokens, int32_t n,
                      const int8_t *output)
{
    int32_t ids[512];
    for (int32_t i = 0; i < n; i++) {
        ids[i] = seq;
    }
    qn_batch batch = {.n_tokens = n, .tokens = tokens, .seq_id = ids, .output = output};
    return qn_context_decode(ctx, &batch, &err);
}

static void prompt(qn_context *ctx, int32_t seq)
{
    int32_t tokens[9];
    qn_test_tokens(3, tokens, 9);
    qn_test_ok(decode(ctx, seq, tokens, 9, NULL), err);
}

/* Makes n tokens behind a prompt with a chain, in the graph or outside. */
static void generate(qn_context *ctx, qn_sampler *chain, bool in_graph, int32_t *out, int32_t n)
{
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, in_graph ? chain : NULL, &err), err);
    prompt(ctx, 0);
    for (int32_t i = 0; i < n; i++) {
        qn_status status = qn_context_sample(ctx, in_graph ? NULL : chain, -1, &out[i], &err);
        if (status != QN_OK) { /* a chain that does not pick */
            assert_int_equal(status, QN_ERR_NOT_FOUND);
            out[i] = -1;
        }
        int32_t next = out[i] < 0 ? i : out[i];
        qn_test_ok(decode(ctx, 0, &next, 1, NULL), err);
    }
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
}

static void test_random_chains(void **state)
{
    (void)state;
    enum { N = 6 };
    qn_context *outside = qn_test_context(model, NULL);
    qn_context_options o = qn_test_context_options();
    o.n_threads = o.n_threads_batch = 2;
    o.keep_candidates = true;
    qn_context *inside = qn_test_context(model, &o);
    qn_test_random r = {99};
    for (int i = 0; i < 60; i++) {
        qn_sampler *a = qn_test_random_chain(&r);
        if (i % 3 == 0) { /* a sampler of one's own somewhere: the end runs outside */
            qn_sampler *own = qn_test_own_sampler(3), *moved[16];
            size_t at = qn_test_bits(&r) % (qn_sampler_chain_size(a) + 1), n = 0;
            while (qn_sampler_chain_size(a) > at) {
                moved[n++] = qn_sampler_chain_remove(a, at);
            }
            qn_test_ok(qn_sampler_chain_add(a, own, &err), err);
            for (size_t k = 0; k < n; k++) {
                qn_test_ok(qn_sampler_chain_add(a, moved[k], &err), err);
            }
        }
        qn_sampler *b = qn_sampler_clone(a, &err);
        int32_t want[N], got[N];
        generate(outside, a, false, want, N);
        generate(inside, b, true, got, N);
        for (int k = 0; k < N; k++) {
            if (want[k] != got[k]) {
                fail_msg("chain %d, token %d: %d in the graph, %d outside", i, k, got[k], want[k]);
            }
        }
        qn_sampler_free(a);
        qn_sampler_free(b);
    }
    qn_context_free(inside);
    qn_context_free(outside);
}

/* Several outputs of several sequences with different chains, one of them without; any cut. */
enum { N_SEQ = 4, N_ROWS = 5, N_TOKENS = 40 };

static qn_sampler *chain_number(int32_t seq)
{
    qn_test_random r = {(uint64_t)seq + 5};
    if (seq == 0) {
        qn_sampling_options o = qn_sampling_defaults();
        o.seed = 88;
        return qn_sampler_from_options(&o, &err);
    }
    qn_sampler *chain = qn_test_chain_of(qn_sampler_temp(seq == 1 ? 10.0F : 0.5F, &err));
    if (seq == 3) {
        qn_test_ok(qn_sampler_chain_add(chain, qn_test_own_sampler(2), &err), err);
    }
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(qn_test_bits(&r), &err), &err), err);
    return chain;
}

static void sample_all(int32_t n_ubatch, int32_t n_threads, const char *isa, bool attach,
                       int32_t *out)
{
    qn_context_options o = qn_test_context_options();
    o.n_ubatch = n_ubatch;
    o.n_threads = o.n_threads_batch = n_threads;
    o.isa = isa;
    o.n_outputs_max_per_seq = N_ROWS;
    qn_context *ctx = qn_test_context(model, &o);
    qn_sampler *chains[N_SEQ];
    int32_t tokens[N_TOKENS], ids[N_TOKENS];
    int8_t output[N_TOKENS];
    qn_test_tokens(11, tokens, N_TOKENS);
    for (int32_t s = 0; s < N_SEQ; s++) {
        chains[s] = chain_number(s);
        if (attach && s != 2) {
            qn_test_ok(qn_context_set_sampler(ctx, s, chains[s], &err), err);
        }
    }
    for (int32_t i = 0; i < N_TOKENS; i++) {
        ids[i] = i % N_SEQ;
        output[i] = (int8_t)(i / N_SEQ % 2); /* five of the ten of each */
    }
    for (int round = 0; round < 2; round++) {
        qn_batch batch = {.n_tokens = N_TOKENS, .tokens = tokens, .seq_id = ids, .output = output};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        for (int32_t i = 0; i < N_TOKENS; i++) {
            if (output[i]) {
                qn_sampler *given = attach && ids[i] % 2 ? NULL : chains[ids[i]];
                qn_test_ok(qn_context_sample(ctx, given, i, out++, &err), err);
                bool raw = !attach || ids[i] == 2;
                assert_int_equal(qn_context_logits(ctx, i, &err) != NULL, raw);
                int32_t whole = raw || ids[i] == 3 ? QN_TOKEN_NONE : out[-1];
                assert_int_equal(qn_context_sampled(ctx, i, &err), whole);
            }
        }
    }
    qn_context_free(ctx);
    for (int32_t s = 0; s < N_SEQ; s++) {
        qn_sampler_free(chains[s]);
    }
}

static void test_rows_and_cuts(void **state)
{
    (void)state;
    enum { N = 2 * N_SEQ * N_ROWS };
    int32_t want[N], got[N];
    sample_all(0, 1, NULL, false, want);
    static const struct {
        int32_t n_ubatch, n_threads;
        const char *isa;
    } cases[] = {{0, 1, NULL}, {0, 2, NULL},     {0, 7, NULL},     {2, 1, NULL},
                 {7, 2, NULL}, {0, 2, "scalar"}, {1, 1, "scalar"}, {1, 7, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sample_all(cases[i].n_ubatch, cases[i].n_threads, cases[i].isa, true, got);
        assert_memory_equal(got, want, sizeof want);
    }
}

/* Draws as a transaction: rows that are not accepted, failing decodes and copies of the chain. */
static void test_transaction(void **state)
{
    (void)state;
    qn_context_options o = qn_test_context_options();
    o.n_outputs_max_per_seq = 3;
    o.n_ubatch = 2;
    o.keep_candidates = true;
    qn_context *ctx = qn_test_context(model, &o);
    qn_sampler *chain = qn_test_chain_of(qn_sampler_temp(10.0F, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(95, &err), &err), err);
    qn_sampler *outside = qn_sampler_clone(chain, &err);
    qn_test_ok(qn_context_set_sampler(ctx, 0, chain, &err), err);
    const int32_t tokens[4] = {5, 6, 7, 8};
    const int8_t all[4] = {1, 1, 1, 1};
    int32_t want[4], token;
    qn_candidates *c = qn_candidates_make(WIDTH, &err);
    /* the tokens of the rows with the chain's numbers in order */
    qn_context *plain = qn_test_context(model, NULL);
    qn_test_ok(decode(plain, 0, tokens, 3, all), err);
    const float *row = qn_context_logits(plain, 0, &err);
    for (int i = 0; i < 4; i++) { /* of row 0 with number i */
        qn_candidates_fill(c, row, WIDTH);
        qn_sampler_apply(outside, c);
        want[i] = c->ids[c->selected];
        qn_test_ok(qn_sampler_accept(outside, want[i], true, &err), err);
    }
    for (int again = 0; again < 3; again++) { /* (a), (b): nothing accepted, the first number */
        qn_context_clear(ctx);
        qn_test_ok(decode(ctx, 0, tokens, 3, all), err);
        assert_int_equal(qn_context_sampled(ctx, 0, &err), want[0]);
        assert_int_equal(decode(ctx, 0, tokens, 4, all), QN_ERR_ARGUMENT); /* over the limit */
        assert_non_null(strstr(err.message, "n_outputs_max_per_seq"));
        assert_int_equal(qn_context_pos_max(ctx, 0), 2);
    }
    qn_context_clear(ctx);
    qn_test_ok(decode(ctx, 0, tokens, 3, all), err);
    for (int i = 0; i < 2; i++) {
        qn_test_ok(qn_context_sample(ctx, NULL, i, &token, &err), err);
    }
    qn_context_clear(ctx); /* (c) two were accepted: the third number */
    qn_test_ok(decode(ctx, 0, tokens, 3, all), err);
    assert_int_equal(qn_context_sampled(ctx, 0, &err), want[2]);
    qn_sampler *saved = qn_sampler_clone(chain, &err);
    qn_test_ok(qn_context_sample(ctx, NULL, 0, &token, &err), err);
    qn_test_ok(qn_sampler_copy(chain, saved, &err), err);
    qn_context_clear(ctx); /* (d) copied back: the third again */
    qn_test_ok(decode(ctx, 0, tokens, 3, all), err);
    assert_int_equal(qn_context_sampled(ctx, 0, &err), want[2]);
    assert_int_equal(qn_context_pos_max(ctx, 0), 2);
    qn_context_free(plain);
    qn_context_free(ctx);
    qn_candidates_free(c);
    qn_sampler_free(saved);
    qn_sampler_free(outside);
    qn_sampler_free(chain);
}

static bool say_stop(void *user)
{
    int *countdown = user;
    return *countdown > 0 && --*countdown == 0;
}

/* A decode that is aborted changes no later token. */
static void test_aborted(void **state)
{
    (void)state;
    enum { N = 5 };
    int32_t want[N], got[N], countdown = 0;
    qn_context_options o = qn_test_context_options();
    o.abort = say_stop;
    o.abort_user = &countdown;
    qn_context *ctx = qn_test_context(model, &o);
    qn_sampler *chain = qn_test_chain_of(qn_sampler_dist(4, &err));
    qn_sampler *again = qn_sampler_clone(chain, &err);
    generate(ctx, again, true, want, N);
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, chain, &err), err);
    prompt(ctx, 0);
    for (int i = 0; i < N; i++) {
        qn_test_ok(qn_context_sample(ctx, NULL, -1, &got[i], &err), err);
        countdown = 3;
        assert_int_equal(decode(ctx, 0, &got[i], 1, NULL), QN_ERR_ABORTED);
        assert_int_equal(qn_context_n_outputs(ctx), 0);
        qn_test_ok(decode(ctx, 0, &got[i], 1, NULL), err);
    }
    assert_memory_equal(got, want, sizeof want);
    qn_context_free(ctx);
    qn_sampler_free(chain);
    qn_sampler_free(again);
}

static qn_row_candidates candidates_of(qn_context *ctx, int32_t i)
{
    qn_row_candidates c;
    qn_test_ok(qn_context_candidates(ctx, i, &c, &err), err);
    return c;
}

/* What each chain leaves of a row. */
static void test_candidates(void **state)
{
    (void)state;
    qn_context_options o = qn_test_context_options();
    o.keep_candidates = true;
    qn_context *ctx = qn_test_context(model, &o);
    const struct {
        qn_sampler *first;
        size_t low, high;
        bool token, probs;
    } cases[] = {
        {qn_sampler_greedy(&err), WIDTH, WIDTH, true, false},
        {qn_sampler_dist(88, &err), WIDTH, WIDTH, true, true},
        {qn_sampler_top_k(8, &err), 8, 8, false, false},
        {qn_sampler_temp(0.8F, &err), WIDTH, WIDTH, false, false},
        {qn_sampler_min_p(0.9F, 0, &err), 1, WIDTH - 1, false, false},
        {qn_sampler_top_p(0.9F, 0, &err), 1, WIDTH - 1, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_sampler *chain = qn_test_chain_of(cases[i].first);
        qn_context_clear(ctx);
        qn_test_ok(qn_context_set_sampler(ctx, 0, chain, &err), err);
        prompt(ctx, 0);
        qn_row_candidates c = candidates_of(ctx, -1);
        assert_in_range(c.count, cases[i].low, cases[i].high);
        int32_t token = qn_context_sampled(ctx, 8, &err);
        assert_int_equal(token >= 0, cases[i].token);
        assert_int_equal(token, qn_context_sampled(ctx, -1, &err));
        assert_int_equal(c.probs != NULL, cases[i].probs);
        double sum = 0;
        for (size_t k = 0; c.probs && k < c.count; k++) {
            sum += (double)c.probs[k];
        }
        assert_true(!c.probs || fabs(sum - 1) < 1e-5);
        if (!cases[i].token) { /* another sampler goes on from there */
            qn_sampler *dist = qn_sampler_dist(1, &err);
            assert_int_equal(qn_context_sample(ctx, NULL, -1, &token, &err), QN_ERR_NOT_FOUND);
            qn_test_ok(qn_context_sample(ctx, dist, -1, &token, &err), err);
            bool found = false;
            for (size_t k = 0; k < c.count; k++) {
                found = found || c.ids[k] == token;
            }
            assert_true(found);
            qn_sampler_free(dist);
        }
        qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
        assert_int_equal(qn_context_candidates(ctx, -1, &c, &err), QN_ERR_NOT_FOUND);
        assert_non_null(strstr(err.message, "not attached any more"));
        qn_sampler_free(chain);
    }
    qn_context_free(ctx);
}

/* The graph's choice wins over another chain; only a token comes back where nothing else is asked
 * for; attaching and detaching between decodes; no new plans for another chain. */
static void test_attaching(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    qn_sampler *greedy = qn_test_chain_of(qn_sampler_temp(0.0F, &err));
    qn_sampler *dist = qn_test_chain_of(qn_sampler_dist(88, &err));
    qn_sampler *other = qn_test_chain_of(qn_sampler_dist(5, &err));
    qn_test_ok(qn_sampler_chain_add(greedy, qn_sampler_greedy(&err), &err), err);
    qn_row_candidates c;
    int32_t token, sampled, next = 1;
    qn_test_ok(qn_context_set_sampler(ctx, 0, dist, &err), err);
    assert_ptr_equal(qn_context_get_sampler(ctx, 0), dist);
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(dist, 0)), "+dist");
    prompt(ctx, 0);
    sampled = qn_context_sampled(ctx, -1, &err);
    qn_test_ok(qn_context_sample(ctx, other, -1, &token, &err), err);
    assert_int_equal(token, sampled);
    assert_int_equal(qn_context_candidates(ctx, -1, &c, &err), QN_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "keep_candidates"));
    assert_null(qn_context_logits(ctx, -1, &err));
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    assert_null(qn_context_get_sampler(ctx, 0));
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(dist, 0)), "dist");
    assert_int_equal(qn_context_sampled(ctx, -1, &err), sampled);
    qn_test_ok(decode(ctx, 0, &next, 1, NULL), err); /* detached: raw logits */
    assert_int_equal(qn_context_sampled(ctx, -1, &err), QN_TOKEN_NONE);
    assert_non_null(qn_context_logits(ctx, -1, &err));
    assert_int_equal(qn_context_sample(ctx, NULL, -1, &token, &err), QN_ERR_ARGUMENT);
    qn_test_ok(qn_context_sample(ctx, other, -1, &token, &err), err);
    qn_test_ok(qn_context_set_sampler(ctx, 0, dist, &err), err);
    qn_test_ok(decode(ctx, 0, &next, 1, NULL), err);
    int64_t plans = qn_context_counters(ctx).n_plans_made;
    qn_test_ok(qn_context_set_sampler(ctx, 0, greedy, &err), err);
    qn_test_ok(decode(ctx, 0, &next, 1, NULL), err);
    assert_int_equal(qn_context_counters(ctx).n_plans_made, plans);
    assert_true(qn_context_sampled(ctx, -1, &err) >= 0);
    qn_context_free(ctx); /* detaches */
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(greedy, 1)), "greedy");
    qn_sampler_free(greedy);
    qn_sampler_free(dist);
    qn_sampler_free(other);
}

static void test_refused(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    qn_sampler *chain = qn_sampler_chain(&err), *lone = qn_sampler_greedy(&err);
    assert_int_equal(qn_context_set_sampler(ctx, -1, NULL, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_set_sampler(ctx, 4, chain, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_set_sampler(ctx, 0, chain, &err), QN_ERR_ARGUMENT); /* empty */
    assert_int_equal(qn_context_set_sampler(ctx, 0, lone, &err), QN_ERR_ARGUMENT);
    qn_test_ok(qn_sampler_chain_add(chain, lone, &err), err);
    qn_test_ok(qn_context_set_sampler(ctx, 0, chain, &err), err);
    assert_int_equal(qn_context_set_sampler(ctx, 1, chain, &err), QN_ERR_ARGUMENT); /* attached */
    assert_ptr_equal(qn_context_get_sampler(ctx, 0), chain);
    assert_null(qn_context_get_sampler(ctx, 1));
    assert_int_equal(qn_context_sampled(ctx, -1, &err), QN_TOKEN_NONE);
    qn_context_free(ctx);
    qn_sampler_free(chain);
    qn_context_options o = qn_test_context_options();
    o.n_outputs_max_per_seq = -1;
    assert_int_equal(qn_context_make(model, &o, &ctx, &err), QN_ERR_ARGUMENT);
    o.n_outputs_max_per_seq = 0;
    o.n_outputs_max = 6;
    ctx = qn_test_context(model, &o);
    assert_int_equal(qn_context_get_options(ctx).n_outputs_max_per_seq, 6);
    qn_context_free(ctx);
}

/* A copy of other settings into an attached chain stays in the memory of those it was made with. */
static void test_copied_settings(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    qn_sampler *few = qn_test_chain_of(qn_sampler_top_k(8, &err));
    qn_sampler *many = qn_test_chain_of(qn_sampler_top_k(60, &err));
    qn_test_ok(qn_context_set_sampler(ctx, 0, few, &err), err);
    qn_test_ok(qn_sampler_copy(few, many, &err), err);
    prompt(ctx, 0);
    assert_int_equal(candidates_of(ctx, -1).count, 8);
    qn_context_free(ctx);
    qn_sampler_free(few);
    qn_sampler_free(many);
}

/* A chain of samplers that are off, or of one's own only: all of it runs outside. */
static void test_nothing_inside(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    qn_sampler *chain = qn_test_chain_of(qn_sampler_temp(1.0F, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_test_own_sampler(2), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(3, &err), &err), err);
    qn_test_ok(qn_context_set_sampler(ctx, 0, chain, &err), err);
    prompt(ctx, 0);
    int32_t token;
    assert_non_null(qn_context_logits(ctx, -1, &err));
    assert_int_equal(qn_context_sampled(ctx, -1, &err), QN_TOKEN_NONE);
    qn_test_ok(qn_context_sample(ctx, NULL, -1, &token, &err), err);
    assert_int_equal(token % 2, 1);
    qn_context_free(ctx);
    qn_sampler_free(chain);
}

static int setup(void **state)
{
    (void)state;
    model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    qn_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains),   cmocka_unit_test(test_rows_and_cuts),
        cmocka_unit_test(test_transaction),     cmocka_unit_test(test_aborted),
        cmocka_unit_test(test_candidates),      cmocka_unit_test(test_attaching),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_nothing_inside),
        cmocka_unit_test(test_copied_settings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
