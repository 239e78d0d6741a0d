/*
 * matmul_blocks_avx2.c: block formats with quantized activations for AVX2 (no VNNI).
 *
 * 32 bytes are a quad (4 values) of 8 rows; a quad of the activations is spread over all lanes, and
 * maddubs gives for each row two 16-bit sums of two products. Levels of up to 5 bits are taken as
 * they are stored, unsigned, and may be added up in 16 bits over a block: what the offset of the
 * levels takes off is put in as the start of the sum (qn_act_chunk.pair), so that the end fits 16
 * bits whatever happens in between (sums modulo 2^16). Only then come 32 bits, one conversion and
 * one fma. Signed bytes take their sign over to the activations.
 *
 * Several columns: a chunk is opened once, every level in a byte, and stays in the L1 cache while
 * the columns meet it, four at a time (blocks.h). Few columns: levels go from the packed bytes to
 * the products in registers.
 */
#include "device/cpu/avx2/matmul_avx2.h"
#include "device/cpu/blocks.h"

#include "quant/blocks.h"

enum { QUADS = 8, COLS = 4 };

/* How formats are multiplied once their levels are open. */
typedef enum kind {
    KIND_OFFSET,       /* 16-bit sums over the 8 quads of a block, from `pair` */
    KIND_MINIMUM,      /* the same from zero, and a minimum */
    KIND_MINIMUM_5,    /* 5-bit levels without offset: 16-bit sums over 4 quads, twice */
    KIND_SUBS,         /* integer scales of 16 values: the same from `pair` */
    KIND_SUBS_MINIMUM, /* and integer minima */
    KIND_SIGNED,       /* signed bytes: 32-bit sums */
    KIND_COUNT
} kind;

QN_INLINE kind kind_of(qn_type type)
{
    switch (type) {
    case QN_TYPE_Q4_0:
    case QN_TYPE_Q5_0:
    case QN_TYPE_MXFP4:
        return KIND_OFFSET;
    case QN_TYPE_Q4_1:
    case QN_TYPE_Q4_K:
        return KIND_MINIMUM;
    case QN_TYPE_Q5_1:
    case QN_TYPE_Q5_K:
        return KIND_MINIMUM_5;
    case QN_TYPE_Q3_K:
    case QN_TYPE_Q6_K:
        return KIND_SUBS;
    case QN_TYPE_Q2_K:
        return KIND_SUBS_MINIMUM;
    default:
        return KIND_SIGNED;
    }
}

QN_INLINE bool has_minimum(kind how)
{
    return how == KIND_MINIMUM || how == KIND_MINIMUM_5 || how == KIND_SUBS_MINIMUM;
}

QN_INLINE bool has_subs(kind how)
{
    return how == KIND_SUBS || how == KIND_SUBS_MINIMUM;
}

/* The scales of one block, 8 rows. */
typedef struct scales {
    __m256 d, m;
    __m256i sub[2];  /* KIND_SUBS…: 16-bit pairs (scale, scale) of sub-block 0, 1 */
    __m256i minimum; /* Q2_K: 16-bit pairs (minimum 0, minimum 1) */
} scales;

QN_INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Opening ----------------------------------------------------------------------------------------
 */

