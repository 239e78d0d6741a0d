/*
 * vector_attend.h: the functions of scalar/attend.c on sixteen lanes at once, for the instruction
 * set of the file that includes this (see vector.h). A lane is a position (scores, soft-max) or an
 * element of V (weighted sums): always an output, so every lane adds in the order of the
 * definition.
 */
#include <math.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "device/cpu/attend.h"
#include "device/cpu/vector.h"

#define LANES  QN_KV_BLOCK
#define ALWAYS QN_VECTOR_INLINE

/* From here up, e^x is a normal number, and its exponent can be put where it belongs. */
#define QN_EXP_PLAIN (-87.0F)

/* v_exp for lanes from QN_EXP_PLAIN to 0, with the same bits: there is nothing to clamp, and the
 * product with a power of two is an addition to the exponent. */
ALWAYS v16 v_exp_plain(v16 x)
{
    v16i e;
    const v16 p = v_exp_parts(x, &e);
    return vi_float(vi_add(v_bits(p), vi_to_exponent(e)));
}

/* Products --------------------------------------------------------------------------------------
 *
 * These work on single registers, because a tile fills the register file: sums of some queries, one
 * value of each, and one register of b. F32 comes from the cache (of prompts, which bring a block
 * to F32 for many queries): tiles have what needs the fewest loads. Other types come from memory
 * and are widened in the registers, for a few queries: tiles have all of them, and ask for the same
 * place of the next block.
 */

/* How a register of b is made. */
typedef enum kind { KIND_F32, KIND_F16, KIND_BF16, KIND_Q8_K, KIND_Q8_V } kind;

#define MOST_COLS 8  /* registers of a query in a tile */
#define GROUP     32 /* rows of K, or columns of V, that share a Q8_0 scale */

ALWAYS size_t size_of(const kind type)
{
    return type == KIND_F32 ? 4 : type == KIND_F16 || type == KIND_BF16 ? 2 : 1;
}

/* Elements `at` and up of b; scale: of Q8_0. */
ALWAYS reg load_b(const kind type, const uint8_t *b, size_t at, reg scale)
{
    b += at * size_of(type);
    switch (type) {
    case KIND_F32:
        return r_load((const float *)(const void *)b);
    case KIND_F16:
        return r_from_f16((const uint16_t *)(const void *)b);
    case KIND_BF16:
        return r_from_bf16((const uint16_t *)(const void *)b);
    default:
        return r_mul(r_from_i8((const int8_t *)b), scale);
    }
}

/* Rows `from` and up of b, at most to `end`, for sums in acc[row][col]. */
ALWAYS void tile_rows(const qn_attend_product *p, int64_t q, int64_t i, int64_t from, int64_t end,
                      const int rows, const int cols, const kind type, reg *acc)
{
    const size_t lda = p->lda, ldb = p->ldb;
    const float *a = p->a + (size_t)q * lda + from;
    const uint8_t *b = p->b;
    const ptrdiff_t ahead = p->next ? (const uint8_t *)p->next - b : 0;
    const int lines = type == KIND_F32 ? 0 : ((int)size_of(type) * REG * cols + 63) / 64;
    size_t at = (size_t)from * ldb + (size_t)i;
    reg scale[MOST_COLS];
    if (type == KIND_Q8_K) {
        const uint16_t *scales = p->scales + from / GROUP * LANES + i;
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            scale[k] = r_from_f16(scales + REG * k);
        }
    }
    for (int64_t j = from; j < end; j++, a++, at += ldb) {
        reg x[MOST_ROWS];
        for (int n = 0; n < lines; n++) {
            __builtin_prefetch(b + (ptrdiff_t)(at * size_of(type)) + 64 * n + ahead);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            x[r] = r_set(a[(size_t)r * lda]);
        }
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            if (type == KIND_Q8_V) { /* a group is a whole number of registers */
                scale[k] = REG * k % GROUP == 0
                               ? r_set(v_half(p->scales[(at + (size_t)(REG * k)) / GROUP]))
                               : scale[k - 1];
            }
            reg y = load_b(type, b, at + (size_t)(REG * k), scale[k]);
            if (rows > 1) {
                QN_LOADED(y);
            }
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                acc[r * cols + k] = r_fma(x[r], y, acc[r * cols + k]);
            }
        }
    }
}

