/*
 * matmul_blocks_avx512.c: block formats with quantized activations for AVX-512 with VNNI.
 *
 * 64 bytes are a quad (4 values) of the 16 rows of a group; dpbusd multiplies it, unsigned, with a
 * quad of the activations spread over all lanes and adds the four products of each row in 32 bits,
 * exactly. Levels are taken unsigned, signed bytes moved up by 128; what an offset takes off is put
 * in as the start of the sum (qn_act_chunk.half). Integer scales of 16 values are multiplied in as
 * floats: all these products and sums are integers below 2^24, so nothing is rounded.
 *
 * More than eight columns: a chunk is opened once, every level in a byte, and stays in the L1 cache
 * while the columns meet it, eight at a time (blocks.h). Up to eight: levels go from the packed
 * bytes to the product in registers.
 */
#include "device/cpu/avx512/matmul_avx512.h"
#include "device/cpu/blocks.h"

#include "quant/blocks.h"

enum { QUADS = 8, COLS = 8 };

/* How formats are multiplied once their levels are open. */
typedef enum kind {
    KIND_OFFSET,       /* sums start from `half` */
    KIND_MINIMUM,      /* sums start from zero, and a minimum */
    KIND_SUBS,         /* integer scales of 16 values, sums from `half` */
    KIND_SUBS_MINIMUM, /* integer scales and minima, sums from zero */
    KIND_COUNT
} kind;

QN_INLINE kind kind_of(qn_type type)
{
    switch (type) {
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
        return KIND_OFFSET;
    }
}

QN_INLINE bool has_minimum(kind how)
{
    return how == KIND_MINIMUM || how == KIND_SUBS_MINIMUM;
}

QN_INLINE bool has_subs(kind how)
{
    return how == KIND_SUBS || how == KIND_SUBS_MINIMUM;
}

/* The scales of one block. */
typedef struct scales {
    __m512 d, m;
    __m512 sub[2], minimum[2]; /* of sub-block 0, 1: integers; minima: Q2_K */
} scales;

/* Opening ----------------------------------------------------------------------------------------
 */

/* Bits x >> from (to the left where it is negative) under a mask in every byte. */
QN_INLINE __m512i bits_of(__m512i x, int from, int mask)
{
    const __m512i moved =
        from >= 0 ? _mm512_srli_epi32(x, (unsigned)from) : _mm512_slli_epi32(x, (unsigned)-from);
    return _mm512_and_si512(moved, _mm512_set1_epi8((char)mask));
}

QN_INLINE __m512i table_of(const int8_t *values, int add)
{
    const __m128i t = _mm_loadu_si128((const __m128i *)values);
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8((char)add)));
}

/* The 8 quads of block b as unsigned bytes. */
QN_INLINE void open_levels(qn_type type, const uint8_t *chunk, int64_t b, __m512i w[QUADS])
{
    const qn_pack_layout size = qn__pack_layout(type);
    const qn_pack_place at = qn__pack_place(type, b);
    const uint8_t *low = chunk + at.low, *high = chunk + at.high;
    const int bits = (int)size.low / 64, high_bits = (int)size.high / 64;
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++) {
        const __m512i v = _mm512_loadu_si512(low + 64 * (i % bits));
        w[i] = bits == 8 ? _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80))
                         : bits_of(v, i / bits * bits, (1 << bits) - 1);
    }
    if (high_bits != 0) {
#pragma GCC unroll 8
        for (int i = 0; i < QUADS; i++) {
            const __m512i v = _mm512_loadu_si512(high + 64 * (i % high_bits));
            w[i] = _mm512_or_si512(
                w[i], bits_of(v, i / high_bits * high_bits - bits, ((1 << high_bits) - 1) << bits));
        }
    }
    if (type == QN_TYPE_IQ4_NL || type == QN_TYPE_IQ4_XS || type == QN_TYPE_MXFP4) {
        const __m512i table =
            type == QN_TYPE_MXFP4 ? table_of(qn__e2m1_values, 12) : table_of(qn__iq4_values, 128);
#pragma GCC unroll 8
        for (int i = 0; i < QUADS; i++) {
            w[i] = _mm512_shuffle_epi8(table, w[i]);
        }
    }
}

