/* test_formats.c: properties of all formats, and blocks with known answers. */
#include "support/support.h"

#include <float.h>
#include <math.h>

#include <quern/type.h>

#include "base/fmath.h"
#include "quant/blocks.h"
#include "quant/quant.h"

enum { LONGEST = 768, MAX_ROW_BYTES = LONGEST * 4, BOUND_VALUES = 4096 };

/* The formats with an encoder, in turn: format is NULL after the last. */
typedef struct walk {
    int id;
    const qn_type_info *info;
    const qn_quant *format;
    const void *tables;
} walk;

/* Encoder tables, made when first needed and freed at the end. */
static void *all_tables[QN_TYPE_COUNT];

static int free_tables(void **state)
{
    (void)state;
    for (int i = 0; i < QN_TYPE_COUNT; i++) {
        free(all_tables[i]);
    }
    return 0;
}

static bool next_format(walk *w)
{
    while (++w->id < QN_TYPE_COUNT) {
        w->info = qn_type_get_info(w->id);
        w->format = w->info ? qn__quant_get((qn_type)w->id) : NULL;
        if (w->format && w->format->encode) {
            if (w->format->make_tables && !all_tables[w->id]) {
                all_tables[w->id] = w->format->make_tables();
                assert_non_null(all_tables[w->id]);
            }
            w->tables = all_tables[w->id];
            return true;
        }
    }
    return false;
}

static const walk first = {.id = -1};

static size_t row_bytes(const walk *w, int64_t n)
{
    size_t bytes;
    qn_error err;
    qn_test_ok(qn_type_row_bytes((qn_type)w->id, n, &bytes, &err), err);
    return bytes;
}

static void every_weight_format_has_its_row(void **state)
{
    (void)state;
    static const int integers[] = {QN_TYPE_I8, QN_TYPE_I16, QN_TYPE_I32, QN_TYPE_I64, QN_TYPE_F64};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        assert_null(qn__quant_get((qn_type)integers[i]));
    }
    assert_null(qn__quant_get((qn_type)4));
    assert_null(qn__quant_get(QN_TYPE_COUNT));
    assert_null(qn__quant_get((qn_type)-1));
    assert_true(qn__quant_get(QN_TYPE_Q8_1)->activation_only);
    assert_true(qn__quant_get(QN_TYPE_Q8_K)->activation_only);
    assert_false(qn__quant_get(QN_TYPE_Q4_K)->activation_only);
}

static void zeros_decode_to_zeros(void **state)
{
    (void)state;
    static const float x[LONGEST];
    float y[LONGEST];
    uint8_t blocks[MAX_ROW_BYTES];
    float ones[LONGEST];
    for (int i = 0; i < LONGEST; i++) {
        ones[i] = 1.0F;
    }
    for (walk w = first; next_format(&w);) {
        for (int weighted = w.format->needs_weights; weighted < 2; weighted++) {
            memset(blocks, 0xa5, sizeof blocks);
            w.format->encode(x, blocks, LONGEST, weighted ? ones : NULL, w.tables);
            w.format->decode(blocks, y, LONGEST);
            for (int i = 0; i < LONGEST; i++) {
                if (y[i] != 0.0F) {
                    fail_msg("%s: value %d of zeros is %g", w.info->name, i, (double)y[i]);
                }
            }
        }
    }
}

/* Inputs that break careless encoders. */
static void fill_degenerate(int kind, float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float wave = (float)((i * 37) % 101 - 50) / 50.0F;
        switch (kind) {
        case 0: /* all equal */
            x[i] = 0.7F;
            break;
        case 1: /* all equal, negative */
            x[i] = -0.7F;
            break;
        case 2: /* one that is not zero */
            x[i] = i == 77 ? -3.0F : 0.0F;
            break;
        case 3: /* tiny */
            x[i] = 1e-18F * wave;
            break;
        case 4: /* large */
            x[i] = 1e4F * wave;
            break;
        case 5: /* scales that are subnormal half floats */
            x[i] = 2e-6F * wave;
            break;
        case 6: /* subnormal floats */
            x[i] = 1e-40F * wave;
            break;
        case 7: /* blocks of zeros between others */
            x[i] = i / 32 % 2 ? wave : 0.0F;
            break;
        default: /* two sizes side by side */
            x[i] = i % 16 == 3 ? 100.0F * wave : 1e-3F * wave;
            break;
        }
    }
}
enum { DEGENERATE_KINDS = 9 };

