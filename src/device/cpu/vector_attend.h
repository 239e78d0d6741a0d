/*
 * vector_attend.h: the functions of scalar/attend.c on sixteen lanes at once, for the instruction
 * set of the file that includes this (see vector.h). A lane is a position (scores, soft-max) or an
 * element of V (weighted sums): always an output, so every lane adds in the order of the
 * definition.
 */
#include <math.h>

#include "base/fmath.h"
#include "device/cpu/attend.h"
#include "device/cpu/vector.h"

#define LANES  QN_KV_BLOCK
#define ALWAYS static inline __attribute__((always_inline))

/* A mask of lanes from the low 16 bits. */
#if QN_VECTOR_512
ALWAYS v16m v_mask(uint32_t bits)
{
    return (__mmask16)bits;
}

ALWAYS v16 v_from_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
#else
ALWAYS v16m v_mask(uint32_t bits)
{
    const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i high = _mm256_slli_epi32(low, 8), all = _mm256_set1_epi32((int32_t)bits);
    return (v16m){_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low),
                  _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high)};
}

ALWAYS v16 v_from_i8(const int8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
#endif

ALWAYS float v_lane0(v16 x)
{
    __m256 low, high;
    v_halves(x, &low, &high);
    return _mm256_cvtss_f32(low);
}

/* Products --------------------------------------------------------------------------------------
 *
 * These work on single registers, because a tile fills the register file: sums of TILE_ROWS
 * queries, one value of each, and one register of b.
 */

/* clang-format off */
#if QN_VECTOR_512
#define REG       16 /* lanes */
#define TILE_ROWS 6
typedef __m512 reg;
ALWAYS reg r_zero(void) { return _mm512_setzero_ps(); }
ALWAYS reg r_set(float x) { return _mm512_set1_ps(x); }
ALWAYS reg r_load(const float *p) { return _mm512_loadu_ps(p); }
ALWAYS void r_store(float *p, reg x) { _mm512_storeu_ps(p, x); }
ALWAYS reg r_fma(reg x, reg y, reg z) { return _mm512_fmadd_ps(x, y, z); }
ALWAYS reg r_from_f16(const uint16_t *p) { return v_from_f16(p); }
ALWAYS reg r_from_bf16(const uint16_t *p) { return v_from_bf16(p); }
#else
#define REG       8
#define TILE_ROWS 3
typedef __m256 reg;
ALWAYS reg r_zero(void) { return _mm256_setzero_ps(); }
ALWAYS reg r_set(float x) { return _mm256_set1_ps(x); }
ALWAYS reg r_load(const float *p) { return _mm256_loadu_ps(p); }
ALWAYS void r_store(float *p, reg x) { _mm256_storeu_ps(p, x); }
ALWAYS reg r_fma(reg x, reg y, reg z) { return _mm256_fmadd_ps(x, y, z); }
ALWAYS reg r_from_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
ALWAYS reg r_from_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
#endif
/* clang-format on */

/* Keeps the compiler from loading a value anew with every use: loads are what is scarce here. */
#if defined(QN_CPU_EMULATE_AVX512)
#define LOADED(x) (void)(x)
#else
#define LOADED(x) __asm__("" : "+v"(x))
#endif

#define TILE_COLS (32 / REG) /* registers of a query in a tile */
#define WIDE_COLS 8          /* of a single query: enough chains to hide their latency */

ALWAYS reg load_b(const qn_type type, const void *b, size_t at)
{
    switch (type) {
    case QN_TYPE_F16:
        return r_from_f16((const uint16_t *)b + at);
    case QN_TYPE_BF16:
        return r_from_bf16((const uint16_t *)b + at);
    default:
        return r_load((const float *)b + at);
    }
}

/* `rows` queries from q on, `cols` registers of columns from i on. */
ALWAYS void tile(const qn_attend_product *p, int64_t q, int64_t i, const int rows, const int cols,
                 const qn_type type)
{
    reg acc[4 * TILE_ROWS];
    const size_t lda = p->lda, ldb = p->ldb, ldc = p->ldc;
    const float *a = p->a + (size_t)q * lda, *end = a + p->n_k;
    float *c = p->c + (size_t)q * ldc + i;
    size_t at = (size_t)i;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            acc[r * cols + k] = p->fresh ? r_zero() : r_load(c + (size_t)r * ldc + REG * k);
        }
    }
    for (; a < end; a++, at += ldb) {
        reg x[TILE_ROWS];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            x[r] = r_set(a[(size_t)r * lda]);
        }
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            reg b = load_b(type, p->b, at + (size_t)(REG * k));
            if (rows > 1) {
                LOADED(b);
            }
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                acc[r * cols + k] = r_fma(x[r], b, acc[r * cols + k]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int k = 0; k < cols; k++) {
            r_store(c + (size_t)r * ldc + REG * k, acc[r * cols + k]);
        }
    }
}

