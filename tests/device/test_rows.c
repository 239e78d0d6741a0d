/*
 * The row functions of every instruction set give the bits of the plain ones: over lengths that do
 * not divide by 16, in place and not, on ordinary and on extreme values. QN_TEST_EMULATED: also
 * with emulated AVX-512.
 */
#include "support/support.h"

#include <math.h>

#include "base/fmath.h"
#include "device/cpu/cpu.h"
#include "device/cpu/rows.h"

#define MAX_N 200

static const int64_t lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, MAX_N};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

/* Numbers of all sizes, with zeros, infinities, NaN and subnormals among them if `wild`. */
static void fill(qn_test_random *r, float *x, int64_t n, bool wild)
{
    static const float odd[] = {0.0F,      -0.0F,   INFINITY, -INFINITY, NAN,
                                0x1p-149F, -1e-40F, 3.4e38F,  -3.4e38F,  0x1p-126F};
    for (int64_t i = 0; i < n; i++) {
        x[i] = qn_test_normal(r) * 3.0F;
        if (wild && qn_test_bits(r) % 4 == 0) {
            x[i] = odd[qn_test_bits(r) % (sizeof odd / sizeof odd[0])];
        } else if (wild && qn_test_bits(r) % 4 == 0) {
            x[i] = qn__bits_float(qn_test_bits(r));
        }
    }
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || qn__float_bits(a) == qn__float_bits(b);
}

static void check(const char *what, int kind, const char *isa, const float *got, const float *want,
                  int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!same(got[i], want[i])) {
            fail_msg("%s %d, %s, n %d, element %d: %a, should be %a", what, kind, isa, (int)n,
                     (int)i, (double)got[i], (double)want[i]);
        }
    }
}

typedef struct rows {
    float a[MAX_N + 1], b[MAX_N + 1], c[MAX_N + 1];  /* operands, at odd addresses */
    float want[2 * MAX_N + 16], got[2 * MAX_N + 16]; /* results and what lies behind them */
    float table[2 * MAX_N];
} rows;

#define GUARD 12345.0F

static void start(rows *m)
{
    for (size_t i = 0; i < sizeof m->want / sizeof m->want[0]; i++) {
        m->want[i] = m->got[i] = GUARD;
    }
}

/* Runs `call` with both tables, into a fresh row and in place; compares. */
#define COMPARE(what, kind, call)                                                                  \
    do {                                                                                           \
        for (int in_place = 0; in_place < 2; in_place++) {                                         \
            const qn_cpu_row_fns *f;                                                               \
            float *out;                                                                            \
            const float *a = NULL;                                                                 \
            (void)a;                                                                               \
            start(m);                                                                              \
            memcpy(m->want, m->a + 1, (size_t)n * sizeof(float));                                  \
            memcpy(m->got, m->a + 1, (size_t)n * sizeof(float));                                   \
            f = plain;                                                                             \
            out = m->want;                                                                         \
            a = in_place ? out : m->a + 1;                                                         \
            call;                                                                                  \
            f = isa->rows;                                                                         \
            out = m->got;                                                                          \
            a = in_place ? out : m->a + 1;                                                         \
            call;                                                                                  \
            check(what, kind, isa->name, m->got, m->want, n + 16);                                 \
        }                                                                                          \
    } while (0)

static void compare_elements(rows *m, const qn_cpu_row_fns *plain, const qn_cpu_isa *isa, int64_t n)
{
    const float *b = m->b + 1;
    for (int k = 0; k < QN_CPU_N_BINARY; k++) {
        COMPARE("binary", k, f->binary[k](out, a, b, n));
        COMPARE("binary_one", k, f->binary_one[k](out, a, b[0], n));
    }
    for (int k = 0; k < QN_UNARY_COUNT; k++) {
        COMPARE("unary", k, f->unary[k](out, a, n, 2.5F));
    }
    for (int k = 0; k < QN_GLU_COUNT; k++) {
        COMPARE("glu", k, f->glu[k](out, a, b, n, 1.5F));
    }
    COMPARE("scale_bias", 0, f->scale_bias(out, a, n, 1.7F, -0.3F));
    COMPARE("clamp", 0, f->clamp(out, a, n, -1.25F, 0.75F));
    COMPARE("add_scaled", 0, f->add_scaled(out, b, n, 0.37F));
}

