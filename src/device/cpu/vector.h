/*
 * vector.h: sixteen floats at once, so that the row functions (vector_rows.h) and those of
 * attention (vector_attend.h) are written once for all instruction sets. A file that includes this
 * says which with QN_VECTOR_512 set to 0 (AVX2) or 1 (AVX-512), or with QN_VECTOR_NEON set to 1,
 * and is compiled with the flags of that instruction set. What a vector is, and its plain
 * operations, are in the header of the processor; here are the elementary functions made of them.
 *
 * They repeat base/fmath.c step by step: equal bits, NaN for NaN.
 */
#ifndef QUERN_DEVICE_CPU_VECTOR_H
#define QUERN_DEVICE_CPU_VECTOR_H

#if defined(QN_VECTOR_NEON)
#include "device/cpu/neon/vector_neon.h"
#else
#include "device/cpu/vector_x86.h"
#endif

#include "base/fmath_constants.h"

static inline v16 v_abs(v16 x)
{
    return vi_float(vi_and(v_bits(x), vi_set(INT32_MAX)));
}

static inline v16 v_neg(v16 x)
{
    return vi_float(vi_xor(v_bits(x), vi_set(INT32_MIN)));
}

/* Magnitude of x (which is not negative), sign of `sign`. */
static inline v16 v_give_sign(v16 x, v16 sign)
{
    return vi_float(vi_or(v_bits(x), vi_and(v_bits(sign), vi_set(INT32_MIN))));
}

/* e^x = p 2^e for x between QN_EXP_LOW and QN_EXP_HIGH: p, near 1; *e. */
QN_VECTOR_INLINE v16 v_exp_parts(v16 x, v16i *e)
{
    const v16 round = v_set(QN_ROUND);
    v16 t = v_fma(x, v_set(QN_LOG2_E), round);
    v16 n = v_sub(t, round);
    v16 r = v_fma(n, v_set(-QN_LN2_HIGH), x);
    r = v_fma(n, v_set(-QN_LN2_LOW), r);
    v16 p = v_set(QN_EXP_4);
    p = v_fma(p, r, v_set(QN_EXP_3));
    p = v_fma(p, r, v_set(QN_EXP_2));
    p = v_fma(p, r, v_set(QN_EXP_1));
    p = v_fma(p, r, v_set(QN_EXP_0));
    *e = vi_sub(v_bits(t), v_bits(round));
    return v_add(v_fma(p, v_mul(r, r), r), v_set(1.0F));
}

static inline v16 v_exp(v16 x)
{
    x = v_max(v_set(QN_EXP_LOW), x);
    x = v_min(v_set(QN_EXP_HIGH), x);
    v16i e;
    v16 p = v_exp_parts(x, &e);
    v16i half = vi_half(e);
    v16i bias = vi_set(127);
    v16 first = vi_float(vi_to_exponent(vi_add(half, bias)));
    v16 second = vi_float(vi_to_exponent(vi_add(vi_sub(e, half), bias)));
    return v_mul(v_mul(p, first), second);
}

static inline v16 v_log(v16 x)
{
    const v16 zero = v_set(0.0F), inf = v_set(__builtin_inff());
    v16m small = v_less(x, v_set(0x1p-126F));
    v16 y = v_select(small, v_mul(x, v_set(0x1p25F)), x);
    v16i bits = vi_sub(v_bits(y), vi_set((int32_t)QN_LOG_SPLIT));
    v16i k = vi_exponent(bits);
    v16 m = vi_float(vi_add(vi_and(bits, vi_set(0x007FFFFF)), vi_set((int32_t)QN_LOG_SPLIT)));
    v16 e = v_sub(vi_convert(k), v_select(small, v_set(25.0F), zero));
    v16 f = v_sub(m, v_set(1.0F));
    v16 s = v_div(f, v_add(m, v_set(1.0F)));
    v16 z = v_mul(s, s);
    v16 p = v_set(QN_LOG_3);
    p = v_fma(p, z, v_set(QN_LOG_2));
    p = v_fma(p, z, v_set(QN_LOG_1));
    p = v_fma(p, z, v_set(QN_LOG_0));
    v16 product = v_mul(v_neg(s), v_fma(v_neg(z), p, f));
    v16 tail = v_fma(e, v_set(QN_LN2_LOW), product);
    v16 result = v_fma(e, v_set(QN_LN2_HIGH), v_add(f, tail));
    result = v_select(v_less(x, inf), result, x);
    result = v_select(v_less(v_abs(x), v_set(0x1p-149F)), v_neg(inf), result);
    return v_select(v_less(x, zero), vi_float(vi_set((int32_t)QN_NAN_BITS)), result);
}

static inline v16 v_tanh(v16 x)
{
    const v16 one = v_set(1.0F);
    v16 a = v_abs(x);
    v16 z = v_mul(x, x);
    v16 p = v_set(QN_TANH_4);
    p = v_fma(p, z, v_set(QN_TANH_3));
    p = v_fma(p, z, v_set(QN_TANH_2));
    p = v_fma(p, z, v_set(QN_TANH_1));
    p = v_fma(p, z, v_set(QN_TANH_0));
    v16 near = v_fma(v_mul(x, z), p, x);
    v16 e = v_exp(v_add(a, a));
    v16 far = v_sub(one, v_div(v_set(2.0F), v_add(e, one)));
    return v_select(v_less(a, v_set(QN_TANH_SPLIT)), near, v_give_sign(far, x));
}

static inline v16 v_sigmoid(v16 x)
{
    const v16 one = v_set(1.0F);
    v16 e = v_exp(v_neg(v_abs(x)));
    return v_div(v_select(v_less(x, v_set(0.0F)), e, one), v_add(one, e));
}

static inline v16 v_erf(v16 x)
{
    v16 a = v_abs(x);
    v16 z = v_mul(x, x);
    v16 p = v_set(QN_ERF_6);
    p = v_fma(p, z, v_set(QN_ERF_5));
    p = v_fma(p, z, v_set(QN_ERF_4));
    p = v_fma(p, z, v_set(QN_ERF_3));
    p = v_fma(p, z, v_set(QN_ERF_2));
    p = v_fma(p, z, v_set(QN_ERF_1));
    p = v_fma(p, z, v_set(QN_ERF_0));
    v16 near = v_fma(x, p, x);
    v16 t = v_min(v_set(QN_ERF_ONE), a);
    v16 q = v_set(QN_ERFC_7);
    q = v_fma(q, t, v_set(QN_ERFC_6));
    q = v_fma(q, t, v_set(QN_ERFC_5));
    q = v_fma(q, t, v_set(QN_ERFC_4));
    q = v_fma(q, t, v_set(QN_ERFC_3));
    q = v_fma(q, t, v_set(QN_ERFC_2));
    q = v_fma(q, t, v_set(QN_ERFC_1));
    q = v_fma(q, t, v_set(QN_ERFC_0));
    v16 far = v_sub(v_set(1.0F), v_exp(v_neg(v_mul(q, t))));
    return v_select(v_less(a, v_set(QN_ERF_SPLIT)), near, v_give_sign(far, x));
}

#endif
