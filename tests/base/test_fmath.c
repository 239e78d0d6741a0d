/* The elementary functions against the C library's long double ones, over all sizes of arguments.
 */
#include "support/support.h"

#include <math.h>

#include "base/fmath.h"

/* So many times fewer arguments: where long double is done in software, each takes microseconds. */
#define THINNED (QN_TEST_LIGHT ? 32 : 1)

/* Error in units in the last place of the true result. */
static double error_f32(float got, long double want)
{
    float near = (float)want;
    if (isinf(near) || isnan(near)) {
        return got == near || (isnan(got) && isnan(near)) ? 0.0 : INFINITY;
    }
    int exponent = ilogbl(want == 0.0L ? 0x1p-149L : want);
    long double unit = ldexpl(1.0L, (exponent < -126 ? -126 : exponent) - 23);
    return (double)(fabsl((long double)got - want) / unit);
}

static long double sigmoid(long double x)
{
    return 1.0L / (1.0L + expl(-x));
}

static void check_f32(const char *name, float (*fn)(float), long double (*truth)(long double))
{
    double worst = 0.0;
    float worst_at = 0.0F;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1999 * THINNED) {
        float x = qn__bits_float((uint32_t)bits);
        if (isnan(x)) {
            assert_true(isnan(fn(x)));
            continue;
        }
        double error = error_f32(fn(x), truth((long double)x));
        if (error > worst) {
            worst = error;
            worst_at = x;
        }
    }
    printf("%-8s error at most %.3f ulp, at %a\n", name, worst, (double)worst_at);
    assert_true(worst < 2.25);
}

static void test_f32(void **state)
{
    (void)state;
    check_f32("exp", qn__expf, expl);
    check_f32("log", qn__logf, logl);
    check_f32("tanh", qn__tanhf, tanhl);
    check_f32("sigmoid", qn__sigmoidf, sigmoid);
    check_f32("erf", qn__erff, erfl);
}

static void test_f32_ends(void **state)
{
    (void)state;
    assert_true(qn__expf(0.0F) == 1.0F);
    assert_true(qn__expf(88.8F) == INFINITY && qn__expf(INFINITY) == INFINITY);
    assert_true(qn__expf(-104.1F) == 0.0F && qn__expf(-INFINITY) == 0.0F);
    assert_true(qn__expf(-103.0F) > 0.0F); /* subnormal */
    assert_true(qn__logf(0.0F) == -INFINITY && qn__logf(-0.0F) == -INFINITY);
    assert_true(isnan(qn__logf(-1.0F)) && isnan(qn__logf(-INFINITY)));
    assert_true(qn__logf(1.0F) == 0.0F && qn__logf(INFINITY) == INFINITY);
    assert_true(qn__tanhf(-INFINITY) == -1.0F && qn__tanhf(20.0F) == 1.0F);
    assert_true(qn__tanhf(-0.0F) == 0.0F && qn__erff(-0.0F) == 0.0F);
    assert_true(qn__sigmoidf(-INFINITY) == 0.0F && qn__sigmoidf(INFINITY) == 1.0F);
    assert_true(qn__erff(4.0F) == 1.0F && qn__erff(-INFINITY) == -1.0F);
}

static void test_exp_log_f64(void **state)
{
    qn_test_random r = {5};
    double worst_exp = 0.0, worst_log = 0.0;
    (void)state;
    for (int i = 0; i < 200000 / THINNED; i++) {
        double x = (double)qn_test_uniform(&r, -700.0F, 700.0F) * (1.0 + 1e-9 * i);
        long double want = expl((long double)x);
        worst_exp = fmax(worst_exp, (double)fabsl(((long double)qn__exp(x) - want) / want));
        double y = exp(x);
        if (i % 2) {
            y = 1.0 + x * 1e-3; /* where the logarithm is small */
        }
        if (y > 0.0 && y != 1.0) {
            long double log_y = logl((long double)y);
            worst_log = fmax(worst_log, (double)fabsl(((long double)qn__log(y) - log_y) / log_y));
        }
    }
    printf("exp %.3g, log %.3g relative\n", worst_exp, worst_log);
    assert_true(worst_exp < 1e-15);
    assert_true(worst_log < 1e-15);
    assert_true(qn__exp(1000.0) == INFINITY && qn__exp(-1000.0) == 0.0 && qn__exp(0.0) == 1.0);
    assert_true(isnan(qn__exp(NAN)) && isnan(qn__log(-1.0)) && qn__log(0.0) == -INFINITY);
    assert_true(qn__log(1.0) == 0.0 && qn__log(INFINITY) == INFINITY);
    assert_true(fabs(qn__log(0x1p-1074) + 744.4400719213812) < 1e-12);
}

static void test_pow_f64(void **state)
{
    static const double bases[] = {10000.0, 1000000.0, 500000.0, 8e6, 1.5e7, 2.0, 0.3, 1.0};
    double worst = 0.0;
    (void)state;
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        for (int r = 2; r <= 512; r += 2) {
            double exponent = -2.0 / r;
            long double want = powl((long double)bases[b], (long double)exponent);
            double got = qn__pow(bases[b], exponent);
            worst = fmax(worst, (double)fabsl(((long double)got - want) / want));
            assert_true((float)got == (float)want);
        }
    }
    printf("pow %.3g relative\n", worst);
    assert_true(worst < 1e-15);
    assert_true(isnan(qn__pow(-1.0, 2.0)) && isnan(qn__pow(2.0, NAN)));
}

static void test_sincos(void **state)
{
    qn_test_random r = {6};
    double worst = 0.0;
    (void)state;
    for (int i = 0; i < 400000 / THINNED; i++) {
        double x = (double)qn_test_uniform(&r, -1.0F, 1.0F);
        x *= i % 4 == 0 ? 1.0 : i % 4 == 1 ? 100.0 : i % 4 == 2 ? 1e6 : 0x1p30;
        double s, c;
        qn__sincos(x, &s, &c);
        worst = fmax(worst, (double)fabsl((long double)s - sinl((long double)x)));
        worst = fmax(worst, (double)fabsl((long double)c - cosl((long double)x)));
    }
    printf("sincos %.3g\n", worst);
    assert_true(worst < 1e-15);
    double s, c;
    qn__sincos(0.0, &s, &c);
    assert_true(s == 0.0 && c == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),         cmocka_unit_test(test_f32_ends),
        cmocka_unit_test(test_exp_log_f64), cmocka_unit_test(test_pow_f64),
        cmocka_unit_test(test_sincos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
