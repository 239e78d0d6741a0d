/* The recorded vectors of the samplers: what other engines' users know these samplers to do. */
#include "support/support.h"

#include <math.h>

#include <quern/sampler.h>

#define TOLERANCE 1e-6

static qn_error err;

/* Candidates 0 .. n-1 with logit ln(p). */
static void fill_probs(qn_candidates *c, const float *p, size_t n)
{
    float logits[16];
    for (size_t i = 0; i < n; i++) {
        logits[i] = logf(p[i]);
    }
    qn_candidates_fill(c, logits, n);
}

static void apply_free(qn_sampler *s, qn_candidates *c)
{
    assert_non_null(s);
    qn_sampler_apply(s, c);
    qn_sampler_free(s);
}

typedef struct vector {
    enum { TEMP, TOP_K, TOP_P, MIN_P } kind;
    float value;
    size_t min_keep;
    size_t n;
    float expect[4];
} vector;

static qn_sampler *make(const vector *v)
{
    switch (v->kind) {
    case TEMP:
        return qn_sampler_temp(v->value, &err);
    case TOP_K:
        return qn_sampler_top_k((int32_t)v->value, &err);
    case TOP_P:
        return qn_sampler_top_p(v->value, v->min_keep, &err);
    default:
        return qn_sampler_min_p(v->value, v->min_keep, &err);
    }
}

static void test_one_sampler_then_dist(void **state)
{
    (void)state;
    static const float p[4] = {.1F, .2F, .3F, .4F};
    static const vector vectors[] = {
        {TEMP, 1.0F, 0, 4, {.1F, .2F, .3F, .4F}},
        {TEMP, 0.0F, 0, 4, {0, 0, 0, 1}},
        {TEMP, -1.0F, 0, 4, {0, 0, 0, 1}},
        {TOP_K, 1, 0, 1, {1}},
        {TOP_K, 3, 0, 3, {.4F / .9F, .3F / .9F, .2F / .9F}},
        {TOP_K, 4, 0, 4, {.4F, .3F, .2F, .1F}},
        {TOP_K, 0, 0, 4, {.1F, .2F, .3F, .4F}},
        {TOP_P, 0, 0, 1, {1}},
        {TOP_P, .7F, 0, 2, {.4F / .7F, .3F / .7F}},
        {TOP_P, .8F, 0, 3, {.4F / .9F, .3F / .9F, .2F / .9F}},
        {TOP_P, 1, 0, 4, {.1F, .2F, .3F, .4F}},
        {TOP_P, .1F, 3, 3, {.4F / .9F, .3F / .9F, .2F / .9F}},
        {MIN_P, 0, 0, 4, {.1F, .2F, .3F, .4F}},
        {MIN_P, .24F, 0, 4, {.1F, .2F, .3F, .4F}},
        {MIN_P, .26F, 0, 3, {.2F / .9F, .3F / .9F, .4F / .9F}},
        {MIN_P, .49F, 0, 3, {.2F / .9F, .3F / .9F, .4F / .9F}},
        {MIN_P, .51F, 0, 2, {.3F / .7F, .4F / .7F}},
        {MIN_P, .74F, 0, 2, {.3F / .7F, .4F / .7F}},
        {MIN_P, .76F, 0, 1, {1}},
        {MIN_P, 1.0F, 0, 1, {1}},
        {MIN_P, 1.05F, 0, 1, {1}},
        {MIN_P, .9F, 3, 3, {.4F / .9F, .3F / .9F, .2F / .9F}},
    };
    qn_candidates *c = qn_candidates_make(16, &err);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const vector *v = &vectors[i];
        fill_probs(c, p, 4);
        apply_free(make(v), c);
        apply_free(qn_sampler_dist(0, &err), c);
        assert_int_equal(c->size, v->n);
        for (size_t j = 0; j < v->n; j++) {
            if (fabs((double)qn_candidates_prob(c, j) - (double)v->expect[j]) > TOLERANCE) {
                fail_msg("vector %zu: p[%zu] = %g, not %g", i, j, (double)qn_candidates_prob(c, j),
                         (double)v->expect[j]);
            }
        }
    }
    qn_candidates_free(c);
}

