/* The sampler interface: draws as transactions, distribution, clones, copies, names, own samplers.
 */
#include "support/support.h"

#include <math.h>

#include <quern/sampler.h>

#include "base/rng.h"

static qn_error err;

static int32_t pick(qn_sampler *s, qn_candidates *c, const float *logits, size_t n)
{
    qn_candidates_fill(c, logits, n);
    qn_sampler_apply(s, c);
    return c->selected >= 0 ? c->ids[c->selected] : QN_TOKEN_NONE;
}

static void accept(qn_sampler *s, int32_t token, bool generated)
{
    qn_test_ok(qn_sampler_accept(s, token, generated, &err), err);
}

static void test_engine(void **state)
{
    (void)state;
    qn_rng rng;
    qn__rng_seed(&rng, 5489);
    uint32_t x = 0;
    for (int i = 0; i < 10000; i++) {
        x = qn__rng_next(&rng);
    }
    assert_int_equal(x, 4123659995U);
    qn__rng_seed(&rng, 1337);
    assert_true(qn__rng_fraction64(&rng) == (UINT64_C(2407456957) << 32 | 1125387415U));
}

/* Looking again costs no number, prompt tokens cost none, an accepted token costs one. */
static void test_draws_are_transactions(void **state)
{
    (void)state;
    float equal[256] = {0};
    static const int32_t stream[8] = {206, 61, 115, 85, 40, 213, 131, 169};
    qn_candidates *c = qn_candidates_make(256, &err);
    qn_sampler *s = qn_sampler_dist(4242, &err);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pick(s, c, equal, 256), stream[i]);
        assert_int_equal(pick(s, c, equal, 256), stream[i]);
        accept(s, 7, false);
        assert_int_equal(pick(s, c, equal, 256), stream[i]);
        accept(s, stream[i], true);
        accept(s, 9, true); /* nothing was drawn for it */
    }
    qn_sampler_reset(s);
    assert_int_equal(pick(s, c, equal, 256), stream[0]);
    assert_int_equal(qn_sampler_seed(s), 4242);
    qn_sampler_free(s);
    qn_candidates_free(c);
}

/* 40000 draws against the exact probabilities: chi-square between its far ends. */
static void test_distribution(void **state)
{
    (void)state;
    enum { N = 40, DRAWS = 40000 };
    float logits[N];
    double p[N], total = 0;
    qn_test_random r = {5};
    for (int i = 0; i < N; i++) {
        logits[i] = qn_test_uniform(&r, -2.0F, 1.0F);
        p[i] = exp((double)logits[i]);
        total += p[i];
    }
    qn_candidates *c = qn_candidates_make(N, &err);
    qn_sampler *s = qn_sampler_dist(77, &err);
    int counts[N] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = pick(s, c, logits, N);
        counts[id]++;
        accept(s, id, true);
    }
    double chi = 0;
    for (int i = 0; i < N; i++) {
        double expected = p[i] / total * DRAWS;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    assert_true(chi < 82.0); /* 39 degrees of freedom: one run in 10000 is above */
    assert_true(chi > 12.0); /* and not too good to be true */
    qn_sampler_free(s);
    qn_candidates_free(c);
}

static void test_clone_and_copy(void **state)
{
    (void)state;
    float logits[100];
    qn_test_random r = {6};
    for (int i = 0; i < 100; i++) {
        logits[i] = qn_test_normal(&r);
    }
    qn_candidates *c = qn_candidates_make(100, &err);
    qn_sampling_options o = qn_sampling_defaults();
    o.seed = 11;
    qn_sampler *a = qn_sampler_from_options(&o, &err);
    int32_t first[10];
    for (int i = 0; i < 5; i++) {
        accept(a, pick(a, c, logits, 100), true);
    }
    (void)pick(a, c, logits, 100); /* a draw that is open goes along */
    qn_sampler *b = qn_sampler_clone(a, &err);
    assert_non_null(b);
    for (int i = 0; i < 10; i++) {
        first[i] = pick(a, c, logits, 100);
        accept(a, first[i], true);
    }
    qn_sampler *saved = qn_sampler_clone(b, &err);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 10; i++) {
            assert_int_equal(pick(b, c, logits, 100), first[i]);
            accept(b, first[i], true);
        }
        qn_test_ok(qn_sampler_copy(b, saved, &err), err); /* rolled back */
    }
    qn_sampler *other = qn_sampler_chain(&err);
    assert_int_equal(qn_sampler_copy(other, a, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_sampler_copy(qn_sampler_chain_get(a, 0), qn_sampler_chain_get(a, 4), &err),
                     QN_ERR_ARGUMENT);
    qn_sampler_free(other);
    qn_sampler_free(saved);
    qn_sampler_free(a);
    qn_sampler_free(b);
    qn_candidates_free(c);
}

/* Members of the usual chain. */
#define N_USUAL 10