static void compare_rows(rows *m, const qn_cpu_row_fns *plain, const qn_cpu_isa *isa, int64_t n)
{
    const float *b = m->b + 1, *c = m->c + 1;
    for (int k = 0; k < QN_NORM_COUNT; k++) {
        COMPARE("norm", k, f->norm[k](out, a, n, 1e-5F, NULL, NULL));
        COMPARE("norm with weight", k, f->norm[k](out, a, n, 1e-5F, b, NULL));
        COMPARE("norm with bias", k, f->norm[k](out, a, n, 1e-5F, NULL, c));
        COMPARE("norm with both", k, f->norm[k](out, a, n, 1e-5F, b, c));
    }
    COMPARE("soft_max", 0, f->soft_max(out, a, n));
    COMPARE("sum", 0, out[0] = f->sum(a, n));
    COMPARE("argmax", 0, out[0] = (float)f->argmax(a, n));
    COMPARE("rope_norm", 0, f->rope_norm(out, a, m->table, n / 2));
    COMPARE("rope_neox", 0, f->rope_neox(out, a, m->table, n / 2));
}

static void compare_halves(rows *m, const qn_cpu_row_fns *plain, const qn_cpu_isa *isa, int64_t n)
{
    uint16_t half[MAX_N], want[MAX_N + 16] = {0}, got[MAX_N + 16] = {0};
    for (int64_t i = 0; i < n; i++) {
        half[i] = (uint16_t)qn__float_bits(m->b[i]);
        half[i] = (uint16_t)(half[i] + (i % 3) * 0x3C01);
    }
    COMPARE("from_f16", 0, f->from_f16(out, half, n));
    COMPARE("from_bf16", 0, f->from_bf16(out, half, n));
    plain->to_f16(want, m->a + 1, n);
    isa->rows->to_f16(got, m->a + 1, n);
    for (int64_t i = 0; i < n + 16; i++) {
        assert_true(want[i] == got[i] || isnan(m->a[i + 1])); /* payloads of NaN may differ */
    }
    plain->to_bf16(want, m->a + 1, n);
    isa->rows->to_bf16(got, m->a + 1, n);
    assert_memory_equal(want, got, sizeof want);
}

static void test_equal_bits(void **state)
{
    const qn_cpu_row_fns *plain = qn__cpu_isa_at(0)->rows;
    qn_test_random r = {1};
    rows *m = malloc(sizeof *m);
    (void)state;
    assert_non_null(m);
    for (int32_t i = 1; qn__cpu_isa_at(i); i++) {
        const qn_cpu_isa *isa = qn__cpu_isa_at(i);
        printf("%s\n", isa->name);
        for (size_t k = 0; k < N_LENGTHS * 24; k++) {
            int64_t n = lengths[k % N_LENGTHS];
            bool wild = k / N_LENGTHS % 2;
            fill(&r, m->a, MAX_N + 1, wild);
            fill(&r, m->b, MAX_N + 1, wild);
            fill(&r, m->c, MAX_N + 1, wild);
            fill(&r, m->table, 2 * MAX_N, false);
            compare_elements(m, plain, isa, n);
            compare_rows(m, plain, isa, n);
            compare_halves(m, plain, isa, n);
        }
    }
    free(m);
}

/* The elementary functions over a dense sweep of all floats. */
static void test_equal_bits_sweep(void **state)
{
    static const qn_unary kinds[] = {QN_UNARY_EXP,     QN_UNARY_LOG,  QN_UNARY_TANH,
                                     QN_UNARY_SIGMOID, QN_UNARY_GELU, QN_UNARY_GELU_ERF};
    enum { BATCH = 4096 };
    const qn_cpu_row_fns *plain = qn__cpu_isa_at(0)->rows;
    const uint32_t step = 4099; /* about a million of them */
    static float x[BATCH], want[BATCH], got[BATCH];
    (void)state;
    for (int32_t i = 1; qn__cpu_isa_at(i); i++) {
        const qn_cpu_isa *isa = qn__cpu_isa_at(i);
        for (uint64_t bits = 0; bits <= UINT32_MAX;) {
            int64_t n = 0;
            for (; n < BATCH && bits <= UINT32_MAX; n++, bits += step) {
                x[n] = qn__bits_float((uint32_t)bits);
            }
            for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
                plain->unary[kinds[k]](want, x, n, 0.0F);
                isa->rows->unary[kinds[k]](got, x, n, 0.0F);
                check("sweep", (int)kinds[k], isa->name, got, want, n);
            }
        }
    }
}

