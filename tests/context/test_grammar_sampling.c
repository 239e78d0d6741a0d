/*
 * Grammars in the graph: as members of chains, and as checks of what constrained chains pick, the
 * tokens are those of the same sampler applied outside, one by one and over drafts that are taken,
 * refused by the pick, or refused by the grammar; also while a lazy grammar waits and starts.
 */
#include "support/engine.h"
#include "support/random_chain.h"
#include "support/small_vocab.h"

static qn_error err;
static qn_model *model;
static qn_vocab *vocab; /* 264 tokens, of which 256 are bytes; the model has some more */

enum { N_TEXT = 12, N_DRAFTS = 4, N_GRAMMARS = 6, LAZY = 5 };

static qn_grammar *grammar_number(size_t which)
{
    static const char *const texts[N_GRAMMARS] = {
        "root ::= [\\x00-\\U0010FFFF]*",
        "root ::= [a-z]* \"!\" [0-9]+",
        "root ::= \"a\" root \"b\" | [^a-m]*",
        "root ::= ([\\u00e0-\\u00ff] | [a-d]{1,3} \" \")+",
        "root ::= (<[65]> | !<[66]> | \"ab\"){1,6}",
        "root ::= [a-zA-Z0-9] [a-f ]*",
    };
    static const qn_trigger trigger = {.kind = QN_TRIGGER_PATTERN, .text = "[a-zA-Z0-9]"};
    qn_grammar_options o = qn_grammar_defaults();
    o.lazy = which == LAZY;
    o.triggers = &trigger;
    o.n_triggers = 1;
    qn_grammar *g = NULL;
    qn_test_ok(qn_grammar_parse(texts[which], strlen(texts[which]), vocab, &o, &g, &err), err);
    return g;
}

/* A constrained chain, or a chain with a grammar somewhere in it. */
static qn_sampler *random_sampler(qn_test_random *r, bool constrained)
{
    qn_grammar *g = grammar_number(qn_test_bits(r) % N_GRAMMARS);
    qn_sampler *chain = qn_test_random_chain(r), *s = NULL;
    if (constrained) {
        s = qn_sampler_constrained(chain, g, &err);
    } else {
        size_t at = qn_test_bits(r) % (qn_sampler_chain_size(chain) + 1);
        s = qn_sampler_chain(&err);
        for (size_t i = 0; qn_sampler_chain_size(chain) > 0; i++) {
            qn_sampler *member =
                i == at ? qn_sampler_grammar(g, &err) : qn_sampler_chain_remove(chain, 0);
            qn_test_ok(qn_sampler_chain_add(s, member, &err), err);
        }
        qn_sampler_free(chain);
    }
    assert_non_null(s);
    qn_grammar_free(g);
    return s;
}

static void begin(qn_context *ctx, qn_sampler *attached)
{
    int32_t tokens[9];
    qn_test_tokens(3, tokens, 9);
    qn_context_clear(ctx);
    qn_test_ok(qn_context_set_sampler(ctx, 0, attached, &err), err);
    qn_batch batch = qn_batch_of(tokens, 9);
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
}

