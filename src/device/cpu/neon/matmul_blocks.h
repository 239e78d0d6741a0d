/*
 * matmul_blocks.h: block formats with quantized activations for NEON, written once for processors
 * with and without dot products: a file that includes this sets QN_NEON_DOT to 1 or 0 and
 * QN_NEON_MUL(name) to the name of the function of a type.
 *
 * 16 bytes are a quad (4 values) of 4 rows; a quad of the activations, broadcast from a register or
 * from memory, meets all of them. With dot products one instruction adds the four products of each
 * row in 32 bits. Without them the products of two quads and more are added in 16 bits, as many as
 * fit (`run_of`), and then pairwise in 32 bits.
 *
 * Levels of up to 6 bits are taken as they are stored, and what their offset takes off is put in as
 * the start of the sum (qn_act_chunk.half); bytes and levels from tables are signed. All of that is
 * exact, so the two ways have the same sums.
 *
 * Several columns: a chunk is opened once, every level in a byte, and stays in the L1 cache while
 * up to 32 columns meet it, four at a time. One or two columns: levels go from the packed bytes to
 * the products in registers.
 */
#include "device/cpu/neon/matmul_neon.h"

#include "quant/blocks.h"

enum {
    QUADS = 8,
    COLS = 4,
    PAIR = 2 /* registers that are worked on at a time: 8 rows, half a group */
};

/* How formats are multiplied once their levels are open. */
typedef enum kind {
    KIND_OFFSET,       /* sums start from `half` */
    KIND_MINIMUM,      /* sums start from zero, and a minimum */
    KIND_SUBS,         /* integer scales of 16 values, sums from `half` */
    KIND_SUBS_MINIMUM, /* integer scales and minima, sums from zero */
    KIND_SIGNED,       /* signed bytes, sums from zero */
    KIND_COUNT
} kind;

QN_INLINE kind kind_of(qn_type type)
{
    switch (type) {
    case QN_TYPE_Q4_0:
    case QN_TYPE_Q5_0:
        return KIND_OFFSET;
    case QN_TYPE_Q4_1:
    case QN_TYPE_Q4_K:
    case QN_TYPE_Q5_1:
    case QN_TYPE_Q5_K:
        return KIND_MINIMUM;
    case QN_TYPE_Q3_K:
    case QN_TYPE_Q6_K:
        return KIND_SUBS;
    case QN_TYPE_Q2_K:
        return KIND_SUBS_MINIMUM;
    default:
        return KIND_SIGNED;
    }
}

/* The scales of one block, 4 rows. */
typedef struct scales {
    float32x4_t d, m;
    int32x4_t sub[2], minimum[2]; /* of sub-block 0, 1; minima: Q2_K */
} scales;

/* Opening ----------------------------------------------------------------------------------------
 */

/* `bits` bits from bit `from` on of every byte, moved to bit `to`. */
QN_INLINE uint8x16_t bits_of(uint8x16_t x, int from, int bits, int to)
{
    const int right = from - to;
    const uint8x16_t moved =
        right >= 0 ? x >> vdupq_n_u8((uint8_t)right) : x << vdupq_n_u8((uint8_t)-right);
    return from + bits == 8 && to == 0
               ? moved
               : vandq_u8(moved, vdupq_n_u8((uint8_t)(((1 << bits) - 1) << to)));
}

/* The 8 quads of block b, rows 8 half .. 8 half + 7. */
QN_INLINE void open_levels(qn_type type, const uint8_t *chunk, int64_t b, int half,
                           int8x16_t w[QUADS][PAIR])
{
    const qn_pack_layout size = qn__pack_layout(type);
    const qn_pack_place at = qn__pack_place(type, b);
    const uint8_t *low = chunk + at.low + 32 * half;
    const uint8_t *high = chunk + at.high + 32 * half;
    const int bits = (int)size.low / 64, high_bits = (int)size.high / 64;
#pragma GCC unroll 16
    for (int i = 0; i < QUADS * PAIR; i++) {
        const int quad = i / PAIR, r = i % PAIR;
        uint8x16_t v = vld1q_u8(low + 64 * (quad % bits) + 16 * r);
        if (bits != 8) {
            v = bits_of(v, quad / bits * bits, bits, 0);
        }
        if (high_bits != 0) {
            const uint8x16_t more = vld1q_u8(high + 64 * (quad % high_bits) + 16 * r);
            v = vorrq_u8(v, bits_of(more, quad / high_bits * high_bits, high_bits, bits));
        }
        w[quad][r] = vreinterpretq_s8_u8(v);
        if (type == QN_TYPE_IQ4_NL || type == QN_TYPE_IQ4_XS || type == QN_TYPE_MXFP4) {
            w[quad][r] =
                vqtbl1q_s8(vld1q_s8(type == QN_TYPE_MXFP4 ? qn__e2m1_values : qn__iq4_values), v);
        }
    }
}

