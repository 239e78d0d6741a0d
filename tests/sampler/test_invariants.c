/* Random chains of all samplers with random settings on ordinary and hostile rows: the set stays
 * sound, looking costs nothing, and clones, copies and resets are exact. */
#include "sampler/row.h"

#include <float.h>

#include "sampler/sampler.h"
#include "support/random_chain.h"

static qn_error err;

enum { N_MAX = 400, N_CHAINS = 240, N_STEPS = 6 };

static qn_sampler *random_dry(qn_test_random *r)
{
    const qn_dry_options o = {.multiplier = .5F,
                              .base = qn_test_uniform(r, 1, 9),
                              .allowed_length = (int32_t)(qn_test_bits(r) % 4),
                              .last_n = 1 + (int32_t)(qn_test_bits(r) % 90)};
    return qn_sampler_dry(NULL, &o, &err);
}

static qn_sampler *random_budget(qn_test_random *r)
{
    const int32_t begin = (int32_t)(qn_test_bits(r) % 3), end = 7, forced[2] = {5, 7};
    const qn_token_span starts = {&begin, 1}, ends = {&end, 1};
    const qn_reasoning_options o = {.starts = &starts,
                                    .ends = &ends,
                                    .n_starts = 1,
                                    .n_ends = 1,
                                    .forced = {forced, 2},
                                    .budget = (int32_t)(qn_test_bits(r) % 4),
                                    .first = (qn_reasoning_state)(qn_test_bits(r) % 2)};
    return qn_sampler_reasoning_budget(&o, &err);
}

/* Any sampler; the first half only change the set. */
static qn_sampler *random_member(qn_test_random *r, bool picks)
{
    uint32_t seed = qn_test_bits(r) % 1000;
    float x = qn_test_uniform(r, -.1F, 1.1F);
    if (picks) {
        switch (qn_test_bits(r) % 5) {
        case 0:
            return qn_sampler_mirostat(N_MAX, seed, x * 9, .2F, (int32_t)(seed % 120), &err);
        case 1:
            return qn_sampler_mirostat_v2(seed, x * 9, .2F, &err);
        case 2:
            return qn_sampler_adaptive_p(x, .9F, seed, &err);
        case 3:
            return qn_sampler_greedy(&err);
        default:
            return qn_sampler_dist(seed, &err);
        }
    }
    switch (qn_test_bits(r) % 8) {
    case 0:
        return qn_sampler_xtc(x, qn_test_uniform(r, -.1F, .6F), seed % 3, seed, &err);
    case 1:
        return qn_sampler_penalties((int32_t)(seed % 70), 1.2F, x, -x, &err);
    case 2:
        return random_dry(r);
    case 3:
        return random_budget(r);
    default:
        return qn_test_random_sampler(qn_test_bits(r) % 8, r);
    }
}

static qn_sampler *random_chain(qn_test_random *r)
{
    qn_sampler *chain = qn_sampler_chain(&err);
    for (uint32_t n = qn_test_bits(r) % 7; n > 0; n--) {
        qn_test_ok(qn_sampler_chain_add(chain, random_member(r, false), &err), err);
    }
    qn_test_ok(qn_sampler_chain_add(chain, random_member(r, true), &err), err);
    return chain;
}

/* Rows: ordinary, tied, with NaN and infinities, all banned, one left, huge, subnormal. */
static size_t random_row(float *row, qn_test_random *r)
{
    uint32_t kind = qn_test_bits(r) % 8;
    size_t n = qn_test_bits(r) % 5 ? qn_test_bits(r) % N_MAX : qn_test_bits(r) % 3;
    for (size_t i = 0; i < n; i++) {
        float x = qn_test_normal(r) * 4.0F;
        const float kinds[8] = {
            x,
            (float)(qn_test_bits(r) % 4),
            qn_test_bits(r) % 3 ? x : NAN,
            qn_test_bits(r) % 4 ? x : (qn_test_bits(r) % 2 ? INFINITY : -INFINITY),
            -INFINITY,
            i == n / 2 ? x : -INFINITY,
            x * 1e37F,
            x * 1e-42F,
        };
        row[i] = kinds[kind];
    }
    return n;
}

