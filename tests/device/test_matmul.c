/* The leaf functions of the matrix products: the definition against double precision and recorded
 * products, every instruction set against the definition by equality of bits. */
#include "support/support.h"

#include "device/matmul_case.h"

#include <math.h>

enum { MOST_COLS = 136 };

/* A tile of a whole plane with activations in the form that the type asks for. */
typedef struct tile_case {
    qn_matmul_tile tile;
    const void *x[MOST_COLS];
    float *y[MOST_COLS];
    qn_act_chunk *chunks;
    float *out;
    void *scratch;
} tile_case;

static int64_t out_stride(int64_t rows)
{
    return rows + 3; /* odd, so that nothing is aligned; the gap must stay as it is */
}

static void tile_make(tile_case *c, const qn_cpu_matmul_fns *fns, const matmul_matrix *m,
                      const float *acts, int64_t n_cols, const float *bias)
{
    const int64_t k = m->weight.ne[0], rows = m->weight.ne[1], stride = out_stride(rows);
    const int64_t n_chunks = qn__div_up(k, QN_PACK_CHUNK);
    const bool quantized = qn_type_get_info(m->weight.type)->quantized;
    c->chunks = calloc((size_t)(n_chunks * n_cols), sizeof *c->chunks);
    c->out = malloc((size_t)(stride * n_cols) * sizeof *c->out);
    c->scratch = aligned_alloc(64, QN_MATMUL_SCRATCH);
    assert_true(c->chunks && c->out && c->scratch);
    for (int64_t i = 0; i < stride * n_cols; i++) {
        c->out[i] = -77.0F;
    }
    for (int64_t i = 0; i < n_cols; i++) {
        c->x[i] = quantized ? (const void *)(c->chunks + i) : (const void *)(acts + i * k);
        c->y[i] = c->out + i * stride;
        if (quantized) {
            fns->quantize(acts + i * k, k, qn__act_form(m->weight.type), c->chunks + i,
                          (size_t)n_cols * sizeof *c->chunks);
        }
    }
    c->tile = (qn_matmul_tile){.weights = m->weight.packed,
                               .k = k,
                               .n_rows = rows,
                               .n_cols = n_cols,
                               .x = c->x,
                               .x_stride = quantized ? (size_t)n_cols * sizeof *c->chunks
                                                     : QN_PACK_CHUNK * sizeof(float),
                               .y = c->y,
                               .bias = bias,
                               .scratch = c->scratch};
    fns->mul[m->weight.type](&c->tile);
}

static void tile_free(tile_case *c)
{
    free(c->chunks);
    free(c->out);
    free(c->scratch);
}

/* The activation that the kernel saw. */
static double act_at(const tile_case *c, const matmul_matrix *m, const float *acts, int64_t col,
                     int64_t k)
{
    if (!qn_type_get_info(m->weight.type)->quantized) {
        return (double)acts[col * m->weight.ne[0] + k];
    }
    const qn_act_chunk *chunk = c->chunks + k / 256 * c->tile.n_cols + col;
    return (double)chunk->d[k % 256 / 32] * chunk->q[k % 256 / 32][k % 32];
}

static void check_against_double(const matmul_type *t, int64_t k, int64_t rows, int64_t cols)
{
    qn_test_random r = {77 + (uint64_t)t->type};
    matmul_matrix m = matmul_make(&r, t, k, rows, 1);
    float *acts = matmul_random_acts(&r, (size_t)(k * cols));
    float *w = malloc((size_t)k * sizeof *w);
    tile_case c;
    tile_make(&c, &qn__matmul_scalar, &m, acts, cols, NULL);
    for (int64_t i = 0; i < rows; i++) {
        matmul_decode(&m, i, w);
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0, terms = 0;
            for (int64_t e = 0; e < k; e++) {
                const double p = (double)w[e] * act_at(&c, &m, acts, j, e);
                sum += p;
                terms += fabs(p);
            }
            /* A minimum is taken off the whole block, so the terms are those of its parts. */
            const double bound = 1e-5 * (terms * (t->m >= 0 ? 8 : 1)) + 1e-30;
            const double got = (double)c.y[j][i];
            if (!(fabs(got - sum) <= bound)) {
                fail_msg("%s K %d row %d column %d: %g, not %g", qn_type_get_info(t->type)->name,
                         (int)k, (int)i, (int)j, got, sum);
            }
        }
    }
    free(w);
    free(acts);
    tile_free(&c);
    matmul_free(&m);
}

