/*
 * pack.c: from the rows of a file to the packed form of pack.h.
 *
 * Block formats pass through qn_split: one row's chunk, saying where in the file's blocks the bits
 * of the levels lie, with the scales as they are stored; a format is a function that fills it and
 * a row of the table.
 */
#include "device/cpu/pack.h"

#include "quant/blocks.h"

enum { QUADS = 8 }; /* of a block of 32 */

/* The levels of one block, or a part of their bits. *Fields*: byte i of 32 holds the bits of value
 * i, from bit `shift` on. *Words*: the 32-bit words of the packed vectors, in order. */
typedef struct qn_levels {
    const uint8_t *bytes;
    int shift;
} qn_levels;

/* A chunk of one row. Levels are unsigned, offsets not yet taken off; Q8_0: the signed byte. */
typedef struct qn_split {
    qn_levels low[8], high[8]; /* as qn_pack_layout divides the bits */
    uint32_t high_word[8];     /* Q5_0, Q5_1: what high points to */
    uint8_t sub[8][2];         /* a block's sub-scales, or its sub-scale and minimum */
    uint16_t scale[8][2];      /* d, m of a block */
    uint16_t super[2];         /* d, dmin of a super-block */
} qn_split;

/* The nibbles of 32-value formats lie as in the packed words: value j and value j + 16 of a block
 * share a byte, and so do quad i and quad i + 4. */
static void split_q4_0(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q4_0 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = x[b].qs;
        out->scale[b][0] = x[b].d;
    }
}

static void split_q4_1(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q4_1 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = x[b].qs;
        out->scale[b][0] = x[b].d;
        out->scale[b][1] = x[b].m;
    }
}

/* Bit i of qh belongs to value i; in the packed word it is bit i / 4 of byte i % 4. */
static void split_fifth_bits(uint32_t qh, int64_t b, qn_split *out)
{
    uint32_t word = 0;
    for (int i = 0; i < QUADS; i++) {
        word |= ((qh >> (4 * i) & 15) * 0x00204081U & 0x01010101U) << i;
    }
    out->high_word[b] = word;
    out->high[b].bytes = (const uint8_t *)&out->high_word[b];
}

static void split_q5_0(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q5_0 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = x[b].qs;
        split_fifth_bits(x[b].qh, b, out);
        out->scale[b][0] = x[b].d;
    }
}

static void split_q5_1(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q5_1 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = x[b].qs;
        split_fifth_bits(x[b].qh, b, out);
        out->scale[b][0] = x[b].d;
        out->scale[b][1] = x[b].m;
    }
}

static void split_q8_0(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q8_0 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = (const uint8_t *)x[b].qs;
        out->scale[b][0] = x[b].d;
    }
}

static void split_iq4_nl(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_iq4_nl *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = x[b].qs;
        out->scale[b][0] = x[b].d;
    }
}

static void split_mxfp4(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_mxfp4 *x = blocks;
    for (int64_t b = 0; b < n; b++) {
        out->low[b].bytes = x[b].qs;
        out->scale[b][0] = x[b].e;
    }
}

/* Packing P2 of the super-blocks (quant/blocks.h): four blocks in 32 bytes, two bits each. */
static void split_p2(const uint8_t qs[64], qn_levels levels[8])
{
    for (int b = 0; b < 8; b++) {
        levels[b] = (qn_levels){qs + 32 * (b / 4), b % 4 * 2};
    }
}

/* Packing P4: two blocks in 32 bytes. */
static void split_p4(const uint8_t qs[128], qn_levels levels[8])
{
    for (int b = 0; b < 8; b++) {
        levels[b] = (qn_levels){qs + 32 * (b / 2), b % 2 * 4};
    }
}

/* Eight blocks in 32 bytes, one bit each. */
static void split_p1(const uint8_t qh[32], qn_levels levels[8])
{
    for (int b = 0; b < 8; b++) {
        levels[b] = (qn_levels){qh, b};
    }
}

static void split_q2_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q2_k *x = blocks;
    (void)n;
    split_p2(x->qs, out->low);
    memcpy(out->sub, x->scales, sizeof out->sub);
    out->super[0] = x->d;
    out->super[1] = x->dmin;
}