QN_INLINE float32x4_t halves(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

QN_INLINE uint8x8_t four_bytes(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return vreinterpret_u8_u32(vdup_n_u32(x));
}

QN_INLINE uint32x4_t bytes(const uint8_t *p)
{
    return vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p))));
}

QN_INLINE int32x4_t signed_bytes(const uint8_t *p)
{
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p)))));
}

/* Halves of E8M0: 2^(e - 128), subnormal for e < 2. */
QN_INLINE float32x4_t e8m0(const uint8_t *p)
{
    const uint32x4_t e = bytes(p);
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal));
}

/* Scales of block b, rows 4 r .. 4 r + 3. */
QN_INLINE void open_scales(qn_type type, const uint8_t *chunk, int64_t b, int r, scales *s)
{
    const qn_pack_place at = qn__pack_place(type, b);
    const uint8_t *sub = chunk + at.sub + 4 * r, *scale = chunk + at.scale;
    const uint8_t *d = (qn__pack_layout(type).super != 0 ? chunk : scale) + 8 * r;
    if (type == QN_TYPE_MXFP4) {
        s->d = e8m0(scale + 4 * r);
        return;
    }
    s->d = halves(d);
    if (type == QN_TYPE_Q4_1 || type == QN_TYPE_Q5_1) {
        s->m = halves(d + 32);
    } else if (type == QN_TYPE_Q4_K || type == QN_TYPE_Q5_K) {
        s->d = vmulq_f32(s->d, vcvtq_f32_u32(bytes(sub)));
        s->m = vmulq_f32(vnegq_f32(halves(d + 32)), vcvtq_f32_u32(bytes(sub + 16)));
    } else if (type == QN_TYPE_IQ4_XS) {
        s->d = vmulq_f32(s->d, vcvtq_f32_s32(signed_bytes(sub)));
    } else if (type == QN_TYPE_Q2_K) {
        s->m = vnegq_f32(halves(d + 32));
        for (int h = 0; h < 2; h++) {
            const uint32x4_t x = bytes(sub + 16 * h);
            s->sub[h] = vreinterpretq_s32_u32(vandq_u32(x, vdupq_n_u32(15)));
            s->minimum[h] = vreinterpretq_s32_u32(vshrq_n_u32(x, 4));
        }
    } else if (type == QN_TYPE_Q3_K || type == QN_TYPE_Q6_K) {
        s->sub[0] = signed_bytes(sub);
        s->sub[1] = signed_bytes(sub + 16);
    }
}

/* Products ---------------------------------------------------------------------------------------
 */

#if QN_NEON_DOT

/*
 * Keeps the chains of a few columns beside each other. The compiler would do them one after the
 * other, and wait for every instruction of a chain on processors that keep the order of the code.
 */
#define QN_IN_ORDER(x) __asm__ volatile("" : "+w"(x))

/* sum + w times quad `lane` of q. The instruction wants the lane as a constant. */
QN_INLINE int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t q, int lane)
{
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, w, q, 0);
    case 1:
        return vdotq_laneq_s32(sum, w, q, 1);
    case 2:
        return vdotq_laneq_s32(sum, w, q, 2);
    default:
        return vdotq_laneq_s32(sum, w, q, 3);
    }
}

/* Four quads from `first` on of block b of `cols` columns, added to sum[column][register]. */
QN_INLINE void add_quads(kind how, const int8x16_t w[QUADS][PAIR], const qn_act_chunk *const x[],
                         int cols, int64_t b, int first, int32x4_t sum[][PAIR])
{
    int8x16_t q[COLS];
    (void)how;
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        q[c] = vld1q_s8(x[c]->q[b] + 4 * first);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
#pragma GCC unroll 2
            for (int r = 0; r < PAIR; r++) {
                sum[c][r] = dot(sum[c][r], w[first + i][r], q[c], i);
                QN_IN_ORDER(sum[c][r]);
            }
        }
    }
}