/* The plain functions compute what their names say. */
static void test_plain(void **state)
{
    const qn_cpu_row_fns *f = qn__cpu_isa_at(0)->rows;
    const float x[4] = {1.0F, 2.0F, 3.0F, 6.0F};
    float y[4];
    (void)state;
    f->norm[QN_NORM_RMS](y, x, 4, 1e-5F, NULL, NULL);
    const float rms[4] = {0.2828426F, 0.5656852F, 0.8485278F, 1.6970556F};
    f->norm[QN_NORM_LAYER](y, x, 4, 1e-5F, NULL, NULL);
    const float layer[4] = {-1.0690434F, -0.5345217F, 0.0F, 1.6035652F};
    for (int i = 0; i < 4; i++) {
        assert_float_equal(y[i], layer[i], 3e-7F);
    }
    f->norm[QN_NORM_RMS](y, x, 4, 1e-5F, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        assert_float_equal(y[i], rms[i], 3e-7F);
    }
    f->norm[QN_NORM_L2_MAX](y, x, 4, 10.0F, NULL, NULL);
    assert_float_equal(y[3], 0.6F, 1e-7F);
    f->norm[QN_NORM_L2_EPS](y, x, 4, 14.0F, NULL, NULL);
    assert_float_equal(y[3], 6.0F / 8.0F, 1e-7F);
    assert_float_equal(f->sum(x, 4), 12.0F, 0.0F);
    assert_int_equal(f->argmax(x, 4), 3);
    const float ties[5] = {NAN, 1.0F, 7.0F, 7.0F, NAN};
    assert_int_equal(f->argmax(ties, 5), 2);
    const float none[2] = {NAN, -INFINITY};
    assert_int_equal(f->argmax(none, 2), 0);
    f->soft_max(y, x, 4);
    assert_float_equal(y[0] + y[1] + y[2] + y[3], 1.0F, 1e-6F);
    assert_float_equal(y[3] / y[2], 20.085537F, 1e-4F);
}

/* Vectors of the activations: GELU tanh, erf, quick at 0.3, 1.7, -2.2; gated forms. */
static void test_activations(void **state)
{
    static const struct {
        qn_unary kind;
        float want[3];
    } cases[] = {{QN_UNARY_GELU, {0.1853709F, 1.6241059F, -0.0303215F}},
                 {QN_UNARY_GELU_ERF, {0.1853734F, 1.6242387F, -0.0305876F}},
                 {QN_UNARY_GELU_QUICK, {0.1874841F, 1.6107827F, -0.0508275F}},
                 {QN_UNARY_RELU, {0.3F, 1.7F, 0.0F}},
                 {QN_UNARY_RELU_SQR, {0.09F, 2.89F, 0.0F}},
                 {QN_UNARY_SILU, {0.1723328F, 1.4374090F, -0.2194511F}},
                 {QN_UNARY_SOFTPLUS, {0.8543552F, 1.8677860F, 0.1050833F}}};
    const qn_cpu_row_fns *f = qn__cpu_isa_at(0)->rows;
    const float x[3] = {0.3F, 1.7F, -2.2F};
    float y[3];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->unary[cases[i].kind](y, x, 3, 0.0F);
        for (int j = 0; j < 3; j++) {
            assert_float_equal(y[j], cases[i].want[j], 3e-6F);
        }
    }
    const float gate[3] = {0.5F, 8.0F, -1.0F}, up[3] = {2.0F, -9.0F, 0.25F};
    const float oai[3] = {1.0511653F, -41.9997188F, -0.1927553F};
    f->glu[QN_GLU_SWIGLU_OAI](y, gate, up, 3, 0.0F);
    for (int j = 0; j < 3; j++) {
        assert_float_equal(y[j], oai[j], 4e-6F);
    }
    f->glu[QN_GLU_SWIGLU_CLAMP_OUT](y, gate, up, 3, 1.0F);
    assert_float_equal(y[1], -1.0F, 0.0F);
    f->unary[QN_UNARY_SOFT_CAP](y, x, 3, 0.5F);
    assert_float_equal(y[1], 0.5F * tanhf(3.4F), 1e-7F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_equal_bits),
        cmocka_unit_test(test_equal_bits_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
