/*
 * matmul_scalar.c: the matrix products in plain C. This is the definition of their arithmetic
 * (matmul.h has it in formulas); all other kernels have these bits. It reads the same packed
 * weights: a chunk is opened into one integer a weight, with its scales, and then meets the
 * columns.
 */
#include "base/fmath.h"
#include "device/cpu/join.h"
#include "device/cpu/matmul.h"
#include "quant/blocks.h"

#include <math.h>

enum { ROWS = QN_PACK_ROWS, COLS = 8 /* columns that share an opened chunk */ };

/* Quantization of activations --------------------------------------------------------------------
 */

/* Levels for one scale, amax / divisor; returns the sum of the squared errors, in 16 lanes. */
static float quantize_by(const float *x, float amax, float divisor, int8_t q[32])
{
    const float inverse = divisor / amax;
    const float d = amax / divisor;
    float lanes[16] = {0};
    for (int i = 0; i < QN_PACK_BLOCK; i++) {
        q[i] = (int8_t)lrintf(x[i] * inverse);
        const float error = fmaf(-(float)q[i], d, x[i]);
        lanes[i % 16] = fmaf(error, error, lanes[i % 16]);
    }
    for (int n = 8; n > 0; n /= 2) {
        for (int i = 0; i < n; i++) {
            lanes[i] += lanes[i + n];
        }
    }
    return lanes[0];
}

/* Levels of 32 values; returns their scale. */
static float quantize_block(const float *x, int8_t q[32])
{
    uint32_t bits = 0; /* of the largest magnitude; as integers so that a NaN wins */
    for (int i = 0; i < QN_PACK_BLOCK; i++) {
        const uint32_t b = qn__float_bits(x[i]) & 0x7fffffffU;
        bits = b > bits ? b : bits;
    }
    const float amax = qn__bits_float(bits);
    memset(q, 0, QN_PACK_BLOCK);
    if (bits >= 0x7f800000U) {
        return qn__bits_float(0x7fc00000U);
    }
    if (amax < QN_ACT_MIN) {
        return 0.0F;
    }
    float divisor = 127.0F;
    float least = quantize_by(x, amax, divisor, q);
    for (float next = 126.0F; next > 127.0F - (float)QN_ACT_SCALES; next -= 1.0F) {
        int8_t levels[QN_PACK_BLOCK];
        const float error = quantize_by(x, amax, next, levels);
        if (error < least) {
            least = error;
            divisor = next;
            memcpy(q, levels, sizeof levels);
        }
    }
    return amax / divisor;
}

static void quantize(const float *x, int64_t n, qn_act_form form, void *chunks, size_t stride)
{
    for (int64_t i = 0; i < n / QN_PACK_BLOCK; i++) {
        qn_act_chunk *chunk = (qn_act_chunk *)((uint8_t *)chunks + (size_t)(i / 8) * stride);
        const int64_t b = i % 8;
        const int8_t *q = chunk->q[b];
        int32_t sum = 0, part[2][2] = {{0, 0}, {0, 0}};
        chunk->d[b] = quantize_block(x + i * QN_PACK_BLOCK, chunk->q[b]);
        for (int k = 0; k < QN_PACK_BLOCK; k++) {
            part[k / form.sub][k % 4 / 2] += q[k];
            sum += q[k];
        }
        chunk->s[b] = chunk->d[b] * (float)sum;
        for (int h = 0; h < 2; h++) {
            chunk->half[b][h] = form.factor * (part[h][0] + part[h][1]);
            chunk->pair[b][h][0] = (int16_t)(form.factor * part[h][0]);
            chunk->pair[b][h][1] = (int16_t)(form.factor * part[h][1]);
        }
    }
}

/* Chunks opened ----------------------------------------------------------------------------------
 */

