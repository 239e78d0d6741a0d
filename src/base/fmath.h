/*
 * fmath.h: the elementary functions of the house. Built of IEEE add, multiply, divide, fma and bit
 * operations only, in one written order, so that they give the same bits on every machine and in
 * every vector form (the vector kernels repeat these steps lane by lane).
 *
 * Single precision: error below 2.25 units in the last place over the whole range (exp and log: 1).
 * Subnormal results are kept. NaN in gives NaN out.
 */
#ifndef QUERN_BASE_FMATH_H
#define QUERN_BASE_FMATH_H

#include <quern/base.h>

float qn__expf(float x);     /* +inf above 88.73, exact 0 below -104 */
float qn__logf(float x);     /* -inf for 0, NaN below 0 */
float qn__tanhf(float x);    /* small arguments keep their relative precision */
float qn__sigmoidf(float x); /* 1 / (1 + e^-x) */
float qn__erff(float x);

/* Double precision, for tables made when a model or a context is loaded: about 1e-15 relative. */
double qn__exp(double x);
double qn__log(double x);
double qn__pow(double base, double exponent); /* base > 0 */

/* cos and sin of an angle in radians, |x| < 2^30, absolute error about 1e-15. Beyond, digits are
 * lost; from 2^50 on, where nothing would be left of them, both are NaN. */
void qn__sincos(double x, double *s, double *c);

/* Bits of a float and back. */
static inline uint32_t qn__float_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    return v.u;
}

static inline float qn__bits_float(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = u};
    return v.f;
}

/* IEEE binary16 and bfloat16: widening is exact, narrowing rounds to nearest even. */
float qn__f16_to_f32(uint16_t h);
uint16_t qn__f32_to_f16(float x);

static inline float qn__bf16_to_f32(uint16_t h)
{
    return qn__bits_float((uint32_t)h << 16);
}

uint16_t qn__f32_to_bf16(float x); /* a NaN stays a (quiet) NaN */

#endif