static void test_definition(void **state)
{
    (void)state;
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        const int64_t block = qn_type_get_info(matmul_types[i].type)->block_values;
        check_against_double(&matmul_types[i], block, 1, 1);
        check_against_double(&matmul_types[i], 256, 16, 2);
        check_against_double(&matmul_types[i], 256 * 5, 37, 9);
        if (block <= 32) {
            check_against_double(&matmul_types[i], 576, 20, 3);
        }
        if (block == 1) {
            check_against_double(&matmul_types[i], 64, 5, 2);
            check_against_double(&matmul_types[i], 259, 18, 2);
        }
    }
}

/* Recorded products ------------------------------------------------------------------------------
 */

/* The recorded quantized activations as chunks: q8_0 and q8_1 by 32, q8_K by 256 values. For q8_1
 * the recording multiplies minima with the stored half of d * sum. */
static qn_act_chunk *chunks_of(qn_type type, const uint8_t *acts, int64_t n)
{
    qn_act_chunk *chunks = calloc((size_t)qn__div_up(n, QN_PACK_CHUNK), sizeof *chunks);
    assert_non_null(chunks);
    for (int64_t i = 0; i < n / 32; i++) {
        qn_act_chunk *chunk = chunks + i / 8;
        const int64_t b = i % 8;
        int32_t sum = 0;
        if (type == QN_TYPE_Q8_K) {
            const qn_block_q8_k *x = (const qn_block_q8_k *)acts + i / 8;
            chunk->d[b] = x->d;
            memcpy(chunk->q[b], x->qs + 32 * b, 32);
        } else if (type == QN_TYPE_Q8_0) {
            const qn_block_q8_0 *x = (const qn_block_q8_0 *)acts + i;
            chunk->d[b] = qn__f16_to_f32(x->d);
            memcpy(chunk->q[b], x->qs, 32);
        } else {
            const qn_block_q8_1 *x = (const qn_block_q8_1 *)acts + i;
            chunk->d[b] = qn__f16_to_f32(x->d);
            memcpy(chunk->q[b], x->qs, 32);
        }
        for (int k = 0; k < 32; k++) {
            sum += chunk->q[b][k];
        }
        chunk->s[b] = type == QN_TYPE_Q8_1 ? qn__f16_to_f32(((const qn_block_q8_1 *)acts + i)->s)
                                           : chunk->d[b] * (float)sum;
    }
    return chunks;
}

static void check_recorded(qn_type type, const char *path)
{
    size_t size;
    uint8_t *file = qn_test_read(path, &size);
    uint32_t head[8];
    memcpy(head, file, sizeof head);
    assert_int_equal(head[3], type);
    const int64_t n = head[5];
    const uint8_t *row = file + 32, *acts = row + qn__align_up(head[6], 4) + 4 * (size_t)n;
    const size_t end = qn__align_up((size_t)(acts - file) + qn__align_up(head[7], 4), 8);
    double want[2]; /* the product, and the sum of the magnitudes of its terms */
    assert_int_equal(end + sizeof want, size);
    memcpy(want, file + end, sizeof want);

    const int64_t ne[4] = {n, 1, 1, 1};
    const size_t bytes = qn__cpu_pack_bytes(type, ne);
    void *packed = qn__block_alloc(bytes);
    assert_non_null(packed);
    qn__cpu_pack_rows(type, ne, row, 0, 1, packed);
    qn_act_chunk *chunks = chunks_of((qn_type)head[4], acts, n);
    const void *x[1] = {chunks};
    float got, *y[1] = {&got};
    const qn_matmul_tile t = {.weights = packed,
                              .k = n,
                              .n_rows = 1,
                              .n_cols = 1,
                              .x = x,
                              .x_stride = sizeof *chunks,
                              .y = y};
    qn__matmul_scalar.mul[type](&t);
    if (!(fabs((double)got - want[0]) <= 1e-5 * want[1])) {
        fail_msg("%s: %.9g, recorded %.9g of terms %.9g", path, (double)got, want[0], want[1]);
    }
    free(chunks);
    qn__block_free(packed, bytes);
    free(file);
}

