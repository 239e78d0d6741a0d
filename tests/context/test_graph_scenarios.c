/*
 * What chains in the graph must do, one case after the other: what each kind of chain leaves of a
 * row, sequences with different chains in one batch, attaching and detaching, limits, draws, and a
 * sampler of one's own that ends what runs in the graph. Rows are compared with the same chain
 * applied outside to the raw logits of a second context, bit for bit.
 */
#include "support/engine.h"
#include "support/random_chain.h"

#include <math.h>

static qn_error err;
static qn_model *model;
static qn_context *plain; /* without chains */

#define WIDTH QN_TEST_TINY_VOCAB

enum { N_PROMPT = 9 };

static qn_context *make_context(int32_t n_outputs_max_per_seq, int32_t n_ubatch)
{
    qn_context_options o = qn_test_context_options();
    o.keep_candidates = true;
    o.n_outputs_max_per_seq = n_outputs_max_per_seq;
    o.n_ubatch = n_ubatch;
    return qn_test_context(model, &o);
}

static qn_sampler *chain2(qn_sampler *a, qn_sampler *b)
{
    qn_sampler *chain = qn_test_chain_of(a);
    qn_test_ok(qn_sampler_chain_add(chain, b, &err), err);
    return chain;
}

static void attach(qn_context *ctx, int32_t seq, qn_sampler *chain)
{
    qn_test_ok(qn_context_set_sampler(ctx, seq, chain, &err), err);
}

static qn_status decode(qn_context *ctx, int32_t seq, const int32_t *tokens, int32_t n,
                        const int8_t *output)
{
    int32_t ids[64];
    for (int32_t i = 0; i < n; i++) {
        ids[i] = seq;
    }
    qn_batch batch = {.n_tokens = n, .tokens = tokens, .seq_id = ids, .output = output};
    return qn_context_decode(ctx, &batch, &err);
}

static void prompt(qn_context *ctx, int32_t seq)
{
    int32_t tokens[N_PROMPT];
    qn_test_tokens(3, tokens, N_PROMPT);
    qn_test_ok(decode(ctx, seq, tokens, N_PROMPT, NULL), err);
}

static qn_row_candidates candidates_of(qn_context *ctx, int32_t i)
{
    qn_row_candidates c;
    qn_test_ok(qn_context_candidates(ctx, i, &c, &err), err);
    return c;
}

static size_t n_active(const qn_row_candidates *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        n += c->logits[i] > -INFINITY;
    }
    return n;
}

/* A row that the graph left against the chain applied outside. */
static void same_as_outside(qn_context *ctx, int32_t i, qn_sampler *outside, const float *raw)
{
    qn_candidates *c = qn_candidates_make(WIDTH, &err);
    qn_row_candidates row = candidates_of(ctx, i);
    qn_candidates_fill(c, raw, WIDTH);
    qn_sampler_apply(outside, c);
    assert_int_equal(row.count, c->size);
    assert_memory_equal(row.ids, c->ids, c->size * sizeof *c->ids);
    assert_memory_equal(row.logits, c->logits, c->size * sizeof *c->logits);
    assert_int_equal(row.sorted, c->sorted);
    int32_t token = c->selected >= 0 ? c->ids[c->selected] : QN_TOKEN_NONE;
    assert_int_equal(qn_context_sampled(ctx, i, &err), token);
    qn_candidates_free(c);
}

/* Logits of the prompt's last token. */
static const float *prompt_logits(void)
{
    qn_context_clear(plain);
    prompt(plain, 0);
    return qn_context_logits(plain, -1, &err);
}