/* A chunk of n blocks: integers w and scales for [block][k or sub-block][row]. */
typedef struct open_chunk {
    int8_t w[8][QN_PACK_BLOCK][ROWS];
    int32_t scale[8][2][ROWS];
    int32_t minimum[8][2][ROWS]; /* Q2_K */
    float d[8][ROWS], m[8][ROWS];
} open_chunk;

typedef enum minimum_kind {
    MINIMUM_NONE,
    MINIMUM_BLOCK, /* acc = fmaf(m, s, acc) */
    MINIMUM_SUB    /* acc = fmaf((float)sum of minimum * sum of q, m * d, acc) */
} minimum_kind;

/* What a chunk holds of a block (pack.h). */
typedef struct parts {
    const uint8_t *low, *high, *sub, *scale, *super;
} parts;

/* How a format is opened. Integer w = table[level], or level - offset without a table. */
typedef struct format {
    int offset;
    const int8_t *table;
    minimum_kind minimum;
    void (*scales)(const parts *p, int64_t b, open_chunk *out);
} format;

/* Quad `i` of a block from the vectors of one array: the bits of value j of row r. */
static int level_bits(const uint8_t *vectors, uint32_t bytes, int i, int r, int j)
{
    const int bits = (int)bytes / 64; /* that many vectors of 64 bytes hold the 8 quads */
    return vectors[64 * (i % bits) + 4 * r + j] >> (i / bits * bits) & ((1 << bits) - 1);
}

static void open_levels(qn_type type, const format *f, const parts *p, int8_t out[][ROWS])
{
    const qn_pack_layout size = qn__pack_layout(type);
    for (int k = 0; k < QN_PACK_BLOCK; k++) {
        for (int r = 0; r < ROWS; r++) {
            int level = level_bits(p->low, size.low, k / 4, r, k % 4);
            if (size.high != 0) {
                level |= level_bits(p->high, size.high, k / 4, r, k % 4) << size.low / 64;
            }
            out[k][r] = (int8_t)(f->table ? f->table[level] : level - f->offset);
        }
    }
}

static float half_at(const uint8_t *bytes, int64_t i)
{
    uint16_t h;
    memcpy(&h, bytes + 2 * i, sizeof h);
    return qn__f16_to_f32(h);
}

static void scales_d(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = half_at(p->scale, r);
    }
}

static void scales_d_m(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = half_at(p->scale, r);
        out->m[b][r] = half_at(p->scale, ROWS + r);
    }
}

static void scales_e8m0(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = qn__e8m0_half(p->scale[r]);
    }
}

/* Q4_K, Q5_K: exact products. */
static void scales_k(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = half_at(p->super, r) * (float)p->sub[r];
        out->m[b][r] = -(half_at(p->super, ROWS + r) * (float)p->sub[ROWS + r]);
    }
}

static void scales_iq4_xs(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = half_at(p->super, r) * (float)(int8_t)p->sub[r];
    }
}

/* Q6_K, Q3_K */
static void scales_16(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = half_at(p->super, r);
        for (int h = 0; h < 2; h++) {
            out->scale[b][h][r] = (int8_t)p->sub[h * ROWS + r];
        }
    }
}

static void scales_q2_k(const parts *p, int64_t b, open_chunk *out)
{
    for (int r = 0; r < ROWS; r++) {
        out->d[b][r] = half_at(p->super, r);
        out->m[b][r] = -half_at(p->super, ROWS + r);
        for (int h = 0; h < 2; h++) {
            out->scale[b][h][r] = p->sub[h * ROWS + r] & 15;
            out->minimum[b][h][r] = p->sub[h * ROWS + r] >> 4;
        }
    }
}

