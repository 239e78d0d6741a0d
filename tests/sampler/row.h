/* row.h: what the sampler tests share: rows of given probabilities, one sampler at work on one. */
#ifndef QUERN_TESTS_SAMPLER_ROW_H
#define QUERN_TESTS_SAMPLER_ROW_H

#include "support/support.h"

#include <math.h>

#include <quern/sampler.h>

/* Candidates 0 .. n-1 with logit ln(p). */
static inline void fill_probs(qn_candidates *c, const float *p, size_t n)
{
    float logits[16];
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++) {
        logits[i] = logf(p[i]);
    }
    qn_candidates_fill(c, logits, n);
}

static inline void apply_free(qn_sampler *s, qn_candidates *c)
{
    assert_non_null(s);
    qn_sampler_apply(s, c);
    qn_sampler_free(s);
}

static inline void accept_all(qn_sampler *s, const int32_t *tokens, size_t n)
{
    qn_error err = {0};
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) {
        qn_test_ok(qn_sampler_accept(s, tokens[i], false, &err), err);
    }
}

/* Probabilities in the order of the candidates, which must be as many. */
static inline void expect_probs(const qn_candidates *c, const float *p, size_t n, double tolerance)
{
    assert_int_equal(c->size, n);
    for (size_t i = 0; i < n; i++) {
        double got = (double)qn_candidates_prob(c, i);
        if (!(fabs(got - (double)p[i]) <= tolerance)) {
            fail_msg("p[%zu] = %.9g, not %.9g", i, got, (double)p[i]);
        }
    }
}

static inline void expect_ids(const qn_candidates *c, const int32_t *ids, size_t n)
{
    assert_int_equal(c->size, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(c->ids[i], ids[i]);
    }
}

static inline void expect_logits(const qn_candidates *c, const float *logits, size_t n,
                                 float tolerance)
{
    assert_int_equal(c->size, n);
    for (size_t i = 0; i < n; i++) {
        bool same = logits[i] == -INFINITY ? c->logits[i] == -INFINITY
                                           : fabsf(c->logits[i] - logits[i]) <= tolerance;
        if (!same) {
            fail_msg("logit[%zu] = %.9g, not %.9g", i, (double)c->logits[i], (double)logits[i]);
        }
    }
}

/* 1000 different logits between -5 and 5, the largest at id 321. */
static inline void ladder_row(float *logits)
{
    for (int i = 0; i < 1000; i++) {
        logits[i] = (float)(7919 * i % 1000) / 100.0F - 5.0F;
    }
}

#endif