static void degenerate_input_gives_finite_values(void **state)
{
    (void)state;
    float x[LONGEST];
    float y[LONGEST];
    float weights[LONGEST];
    uint8_t blocks[MAX_ROW_BYTES];
    qn_error err;
    for (int i = 0; i < LONGEST; i++) {
        weights[i] = i % 3 ? (float)(i % 5) : 0.0F;
    }
    for (int kind = 0; kind < DEGENERATE_KINDS; kind++) {
        fill_degenerate(kind, x, LONGEST);
        float amax = 0.0F;
        for (int i = 0; i < LONGEST; i++) {
            amax = fmaxf(amax, fabsf(x[i]));
        }
        for (walk w = first; next_format(&w);) {
            for (int weighted = w.format->needs_weights; weighted < 2; weighted++) {
                w.format->encode(x, blocks, LONGEST, weighted ? weights : NULL, w.tables);
                if (w.id != QN_TYPE_Q8_1) {
                    qn_test_ok(qn__quant_check((qn_type)w.id, blocks, 0, 1, LONGEST, &err), err);
                }
                w.format->decode(blocks, y, LONGEST);
                for (int i = 0; i < LONGEST; i++) {
                    /* What has no weight may come out as anything that is finite. */
                    float limit = weighted && weights[i] == 0.0F ? FLT_MAX : 2.1F * amax + 1e-30F;
                    if (!isfinite(y[i]) || fabsf(y[i]) > limit) {
                        fail_msg("%s, kind %d: value %d of %g is %g", w.info->name, kind, i,
                                 (double)x[i], (double)y[i]);
                    }
                }
            }
        }
    }
}

/* What is not a number must not lead out of the arrays or the levels; the sanitizers watch. */
static void wild_input_does_not_crash(void **state)
{
    (void)state;
    static const float wild[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45F, 0};
    float x[LONGEST];
    float y[LONGEST];
    uint8_t blocks[MAX_ROW_BYTES];
    qn_test_random random = {11};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < LONGEST; i++) {
            x[i] = qn_test_bits(&random) % 4 ? wild[qn_test_bits(&random) % 8]
                                             : qn_test_normal(&random);
            x[i] = round % 5 == 4 ? wild[round / 5] : x[i];
        }
        for (walk w = first; next_format(&w);) {
            for (int weighted = w.format->needs_weights; weighted < 2; weighted++) {
                w.format->encode(x, blocks, LONGEST, weighted ? x : NULL, w.tables);
                w.format->decode(blocks, y, LONGEST);
            }
        }
    }
}

static void random_bytes_decode(void **state)
{
    (void)state;
    float y[LONGEST];
    uint8_t blocks[MAX_ROW_BYTES];
    qn_test_random random = {12};
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof blocks; i++) {
            blocks[i] = (uint8_t)qn_test_bits(&random);
        }
        for (walk w = first; next_format(&w);) {
            w.format->decode(blocks, y, LONGEST);
            bool valid = qn__quant_check((qn_type)w.id, blocks, 0, 1, LONGEST, NULL) == QN_OK;
            bool finite = true;
            for (int i = 0; i < LONGEST; i++) {
                finite = finite && isfinite(y[i]);
            }
            /* The largest scales of these two overflow single precision without being invalid. */
            bool may_overflow = w.id == QN_TYPE_MXFP4 || w.id == QN_TYPE_Q8_K;
            assert_true(!valid || finite || may_overflow);
        }
    }
}

static void blocks_of_a_row_are_independent(void **state)
{
    (void)state;
    float x[LONGEST];
    uint8_t row[MAX_ROW_BYTES];
    uint8_t block[MAX_ROW_BYTES];
    float weights[LONGEST];
    qn_test_random random = {13};
    for (int i = 0; i < LONGEST; i++) {
        x[i] = qn_test_normal(&random);
        weights[i] = 1.0F;
    }
    for (walk w = first; next_format(&w);) {
        const float *qw = w.format->needs_weights ? weights : NULL;
        int64_t n = w.info->block_values;
        w.format->encode(x, row, LONGEST, qw, w.tables);
        for (int64_t i = 0; i < LONGEST / n; i++) {
            w.format->encode(x + i * n, block, n, qw, w.tables);
            assert_memory_equal(block, row + row_bytes(&w, i * n), w.info->block_bytes);
        }
        /* Neighbours do not count: the same row with other values behind it. */
        uint8_t before[MAX_ROW_BYTES];
        w.format->encode(x, before, 256, qw, w.tables);
        assert_memory_equal(before, row, row_bytes(&w, 256));
    }
}