ALWAYS float element(const qn_type type, const void *b, size_t at)
{
    switch (type) {
    case QN_TYPE_F16:
        return _cvtsh_ss(((const uint16_t *)b)[at]);
    case QN_TYPE_BF16:
        return qn__bf16_to_f32(((const uint16_t *)b)[at]);
    default:
        return ((const float *)b)[at];
    }
}

/* Columns from i on, fewer than a register, one by one. */
ALWAYS void rest_columns(const qn_attend_product *p, int64_t i, const qn_type type)
{
    for (int64_t q = 0; q < p->n_q; q++) {
        const float *a = p->a + (size_t)q * p->lda;
        float *c = p->c + (size_t)q * p->ldc;
        for (int64_t k = i; k < p->n; k++) {
            float acc = p->fresh ? 0.0F : c[k];
            for (int64_t j = 0; j < p->n_k; j++) {
                acc = fmaf(a[j], element(type, p->b, (size_t)j * p->ldb + (size_t)k), acc);
            }
            c[k] = acc;
        }
    }
}

/* All queries, `cols` registers of columns from i on. */
ALWAYS void column(const qn_attend_product *p, int64_t i, const int cols, const qn_type type)
{
    int64_t q = 0, n = p->n_q;
    while (n - q >= TILE_ROWS && n - q != TILE_ROWS + 1) { /* not one alone at the end */
        tile(p, q, i, TILE_ROWS, cols, type);
        q += TILE_ROWS;
    }
#if QN_VECTOR_512
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

ALWAYS void accumulate_as(const qn_attend_product *p, const qn_type type)
{
    int64_t i = 0;
    if (p->n_q == 1) {
        for (; i + REG * WIDE_COLS <= p->n; i += REG * WIDE_COLS) {
            tile(p, 0, i, 1, WIDE_COLS, type);
        }
    }
    for (; i + REG * TILE_COLS <= p->n; i += REG * TILE_COLS) {
        column(p, i, TILE_COLS, type);
    }
    for (; i + REG <= p->n; i += REG) {
        column(p, i, 1, type);
    }
    if (i < p->n) {
        rest_columns(p, i, type);
    }
}

static void accumulate_f16(const qn_attend_product *p)
{
    accumulate_as(p, QN_TYPE_F16);
}

static void accumulate_bf16(const qn_attend_product *p)
{
    accumulate_as(p, QN_TYPE_BF16);
}

static void accumulate_f32(const qn_attend_product *p)
{
    accumulate_as(p, QN_TYPE_F32);
}

static void accumulate(const qn_attend_product *p)
{
    if (p->b_type == QN_TYPE_F16) {
        accumulate_f16(p);
    } else if (p->b_type == QN_TYPE_BF16) {
        accumulate_bf16(p);
    } else {
        accumulate_f32(p);
    }
}

/* Soft-max --------------------------------------------------------------------------------------
 */

/* The score that a dot product becomes; `lane`: number of the first lane. */
ALWAYS v16 score(const qn_attend_soft *p, v16 x, int64_t distance, int lane)
{
    x = v_mul(x, v_set(p->scale));
    if (p->soft_cap != 0.0F) {
        v16 cap = v_set(p->soft_cap);
        x = v_mul(cap, v_tanh(v_div(x, cap)));
    }
    if (p->slope != 0.0F) {
        static const int32_t steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        v16i first = vi_set((int32_t)distance - lane);
        v16i step = v_bits(v_load((const float *)(const void *)steps));
        x = v_fma(v_set(-p->slope), v_abs(vi_convert(vi_sub(first, step))), x);
    }
    return x;
}

static float soften(const qn_attend_soft *p, uint32_t mask, int64_t distance, float s[32], float *m,
                    float l[32])
{
    const v16 low = v_set(-INFINITY), zero = v_set(0.0F);
    const v16m here = v_mask(mask & 0xffffU), there = v_mask(mask >> 16);
    v16 x = score(p, v_load(s), distance, 0), y = score(p, v_load(s + 16), distance, 16);
    v16 top = v_max(v_select(here, x, low), low); /* a NaN is passed over */
    top = v_max(v_max(v_select(there, y, low), low), top);
    float before = *m, largest = v_max_lanes(top);
    largest = largest > before ? largest : before;
    v16 peak = v_set(largest);
    x = v_select(here, v_exp(v_sub(x, peak)), zero);
    y = v_select(there, v_exp(v_sub(y, peak)), zero);
    float c = 1.0F; /* e^0 */
    if (before != largest || largest == -INFINITY) {
        c = v_lane0(v_exp(v_set(before - largest)));
    }
    v16 factor = v_set(c);
    v_store(l, v_fma(v_load(l), factor, x));
    v_store(l + 16, v_fma(v_load(l + 16), factor, y));
    v_store(s, x);
    v_store(s + 16, y);
    *m = largest;
    return c;
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
            low = high = v_set(_cvtsh_ss(scales[i]));
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
