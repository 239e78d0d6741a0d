/* On a real model: the text of 50 seeds with random settings is the same with the chain outside of
 * the graph, in it, in it over drafts of which some are wrong, and split between. */
#include "support/engine.h"
#include "support/random_chain.h"

static qn_error err;
static qn_model *model;

enum { N_SEEDS = 50, N_PROMPT = 8, N_TOKENS = 8, N_DRAFTS = 3 };

static const int32_t prompt[N_PROMPT] = {6403, 2429, 253, 655, 6403, 2429, 253, 655};

/* Reasoning that begins with the prompt's last token and is ended soon. */
static qn_sampler *make_budget(qn_test_random *r)
{
    const int32_t forced[2] = {198, 253};
    const qn_token_span start = {&prompt[N_PROMPT - 1], 1}, end = {&forced[1], 1};
    const qn_reasoning_options o = {.vocab = qn_model_vocab(model),
                                    .starts = &start,
                                    .n_starts = 1,
                                    .ends = &end,
                                    .n_ends = 1,
                                    .forced = {forced, 2},
                                    .budget = (int32_t)(qn_test_bits(r) % 5)};
    return qn_sampler_reasoning_budget(&o, &err);
}

static void set_stateless(qn_sampling_options *o, qn_test_random *r)
{
    o->top_k = (int32_t)(qn_test_bits(r) % 100);
    o->top_p = qn_test_uniform(r, 0.5F, 1.1F);
    o->min_p = qn_test_uniform(r, -0.1F, 0.2F);
    o->typical_p = qn_test_uniform(r, 0.7F, 1.4F);
    o->top_n_sigma = qn_test_uniform(r, -3.0F, 3.0F);
    o->xtc_probability = qn_test_uniform(r, -0.5F, 0.5F);
    o->temperature = qn_test_uniform(r, 0.2F, 1.5F);
    o->dynatemp_range = qn_test_uniform(r, -0.5F, 0.5F);
}

static void set_stateful(qn_sampling_options *o, qn_test_random *r)
{
    o->penalty_last_n = (int32_t)(qn_test_bits(r) % 70);
    o->penalty_repeat = qn_test_uniform(r, 0.8F, 1.5F);
    o->penalty_frequency = qn_test_uniform(r, -0.5F, 0.5F);
    o->penalty_presence = qn_test_uniform(r, -0.5F, 0.5F);
    o->dry.multiplier = qn_test_bits(r) % 2 ? qn_test_uniform(r, 0.1F, 4.0F) : 0.0F;
    o->dry.allowed_length = (int32_t)(qn_test_bits(r) % 4);
    o->mirostat_tau = qn_test_uniform(r, 0.5F, 5.0F);
    o->mirostat_eta = qn_test_uniform(r, 0.0F, 1.0F);
    o->adaptive_target = qn_test_uniform(r, -0.1F, 0.8F);
    o->adaptive_decay = qn_test_uniform(r, 0.0F, 1.0F);
    o->mirostat = (int32_t)(qn_test_bits(r) % 5);
    o->mirostat = o->mirostat > 2 ? 0 : o->mirostat;
    static const char *const orders[] = {"edskypmxt", "edskypmxt", "edkpmta", "ekpitxa", "tedskpa"};
    const char *order = orders[qn_test_bits(r) % 5];
    qn_test_ok(qn_sampler_order_from_letters(order, NULL, &o->order, &err), err);
}

/* The usual samplers with random settings. */
static qn_sampler *make_chain(uint32_t seed)
{
    qn_test_random r = {seed + 1};
    qn_sampling_options o = qn_sampling_defaults();
    o.seed = seed;
    o.vocab = qn_model_vocab(model);
    set_stateless(&o, &r);
    set_stateful(&o, &r);
    qn_sampler *usual = qn_sampler_from_options(&o, &err);
    assert_non_null(usual);
    if (seed % 3) {
        return usual;
    }
    qn_sampler *chain = qn_test_chain_of(make_budget(&r));
    while (qn_sampler_chain_size(usual) > 0) {
        qn_sampler *member = qn_sampler_chain_remove(usual, 0);
        qn_test_ok(qn_sampler_chain_add(chain, member, &err), err);
    }
    qn_sampler_free(usual);
    return chain;
}