/* 1: greedy: the token by place and from the end, ten more steps. */
static void test_greedy(void **state)
{
    (void)state;
    qn_context *ctx = make_context(1, 0);
    qn_sampler *chain = qn_test_chain_of(qn_sampler_greedy(&err)), *outside;
    outside = qn_sampler_clone(chain, &err);
    attach(ctx, 0, chain);
    prompt(ctx, 0);
    (void)prompt_logits();
    for (int i = 0; i < 11; i++) {
        int32_t want, got, at = i == 0 ? N_PROMPT - 1 : 0;
        got = qn_context_sampled(ctx, at, &err);
        assert_int_equal(qn_context_sampled(ctx, -1, &err), got);
        qn_test_ok(qn_context_sample(plain, outside, -1, &want, &err), err);
        assert_int_equal(got, want);
        qn_test_ok(decode(ctx, 0, &got, 1, NULL), err);
        qn_test_ok(decode(plain, 0, &want, 1, NULL), err);
    }
    qn_context_free(ctx);
    qn_sampler_free(chain);
    qn_sampler_free(outside);
}

/* 2 to 5: what is left behind samplers that do not pick; a draw outside goes on from there. */
static void test_left(void **state)
{
    (void)state;
    const struct {
        qn_sampler *first;
        size_t count, least, most; /* left; not banned */
    } cases[] = {
        {qn_sampler_top_k(8, &err), 8, 8, 8},
        {qn_sampler_temp(0.8F, &err), WIDTH, WIDTH, WIDTH},
        {qn_sampler_temp(0.1F, &err), WIDTH, WIDTH, WIDTH},
        {qn_sampler_temp(0.0F, &err), WIDTH, 1, 1},
        {qn_sampler_temp(-1.0F, &err), WIDTH, 1, 1},
        {qn_sampler_temp_ext(0.8F, 0.5F, 1.5F, &err), WIDTH, WIDTH, WIDTH},
        {qn_sampler_temp_ext(0.8F, 0.0F, 2.0F, &err), WIDTH, WIDTH, WIDTH},
        {qn_sampler_temp_ext(0.0F, 0.3F, 1.0F, &err), WIDTH, WIDTH, WIDTH},
        {qn_sampler_temp_ext(-1.0F, 0.3F, 2.0F, &err), WIDTH, 1, 1},
        {qn_sampler_min_p(0.5F, 0, &err), 0, 1, WIDTH - 1},
        {qn_sampler_top_p(0.9F, 0, &err), 0, 1, WIDTH - 1},
    };
    const float *raw = prompt_logits();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_context *ctx = make_context(1, 0);
        qn_sampler *chain = qn_test_chain_of(cases[i].first), *dist = qn_sampler_dist(1, &err);
        qn_sampler *outside = qn_sampler_clone(chain, &err);
        attach(ctx, 0, chain);
        prompt(ctx, 0);
        same_as_outside(ctx, -1, outside, raw);
        qn_row_candidates c = candidates_of(ctx, -1);
        assert_true(cases[i].count == 0 || c.count == cases[i].count);
        assert_null(c.probs);
        assert_in_range(n_active(&c), cases[i].least, cases[i].most);
        for (int step = 0; step < 10; step++) {
            int32_t token;
            qn_test_ok(qn_context_sample(ctx, dist, -1, &token, &err), err);
            qn_test_ok(decode(ctx, 0, &token, 1, NULL), err);
        }
        qn_context_free(ctx);
        qn_sampler_free(outside);
        qn_sampler_free(chain);
        qn_sampler_free(dist);
    }
}