static void expect_sound(const qn_candidates *c, size_t n)
{
    bool seen[N_MAX] = {0};
    assert_true(c->size <= n || c->size == 1);
    for (size_t i = 0; i < c->size; i++) {
        assert_in_range(c->ids[i], 0, N_MAX - 1);
        assert_false(seen[c->ids[i]]);
        seen[c->ids[i]] = true;
        assert_true(c->logits[i] >= -INFINITY); /* no NaN */
        assert_true(c->logits[i] <= FLT_MAX);
        if (c->sorted && i > 0) {
            assert_true(qn__candidate_key(c->logits[i - 1], c->ids[i - 1]) <
                        qn__candidate_key(c->logits[i], c->ids[i]));
        }
    }
    assert_true(c->selected >= -1 && c->selected < (int64_t)c->size);
    if (c->selected >= 0) {
        assert_true(c->logits[c->selected] > -INFINITY);
        assert_true(qn_candidates_prob(c, (size_t)c->selected) <= 1.0F);
    } else {
        assert_int_equal(qn__row_active(c), 0); /* none only where none is left */
    }
}

static int32_t pick(qn_sampler *s, qn_candidates *c, const float *row, size_t n)
{
    qn_candidates_fill(c, row, n);
    qn_sampler_apply(s, c);
    expect_sound(c, n);
    return c->selected >= 0 ? c->ids[c->selected] : QN_TOKEN_NONE;
}

/* Picks on the same rows, each accepted. */
static void run(qn_sampler *s, qn_candidates *c, uint64_t seed, int32_t *out)
{
    qn_test_random r = {seed};
    float row[N_MAX];
    for (int i = 0; i < N_STEPS; i++) {
        size_t n = random_row(row, &r);
        out[i] = pick(s, c, row, n);
        if (out[i] >= 0) {
            qn_test_ok(qn_sampler_accept(s, out[i], true, &err), err);
        }
    }
}

static void expect_same(const int32_t *a, const int32_t *b, int round, const char *what)
{
    for (int i = 0; i < N_STEPS; i++) {
        if (a[i] != b[i]) {
            fail_msg("chain %d, %s: id %d is %d, not %d", round, what, i, b[i], a[i]);
        }
    }
}

static void check_chain(qn_sampler *chain, qn_candidates *c, int round)
{
    int32_t first[N_STEPS], again[N_STEPS];
    float other[N_MAX];
    uint64_t seed = 1000 + (uint64_t)round;
    qn_test_random r = {seed * 77 + 1};
    run(chain, c, seed, first);
    qn_sampler *clone = qn_sampler_clone(chain, &err); /* in the midst of it */
    qn_sampler *saved = qn_sampler_clone(chain, &err);
    assert_non_null(clone);
    assert_non_null(saved);
    for (int i = 0; i < 3; i++) { /* looking at other rows costs nothing */
        (void)pick(chain, c, other, random_row(other, &r));
    }
    run(chain, c, seed + 1, first);
    run(clone, c, seed + 1, again);
    expect_same(first, again, round, "a clone, or looking");
    qn_test_ok(qn_sampler_copy(chain, saved, &err), err); /* rolled back */
    run(chain, c, seed + 1, again);
    expect_same(first, again, round, "rolled back");
    qn_sampler_reset(chain);
    qn_sampler_reset(clone);
    run(chain, c, seed, first);
    run(clone, c, seed, again);
    expect_same(first, again, round, "reset");
    qn_sampler_free(saved);
    qn_sampler_free(clone);
}

static void test_random_chains(void **state)
{
    (void)state;
    qn_test_random r = {12};
    qn_candidates *c = qn_candidates_make(N_MAX, &err);
    for (int round = 0; round < N_CHAINS; round++) {
        qn_sampler *chain = random_chain(&r);
        check_chain(chain, c, round);
        qn_sampler_free(chain);
    }
    qn_candidates_free(c);
}

/* Each sampler alone on a set of 0, of 1, and one that is all banned. */
static void test_empty_sets(void **state)
{
    (void)state;
    qn_test_random r = {13};
    qn_candidates *c = qn_candidates_make(4, &err);
    static const float banned[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (int round = 0; round < 300; round++) {
        qn_sampler *s = random_member(&r, round % 2);
        qn_test_ok(qn_sampler_accept(s, 3, false, &err), err);
        for (size_t n = 0; n < 5; n += 4) {
            qn_candidates_fill(c, banned, n);
            qn_sampler_apply(s, c);
            assert_int_equal(c->selected, -1);
            assert_int_equal(qn__row_active(c), 0);
        }
        const float one = 2.5F;
        qn_candidates_fill(c, &one, 1);
        qn_sampler_apply(s, c);
        assert_int_equal(c->size, 1);
        assert_int_equal(c->selected, round % 2 ? 0 : -1);
        qn_sampler_free(s);
    }
    qn_candidates_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains),
        cmocka_unit_test(test_empty_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
