/* On a real model: JSON by grammars/json.gbnf, with 10 seeds, is the same with the constrained
 * chain outside of the graph, in it, and in it over drafts of which some are refused. */
#include "support/engine.h"

#include <quern/grammar.h>
#include <quern/sampler.h>
#include <quern/vocab.h>

static qn_error err;

enum { N_SEEDS = 10, N_TOKENS = 24, N_DRAFTS = 3 };

static const char prompt[] = "A record of a person, written in JSON:\n";

static qn_grammar *json_grammar(const qn_vocab *vocab)
{
    char path[1024];
    int folder = (int)(strlen(QN_TEST_OWN_DATA) - strlen("tests/data")); /* of the project */
    snprintf(path, sizeof path, "%.*sgrammars/json.gbnf", folder, QN_TEST_OWN_DATA);
    size_t size;
    char *text = (char *)qn_test_read(path, &size);
    qn_grammar *g = NULL;
    qn_test_ok(qn_grammar_parse(text, size, vocab, NULL, &g, &err), err);
    free(text);
    return g;
}

static qn_sampler *make_sampler(uint32_t seed, qn_grammar *g)
{
    qn_sampling_options o = qn_sampling_defaults();
    o.seed = seed;
    o.temperature = 1.2F; /* wild enough to be refused now and then */
    o.penalty_repeat = 1.1F;
    qn_sampler *s = qn_sampler_constrained(qn_sampler_from_options(&o, &err), g, &err);
    assert_non_null(s);
    return s;
}

static void begin(qn_context *ctx, const qn_tokens *tokens, qn_sampler *s, bool attach)
{
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, attach ? s : NULL, &err), err);
    for (size_t i = 0; i < tokens->count; i++) {
        qn_test_ok(qn_sampler_accept(s, tokens->ids[i], false, &err), err);
    }
    qn_batch batch = qn_batch_of(tokens->ids, (int32_t)tokens->count);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
}

/* Token by token. */
static void write_text(qn_context *ctx, const qn_tokens *tokens, qn_sampler *s, bool attach,
                       int32_t *out)
{
    begin(ctx, tokens, s, attach);
    for (int i = 0; i < N_TOKENS; i++) {
        qn_test_ok(qn_context_sample(ctx, s, -1, &out[i], &err), err);
        qn_batch batch = qn_batch_of(&out[i], 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    }
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    qn_sampler_free(s);
}

/* The last token and drafts in one decode; the drafts are right but for one at random. */
static void write_drafts(qn_context *ctx, const qn_tokens *tokens, qn_sampler *s,
                         const int32_t *want, int32_t *out, qn_test_random *r)
{
    int8_t output[1 + N_DRAFTS] = {1, 1, 1, 1};
    int32_t batch_tokens[1 + N_DRAFTS], done = 1;
    begin(ctx, tokens, s, true);
    qn_test_ok(qn_context_sample(ctx, NULL, -1, &out[0], &err), err);
    while (done < N_TOKENS) {
        int32_t wrong = 1 + (int32_t)(qn_test_bits(r) % (2 * N_DRAFTS)), taken = 0;
        for (int32_t i = 0; i <= N_DRAFTS; i++) {
            int32_t at = done - 1 + i;
            batch_tokens[i] = i == wrong || at >= N_TOKENS ? 500 : want[at];
        }
        int32_t past = qn_context_pos_max(ctx, 0) + 1;
        qn_batch batch = qn_batch_of(batch_tokens, 1 + N_DRAFTS);
        batch.output = output;
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        for (bool fits = true; fits && taken <= N_DRAFTS && done < N_TOKENS; taken++, done++) {
            qn_test_ok(qn_context_sample(ctx, NULL, taken, &out[done], &err), err);
            fits = taken < N_DRAFTS && out[done] == batch_tokens[taken + 1];
        }
        assert_int_equal(out[done - 1], want[done - 1]);
        qn_test_ok(qn_context_seq_rm(ctx, 0, past + taken, -1, &err), err);
    }
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    qn_sampler_free(s);
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
    o.n_outputs_max_per_seq = 1 + N_DRAFTS;
    qn_context *ctx = qn_test_context(model, &o);
    const qn_vocab *vocab = qn_model_vocab(model);
    qn_tokens tokens = {0};
    qn_test_ok(qn_vocab_tokenize(vocab, prompt, strlen(prompt), 0, &tokens, &err), err);
    qn_grammar *g = json_grammar(vocab);
    qn_test_random r = {3};
    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        int32_t outside[N_TOKENS], inside[N_TOKENS], drafts[N_TOKENS];
        write_text(ctx, &tokens, make_sampler(seed, g), false, outside);
        write_text(ctx, &tokens, make_sampler(seed, g), true, inside);
        assert_memory_equal(inside, outside, sizeof outside);
        write_drafts(ctx, &tokens, make_sampler(seed, g), outside, drafts, &r);
        assert_memory_equal(drafts, outside, sizeof outside);
    }
    qn_grammar_free(g);
    qn_tokens_free(&tokens);
    qn_context_free(ctx);
    qn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