static void encoders_do_not_write_past_the_row(void **state)
{
    (void)state;
    float x[LONGEST];
    uint8_t blocks[MAX_ROW_BYTES + 16];
    float y[LONGEST + 4];
    qn_test_random random = {14};
    for (int i = 0; i < LONGEST; i++) {
        x[i] = qn_test_normal(&random);
    }
    for (walk w = first; next_format(&w);) {
        for (int64_t n = 256; n <= LONGEST; n += 256) {
            size_t bytes = row_bytes(&w, n);
            memset(blocks, 0xee, sizeof blocks);
            w.format->encode(x, blocks, n, w.format->needs_weights ? x : NULL, w.tables);
            y[n] = 42.0F;
            w.format->decode(blocks, y, n);
            assert_true(y[n] == 42.0F);
            for (int i = 0; i < 16; i++) {
                assert_int_equal(blocks[bytes + (size_t)i], 0xee);
            }
        }
    }
}

/* Error of decoding: sqrt(sum of squares) / n. */
static const struct {
    qn_type type;
    double limit;
} bounds[] = {
    {QN_TYPE_Q1_0, 0.025},    {QN_TYPE_Q2_0, 0.01},     {QN_TYPE_TQ1_0, 0.01},
    {QN_TYPE_TQ2_0, 0.01},    {QN_TYPE_Q2_K, 0.0075},   {QN_TYPE_IQ2_S, 0.0075},
    {QN_TYPE_Q3_K, 0.0040},   {QN_TYPE_IQ3_S, 0.0040},  {QN_TYPE_IQ3_XXS, 0.0050},
    {QN_TYPE_IQ2_XS, 0.0075}, {QN_TYPE_IQ2_XXS, 0.009}, {QN_TYPE_IQ1_S, 0.012},
    {QN_TYPE_IQ1_M, 0.015},   {QN_TYPE_NVFP4, 0.0030},
};

static void decoding_stays_within_the_bounds(void **state)
{
    (void)state;
    static const double amplitude[] = {2.0, 2.0, 1.0, 1.5};
    static const float phase[] = {0.0F, 1.0F, 3.0F, 4.0F};
    float *x = malloc(BOUND_VALUES * sizeof *x);
    float *y = malloc(BOUND_VALUES * sizeof *y);
    float *ones = malloc(BOUND_VALUES * sizeof *ones);
    uint8_t *blocks = malloc(BOUND_VALUES * 4);
    assert_true(x && y && ones && blocks);
    for (int row = 0; row < 4; row++) {
        for (int i = 0; i < BOUND_VALUES; i++) {
            x[i] = (float)(0.1 + amplitude[row] * (double)cosf((float)i + phase[row]));
            ones[i] = 1.0F;
        }
        for (walk w = first; next_format(&w);) {
            double limit = 0.002;
            for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
                limit = (int)bounds[i].type == w.id ? bounds[i].limit : limit;
            }
            w.format->encode(x, blocks, BOUND_VALUES, w.format->needs_weights ? ones : NULL,
                             w.tables);
            w.format->decode(blocks, y, BOUND_VALUES);
            double sum = 0.0;
            for (int i = 0; i < BOUND_VALUES; i++) {
                sum += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
            }
            double error = sqrt(sum) / BOUND_VALUES;
            if (error >= limit) {
                fail_msg("%s, row %d: error %g", w.info->name, row + 1, error);
            }
        }
    }
    free(x);
    free(y);
    free(ones);
    free(blocks);
}