/* `rows` queries from q on, `cols` registers of columns from i on. */
ALWAYS void tile(const qn_attend_product *p, int64_t q, int64_t i, const int rows, const int cols,
                 const kind type)
{
    reg acc[16];
    const size_t ldc = p->ldc;
    float *c = p->c + (size_t)q * ldc + i;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        reg factor = p->factors ? r_set(p->factors[q + r]) : r_set(1.0F); /* times one is exact */
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            acc[r * cols + k] =
                p->fresh ? r_zero() : r_mul(r_load(c + (size_t)r * ldc + REG * k), factor);
        }
    }
    const int64_t step = type == KIND_Q8_K ? GROUP : p->n_k;
    for (int64_t from = 0; from < p->n_k; from += step) {
        tile_rows(p, q, i, from, qn__min_i64(from + step, p->n_k), rows, cols, type, acc);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            r_store(c + (size_t)r * ldc + REG * k, acc[r * cols + k]);
        }
    }
}

ALWAYS float element(const kind type, const qn_attend_product *p, int64_t j, int64_t i)
{
    size_t at = (size_t)j * p->ldb + (size_t)i;
    switch (type) {
    case KIND_F32:
        return ((const float *)p->b)[at];
    case KIND_F16:
        return v_half(((const uint16_t *)p->b)[at]);
    case KIND_BF16:
        return qn__bf16_to_f32(((const uint16_t *)p->b)[at]);
    default: /* never alone: Q8_0 has whole groups */
        return 0.0F;
    }
}

/* Columns from i on, fewer than a register, one by one. */
ALWAYS void rest_columns(const qn_attend_product *p, int64_t i, const kind type)
{
    for (int64_t q = 0; q < p->n_q; q++) {
        const float *a = p->a + (size_t)q * p->lda;
        float *c = p->c + (size_t)q * p->ldc;
        for (int64_t k = i; k < p->n; k++) {
            float acc = p->fresh ? 0.0F : p->factors ? c[k] * p->factors[q] : c[k];
            for (int64_t j = 0; j < p->n_k; j++) {
                acc = fmaf(a[j], element(type, p, j, k), acc);
            }
            c[k] = acc;
        }
    }
}

/* `rows` queries from q on, all columns but the last few; `cols` registers of them at a time. */
ALWAYS void row_of_tiles(const qn_attend_product *p, int64_t q, const int rows, const int cols,
                         const kind type)
{
    int64_t i = 0;
    for (; i + REG * cols <= p->n; i += REG * cols) {
        tile(p, q, i, rows, cols, type);
    }
    for (; cols > 4 && i + REG * 4 <= p->n; i += REG * 4) {
        tile(p, q, i, rows, 4, type);
    }
    for (; i + REG <= p->n; i += REG) {
        tile(p, q, i, rows, 1, type);
    }
}

/* Few queries, types that are widened. As many columns as keep enough chains in flight. */
ALWAYS void few_queries(const qn_attend_product *p, const kind type)
{
    const int two = 32 / REG < 4 ? 2 : 4; /* all lanes of a score block, at most */
    int64_t q = 0, n = p->n_q;
    for (; n - q >= 4; q += 4) {
        row_of_tiles(p, q, 4, 2, type);
    }
    if (n - q == 3) {
        row_of_tiles(p, q, 3, two, type);
    } else if (n - q == 2) {
        row_of_tiles(p, q, 2, two, type);
    } else if (n - q == 1) {
        row_of_tiles(p, q, 1, type == KIND_Q8_K ? two : 8, type);
    }
    if (p->n % REG != 0) {
        rest_columns(p, p->n / REG * REG, type);
    }
}