#else

/* Quads whose products may be added in 16 bits: 4 x 63 x 127 of levels up to 63 and 2 x 128 x 127
 * of bytes stay below 2^15. */
QN_INLINE int run_of(kind how)
{
    return how == KIND_SIGNED ? 2 : 4;
}

/* A quad in every lane. */
QN_INLINE int8x16_t spread(const int8_t *q)
{
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}

/* `run` quads from `first` on of 4 rows with a column's q, in 32 bits. */
QN_INLINE int32x4_t run_quads(const int8x16_t w[QUADS][PAIR], int r, const int8_t q[32], int first,
                              int run)
{
    int8x16_t v = spread(q + 4 * first);
    int16x8_t low = vmull_s8(vget_low_s8(w[first][r]), vget_low_s8(v)); /* rows 0, 1 */
    int16x8_t high = vmull_high_s8(w[first][r], v);                     /* rows 2, 3 */
#pragma GCC unroll 4
    for (int i = first + 1; i < first + run; i++) {
        v = spread(q + 4 * i);
        low = vmlal_s8(low, vget_low_s8(w[i][r]), vget_low_s8(v));
        high = vmlal_high_s8(high, w[i][r], v);
    }
    return vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
}

/* Four quads from `first` on of block b of `cols` columns, added to sum[column][register]. */
QN_INLINE void add_quads(kind how, const int8x16_t w[QUADS][PAIR], const qn_act_chunk *const x[],
                         int cols, int64_t b, int first, int32x4_t sum[][PAIR])
{
    const int run = run_of(how);
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
#pragma GCC unroll 2
        for (int r = 0; r < PAIR; r++) {
#pragma GCC unroll 2
            for (int i = first; i < first + 4; i += run) {
                sum[c][r] = vaddq_s32(sum[c][r], run_quads(w, r, x[c]->q[b], i, run));
            }
        }
    }
}

#endif

/* Where the sums of sub-block h of block b start. */
QN_INLINE int32x4_t start(kind how, const qn_act_chunk *x, int64_t b, int h)
{
    return vdupq_n_s32(how == KIND_OFFSET || how == KIND_SUBS ? x->half[b][h] : 0);
}

/* The sum of a block is there: scales, minimum, accumulator. */
QN_INLINE float32x4_t take(kind how, const scales *s, const qn_act_chunk *x, int64_t b,
                           int32x4_t isum, float32x4_t acc)
{
    const float dx = x->d[b];
    acc = vfmaq_f32(acc, vcvtq_f32_s32(isum), vmulq_n_f32(s->d, dx));
    if (how == KIND_MINIMUM) {
        acc = vfmaq_n_f32(acc, s->m, x->s[b]);
    } else if (how == KIND_SUBS_MINIMUM) {
        int32x4_t jsum = vmulq_n_s32(s->minimum[0], x->half[b][0]);
        jsum = vmlaq_n_s32(jsum, s->minimum[1], x->half[b][1]);
        acc = vfmaq_f32(acc, vcvtq_f32_s32(jsum), vmulq_n_f32(s->m, dx));
    }
    return acc;
}

/* Block b of 8 rows with `cols` columns; s: of their two registers. */
QN_INLINE void dot_block(kind how, const int8x16_t w[QUADS][PAIR], const scales s[PAIR],
                         const qn_act_chunk *const x[], int cols, int64_t b,
                         float32x4_t acc[][PAIR])
{
    const bool subs = how == KIND_SUBS || how == KIND_SUBS_MINIMUM;
    const int n_subs = subs ? cols * PAIR : 0;
    int32x4_t sum[COLS][PAIR], total[COLS][PAIR];
#pragma GCC unroll 8
    for (int i = 0; i < cols * PAIR; i++) {
        sum[i / PAIR][i % PAIR] = start(how, x[i / PAIR], b, 0);
    }
    add_quads(how, w, x, cols, b, 0, sum);
#pragma GCC unroll 8
    for (int i = 0; i < n_subs; i++) {
        const int c = i / PAIR, r = i % PAIR;
        total[c][r] = vmulq_s32(sum[c][r], s[r].sub[0]);
        sum[c][r] = start(how, x[c], b, 1);
    }
    add_quads(how, w, x, cols, b, 4, sum);
#pragma GCC unroll 8
    for (int i = 0; i < cols * PAIR; i++) {
        const int c = i / PAIR, r = i % PAIR;
        const int32x4_t isum = subs ? vmlaq_s32(total[c][r], sum[c][r], s[r].sub[1]) : sum[c][r];
        acc[c][r] = take(how, &s[r], x[c], b, isum, acc[c][r]);
    }
}