/* Puts a sampler of one's own, which runs outside, before the last one: it bans id 0. */
static void add_own(qn_sampler *chain)
{
    qn_sampler *last = qn_sampler_chain_remove(chain, qn_sampler_chain_size(chain) - 1);
    qn_test_ok(qn_sampler_chain_add(chain, qn_test_own_sampler(1 << 30), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, last, &err), err);
}

static void begin_text(qn_context *ctx, qn_sampler *chain, bool attach)
{
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, attach ? chain : NULL, &err), err);
    for (int i = 0; i < N_PROMPT; i++) {
        qn_test_ok(qn_sampler_accept(chain, prompt[i], false, &err), err);
    }
    qn_batch batch = qn_batch_of(prompt, N_PROMPT);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
}

static void write_text(qn_context *ctx, qn_sampler *chain, bool attach, int32_t *out)
{
    begin_text(ctx, chain, attach);
    for (int i = 0; i < N_TOKENS; i++) {
        qn_test_ok(qn_context_sample(ctx, chain, -1, &out[i], &err), err);
        qn_batch batch = qn_batch_of(&out[i], 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    }
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    qn_sampler_free(chain);
}

/* With drafts, which are those of `want` up to a random one. */
static void write_drafted(qn_context *ctx, qn_sampler *chain, const int32_t *want, int32_t *out,
                          qn_test_random *r)
{
    static const int8_t output[N_DRAFTS + 1] = {1, 1, 1, 1};
    begin_text(ctx, chain, true);
    qn_test_ok(qn_context_sample(ctx, NULL, -1, &out[0], &err), err);
    for (int n = 1; n < N_TOKENS;) {
        int32_t tokens[N_DRAFTS + 1] = {out[n - 1]}, wrong = (int32_t)(qn_test_bits(r) % 5);
        for (int k = 0; k < N_DRAFTS; k++) {
            tokens[k + 1] = k < wrong && n + k < N_TOKENS ? want[n + k] : 655;
        }
        qn_batch batch = qn_batch_of(tokens, N_DRAFTS + 1);
        batch.output = output;
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        bool right = true;
        for (int k = 0; right && k <= N_DRAFTS && n < N_TOKENS; k++, n++) {
            qn_test_ok(qn_context_sample(ctx, NULL, k, &out[n], &err), err);
            right = k < N_DRAFTS && out[n] == tokens[k + 1];
        }
        qn_test_ok(qn_context_seq_rm(ctx, 0, N_PROMPT + n - 1, -1, &err), err);
    }
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    qn_sampler_free(chain);
}

static void test_texts(void **state)
{
    (void)state;
    const char *path = qn_test_real_model("smollm2");
    if (!path) {
        qn_test_skip("SmolLM2 is not here: tools/fetch_model.sh fetches it");
    }
    qn_test_ok(qn_model_load(&model, path, NULL, &err), err);
    qn_context_options o = qn_context_defaults();
    o.n_threads = 2;
    o.n_outputs_max_per_seq = N_DRAFTS + 1;
    qn_context *ctx = qn_test_context(model, &o);
    qn_test_random r = {77};
    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        int32_t outside[N_TOKENS], inside[N_TOKENS], split[N_TOKENS], unsplit[N_TOKENS];
        write_text(ctx, make_chain(seed), false, outside);
        write_text(ctx, make_chain(seed), true, inside);
        assert_memory_equal(inside, outside, sizeof outside);
        write_drafted(ctx, make_chain(seed), outside, inside, &r);
        assert_memory_equal(inside, outside, sizeof outside);
        if (seed % 5 == 0) {
            qn_sampler *a = make_chain(seed), *b = make_chain(seed);
            add_own(a);
            add_own(b);
            write_text(ctx, a, false, unsplit);
            write_text(ctx, b, true, split);
            assert_memory_equal(split, unsplit, sizeof unsplit);
        }
    }
    qn_context_free(ctx);
    qn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
