/* Recorded vectors of the samplers that cut and scale: typical, dynamic temperature, XTC,
 * top-n-sigma; infill on a vocabulary made here. */
#include "sampler/row.h"

#define TOLERANCE 1e-5

static qn_error err;
static const float rising[4] = {.1F, .2F, .3F, .4F};
static const float falling[4] = {.4F, .3F, .2F, .1F};

static void test_temp_ext(void **state)
{
    (void)state;
    qn_candidates *c = qn_candidates_make(16, &err);
    fill_probs(c, rising, 4);
    apply_free(qn_sampler_temp_ext(1, 0, 1, &err), c);
    apply_free(qn_sampler_dist(0, &err), c);
    expect_probs(c, rising, 4, TOLERANCE);
    fill_probs(c, rising, 4);
    apply_free(qn_sampler_temp_ext(0, 0, 1, &err), c);
    apply_free(qn_sampler_dist(0, &err), c);
    expect_probs(c, (const float[]){0, 0, 0, 1}, 4, TOLERANCE);

    static const struct {
        float t, range, exponent, p[4];
    } rows[] = {
        {.8F, .5F, 1.5F, {.3768556F, .2957503F, .2101764F, .1172177F}},
        {1, .3F, 1, {.3701831F, .2942923F, .2129843F, .1225403F}},
        {0, .3F, 1, {.6932467F, .2453521F, .05675485F, .004646418F}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill_probs(c, rising, 4);
        apply_free(qn_sampler_temp_ext(rows[i].t, rows[i].range, rows[i].exponent, &err), c);
        expect_ids(c, (const int32_t[]){3, 2, 1, 0}, 4);
        if (i == 0) {
            expect_logits(c, (const float[]){-.7718933F, -1.01424F, -1.355808F, -1.939723F}, 4,
                          1e-4F);
        }
        qn_candidates_weigh(c);
        expect_probs(c, rows[i].p, 4, TOLERANCE);
    }
    qn_candidates_free(c);
}

static void test_typical(void **state)
{
    (void)state;
    qn_candidates *c = qn_candidates_make(16, &err);
    fill_probs(c, (const float[]){.97F, .01F, .01F, .01F}, 4);
    apply_free(qn_sampler_typical(.5F, 0, &err), c);
    expect_probs(c, (const float[]){.97F}, 1, TOLERANCE);
    fill_probs(c, (const float[]){.4F, .2F, .2F, .2F}, 4);
    apply_free(qn_sampler_typical(.5F, 0, &err), c);
    expect_probs(c, (const float[]){.2F, .2F, .2F}, 3, TOLERANCE);
    fill_probs(c, rising, 4);
    apply_free(qn_sampler_typical(.1F, 2, &err), c);
    expect_ids(c, (const int32_t[]){2, 1}, 2);
    expect_probs(c, (const float[]){.3F, .2F}, 2, TOLERANCE);
    assert_false(c->sorted);

    /* a banned candidate is never typical */
    qn_candidates_fill(c, (const float[]){-INFINITY, 1, 1, -INFINITY}, 4);
    apply_free(qn_sampler_typical(.9999F, 0, &err), c);
    expect_ids(c, (const int32_t[]){1, 2}, 2);
    qn_candidates_free(c);
}

static void test_xtc(void **state)
{
    (void)state;
    static const float thresholds[4] = {.09F, .19F, .29F, .39F};
    static const size_t sizes[4] = {1, 2, 3, 4};
    qn_candidates *c = qn_candidates_make(16, &err);
    for (size_t i = 0; i < 4; i++) {
        fill_probs(c, falling, 4);
        apply_free(qn_sampler_xtc(.99F, thresholds[i], 0, 0, &err), c);
        expect_probs(c, falling + 4 - sizes[i], sizes[i], TOLERANCE);
    }
    fill_probs(c, falling, 4);
    apply_free(qn_sampler_xtc(.99F, .09F, 2, 0, &err), c);
    assert_int_equal(c->size, 4);

    static const size_t stream[16] = {1, 4, 4, 1, 4, 4, 4, 4, 1, 1, 1, 1, 1, 1, 4, 1};
    qn_sampler *s = qn_sampler_xtc(.5F, .1F, 1, 42, &err);
    for (size_t i = 0; i < 16; i++) {
        for (int again = 0; again < 2; again++) { /* looking twice draws once */
            fill_probs(c, falling, 4);
            qn_sampler_apply(s, c);
            assert_int_equal(c->size, stream[i]);
        }
        qn_test_ok(qn_sampler_accept(s, 3, false, &err), err); /* the prompt draws nothing */
        qn_test_ok(qn_sampler_accept(s, 3, true, &err), err);
    }
    qn_sampler_reset(s);
    fill_probs(c, falling, 1); /* one candidate costs a draw too */
    qn_sampler_apply(s, c);
    qn_test_ok(qn_sampler_accept(s, 0, true, &err), err);
    for (size_t i = 1; i < 16; i++) {
        fill_probs(c, falling, 4);
        qn_sampler_apply(s, c);
        assert_int_equal(c->size, stream[i]);
        qn_test_ok(qn_sampler_accept(s, 3, true, &err), err);
    }
    qn_sampler_free(s);
    qn_candidates_free(c);
}

static void test_top_n_sigma(void **state)
{
    (void)state;
    static const struct {
        float n, p[4];
    } rows[] = {
        {1, {0, 0, .428571F, .571429F}},
        {0, {.1F, .2F, .3F, .4F}},
        {3, {.1F, .2F, .3F, .4F}},
    };
    qn_candidates *c = qn_candidates_make(16, &err);
    for (size_t i = 0; i < 3; i++) {
        fill_probs(c, rising, 4);
        apply_free(qn_sampler_top_n_sigma(rows[i].n, &err), c);
        apply_free(qn_sampler_dist(0, &err), c);
        expect_probs(c, rows[i].p, 4, TOLERANCE);
    }
    const float banned[4] = {0, -INFINITY, 1, 2};
    qn_candidates_fill(c, banned, 4);
    apply_free(qn_sampler_top_n_sigma(1, &err), c);
    expect_logits(c, (const float[]){-INFINITY, -INFINITY, -INFINITY, 2}, 4, 0);
    qn_candidates_free(c);
}

/* The deviation by integers is near the one by double arithmetic. */
static void test_top_n_sigma_against_double(void **state)
{
    (void)state;
    qn_test_random r = {9};
    float row[3000];
    qn_candidates *c = qn_candidates_make(3000, &err);
    for (int round = 0; round < 20; round++) {
        size_t n = 2 + qn_test_bits(&r) % 2999;
        double sum = 0, square = 0, max = -INFINITY;
        for (size_t i = 0; i < n; i++) {
            row[i] = qn_test_normal(&r) * 6.0F;
            sum += (double)row[i];
            max = (double)row[i] > max ? (double)row[i] : max;
        }
        for (size_t i = 0; i < n; i++) {
            double off = (double)row[i] - sum / (double)n;
            square += off * off;
        }
        double least = max - 1.3 * sqrt(square / (double)n);
        qn_candidates_fill(c, row, n);
        apply_free(qn_sampler_top_n_sigma(1.3F, &err), c);
        for (size_t i = 0; i < n; i++) {
            if (fabs((double)row[i] - least) > 1e-3) {
                assert_true((c->logits[i] > -INFINITY) == ((double)row[i] > least));
            }
        }
    }
    qn_candidates_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temp_ext),
        cmocka_unit_test(test_typical),
        cmocka_unit_test(test_xtc),
        cmocka_unit_test(test_top_n_sigma),
        cmocka_unit_test(test_top_n_sigma_against_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
