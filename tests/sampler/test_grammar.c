/* test_grammar.c: grammars as samplers: bans, chains that pick again, random numbers, copies. */
#include "support/support.h"

#include <math.h>

#include <quern/sampler.h>

#include "support/small_vocab.h"

static qn_vocab *vocab;
static qn_error err;

static qn_grammar *parse(const char *text)
{
    qn_grammar *g = NULL;
    qn_test_ok(qn_grammar_parse(text, strlen(text), vocab, NULL, &g, &err), err);
    return g;
}

static int32_t id_of(const char *piece)
{
    int32_t id = qn_vocab_find(vocab, piece, strlen(piece));
    assert_true(id >= 0);
    return id;
}

static qn_candidates *row_of(const float *logits)
{
    qn_candidates *c = qn_candidates_make((size_t)qn_vocab_size(vocab), &err);
    assert_non_null(c);
    qn_candidates_fill(c, logits, (size_t)qn_vocab_size(vocab));
    return c;
}

static void test_bans(void **state)
{
    (void)state;
    qn_grammar *g = parse("root ::= \"a\" \"b\"");
    qn_sampler *s = qn_sampler_grammar(g, &err);
    assert_non_null(s);
    qn_grammar_free(g);
    assert_string_equal(qn_sampler_name(s), "grammar");
    float logits[64] = {0};
    qn_candidates *c = row_of(logits);
    qn_sampler_apply(s, c);
    for (size_t i = 0; i < c->size; i++) {
        bool allowed = c->ids[i] == id_of("a") || c->ids[i] == id_of("ab");
        assert_true(allowed == (c->logits[i] != -INFINITY));
    }
    /* a token of the prompt is not followed, one that does not fit is an error */
    qn_test_ok(qn_sampler_accept(s, id_of("c"), false, &err), err);
    assert_int_equal(qn_sampler_accept(s, id_of("c"), true, &err), QN_ERR_FORMAT);
    qn_test_ok(qn_sampler_accept(s, id_of("ab"), true, &err), err);
    qn_candidates_fill(c, logits, (size_t)qn_vocab_size(vocab));
    qn_sampler_apply(s, c);
    for (size_t i = 0; i < c->size; i++) {
        assert_true(qn_vocab_is_end(vocab, c->ids[i]) == (c->logits[i] != -INFINITY));
    }
    qn_candidates_free(c);
    qn_sampler_free(s);
}

static int32_t pick(qn_sampler *s, qn_candidates *c, const float *logits)
{
    qn_candidates_fill(c, logits, (size_t)qn_vocab_size(vocab));
    qn_sampler_apply(s, c);
    return c->selected < 0 ? QN_TOKEN_NONE : c->ids[c->selected];
}

static qn_sampler *drawing_chain(uint32_t seed)
{
    qn_sampler *chain = qn_sampler_chain(&err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_top_k(4, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(seed, &err), &err), err);
    return chain;
}

/* With a grammar that allows all, a constrained chain picks as the chain; with one that refuses the
 * first pick, the text still obeys it, and each token costs one draw. */
static void test_constrained(void **state)
{
    (void)state;
    qn_test_random r = {5};
    qn_grammar *any = parse("root ::= .*"), *strict = parse("root ::= [ab]*");
    qn_sampler *free_chain = drawing_chain(7);
    qn_sampler *loose = qn_sampler_constrained(drawing_chain(7), any, &err);
    qn_sampler *tight = qn_sampler_constrained(drawing_chain(7), strict, &err);
    qn_grammar_free(any);
    qn_grammar_free(strict);
    assert_int_equal(qn_sampler_seed(tight), 7);
    float logits[64] = {0};
    qn_candidates *c = row_of(logits);
    int again = 0;
    for (int i = 0; i < 200; i++) {
        for (int32_t id = 0; id < qn_vocab_size(vocab); id++) {
            logits[id] = qn_vocab_is_end(vocab, id) ? -INFINITY : qn_test_normal(&r);
        }
        int32_t a = pick(free_chain, c, logits), b = pick(loose, c, logits);
        assert_int_equal(a, b);
        int32_t t = pick(tight, c, logits);
        assert_true(t == id_of("a") || t == id_of("b") || t == id_of("ab"));
        again += t != a;
        assert_int_equal(pick(tight, c, logits), t); /* applying costs no draw */
        qn_test_ok(qn_sampler_accept(free_chain, a, true, &err), err);
        qn_test_ok(qn_sampler_accept(loose, b, true, &err), err);
        qn_test_ok(qn_sampler_accept(tight, t, true, &err), err);
    }
    assert_true(again > 20);
    /* after as many tokens all generators stand at the same number */
    memset(logits, 0, sizeof logits);
    for (int32_t id = 0; id < qn_vocab_size(vocab); id++) {
        logits[id] = id == id_of("a") || id == id_of("b") ? 0 : -INFINITY;
    }
    assert_int_equal(pick(tight, c, logits), pick(free_chain, c, logits));
    qn_candidates_free(c);
    qn_sampler_free(free_chain);
    qn_sampler_free(loose);
    qn_sampler_free(tight);
}

static void test_clone_and_copy(void **state)
{
    (void)state;
    qn_grammar *g = parse("root ::= \"a\" \"b\" \"c\"");
    qn_sampler *s = qn_sampler_constrained(qn_sampler_greedy(&err), g, &err);
    qn_grammar_free(g);
    float logits[64] = {0};
    qn_candidates *c = row_of(logits);
    qn_sampler *start = qn_sampler_clone(s, &err);
    assert_non_null(start);
    qn_test_ok(qn_sampler_accept(s, id_of("ab"), true, &err), err);
    assert_int_equal(pick(s, c, logits), id_of("c"));
    assert_int_not_equal(pick(start, c, logits), id_of("c"));
    qn_test_ok(qn_sampler_copy(start, s, &err), err);
    assert_int_equal(pick(start, c, logits), id_of("c"));
    qn_sampler_reset(s);
    assert_int_not_equal(pick(s, c, logits), id_of("c"));
    qn_candidates_free(c);
    qn_sampler_free(s);
    qn_sampler_free(start);
}

/* Nothing fits: no token, no crash. */
static void test_nothing_fits(void **state)
{
    (void)state;
    qn_grammar *g = parse("root ::= []");
    qn_sampler *s = qn_sampler_constrained(drawing_chain(1), g, &err);
    qn_grammar_free(g);
    float logits[64] = {0};
    qn_candidates *c = row_of(logits);
    assert_int_equal(pick(s, c, logits), QN_TOKEN_NONE);
    qn_candidates_free(c);
    qn_sampler_free(s);
}

static int make_vocab(void **state)
{
    (void)state;
    return small_vocab_load(small_vocab_writer("bpe"), &vocab, &err) == QN_OK ? 0 : -1;
}

static int free_vocab(void **state)
{
    (void)state;
    qn_vocab_free(vocab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bans),
        cmocka_unit_test(test_constrained),
        cmocka_unit_test(test_clone_and_copy),
        cmocka_unit_test(test_nothing_fits),
    };
    return cmocka_run_group_tests(tests, make_vocab, free_vocab);
}
