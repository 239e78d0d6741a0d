/* Row functions against slow and plain ones, on ordinary and hostile rows; the weight function. */
#include "support/support.h"

#include <float.h>
#include <math.h>

#include <quern/sampler.h>

#include "base/fmath.h"
#include "sampler/hostile.h"
#include "sampler/sampler.h"

static qn_error err;

typedef struct plain {
    float logit;
    int32_t id;
} plain;

static int plain_order(const void *a, const void *b)
{
    const plain *x = a, *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static void plain_sorted(const qn_candidates *c, plain *out)
{
    for (size_t i = 0; i < c->size; i++) {
        out[i] = (plain){c->logits[i], c->ids[i]};
    }
    qsort(out, c->size, sizeof *out, plain_order);
}

static void expect_prefix(const qn_candidates *c, const plain *want, size_t n)
{
    assert_int_equal(c->size, n);
    assert_true(c->sorted);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(c->ids[i], want[i].id);
        assert_true(c->logits[i] == want[i].logit);
    }
}

static void check_best(qn_candidates *c, const float *row, size_t n, plain *want)
{
    qn_candidates_fill(c, row, n);
    float max = qn__row_max(c->logits, c->size);
    plain_sorted(c, want);
    assert_true(n == 0 || max == want[0].logit);
    int64_t best = qn__row_best(c);
    if (n == 0 || max == -INFINITY) {
        assert_int_equal(best, -1);
    } else {
        assert_int_equal(c->ids[best], want[0].id);
    }
    qn_candidates_sort(c);
    expect_prefix(c, want, n);
}

static void check_top_k(qn_candidates *c, const float *row, size_t n, const plain *want,
                        qn_test_random *r)
{
    size_t ks[] = {1, 2, 7, 40, 1 + qn_test_bits(r) % (n + 1), n};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        qn_candidates_fill(c, row, n);
        qn__top_k_row(c, ks[i]);
        expect_prefix(c, want, ks[i] < n ? ks[i] : n);
    }
}

static void check_top_p(qn_candidates *c, const float *row, size_t n, const plain *want,
                        qn_test_random *r)
{
    static const float ps[] = {0.0F, 1e-9F, 0.3F, 0.7F, 0.95F, 0.99999994F};
    float max = n ? want[0].logit : -INFINITY;
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
        size_t min_keep = qn_test_bits(r) % 4;
        qn_candidates_fill(c, row, n);
        uint64_t total = 0, before = 0;
        for (size_t j = 0; j < n; j++) {
            total += qn__exp_weight(c->logits[j] - max);
        }
        uint64_t cut = qn__mul_high(qn__fraction_of(ps[i]), total);
        size_t keep = 0;
        while (keep < n && (before < cut || keep < (min_keep ? min_keep : 1))) {
            before += qn__exp_weight(want[keep].logit - max);
            keep++;
        }
        qn__top_p_row(c, qn__fraction_of(ps[i]), min_keep);
        expect_prefix(c, want, keep);

        qn_candidates_fill(c, row, n);
        qn_candidates_sort(c); /* the path of a sorted set */
        qn__top_p_row(c, qn__fraction_of(ps[i]), min_keep);
        expect_prefix(c, want, keep);
    }
}

static void test_rows_against_plain(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 48, 49, 128, 700, 3000, 20000};
    qn_test_random r = {1};
    float *row = calloc(20000, sizeof *row);
    plain *want = calloc(20000, sizeof *want);
    qn_candidates *c = qn_candidates_make(20000, &err);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int kind = 0; kind < N_ROWS; kind++) {
            make_row(kind, row, sizes[s], &r);
            check_best(c, row, sizes[s], want);
            check_top_k(c, row, sizes[s], want, &r);
            check_top_p(c, row, sizes[s], want, &r);
        }
    }
    qn_candidates_free(c);
    free(want);
    free(row);
}

/* The usual chain with any settings on every hostile row: a valid pick or none. */
static void test_hostile_rows_give_a_pick_or_none(void **state)
{
    (void)state;
    qn_test_random r = {2};
    float row[1000];
    qn_candidates *c = qn_candidates_make(1000, &err);
    static const float temps[] = {0.0F, 0.7F, 1e-30F, 1e-45F, 1e30F, -2.0F};
    for (int round = 0; round < 400; round++) {
        int kind = (int)(qn_test_bits(&r) % N_ROWS);
        size_t n = qn_test_bits(&r) % 4 ? qn_test_bits(&r) % 1001 : qn_test_bits(&r) % 3;
        make_row(kind, row, n, &r);
        qn_sampling_options o = qn_sampling_defaults();
        o.seed = qn_test_bits(&r);
        o.top_k = (int32_t)(qn_test_bits(&r) % 60) - 5;
        o.top_p = qn_test_uniform(&r, -0.1F, 1.1F);
        o.min_p = qn_test_uniform(&r, -0.1F, 1.1F);
        o.temperature = temps[qn_test_bits(&r) % 6];
        o.min_keep = qn_test_bits(&r) % 3;
        qn_sampler *chain = qn_sampler_from_options(&o, &err);
        assert_non_null(chain);
        qn_candidates_fill(c, row, n);
        bool any = false;
        for (size_t i = 0; i < n; i++) {
            any = any || c->logits[i] > -INFINITY;
        }
        qn_sampler_apply(chain, c);
        assert_true((c->selected >= 0) == any);
        if (any) {
            assert_true((size_t)c->selected < c->size);
            assert_true(c->logits[c->selected] > -INFINITY);
            assert_in_range(c->ids[c->selected], 0, n - 1);
        }
        qn_sampler_free(chain);
    }
    qn_candidates_free(c);
}