static void test_direct(void **state)
{
    (void)state;
    static const float p[4] = {.1F, .2F, .3F, .4F};
    static const float scaled[4] = {-2.878231F, -2.011797F, -1.504966F, -1.145363F};
    qn_candidates *c = qn_candidates_make(16, &err);

    fill_probs(c, p, 4);
    apply_free(qn_sampler_temp(.8F, &err), c);
    for (size_t i = 0; i < 4; i++) {
        assert_true(fabsf(c->logits[i] - scaled[i]) < 2e-6F);
    }
    fill_probs(c, p, 4);
    apply_free(qn_sampler_temp(-1.0F, &err), c);
    assert_true(c->logits[0] == -INFINITY && c->logits[1] == -INFINITY);
    assert_true(c->logits[2] == -INFINITY && fabsf(c->logits[3] + 0.9162907F) < 1e-7F);

    fill_probs(c, p, 4);
    apply_free(qn_sampler_min_p(.9F, 3, &err), c);
    assert_int_equal(c->size, 3);
    assert_true(c->ids[0] == 3 && c->ids[1] == 2 && c->ids[2] == 1 && c->sorted);

    fill_probs(c, p, 4);
    apply_free(qn_sampler_top_p(.1F, 3, &err), c);
    assert_int_equal(c->size, 3);
    assert_true(c->ids[0] == 3 && c->ids[1] == 2 && c->ids[2] == 1);
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabsf(qn_candidates_prob(c, i) - p[3 - i]) < 1e-6F);
    }

    static const float four[4] = {1, 3, 3, 2};
    qn_candidates_fill(c, four, 4);
    apply_free(qn_sampler_greedy(&err), c);
    assert_int_equal(c->selected, 1);

    static const float banned[4] = {0, -INFINITY, 1, 2};
    qn_candidates_fill(c, banned, 4);
    apply_free(qn_sampler_top_p(.9F, 1, &err), c);
    assert_true(c->size == 2 && c->ids[0] == 3 && c->ids[1] == 2);
    assert_true(fabsf(qn_candidates_prob(c, 0) - .6652409F) < 1e-6F);
    assert_true(fabsf(qn_candidates_prob(c, 1) - .2447285F) < 1e-6F);
    qn_candidates_fill(c, banned, 4);
    apply_free(qn_sampler_dist(0, &err), c);
    assert_true(c->ids[c->selected] == 3 && qn_candidates_prob(c, 1) == 0.0F);
    assert_true(fabsf(qn_candidates_prob(c, 0) - .09003057F) < 1e-6F);
    qn_candidates_free(c);
}

/* Applies `s` n_ids times to the same logits, accepting each pick, and compares the ids. */
static void expect_ids(qn_sampler *s, const float *logits, size_t n, const int32_t *ids,
                       size_t n_ids, size_t end_size)
{
    qn_candidates *c = qn_candidates_make(n, &err);
    assert_non_null(s);
    for (size_t i = 0; i < n_ids; i++) {
        qn_candidates_fill(c, logits, n);
        qn_sampler_apply(s, c);
        assert_true(c->selected >= 0);
        assert_int_equal(c->ids[c->selected], ids[i]);
        qn_test_ok(qn_sampler_accept(s, c->ids[c->selected], true, &err), err);
    }
    assert_int_equal(c->size, end_size);
    qn_candidates_free(c);
    qn_sampler_free(s);
}

static void test_dist_streams(void **state)
{
    (void)state;
    const float logits[4] = {logf(.1F), logf(.2F), logf(.3F), logf(.4F)};
    static const struct {
        uint32_t seed;
        int32_t ids[20];
    } streams[] = {
        {0, {2, 3, 3, 3, 3, 2, 1, 0, 1, 2, 3, 2, 2, 3, 2, 3, 2, 3, 1, 3}},
        {42, {3, 1, 3, 2, 2, 0, 2, 2, 1, 3, 0, 3, 3, 0, 3, 3, 3, 0, 0, 2}},
        {1234, {2, 3, 3, 3, 3, 1, 1, 3, 1, 1, 0, 2, 2, 3, 0, 0, 2, 0, 1, 1}},
    };
    for (size_t i = 0; i < 3; i++) {
        qn_sampler *s = qn_sampler_dist(streams[i].seed, &err);
        expect_ids(s, logits, 4, streams[i].ids, 20, 4);
    }
}

