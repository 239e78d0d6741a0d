/*
 * lattice_1.c: iq1_s and iq1_m: values -1, 0, 1 as points of a code book of eight, shifted by an
 * eighth up or down, under three-bit scales. Decoding only.
 */
#include <math.h>

#include "base/fmath.h"
#include "quant/blocks.h"
#include "quant/formats.h"
#include "quant/lattice.h"

#define SHIFT 0.125F

/* Eight values of a point. */
static void put_group(float *y, float scale, unsigned point, bool down)
{
    for (int j = 0; j < 8; j++) {
        y[j] = scale * ((float)(qn__digit(point, 2, j) - 1) + (down ? -SHIFT : SHIFT));
    }
}

QN_DECODER(iq1_s)
{
    const qn_block_iq1_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < QN_SUPER_BLOCK / 8; k++, y += 8) {
            int qh = b->qh[k / 4];
            int index = b->qs[k] | (qh >> (3 * (k % 4)) & 7) << 8;
            put_group(y, d * (float)(2 * (qh >> 12 & 7) + 1), qn__grid_iq1[index], qh >> 15);
        }
    }
}

/* The scale of a block, spread over its four words. */
static float block_scale(const qn_block_iq1_m *b)
{
    unsigned bits = 0;
    for (int i = 0; i < 4; i++) {
        bits |= (unsigned)(b->sc[i] >> 12) << (4 * i);
    }
    return qn__f16_to_f32((uint16_t)bits);
}

QN_DECODER(iq1_m)
{
    const qn_block_iq1_m *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = block_scale(b);
        for (int k = 0; k < QN_SUPER_BLOCK / 8; k++, y += 8) {
            int high = b->qh[k / 2] >> (4 * (k % 2)) & 15;
            int scale = b->sc[k / 8] >> (3 * (k / 2 % 4)) & 7;
            put_group(y, d * (float)(2 * scale + 1), qn__grid_iq1[b->qs[k] | (high & 7) << 8],
                      high >> 3);
        }
    }
}

QN_FINDER(iq1_m)
{
    const qn_block_iq1_m *b = blocks;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(block_scale(&b[i]))) {
            return i;
        }
    }
    return -1;
}