/* 6, 10, 12: sequences with different chains, or none, in one batch. */
static void test_mixed(void **state)
{
    (void)state;
    qn_context *ctx = make_context(1, 0);
    qn_sampler *chains[3] = {qn_test_chain_of(qn_sampler_greedy(&err)),
                             chain2(qn_sampler_temp(0.5F, &err), qn_sampler_dist(3, &err)),
                             qn_test_chain_of(qn_sampler_top_k(40, &err))};
    for (int32_t s = 0; s < 3; s++) {
        attach(ctx, s, chains[s]);
        prompt(ctx, s);
    }
    prompt(ctx, 3);
    const int32_t ids[4] = {2, 0, 3, 1};
    const int8_t output[4] = {1, 1, 1, 1};
    int32_t tokens[4] = {1, 2, 3, 4};
    for (int step = 0; step < 4; step++) {
        qn_batch batch = {.n_tokens = 4, .tokens = tokens, .seq_id = ids, .output = output};
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        assert_int_equal(qn_context_sampled(ctx, 0, &err), QN_TOKEN_NONE);
        assert_int_equal(candidates_of(ctx, 0).count, 40);
        assert_null(candidates_of(ctx, 1).probs);
        assert_non_null(candidates_of(ctx, 3).probs);
        assert_non_null(qn_context_logits(ctx, 2, &err));
        assert_int_equal(qn_context_sampled(ctx, 2, &err), QN_TOKEN_NONE);
        assert_null(qn_context_logits(ctx, 3, &err));
        qn_test_ok(qn_context_sample(ctx, NULL, 1, &tokens[1], &err), err);
        qn_test_ok(qn_context_sample(ctx, NULL, 3, &tokens[3], &err), err);
        qn_test_ok(qn_context_sample(ctx, chains[0], 2, &tokens[2], &err), err);
    }
    attach(ctx, 1, NULL); /* raw logits from the next decode on, then sampled again */
    qn_test_ok(decode(ctx, 1, tokens, 1, NULL), err);
    assert_non_null(qn_context_logits(ctx, -1, &err));
    qn_test_ok(qn_context_sample(ctx, chains[1], -1, &tokens[1], &err), err);
    attach(ctx, 1, chains[1]);
    qn_test_ok(decode(ctx, 1, tokens, 1, NULL), err);
    assert_true(qn_context_sampled(ctx, -1, &err) >= 0);
    qn_context_free(ctx);
    for (int32_t s = 0; s < 3; s++) {
        qn_sampler_free(chains[s]);
    }
}

/* 7, 8: the graph's choice wins over a chain outside with another seed; a bias decides a draw. */
static void test_choice(void **state)
{
    (void)state;
    const qn_logit_bias bias = {123, 200.0F};
    qn_sampler *chains[2] = {
        qn_test_chain_of(qn_sampler_dist(88, &err)),
        chain2(qn_sampler_logit_bias(&bias, 1, &err), qn_sampler_dist(88, &err))};
    qn_sampler *other = qn_test_chain_of(qn_sampler_dist(4242, &err));
    for (int i = 0; i < 2; i++) {
        qn_context *ctx = make_context(1, 0);
        attach(ctx, 0, chains[i]);
        prompt(ctx, 0);
        int32_t token, inside = qn_context_sampled(ctx, -1, &err);
        assert_in_range(inside, 0, WIDTH - 1);
        assert_true(i == 0 || inside == 123);
        qn_test_ok(qn_context_sample(ctx, other, -1, &token, &err), err);
        assert_int_equal(token, inside);
        qn_context_free(ctx);
        qn_sampler_free(chains[i]);
    }
    qn_sampler_free(other);
}

/* 9: penalties over many histories, alone and with samplers before and behind. */
typedef struct penalty_case {
    int32_t last_n;
    float repeat, frequency, presence;
    int32_t n_history, n_distinct; /* the text: ids from 0 on, around and around */
} penalty_case;

static const penalty_case penalty_cases[] = {
    {64, 1.1F, 0.5F, 0.25F, 27, 9},    {80, 1.1F, 0.5F, 0.25F, 80, 1},
    {64, 1.1F, 0.5F, 0.25F, 64, 64},   {4096, 1.1F, 0.5F, 0.25F, 300, 200},
    {64, 1.1F, 0.5F, 0.25F, 0, 1},     {64, 1.7F, 0.0F, 0.0F, 40, 30},
    {64, 1.0F, 0.8F, 0.0F, 40, 30},    {64, 1.0F, 0.0F, 0.8F, 40, 30},
    {64, 1.0F, -1.0F, -1.0F, 100, 20}, {64, 1.0F, 1.0F, -1.0F, 100, 20},
    {64, 1.0F, -1.0F, 1.0F, 100, 20},  {64, 1.0F, 1.0F, 1.0F, 100, 20}};