static void split_q3_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q3_k *x = blocks;
    uint8_t scale[16];
    (void)n;
    split_p2(x->qs, out->low);
    split_p1(x->hmask, out->high);
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
    split_p4(x->qs, out->low);
    split_q4_k_scales(x->scales, out);
    out->super[0] = x->d;
    out->super[1] = x->dmin;
}

static void split_q5_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q5_k *x = blocks;
    (void)n;
    split_p4(x->qs, out->low);
    split_p1(x->qh, out->high);
    split_q4_k_scales(x->scales, out);
    out->super[0] = x->d;
    out->super[1] = x->dmin;
}

static void split_q6_k(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_q6_k *x = blocks;
    (void)n;
    for (int b = 0; b < 8; b++) { /* blocks 0, 2 and 1, 3 of each half share their bytes */
        out->low[b] = (qn_levels){x->ql + 64 * (b / 4) + 32 * (b % 2), b % 4 / 2 * 4};
    }
    split_p2(x->qh, out->high);
    memcpy(out->sub, x->scales, sizeof out->sub);
    out->super[0] = x->d;
}

static void split_iq4_xs(const void *blocks, int64_t n, qn_split *out)
{
    const qn_block_iq4_xs *x = blocks;
    (void)n;
    for (int g = 0; g < 8; g++) {
        int low = x->scales_l[g / 2] >> (4 * (g % 2)) & 15;
        out->low[g].bytes = x->qs + 16 * g;
        out->sub[g][0] = (uint8_t)((low | (x->scales_h >> (2 * g) & 3) << 4) - 32);
    }
    out->super[0] = x->d;
}

/* Levels of a block that lie as words: `words` of row `row` into their vectors. */
static inline void put_words(uint8_t *vectors, int row, qn_levels levels, int words)
{
    for (int v = 0; v < words; v++) {
        memcpy(vectors + 64 * v + 4 * row, levels.bytes + 4 * v, 4);
    }
}

/* Levels of a block that lie as fields of `bits` <= 4 bits. Two quads at a time, 2 i and 2 i + 1:
 * they come to the same bits of two vectors, or (one vector) to bits beside each other. */
static inline void put_fields(uint8_t *vectors, int row, qn_levels levels, int bits)
{
    const uint64_t mask = 0x0101010101010101U * ((1U << bits) - 1);
    const int step = bits > 1 ? bits / 2 : 1;
    uint64_t quads[QUADS / 2];
    memcpy(quads, levels.bytes, sizeof quads);
    for (int v = 0; v < step; v++) {
        uint64_t words = 0;
        for (int i = v; i < QUADS / 2; i += step) {
            words |= (quads[i] >> levels.shift & mask) << (2 * (i - v));
        }
        uint32_t even = (uint32_t)words, odd = (uint32_t)(words >> 32);
        if (bits == 1) {
            even |= odd << 1;
        } else {
            memcpy(vectors + 64 * (2 * v + 1) + 4 * row, &odd, sizeof odd);
        }
        memcpy(vectors + 64 * (2 * v) + 4 * row, &even, sizeof even);
    }
}

static inline void put_levels(uint8_t *vectors, int row, qn_levels levels, bool words, int bits)
{
    if (words) {
        put_words(vectors, row, levels, bits);
    } else {
        put_fields(vectors, row, levels, bits);
    }
}

/* One row's chunk of n blocks into a packed chunk. */
static inline void put_split(qn_type type, bool words, const qn_split *in, int64_t n, int row,
                             uint8_t *chunk)
{
    const qn_pack_layout size = qn__pack_layout(type);
    for (int64_t b = 0; b < n; b++) {
        const qn_pack_place at = qn__pack_place(type, b);
        put_levels(chunk + at.low, row, in->low[b], words, (int)size.low / 64);
        if (size.high != 0) {
            put_levels(chunk + at.high, row, in->high[b], words, (int)size.high / 64);
        }
        for (uint32_t i = 0; i < size.sub / 16; i++) {
            chunk[at.sub + 16 * i + (uint32_t)row] = in->sub[b][i];
        }
        if (size.scale == 16) {
            chunk[at.scale + (uint32_t)row] = (uint8_t)in->scale[b][0];
        }
        for (uint32_t i = 0; i < size.scale / 32; i++) {
            memcpy(chunk + at.scale + 32 * i + 2 * row, &in->scale[b][i], 2);
        }
    }
    for (uint32_t i = 0; i < size.super / 32; i++) {
        memcpy(chunk + 32 * i + 2 * row, &in->super[i], 2);
    }
}

