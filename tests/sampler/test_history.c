/* Recorded vectors of the samplers that remember the text (penalties, DRY), and of logit bias;
 * each against a slow and plain form. */
#include "sampler/row.h"

#include "sampler/sampler.h"

#define TOLERANCE 1e-5

static qn_error err;

typedef struct penalty_vector {
    float repeat, frequency, presence;
    int32_t tokens[5];
    size_t n;
    float p[5];
} penalty_vector;

static void test_penalties(void **state)
{
    (void)state;
    static const penalty_vector vectors[] = {
        {50, 0, 0, {0}, 1, {0, .25F, .25F, .25F, .25F}},
        {50, 0, 0, {0, 1, 2}, 3, {0, 0, 0, .5F, .5F}},
        {50, 0, 0, {0, 1, 2, 0, 0}, 5, {0, 0, 0, .5F, .5F}},
        {1, 5, 5, {0}, 1, {.000011F, .249997F, .249997F, .249997F, .249997F}},
        {1, 5, 5, {0, 1, 2}, 3, {.000023F, .000023F, .000023F, .499966F, .499966F}},
        {1, 5, 5, {0, 1, 2, 0, 0}, 5, {0, .000023F, .000023F, .499977F, .499977F}},
    };
    static const float fifths[5] = {.2F, .2F, .2F, .2F, .2F};
    qn_candidates *c = qn_candidates_make(16, &err);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const penalty_vector *v = &vectors[i];
        qn_sampler *s =
            qn_sampler_penalties((int32_t)v->n, v->repeat, v->frequency, v->presence, &err);
        accept_all(s, v->tokens, v->n);
        fill_probs(c, fifths, 5);
        apply_free(s, c);
        apply_free(qn_sampler_dist(0, &err), c);
        expect_probs(c, v->p, 5, TOLERANCE);
    }
    qn_sampler *s = qn_sampler_penalties(3, 2, .5F, .25F, &err);
    accept_all(s, (const int32_t[]){1, 1, 0, 1}, 4);
    qn_candidates_fill(c, (const float[]){-1, 3, 3, 2}, 4);
    apply_free(s, c);
    expect_logits(c, (const float[]){-2.75F, .25F, 3, 2}, 4, 1e-6F);
    qn_candidates_free(c);
}

/* Random histories and sets in any order against counting by hand. */
static void test_penalties_against_plain(void **state)
{
    (void)state;
    enum { N = 300 };
    qn_test_random r = {4};
    float row[N];
    int32_t text[400];
    qn_candidates *c = qn_candidates_make(N, &err);
    for (int round = 0; round < 60; round++) {
        int32_t last_n = 1 + (int32_t)(qn_test_bits(&r) % 150);
        size_t n = qn_test_bits(&r) % 400;
        qn_sampler *s = qn_sampler_penalties(last_n, 1.3F, .2F, -.4F, &err);
        for (size_t i = 0; i < n; i++) {
            text[i] = (int32_t)(qn_test_bits(&r) % (N + 20)) - 5; /* some are no candidates */
        }
        accept_all(s, text, n);
        for (size_t i = 0; i < N; i++) {
            row[i] = qn_test_uniform(&r, -3, 3);
        }
        qn_candidates_fill(c, row, N);
        if (round % 3) {
            apply_free(qn_sampler_top_k(round % 3 == 1 ? N : 20, &err), c);
        }
        apply_free(s, c);
        assert_false(c->sorted);
        for (size_t i = 0; i < c->size; i++) {
            int count = 0;
            for (size_t t = n > (size_t)last_n ? n - (size_t)last_n : 0; t < n; t++) {
                count += text[t] == c->ids[i];
            }
            double x = (double)row[c->ids[i]];
            if (count > 0) {
                x = (x <= 0 ? x * 1.3 : x / 1.3) - .2 * count + .4;
            }
            assert_true(fabs((double)c->logits[i] - x) < 1e-5);
        }
    }
    qn_candidates_free(c);
}