/* All queries, `cols` registers of columns from i on. */
ALWAYS void column_of_tiles(const qn_attend_product *p, int64_t i, const int cols, const kind type)
{
    int64_t q = 0, n = p->n_q;
    while (n - q >= TILE_ROWS && n - q != TILE_ROWS + 1) { /* not one alone at the end */
        tile(p, q, i, TILE_ROWS, cols, type);
        q += TILE_ROWS;
    }
#if TILE_ROWS > 3
    for (; n - q >= 4; q += 4) {
        tile(p, q, i, 4, cols, type);
    }
    if (n - q == 3) {
        tile(p, q, i, 3, cols, type);
        q += 3;
    }
#endif
    for (; n - q >= 2; q += 2) {
        tile(p, q, i, 2, cols, type);
    }
    if (n - q == 1) {
        tile(p, q, i, 1, cols, type);
    }
}

static void accumulate_f32(const qn_attend_product *p)
{
    int64_t i = 0;
    for (; p->n_q == 1 && i + REG * 8 <= p->n; i += REG * 8) {
        tile(p, 0, i, 1, 8, KIND_F32);
    }
    for (; i + REG * TILE_COLS <= p->n; i += REG * TILE_COLS) {
        column_of_tiles(p, i, TILE_COLS, KIND_F32);
    }
    for (; i + REG <= p->n; i += REG) {
        column_of_tiles(p, i, 1, KIND_F32);
    }
    if (i < p->n) {
        rest_columns(p, i, KIND_F32);
    }
}

static void accumulate_f16(const qn_attend_product *p)
{
    few_queries(p, KIND_F16);
}

static void accumulate_bf16(const qn_attend_product *p)
{
    few_queries(p, KIND_BF16);
}

static void accumulate_q8_k(const qn_attend_product *p)
{
    few_queries(p, KIND_Q8_K);
}

static void accumulate_q8_v(const qn_attend_product *p)
{
    few_queries(p, KIND_Q8_V);
}

static void accumulate(const qn_attend_product *p)
{
    switch (p->b_type) {
    case QN_TYPE_F16:
        accumulate_f16(p);
        break;
    case QN_TYPE_BF16:
        accumulate_bf16(p);
        break;
    case QN_TYPE_Q8_0:
        (p->is_v ? accumulate_q8_v : accumulate_q8_k)(p);
        break;
    default:
        accumulate_f32(p);
        break;
    }
}

/* Soft-max --------------------------------------------------------------------------------------
 */

/* The score that a dot product becomes; `lane`: number of the first lane. */
ALWAYS v16 score(const qn_attend_soft *p, float slope, v16 x, int lane)
{
    x = v_mul(x, v_set(p->scale));
    if (p->soft_cap != 0.0F) {
        v16 cap = v_set(p->soft_cap);
        x = v_mul(cap, v_tanh(v_div(x, cap)));
    }
    if (slope != 0.0F) {
        static const int32_t steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        v16i first = vi_set((int32_t)p->distance - lane);
        v16i step = v_bits(v_load((const float *)(const void *)steps));
        x = v_fma(v_set(-slope), v_abs(vi_convert(vi_sub(first, step))), x);
    }
    return x;
}

/* The largest score of one query; the scores come to lie in s. */
ALWAYS float top_score(const qn_attend_soft *p, float slope, const bool all, float *s)
{
    const v16 low = v_set(-INFINITY);
    const v16m here = v_mask(p->mask & 0xffffU), there = v_mask(p->mask >> 16);
    v16 x = score(p, slope, v_load(s), 0), y = score(p, slope, v_load(s + 16), 16);
    v_store(s, x);
    v_store(s + 16, y);
    v16 top = v_max(all ? x : v_select(here, x, low), low); /* a NaN is passed over */
    return v_max_lanes(v_max(v_max(all ? y : v_select(there, y, low), low), top));
}