static qn_sampler *neighbour(int which)
{
    return which == 0   ? qn_sampler_top_k(8, &err)
           : which == 1 ? qn_sampler_top_p(0.9F, 0, &err)
                        : qn_sampler_min_p(0.1F, 0, &err);
}

static void check_penalties(qn_context *ctx, const penalty_case *p, int how, const float *raw)
{
    qn_sampler *chain = qn_sampler_chain(&err);
    if (how % 2 == 1) { /* before it */
        qn_test_ok(qn_sampler_chain_add(chain, neighbour(how / 2), &err), err);
    }
    qn_sampler *penalties =
        qn_sampler_penalties(p->last_n, p->repeat, p->frequency, p->presence, &err);
    qn_test_ok(qn_sampler_chain_add(chain, penalties, &err), err);
    if (how > 0 && how % 2 == 0) { /* behind it */
        qn_test_ok(qn_sampler_chain_add(chain, neighbour(how / 2 - 1), &err), err);
    }
    for (int32_t i = 0; i < p->n_history; i++) {
        qn_test_ok(qn_sampler_accept(chain, i % p->n_distinct, false, &err), err);
    }
    qn_sampler *outside = qn_sampler_clone(chain, &err);
    qn_context_clear(ctx);
    attach(ctx, 0, chain);
    assert_string_equal(qn_sampler_name(penalties), "+penalties");
    prompt(ctx, 0);
    same_as_outside(ctx, -1, outside, raw);
    attach(ctx, 0, NULL);
    qn_sampler_free(outside);
    qn_sampler_free(chain);
}

static void test_penalties(void **state)
{
    (void)state;
    const float *raw = prompt_logits();
    qn_context *ctx = make_context(1, 0);
    for (size_t i = 0; i < sizeof penalty_cases / sizeof *penalty_cases; i++) {
        for (int how = 0; how < 7; how++) {
            check_penalties(ctx, &penalty_cases[i], how, raw);
        }
    }
    qn_context_free(ctx);
}

/* 13: over the limit nothing changes. */
static void test_limit(void **state)
{
    (void)state;
    qn_context *ctx = make_context(2, 0);
    qn_sampler *chain = qn_test_chain_of(qn_sampler_dist(9, &err));
    attach(ctx, 0, chain);
    prompt(ctx, 0);
    const int32_t tokens[3] = {1, 2, 3};
    const int8_t output[3] = {1, 1, 1};
    assert_int_equal(decode(ctx, 0, tokens, 3, output), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_pos_max(ctx, 0), N_PROMPT - 1);
    qn_test_ok(decode(ctx, 0, tokens, 2, output), err);
    assert_int_equal(qn_context_n_outputs(ctx), 2);
    qn_test_ok(decode(ctx, 1, tokens, 3, output), err); /* no chain, no limit */
    qn_context_free(ctx);
    qn_sampler_free(chain);
}

/* The chosen token's part of the running sum of weights holds the number that was drawn. */
static void check_draw(const qn_row_candidates *c, int32_t token, double number)
{
    double sum = 0, low = 0, high = 0;
    for (size_t i = 0; i < c->count; i++) {
        assert_true(c->probs[i] >= 0);
        low = c->ids[i] == token ? sum : low;
        sum += (double)c->probs[i];
        high = c->ids[i] == token ? sum : high;
    }
    assert_true(fabs(sum - 1) < 1e-3);
    assert_true(number > low - 1e-4 && number < high + 1e-4);
}