QN_INLINE __m512 halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

QN_INLINE __m512i bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

QN_INLINE __m512 signed_bytes_to_floats(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

QN_INLINE __m512 minus(__m512 x)
{
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0x80000000U)));
}

/* Halves of E8M0: 2^(e - 128), subnormal for e < 2. */
QN_INLINE __m512 e8m0(const uint8_t *p)
{
    const __m512i e = bytes(p);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_small = _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(2), e);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small));
}

QN_INLINE void open_scales(qn_type type, const uint8_t *chunk, int64_t b, scales *s)
{
    const qn_pack_place at = qn__pack_place(type, b);
    const uint8_t *sub = chunk + at.sub, *scale = chunk + at.scale;
    const uint8_t *d = qn__pack_layout(type).super != 0 ? chunk : scale;
    if (type == QN_TYPE_MXFP4) {
        s->d = e8m0(scale);
        return;
    }
    s->d = halves(d);
    if (type == QN_TYPE_Q4_1 || type == QN_TYPE_Q5_1) {
        s->m = halves(d + 32);
    } else if (type == QN_TYPE_Q4_K || type == QN_TYPE_Q5_K) {
        s->d = _mm512_mul_ps(s->d, _mm512_cvtepi32_ps(bytes(sub)));
        s->m = _mm512_mul_ps(minus(halves(d + 32)), _mm512_cvtepi32_ps(bytes(sub + 16)));
    } else if (type == QN_TYPE_IQ4_XS) {
        s->d = _mm512_mul_ps(s->d, signed_bytes_to_floats(sub));
    } else if (type == QN_TYPE_Q2_K) {
        s->m = minus(halves(d + 32));
        for (int h = 0; h < 2; h++) {
            const __m512i x = bytes(sub + 16 * h);
            s->sub[h] = _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32(15)));
            s->minimum[h] = _mm512_cvtepi32_ps(_mm512_srli_epi32(x, 4));
        }
    } else if (type == QN_TYPE_Q3_K || type == QN_TYPE_Q6_K) {
        s->sub[0] = signed_bytes_to_floats(sub);
        s->sub[1] = signed_bytes_to_floats(sub + 16);
    }
}

/* Products ---------------------------------------------------------------------------------------
 */

/* Quads `first` .. first + n of block b of `cols` columns. */
QN_INLINE void add_quads(const __m512i w[QUADS], const qn_act_chunk *const x[], int cols, int64_t b,
                         int first, int n, __m512i sum[COLS])
{
#pragma GCC unroll 8
    for (int i = first; i < first + n; i++) {
#pragma GCC unroll 8
        for (int c = 0; c < cols; c++) {
            int32_t quad;
            memcpy(&quad, x[c]->q[b] + 4 * i, sizeof quad);
            sum[c] = _mm512_dpbusd_epi32(sum[c], w[i], _mm512_set1_epi32(quad));
        }
    }
}

QN_INLINE __m512i start(kind how, const qn_act_chunk *x, int64_t b, int h)
{
    return how == KIND_OFFSET || how == KIND_SUBS ? _mm512_set1_epi32(x->half[b][h])
                                                  : _mm512_setzero_si512();
}

/* Q2_K: minimum0 * sum0 + minimum1 * sum1 */
QN_INLINE __m512 minima(const scales *s, const qn_act_chunk *x, int64_t b)
{
    const __m512 first = _mm512_mul_ps(s->minimum[0], _mm512_set1_ps((float)x->half[b][0]));
    return _mm512_fmadd_ps(s->minimum[1], _mm512_set1_ps((float)x->half[b][1]), first);
}

