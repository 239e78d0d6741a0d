/*
 * fp4.c: mxfp4 and nvfp4: four-bit floats (E2M1) under a scale that is a power of two (E8M0, 32
 * values) or a small float (UE4M3, 16 values). The code table holds doubled values, so that it is
 * integers, and the scales are halved. The encoders ignore importance weights.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/search.h"

enum {
    MX_HALF = QN_BLOCK / 2,
    NV_VALUES = 64,
    NV_SUBS = 4,
    NV_SUB = 16,
    E8M0_NAN = 255,
    UE4M3_NAN = 0x7f,
    UE4M3_TOP = 0x7e /* 448 */
};

const int8_t qn__e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float qn__e8m0_half(uint8_t e)
{
    return qn__bits_float(e < 2 ? 0x00200000U << e : (uint32_t)(e - 1) << 23);
}

float qn__ue4m3_half(uint8_t x)
{
    int exponent = x >> 3 & 15;
    int fraction = x & 7;
    if (x == 0 || x == UE4M3_NAN) {
        return 0.0F;
    }
    if (exponent == 0) {
        return (float)fraction * 0x1p-10F;
    }
    return (1.0F + (float)fraction / 8.0F) * qn__bits_float((uint32_t)(exponent - 8 + 127) << 23);
}

uint8_t qn__ue4m3_from_f32(float x)
{
    if (!(x > 0.0F)) {
        return 0;
    }
    if (x > 448.0F) {
        x = 448.0F;
    }
    uint32_t bits = qn__float_bits(x);
    int exponent = (int)(bits >> 23) - 127 + 7;
    if (exponent <= 0) {
        return (uint8_t)qn__truncate(x * 512.0F + 0.5F, 7);
    }
    int fraction = (int)(bits >> 20 & 7) + (int)(bits >> 19 & 1);
    if (fraction == 8) {
        fraction = 0;
        exponent++;
    }
    return (uint8_t)(exponent >= 15 ? UE4M3_TOP : exponent << 3 | fraction);
}

/* Index of the code value nearest to x / scale, the first of equals. */
static int nearest(float x, float scale)
{
    int best = 0;
    float least = fabsf((float)qn__e2m1_values[0] * scale - x);
    for (int k = 1; k < 16; k++) {
        float error = fabsf((float)qn__e2m1_values[k] * scale - x);
        if (error < least) {
            least = error;
            best = k;
        }
    }
    return best;
}

QN_DECODER(mxfp4)
{
    const qn_block_mxfp4 *b = blocks;
    for (int64_t at = 0; at < n; at += QN_BLOCK, b++, y += QN_BLOCK) {
        float d = qn__e8m0_half(b->e);
        for (int j = 0; j < MX_HALF; j++) {
            y[j] = (float)qn__e2m1_values[b->qs[j] & 15] * d;
            y[j + MX_HALF] = (float)qn__e2m1_values[b->qs[j] >> 4] * d;
        }
    }
}

/*
 * floor(log2 amax) + 125, limited to valid bytes: the scale under which 6, the largest code, covers
 * amax. The format's encoders take the logarithm in single precision, where it rounds up to the
 * next integer for the few numbers just below a power of two; that is followed.
 */
static uint8_t mx_exponent(float amax)
{
    if (amax == 0.0F) {
        return 0;
    }
    uint32_t bits = qn__float_bits(amax);
    int exponent = (int)(bits >> 23) - 127;
    /* log2 of 2^(e + 1) (1 - k 2^-24) is about e + 1 - k 2^-24 / ln 2 for small k. */
    double k = (double)(0x800000U - (bits & 0x7fffffU));
    float logarithm = (float)((double)(exponent + 1) - k * (0x1p-24 / 0.69314718055994531));
    exponent += logarithm == (float)(exponent + 1);
    return (uint8_t)qn__clamp_int(exponent + 125, 0, E8M0_NAN - 1);
}

QN_ENCODER(mxfp4)
{
    (void)weights;
    (void)tables;
    qn_block_mxfp4 *b = blocks;
    for (int64_t at = 0; at < n; at += QN_BLOCK, b++, x += QN_BLOCK) {
        b->e = mx_exponent(fabsf(qn__extreme(x, QN_BLOCK)));
        float d = qn__e8m0_half(b->e);
        for (int j = 0; j < MX_HALF; j++) {
            b->qs[j] = (uint8_t)(nearest(x[j], d) | nearest(x[j + MX_HALF], d) << 4);
        }
    }
}

QN_FINDER(mxfp4)
{
    const qn_block_mxfp4 *b = blocks;
    for (int64_t i = 0; i < count; i++) {
        if (b[i].e == E8M0_NAN) {
            return i;
        }
    }
    return -1;
}

QN_DECODER(nvfp4)
{
    const qn_block_nvfp4 *b = blocks;
    for (int64_t at = 0; at < n; at += NV_VALUES, b++) {
        for (int s = 0; s < NV_SUBS; s++, y += NV_SUB) {
            float d = qn__ue4m3_half(b->d[s]);
            const uint8_t *qs = b->qs + NV_SUB / 2 * s;
            for (int j = 0; j < NV_SUB / 2; j++) {
                y[j] = (float)qn__e2m1_values[qs[j] & 15] * d;
                y[j + NV_SUB / 2] = (float)qn__e2m1_values[qs[j] >> 4] * d;
            }
        }
    }
}

QN_ENCODER(nvfp4)
{
    (void)weights;
    (void)tables;
    qn_block_nvfp4 *b = blocks;
    for (int64_t at = 0; at < n; at += NV_VALUES, b++) {
        for (int s = 0; s < NV_SUBS; s++, x += NV_SUB) {
            b->d[s] = qn__ue4m3_from_f32(fabsf(qn__extreme(x, NV_SUB)) / 6.0F);
            float d = qn__ue4m3_half(b->d[s]);
            uint8_t *qs = b->qs + NV_SUB / 2 * s;
            for (int j = 0; j < NV_SUB / 2; j++) {
                qs[j] = (uint8_t)(nearest(x[j], d) | nearest(x[j + NV_SUB / 2], d) << 4);
            }
        }
    }
}
