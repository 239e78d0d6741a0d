/*
 * pack.c: from the rows of a file to the packed form of pack.h.
 *
 * Block formats pass through qn_split, one row's chunk with every level in a byte and the scales as
 * they are stored; a format is a function that fills it and a row of the table.
 */
#include "device/cpu/pack.h"

#include "quant/blocks.h"

enum { QUADS = 8 }; /* of a block of 32 */

/* A chunk of one row. Levels are unsigned, offsets not yet taken off; Q8_0: the signed byte. */
typedef struct qn_split {
    uint8_t level[QN_PACK_CHUNK];
    uint8_t sub[8][2];    /* a block's sub-scales, or its sub-scale and minimum */
    uint16_t scale[8][2]; /* d, m of a block */
    uint16_t super[2];    /* d, dmin of a super-block */
} qn_split;

typedef void (*split_fn)(const void *blocks, int64_t n, qn_split *out);

/* Nibble order of the 32-value formats. */
static void split_nibbles(const uint8_t qs[16], uint8_t level[32])
{
    for (int j = 0; j < 16; j++) {
        level[j] = qs[j] & 15;
        level[j + 16] = qs[j] >> 4;
    }
}

static void split_fifth_bit(uint32_t qh, uint8_t level[32])
{
    for (int i = 0; i < 32; i++) {
        level[i] = (uint8_t)(level[i] | (qh >> i & 1) << 4);
    }
}

/* Packing P2 and P4 of the super-blocks (quant/blocks.h). */
static void split_p2(const uint8_t qs[64], uint8_t level[256])
{
    for (int h = 0; h < 2; h++) {
        for (int s = 0; s < 4; s++) {
            for (int l = 0; l < 32; l++) {
                level[128 * h + 32 * s + l] = qs[32 * h + l] >> (2 * s) & 3;
            }
        }
    }
}

static void split_p4(const uint8_t qs[128], uint8_t level[256])
{
    for (int g = 0; g < 4; g++) {
        for (int l = 0; l < 32; l++) {
            level[64 * g + l] = qs[32 * g + l] & 15;
            level[64 * g + 32 + l] = qs[32 * g + l] >> 4;
        }
    }
}

static void split_q4_0(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q4_0 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        split_nibbles(x[b].qs, out->level + 32 * b);
        out->scale[b][0] = x[b].d;
    }
}

static void split_q4_1(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q4_1 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        split_nibbles(x[b].qs, out->level + 32 * b);
        out->scale[b][0] = x[b].d;
        out->scale[b][1] = x[b].m;
    }
}

static void split_q5_0(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q5_0 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        split_nibbles(x[b].qs, out->level + 32 * b);
        split_fifth_bit(x[b].qh, out->level + 32 * b);
        out->scale[b][0] = x[b].d;
    }
}

static void split_q5_1(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q5_1 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        split_nibbles(x[b].qs, out->level + 32 * b);
        split_fifth_bit(x[b].qh, out->level + 32 * b);
        out->scale[b][0] = x[b].d;
        out->scale[b][1] = x[b].m;
    }
}

static void split_q8_0(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q8_0 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        memcpy(out->level + 32 * b, x[b].qs, 32);
        out->scale[b][0] = x[b].d;
    }
}

static void split_iq4_nl(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_iq4_nl *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        split_nibbles(x[b].qs, out->level + 32 * b);
        out->scale[b][0] = x[b].d;
    }
}

static void split_mxfp4(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_mxfp4 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        split_nibbles(x[b].qs, out->level + 32 * b);
        out->scale[b][0] = x[b].e;
    }
}

static void split_q2_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q2_k *x = blocks;
    (void)n;
    split_p2(x->qs, out->level);
    memcpy(out->sub, x->scales, sizeof out->sub);
    out->super[0] = x->d;
    out->super[1] = x->dmin;
}

static void split_q3_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q3_k *x = blocks;
    uint8_t scale[16];
    (void)n;
    split_p2(x->qs, out->level);
    for (int s = 0; s < 8; s++) {
        for (int l = 0; l < 32; l++) {
            out->level[32 * s + l] |= (uint8_t)((x->hmask[l] >> s & 1) << 2);
        }
    }
    qn__q3_k_scales(x->scales, scale);
    for (int s = 0; s < 16; s++) {
        out->sub[s / 2][s % 2] = (uint8_t)(scale[s] - 32);
    }
    out->super[0] = x->d;
}

static void split_q4_k_scales(const uint8_t scales[12], qn_split *out)
{
    uint8_t scale[8], minimum[8];
    qn__q4_k_scales(scales, scale, minimum);
    for (int s = 0; s < 8; s++) {
        out->sub[s][0] = scale[s];
        out->sub[s][1] = minimum[s];
    }
}

