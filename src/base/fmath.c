/*
 * fmath.c: the elementary functions. Single precision: reduction to a short interval, a polynomial
 * (least squares over that interval, weighted for relative error) by fused multiply-adds. The
 * vector forms in device/cpu/vector.h repeat these steps lane by lane: change both together.
 *
 * The comparisons are written the way that the vector units' min and max behave with a NaN.
 */
#include "base/fmath.h"

#include <math.h>
#include <string.h>

#include "base/fmath_constants.h"

/* 2^n for n in -126 .. 127. */
static float power_of_two(int32_t n)
{
    return qn__bits_float((uint32_t)(n + 127) << 23);
}

float qn__expf(float x)
{
    /* e^x = 2^n e^r, n = round(x / ln 2). Below the limits the result is 0 or inf anyway. */
    x = QN_EXP_LOW > x ? QN_EXP_LOW : x;
    x = QN_EXP_HIGH < x ? QN_EXP_HIGH : x;
    float t = fmaf(x, QN_LOG2_E, QN_ROUND); /* the integer sits in the low bits */
    float n = t - QN_ROUND;
    float r = fmaf(n, -QN_LN2_HIGH, x);
    r = fmaf(n, -QN_LN2_LOW, r);
    float p = QN_EXP_4;
    p = fmaf(p, r, QN_EXP_3);
    p = fmaf(p, r, QN_EXP_2);
    p = fmaf(p, r, QN_EXP_1);
    p = fmaf(p, r, QN_EXP_0);
    p = fmaf(p, r * r, r) + 1.0F;
    if (x != x) {
        return x;
    }
    /* In two factors, so that a subnormal result is rounded once. */
    int32_t e = (int32_t)(qn__float_bits(t) - qn__float_bits(QN_ROUND));
    int32_t half = e >> 1;
    return p * power_of_two(half) * power_of_two(e - half);
}

float qn__logf(float x)
{
    /* x = 2^e m, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1). */
    bool small = x < 0x1p-126F;
    float y = small ? x * 0x1p25F : x;
    uint32_t bits = qn__float_bits(y) - QN_LOG_SPLIT;
    int32_t k = (int32_t)bits >> 23;
    float m = qn__bits_float((bits & 0x007FFFFFU) + QN_LOG_SPLIT);
    float e = (float)k - (small ? 25.0F : 0.0F);
    float f = m - 1.0F;
    float s = f / (m + 1.0F);
    float z = s * s;
    float p = QN_LOG_3;
    p = fmaf(p, z, QN_LOG_2);
    p = fmaf(p, z, QN_LOG_1);
    p = fmaf(p, z, QN_LOG_0);
    /* 2 s = f - s f, so log m = f - s (f - z p); f is exact. */
    float tail = fmaf(e, QN_LN2_LOW, -s * fmaf(-z, p, f));
    float result = fmaf(e, QN_LN2_HIGH, f + tail);
    if (x < 0.0F) {
        return qn__bits_float(QN_NAN_BITS);
    }
    if (x == 0.0F) {
        return -INFINITY;
    }
    return x < INFINITY ? result : x; /* +inf and NaN pass */
}

float qn__tanhf(float x)
{
    float a = fabsf(x);
    float z = x * x;
    float p = QN_TANH_4;
    p = fmaf(p, z, QN_TANH_3);
    p = fmaf(p, z, QN_TANH_2);
    p = fmaf(p, z, QN_TANH_1);
    p = fmaf(p, z, QN_TANH_0);
    float near = fmaf(x * z, p, x);
    float e = qn__expf(a + a);
    float far = 1.0F - 2.0F / (e + 1.0F);
    return a < QN_TANH_SPLIT ? near : copysignf(far, x);
}

