/*
 * matmul_float_avx2.c: F32, F16 and BF16 weights with F32 activations for AVX2.
 *
 * A walk goes through a chunk with 16 rows and up to six columns (twelve sums in registers, two of
 * widened weights and one of an activation), or with one column and two groups of rows, so that
 * four chains of fmas run beside each other.
 */
#include "device/cpu/avx2/matmul_avx2.h"

enum {
    COLS = 6,
    WALK_COLS = 24,  /* columns that share a chunk: with its weights they fill the L1 cache */
    WALK_GROUPS = 4, /* groups of rows that share the activations of a chunk */
    LEVEL = WALK_GROUPS * WALK_COLS * QN_PACK_ROWS /* floats of the stacks from level to level */
};

/* A chunk of n values of a group. */
typedef struct chunk {
    const uint8_t *w;
    int64_t n, index;     /* its values, its number in the row */
    const uint8_t *fetch; /* what comes next: a walk asks for a quarter of a chunk, from here on */
} chunk;

/* The compiler shall know nothing of this index or pointer: so it keeps one index for all columns
 * instead of a pointer each, and loads again what it has no register to keep in. */
#define QN_UNKNOWN(x) __asm__("" : "+r"(x))

/* Rows 0..7 and 8..15 of weight k of a chunk. BF16: of the pair k, k + 1, first the even one. */
QN_INLINE void load_f32(const uint8_t *w, int64_t k, __m256 *low, __m256 *high)
{
    *low = _mm256_loadu_ps((const float *)(w + 64 * k));
    *high = _mm256_loadu_ps((const float *)(w + 64 * k + 32));
}

QN_INLINE void load_f16(const uint8_t *w, int64_t k, __m256 *low, __m256 *high)
{
    *low = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 32 * k)));
    *high = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 32 * k + 16)));
}

QN_INLINE __m256 bf16_even(__m256i pair)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
}

QN_INLINE __m256 bf16_odd(__m256i pair)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000U)));
}

/* acc[column][half] = fma(the weight with rows low, high, x[column][k], …). The sums, two weights,
 * a mask and an activation take all registers: what the compiler makes of the three instructions
 * moves sums around or spills them. */
QN_INLINE void take(__m256 acc[][2], __m256 low, __m256 high, const float *const x[], int64_t k,
                    int cols)
{
#pragma GCC unroll 6
    for (int c = 0; c < cols; c++) {
        __m256 v;
        __asm__("vbroadcastss %3, %2\n\t"
                "vfmadd231ps %4, %2, %0\n\t"
                "vfmadd231ps %5, %2, %1"
                : "+x"(acc[c][0]), "+x"(acc[c][1]), "=&x"(v)
                : "m"(x[c][k]), "x"(low), "x"(high));
    }
}

/* Asks for a part of the weights that come next, in the L2 cache: L1 has no room for them yet. */
QN_INLINE void fetch_ahead(qn_type type, const chunk *at, int64_t k)
{
    __builtin_prefetch(at->fetch + (type == QN_TYPE_F32 ? 16 : 8) * k, 0, 2);
}