/* 14: two sequences with two rows each, interleaved: each has its own stream of numbers. */
static void test_streams(void **state)
{
    (void)state;
    static const double numbers[2][2] = {{0.60817868277606346, 0.9078680094115319},
                                         {0.56052975292830376, 0.21258764903961774}};
    qn_context *ctx = make_context(2, 0);
    qn_sampler *chains[2];
    for (int32_t s = 0; s < 2; s++) {
        chains[s] = chain2(qn_sampler_temp(10.0F, &err), qn_sampler_dist(s ? 1337 : 88, &err));
        attach(ctx, s, chains[s]);
    }
    const int32_t tokens[4] = {5, 6, 7, 8}, ids[4] = {0, 1, 0, 1};
    const int8_t output[4] = {1, 1, 1, 1};
    qn_batch batch = {.n_tokens = 4, .tokens = tokens, .seq_id = ids, .output = output};
    qn_context_clear(plain);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_test_ok(qn_context_decode(plain, &batch, &err), err);
    for (int32_t i = 0; i < 4; i++) {
        const float *raw = qn_context_logits(plain, i, &err);
        qn_row_candidates c = candidates_of(ctx, i);
        for (size_t k = 0; k < WIDTH; k++) {
            assert_int_equal(c.ids[k], k);
            assert_true(fabsf(c.logits[k] - raw[k] / 10.0F) <= 1e-4F * fabsf(raw[k]));
        }
        check_draw(&c, qn_context_sampled(ctx, i, &err), numbers[ids[i]][i / 2]);
    }
    qn_context_free(ctx);
    qn_sampler_free(chains[0]);
    qn_sampler_free(chains[1]);
}

/* 16: a long chain on two rows; the next decode builds nothing. */
static void test_full(void **state)
{
    (void)state;
    const qn_logit_bias biases[2] = {{7, 2.0F}, {9, -INFINITY}};
    qn_sampler *chain = qn_test_chain_of(qn_sampler_logit_bias(biases, 2, &err)), *outside;
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_top_k(128, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_top_p(0.9F, 0, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_min_p(0.01F, 0, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_temp(0.8F, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(5, &err), &err), err);
    outside = qn_sampler_clone(chain, &err);
    qn_context *ctx = make_context(2, 0);
    attach(ctx, 0, chain);
    prompt(ctx, 0);
    (void)prompt_logits();
    const int32_t tokens[2] = {3, 4};
    const int8_t output[2] = {1, 1};
    for (int step = 0; step < 3; step++) {
        int64_t plans = qn_context_counters(ctx).n_plans_made;
        qn_test_ok(decode(ctx, 0, tokens, 2, output), err);
        qn_test_ok(decode(plain, 0, tokens, 2, output), err);
        assert_true(step == 0 || qn_context_counters(ctx).n_plans_made == plans);
        for (int32_t i = 0; i < 2; i++) {
            int32_t token;
            same_as_outside(ctx, i, outside, qn_context_logits(plain, i, &err));
            qn_row_candidates c = candidates_of(ctx, i);
            assert_in_range(c.count, 1, 128);
            for (size_t k = 0; k < c.count; k++) {
                assert_int_not_equal(c.ids[k], 9);
            }
            qn_test_ok(qn_context_sample(ctx, NULL, i, &token, &err), err);
            qn_test_ok(qn_sampler_accept(outside, token, true, &err), err);
        }
    }
    qn_context_free(ctx);
    qn_sampler_free(outside);
    qn_sampler_free(chain);
}

/* 17: a sampler of one's own, which counts how often it is applied. */
static void count_apply(void *state, qn_candidates *c)
{
    (void)c;
    ++*(int *)state;
}

static void *no_clone(const void *state)
{
    (void)state;
    return NULL;
}

static void test_own_sampler(void **state)
{
    (void)state;
    static const qn_sampler_interface fns = {.apply = count_apply, .clone = no_clone};
    int n_applied = 0;
    qn_sampler *chain = chain2(qn_sampler_top_k(8, &err), qn_sampler_make(&fns, &n_applied, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(7, &err), &err), err);
    qn_context *ctx = make_context(2, 0);
    attach(ctx, 0, chain);
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, 0)), "+top-k");
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, 2)), "dist");
    const int32_t tokens[2] = {3, 4};
    const int8_t output[2] = {1, 1};
    qn_test_ok(decode(ctx, 0, tokens, 2, output), err);
    assert_int_equal(n_applied, 0);
    for (int32_t i = 0; i < 2; i++) {
        int32_t token;
        assert_int_equal(candidates_of(ctx, i).count, 8);
        assert_int_equal(qn_context_sampled(ctx, i, &err), QN_TOKEN_NONE);
        qn_test_ok(qn_context_sample(ctx, NULL, i, &token, &err), err);
        assert_int_equal(n_applied, i + 1);
    }
    qn_context_free(ctx);
    qn_sampler_free(chain);
}

