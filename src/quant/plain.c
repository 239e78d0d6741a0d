/* plain.c: numbers without blocks: f32, f16, bf16 (and the check of f64). A narrowing conversion
 * rounds to nearest even; weights change nothing. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "quant/formats.h"

QN_DECODER(f32)
{
    memcpy(y, blocks, (size_t)n * sizeof *y);
}

QN_ENCODER(f32)
{
    (void)weights;
    (void)tables;
    memcpy(blocks, x, (size_t)n * sizeof *x);
}

QN_DECODER(f16)
{
    const unsigned char *bytes = blocks;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + 2 * i, sizeof h);
        y[i] = qn__f16_to_f32(h);
    }
}

QN_ENCODER(f16)
{
    (void)weights;
    (void)tables;
    unsigned char *bytes = blocks;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = qn__f32_to_f16(x[i]);
        memcpy(bytes + 2 * i, &h, sizeof h);
    }
}

QN_DECODER(bf16)
{
    const unsigned char *bytes = blocks;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, bytes + 2 * i, sizeof h);
        y[i] = qn__bf16_to_f32(h);
    }
}

QN_ENCODER(bf16)
{
    (void)weights;
    (void)tables;
    unsigned char *bytes = blocks;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = qn__f32_to_bf16(x[i]);
        memcpy(bytes + 2 * i, &h, sizeof h);
    }
}

/* Infinity and NaN have an exponent field of all ones. Whole stretches are looked at at once, so
 * that checking a file costs no more than reading it. */
enum { STRETCH = 64 };

static int64_t find_half(const void *data, int64_t count, uint16_t exponent)
{
    const unsigned char *bytes = data;
    for (int64_t i = 0; i < count; i += STRETCH) {
        int64_t end = count - i < STRETCH ? count : i + STRETCH;
        int bad = 0;
        for (int64_t k = i; k < end; k++) {
            uint16_t h;
            memcpy(&h, bytes + 2 * k, sizeof h);
            bad += (h & exponent) == exponent;
        }
        for (int64_t k = i; bad && k < end; k++) {
            uint16_t h;
            memcpy(&h, bytes + 2 * k, sizeof h);
            if ((h & exponent) == exponent) {
                return k;
            }
        }
    }
    return -1;
}

QN_FINDER(f16)
{
    return find_half(blocks, count, 0x7c00U);
}

QN_FINDER(bf16)
{
    return find_half(blocks, count, 0x7f80U);
}

QN_FINDER(f32)
{
    const unsigned char *bytes = blocks;
    for (int64_t i = 0; i < count; i += STRETCH) {
        int64_t end = count - i < STRETCH ? count : i + STRETCH;
        int bad = 0;
        for (int64_t k = i; k < end; k++) {
            uint32_t u;
            memcpy(&u, bytes + 4 * k, sizeof u);
            bad += (u & 0x7f800000U) == 0x7f800000U;
        }
        for (int64_t k = i; bad && k < end; k++) {
            float f;
            memcpy(&f, bytes + 4 * k, sizeof f);
            if (!isfinite(f)) {
                return k;
            }
        }
    }
    return -1;
}

QN_FINDER(f64)
{
    const unsigned char *bytes = blocks;
    for (int64_t i = 0; i < count; i++) {
        double f;
        memcpy(&f, bytes + 8 * i, sizeof f);
        if (!isfinite(f)) {
            return i;
        }
    }
    return -1;
}
