/*
 * exp_weight.h: the numbers of qn__exp_weight (weight.c), for it and for its form in vectors.
 */
#ifndef QUERN_SAMPLER_EXP_WEIGHT_H
#define QUERN_SAMPLER_EXP_WEIGHT_H

/* Below it the weight rounds to 0: 2^31 e^d < 1/2. Cut a little later; the shifts do the rest. */
#define QN_EXP_LOWEST (-22.5F)

#define QN_EXP_LOG2_E   0x1.715476p+0F
#define QN_EXP_LN2_HIGH 0x1.62e4p-1F /* 15 bits: times an exponent it is exact */
#define QN_EXP_LN2_LOW  0x1.7f7d1cp-20F
#define QN_EXP_ROUND    12582912.0F /* 1.5 * 2^23: adding it rounds to an integer in the low bits */

/* e^r for |r| <= ln(2) / 2 is 1 + r + P2 r^2 + ...: error 2^-27, fitted for this interval. */
#define QN_EXP_P2 0x1.fffffcp-2F
#define QN_EXP_P3 0x1.555490p-3F
#define QN_EXP_P4 0x1.5558fcp-5F
#define QN_EXP_P5 0x1.123b9ap-7F
#define QN_EXP_P6 0x1.6a214cp-10F

#endif