QN_INLINE void dot_block(kind how, const __m512i w[QUADS], const scales *s,
                         const qn_act_chunk *const x[], int cols, int64_t b, __m512 acc[COLS])
{
    const bool subs = has_subs(how);
    __m512i sum[COLS];
    __m512 isum[COLS];
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        sum[c] = start(how, x[c], b, 0);
    }
    add_quads(w, x, cols, b, 0, 4, sum);
    if (subs) {
#pragma GCC unroll 8
        for (int c = 0; c < cols; c++) {
            isum[c] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[c]), s->sub[0]);
            sum[c] = start(how, x[c], b, 1);
        }
    }
    add_quads(w, x, cols, b, 4, 4, sum);
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        const __m512 dx = _mm512_set1_ps(x[c]->d[b]), last = _mm512_cvtepi32_ps(sum[c]);
        isum[c] = subs ? _mm512_fmadd_ps(last, s->sub[1], isum[c]) : last;
        acc[c] = _mm512_fmadd_ps(isum[c], _mm512_mul_ps(s->d, dx), acc[c]);
        if (how == KIND_MINIMUM) {
            acc[c] = _mm512_fmadd_ps(s->m, _mm512_set1_ps(x[c]->s[b]), acc[c]);
        } else if (how == KIND_SUBS_MINIMUM) {
            acc[c] = _mm512_fmadd_ps(minima(s, x[c], b), _mm512_mul_ps(s->m, dx), acc[c]);
        }
    }
}

/* Several columns --------------------------------------------------------------------------------
 */

/* The parts of the scales that a kind has no use for are never touched. */
typedef struct open_chunk {
    __m512i w[8][QUADS];
    __m512 d[8], m[8];
    __m512 sub[8][2], minimum[8][2];
} open_chunk;

_Static_assert(sizeof(open_chunk) <= QN_BLOCKS_OPEN_BYTES, "an open chunk");

QN_INLINE void open_blocks(qn_type type, const uint8_t *chunk, int64_t n, open_chunk *out)
{
    const kind how = kind_of(type);
    for (int64_t b = 0; b < n; b++) {
        scales s;
        open_levels(type, chunk, b, out->w[b]);
        open_scales(type, chunk, b, &s);
        out->d[b] = s.d;
        if (has_minimum(how)) {
            out->m[b] = s.m;
        }
        if (has_subs(how)) {
            out->sub[b][0] = s.sub[0];
            out->sub[b][1] = s.sub[1];
        }
        if (how == KIND_SUBS_MINIMUM) {
            out->minimum[b][0] = s.minimum[0];
            out->minimum[b][1] = s.minimum[1];
        }
    }
}

/* `cols` columns from `first` on; they ask for weights from *fetch on. */
QN_INLINE void walk(kind how, int cols, const qn_blocks_chunk *chunk, const qn_act_chunk *const x[],
                    int64_t first, float *stack, const uint8_t **fetch)
{
    const open_chunk *w = chunk->open;
    __m512 acc[COLS];
    x += first;
    stack += first * QN_PACK_ROWS;
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        acc[c] = _mm512_setzero_ps();
    }
    for (int64_t b = 0; b < chunk->n_blocks; b++) {
        scales s;
        qn__blocks_fetch(chunk, fetch);
        s.d = w->d[b];
        if (has_minimum(how)) {
            s.m = w->m[b];
        }
        if (has_subs(how)) {
            s.sub[0] = w->sub[b][0];
            s.sub[1] = w->sub[b][1];
        }
        if (how == KIND_SUBS_MINIMUM) {
            s.minimum[0] = w->minimum[b][0];
            s.minimum[1] = w->minimum[b][1];
        }
        dot_block(how, w->w[b], &s, x, cols, b, acc);
    }
    const int count = qn__join_count(chunk->index);
#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        float *at = stack + c * QN_PACK_ROWS;
        for (int level = 0; level < count; level++, at += chunk->level) {
            acc[c] = _mm512_add_ps(_mm512_loadu_ps(at), acc[c]);
        }
        _mm512_storeu_ps(at, acc[c]);
    }
}

/* A function for every kind, and the row of its table. */
#define QN_RESTS                                                                                   \
    QN_BLOCKS_REST(1)                                                                              \
    QN_BLOCKS_REST(2)                                                                              \
    QN_BLOCKS_REST(3)                                                                              \
    QN_BLOCKS_REST(4)                                                                              \
    QN_BLOCKS_REST(5)                                                                              \
    QN_BLOCKS_REST(6)                                                                              \
    QN_BLOCKS_REST(7)