static void test_names_and_members(void **state)
{
    (void)state;
    qn_sampling_options o = qn_sampling_defaults();
    o.top_k = 0;
    o.temperature = 1.0F;
    qn_sampler *chain = qn_sampler_from_options(&o, &err);
    static const char *const names[N_USUAL] = {"?penalties", "?dry",  "?top-n-sigma", "?top-k",
                                               "?typical",   "top-p", "min-p",        "?xtc",
                                               "?temp-ext",  "dist"};
    assert_string_equal(qn_sampler_name(chain), "chain");
    assert_int_equal(qn_sampler_chain_size(chain), N_USUAL);
    for (size_t i = 0; i < N_USUAL; i++) {
        assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, i)), names[i]);
    }
    assert_null(qn_sampler_chain_get(chain, N_USUAL));
    assert_null(qn_sampler_chain_get(qn_sampler_chain_get(chain, 0), 0));
    uint32_t seed = qn_sampler_seed(chain);
    assert_true(seed != QN_SEED_RANDOM);
    qn_sampler_reset(chain);
    assert_true(qn_sampler_seed(chain) != QN_SEED_RANDOM);
    assert_true(qn_sampler_seed(chain) != seed); /* once in 2^32 runs it is the same */

    qn_sampler *dist = qn_sampler_chain_remove(chain, N_USUAL - 1);
    assert_string_equal(qn_sampler_name(dist), "dist");
    assert_int_equal(qn_sampler_chain_size(chain), N_USUAL - 1);
    assert_int_equal(qn_sampler_seed(chain), QN_SEED_RANDOM);
    assert_null(qn_sampler_chain_remove(chain, N_USUAL - 1));
    assert_int_equal(qn_sampler_chain_add(dist, qn_sampler_greedy(&err), &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_sampler_chain_add(chain, chain, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_sampler_chain_add(chain, qn_sampler_chain(&err), &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_sampler_chain_add(chain, NULL, &err), QN_ERR_MEMORY);
    qn_sampler_free(dist);
    qn_sampler_free(chain);
    qn_sampler_free(NULL);
}

static void test_settings_that_are_refused(void **state)
{
    (void)state;
    assert_null(qn_sampler_temp(NAN, &err));
    assert_int_equal(err.code, QN_ERR_ARGUMENT);
    assert_null(qn_sampler_temp(INFINITY, &err));
    assert_null(qn_sampler_top_p(NAN, 0, &err));
    assert_null(qn_sampler_min_p(NAN, 0, &err));
    qn_sampling_options o = qn_sampling_defaults();
    o.top_p = NAN;
    err = (qn_error){0};
    assert_null(qn_sampler_from_options(&o, &err));
    assert_string_equal(err.message, "top-p: p is not a number");
    static const qn_sampler_interface nothing = {0};
    assert_null(qn_sampler_make(&nothing, NULL, &err));
    static const float off[] = {1.0F, 1.5F, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        qn_sampler *s = qn_sampler_top_p(off[i], 0, &err);
        assert_string_equal(qn_sampler_name(s), "?top-p");
        qn_sampler_free(s);
    }
}

/* A sampler of one's own: bans the token that was accepted last. */
static void ban_apply(void *state, qn_candidates *c)
{
    for (size_t i = 0; i < c->size; i++) {
        if (c->ids[i] == *(const int32_t *)state) {
            c->logits[i] = -INFINITY;
            c->sorted = c->has_weights = false;
        }
    }
}

static qn_status ban_accept(void *state, int32_t token, bool generated, qn_error *e)
{
    (void)generated;
    (void)e;
    *(int32_t *)state = token;
    return QN_OK;
}

static void *ban_clone(const void *state)
{
    int32_t *copy = malloc(sizeof *copy);
    if (copy) {
        *copy = *(const int32_t *)state;
    }
    return copy;
}

static void test_own_sampler(void **state)
{
    (void)state;
    static const qn_sampler_interface ban_fns = {
        .apply = ban_apply, .accept = ban_accept, .clone = ban_clone, .free = free};
    int32_t none = -1;
    qn_sampler *ban = qn_sampler_make(&ban_fns, ban_clone(&none), &err);
    assert_string_equal(qn_sampler_name(ban), "(null)");
    qn_sampler *chain = qn_sampler_chain(&err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_top_k(3, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, ban, &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_greedy(&err), &err), err);
    const float logits[4] = {0, 3, 2, 1};
    qn_candidates *c = qn_candidates_make(4, &err);
    static const int32_t want[4] = {1, 2, 1, 2};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pick(chain, c, logits, 4), want[i]);
        accept(chain, want[i], true);
    }
    qn_sampler *copy = qn_sampler_clone(chain, &err);
    assert_int_equal(pick(copy, c, logits, 4), 1);
    accept(copy, 1, true);
    qn_test_ok(qn_sampler_copy(chain, copy, &err), err); /* by clone: it has no copy_state */
    assert_int_equal(pick(chain, c, logits, 4), 2);
    assert_int_equal(pick(chain, c, logits, 2), 0); /* 1 is banned */
    qn_sampler_free(copy);
    qn_sampler_free(chain);
    qn_candidates_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_draws_are_transactions),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_clone_and_copy),
        cmocka_unit_test(test_names_and_members),
        cmocka_unit_test(test_settings_that_are_refused),
        cmocka_unit_test(test_own_sampler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