/* Several columns --------------------------------------------------------------------------------
 */

typedef struct open_chunk {
    int8x16_t w[8][2][QUADS][PAIR]; /* [block][half] */
    scales s[8][2][PAIR];
} open_chunk;

/* Opens a chunk of n blocks. */
typedef void (*open_fn)(const uint8_t *chunk, int64_t n, open_chunk *out);

QN_INLINE void open_blocks(qn_type type, const uint8_t *chunk, int64_t n, open_chunk *out)
{
    for (int64_t b = 0; b < n; b++) {
        qn__fetch_ahead(type, chunk, b);
        for (int h = 0; h < 2; h++) {
            open_levels(type, chunk, b, h, out->w[b][h]);
            for (int r = 0; r < PAIR; r++) {
                open_scales(type, chunk, b, PAIR * h + r, &out->s[b][h][r]);
            }
        }
    }
}

/* An open chunk of n blocks with some columns, joined to their stacks. */
typedef void (*walk_fn)(const open_chunk *w, int64_t n, const qn_act_chunk *const x[],
                        int64_t index, qn_neon_stack *stack);

QN_INLINE void walk(kind how, int cols, const open_chunk *w, int64_t n,
                    const qn_act_chunk *const x[], int64_t index, qn_neon_stack *stack)
{
    for (int h = 0; h < 2; h++) {
        float32x4_t acc[COLS][PAIR];
#pragma GCC unroll 8
        for (int i = 0; i < cols * PAIR; i++) {
            acc[i / PAIR][i % PAIR] = vdupq_n_f32(0.0F);
        }
        for (int64_t b = 0; b < n; b++) {
            dot_block(how, w->w[b][h], w->s[b][h], x, cols, b, acc);
        }
#pragma GCC unroll 8
        for (int i = 0; i < cols * PAIR; i++) {
            qn__neon_join(stack[i / PAIR], index, PAIR * h + i % PAIR, acc[i / PAIR][i % PAIR]);
        }
    }
}

/* Functions for 1, 2 and 4 columns of a kind, and their row of the table. */
#define QN_WALK(how, cols)                                                                         \
    static void walk_##how##_##cols(const open_chunk *w, int64_t n, const qn_act_chunk *const x[], \
                                    int64_t index, qn_neon_stack *stack)                           \
    {                                                                                              \
        walk(how, cols, w, n, x, index, stack);                                                    \
    }
#define QN_WALKS(how) QN_WALK(how, 1) QN_WALK(how, 2) QN_WALK(how, 4)
QN_WALKS(KIND_OFFSET)
QN_WALKS(KIND_MINIMUM)
QN_WALKS(KIND_SUBS)
QN_WALKS(KIND_SUBS_MINIMUM)
QN_WALKS(KIND_SIGNED)

#define QN_WALK_ROW(how) [how] = {[1] = walk_##how##_1, [2] = walk_##how##_2, [4] = walk_##how##_4}
static const walk_fn walks[KIND_COUNT][COLS + 1] = {
    QN_WALK_ROW(KIND_OFFSET),       QN_WALK_ROW(KIND_MINIMUM), QN_WALK_ROW(KIND_SUBS),
    QN_WALK_ROW(KIND_SUBS_MINIMUM), QN_WALK_ROW(KIND_SIGNED),
};