/* Rows behind a draft that was not taken are not for the text that goes on, where that matters. */
static void test_other_text(void **state)
{
    (void)state;
    qn_context *ctx = make_context(3, 0);
    for (int follows = 0; follows < 2; follows++) {
        qn_sampler *chain = qn_sampler_chain(&err), *saved;
        if (follows) {
            qn_sampler *penalties = qn_sampler_penalties(64, 1.2F, 0, 0, &err);
            qn_test_ok(qn_sampler_chain_add(chain, penalties, &err), err);
        }
        qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_greedy(&err), &err), err);
        saved = qn_sampler_clone(chain, &err);
        qn_context_clear(ctx);
        attach(ctx, 0, chain);
        prompt(ctx, 0);
        int32_t tokens[3] = {3}, token, last;
        const int8_t output[3] = {1, 1, 1};
        qn_test_ok(decode(ctx, 0, tokens, 1, output), err);
        tokens[1] = qn_context_sampled(ctx, 0, &err); /* right */
        tokens[2] = WIDTH - 1;                        /* wrong, as it turns out */
        qn_test_ok(qn_context_seq_rm(ctx, 0, N_PROMPT, -1, &err), err);
        qn_test_ok(decode(ctx, 0, tokens, 3, output), err);
        for (int again = 0; again < 2; again++) {
            qn_test_ok(qn_sampler_copy(chain, saved, &err), err);
            qn_test_ok(qn_context_sample(ctx, NULL, 0, &token, &err), err);
            assert_int_equal(token, tokens[1]);
            qn_test_ok(qn_context_sample(ctx, NULL, 1, &token, &err), err);
            assert_int_not_equal(token, tokens[2]);
            qn_status status = qn_context_sample(ctx, NULL, 2, &last, &err);
            assert_int_equal(status, follows ? QN_ERR_NOT_FOUND : QN_OK);
            assert_true(!follows || strstr(err.message, "another token was accepted"));
        }
        attach(ctx, 0, NULL);
        qn_sampler_free(saved);
        qn_sampler_free(chain);
    }
    qn_context_free(ctx);
}

