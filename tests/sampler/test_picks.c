/* Recorded vectors of the samplers that draw and learn (mirostat, adaptive-p) and of chains; draws
 * as transactions; chi-square of what is drawn. */
#include "sampler/row.h"

static qn_error err;
static const float seven[7] = {.4F, .25F, .15F, .1F, .05F, .03F, .02F};

typedef struct step {
    size_t size;
    int64_t index;
} step;

/* Sizes and indexes of the picks on `seven`, each looked at twice and then accepted. */
static void expect_steps(qn_sampler *s, const step *steps, size_t n)
{
    qn_candidates *c = qn_candidates_make(7, &err);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) {
        for (int again = 0; again < 2; again++) {
            fill_probs(c, seven, 7);
            qn_sampler_apply(s, c);
            if (c->size != steps[i].size || c->selected != steps[i].index) {
                fail_msg("step %zu: %zu:%d, not %zu:%d", i, c->size, (int)c->selected,
                         steps[i].size, (int)steps[i].index);
            }
        }
        int32_t token = c->ids[c->selected];
        qn_test_ok(qn_sampler_accept(s, token, false, &err), err); /* counts for nothing */
        qn_test_ok(qn_sampler_accept(s, token, true, &err), err);
    }
    qn_candidates_free(c);
}

static void test_mirostat(void **state)
{
    (void)state;
    static const step v2_slow[12] = {{4, 2}, {4, 0}, {4, 2}, {4, 1}, {4, 1}, {4, 0},
                                     {4, 1}, {4, 0}, {4, 0}, {4, 1}, {4, 0}, {5, 2}};
    static const step v2_fast[12] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {2, 1}, {1, 0},
                                     {1, 0}, {2, 0}, {1, 0}, {2, 1}, {1, 0}, {2, 0}};
    static const step v1_slow[12] = {{7, 2}, {6, 0}, {7, 2}, {6, 1}, {6, 1}, {6, 0},
                                     {7, 1}, {7, 0}, {7, 0}, {7, 2}, {7, 0}, {7, 2}};
    static const step v1_fast[12] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {2, 1}, {1, 0},
                                     {1, 0}, {2, 0}, {2, 1}, {1, 0}, {1, 0}, {2, 0}};
    qn_sampler *all[4] = {qn_sampler_mirostat_v2(42, 2, .1F, &err),
                          qn_sampler_mirostat_v2(42, .5F, .5F, &err),
                          qn_sampler_mirostat(7, 42, 2, .1F, 100, &err),
                          qn_sampler_mirostat(7, 42, .5F, .5F, 100, &err)};
    const step *steps[4] = {v2_slow, v2_fast, v1_slow, v1_fast};
    for (size_t i = 0; i < 4; i++) {
        expect_steps(all[i], steps[i], 12);
        qn_sampler_reset(all[i]);
        expect_steps(all[i], steps[i], 12);
        qn_sampler_free(all[i]);
    }
}

static void test_adaptive_p(void **state)
{
    (void)state;
    /* The recorded list has one more 0 behind the second id: a pick that no number of the stream
     * can yield (the third is 0.7797, and id 0 ends below 0.3). The chain below agrees. */
    static const int32_t aimed[12] = {1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 0, 1};
    static const int32_t plain[12] = {2, 0, 2, 1, 1, 0, 1, 0, 0, 2, 0, 2};
    static const float logits[7] = {4.166667F, 4.761905F, 3.333333F, 2.333333F,
                                    1.212121F, .7368422F, .4942532F};
    qn_candidates *c = qn_candidates_make(7, &err);
    for (int which = 0; which < 2; which++) {
        qn_sampler *s = qn_sampler_adaptive_p(which ? -1.0F : .3F, .9F, 42, &err);
        for (size_t i = 0; i < 12; i++) {
            fill_probs(c, seven, 7);
            qn_sampler_apply(s, c);
            if (i == 0 && which == 0) {
                expect_logits(c, logits, 7, 2e-6F);
            }
            assert_int_equal(c->ids[c->selected], which ? plain[i] : aimed[i]);
            qn_test_ok(qn_sampler_accept(s, c->ids[c->selected], true, &err), err);
        }
        qn_sampler_free(s);
    }
    qn_candidates_free(c);
}

/* ---- Chains ---- */

typedef struct chain_vector {
    const char *what;
    qn_sampler *members[6];
    int32_t ids[16];
    size_t size; /* at the end */
} chain_vector;

static void run_chain(const chain_vector *v)
{
    float logits[1000];
    ladder_row(logits);
    qn_candidates *c = qn_candidates_make(1000, &err);
    qn_sampler *chain = qn_sampler_chain(&err);
    for (size_t i = 0; i < 6 && v->members[i]; i++) {
        qn_test_ok(qn_sampler_chain_add(chain, v->members[i], &err), err);
    }
    for (size_t i = 0; i < 16; i++) {
        qn_candidates_fill(c, logits, 1000);
        qn_sampler_apply(chain, c);
        int32_t id = c->selected < 0 ? -1 : c->ids[c->selected];
        if (id != v->ids[i]) {
            fail_msg("%s: id %zu is %d, not %d", v->what, i, id, v->ids[i]);
        }
        qn_test_ok(qn_sampler_accept(chain, id, true, &err), err);
    }
    if (c->size != v->size) {
        fail_msg("%s: %zu are left, not %zu", v->what, c->size, v->size);
    }
    qn_sampler_free(chain);
    qn_candidates_free(c);
}