/* Bits x >> from (to the left where it is negative) under a mask in every byte. */
QN_INLINE __m256i bits_of(__m256i x, int from, int mask)
{
    const __m256i moved = from >= 0 ? _mm256_srli_epi16(x, from) : _mm256_slli_epi16(x, -from);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

QN_INLINE __m256i table_of(const int8_t *values, int add)
{
    __m128i t = _mm_loadu_si128((const __m128i *)values);
    return _mm256_broadcastsi128_si256(_mm_add_epi8(t, _mm_set1_epi8((char)add)));
}

/* The 8 quads of block b, rows 8 half .. 8 half + 7, as the chain of the format takes them. */
QN_INLINE void open_levels(qn_type type, const uint8_t *chunk, int64_t b, int half,
                           __m256i w[QUADS])
{
    const qn_pack_layout size = qn__pack_layout(type);
    const qn_pack_place at = qn__pack_place(type, b);
    const uint8_t *low = chunk + at.low + 32 * half;
    const uint8_t *high = chunk + at.high + 32 * half;
    const int bits = (int)size.low / 64, high_bits = (int)size.high / 64;
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) {
        const __m256i v = load(low + 64 * (i % bits));
        w[i] = bits == 8 ? v : bits_of(v, i / bits * bits, (1 << bits) - 1);
    }
    if (high_bits != 0) {
#pragma GCC unroll 8
        for (int i = 0; i < QUADS; i++) {
            const __m256i v = load(high + 64 * (i % high_bits));
            w[i] = _mm256_or_si256(
                w[i], bits_of(v, i / high_bits * high_bits - bits, ((1 << high_bits) - 1) << bits));
        }
    }
    if (type == QN_TYPE_IQ4_NL || type == QN_TYPE_IQ4_XS || type == QN_TYPE_MXFP4) {
        const __m256i table =
            type == QN_TYPE_MXFP4 ? table_of(qn__e2m1_values, 12) : table_of(qn__iq4_values, 0);
#pragma GCC unroll 8
        for (int i = 0; i < QUADS; i++) {
            w[i] = _mm256_shuffle_epi8(table, w[i]);
        }
    }
}

QN_INLINE __m256 halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

QN_INLINE __m256 bytes_to_floats(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* 8 bytes in 32-bit lanes to pairs of equal 16-bit numbers (0 <= x < 2^16). */
QN_INLINE __m256i twice(__m256i x)
{
    return _mm256_or_si256(x, _mm256_slli_epi32(x, 16));
}

/* Halves of E8M0: 2^(e - 128), subnormal for e < 2. */
QN_INLINE __m256 e8m0(const uint8_t *p)
{
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/* Scales of block b, rows 8 half .. 8 half + 7. */
QN_INLINE void open_scales(qn_type type, const uint8_t *chunk, int64_t b, int half, scales *s)
{
    const qn_pack_place at = qn__pack_place(type, b);
    const uint8_t *sub = chunk + at.sub + 8 * half, *scale = chunk + at.scale;
    const uint8_t *d = (qn__pack_layout(type).super != 0 ? chunk : scale) + 16 * half;
    if (type == QN_TYPE_MXFP4) {
        s->d = e8m0(scale + 8 * half);
        return;
    }
    s->d = halves(d);
    if (type == QN_TYPE_Q4_1 || type == QN_TYPE_Q5_1) {
        s->m = halves(d + 32);
    } else if (type == QN_TYPE_Q4_K || type == QN_TYPE_Q5_K) {
        const __m256 minus = _mm256_xor_ps(halves(d + 32), _mm256_set1_ps(-0.0F));
        s->d = _mm256_mul_ps(s->d, bytes_to_floats(sub));
        s->m = _mm256_mul_ps(minus, bytes_to_floats(sub + 16));
    } else if (type == QN_TYPE_IQ4_XS) {
        const __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)sub));
        s->d = _mm256_mul_ps(s->d, _mm256_cvtepi32_ps(x));
    } else if (type == QN_TYPE_Q2_K) {
        const __m256i s0 = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)sub));
        const __m256i s1 = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(sub + 16)));
        const __m256i mask = _mm256_set1_epi32(15);
        s->m = _mm256_xor_ps(halves(d + 32), _mm256_set1_ps(-0.0F));
        s->sub[0] = twice(_mm256_and_si256(s0, mask));
        s->sub[1] = twice(_mm256_and_si256(s1, mask));
        s->minimum = _mm256_or_si256(_mm256_srli_epi32(s0, 4),
                                     _mm256_slli_epi32(_mm256_srli_epi32(s1, 4), 16));
    } else if (type == QN_TYPE_Q3_K || type == QN_TYPE_Q6_K) {
        for (int i = 0; i < 2; i++) {
            const __m128i x = _mm_loadl_epi64((const __m128i *)(sub + 16 * i));
            const __m128i x16 = _mm_cvtepi8_epi16(x);
            s->sub[i] =
                _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(x16, x16)),
                                        _mm_unpackhi_epi16(x16, x16), 1);
        }
    }
}

/* Products ---------------------------------------------------------------------------------------
 */