static const format formats[QN_TYPE_COUNT] = {
    [QN_TYPE_Q4_0] = {8, NULL, MINIMUM_NONE, scales_d},
    [QN_TYPE_Q4_1] = {0, NULL, MINIMUM_BLOCK, scales_d_m},
    [QN_TYPE_Q5_0] = {16, NULL, MINIMUM_NONE, scales_d},
    [QN_TYPE_Q5_1] = {0, NULL, MINIMUM_BLOCK, scales_d_m},
    [QN_TYPE_Q8_0] = {0, NULL, MINIMUM_NONE, scales_d},
    [QN_TYPE_Q2_K] = {0, NULL, MINIMUM_SUB, scales_q2_k},
    [QN_TYPE_Q3_K] = {4, NULL, MINIMUM_NONE, scales_16},
    [QN_TYPE_Q4_K] = {0, NULL, MINIMUM_BLOCK, scales_k},
    [QN_TYPE_Q5_K] = {0, NULL, MINIMUM_BLOCK, scales_k},
    [QN_TYPE_Q6_K] = {32, NULL, MINIMUM_NONE, scales_16},
    [QN_TYPE_IQ4_NL] = {0, qn__iq4_values, MINIMUM_NONE, scales_d},
    [QN_TYPE_IQ4_XS] = {0, qn__iq4_values, MINIMUM_NONE, scales_iq4_xs},
    [QN_TYPE_MXFP4] = {0, qn__e2m1_values, MINIMUM_NONE, scales_e8m0},
};

static void open_blocks(qn_type type, const uint8_t *chunk, int64_t n, open_chunk *out)
{
    for (int64_t i = 0; i < n * 2 * ROWS; i++) {
        out->scale[i / ROWS / 2][i / ROWS % 2][i % ROWS] = 1;
    }
    for (int64_t b = 0; b < n; b++) {
        const qn_pack_place at = qn__pack_place(type, b);
        const parts p = {chunk + at.low, chunk + at.high, chunk + at.sub, chunk + at.scale, chunk};
        open_levels(type, &formats[type], &p, out->w[b]);
        formats[type].scales(&p, b, out);
    }
}

/* Products ---------------------------------------------------------------------------------------
 */

/* n blocks of 16 rows with one column. */
static void dot_blocks(const open_chunk *w, const qn_act_chunk *x, int64_t n, minimum_kind minimum,
                       float acc[ROWS])
{
    memset(acc, 0, ROWS * sizeof acc[0]);
    for (int64_t b = 0; b < n; b++) {
        int32_t isum[ROWS] = {0}, jsum[ROWS] = {0};
        for (int h = 0; h < 2; h++) {
            int32_t part[ROWS] = {0}, sum = 0;
            for (int k = 16 * h; k < 16 * h + 16; k++) {
                sum += x->q[b][k];
                for (int r = 0; r < ROWS; r++) {
                    part[r] += w->w[b][k][r] * x->q[b][k];
                }
            }
            for (int r = 0; r < ROWS; r++) {
                isum[r] += w->scale[b][h][r] * part[r];
                jsum[r] += minimum == MINIMUM_SUB ? w->minimum[b][h][r] * sum : 0;
            }
        }
        for (int r = 0; r < ROWS; r++) {
            acc[r] = fmaf((float)isum[r], w->d[b][r] * x->d[b], acc[r]);
            if (minimum == MINIMUM_BLOCK) {
                acc[r] = fmaf(w->m[b][r], x->s[b], acc[r]);
            } else if (minimum == MINIMUM_SUB) {
                acc[r] = fmaf((float)jsum[r], w->m[b][r] * x->d[b], acc[r]);
            }
        }
    }
}

static float float_at(qn_type type, const uint8_t *chunk, int64_t k, int r)
{
    uint32_t word;
    uint16_t half;
    switch (type) {
    case QN_TYPE_F32:
        memcpy(&word, chunk + 4 * (k * ROWS + r), sizeof word);
        return qn__bits_float(word);
    case QN_TYPE_F16:
        return half_at(chunk, k * ROWS + r);
    default:
        memcpy(&half, chunk + 4 * (k / 2 * ROWS + r) + 2 * (k % 2), sizeof half);
        return qn__bf16_to_f32(half);
    }
}