/* One candidate still costs a draw, so that streams stay aligned. */
static void test_dist_single_candidate(void **state)
{
    (void)state;
    static const int32_t fresh[8] = {206, 61, 115, 85, 40, 213, 131, 169};
    float equal[256] = {0};
    expect_ids(qn_sampler_dist(4242, &err), equal, 256, fresh, 8, 256);

    qn_candidates *c = qn_candidates_make(256, &err);
    qn_sampler *one = qn_sampler_dist(4242, &err), *two = qn_sampler_dist(4242, &err);
    qn_candidates_fill(c, equal, 1);
    qn_sampler_apply(one, c);
    assert_true(c->selected == 0 && qn_candidates_prob(c, 0) == 1.0F);
    qn_test_ok(qn_sampler_accept(one, 0, true, &err), err);
    qn_candidates_fill(c, equal, 2);
    qn_sampler_apply(two, c);
    qn_test_ok(qn_sampler_accept(two, 0, true, &err), err);
    for (int i = 0; i < 7; i++) {
        qn_sampler *both[2] = {one, two};
        for (int j = 0; j < 2; j++) {
            qn_candidates_fill(c, equal, 256);
            qn_sampler_apply(both[j], c);
            assert_int_equal(c->ids[c->selected], fresh[i + 1]);
            qn_test_ok(qn_sampler_accept(both[j], fresh[i + 1], true, &err), err);
        }
    }
    qn_sampler_free(one);
    qn_sampler_free(two);
    qn_candidates_free(c);
}

static qn_sampler *chain_of(qn_sampler *a, qn_sampler *b, qn_sampler *c, qn_sampler *d,
                            qn_sampler *e)
{
    qn_sampler *members[5] = {a, b, c, d, e};
    qn_sampler *chain = qn_sampler_chain(&err);
    for (int i = 0; i < 5 && members[i]; i++) {
        qn_test_ok(qn_sampler_chain_add(chain, members[i], &err), err);
    }
    return chain;
}

static void test_chains(void **state)
{
    (void)state;
    static const int32_t plain[16] = {803, 190, 779, 595, 448, 101, 459, 326,
                                      150, 643, 62,  720, 939, 1,   988, 618};
    static const int32_t usual[16] = {309, 926, 988, 741, 815, 284, 136, 531,
                                      605, 383, 642, 346, 556, 321, 198, 62};
    static const int32_t nucleus[16] = {767, 99,  162, 38, 692, 210, 334, 556,
                                        494, 569, 926, 26, 27,  321, 225, 322};
    static const int32_t min_p[16] = {815, 210, 803, 605, 470, 136, 482, 334,
                                      173, 642, 87,  729, 939, 13,  988, 618};
    float logits[1000];
    for (int i = 0; i < 1000; i++) {
        logits[i] = (float)(7919 * i % 1000) / 100.0F - 5.0F;
    }
    expect_ids(chain_of(qn_sampler_dist(42, &err), NULL, NULL, NULL, NULL), logits, 1000, plain, 16,
               1000);
    expect_ids(chain_of(qn_sampler_top_k(40, &err), qn_sampler_top_p(.95F, 0, &err),
                        qn_sampler_min_p(.05F, 0, &err), qn_sampler_temp(.8F, &err),
                        qn_sampler_dist(42, &err)),
               logits, 1000, usual, 16, 38);
    qn_sampling_options options = qn_sampling_defaults();
    options.seed = 42;
    expect_ids(qn_sampler_from_options(&options, &err), logits, 1000, usual, 16, 38);
    expect_ids(
        chain_of(qn_sampler_top_p(.9F, 0, &err), qn_sampler_dist(42, &err), NULL, NULL, NULL),
        logits, 1000, nucleus, 16, 231);
    expect_ids(
        chain_of(qn_sampler_min_p(.5F, 0, &err), qn_sampler_dist(42, &err), NULL, NULL, NULL),
        logits, 1000, min_p, 16, 70);
}

/* Queue vectors: 10000 candidates with p proportional to the id; letters k, p, m in turn. */
#define QUEUE_N 10000

typedef struct expectation {
    int64_t size, least;
} expectation;