/* 32 bits of the activations in every lane. */
QN_INLINE __m256i spread(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

/* Where 16-bit sums of sub-block h of block b start. */
QN_INLINE __m256i start(kind how, const qn_act_chunk *x, int64_t b, int h)
{
    return how == KIND_OFFSET || how == KIND_SUBS ? spread(x->pair[b][h]) : _mm256_setzero_si256();
}

/* The sum of a block is there: scales, minimum, accumulator. */
QN_INLINE __m256 take(kind how, const scales *s, const qn_act_chunk *x, int64_t b, __m256i isum,
                      __m256 acc)
{
    const __m256 dx = _mm256_broadcast_ss(&x->d[b]);
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), _mm256_mul_ps(s->d, dx), acc);
    if (how == KIND_MINIMUM || how == KIND_MINIMUM_5) {
        acc = _mm256_fmadd_ps(s->m, _mm256_broadcast_ss(&x->s[b]), acc);
    } else if (how == KIND_SUBS_MINIMUM) {
        /* half[b] holds the plain sums of the two sub-blocks; they fit 16 bits. */
        const uint32_t pair = ((uint32_t)x->half[b][0] & 0xffffU) | (uint32_t)x->half[b][1] << 16;
        const __m256i sums = _mm256_set1_epi32((int32_t)pair);
        const __m256 jsum = _mm256_cvtepi32_ps(_mm256_madd_epi16(s->minimum, sums));
        acc = _mm256_fmadd_ps(jsum, _mm256_mul_ps(s->m, dx), acc);
    }
    return acc;
}

/* Four quads from `first` on of `cols` columns and the given halves of 16 rows, in 16 bits. */
QN_INLINE void add_quads(const __m256i w[][2], int halves_n, const qn_act_chunk *const x[],
                         int cols, int64_t b, int first, __m256i sum[][2])
{
#pragma GCC unroll 4
    for (int i = first; i < first + 4; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            const __m256i q = spread(x[c]->q[b] + 4 * i);
#pragma GCC unroll 2
            for (int h = 0; h < halves_n; h++) {
                sum[c][h] = _mm256_add_epi16(sum[c][h], _mm256_maddubs_epi16(w[i][h], q));
                QN_IN_REGISTER(sum[c][h]);
            }
        }
    }
}

/* Signed bytes: all eight quads of 8 rows, in 32 bits. |w| may be 128, which maddubs takes as
 * unsigned; two products of at most 128 * 127 fit 16 bits. For few columns; dot_signed is for many.
 */
QN_INLINE void add_signed(const __m256i w[][2], const qn_act_chunk *const x[], int cols, int64_t b,
                          __m256i sum[][2])
{
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) {
        const __m256i size = _mm256_abs_epi8(w[i][0]);
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            const __m256i q = spread(x[c]->q[b] + 4 * i);
            const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(q, w[i][0]));
            sum[c][0] = _mm256_add_epi32(sum[c][0], _mm256_madd_epi16(pairs, ones));
            QN_IN_REGISTER(sum[c][0]);
        }
    }
}

/* Block b of 8 or 16 rows (halves_n; signed bytes: 8) with `cols` columns. w[quad][half], s[half].
 */
QN_INLINE void dot_block(kind how, const __m256i w[][2], const scales *s, int halves_n,
                         const qn_act_chunk *const x[], int cols, int64_t b, __m256 acc[][2])
{
    const bool subs = has_subs(how);
    const bool twice_four = subs || how == KIND_MINIMUM_5;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[COLS][2], total[COLS][2];
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
#pragma GCC unroll 2
        for (int h = 0; h < halves_n; h++) {
            sum[c][h] = start(how, x[c], b, 0);
        }
    }
    if (how == KIND_SIGNED) {
        add_signed(w, x, cols, b, sum);
    } else {
        add_quads(w, halves_n, x, cols, b, 0, sum);
    }