static void test_chains(void **state)
{
    (void)state;
    const chain_vector vectors[] = {
        {"typical",
         {qn_sampler_typical(.9F, 0, &err), qn_sampler_dist(42, &err)},
         {494, 38, 385, 593, 408, 248, 87, 940, 643, 667, 347, 741, 642, 100, 225, 951},
         231},
        {"top-n-sigma",
         {qn_sampler_top_n_sigma(1, &err), qn_sampler_dist(42, &err)},
         {803, 198, 779, 595, 457, 102, 459, 324, 150, 643, 62, 729, 939, 1, 988, 618},
         1000},
        {"xtc",
         {qn_sampler_top_k(8, &err), qn_sampler_xtc(.5F, .1F, 0, 42, &err),
          qn_sampler_dist(42, &err)},
         {568, 642, 247, 568, 284, 321, 284, 963, 568, 568, 568, 568, 568, 568, 568, 568},
         1},
        {"temp-ext",
         {qn_sampler_top_k(40, &err), qn_sampler_temp_ext(1, .5F, 1, &err),
          qn_sampler_dist(42, &err)},
         {951, 247, 951, 383, 457, 284, 778, 173, 926, 25, 642, 988, 198, 321, 840, 704},
         40},
        {"mirostat",
         {qn_sampler_temp(1, &err), qn_sampler_mirostat(1000, 42, 5, .1F, 100, &err)},
         {39, 321, 471, 642, 260, 963, 62, 926, 247, 815, 642, 704, 704, 321, 482, 889},
         15},
        {"mirostat 2",
         {qn_sampler_temp(1, &err), qn_sampler_mirostat_v2(42, 5, .1F, &err)},
         {767, 778, 952, 149, 124, 889, 482, 988, 531, 976, 284, 334, 149, 321, 939, 988},
         50},
        {"adaptive-p",
         {qn_sampler_min_p(.05F, 0, &err), qn_sampler_adaptive_p(.02F, .9F, 42, &err)},
         {792, 186, 778, 595, 445, 100, 457, 334, 138, 645, 52, 718, 939, 1, 989, 618},
         300},
        {"penalties",
         {qn_sampler_penalties(64, 1.5F, .5F, .25F, &err), qn_sampler_greedy(&err)},
         {321, 642, 963, 284, 605, 926, 247, 568, 889, 210, 531, 852, 173, 494, 815, 136},
         1000},
        {"penalties of a short window",
         {qn_sampler_penalties(4, 1, 0, 5, &err), qn_sampler_greedy(&err)},
         {321, 642, 963, 284, 605, 321, 642, 963, 284, 605, 321, 642, 963, 284, 605, 321},
         1000},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        run_chain(&vectors[i]);
    }
}

static void test_bias_then_greedy(void **state)
{
    (void)state;
    static const qn_logit_bias biases[2] = {{10, 100}, {321, -INFINITY}};
    float logits[1000];
    ladder_row(logits);
    qn_candidates *c = qn_candidates_make(1000, &err);
    qn_candidates_fill(c, logits, 1000);
    apply_free(qn_sampler_logit_bias(biases, 2, &err), c);
    apply_free(qn_sampler_greedy(&err), c);
    assert_int_equal(c->ids[c->selected], 10);
    assert_int_equal(c->size, 1000);
    qn_candidates_free(c);
}

/* ---- What is drawn ---- */

enum { N_DRAWS = 20000 };

/* Chi-square of the counts against the probabilities p[0..7), between its far ends. */
static void expect_counts(const char *what, const size_t *counts, const double *p)
{
    double chi = 0;
    for (size_t i = 0; i < 7; i++) {
        double expect = p[i] * N_DRAWS, off = (double)counts[i] - expect;
        if (p[i] > 0) {
            chi += off * off / expect;
        } else {
            assert_int_equal(counts[i], 0);
        }
    }
    if (chi < 0.01 || chi > 30) { /* up to 6 degrees of freedom: 30 is one in 25000 */
        fail_msg("%s: chi-square %g", what, chi);
    }
}

static void expect_distribution(const char *what, qn_sampler *s, const double *p)
{
    qn_candidates *c = qn_candidates_make(7, &err);
    size_t counts[7] = {0};
    assert_non_null(s);
    for (int i = 0; i < N_DRAWS; i++) {
        fill_probs(c, seven, 7);
        qn_sampler_apply(s, c);
        assert_true(c->selected >= 0);
        int32_t id = c->ids[c->selected];
        counts[id]++;
        qn_test_ok(qn_sampler_accept(s, id, true, &err), err);
    }
    expect_counts(what, counts, p);
    qn_candidates_free(c);
    qn_sampler_free(s);
}