/* Rows come back from the packed form as they were, whatever their length and place. */
static void check_unpacked(const matmul_type *t, int64_t k)
{
    enum { ROWS = 37, PLANES = 2 };
    qn_test_random r = {5 + (uint64_t)t->type};
    matmul_matrix m = matmul_make(&r, t, k, ROWS, PLANES);
    const size_t bytes = matmul_row_bytes(t->type, k);
    uint8_t *row = malloc(bytes);
    for (int64_t i = 0; i < ROWS * PLANES; i++) {
        memset(row, 0xa5, bytes);
        qn__cpu_unpack_row(t->type, m.weight.ne, m.weight.packed, i, row);
        assert_memory_equal(row, m.rows + (size_t)i * bytes, bytes);
    }
    free(row);
    matmul_free(&m);
}

static void test_unpack(void **state)
{
    int n = 0;
    (void)state;
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        const int64_t block = qn_type_get_info(matmul_types[i].type)->block_values;
        if (qn__cpu_unpack_supports(matmul_types[i].type)) {
            check_unpacked(&matmul_types[i], block);
            check_unpacked(&matmul_types[i], block * (block == 256 ? 3 : block == 32 ? 19 : 517));
            n++;
        }
    }
    assert_int_equal(n, 9);
}

static void test_recorded(void **state)
{
    int found = 0;
    (void)state;
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        char name[64];
        snprintf(name, sizeof name, "quant-vectors/%s.dot",
                 qn_type_get_info(matmul_types[i].type)->name);
        const char *path = qn_test_shared(name);
        if (path && qn_type_get_info(matmul_types[i].type)->quantized) {
            check_recorded(matmul_types[i].type, path);
            found++;
        }
    }
    if (found == 0) {
        qn_test_skip("the recorded products are absent");
    }
    assert_int_equal(found, N_MATMUL_TYPES - 3);
}

/* Instruction sets -------------------------------------------------------------------------------
 */

/* All bytes of a tile's results and chunks against those of the definition. */
static void check_equal(const qn_cpu_matmul_fns *fns, const char *name, const matmul_type *t,
                        int64_t k, int64_t rows, int64_t cols, bool with_bias)
{
    qn_test_random r = {(uint64_t)(k * 131 + rows * 17 + cols)};
    matmul_matrix m = matmul_make(&r, t, k, rows, 1);
    float *acts = matmul_random_acts(&r, (size_t)(k * cols)), bias[256];
    for (int64_t i = 0; i < rows; i++) {
        bias[i] = qn_test_normal(&r);
    }
    tile_case want, got;
    tile_make(&want, &qn__matmul_scalar, &m, acts, cols, with_bias ? bias : NULL);
    tile_make(&got, fns, &m, acts, cols, with_bias ? bias : NULL);
    const size_t chunks = (size_t)(qn__div_up(k, QN_PACK_CHUNK) * cols) * sizeof *want.chunks;
    const size_t out = (size_t)(out_stride(rows) * cols) * sizeof *want.out;
    if (memcmp(want.chunks, got.chunks, chunks) != 0) {
        fail_msg("%s: quantization for %s differs", name, qn_type_get_info(t->type)->name);
    }
    if (memcmp(want.out, got.out, out) != 0) {
        fail_msg("%s: %s K %d rows %d columns %d differs", name, qn_type_get_info(t->type)->name,
                 (int)k, (int)rows, (int)cols);
    }
    free(acts);
    tile_free(&want);
    tile_free(&got);
    matmul_free(&m);
}