#pragma GCC unroll 4
    for (int c = 0; twice_four && c < cols; c++) {
#pragma GCC unroll 2
        for (int h = 0; h < halves_n; h++) {
            total[c][h] = _mm256_madd_epi16(sum[c][h], subs ? s[h].sub[0] : ones);
            sum[c][h] = start(how, x[c], b, 1);
        }
    }
    if (how != KIND_SIGNED) {
        add_quads(w, halves_n, x, cols, b, 4, sum);
    }
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
#pragma GCC unroll 2
        for (int h = 0; h < halves_n; h++) {
            __m256i isum = sum[c][h];
            if (how != KIND_SIGNED) {
                isum = _mm256_madd_epi16(isum, subs ? s[h].sub[1] : ones);
            }
            if (twice_four) {
                isum = _mm256_add_epi32(total[c][h], isum);
            }
            acc[c][h] = take(how, &s[h], x[c], b, isum, acc[c][h]);
        }
    }
}

/* Several columns --------------------------------------------------------------------------------
 */

/* The parts that a kind has no use for are never touched. */
typedef struct open_chunk {
    __m256i w[8][QUADS][2]; /* KIND_SIGNED: the magnitudes … */
    __m256 d[8][2], m[8][2];
    union {
        struct {
            __m256i sub[8][2][2], minimum[8][2];
        };
        __m256i pick[8][QUADS][2]; /* … and where each finds its activation (signed_acts) */
    };
} open_chunk;

_Static_assert(sizeof(open_chunk) <= QN_BLOCKS_OPEN_BYTES, "an open chunk");

/* The place of each level's activation in a quad and its negative: 0 .. 3, or 4 .. 7 of a level
 * below zero. */
QN_INLINE __m256i pick_of(__m256i w)
{
    const __m256i below = _mm256_and_si256(_mm256_srli_epi16(w, 5), _mm256_set1_epi8(4));
    return _mm256_or_si256(below, _mm256_set1_epi32(0x03020100));
}

QN_INLINE void open_blocks(qn_type type, const uint8_t *chunk, int64_t n, open_chunk *out)
{
    const kind how = kind_of(type);
    for (int64_t b = 0; b < n; b++) {
        for (int h = 0; h < 2; h++) {
            __m256i w[QUADS];
            scales s;
            open_levels(type, chunk, b, h, w);
            for (int i = 0; i < QUADS; i++) {
                out->w[b][i][h] = how == KIND_SIGNED ? _mm256_abs_epi8(w[i]) : w[i];
                if (how == KIND_SIGNED) {
                    out->pick[b][i][h] = pick_of(w[i]);
                }
            }
            open_scales(type, chunk, b, h, &s);
            out->d[b][h] = s.d;
            if (has_minimum(how)) {
                out->m[b][h] = s.m;
            }
            if (has_subs(how)) {
                out->sub[b][h][0] = s.sub[0];
                out->sub[b][h][1] = s.sub[1];
            }
            if (how == KIND_SUBS_MINIMUM) {
                out->minimum[b][h] = s.minimum;
            }
        }
    }
}

/* A column's activations with their negatives, [block][quad][sign][4], the quads of a block in the
 * order 0 1 4 5 2 3 6 7. */
typedef int8_t signed_acts[8][QUADS][2][4];

_Static_assert(sizeof(signed_acts) == QN_BLOCKS_ACT_BYTES, "prepared activations");

static void prepare_signed(const qn_act_chunk *x, int64_t n_blocks, void *out)
{
    signed_acts *acts = out;
    for (int64_t b = 0; b < n_blocks; b++) {
        const __m256i q = load((const uint8_t *)x->q[b]);
        const __m256i minus = _mm256_sub_epi8(_mm256_setzero_si256(), q);
        __m256i *to = (__m256i *)(*acts)[b];
        _mm256_store_si256(to, _mm256_unpacklo_epi32(q, minus));
        _mm256_store_si256(to + 1, _mm256_unpackhi_epi32(q, minus));
    }
}

/* Block b of 16 rows of signed bytes, as dot_block. A shuffle picks for each magnitude its
 * activation with the sign of the level: unlike `sign` it keeps off the multipliers' pipes. */
