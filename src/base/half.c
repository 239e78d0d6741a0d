/* half.c: IEEE binary16 and bfloat16 against binary32; see fmath.h. */
#include "base/fmath.h"

float qn__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000U) << 16;
    uint32_t rest = (uint32_t)(h & 0x7fffU) << 13; /* exponent and fraction in binary32 places */
    if (rest >= 0x0f800000U) {                     /* infinity and NaN: exponent field all ones */
        return qn__bits_float(sign | rest | 0x7f800000U);
    }
    /* Multiplying by 2^112 moves the bias from 15 to 127; subnormals come out normal and exact. */
    return qn__bits_float(sign | qn__float_bits(qn__bits_float(rest) * 0x1p112F));
}

uint16_t qn__f32_to_f16(float x)
{
    uint32_t bits = qn__float_bits(x);
    uint32_t sign = (bits >> 16) & 0x8000U;
    uint32_t rest = bits & 0x7fffffffU;
    if (rest > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U);
    }
    if (rest >= 0x477ff000U) { /* 65520 and more */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (rest < 0x38800000U) {
        /* Subnormal or zero result: adding 0.5 puts the last kept bit at 2^-24, the adder rounds.
         */
        return (uint16_t)(sign |
                          (qn__float_bits(qn__bits_float(rest) + 0.5F) - qn__float_bits(0.5F)));
    }
    uint32_t even = (rest >> 13) & 1U;
    return (uint16_t)(sign | ((rest - 0x38000000U + 0xfffU + even) >> 13));
}

uint16_t qn__f32_to_bf16(float x)
{
    uint32_t bits = qn__float_bits(x);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((bits >> 16) | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
