/*
 * fmath_constants.h: the numbers of the single precision functions, shared by the plain forms
 * (fmath.c) and the vector forms (device/cpu/vector.h). Polynomials are given from the constant
 * term up.
 */
#ifndef QUERN_BASE_FMATH_CONSTANTS_H
#define QUERN_BASE_FMATH_CONSTANTS_H

#define QN_NAN_BITS 0x7FC00000U

/* exp: e^r = 1 + r + r^2 q(r), |r| <= ln(2) / 2; n ln 2 is taken off in two parts. */
#define QN_EXP_LOW  -104.0F
#define QN_EXP_HIGH 89.0F
#define QN_LOG2_E   0x1.715476p0F
#define QN_ROUND    0x1.8p23F /* adding it leaves a rounded integer in the low bits */
#define QN_LN2_HIGH 0x1.62e4p-1F
#define QN_LN2_LOW  0x1.7f7d1cp-20F
#define QN_EXP_0    0x1.fffff8p-2F
#define QN_EXP_1    0x1.55548ep-3F
#define QN_EXP_2    0x1.555b5ap-5F
#define QN_EXP_3    0x1.123bbap-7F
#define QN_EXP_4    0x1.687ba4p-10F

/* log: 2 atanh(s) = 2 s + s z p(z), z = s^2; m lies in [sqrt(1/2), sqrt(2)). */
#define QN_LOG_SPLIT 0x3F3504F3U
#define QN_LOG_0     0x1.555554p-1F
#define QN_LOG_1     0x1.999a84p-2F
#define QN_LOG_2     0x1.243676p-2F
#define QN_LOG_3     0x1.e351ecp-3F

/* tanh: x + x z p(z), z = x^2, below the split. */
#define QN_TANH_SPLIT 0.625F
#define QN_TANH_0     -0x1.555532p-2F
#define QN_TANH_1     0x1.110718p-3F
#define QN_TANH_2     -0x1.b83b2ep-5F
#define QN_TANH_3     0x1.522178p-6F
#define QN_TANH_4     -0x1.75d1f4p-8F

/* erf: x + x p(x^2) below the split, 1 - exp(-t q(t)) above it. */
#define QN_ERF_SPLIT 0.95F
#define QN_ERF_ONE   3.95F
#define QN_ERF_0     0x1.06eba8p-3F
#define QN_ERF_1     -0x1.812742p-2F
#define QN_ERF_2     0x1.ce2dc6p-4F
#define QN_ERF_3     -0x1.b80910p-6F
#define QN_ERF_4     0x1.5493bcp-8F
#define QN_ERF_5     -0x1.a878eap-11F
#define QN_ERF_6     0x1.571282p-14F
#define QN_ERFC_0    0x1.20ea30p0F
#define QN_ERFC_1    0x1.456390p-1F
#define QN_ERFC_2    0x1.aff342p-4F
#define QN_ERFC_3    -0x1.76d6f8p-6F
#define QN_ERFC_4    0x1.909c66p-9F
#define QN_ERFC_5    -0x1.8ff4d8p-14F
#define QN_ERFC_6    -0x1.32d0dap-15F
#define QN_ERFC_7    0x1.199e6cp-18F

#endif