static void split_q4_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q4_k *x = blocks;
    (void)n;
    split_p4(x->qs, out->level);
    split_q4_k_scales(x->scales, out);
    out->super[0] = x->d;
    out->super[1] = x->dmin;
}

static void split_q5_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q5_k *x = blocks;
    (void)n;
    split_p4(x->qs, out->level);
    for (int s = 0; s < 8; s++) {
        for (int l = 0; l < 32; l++) {
            out->level[32 * s + l] |= (uint8_t)((x->qh[l] >> s & 1) << 4);
        }
    }
    split_q4_k_scales(x->scales, out);
    out->super[0] = x->d;
    out->super[1] = x->dmin;
}

static void split_q6_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q6_k *x = blocks;
    (void)n;
    for (int h = 0; h < 2; h++) {
        for (int k = 0; k < 4; k++) {
            const uint8_t *ql = x->ql + 64 * h + 32 * (k % 2);
            for (int l = 0; l < 32; l++) {
                int low = ql[l] >> (4 * (k / 2)) & 15, high = x->qh[32 * h + l] >> (2 * k) & 3;
                out->level[128 * h + 32 * k + l] = (uint8_t)(low | high << 4);
            }
        }
    }
    memcpy(out->sub, x->scales, sizeof out->sub);
    out->super[0] = x->d;
}

static void split_iq4_xs(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_iq4_xs *x = blocks;
    (void)n;
    for (int g = 0; g < 8; g++) {
        int low = x->scales_l[g / 2] >> (4 * (g % 2)) & 15;
        split_nibbles(x->qs + 16 * g, out->level + 32 * g);
        out->sub[g][0] = (uint8_t)((low | (x->scales_h >> (2 * g) & 3) << 4) - 32);
    }
    out->super[0] = x->d;
}

static const split_fn splits[QN_TYPE_COUNT] = {
    [QN_TYPE_Q4_0] = split_q4_0,   [QN_TYPE_Q4_1] = split_q4_1,     [QN_TYPE_Q5_0] = split_q5_0,
    [QN_TYPE_Q5_1] = split_q5_1,   [QN_TYPE_Q8_0] = split_q8_0,     [QN_TYPE_Q2_K] = split_q2_k,
    [QN_TYPE_Q3_K] = split_q3_k,   [QN_TYPE_Q4_K] = split_q4_k,     [QN_TYPE_Q5_K] = split_q5_k,
    [QN_TYPE_Q6_K] = split_q6_k,   [QN_TYPE_IQ4_NL] = split_iq4_nl, [QN_TYPE_IQ4_XS] = split_iq4_xs,
    [QN_TYPE_MXFP4] = split_mxfp4,
};

/* `bits` bits from bit `shift` of the levels of one block of row `row` into its vectors. */
static inline void put_bits(uint8_t *vectors, int row, const uint8_t level[32], int bits, int shift)
{
    const uint32_t mask = 0x01010101U * ((1U << bits) - 1);
    uint32_t quad[QUADS];
    memcpy(quad, level, sizeof quad);
    for (int v = 0; v < bits; v++) {
        uint32_t word = 0;
        for (int i = v; i < QUADS; i += bits) {
            word |= (quad[i] >> shift & mask) << (i - v);
        }
        memcpy(vectors + 64 * v + 4 * row, &word, sizeof word);
    }
}

/* The same with `bits` as a constant of the loops. bytes: of a block for 16 rows. */
static void put_plane(uint8_t *plane, uint32_t bytes, int64_t n, int row, const uint8_t *level,
                      int shift)
{
    for (int64_t b = 0; b < n; b++, plane += bytes, level += QN_PACK_BLOCK) {
        switch (bytes) {
        case 512:
            put_bits(plane, row, level, 8, shift);
            break;
        case 256:
            put_bits(plane, row, level, 4, shift);
            break;
        case 128:
            put_bits(plane, row, level, 2, shift);
            break;
        default:
            put_bits(plane, row, level, 1, shift);
            break;
        }
    }
}

/* One row's chunk of n blocks into a packed chunk. */
static void put_split(qn_type type, const qn_split *in, int64_t n, int row, uint8_t *chunk)
{
    const qn_pack_layout at = qn__pack_layout(type);
    uint8_t *high = chunk + n * at.low, *sub = high + n * at.high;
    uint8_t *scale = sub + n * at.sub, *super = scale + n * at.scale;
    put_plane(chunk, at.low, n, row, in->level, 0);
    if (at.high != 0) {
        put_plane(high, at.high, n, row, in->level, (int)at.low / 64);
    }
    for (int64_t b = 0; b < n; b++) {
        for (uint32_t i = 0; i < at.sub / 16; i++) {
            sub[b * at.sub + 16 * i + (uint32_t)row] = in->sub[b][i];
        }
        if (at.scale == 16) {
            scale[b * 16 + row] = (uint8_t)in->scale[b][0];
        }
        for (uint32_t i = 0; i < at.scale / 32; i++) {
            memcpy(scale + b * at.scale + 32 * i + 2 * row, &in->scale[b][i], 2);
        }
    }
    for (uint32_t i = 0; i < at.super / 32; i++) {
        memcpy(super + 32 * i + 2 * row, &in->super[i], 2);
    }
}