static qn_sampler *remembering_chain(void)
{
    const qn_dry_options dry = {
        .multiplier = 50.0F, .base = 1.5F, .allowed_length = 1, .last_n = 400};
    qn_sampler *chain =
        chain2(qn_sampler_penalties(64, 1.5F, 3.0F, 2.0F, &err), qn_sampler_dry(NULL, &dry, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_temp(20.0F, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_mirostat_v2(3, 5, 0.1F, &err), &err), err);
    return chain;
}

/* Programs grow with the text, but plans are made for few sizes. */
static void test_plans(void **state)
{
    (void)state;
    qn_context *ctx = make_context(1, 0);
    qn_sampler *chain = remembering_chain();
    attach(ctx, 0, chain);
    prompt(ctx, 0);
    qn_context_reset_counters(ctx);
    for (int i = 0; i < 200; i++) {
        int32_t token;
        qn_test_ok(qn_context_sample(ctx, NULL, -1, &token, &err), err);
        qn_test_ok(decode(ctx, 0, &token, 1, NULL), err);
    }
    assert_in_range(qn_context_counters(ctx).n_plans_made, 1, 5);
    qn_context_free(ctx);
    qn_sampler_free(chain);
}

/* A text that branches within the batch: each sequence's rows follow its own tokens. */
static void test_branches(void **state)
{
    (void)state;
    enum { N = 5 };
    const int32_t tokens[N] = {5, 6, 7, 8, 9}, n_ids[N] = {2, 1, 1, 1, 1};
    const int32_t ids[N + 1] = {0, 1, 0, 1, 1, 0};
    const int8_t output[N] = {1, 1, 1, 1, 1};
    qn_context *ctx = make_context(4, 2);
    qn_sampler *chains[2] = {remembering_chain(), remembering_chain()}, *outside[2];
    for (int32_t s = 0; s < 2; s++) {
        outside[s] = qn_sampler_clone(chains[s], &err);
        attach(ctx, s, chains[s]);
    }
    qn_batch batch = {
        .n_tokens = N, .tokens = tokens, .n_seq_id = n_ids, .seq_id = ids, .output = output};
    qn_context_clear(plain);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_test_ok(qn_context_decode(plain, &batch, &err), err);
    static const int32_t rows[2][3] = {{0, 1, 4}, {2, 3, -1}};
    for (int32_t s = 0; s < 2; s++) {
        for (int j = 0; j < 3 && rows[s][j] >= 0; j++) {
            int32_t i = rows[s][j];
            if (j > 0) {
                qn_test_ok(qn_sampler_accept(outside[s], tokens[i], true, &err), err);
            }
            same_as_outside(ctx, i, outside[s], qn_context_logits(plain, i, &err));
        }
        qn_sampler_free(outside[s]);
    }
    qn_context_free(ctx);
    qn_sampler_free(chains[0]);
    qn_sampler_free(chains[1]);
}

/* Rows given as embeddings have no tokens: the text stays as it was accepted. */
static void test_embeddings(void **state)
{
    (void)state;
    enum { N = 3 };
    size_t width = (size_t)qn_model_n_embd(model);
    float *rows = malloc(N * width * sizeof *rows);
    assert_non_null(rows);
    qn_test_random r = {8};
    for (size_t i = 0; i < N * width; i++) {
        rows[i] = qn_test_normal(&r);
    }
    qn_context *ctx = make_context(N, 2);
    qn_sampler *chain = chain2(qn_sampler_penalties(64, 1.5F, 3, 2, &err), qn_sampler_greedy(&err));
    qn_test_random_text(chain, 30, WIDTH, &r);
    qn_sampler *outside = qn_sampler_clone(chain, &err);
    attach(ctx, 0, chain);
    const int8_t output[N] = {1, 1, 1};
    qn_batch batch = {.n_tokens = N, .embeddings = rows, .output = output};
    qn_context_clear(plain);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    qn_test_ok(qn_context_decode(plain, &batch, &err), err);
    for (int32_t i = 0; i < N; i++) {
        same_as_outside(ctx, i, outside, qn_context_logits(plain, i, &err));
    }
    qn_context_free(ctx);
    qn_sampler_free(chain);
    qn_sampler_free(outside);
    free(rows);
}

static int setup(void **state)
{
    (void)state;
    model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 0);
    plain = qn_test_context(model, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    qn_context_free(plain);
    qn_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),      cmocka_unit_test(test_left),
        cmocka_unit_test(test_mixed),       cmocka_unit_test(test_choice),
        cmocka_unit_test(test_penalties),   cmocka_unit_test(test_limit),
        cmocka_unit_test(test_streams),     cmocka_unit_test(test_full),
        cmocka_unit_test(test_own_sampler), cmocka_unit_test(test_other_text),
        cmocka_unit_test(test_plans),       cmocka_unit_test(test_branches),
        cmocka_unit_test(test_embeddings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