static void test_logit_bias(void **state)
{
    (void)state;
    static const qn_logit_bias biases[3] = {{0, 1.5F}, {3, -INFINITY}, {0, .5F}};
    qn_candidates *c = qn_candidates_make(16, &err);
    qn_candidates_fill(c, (const float[]){1, 3, 3, 2}, 4);
    apply_free(qn_sampler_logit_bias(biases, 3, &err), c);
    expect_logits(c, (const float[]){3, 3, 3, -INFINITY}, 4, 0);

    /* behind top-k ids are elsewhere, and some gone; what is banned stays so */
    static const qn_logit_bias more[5] = {
        {2, INFINITY}, {7, 1}, {-1, 5}, {0, INFINITY}, {0, -INFINITY}};
    qn_candidates_fill(c, (const float[]){1, 3, -INFINITY, 2}, 4);
    apply_free(qn_sampler_top_k(4, &err), c);
    apply_free(qn_sampler_logit_bias(more, 5, &err), c);
    expect_ids(c, (const int32_t[]){1, 3, 0, 2}, 4);
    expect_logits(c, (const float[]){3, 2, -INFINITY, -INFINITY}, 4, 0);
    assert_false(c->sorted);

    const qn_logit_bias wrong = {4, NAN};
    assert_null(qn_sampler_logit_bias(&wrong, 1, &err));
    assert_string_equal(err.message, "logit bias of token 4 is not a number");
    qn_candidates_free(c);
}

/* ---- DRY ---- */

typedef struct dry_vector {
    qn_dry_options options;
    int32_t history[16];
    size_t n_history;
    int32_t breaker[4];
    size_t n_breaker;
    size_t n; /* candidates, all alike */
    float lost[6];
} dry_vector;

static qn_sampler *make_dry(const dry_vector *v)
{
    qn_dry_breakers breakers = {0};
    if (v->n_breaker > 0) {
        qn_test_ok(
            qn__dry_breakers_add(&breakers, v->breaker[0], v->breaker + 1, v->n_breaker - 1, &err),
            err);
    }
    qn__dry_breakers_sort(&breakers);
    qn_sampler *s = qn__sampler_dry(&v->options, &breakers, &err);
    qn__dry_breakers_free(&breakers);
    accept_all(s, v->history, v->n_history);
    return s;
}

#define DRY(m, b, a, l)                                                                            \
    {                                                                                              \
        .multiplier = (m), .base = (b), .allowed_length = (a), .last_n = (l)                       \
    }

static void test_dry(void **state)
{
    (void)state;
    static const dry_vector vectors[] = {
        {DRY(1, 1.1F, 2, 4), {0, 1}, 2, {0}, 0, 4, {0}},
        {DRY(1, 1.1F, 2, 5), {0, 1, 2, 0, 1}, 5, {0}, 0, 4, {0, 0, 1, 0}},
        {DRY(1, 1.1F, 2, 6), {0, 1, 3, 4, 0, 1}, 6, {3}, 1, 5, {0}},
        {DRY(2, 1.1F, 2, 5), {0, 1, 2, 0, 1}, 5, {0}, 0, 5, {0, 0, 2, 0, 0}},
        {DRY(1, 1.1F, 4, 7), {0, 1, 2, 3, 4, 0, 1}, 7, {0}, 0, 5, {0}},
        {DRY(.8F, 1.75F, 2, 64),
         {0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 2},
         11,
         {0},
         0,
         6,
         {0, 0, 0, 1.4F, 1.4F, 0}},
        {DRY(.8F, 1.75F, 2, 64), {0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 2}, 11, {1, 2}, 2, 6, {0}},
        {DRY(.8F, 1.75F, 2, 64),
         {0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 2},
         11,
         {0},
         1,
         6,
         {0, 0, 0, .8F, .8F, 0}},
        {DRY(.8F, 1.75F, 2, 64),
         {0, 1, 2, 3, 1, 2, 4, 0, 1, 2},
         10,
         {0},
         0,
         6,
         {0, 0, 0, 1.4F, .8F, 0}},
        {DRY(1, 2, 1, 64), {3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, 10, {0}, 0, 6, {0, 0, 0, 256, 0, 0}},
    };
    qn_candidates *c = qn_candidates_make(16, &err);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const dry_vector *v = &vectors[i];
        float p[6], want[6];
        for (size_t k = 0; k < v->n; k++) {
            p[k] = 1.0F / (float)v->n;
            want[k] = logf(p[k]) - v->lost[k];
        }
        fill_probs(c, p, v->n);
        apply_free(make_dry(v), c);
        expect_logits(c, want, v->n, 1e-5F);
    }
    /* the probabilities of two of them */
    fill_probs(c, (const float[]){.25F, .25F, .25F, .25F}, 4);
    apply_free(make_dry(&vectors[1]), c);
    apply_free(qn_sampler_dist(0, &err), c);
    expect_probs(c, (const float[]){.296923F, .296923F, .109232F, .296923F}, 4, TOLERANCE);
    fill_probs(c, (const float[]){.2F, .2F, .2F, .2F, .2F}, 5);
    apply_free(make_dry(&vectors[3]), c);
    apply_free(qn_sampler_dist(0, &err), c);
    expect_probs(c, (const float[]){.241818F, .241818F, .032727F, .241818F, .241818F}, 5,
                 TOLERANCE);
    qn_candidates_free(c);
}

