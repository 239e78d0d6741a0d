/* The leaf functions of the matrix products: the definition against double precision and recorded
 * products, every instruction set against the definition by equality of bits. */
#include "support/support.h"

#include "device/matmul_case.h"

#include <math.h>

/* A tile of a whole plane with activations in the form that the type asks for. */
typedef struct tile_case {
    qn_matmul_tile tile;
    const void *x[80];
    float *y[80];
    qn_act_chunk *chunks;
    float *out;
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
    assert_true(c->chunks && c->out);
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
                               .bias = bias};
    fns->mul[m->weight.type](&c->tile);
}

static void tile_free(tile_case *c)
{
    free(c->chunks);
    free(c->out);
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
    static const int64_t cols[] = {1, 2, 3, 4, 5, 7, 33, 64, 65};
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
    }
}

static void test_isa(const char *name)
{
    const qn_cpu_isa *isa = qn__cpu_isa_find(name);
    if (!isa) {
        qn_test_skip("this machine has no %s", name);
    }
    check_isa(isa->matmul, name);
}

static void test_avx2(void **state)
{
    (void)state;
    test_isa("avx2");
}

/* In test_device_matmul_avx512, built with QN_TEST_EMULATED, on any machine. */
static void test_avx512(void **state)
{
    (void)state;
    test_isa("avx512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