/* A chunk of `groups` groups, group_bytes apart, with `cols` columns. */
QN_INLINE void dot_chunk(qn_type type, const chunk *at, size_t group_bytes, int groups,
                         const float *const x[], int cols, __m256 acc[][COLS][2])
{
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
#pragma GCC unroll 6
        for (int c = 0; c < cols; c++) {
            acc[g][c][0] = acc[g][c][1] = _mm256_setzero_ps();
        }
    }
    int64_t k = 0;
    for (; type == QN_TYPE_BF16 && k + 1 < at->n; k += 2) {
        if (groups == 1) {
            fetch_ahead(type, at, k);
        }
        QN_UNKNOWN(k);
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const __m256i *pair = (const __m256i *)(at->w + (size_t)g * group_bytes + 32 * k);
            take(acc[g], bf16_even(_mm256_loadu_si256(pair)),
                 bf16_even(_mm256_loadu_si256(pair + 1)), x, k, cols);
            QN_UNKNOWN(pair);
            take(acc[g], bf16_odd(_mm256_loadu_si256(pair)), bf16_odd(_mm256_loadu_si256(pair + 1)),
                 x, k + 1, cols);
        }
    }
    for (; k < at->n; k++) {
        if (groups == 1) {
            fetch_ahead(type, at, k);
        }
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const uint8_t *w = at->w + (size_t)g * group_bytes;
            __m256 low, high;
            if (type == QN_TYPE_F32) {
                load_f32(w, k, &low, &high);
            } else if (type == QN_TYPE_F16) {
                load_f16(w, k, &low, &high);
            } else {
                const __m256i *pair = (const __m256i *)(w + 32 * k);
                low = bf16_even(_mm256_loadu_si256(pair));
                high = bf16_even(_mm256_loadu_si256(pair + 1));
            }
            take(acc[g], low, high, x, k, cols);
        }
    }
}

/* A chunk of one group with `cols` columns, joined to their stacks. */
QN_INLINE void walk(qn_type type, const chunk *at, const float *const x[], int cols, float *stack)
{
    __m256 acc[1][COLS][2];
    dot_chunk(type, at, 0, 1, x, cols, acc);
#pragma GCC unroll 6
    for (int c = 0; c < cols; c++) {
        qn__avx2_join(stack + c * QN_PACK_ROWS, LEVEL, at->index, acc[0][c][0], acc[0][c][1]);
    }
}

/* The next columns of `left`: six, but rather four and four than six and two, whose few chains
 * would wait for each other. */
static inline int64_t take_columns(int64_t left)
{
    return left >= 12 || left == 6 || left == 10 || left == 11 ? 6 : left >= 4 ? 4 : left;
}

/* Column `column` where chunk `index` starts. */
static inline const float *chunk_of(const qn_matmul_tile *t, int64_t column, int64_t index)
{
    return (const float *)((const uint8_t *)t->x[column] + (size_t)index * t->x_stride);
}

/* A chunk of one group with n_cols columns, whose chunks are at x. */
QN_INLINE void walk_columns(qn_type type, chunk at, const float *const x[], int64_t n_cols,
                            float *stack)
{
    const int64_t quarter = (int64_t)qn__pack_chunk_bytes(type, QN_PACK_CHUNK) / 4;
    for (int64_t c = 0, cols; c < n_cols; c += cols) {
        float *sums = stack + c * QN_PACK_ROWS;
        cols = take_columns(n_cols - c);
        switch (cols) {
        case 1:
            walk(type, &at, x + c, 1, sums);
            break;
        case 2:
            walk(type, &at, x + c, 2, sums);
            break;
        case 3:
            walk(type, &at, x + c, 3, sums);
            break;
        case 4:
            walk(type, &at, x + c, 4, sums);
            break;
        default:
            walk(type, &at, x + c, 6, sums);
            break;
        }
        at.fetch += quarter;
    }
}

static void finish(const qn_matmul_tile *t, const float *stack, size_t level, int64_t n_chunks,
                   int64_t row, int64_t column)
{
    qn__avx2_finish(stack, level, n_chunks, qn__min_i64(t->n_rows - row, QN_PACK_ROWS),
                    t->bias ? t->bias + row : NULL, t->y[column] + row);
}

_Static_assert(sizeof(float[QN_JOIN_LEVELS][LEVEL]) <= QN_MATMUL_SCRATCH, "stacks");

/* Up to WALK_GROUPS groups at row `row` with columns first .. first + n_cols. They go through the
 * chunks together, so that activations come to the L1 cache once for all of them. Sums wait in
 * [level][group][column][16 rows]. */