/* What a token loses, found by comparing every place with the end of the text. */
static double plain_loss(const int32_t *text, size_t n, int32_t id, int32_t breaker,
                         const qn_dry_options *o)
{
    size_t limit = 0, best = 0, allowed = (size_t)o->allowed_length;
    while (limit < n && text[n - 1 - limit] != breaker) {
        limit++;
    }
    for (size_t j = 0; j + 1 < n; j++) {
        size_t length = 0;
        while (length <= j && length < limit && text[j - length] == text[n - 1 - length]) {
            length++;
        }
        best = text[j + 1] == id && length > best ? length : best;
    }
    if (n <= allowed || best < allowed || id == breaker) {
        return 0;
    }
    return (double)o->multiplier * pow((double)o->base, (double)(best - allowed));
}

static void test_dry_against_plain(void **state)
{
    (void)state;
    qn_test_random r = {8};
    float row[8] = {0};
    int32_t text[200];
    qn_candidates *c = qn_candidates_make(8, &err);
    for (int round = 0; round < 300; round++) {
        dry_vector v = {.options = DRY(.5F, 1.2F, 1 + (int32_t)(qn_test_bits(&r) % 3),
                                       1 + (int32_t)(qn_test_bits(&r) % 60)),
                        .breaker = {(int32_t)(qn_test_bits(&r) % 6)},
                        .n_breaker = 1};
        size_t n = qn_test_bits(&r) % 200, alphabet = 1 + qn_test_bits(&r) % 6;
        for (size_t i = 0; i < n; i++) {
            text[i] = (int32_t)(qn_test_bits(&r) % alphabet);
        }
        qn_sampler *s = make_dry(&v);
        accept_all(s, text, n);
        qn_candidates_fill(c, row, 8);
        apply_free(s, c);
        size_t window = n < (size_t)v.options.last_n ? n : (size_t)v.options.last_n;
        for (int32_t id = 0; id < 8; id++) {
            double lost = plain_loss(text + n - window, window, id, v.breaker[0], &v.options);
            double off = fabs((double)c->logits[id] + lost);
            if (off > 1e-5 * (1 + lost)) {
                fail_msg("round %d: token %d lost %g, not %g", round, id, -(double)c->logits[id],
                         lost);
            }
        }
    }
    qn_candidates_free(c);
}

static void test_refused(void **state)
{
    (void)state;
    static const float bad[] = {0, -1, NAN, INFINITY, -INFINITY, 1e-45F};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(qn_sampler_penalties(64, bad[i], 0, 0, &err));
        assert_string_equal(err.message, "penalty_repeat must be finite and greater than 0");
        if (!isfinite(bad[i])) {
            assert_null(qn_sampler_penalties(64, 1, bad[i], 0, &err));
            assert_string_equal(err.message, "penalty_freq must be finite");
            assert_null(qn_sampler_penalties(64, 1, 0, bad[i], &err));
            assert_string_equal(err.message, "penalty_present must be finite");
        }
    }
    assert_null(qn_sampler_penalties(INT32_MAX, 2, 0, 0, &err));
    assert_int_equal(err.code, QN_ERR_LIMIT);
    qn_dry_options o = DRY(1, 2, 2, INT32_MAX);
    assert_null(qn_sampler_dry(NULL, &o, &err));
    assert_int_equal(err.code, QN_ERR_LIMIT);
    static const char *const texts[] = {"\n"};
    o = (qn_dry_options){1, 2, 2, 64, texts, 1};
    assert_null(qn_sampler_dry(NULL, &o, &err));
    assert_string_equal(err.message, "dry: breakers need a vocabulary");
    o.multiplier = NAN;
    assert_null(qn_sampler_dry(NULL, &o, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties),         cmocka_unit_test(test_penalties_against_plain),
        cmocka_unit_test(test_logit_bias),        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_dry_against_plain), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