static void bad_scales_are_found(void **state)
{
    (void)state;
    qn_error err;
    uint8_t blocks[MAX_ROW_BYTES];
    for (walk w = first; next_format(&w);) {
        for (int h = 0; h < w.format->half_count; h++) {
            static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e01};
            for (int b = 0; b < 3; b++) {
                int64_t n = w.info->block_values;
                memset(blocks, 0, sizeof blocks);
                assert_int_equal(qn__quant_check((qn_type)w.id, blocks, 0, 3, n, &err), QN_OK);
                memcpy(blocks + 2 * w.info->block_bytes + w.format->half_at[h], &bad[b], 2);
                assert_int_equal(qn__quant_check((qn_type)w.id, blocks, 0, 3, n, &err),
                                 QN_ERR_FORMAT);
                assert_non_null(strstr(err.message, "row 2, block 0"));
                assert_int_equal(qn__quant_check((qn_type)w.id, blocks, 0, 2, n, &err), QN_OK);
            }
        }
    }
    float f[100] = {0};
    f[99] = INFINITY;
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_F32, f, 100), 99);
    f[70] = NAN;
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_F32, f, 100), 70);
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_F32, f, 70), -1);
    double d[3] = {0.0, 1.0, NAN};
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_F64, d, 3), 2);
    uint16_t h[3] = {0x3c00, 0x7f80, 0x7c00};
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_F16, h, 3), 1);
    h[1] = 0x7bff;
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_F16, h, 3), 2);
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_BF16, h, 3), -1);
    qn_block_mxfp4 mx[2] = {{.e = 254}, {.e = 255}};
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_MXFP4, mx, 2), 1);
    qn_block_q8_k q8[1] = {{.d = NAN}};
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_Q8_K, q8, 1), 0);
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_Q8_1, blocks, 1), 0);
    memset(blocks, 0xff, sizeof blocks);
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_NVFP4, blocks, 9), -1);
    assert_int_equal(qn__quant_find_invalid(QN_TYPE_I32, blocks, 9), -1);
    assert_int_equal(qn__quant_check(QN_TYPE_Q4_0, blocks, 0, 1, 33, &err), QN_ERR_FORMAT);
}

static void known_blocks_of_q4_0(void **state)
{
    (void)state;
    const qn_quant *format = qn__quant_get(QN_TYPE_Q4_0);
    qn_block_q4_0 b;
    /* Largest magnitude twice, first the negative: d = -8 / -8 = 1, levels x + 8. */
    float x[32] = {-8.0F, 8.0F, 0.0F, 1.0F, -1.0F, 7.0F, 0.49F, -0.5F};
    format->encode(x, &b, 32, NULL, NULL);
    assert_int_equal(b.d, 0x3c00);
    static const uint8_t levels[8] = {0, 15, 8, 9, 7, 15, 8, 8};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(b.qs[i], levels[i] | 8 << 4);
    }
    /* The positive first: d = -1, the levels turn. */
    x[0] = 8.0F;
    x[1] = -8.0F;
    format->encode(x, &b, 32, NULL, NULL);
    assert_int_equal(b.d, 0xbc00);
    assert_int_equal(b.qs[0] & 15, 0);
    assert_int_equal(b.qs[1] & 15, 15);
    assert_int_equal(b.qs[3] & 15, 7);
    float y[32];
    format->decode(&b, y, 32);
    assert_true(y[0] == 8.0F && y[1] == -7.0F && y[3] == 1.0F);
}

static void known_blocks_of_q8_0_and_mxfp4(void **state)
{
    (void)state;
    float x[32] = {127.0F, -127.0F, 0.5F, -0.5F, 1.5F, 2.5F, 0.49999997F};
    float y[32];
    qn_block_q8_0 b;
    qn__quant_get(QN_TYPE_Q8_0)->encode(x, &b, 32, NULL, NULL);
    static const int8_t levels[7] = {127, -127, 1, -1, 2, 3, 0}; /* halves away from zero */
    assert_int_equal(b.d, 0x3c00);
    assert_memory_equal(b.qs, levels, sizeof levels);

    qn_block_mxfp4 m;
    for (int i = 0; i < 16; i++) {
        x[i] = x[16 + i] = (float)qn__e2m1_values[i] * 0.5F;
    }
    qn__quant_get(QN_TYPE_MXFP4)->encode(x, &m, 32, NULL, NULL);
    assert_int_equal(m.e, 127); /* 2^0 covers 6 */
    qn__quant_get(QN_TYPE_MXFP4)->decode(&m, y, 32);
    for (int i = 0; i < 32; i++) {
        assert_true(y[i] == x[i]);
    }
    /* The logarithm in single precision: just below a power of two counts as it, one more not. */
    static const struct {
        uint32_t bits;
        int e;
    } exponents[] = {{0x3dffffffU, 122}, {0x3dfffffeU, 121}, {0x3e000000U, 122},
                     {0x7f7fffffU, 253}, {0x00800000U, 0},   {0x00000001U, 0},
                     {0x3fffffffU, 125}, {0x40000000U, 126}};
    for (size_t i = 0; i < sizeof exponents / sizeof exponents[0]; i++) {
        memset(x, 0, sizeof x);
        x[5] = qn__bits_float(exponents[i].bits);
        qn__quant_get(QN_TYPE_MXFP4)->encode(x, &m, 32, NULL, NULL);
        float logarithm = floorf(log2f(x[5]));
        assert_int_equal(m.e, logarithm < -125.0F ? 0 : (int)logarithm + 125);
        assert_int_equal(m.e, exponents[i].e);
    }
}