static void check_isa(const qn_cpu_matmul_fns *fns, const char *name)
{
    static const int64_t cols[] = {1, 2, 3, 4, 5, 7, 8, 33, 65};
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        const matmul_type *t = &matmul_types[i];
        const int64_t block = qn_type_get_info(t->type)->block_values;
        for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++) {
            check_equal(fns, name, t, 512, 33, cols[c], c % 2 == 0);
            if (block <= 32) {
                check_equal(fns, name, t, 64, 16, cols[c], false);
                check_equal(fns, name, t, 32 * 29, 5, cols[c], true);
            }
            if (block == 1) {
                check_equal(fns, name, t, 259, 47, cols[c], true);
                check_equal(fns, name, t, 1, 1, cols[c], false);
            }
        }
        check_equal(fns, name, t, 256 * 11, 150, 1, true);
        check_equal(fns, name, t, 256 * 7, 16, 6, false);
        check_equal(fns, name, t, 256 * 9, 150, 70, true); /* groups, panels … */
        check_equal(fns, name, t, 256 * 3, 70, 133, true); /* … blocks of columns */
    }
}

/* Activations that cannot be quantized, or hardly: too small, infinite, NaN. */
static void check_odd_activations(const qn_cpu_matmul_fns *fns)
{
    float x[32 * 6] = {0};
    qn_act_chunk want, got;
    for (int i = 0; i < 32; i++) {
        x[i] = (float)i * 0x1p-149F;
        x[32 + i] = (float)(i + 1) * 0x1p-120F;
        x[64 + i] = (float)(i - 31) * 0x1p118F;
        x[96 + i] = (float)i;
        x[128 + i] = (float)i;
        x[160 + i] = i == 0   ? 127.0F
                     : i == 1 ? -2.5F
                              : (float)i; /* a half goes to the even level */
    }
    x[96 + 17] = -INFINITY;
    x[128 + 3] = NAN;
    memset(&want, 0, sizeof want);
    memset(&got, 0, sizeof got);
    qn__matmul_scalar.quantize(x, 32 * 6, qn__act_form(QN_TYPE_Q4_0), &want, sizeof want);
    fns->quantize(x, 32 * 6, qn__act_form(QN_TYPE_Q4_0), &got, sizeof got);
    for (int b = 0; b < 6; b++) {
        assert_memory_equal(want.q[b], got.q[b], 32);
        assert_int_equal(isnan(want.d[b]), isnan(got.d[b]));
        assert_int_equal(isnan(want.s[b]), isnan(got.s[b]));
        if (!isnan(want.d[b])) {
            assert_memory_equal(&want.d[b], &got.d[b], sizeof(float));
            assert_memory_equal(&want.s[b], &got.s[b], sizeof(float));
        }
    }
    assert_true(want.d[0] == 0.0F && want.q[0][31] == 0);
    assert_true(want.d[2] > 0.0F && want.q[2][0] == -124); /* 31 * 4: no error */
    assert_true(isnan(want.d[3]) && isnan(want.d[4]));
    assert_true(want.q[5][1] == -2 && want.q[5][0] == 127);
}

/* All that this machine has; test_device_matmul_avx512, built with QN_TEST_EMULATED: AVX-512 on any
 * machine. */
static void test_instruction_sets(void **state)
{
    const qn_cpu_isa *isa;
    (void)state;
    for (int32_t i = 1; (isa = qn__cpu_isa_at(i)); i++) {
        printf("%s\n", isa->name);
        check_isa(isa->matmul, isa->name);
        check_odd_activations(isa->matmul);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_unpack),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
