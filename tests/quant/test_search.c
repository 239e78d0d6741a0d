/* test_search.c: the searches for scales: the form with lanes has the bits of the plain one, and
 * what is found is no worse than rounding with the obvious scale. */
#include "support/support.h"

#include <math.h>

#include "base/fmath.h"
#include "quant/search.h"

enum { GROUPS = QN_FIT_LANES, ROUNDS = 400 };

/* Groups of different kinds: normal numbers, one sign, zeros, all equal, outliers. */
static void fill(qn_test_random *r, float *x, int n, int kind)
{
    for (int i = 0; i < n; i++) {
        float v = qn_test_normal(r);
        switch (kind) {
        case 0:
            x[i] = v;
            break;
        case 1:
            x[i] = fabsf(v) + 0.5F;
            break;
        case 2:
            x[i] = -fabsf(v) - 0.5F;
            break;
        case 3:
            x[i] = 0.0F;
            break;
        case 4:
            x[i] = -0.25F;
            break;
        case 5:
            x[i] = i == 7 ? 40.0F * v : 0.01F * v;
            break;
        default:
            x[i] = 1e-20F * v;
            break;
        }
    }
}

static void lanes_have_the_bits_of_the_plain_search(void **state)
{
    (void)state;
    static const qn_fit_range ranges[] = {{-1.0F, 0.1F, 20, false},
                                          {-0.5F, 0.1F, 15, false},
                                          {-0.5F, 0.1F, 15, true},
                                          {-0.9F, 0.05F, 36, false}};
    static const int tops[] = {3, 15, 31};
    qn_test_random r = {21};
    for (int round = 0; round < ROUNDS; round++) {
        float x[GROUPS * QN_BLOCK];
        float w[GROUPS * QN_BLOCK];
        uint8_t level[GROUPS * QN_BLOCK];
        uint8_t expected[QN_BLOCK];
        float scale[GROUPS];
        float offset[GROUPS];
        int n = round % 2 ? 16 : 32;
        int top = tops[round % 3];
        qn_fit_range range = ranges[round / 3 % 4];
        for (int g = 0; g < GROUPS; g++) {
            fill(&r, x + g * n, n, (int)(qn_test_bits(&r) % 7));
        }
        for (int i = 0; i < GROUPS * n; i++) {
            w[i] = round % 5 ? fabsf(x[i]) + 0.3F : qn_test_uniform(&r, 0.0F, 2.0F);
            w[i] = round % 7 == 0 && i % 3 == 0 ? 0.0F : w[i];
        }
        qn__fit_offset_lanes(x, w, n, top, range, level, scale, offset);
        for (int g = 0; g < GROUPS; g++) {
            float want_offset;
            float want =
                qn__fit_offset(x + g * n, w + g * n, n, top, range, expected, &want_offset);
            assert_int_equal(qn__float_bits(scale[g]), qn__float_bits(want));
            assert_int_equal(qn__float_bits(offset[g]), qn__float_bits(want_offset));
            assert_memory_equal(level + g * n, expected, (size_t)n);
        }
    }
}

/* Weighted squared error of scale * (level - zero) + low. */
static double error_of(const float *x, const float *w, int n, const uint8_t *level, float scale,
                       float low, int zero)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        double e = (double)scale * ((int)level[i] - zero) + (double)low - (double)x[i];
        sum += (double)w[i] * e * e;
    }
    return sum;
}

static void searches_beat_plain_rounding(void **state)
{
    (void)state;
    qn_test_random r = {22};
    for (int round = 0; round < ROUNDS; round++) {
        float x[QN_BLOCK];
        float w[QN_BLOCK];
        uint8_t level[QN_BLOCK];
        uint8_t simple[QN_BLOCK];
        fill(&r, x, QN_BLOCK, round % 2 ? 0 : 5);
        float low = 0.0F;
        float high = x[0];
        for (int i = 0; i < QN_BLOCK; i++) {
            w[i] = qn_test_uniform(&r, 0.1F, 2.0F);
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        float offset;
        float scale = qn__fit_offset(x, w, QN_BLOCK, 15, qn__fit_weighted, level, &offset);
        float step = (high - low) / 15.0F;
        for (int i = 0; i < QN_BLOCK; i++) {
            assert_in_range(level[i], 0, 15);
            simple[i] = (uint8_t)qn__round_even((x[i] - low) / step);
        }
        double found = error_of(x, w, QN_BLOCK, level, scale, -offset, 0);
        assert_true(found <= error_of(x, w, QN_BLOCK, simple, step, low, 0) * 1.0001 + 1e-9);

        float extreme = qn__extreme(x, QN_BLOCK);
        scale = qn__fit_symmetric(x, w, QN_BLOCK, 8, level);
        for (int i = 0; i < QN_BLOCK; i++) {
            assert_in_range(level[i], 0, 15);
            simple[i] = (uint8_t)(qn__clamp_int(qn__round_even(-8.0F / extreme * x[i]), -8, 7) + 8);
        }
        found = error_of(x, w, QN_BLOCK, level, scale, 0.0F, 8);
        assert_true(found <=
                    error_of(x, w, QN_BLOCK, simple, extreme / -8.0F, 0.0F, 8) * 1.0001 + 1e-9);
    }
}

static void rounding(void **state)
{
    (void)state;
    static const struct {
        float x;
        int even, away;
    } cases[] = {{0.5F, 0, 1},    {1.5F, 2, 2},        {2.5F, 2, 3}, {-0.5F, 0, -1},
                 {-2.5F, -2, -3}, {0.49999997F, 0, 0}, {3.0F, 3, 3}, {-3.75F, -4, -4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(qn__round_even(cases[i].x), cases[i].even);
        assert_int_equal(qn__round_away(cases[i].x, -100, 100), cases[i].away);
    }
    assert_int_equal(qn__round_away(1e30F, -5, 5), 5);
    assert_int_equal(qn__round_away(-INFINITY, -5, 5), -5);
    assert_int_equal(qn__round_away(NAN, -5, 5), -5);
    assert_int_equal(qn__truncate(NAN, 9), 0);
    assert_int_equal(qn__truncate(-3.0F, 9), 0);
    assert_int_equal(qn__truncate(8.99F, 9), 8);
    assert_int_equal(qn__truncate(INFINITY, 9), 9);
    const float ties[4] = {1.0F, -3.0F, 3.0F, NAN};
    assert_true(qn__extreme(ties, 4) == -3.0F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_have_the_bits_of_the_plain_search),
        cmocka_unit_test(searches_beat_plain_rounding),
        cmocka_unit_test(rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