QN_INLINE void mul_groups(qn_type type, const qn_matmul_tile *t, int64_t row, int64_t groups,
                          int64_t first, int64_t n_cols)
{
    const size_t group_bytes = qn__pack_group_bytes(type, t->k);
    const uint8_t *w = (const uint8_t *)t->weights + (size_t)(row / QN_PACK_ROWS) * group_bytes;
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    float *stack = t->scratch;
    for (int64_t i = 0; i < n_chunks; i++) {
        chunk at = {.n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK), .index = i};
        const float *x[WALK_COLS];
        for (int64_t c = 0; c < n_cols; c++) {
            x[c] = chunk_of(t, first + c, i);
        }
        for (int64_t g = 0; g < groups; g++) {
            at.w = w + (size_t)g * group_bytes;
            at.fetch =
                g + 1 < groups ? at.w + group_bytes : w + qn__pack_chunk_bytes(type, QN_PACK_CHUNK);
            walk_columns(type, at, x, n_cols, stack + g * WALK_COLS * QN_PACK_ROWS);
        }
        w += qn__pack_chunk_bytes(type, at.n);
    }
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t c = 0; c < n_cols; c++) {
            finish(t, stack + (g * WALK_COLS + c) * QN_PACK_ROWS, LEVEL, n_chunks,
                   row + g * QN_PACK_ROWS, first + c);
        }
    }
}

/* Two groups at row `row` with one column: four chains instead of two. */
QN_INLINE void mul_column(qn_type type, const qn_matmul_tile *t, int64_t row)
{
    const size_t group_bytes = qn__pack_group_bytes(type, t->k);
    const uint8_t *w = (const uint8_t *)t->weights + (size_t)(row / QN_PACK_ROWS) * group_bytes;
    const int64_t n_chunks = qn__div_up(t->k, QN_PACK_CHUNK);
    float stack[2][QN_JOIN_LEVELS][QN_PACK_ROWS];
    for (int64_t i = 0; i < n_chunks; i++) {
        const chunk at = {.w = w, .n = qn__min_i64(t->k - i * QN_PACK_CHUNK, QN_PACK_CHUNK)};
        const float *x = chunk_of(t, 0, i);
        __m256 acc[2][COLS][2];
        dot_chunk(type, &at, group_bytes, 2, &x, 1, acc);
        qn__avx2_join(stack[0][0], QN_PACK_ROWS, i, acc[0][0][0], acc[0][0][1]);
        qn__avx2_join(stack[1][0], QN_PACK_ROWS, i, acc[1][0][0], acc[1][0][1]);
        w += qn__pack_chunk_bytes(type, at.n);
    }
    finish(t, stack[0][0], QN_PACK_ROWS, n_chunks, row, 0);
    finish(t, stack[1][0], QN_PACK_ROWS, n_chunks, row + QN_PACK_ROWS, 0);
}

QN_INLINE void mul(qn_type type, const qn_matmul_tile *t)
{
    int64_t row = 0;
    for (; t->n_cols == 1 && row + QN_PACK_ROWS < t->n_rows; row += 2 * QN_PACK_ROWS) {
        mul_column(type, t, row);
    }
    for (; row < t->n_rows; row += WALK_GROUPS * QN_PACK_ROWS) {
        const int64_t groups = qn__div_up(t->n_rows - row, QN_PACK_ROWS);
        for (int64_t c = 0; c < t->n_cols; c += WALK_COLS) {
            mul_groups(type, t, row, qn__min_i64(groups, WALK_GROUPS), c,
                       qn__min_i64(t->n_cols - c, WALK_COLS));
        }
    }
}

void qn__avx2_mul_f32(const qn_matmul_tile *t)
{
    mul(QN_TYPE_F32, t);
}

void qn__avx2_mul_f16(const qn_matmul_tile *t)
{
    mul(QN_TYPE_F16, t);
}

void qn__avx2_mul_bf16(const qn_matmul_tile *t)
{
    mul(QN_TYPE_BF16, t);
}