QN_INLINE void dot_signed(const open_chunk *w, const scales *s, const signed_acts *acts,
                          const qn_act_chunk *const x[], int cols, int64_t b, __m256 acc[][2])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[COLS][2];
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        sum[c][0] = sum[c][1] = _mm256_setzero_si256();
        __builtin_prefetch(acts[cols + c][b]); /* the columns of the next walk */
    }
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) {
        const int at = (i & 1) | (i & 4) >> 1 | (i & 2) << 1;
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            int64_t both;
            memcpy(&both, acts[c][b][at], sizeof both);
            const __m256i q = _mm256_set1_epi64x(both);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m256i picked = _mm256_shuffle_epi8(q, w->pick[b][i][h]);
                const __m256i pairs = _mm256_maddubs_epi16(w->w[b][i][h], picked);
                sum[c][h] = _mm256_add_epi32(sum[c][h], _mm256_madd_epi16(pairs, ones));
                QN_IN_REGISTER(sum[c][h]);
            }
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        acc[c][0] = take(KIND_SIGNED, &s[0], x[c], b, sum[c][0], acc[c][0]);
        acc[c][1] = take(KIND_SIGNED, &s[1], x[c], b, sum[c][1], acc[c][1]);
    }
}

/* `cols` columns from `first` on; they ask for weights from *fetch on. */
QN_INLINE void walk(kind how, int cols, const qn_blocks_chunk *chunk, const qn_act_chunk *const x[],
                    int64_t first, float *stack, const uint8_t **fetch)
{
    const open_chunk *w = chunk->open;
    __m256 acc[COLS][2];
    x += first;
    stack += first * QN_PACK_ROWS;
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        acc[c][0] = acc[c][1] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < chunk->n_blocks; b++) {
        scales s[2];
        qn__blocks_fetch(chunk, fetch);
        /* the columns of the next walk, which mostly lie behind these */
#pragma GCC unroll 4
        for (int c = 0; how != KIND_SIGNED && c < cols; c++) {
            __builtin_prefetch((const uint8_t *)(x[c] + cols) + 64 * b);
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            s[h].d = w->d[b][h];
            if (has_minimum(how)) {
                s[h].m = w->m[b][h];
            }
            if (has_subs(how)) {
                s[h].sub[0] = w->sub[b][h][0];
                s[h].sub[1] = w->sub[b][h][1];
            }
            if (how == KIND_SUBS_MINIMUM) {
                s[h].minimum = w->minimum[b][h];
            }
        }
        if (how == KIND_SIGNED) {
            dot_signed(w, s, (const signed_acts *)chunk->acts + first, x, cols, b, acc);
        } else {
            dot_block(how, (const __m256i(*)[2])w->w[b], s, 2, x, cols, b, acc);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        qn__avx2_join(stack + c * QN_PACK_ROWS, chunk->level, chunk->index, acc[c][0], acc[c][1]);
    }
}

/* A function for every kind, and the row of its table. */
#define QN_RESTS     QN_BLOCKS_REST(1) QN_BLOCKS_REST(2) QN_BLOCKS_REST(3)
#define QN_WALK(how) QN_BLOCKS_WALK(how, COLS, QN_RESTS)
QN_WALK(KIND_OFFSET)
QN_WALK(KIND_MINIMUM)
QN_WALK(KIND_MINIMUM_5)
QN_WALK(KIND_SUBS)
QN_WALK(KIND_SUBS_MINIMUM)
QN_WALK(KIND_SIGNED)

#define QN_WALK_ROW(how) [how] = walk_##how
static const qn_blocks_walk_fn walks[KIND_COUNT] = {
    QN_WALK_ROW(KIND_OFFSET), QN_WALK_ROW(KIND_MINIMUM),      QN_WALK_ROW(KIND_MINIMUM_5),
    QN_WALK_ROW(KIND_SUBS),   QN_WALK_ROW(KIND_SUBS_MINIMUM), QN_WALK_ROW(KIND_SIGNED),
};

/* Few columns ------------------------------------------------------------------------------------
 */

/* Columns up to which opening every block in registers is faster; high bits and scales in E8M0 make
 * that longer. */
QN_INLINE int few_of(qn_type type)
{
    return qn__pack_layout(type).high != 0 || type == QN_TYPE_MXFP4 ? 3 : 4;
}

/* The group at row `row` with up to COLS columns: every block is opened in registers, 8 rows
 * at a time. */