static void test_fill_cleans(void **state)
{
    (void)state;
    const float row[4] = {NAN, INFINITY, -INFINITY, 1.0F};
    qn_candidates *c = qn_candidates_make(3, &err);
    qn_candidates_fill(c, row, 4); /* one more than there is room */
    assert_int_equal(c->size, 3);
    assert_true(c->logits[0] == -INFINITY && c->logits[1] == FLT_MAX);
    assert_true(c->logits[2] == -INFINITY && c->selected == -1);
    qn_candidates_free(c);
    c = qn_candidates_make(0, &err);
    assert_non_null(c);
    qn_candidates_fill(c, row, 4);
    assert_int_equal(c->size, 0);
    assert_int_equal(qn_candidates_weigh(c), 0);
    qn_candidates_free(c);
}

static void test_weight(void **state)
{
    (void)state;
    assert_int_equal(qn__exp_weight(0.0F), 0x80000000U);
    assert_int_equal(qn__exp_weight(-INFINITY), 0);
    assert_int_equal(qn__exp_weight(NAN), 0);
    assert_int_equal(qn__exp_weight(-1e30F), 0);
    assert_int_equal(qn__exp_weight(-0x1p-149F), 0x80000000U);
    uint32_t last = 0x80000000U;
    double worst = 0;
    for (uint32_t bits = qn__float_bits(-1e-8F); bits < qn__float_bits(-24.0F); bits += 4099) {
        float d = qn__bits_float(bits);
        double exact = ldexp(exp((double)d), 31);
        uint32_t w = qn__exp_weight(d);
        /* the polynomial's error and its rounding to 24 bits, then that to an integer */
        double off = fabs((double)w - exact);
        assert_true(off <= 0.5000001 + exact * 0x1p-23);
        worst = exact > 1e8 && off / exact > worst ? off / exact : worst;
        assert_true(w <= last + (last >> 22)); /* falls, but for rounding */
        last = w;
    }
    assert_true(worst < 0x1p-23);
}

/* The form of vectors gives the bits of the form of one value. */
static void test_weigh_row_equals_weight(void **state)
{
    (void)state;
    qn_test_random r = {3};
    float row[1003];
    uint32_t weights[1003];
    qn_candidates *c = qn_candidates_make(1003, &err);
    for (int kind = 0; kind < N_ROWS; kind++) {
        make_row(kind, row, 1003, &r);
        qn_candidates_fill(c, row, 1003);
        float max = qn__row_max(c->logits, c->size);
        if (max == -INFINITY) {
            continue;
        }
        uint64_t total = qn__row_weigh(c->logits, c->size, max, weights), sum = 0;
        for (size_t i = 0; i < 1003; i++) {
            assert_int_equal(weights[i], qn__exp_weight(c->logits[i] - max));
            sum += weights[i];
        }
        assert_true(sum == total);
    }
    qn_candidates_free(c);
}

static void test_fractions(void **state)
{
    (void)state;
    assert_true(qn__mul_high(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
    assert_true(qn__mul_high(0, UINT64_MAX) == 0);
    assert_true(qn__mul_high(UINT64_C(1) << 63, 7) == 3);
    assert_true(qn__mul_high(UINT64_C(0xfedcba9876543210), UINT64_C(0x0123456789abcdef)) ==
                UINT64_C(0x0121fa00ad77d742));
    assert_true(qn__fraction_of(0.5F) == UINT64_C(1) << 63);
    assert_true(qn__fraction_of(-1.0F) == 0 && qn__fraction_of(NAN) == 0);
    assert_true(qn__fraction_of(1.0F) == UINT64_MAX && qn__fraction_of(2.0F) == UINT64_MAX);
    assert_true(qn__fraction_of(0x1p-70F) == 0);
    assert_true(qn__fraction_of(0x1.fffffep-1F) == UINT64_C(0xffffff0000000000));
}

/* Scaling may make logits equal: then ids decide, and the flag tells. */
static void test_scaling_keeps_the_order_true(void **state)
{
    (void)state;
    const float row[3] = {1.0F, 1.0000001F, 3e38F};
    qn_candidates *c = qn_candidates_make(3, &err);
    qn_candidates_fill(c, row, 3);
    qn_candidates_sort(c);
    qn__scale_row(c, 1e-40F);
    assert_false(c->sorted);
    qn_candidates_sort(c);
    assert_true(c->ids[0] == 2 && c->ids[1] == 0 && c->ids[2] == 1);
    qn_candidates_fill(c, row, 3);
    qn__scale_row(c, 1e20F);
    assert_true(c->logits[2] == FLT_MAX);
    qn_candidates_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_against_plain),
        cmocka_unit_test(test_hostile_rows_give_a_pick_or_none),
        cmocka_unit_test(test_fill_cleans),
        cmocka_unit_test(test_weight),
        cmocka_unit_test(test_weigh_row_equals_weight),
        cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_scaling_keeps_the_order_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