static void scale_fields_unpack(void **state)
{
    (void)state;
    uint8_t packed[12];
    uint8_t scale[16];
    uint8_t minimum[8];
    for (int i = 0; i < 12; i++) {
        packed[i] = (uint8_t)(i * 21 + 3);
    }
    qn__q4_k_scales(packed, scale, minimum);
    for (int s = 0; s < 8; s++) {
        int want_scale = s < 4 ? packed[s] & 63 : (packed[s + 4] & 15) | packed[s - 4] >> 6 << 4;
        int want_min = s < 4 ? packed[s + 4] & 63 : packed[s + 4] >> 4 | packed[s] >> 6 << 4;
        assert_int_equal(scale[s], want_scale);
        assert_int_equal(minimum[s], want_min);
    }
    qn__q3_k_scales(packed, scale);
    assert_int_equal(scale[0], (packed[0] & 15) | (packed[8] & 3) << 4);
    assert_int_equal(scale[13], packed[5] >> 4 | (packed[9] >> 6 & 3) << 4);
}

static void half_floats_are_exact(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = qn__f16_to_f32((uint16_t)h);
        bool is_nan = (h & 0x7fff) > 0x7c00;
        assert_int_equal(isnan(f) != 0, is_nan);
        assert_int_equal(qn__f32_to_f16(f), is_nan ? (h & 0x8000) | 0x7e00 : h);
        double exact = (h & 0x7c00) ? ldexp(1024 + (h & 0x3ff), (int)(h >> 10 & 31) - 25)
                                    : ldexp(h & 0x3ff, -24);
        if ((h & 0x7c00) != 0x7c00) {
            assert_true((double)fabsf(f) == exact);
            assert_int_equal(signbit(f) != 0, h >> 15);
        }
        /* Between this and the next: the middle goes to the even one. */
        if ((h & 0x7fff) < 0x7bff) {
            float next = qn__f16_to_f32((uint16_t)(h + 1));
            float middle = (f + next) / 2.0F;
            assert_int_equal(qn__f32_to_f16(middle), h + (h & 1));
            assert_int_equal(qn__f32_to_f16(nextafterf(middle, f)), h);
            assert_int_equal(qn__f32_to_f16(nextafterf(middle, next)), h + 1);
        }
        float wide = qn__bf16_to_f32((uint16_t)h);
        assert_int_equal(qn__f32_to_bf16(wide), isnan(wide) ? h | 0x40 : h);
    }
    assert_int_equal(qn__f32_to_f16(65519.996F), 0x7bff);
    assert_int_equal(qn__f32_to_f16(65520.0F), 0x7c00);
    assert_int_equal(qn__f32_to_f16(1e-8F), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_format_has_its_row),
        cmocka_unit_test(zeros_decode_to_zeros),
        cmocka_unit_test(degenerate_input_gives_finite_values),
        cmocka_unit_test(wild_input_does_not_crash),
        cmocka_unit_test(random_bytes_decode),
        cmocka_unit_test(blocks_of_a_row_are_independent),
        cmocka_unit_test(encoders_do_not_write_past_the_row),
        cmocka_unit_test(decoding_stays_within_the_bounds),
        cmocka_unit_test(bad_scales_are_found),
        cmocka_unit_test(known_blocks_of_q4_0),
        cmocka_unit_test(known_blocks_of_q8_0_and_mxfp4),
        cmocka_unit_test(scale_fields_unpack),
        cmocka_unit_test(half_floats_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, free_tables);
}