/* A member before a draw. */
static qn_sampler *drawn_behind(qn_sampler *member, uint32_t seed)
{
    qn_sampler *chain = qn_sampler_chain(&err);
    qn_test_ok(qn_sampler_chain_add(chain, member, &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(seed, &err), &err), err);
    return chain;
}

/* out: p[i]^power of the first n, which then sum to 1. */
static void powers(double *out, int n, double power)
{
    double sum = 0;
    for (int i = 0; i < 7; i++) {
        out[i] = i < n ? pow((double)seven[i], power) : 0;
        sum += out[i];
    }
    for (int i = 0; i < 7; i++) {
        out[i] /= sum;
    }
}

static void test_distributions(void **state)
{
    (void)state;
    double plain[7], cut[7], half[7], usual[7], mixed[7];
    powers(plain, 7, 1);
    powers(cut, 4, 1);
    powers(half, 7, 2);
    powers(usual, 6, 1.25);
    expect_distribution("dist", qn_sampler_dist(5, &err), plain);
    /* mirostats that do not learn (eta 0): mu stays 2 tau */
    expect_distribution("mirostat 2", qn_sampler_mirostat_v2(6, 1.7F, 0, &err), cut);
    expect_distribution("mirostat", qn_sampler_mirostat(7, 7, 50, 0, 100, &err), plain);
    expect_distribution("adaptive-p off", qn_sampler_adaptive_p(-1, .9F, 8, &err), plain);
    expect_distribution("top-k", drawn_behind(qn_sampler_top_k(4, &err), 11), cut);
    expect_distribution("top-p", drawn_behind(qn_sampler_top_p(.85F, 0, &err), 12), cut);
    expect_distribution("min-p", drawn_behind(qn_sampler_min_p(.2F, 0, &err), 13), cut);
    expect_distribution("temp", drawn_behind(qn_sampler_temp(.5F, &err), 14), half);
    qn_sampling_options options = qn_sampling_defaults();
    options.seed = 15;
    options.top_p = .97F;
    expect_distribution("the usual chain", qn_sampler_from_options(&options, &err), usual);
    /* XTC at half of the places: all tokens from .1 on go but that of .1 */
    for (int i = 0; i < 7; i++) {
        mixed[i] = .5 * plain[i] + (i < 3 ? 0 : .5 * plain[i] / .2);
    }
    expect_distribution("xtc", drawn_behind(qn_sampler_xtc(.5F, .09F, 0, 9, &err), 10), mixed);
}

/* Adaptive-p learns from every pick, so what is known exactly is the first one of many seeds. */
static void test_first_picks_of_adaptive_p(void **state)
{
    (void)state;
    qn_candidates *c = qn_candidates_make(7, &err);
    size_t counts[7] = {0};
    double near[7], sum = 0;
    for (int i = 0; i < 7; i++) {
        double d = fabs(((double)seven[i] - .3) / .3);
        near[i] = exp(5 - 10 * d * d / (1 + d));
        sum += near[i];
    }
    for (int i = 0; i < 7; i++) {
        near[i] /= sum;
    }
    for (int i = 0; i < N_DRAWS; i++) {
        qn_sampler *s = qn_sampler_adaptive_p(.3F, .9F, (uint32_t)i, &err);
        fill_probs(c, seven, 7);
        qn_sampler_apply(s, c);
        counts[c->ids[c->selected]]++;
        qn_sampler_free(s);
    }
    expect_counts("adaptive-p", counts, near);
    qn_candidates_free(c);
}

/* The mean probability of what adaptive-p picks comes near its target; that of the surprise of
 * mirostat near tau. */
static void test_learning(void **state)
{
    (void)state;
    qn_candidates *c = qn_candidates_make(7, &err);
    qn_sampler *all[3] = {qn_sampler_adaptive_p(.2F, .9F, 3, &err),
                          qn_sampler_mirostat_v2(3, 1.6F, .1F, &err),
                          qn_sampler_mirostat(7, 3, 1.6F, .1F, 100, &err)};
    for (int which = 0; which < 3; which++) {
        double sum = 0;
        for (int i = 0; i < 4000; i++) {
            fill_probs(c, seven, 7);
            qn_sampler_apply(all[which], c);
            int32_t id = c->ids[c->selected];
            sum += which == 0 ? (double)seven[id]
                              : -log2((double)qn_candidates_prob(c, (size_t)c->selected));
            qn_test_ok(qn_sampler_accept(all[which], id, true, &err), err);
        }
        double want = which == 0 ? .2 : 1.6, off = fabs(sum / 4000 - want);
        if (off > .05) {
            fail_msg("sampler %d: %g instead of %g", which, sum / 4000, want);
        }
        qn_sampler_free(all[which]);
    }
    qn_candidates_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mirostat),      cmocka_unit_test(test_adaptive_p),
        cmocka_unit_test(test_chains),        cmocka_unit_test(test_bias_then_greedy),
        cmocka_unit_test(test_distributions), cmocka_unit_test(test_first_picks_of_adaptive_p),
        cmocka_unit_test(test_learning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