static expectation expect_step(const qn_candidates *c, char letter, int32_t k, float p, float m)
{
    int64_t size = (int64_t)c->size, least = INT64_MAX, n = QUEUE_N;
    for (size_t i = 0; i < c->size; i++) {
        least = c->ids[i] < least ? c->ids[i] : least;
    }
    if (letter == 'k') {
        return (expectation){size < k ? size : k, least > n - k ? least : n - k};
    }
    if (letter == 'p') {
        double all = (double)(n * (n - 1) / 2 - least * (least - 1) / 2);
        double target = ceil((double)p * all), sum = 0;
        if (p >= 1.0F) {
            return (expectation){size, least};
        }
        int64_t first = n;
        do {
            first--;
            sum += (double)first;
        } while (first > 0 && sum < target);
        first = first == 1 ? 0 : first;
        return (expectation){n - first, first};
    }
    int64_t keep = (int64_t)ceil((1.0 - (double)m) * (double)n);
    keep = keep < 1 ? 1 : (keep > size ? size : keep);
    int64_t first = (int64_t)floor((double)m * (double)n);
    first = first < 1 ? 1 : first;
    first = first < n - size ? n - size : first;
    first = first > n - 1 ? n - 1 : first;
    return (expectation){keep, first};
}

static void queue_step(qn_candidates *c, char letter, int32_t k, float p, float m)
{
    expectation want = expect_step(c, letter, k, p, m);
    if (letter == 'k') {
        apply_free(qn_sampler_top_k(k, &err), c);
    } else if (letter == 'p') {
        apply_free(qn_sampler_top_p(p, 1, &err), c);
    } else {
        apply_free(qn_sampler_min_p(m, 1, &err), c);
    }
    assert_int_equal(c->size, want.size);
    int32_t least = INT32_MAX, most = -1;
    for (size_t i = 0; i < c->size; i++) {
        least = c->ids[i] < least ? c->ids[i] : least;
        most = c->ids[i] > most ? c->ids[i] : most;
    }
    assert_int_equal(least, want.least);
    assert_int_equal(most, QUEUE_N - 1);
    apply_free(qn_sampler_dist(0, &err), c);
    assert_true(c->selected >= 0);
}

static void test_queues(void **state)
{
    (void)state;
    static const struct {
        const char *letters;
        int32_t k;
        float p, m;
    } queues[] = {
        {"k", QUEUE_N, 0, 0},
        {"k", 1, 0, 0},
        {"k", 100, 0, 0},
        {"p", 0, 1.0F, 0},
        {"p", 0, 0.0F, 0},
        {"p", 0, 0.0003F, 0},
        {"p", 0, 0.8F, 0},
        {"m", 0, 0, 1.0F},
        {"m", 0, 0, 9997.9F / 9999.0F},
        {"m", 0, 0, 0.1F},
        {"kp", 100, 0.8F, 0.1F},
        {"km", 100, 0.8F, 0.1F},
        {"pk", 100, 0.8F, 0.1F},
        {"pm", 100, 0.8F, 0.1F},
        {"mk", 100, 0.8F, 0.1F},
        {"mp", 100, 0.8F, 9997.9F / 9999.0F},
        {"mp", 100, 0.8F, 0.1F},
        {"kpm", 100, 0.8F, 0.1F},
        {"kmp", 100, 0.8F, 0.1F},
        {"pkm", 100, 0.8F, 0.1F},
        {"pmk", 100, 0.8F, 0.1F},
        {"mkp", 100, 0.8F, 0.1F},
        {"mpk", 100, 0.8F, 0.1F},
    };
    static float logits[QUEUE_N];
    for (int i = 0; i < QUEUE_N; i++) {
        logits[i] = logf((float)i);
    }
    qn_candidates *c = qn_candidates_make(QUEUE_N, &err);
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++) {
        qn_candidates_fill(c, logits, QUEUE_N);
        for (const char *l = queues[i].letters; *l; l++) {
            queue_step(c, *l, queues[i].k, queues[i].p, queues[i].m);
        }
    }
    qn_candidates_fill(c, logits, QUEUE_N); /* p so small that only the banned one goes */
    apply_free(qn_sampler_min_p(1e-12F, 1, &err), c);
    assert_int_equal(c->size, QUEUE_N - 1);
    qn_candidates_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_sampler_then_dist),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_dist_streams),
        cmocka_unit_test(test_dist_single_candidate),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