/* Token by token; returns how many there are before nothing can be picked. */
static int32_t write_text(qn_context *ctx, qn_sampler *s, bool attach, int32_t *out)
{
    begin(ctx, attach ? s : NULL);
    for (int32_t i = 0; i < N_TEXT; i++) {
        if (qn_context_sample(ctx, attach ? NULL : s, -1, &out[i], &err) != QN_OK) {
            return i;
        }
        qn_batch batch = qn_batch_of(&out[i], 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    }
    return N_TEXT;
}

static void same_text(const char *what, int which, const int32_t *want, int32_t n_want,
                      const int32_t *got, int32_t n_got)
{
    for (int32_t i = 0; i < n_want && i < n_got; i++) {
        if (want[i] != got[i]) {
            fail_msg("%s, sampler %d, token %d: %d, outside %d", what, which, i, got[i], want[i]);
        }
    }
    if (n_want != n_got) {
        fail_msg("%s, sampler %d: %d tokens, outside %d", what, which, n_got, n_want);
    }
}

/* One decode of the last token and some drafts: right ones, then any. Returns tokens accepted. */
static int32_t take_part(qn_context *ctx, const int32_t *want, int32_t n_want, int32_t done,
                         int32_t *got, qn_test_random *r)
{
    int32_t tokens[1 + N_DRAFTS] = {want[done - 1]}, n = 1;
    int32_t n_right = (int32_t)(qn_test_bits(r) % (N_DRAFTS + 1));
    int8_t output[1 + N_DRAFTS] = {1, 1, 1, 1, 1};
    for (; n <= N_DRAFTS; n++) {
        bool right = n <= n_right && done + n - 1 < n_want;
        tokens[n] = right ? want[done + n - 1] : (int32_t)(qn_test_bits(r) % QN_TEST_TINY_VOCAB);
    }
    int32_t past = qn_context_pos_max(ctx, 0) + 1, taken = 0;
    qn_batch batch = qn_batch_of(tokens, n);
    batch.output = output;
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    for (bool fits = true; fits && taken < n && done + taken < N_TEXT; taken++) {
        int32_t *token = &got[done + taken];
        if (qn_context_sample(ctx, NULL, taken, token, &err) != QN_OK) {
            return -1 - taken;
        }
        fits = taken + 1 < n && *token == tokens[taken + 1];
    }
    qn_test_ok(qn_context_seq_rm(ctx, 0, past + taken, -1, &err), err);
    return taken;
}

/* The same text in parts with drafts. */
static int32_t write_parts(qn_context *ctx, qn_sampler *s, const int32_t *want, int32_t n_want,
                           int32_t *got, qn_test_random *r)
{
    begin(ctx, s);
    if (qn_context_sample(ctx, NULL, -1, &got[0], &err) != QN_OK) {
        return 0;
    }
    int32_t done = 1;
    while (done < N_TEXT && got[done - 1] == want[done - 1]) {
        int32_t taken = take_part(ctx, want, n_want, done, got, r);
        if (taken < 0) {
            return done - 1 - taken;
        }
        done += taken;
    }
    return done;
}

static void check_samplers(bool constrained, uint64_t seed)
{
    enum { N = QN_TEST_LIGHT ? 8 : 70 };
    qn_context_options o = qn_test_context_options();
    o.n_outputs_max_per_seq = 1 + N_DRAFTS;
    qn_context *outside = qn_test_context(model, &o);
    o.n_threads = o.n_threads_batch = 2;
    qn_context *inside = qn_test_context(model, &o);
    o.n_ubatch = 2;
    o.keep_candidates = true;
    qn_context *cut = qn_test_context(model, &o);
    qn_test_random r = {seed};
    int whole = 0;
    for (int i = 0; i < N; i++) {
        qn_sampler *a = random_sampler(&r, constrained);
        qn_sampler *b = qn_sampler_clone(a, &err), *c = qn_sampler_clone(a, &err);
        qn_sampler *d = qn_sampler_clone(a, &err);
        int32_t want[N_TEXT], got[N_TEXT];
        int32_t n_want = write_text(outside, a, false, want);
        same_text("token by token", i, want, n_want, got, write_text(inside, b, true, got));
        whole += n_want == N_TEXT;
        same_text("drafts", i, want, n_want, got, write_parts(inside, c, want, n_want, got, &r));
        same_text("cut", i, want, n_want, got, write_parts(cut, d, want, n_want, got, &r));
        qn_test_ok(qn_context_set_sampler(inside, 0, NULL, &err), err);
        qn_test_ok(qn_context_set_sampler(cut, 0, NULL, &err), err);
        qn_sampler_free(a);
        qn_sampler_free(b);
        qn_sampler_free(c);
        qn_sampler_free(d);
    }
    assert_true(whole > N / 3);
    qn_context_free(outside);
    qn_context_free(inside);
    qn_context_free(cut);
}

static void test_constrained(void **state)
{
    (void)state;
    check_samplers(true, 5);
}

static void test_member(void **state)
{
    (void)state;
    check_samplers(false, 6);
}

/* A constrained chain is marked like a chain where all of it is in the graph, else not at all; it
 * is in one place at a time; one that is no chain can be attached, too. */
static void test_attaching(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    qn_grammar *g = grammar_number(1);
    qn_sampler *chain = qn_test_chain_of(qn_sampler_top_k(9, &err)), *own = NULL;
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(1, &err), &err), err);
    qn_sampler *whole = qn_sampler_constrained(chain, g, &err);
    begin(ctx, whole);
    assert_ptr_equal(qn_context_get_sampler(ctx, 0), whole);
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, 1)), "+dist");
    assert_int_equal(qn_sampler_chain_add(chain, qn_sampler_greedy(&err), &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_context_set_sampler(ctx, 1, whole, &err), QN_ERR_ARGUMENT);
    assert_true(qn_context_sampled(ctx, -1, &err) >= 0);
    assert_null(qn_context_logits(ctx, -1, &err));
    qn_test_ok(qn_context_set_sampler(ctx, 0, NULL, &err), err);
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, 1)), "dist");
    chain = qn_test_chain_of(qn_sampler_top_k(9, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_test_own_sampler(2), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(1, &err), &err), err);
    own = qn_sampler_constrained(chain, g, &err);
    begin(ctx, own);
    assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, 0)), "top-k");
    assert_non_null(qn_context_logits(ctx, -1, &err));
    qn_sampler *lone = qn_sampler_constrained(qn_sampler_greedy(&err), g, &err);
    begin(ctx, lone);
    assert_true(qn_context_sampled(ctx, -1, &err) >= 0);
    qn_context_free(ctx);
    qn_grammar_free(g);
    qn_sampler_free(whole);
    qn_sampler_free(own);
    qn_sampler_free(lone);
}

/* Nothing fits: an error, and no token. */
static void test_nothing_fits(void **state)
{
    (void)state;
    qn_context *ctx = qn_test_context(model, NULL);
    qn_grammar *g = NULL;
    qn_test_ok(qn_grammar_parse("root ::= []", 11, vocab, NULL, &g, &err), err);
    qn_sampler *s = qn_sampler_constrained(qn_sampler_dist(1, &err), g, &err);
    int32_t token;
    begin(ctx, s);
    assert_int_equal(qn_context_sample(ctx, NULL, -1, &token, &err), QN_ERR_NOT_FOUND);
    assert_int_equal(token, QN_TOKEN_NONE);
    assert_non_null(strstr(err.message, "no candidate is left"));
    qn_context_free(ctx);
    qn_grammar_free(g);
    qn_sampler_free(s);
}

static int setup(void **state)
{
    (void)state;
    model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 0);
    qn_test_ok(small_vocab_load(small_vocab_writer("plamo2"), &vocab, &err), err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    qn_vocab_free(vocab);
    qn_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constrained),
        cmocka_unit_test(test_member),
        cmocka_unit_test(test_attaching),
        cmocka_unit_test(test_nothing_fits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