/* The scores of one query become weights. `all`: no key is missing, so no score is above `top`. */
ALWAYS void weigh(const qn_attend_soft *p, const bool all, float top, float c, float *s, float *l)
{
    const v16 peak = v_set(top), factor = v_set(c);
    v16 x = v_sub(v_load(s), peak), y = v_sub(v_load(s + 16), peak);
    if (all && v_none_below(x, y, v_set(QN_EXP_PLAIN))) {
        x = v_exp_plain(x);
        y = v_exp_plain(y);
    } else {
        x = v_exp(x);
        y = v_exp(y);
    }
    if (!all) {
        x = v_select(v_mask(p->mask & 0xffffU), x, v_set(0.0F));
        y = v_select(v_mask(p->mask >> 16), y, v_set(0.0F));
    }
    v_store(l, v_fma(v_load(l), factor, x));
    v_store(l + 16, v_fma(v_load(l + 16), factor, y));
    v_store(s, x);
    v_store(s + 16, y);
}

/* n <= 16 queries: first the maxima, then all factors at once, then the weights, so that the chains
 * of different queries run beside each other. */
ALWAYS void soften_some(const qn_attend_soft *p, const bool all, const float *slopes, int64_t n,
                        float *s, float *m, float *l, float *factors)
{
    float top[16] = {0};
    for (int64_t i = 0; i < n; i++) {
        top[i] = top_score(p, slopes ? slopes[i] : 0.0F, all, s + i * LANES);
    }
    const v16 before = v_load_n(m, n), largest = v_max(v_load(top), before);
    v_store_n(factors, v_exp(v_sub(before, largest)), n);
    v_store_n(m, largest, n);
    for (int64_t i = 0; i < n; i++) {
        weigh(p, all, m[i], factors[i], s + i * LANES, l + i * LANES);
    }
}

static void soften(const qn_attend_soft *p, int64_t n, float *s, float *m, float *l, float *factors)
{
    for (int64_t i = 0; i < n; i += 16) {
        const float *slopes = p->slopes ? p->slopes + i : NULL;
        const int64_t k = qn__min_i64(16, n - i);
        float *s_i = s + i * LANES, *l_i = l + i * LANES;
        if (p->mask == UINT32_MAX) {
            soften_some(p, true, slopes, k, s_i, m + i, l_i, factors + i);
        } else {
            soften_some(p, false, slopes, k, s_i, m + i, l_i, factors + i);
        }
    }
}

/* The rest --------------------------------------------------------------------------------------
 */

static void widen_q8_0(const void *block, int64_t d, bool is_v, float *to)
{
    const int8_t *levels = block;
    const uint16_t *scales = (const uint16_t *)(const void *)(levels + d * LANES);
    for (int64_t i = 0; i < d; i++) { /* of 32 values: a row of K, a group of V */
        const int8_t *from = levels + i * LANES;
        v16 low, high;
        if (is_v) {
            low = high = v_set(v_half(scales[i]));
        } else {
            low = v_from_f16(scales + i / 32 * LANES);
            high = v_from_f16(scales + i / 32 * LANES + 16);
        }
        v_store(to + i * LANES, v_mul(v_from_i8(from), low));
        v_store(to + i * LANES + 16, v_mul(v_from_i8(from + 16), high));
    }
}

static void merge(float *a, float e, const float *b, float e2, int64_t n)
{
    const v16 left = v_set(e), right = v_set(e2);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v_store(a + i, v_fma(v_load(a + i), left, v_mul(v_load(b + i), right)));
    }
    for (; i < n; i++) {
        a[i] = fmaf(a[i], e, b[i] * e2);
    }
}

const qn_cpu_attend_fns QN_ATTEND_TABLE = {
    .widen_q8_0 = widen_q8_0,
    .accumulate = accumulate,
    .soften = soften,
    .merge = merge,
};