float qn__sigmoidf(float x)
{
    /* The exponent is never positive, so nothing overflows and small results keep their digits. */
    float e = qn__expf(-fabsf(x));
    return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

float qn__erff(float x)
{
    float a = fabsf(x);
    float z = x * x;
    float p = QN_ERF_6;
    p = fmaf(p, z, QN_ERF_5);
    p = fmaf(p, z, QN_ERF_4);
    p = fmaf(p, z, QN_ERF_3);
    p = fmaf(p, z, QN_ERF_2);
    p = fmaf(p, z, QN_ERF_1);
    p = fmaf(p, z, QN_ERF_0);
    float near = fmaf(x, p, x);
    /* 1 - e^(-a q(a)); from QN_ERF_ONE on the result is 1. */
    float t = QN_ERF_ONE < a ? QN_ERF_ONE : a;
    float q = QN_ERFC_7;
    q = fmaf(q, t, QN_ERFC_6);
    q = fmaf(q, t, QN_ERFC_5);
    q = fmaf(q, t, QN_ERFC_4);
    q = fmaf(q, t, QN_ERFC_3);
    q = fmaf(q, t, QN_ERFC_2);
    q = fmaf(q, t, QN_ERFC_1);
    q = fmaf(q, t, QN_ERFC_0);
    float far = 1.0F - qn__expf(-(q * t));
    return a < QN_ERF_SPLIT ? near : copysignf(far, x);
}

/* Double precision: Taylor series on the reduced interval, long enough for its last bit. ---------
 */

#define LN2_HIGH 0x1.62e42fefa39efp-1
#define LN2_LOW  0x1.abc9e3b39803fp-56
#define ROUND64  0x1.8p52 /* adding it leaves a rounded integer */

static double bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* e^(x + low) for a low that is tiny against x. */
static double exp_sum(double x, double low)
{
    if (x != x) {
        return x;
    }
    if (x > 710.0) {
        return INFINITY;
    }
    if (x < -746.0) {
        return 0.0;
    }
    double n = fma(x, 0x1.71547652b82fep0, ROUND64) - ROUND64;
    double r = fma(n, -LN2_HIGH, x);
    r = fma(n, -LN2_LOW, r) + low;
    double p = 1.0;
    for (int k = 14; k >= 2; k--) {
        p = fma(p, r / (double)k, 1.0);
    }
    p = fma(p, r, 1.0);
    int64_t e = (int64_t)n, half = e >> 1;
    return p * bits_double((uint64_t)(half + 1023) << 52) *
           bits_double((uint64_t)(e - half + 1023) << 52);
}

/* log x = high + low. x > 0 and finite. */
static double log_sum(double x, double *low)
{
    const uint64_t split = UINT64_C(0x3FE6A09E667F3BCD); /* sqrt(1/2) */
    bool small = x < 0x1p-1022;
    uint64_t bits = double_bits(small ? x * 0x1p54 : x) - split;
    double e = (double)((int64_t)bits >> 52) - (small ? 54.0 : 0.0);
    double m = bits_double((bits & UINT64_C(0x000FFFFFFFFFFFFF)) + split);
    double f = m - 1.0, d = m + 1.0;
    double s = f / d;
    /* The rest of the quotient: d is rounded, by d_low. */
    double d_low = m - (d - 1.0);
    double s_low = (fma(-s, d, f) - s * d_low) / d;
    double z = s * s;
    double p = 0.0;
    for (int k = 21; k >= 3; k -= 2) {
        p = fma(p, z, 2.0 / (double)k);
    }
    double big = fma(e, LN2_HIGH, 2.0 * s);
    double big_low = e != 0.0 ? fma(e, LN2_HIGH, -big) + 2.0 * s : 0.0;
    double rest = big_low + fma(e, LN2_LOW, 2.0 * s_low) + s * z * p;
    double high = big + rest;
    *low = rest - (high - big);
    return high;
}

double qn__exp(double x)
{
    return exp_sum(x, 0.0);
}

double qn__log(double x)
{
    if (x != x || x == INFINITY) {
        return x;
    }
    if (x <= 0.0) {
        return x < 0.0 ? (double)NAN : -INFINITY;
    }
    double low;
    return log_sum(x, &low) + low;
}

double qn__pow(double base, double exponent)
{
    if (!(base > 0.0) || base == INFINITY || exponent != exponent) {
        return base == INFINITY && exponent == exponent ? (exponent > 0.0   ? INFINITY
                                                           : exponent < 0.0 ? 0.0
                                                                            : 1.0)
                                                        : (double)NAN;
    }
    double low;
    double high = log_sum(base, &low);
    double x = exponent * high;
    return exp_sum(x, fma(exponent, high, -x) + exponent * low);
}

void qn__sincos(double x, double *s, double *c)
{
    if (!(x > -0x1p50 && x < 0x1p50)) {
        *s = *c = (double)NAN;
        return;
    }
    /* pi/2 in three parts; n < 2^30 keeps the products' errors below 1e-16. */
    double n = fma(x, 0x1.45f306dc9c883p-1, ROUND64) - ROUND64;
    double r = fma(n, -0x1.921fb54442d18p0, x);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    double z = r * r;
    double ps = 1.0, pc = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        ps = fma(ps, -z / (double)(k * (k + 1)), 1.0);
        pc = fma(pc, -z / (double)(k * (k - 1)), 1.0);
    }
    double sine = r * ps, cosine = pc;
    int64_t quadrant = (int64_t)n & 3;
    double a = quadrant & 1 ? cosine : sine;
    double b = quadrant & 1 ? sine : cosine;
    *s = quadrant & 2 ? -a : a;
    *c = quadrant == 1 || quadrant == 2 ? -b : b;
}