/* n values of 16 rows with one column. */
static void dot_floats(const float w[][ROWS], const float *x, int64_t n, float acc[ROWS])
{
    memset(acc, 0, ROWS * sizeof acc[0]);
    for (int64_t k = 0; k < n; k++) {
        for (int r = 0; r < ROWS; r++) {
            acc[r] = fmaf(w[k][r], x[k], acc[r]);
        }
    }
}

/* The chunk sums of some columns that wait to be joined. */
typedef float join_stack[COLS][QN_JOIN_LEVELS][ROWS];

static void join(float stack[QN_JOIN_LEVELS][ROWS], int64_t index, const float sum[ROWS])
{
    const int count = qn__join_count(index);
    for (int r = 0; r < ROWS; r++) {
        float s = sum[r];
        for (int level = 0; level < count; level++) {
            s = stack[level][r] + s;
        }
        stack[count][r] = s;
    }
}

static float join_end(float stack[QN_JOIN_LEVELS][ROWS], int64_t n_chunks, int r)
{
    int level = __builtin_ctzll((unsigned long long)n_chunks);
    float s = stack[level][r];
    for (level++; n_chunks >> level != 0; level++) {
        if (n_chunks >> level & 1) {
            s = stack[level][r] + s;
        }
    }
    return s;
}

/* One group with columns first .. first + n_cols. */
static void mul_group(qn_type type, const qn_matmul_tile *t, int64_t group, int64_t first,
                      int64_t n_cols)
{
    const uint8_t *chunk =
        (const uint8_t *)t->weights + (size_t)group * qn__pack_group_bytes(type, t->k);
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    const bool blocks = qn_type_get_info(type)->quantized;
    join_stack stack;
    union {
        open_chunk blocks;
        float values[QN_PACK_CHUNK][ROWS];
    } w;
    for (int64_t i = 0; i < n_chunks; i++) {
        const int64_t n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK);
        if (blocks) {
            open_blocks(type, chunk, n / QN_PACK_BLOCK, &w.blocks);
        } else {
            for (int64_t e = 0; e < n * ROWS; e++) {
                w.values[e / ROWS][e % ROWS] = float_at(type, chunk, e / ROWS, (int)(e % ROWS));
            }
        }
        for (int64_t c = 0; c < n_cols; c++) {
            const void *x = (const uint8_t *)t->x[first + c] + (size_t)i * t->x_stride;
            float sum[ROWS];
            if (blocks) {
                dot_blocks(&w.blocks, x, n / QN_PACK_BLOCK, formats[type].minimum, sum);
            } else {
                dot_floats((const float(*)[ROWS])w.values, x, n, sum);
            }
            join(stack[c], i, sum);
        }
        chunk += qn__pack_chunk_bytes(type, n);
    }
    const int64_t row = group * ROWS;
    for (int64_t c = 0; c < n_cols; c++) {
        for (int64_t r = 0; r < qn__min_i64(t->n_rows - row, ROWS); r++) {
            const float s = join_end(stack[c], n_chunks, (int)r);
            t->y[first + c][row + r] = t->bias ? s + t->bias[row + r] : s;
        }
    }
}

static void mul(qn_type type, const qn_matmul_tile *t)
{
    for (int64_t group = 0; group * ROWS < t->n_rows; group++) {
        for (int64_t c = 0; c < t->n_cols; c += COLS) {
            mul_group(type, t, group, c, qn__min_i64(t->n_cols - c, COLS));
        }
    }
}

#define QN_MUL(name, type)                                                                         \
    static void mul_##name(const qn_matmul_tile *t)                                                \
    {                                                                                              \
        mul(type, t);                                                                              \
    }
QN_MATMUL_TYPES(QN_MUL)

#define QN_ROW(name, type) [type] = mul_##name,
const qn_cpu_matmul_fns qn__matmul_scalar = {
    .quantize = quantize,
    .mul = {QN_MATMUL_TYPES(QN_ROW)},
};