#define QN_WALK(how) QN_BLOCKS_WALK(how, COLS, QN_RESTS)
QN_WALK(KIND_OFFSET)
QN_WALK(KIND_MINIMUM)
QN_WALK(KIND_SUBS)
QN_WALK(KIND_SUBS_MINIMUM)

#define QN_WALK_ROW(how) [how] = walk_##how
static const qn_blocks_walk_fn walks[KIND_COUNT] = {
    QN_WALK_ROW(KIND_OFFSET),
    QN_WALK_ROW(KIND_MINIMUM),
    QN_WALK_ROW(KIND_SUBS),
    QN_WALK_ROW(KIND_SUBS_MINIMUM),
};

/* Few columns ------------------------------------------------------------------------------------
 */

/* The group at row `row` with t->n_cols columns, of up to `cols`: the last one is taken again where
 * there are fewer. Every block is opened in registers. */
QN_INLINE void mul_group_by_few(qn_type type, int cols, const qn_matmul_tile *t, int64_t row)
{
    const uint8_t *chunk = (const uint8_t *)t->weights +
                           (size_t)(row / QN_PACK_ROWS) * qn__pack_group_bytes(type, t->k);
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    qn_avx512_stack stack[COLS];
    for (int64_t i = 0; i < n_chunks; i++) {
        const int64_t n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK);
        const qn_act_chunk *x[COLS];
        __m512 acc[COLS];
#pragma GCC unroll 8
        for (int c = 0; c < cols; c++) {
            const void *column = t->x[qn__min_i64(c, t->n_cols - 1)];
            x[c] = (const qn_act_chunk *)((const uint8_t *)column + (size_t)i * t->x_stride);
            acc[c] = _mm512_setzero_ps();
        }
        for (int64_t b = 0; b < n / QN_PACK_BLOCK; b++) {
            __m512i w[QUADS];
            scales s;
            qn__fetch_ahead(type, chunk, b);
            open_levels(type, chunk, b, w);
            open_scales(type, chunk, b, &s);
            dot_block(kind_of(type), w, &s, x, cols, b, acc);
        }
#pragma GCC unroll 8
        for (int c = 0; c < cols; c++) {
            qn__avx512_join(stack[c], i, acc[c]);
        }
        chunk += qn__pack_chunk_bytes(type, n);
    }
    for (int64_t c = 0; c < t->n_cols; c++) {
        qn__avx512_finish(stack[c], n_chunks, qn__min_i64(t->n_rows - row, QN_PACK_ROWS),
                          t->bias ? t->bias + row : NULL, t->y[c] + row);
    }
}

QN_INLINE void mul(qn_type type, const qn_blocks_kernel *kernel, const qn_matmul_tile *t)
{
    if (t->n_cols > COLS) {
        qn__blocks_mul(kernel, t);
        return;
    }
    for (int64_t row = 0; row < t->n_rows; row += QN_PACK_ROWS) {
        if (t->n_cols == 1) {
            mul_group_by_few(type, 1, t, row);
        } else if (t->n_cols == 2) {
            mul_group_by_few(type, 2, t, row);
        } else if (t->n_cols <= 4) {
            mul_group_by_few(type, 4, t, row);
        } else if (t->n_cols <= 6) {
            mul_group_by_few(type, 6, t, row);
        } else {
            mul_group_by_few(type, 8, t, row);
        }
    }
}

#define QN_MUL(name, weights)                                                                      \
    static void open_##name(const uint8_t *chunk, int64_t n, void *open)                           \
    {                                                                                              \
        open_blocks(weights, chunk, n, open);                                                      \
    }                                                                                              \
    void qn__avx512_mul_##name(const qn_matmul_tile *t)                                            \
    {                                                                                              \
        const qn_blocks_kernel kernel = {.type = weights,                                          \
                                         .open = open_##name,                                      \
                                         .widest = COLS,                                           \
                                         .walk = walks[kind_of(weights)]};                         \
        mul(weights, &kernel, t);                                                                  \
    }
QN_MATMUL_BLOCK_TYPES(QN_MUL)