/* k values of float row `row`, `step` bytes (one value, or a pair of them) at a time. */
static inline void put_steps(const uint8_t *src, size_t bytes, size_t step, int row, uint8_t *out)
{
    size_t at = 0;
    for (; at + step <= bytes; at += step) {
        memcpy(out + at * QN_PACK_ROWS + (size_t)row * step, src + at, step);
    }
    if (at < bytes) { /* an odd last value of a pair */
        memcpy(out + at * QN_PACK_ROWS + (size_t)row * step, src + at, bytes - at);
    }
}

/* The same with the step as a constant of the loop. */
static void put_floats(qn_type type, const uint8_t *src, int64_t k, int row, uint8_t *out)
{
    if (type == QN_TYPE_F16) {
        put_steps(src, (size_t)k * 2, 2, row, out);
    } else {
        put_steps(src, (size_t)k * (type == QN_TYPE_F32 ? 4 : 2), 4, row, out);
    }
}

/* One group: n_rows <= 16 rows of k values, row_bytes apart. */
static void pack_group(qn_type type, const uint8_t *rows, size_t row_bytes, int64_t n_rows,
                       int64_t k, uint8_t *out)
{
    const qn_type_info *info = qn_type_get_info(type);
    for (int64_t at = 0; at < k; at += QN_PACK_CHUNK) {
        const int64_t values = qn__min_i64(k - at, QN_PACK_CHUNK);
        const size_t bytes = qn__pack_chunk_bytes(type, values);
        memset(out, 0, bytes);
        for (int row = 0; row < n_rows; row++) {
            const uint8_t *src = rows + (size_t)row * row_bytes +
                                 (size_t)(at / info->block_values) * info->block_bytes;
            if (splits[type]) {
                qn_split split;
                const int64_t blocks = values / QN_PACK_BLOCK;
                splits[type](src, blocks, &split);
                put_split(type, &split, blocks, row, out);
            } else {
                put_floats(type, src, values, row, out);
            }
        }
        out += bytes;
    }
}

bool qn__cpu_pack_supports(qn_type type)
{
    return type == QN_TYPE_F32 || type == QN_TYPE_F16 || type == QN_TYPE_BF16 ||
           (type >= 0 && type < QN_TYPE_COUNT && splits[type]);
}

static int64_t groups_of_plane(const int64_t ne[4])
{
    return qn__div_up(ne[1], QN_PACK_ROWS);
}

int64_t qn__cpu_pack_groups(const int64_t ne[4])
{
    return groups_of_plane(ne) * ne[2];
}

size_t qn__cpu_pack_bytes(qn_type type, const int64_t ne[4])
{
    size_t groups, bytes;
    if (!qn__cpu_pack_supports(type) || ne[0] < 1 || ne[0] > QN_PACK_MAX_K || ne[1] < 1 ||
        ne[2] < 1 || ne[3] != 1 || ne[0] % qn_type_get_info(type)->block_values != 0 ||
        !qn__mul_size((size_t)groups_of_plane(ne), (size_t)ne[2], &groups) ||
        !qn__mul_size(groups, qn__pack_group_bytes(type, ne[0]), &bytes)) {
        return 0;
    }
    return bytes;
}

void qn__cpu_pack_rows(qn_type type, const int64_t ne[4], const void *rows, int64_t first_group,
                       int64_t n_groups, void *packed)
{
    const qn_type_info *info = qn_type_get_info(type);
    const size_t row_bytes = (size_t)(ne[0] / info->block_values) * info->block_bytes;
    const size_t group_bytes = qn__pack_group_bytes(type, ne[0]);
    const int64_t per_plane = groups_of_plane(ne);
    for (int64_t g = first_group; g < first_group + n_groups; g++) {
        const int64_t plane = g / per_plane, row = g % per_plane * QN_PACK_ROWS;
        pack_group(type, (const uint8_t *)rows + (size_t)(plane * ne[1] + row) * row_bytes,
                   row_bytes, qn__min_i64(ne[1] - row, QN_PACK_ROWS), ne[0],
                   (uint8_t *)packed + (size_t)g * group_bytes);
    }
}