/* The group at row `row` with columns first .. first + n_cols. */
static void mul_group(qn_type type, open_fn open, const qn_matmul_tile *t, int64_t row,
                      int64_t first, int64_t n_cols)
{
    const uint8_t *chunk = (const uint8_t *)t->weights +
                           (size_t)(row / QN_PACK_ROWS) * qn__pack_group_bytes(type, t->k);
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    qn_neon_stack *stack = t->scratch;
    open_chunk w;
    for (int64_t i = 0; i < n_chunks; i++) {
        const int64_t n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK);
        const qn_act_chunk *x[QN_NEON_COLS];
        open(chunk, n / QN_PACK_BLOCK, &w);
        for (int64_t c = 0; c < n_cols; c++) {
            x[c] =
                (const qn_act_chunk *)((const uint8_t *)t->x[first + c] + (size_t)i * t->x_stride);
        }
        for (int64_t c = 0, cols = COLS; c < n_cols; c += cols) {
            while (cols > n_cols - c) {
                cols /= 2;
            }
            walks[kind_of(type)][cols](&w, n / QN_PACK_BLOCK, x + c, i, stack + c);
        }
        chunk += qn__pack_chunk_bytes(type, n);
    }
    for (int64_t c = 0; c < n_cols; c++) {
        qn__neon_finish(stack[c], n_chunks, qn__min_i64(t->n_rows - row, QN_PACK_ROWS),
                        t->bias ? t->bias + row : NULL, t->y[first + c] + row);
    }
}

/* One or two columns -----------------------------------------------------------------------------
 */

/* The group at row `row`: every block is opened in registers, 8 rows at a time. */
QN_INLINE void mul_group_by_few(qn_type type, int cols, const qn_matmul_tile *t, int64_t row)
{
    const uint8_t *chunk = (const uint8_t *)t->weights +
                           (size_t)(row / QN_PACK_ROWS) * qn__pack_group_bytes(type, t->k);
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    qn_neon_stack stack[2];
    for (int64_t i = 0; i < n_chunks; i++) {
        const int64_t n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK);
        const qn_act_chunk *x[2];
        float32x4_t acc[2][COLS][PAIR];
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++) {
            x[c] = (const qn_act_chunk *)((const uint8_t *)t->x[c] + (size_t)i * t->x_stride);
            for (int r = 0; r < QN_NEON_REGS; r++) {
                acc[r / PAIR][c][r % PAIR] = vdupq_n_f32(0.0F);
            }
        }
        for (int64_t b = 0; b < n / QN_PACK_BLOCK; b++) {
            qn__fetch_ahead(type, chunk, b);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                int8x16_t w[QUADS][PAIR];
                scales s[PAIR];
                open_levels(type, chunk, b, h, w);
                open_scales(type, chunk, b, PAIR * h, &s[0]);
                open_scales(type, chunk, b, PAIR * h + 1, &s[1]);
                dot_block(kind_of(type), (const int8x16_t(*)[PAIR])w, s, x, cols, b, acc[h]);
            }
        }
        for (int c = 0; c < cols; c++) {
            for (int r = 0; r < QN_NEON_REGS; r++) {
                qn__neon_join(stack[c], i, r, acc[r / PAIR][c][r % PAIR]);
            }
        }
        chunk += qn__pack_chunk_bytes(type, n);
    }
    for (int c = 0; c < cols; c++) {
        qn__neon_finish(stack[c], n_chunks, qn__min_i64(t->n_rows - row, QN_PACK_ROWS),
                        t->bias ? t->bias + row : NULL, t->y[c] + row);
    }
}

QN_INLINE void mul(qn_type type, open_fn open, const qn_matmul_tile *t)
{
    for (int64_t row = 0; row < t->n_rows; row += QN_PACK_ROWS) {
        if (t->n_cols == 1) {
            mul_group_by_few(type, 1, t, row);
        } else if (t->n_cols == 2) {
            mul_group_by_few(type, 2, t, row);
        } else {
            for (int64_t c = 0; c < t->n_cols; c += QN_NEON_COLS) {
                mul_group(type, open, t, row, c, qn__min_i64(t->n_cols - c, QN_NEON_COLS));
            }
        }
    }
}

#define QN_MUL(name, type)                                                                         \
    static void open_##name(const uint8_t *chunk, int64_t n, open_chunk *out)                      \
    {                                                                                              \
        open_blocks(type, chunk, n, out);                                                          \
    }                                                                                              \
    void QN_NEON_MUL(name)(const qn_matmul_tile *t)                                                \
    {                                                                                              \
        mul(type, open_##name, t);                                                                 \
    }
QN_MATMUL_BLOCK_TYPES(QN_MUL)