QN_INLINE void mul_group_by_few(qn_type type, int cols, const qn_matmul_tile *t, int64_t row)
{
    const uint8_t *chunk = (const uint8_t *)t->weights +
                           (size_t)(row / QN_PACK_ROWS) * qn__pack_group_bytes(type, t->k);
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    float stack[COLS][QN_JOIN_LEVELS][QN_PACK_ROWS];
    for (int64_t i = 0; i < n_chunks; i++) {
        const int64_t n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK);
        const qn_act_chunk *x[COLS];
        __m256 acc[2][COLS];
        for (int c = 0; c < cols; c++) {
            x[c] = (const qn_act_chunk *)((const uint8_t *)t->x[c] + (size_t)i * t->x_stride);
            acc[0][c] = acc[1][c] = _mm256_setzero_ps();
        }
        for (int64_t b = 0; b < n / QN_PACK_BLOCK; b++) {
            qn__fetch_ahead(type, chunk, b);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i levels[QUADS], w[QUADS][2];
                __m256 sum[COLS][2]; /* of the last, only the first is used */
                scales s;
                if (cols > 1) { /* mixed, the halves would want more registers than there are */
                    __asm__ volatile("" ::: "memory");
                }
                open_levels(type, chunk, b, h, levels);
                for (int q = 0; q < QUADS; q++) {
                    w[q][0] = levels[q];
                }
                open_scales(type, chunk, b, h, &s);
                for (int c = 0; c < cols; c++) {
                    sum[c][0] = acc[h][c];
                }
                dot_block(kind_of(type), (const __m256i(*)[2])w, &s, 1, x, cols, b, sum);
                for (int c = 0; c < cols; c++) {
                    acc[h][c] = sum[c][0];
                }
            }
        }
        for (int c = 0; c < cols; c++) {
            qn__avx2_join(stack[c][0], QN_PACK_ROWS, i, acc[0][c], acc[1][c]);
        }
        chunk += qn__pack_chunk_bytes(type, n);
    }
    for (int c = 0; c < cols; c++) {
        qn__avx2_finish(stack[c][0], QN_PACK_ROWS, n_chunks,
                        qn__min_i64(t->n_rows - row, QN_PACK_ROWS), t->bias ? t->bias + row : NULL,
                        t->y[c] + row);
    }
}

typedef void (*few_fn)(const qn_matmul_tile *t, int64_t row);

/* few: by the number of columns, up to n_few. */
static void mul(const qn_blocks_kernel *kernel, const few_fn *few, int64_t n_few,
                const qn_matmul_tile *t)
{
    if (t->n_cols > n_few) {
        qn__blocks_mul(kernel, t);
        return;
    }
    for (int64_t row = 0; row < t->n_rows; row += QN_PACK_ROWS) {
        few[t->n_cols](t, row);
    }
}

#define QN_FEW(name, weights, cols)                                                                \
    static void few_##name##_##cols(const qn_matmul_tile *t, int64_t row)                          \
    {                                                                                              \
        mul_group_by_few(weights, cols, t, row);                                                   \
    }
#define QN_MUL(name, weights)                                                                      \
    QN_FEW(name, weights, 1)                                                                       \
    QN_FEW(name, weights, 2)                                                                       \
    QN_FEW(name, weights, 3)                                                                       \
    QN_FEW(name, weights, 4)                                                                       \
    static void open_##name(const uint8_t *chunk, int64_t n, void *open)                           \
    {                                                                                              \
        open_blocks(weights, chunk, n, open);                                                      \
    }                                                                                              \
    void qn__avx2_mul_##name(const qn_matmul_tile *t)                                              \
    {                                                                                              \
        static const few_fn few[COLS + 1] = {NULL, few_##name##_1, few_##name##_2, few_##name##_3, \
                                             few_##name##_4};                                      \
        const qn_blocks_kernel kernel = {                                                          \
            .type = weights,                                                                       \
            .open = open_##name,                                                                   \
            .prepare = kind_of(weights) == KIND_SIGNED ? prepare_signed : NULL,                    \
            .widest = COLS,                                                                        \
            .walk = walks[kind_of(weights)]};                                                      \
        mul(&kernel, few, few_of(weights), t);                                                     \
    }
QN_MATMUL_BLOCK_TYPES(QN_MUL)