/* A function for each format, so that the layout is constant in its loops: X(name, type, words). */
#define QN_FORMATS(X)                                                                              \
    X(q4_0, QN_TYPE_Q4_0, true)                                                                    \
    X(q4_1, QN_TYPE_Q4_1, true)                                                                    \
    X(q5_0, QN_TYPE_Q5_0, true)                                                                    \
    X(q5_1, QN_TYPE_Q5_1, true)                                                                    \
    X(q8_0, QN_TYPE_Q8_0, true)                                                                    \
    X(q2_k, QN_TYPE_Q2_K, false)                                                                   \
    X(q3_k, QN_TYPE_Q3_K, false)                                                                   \
    X(q4_k, QN_TYPE_Q4_K, false)                                                                   \
    X(q5_k, QN_TYPE_Q5_K, false)                                                                   \
    X(q6_k, QN_TYPE_Q6_K, false)                                                                   \
    X(iq4_nl, QN_TYPE_IQ4_NL, true)                                                                \
    X(iq4_xs, QN_TYPE_IQ4_XS, true)                                                                \
    X(mxfp4, QN_TYPE_MXFP4, true)

#define QN_PUT(name, type, words)                                                                  \
    static void put_##name(const qn_split *in, int64_t n, int row, uint8_t *chunk)                 \
    {                                                                                              \
        put_split(type, words, in, n, row, chunk);                                                 \
    }
QN_FORMATS(QN_PUT)

#define QN_ROW(name, type, words) [type] = {split_##name, put_##name},
static const struct {
    void (*split)(const void *blocks, int64_t n, qn_split *out);
    void (*put)(const qn_split *in, int64_t n, int row, uint8_t *chunk);
} formats[QN_TYPE_COUNT] = {QN_FORMATS(QN_ROW)};

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
        if (n_rows < QN_PACK_ROWS || values % QN_PACK_BLOCK != 0) {
            memset(out, 0, bytes);
        } else { /* all is written but what fills the chunk up */
            memset(out + bytes - 64, 0, 64);
        }
        for (int row = 0; row < n_rows; row++) {
            const uint8_t *src = rows + (size_t)row * row_bytes +
                                 (size_t)(at / info->block_values) * info->block_bytes;
            if (formats[type].split) {
                qn_split split;
                formats[type].split(src, values / QN_PACK_BLOCK, &split);
                formats[type].put(&split, values / QN_PACK_BLOCK, row, out);
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
           (type >= 0 && type < QN_TYPE_COUNT && formats[type].split);
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

int64_t qn__cpu_pack_first_row(const int64_t ne[4], int64_t group)
{
    const int64_t per_plane = groups_of_plane(ne);
    return group / per_plane * ne[1] + group % per_plane * QN_PACK_ROWS;
}

void qn__cpu_pack_rows(qn_type type, const int64_t ne[4], const void *rows, int64_t first_group,
                       int64_t n_groups, void *packed)
{
    const qn_type_info *info = qn_type_get_info(type);
    const size_t row_bytes = (size_t)(ne[0] / info->block_values) * info->block_bytes;
    const size_t group_bytes = qn__pack_group_bytes(type, ne[0]);
    const int64_t first_row = qn__cpu_pack_first_row(ne, first_group);
    for (int64_t g = first_group; g < first_group + n_groups; g++) {
        const int64_t row = qn__cpu_pack_first_row(ne, g), in_plane = row % ne[1];
        pack_group(type, (const uint8_t *)rows + (size_t)(row - first_row) * row_bytes, row_bytes,
                   qn__min_i64(ne[1] - in_plane, QN_PACK_ROWS), ne[0],
                   (uint8_t *)packed + (size_t)g * group_bytes);
    }
}
