/* On a real model: the text of 50 seeds with random settings is the same with the chain outside of
 * the graph, in it, and split between. */
#include "support/engine.h"
#include "support/random_chain.h"

static qn_error err;

enum { N_SEEDS = 50, N_TOKENS = 8 };

/* The usual samplers with random settings. */
static qn_sampler *make_chain(uint32_t seed)
{
    qn_test_random r = {seed + 1};
    qn_sampling_options o = qn_sampling_defaults();
    o.seed = seed;
    o.top_k = (int32_t)(qn_test_bits(&r) % 100);
    o.top_p = qn_test_uniform(&r, 0.5F, 1.1F);
    o.min_p = qn_test_uniform(&r, -0.1F, 0.2F);
    o.typical_p = qn_test_uniform(&r, 0.7F, 1.4F);
    o.top_n_sigma = qn_test_uniform(&r, -3.0F, 3.0F);
    o.xtc_probability = qn_test_uniform(&r, -0.5F, 0.5F);
    o.temperature = qn_test_uniform(&r, 0.2F, 1.5F);
    o.dynatemp_range = qn_test_uniform(&r, -0.5F, 0.5F);
    qn_sampler *chain = qn_sampler_from_options(&o, &err);
    assert_non_null(chain);
    return chain;
}

/* Puts a sampler of one's own, which runs outside, before the draw: it bans id 0. */
static void add_own(qn_sampler *chain)
{
    qn_sampler *last = qn_sampler_chain_remove(chain, qn_sampler_chain_size(chain) - 1);
    qn_test_ok(qn_sampler_chain_add(chain, qn_test_own_sampler(1 << 30), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, last, &err), err);
}

static void write_text(qn_context *ctx, qn_sampler *chain, bool attach, int32_t *out)
{
    const int32_t prompt[4] = {6403, 2429, 253, 655};
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, attach ? chain : NULL, &err), err);
    qn_batch batch = qn_batch_of(prompt, 4);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    for (int i = 0; i < N_TOKENS; i++) {
        qn_test_ok(qn_context_sample(ctx, chain, -1, &out[i], &err), err);
        batch = qn_batch_of(&out[i], 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
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
    qn_model *model = NULL;
    qn_test_ok(qn_model_load(&model, path, NULL, &err), err);
    qn_context_options o = qn_context_defaults();
    o.n_threads = 2;
    qn_context *ctx = qn_test_context(model, &o);
    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        int32_t outside[N_TOKENS], inside[N_TOKENS], split[N_TOKENS], unsplit[N_TOKENS];
        write_text(ctx, make_chain(seed), false, outside);
        write_text(ctx, make_chain(seed), true, inside);
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
