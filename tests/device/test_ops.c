/*
 * The operations as nodes: numbers of the specification, strided operands, repeated operands, rows
 * of length 0, results in the place of an operand. Every case runs on every instruction set.
 * QN_TEST_EMULATED: also with emulated AVX-512.
 */
#include "support/support.h"

#include <math.h>

#include "base/fmath.h"
#include "device/cpu/cpu.h"
#include "device/plan.h"

/* A graph on the instruction set of the moment. */
typedef struct bench {
    const char *isa;
    qn_graph *g;
    qn_device *device;
    qn_plan *plan;
} bench;

static void start(bench *b)
{
    b->g = qn__graph_make(NULL);
    assert_non_null(b->g);
}

static void make(bench *b)
{
    qn_error err;
    qn_device_options options = qn_device_defaults();
    options.isa = b->isa;
    options.threads.n_threads = 2;
    qn_test_ok(qn_device_open(0, &options, &b->device, &err), err);
    qn_test_ok(qn__plan_make(b->g, b->device, NULL, &b->plan, &err), err);
}

static void run(bench *b)
{
    qn_error err;
    qn_test_ok(qn__plan_run(b->plan, 0, NULL, &err), err);
}

static void end(bench *b)
{
    qn__plan_free(b->plan);
    qn__graph_free(b->g);
    qn_device_free(b->device);
}

static qn_node *input(bench *b, int64_t ne0, int64_t ne1, int64_t ne2)
{
    return qn__graph_input(b->g, QN_TYPE_F32, 3, (int64_t[]){ne0, ne1, ne2}, "x");
}

static qn_node *input_ids(bench *b, int64_t ne0, int64_t ne1)
{
    return qn__graph_input(b->g, QN_TYPE_I32, 2, (int64_t[]){ne0, ne1}, "ids");
}

static void set(qn_node *node, const float *values, size_t n)
{
    memcpy(node->data, values, n * sizeof *values);
}

static void set_ids(qn_node *node, const int32_t *values, size_t n)
{
    memcpy(node->data, values, n * sizeof *values);
}

static void close_to(const qn_node *node, const float *want, int64_t n, float limit)
{
    for (int64_t i = 0; i < n; i++) {
        float got = ((const float *)node->data)[i];
        if (!(fabsf(got - want[i]) <= limit)) {
            fail_msg("%s '%s' element %d: %.9g, should be %.9g", qn__op_name(node->op), node->name,
                     (int)i, (double)got, (double)want[i]);
        }
    }
}

/* x = 1 .. 8 at position 3, and longer heads. */
static void rope_case(bench *b, const qn_rope_params *p, const float *factors, int n_positions,
                      const int32_t *positions, int64_t d, int first, const float *want)
{
    start(b);
    qn_node *pos = input_ids(b, 1, n_positions);
    qn_node *ff =
        factors ? qn__graph_input(b->g, QN_TYPE_F32, 1, (int64_t[]){p->n_rot / 2}, "ff") : NULL;
    qn_node *x = input(b, d, 1, 1);
    qn_node *table = qn__graph_rope_table(b->g, pos, ff, p);
    qn_node *y =
        qn__graph_output(b->g, qn__graph_rope(b->g, x, table, p->mode, p->n_rot, first), "turned");
    make(b);
    set_ids(pos, positions, (size_t)n_positions);
    if (ff) {
        set(ff, factors, (size_t)p->n_rot / 2);
    }
    for (int64_t i = 0; i < d; i++) {
        ((float *)x->data)[i] = (float)(i + 1);
    }
    run(b);
    close_to(y, want, d, 2e-6F);
    end(b);
}

static void rope(bench *b)
{
    static const int32_t three = 3;
    qn_rope_params p = {.mode = QN_ROPE_NORM,
                        .n_rot = 8,
                        .freq_base = 10000.0F,
                        .freq_scale = 1.0F,
                        .attn_factor = 1.0F};
    rope_case(b, &p, NULL, 1, &three, 8, 0,
              (float[]){-1.2722325F, -1.838865F, 1.6839286F, 4.7079066F, 4.8177772F, 6.1472777F,
                        6.9759685F, 8.020964F});
    rope_case(b, &p, (float[]){1, 2, 4, 8}, 1, &three, 8, 0,
              (float[]){-1.2722325F, -1.838865F, 2.3685607F, 4.4033987F, 4.9548598F, 6.0373309F,
                        6.9969995F, 8.0026244F});
    p.mode = QN_ROPE_NEOX;
    rope_case(b, &p, NULL, 1, &three, 8, 0,
              (float[]){-1.6955925F, 0.1375517F, 2.7886816F, 3.975982F, -4.8088425F, 6.3230593F,
                        7.0868367F, 8.011964F});
    p.n_rot = 4;
    rope_case(b, &p, NULL, 1, &three, 8, 0,
              (float[]){-1.4133525F, 1.8791181F, -2.8288575F, 4.0581911F, 5, 6, 7, 8});
}

/* The last elements of a head turn, the others pass. */
static void rope_tail(bench *b)
{
    static const int32_t position = 7;
    const qn_rope_params p = {.mode = QN_ROPE_NORM,
                              .n_rot = 2,
                              .freq_base = 10000.0F,
                              .freq_scale = 0.5F,
                              .attn_factor = 2.0F};
    float c = 2.0F * (float)cos(3.5), s = 2.0F * (float)sin(3.5);
    rope_case(b, &p, NULL, 1, &position, 6, 4, (float[]){1, 2, 3, 4, 5 * c - 6 * s, 5 * s + 6 * c});
}

static void table_case(bench *b, const qn_rope_params *p, int n_positions, const int32_t *positions,
                       const float *want)
{
    start(b);
    qn_node *pos = input_ids(b, 1, n_positions);
    qn_node *table = qn__graph_output(b->g, qn__graph_rope_table(b->g, pos, NULL, p), "table");
    make(b);
    set_ids(pos, positions, (size_t)n_positions);
    run(b);
    close_to(table, want, p->n_rot, 2e-6F);
    end(b);
}

static void rope_tables(bench *b)
{
    static const float c[8] = {-0.7593953F, -1.1364378F, -0.473837F, 1.0821708F,
                               1.132941F,   1.1380602F,  1.1385725F, 1.1386237F};
    static const float s[8] = {0.8484078F, -0.070613F, 1.0353528F, 0.3540951F,
                               0.1136733F, 0.0360006F, 0.0113861F, 0.0036007F};
    float want[16];
    for (int j = 0; j < 8; j++) {
        want[2 * j] = c[j];
        want[2 * j + 1] = s[j];
    }
    const qn_rope_params yarn = {.mode = QN_ROPE_NEOX,
                                 .n_rot = 16,
                                 .n_ctx_orig = 64,
                                 .freq_base = 10000.0F,
                                 .freq_scale = 0.25F,
                                 .ext_factor = 1.0F,
                                 .attn_factor = 1.0F,
                                 .beta_fast = 32.0F,
                                 .beta_slow = 1.0F};
    table_case(b, &yarn, 1, (int32_t[]){40}, want);

    /* A text token has the positions (p, p, p, 0). Sections that cover all pairs, and sections
     * after which the numbering starts again. */
    qn_rope_params sections = {.mode = QN_ROPE_IMROPE,
                               .n_rot = 8,
                               .freq_base = 10000.0F,
                               .freq_scale = 1.0F,
                               .attn_factor = 1.0F,
                               .sections = {2, 1, 1, 0}};
    const int32_t text[4] = {5, 5, 5, 0};
    const double angles[4] = {5.0, 0.5, 0.05, 0.005};
    for (int j = 0; j < 4; j++) {
        want[2 * j] = (float)cos(angles[j]);
        want[2 * j + 1] = (float)sin(angles[j]);
    }
    table_case(b, &sections, 4, text, want);
    sections.sections[0] = 1;
    table_case(b, &sections, 4, text, want);
    /* The first two pairs by t, the third by y, the fourth by x. */
    sections = (qn_rope_params){.mode = QN_ROPE_MROPE,
                                .n_rot = 8,
                                .freq_base = 10000.0F,
                                .freq_scale = 1.0F,
                                .attn_factor = 1.0F,
                                .sections = {2, 1, 1, 0}};
    const double four[4] = {5.0, 0.5, 0.07, 0.009};
    for (int j = 0; j < 4; j++) {
        want[2 * j] = (float)cos(four[j]);
        want[2 * j + 1] = (float)sin(four[j]);
    }
    table_case(b, &sections, 4, (int32_t[]){5, 7, 9, 11}, want);
}

static void moe_case(bench *b, const qn_moe_params *p, const float *bias, const int32_t *want,
                     const float *weights)
{
    static const float logits[8] = {0.1F, 1.2F, -0.3F, 0.9F, 2.0F, -1.0F, 0.4F, 1.1F};
    start(b);
    qn_node *x = input(b, 8, 1, 1);
    qn_node *choice = bias ? input(b, 8, 1, 1) : NULL;
    qn_node *ids = qn__graph_output(b->g, qn__graph_moe_select(b->g, x, choice, p), "chosen");
    qn_node *w = qn__graph_output(b->g, qn__graph_moe_weights(b->g, x, ids, p), "weights");
    make(b);
    set(x, logits, 8);
    if (bias) {
        set(choice, bias, 8);
    }
    run(b);
    for (int i = 0; i < p->n_used; i++) {
        assert_int_equal(((const int32_t *)ids->data)[i], want[i]);
    }
    close_to(w, weights, p->n_used, 1e-6F);
    end(b);
}

static void moe(bench *b)
{
    static const float bias[8] = {0, -0.3F, 0.2F, 0.1F, -0.5F, 0.4F, 0.3F, 0};
    qn_moe_params p = {.gate = QN_MOE_SIGMOID, .n_used = 3, .n_groups = 4, .n_groups_used = 2};
    moe_case(b, &p, bias, (int32_t[]){6, 3, 7}, (float[]){0.5986877F, 0.7109495F, 0.7502601F});
    p.normalize = true;
    p.scale = 2.5F;
    moe_case(b, &p, bias, (int32_t[]){6, 3, 7}, (float[]){0.7265989F, 0.8628458F, 0.9105552F});
    p = (qn_moe_params){.gate = QN_MOE_SOFT_MAX, .n_used = 2};
    moe_case(b, &p, NULL, (int32_t[]){4, 1}, (float[]){0.3717084F, 0.1670194F});
    p.normalize = true;
    moe_case(b, &p, NULL, (int32_t[]){4, 1}, (float[]){0.6899745F, 0.3100255F});
    p = (qn_moe_params){.gate = QN_MOE_SOFT_MAX_CHOSEN, .n_used = 2};
    moe_case(b, &p, NULL, (int32_t[]){4, 1}, (float[]){0.6899745F, 0.3100255F});
    p = (qn_moe_params){.gate = QN_MOE_SQRT_SOFTPLUS, .n_used = 1};
    moe_case(b, &p, NULL, (int32_t[]){4}, (float[]){1.4583992F});
    p = (qn_moe_params){.gate = QN_MOE_SIGMOID, .n_used = 1, .select_by_logit = true};
    moe_case(b, &p, NULL, (int32_t[]){4}, (float[]){0.8807971F});
}

/* Ties go to the lower index, NaN is below everything, all experts differ. */
static void moe_ties(bench *b)
{
    const qn_moe_params p = {.gate = QN_MOE_SOFT_MAX_CHOSEN, .n_used = 5};
    start(b);
    qn_node *x = input(b, 5, 2, 1);
    qn_node *logits = qn__graph_reshape(b->g, x, 5, 2, 1, 1);
    qn_node *ids = qn__graph_output(b->g, qn__graph_moe_select(b->g, logits, NULL, &p), "chosen");
    make(b);
    set(x, (float[]){1, 2, 2, 2, 1, NAN, -INFINITY, NAN, 3, -INFINITY}, 10);
    run(b);
    static const int32_t want[10] = {1, 2, 3, 0, 4, 3, 1, 4, 0, 2};
    assert_memory_equal(ids->data, want, sizeof want);
    end(b);
}

static void moe_sum(bench *b)
{
    start(b);
    qn_node *x = input(b, 3, 2, 2), *w = input(b, 2, 2, 1);
    qn_node *sum = qn__graph_output(
        b->g, qn__graph_moe_sum(b->g, x, qn__graph_reshape(b->g, w, 2, 2, 1, 1)), "sum");
    qn_node *plain = qn__graph_output(b->g, qn__graph_moe_sum(b->g, x, NULL), "plain");
    qn_node *rows = input(b, 3, 4, 1), *ids = input_ids(b, 2, 2);
    qn_node *biased = qn__graph_output(b->g, qn__graph_add_id(b->g, x, rows, ids), "biased");
    make(b);
    set(x, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12);
    set(w, (float[]){0.5F, 2, 1, -1}, 4);
    set(rows, (float[]){0, 0, 0, 100, 100, 100, 200, 200, 200, 300, 300, 300}, 12);
    set_ids(ids, (int32_t[]){3, 1, 0, 99}, 4);
    run(b);
    close_to(sum, (float[]){8.5F, 11, 13.5F, -3, -3, -3}, 6, 0.0F);
    close_to(plain, (float[]){5, 7, 9, 17, 19, 21}, 6, 0.0F);
    close_to(biased, (float[]){301, 302, 303, 104, 105, 106, 7, 8, 9, 10, 11, 12}, 12, 0.0F);
    end(b);
}

/* Operands that are parts and turned views of something larger, and operands that repeat. */
static void strides(bench *b)
{
    start(b);
    qn_node *x = input(b, 5, 3, 2), *one = input(b, 1, 3, 1), *plane = input(b, 5, 1, 2);
    qn_node *part = qn__graph_slice(b->g, x, 1, 3);
    qn_node *turned = qn__graph_permute(b->g, part, 0, 2, 1, 3); /* [3, 2, 3] */
    qn_node *doubled =
        qn__graph_output(b->g, qn__graph_scale_bias(b->g, turned, 2.0F, 1.0F), "doubled");
    qn_node *down = qn__graph_output(
        b->g, qn__graph_copy(b->g, qn__graph_permute(b->g, x, 1, 0, 2, 3), QN_TYPE_F32), "down");
    qn_node *repeated =
        qn__graph_output(b->g, qn__graph_mul(b->g, qn__graph_add(b->g, x, one), plane), "repeated");
    qn_node *sums = qn__graph_output(b->g, qn__graph_sum_rows(b->g, turned), "sums");
    make(b);
    float values[30];
    for (int i = 0; i < 30; i++) {
        values[i] = (float)i;
    }
    set(x, values, 30);
    set(one, (float[]){100, 200, 300}, 3);
    set(plane, (float[]){1, 2, 3, 4, 5, -1, -2, -3, -4, -5}, 10);
    run(b);
    for (int i2 = 0; i2 < 3; i2++) {
        for (int i1 = 0; i1 < 2; i1++) {
            float total = 0.0F;
            for (int i0 = 0; i0 < 3; i0++) {
                float v = values[(i1 * 3 + i2) * 5 + i0 + 1];
                total += v;
                assert_float_equal(((float *)doubled->data)[(i2 * 2 + i1) * 3 + i0],
                                   2.0F * v + 1.0F, 0.0F);
            }
            assert_float_equal(((float *)sums->data)[i2 * 2 + i1], total, 0.0F);
        }
    }
    for (int i = 0; i < 30; i++) {
        int i0 = i % 5, i1 = i / 5 % 3, i2 = i / 15;
        assert_float_equal(((float *)down->data)[(i2 * 5 + i0) * 3 + i1], values[i], 0.0F);
        float factor = (float)((i0 + 1) * (i2 ? -1 : 1));
        assert_float_equal(((float *)repeated->data)[i],
                           (values[i] + (float)(100 * (i1 + 1))) * factor, 0.0F);
    }
    end(b);
}

static void moving(bench *b)
{
    start(b);
    qn_node *table = input(b, 4, 5, 1), *ids = input_ids(b, 3, 1), *rows = input(b, 4, 3, 1);
    qn_node *flat = qn__graph_reshape(b->g, ids, 3, 1, 1, 1);
    qn_node *got = qn__graph_output(b->g, qn__graph_get_rows(b->g, table, flat), "got");
    qn_node *put = qn__graph_output(b->g, qn__graph_set_rows(b->g, table, rows, flat), "put");
    qn_node *low = qn__graph_output(b->g, qn__graph_concat(b->g, rows, table, 1), "low");
    qn_node *wide = qn__graph_output(b->g, qn__graph_concat(b->g, rows, rows, 0), "wide");
    qn_node *half = qn__graph_copy(b->g, qn__graph_permute(b->g, rows, 1, 0, 2, 3), QN_TYPE_BF16);
    qn_node *back = qn__graph_output(b->g, qn__graph_copy(b->g, half, QN_TYPE_F16), "back");
    make(b);
    float values[20], others[12];
    for (int i = 0; i < 20; i++) {
        values[i] = (float)i;
        others[i % 12] = (float)(-(i % 12) - 1);
    }
    set(table, values, 20);
    set(rows, others, 12);
    set_ids(ids, (int32_t[]){4, -1, 0}, 3);
    run(b);
    close_to(got, (float[]){16, 17, 18, 19, 0, 0, 0, 0, 0, 1, 2, 3}, 12, 0.0F);
    close_to(put,
             (float[]){-9, -10, -11, -12, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1, -2, -3, -4},
             20, 0.0F);
    close_to(low, others, 12, 0.0F);
    assert_float_equal(((float *)low->data)[12 + 19], 19.0F, 0.0F);
    close_to(wide, (float[]){-1, -2, -3, -4, -1, -2, -3, -4}, 8, 0.0F);
    for (int i = 0; i < 12; i++) {
        float x = qn__f16_to_f32(((const uint16_t *)back->data)[i]);
        assert_float_equal(x, others[i % 3 * 4 + i / 3], 0.0F);
    }
    end(b);
}

/* Nothing to do is done without harm. */
static void empty(bench *b)
{
    start(b);
    qn_node *x = input(b, 8, 0, 1), *y = input(b, 0, 3, 1);
    qn_node *ids = input_ids(b, 0, 1);
    const qn_rope_params p = {
        .n_rot = 8, .freq_base = 10000.0F, .freq_scale = 1.0F, .attn_factor = 1.0F};
    qn_node *flat = qn__graph_reshape(b->g, ids, 0, 1, 1, 1);
    qn_node *table = qn__graph_rope_table(b->g, flat, NULL, &p);
    qn_node *three = qn__graph_reshape(b->g, x, 8, 2, 0, 1);
    qn__graph_output(b->g, qn__graph_rope(b->g, three, table, QN_ROPE_NORM, 8, 0), "a");
    qn__graph_output(b->g, qn__graph_norm(b->g, x, QN_NORM_LAYER, 1e-5F, NULL, NULL), "b");
    qn__graph_output(b->g, qn__graph_unary(b->g, y, QN_UNARY_EXP), "c");
    qn_node *sums = qn__graph_output(b->g, qn__graph_sum_rows(b->g, y), "d");
    qn__graph_output(b->g, qn__graph_soft_max(b->g, y), "e");
    qn__graph_output(b->g, qn__graph_concat(b->g, x, x, 1), "f");
    make(b);
    run(b);
    close_to(sums, (float[]){0, 0, 0}, 3, 0.0F);
    end(b);
}

#define ON_ALL(subject)                                                                            \
    static void test_##subject(void **state)                                                       \
    {                                                                                              \
        (void)state;                                                                               \
        for (int32_t i = 0; qn__cpu_isa_at(i); i++) {                                              \
            bench b = {.isa = qn__cpu_isa_at(i)->name};                                            \
            subject(&b);                                                                           \
        }                                                                                          \
    }

ON_ALL(rope)
ON_ALL(rope_tail)
ON_ALL(rope_tables)
ON_ALL(moe)
ON_ALL(moe_ties)
ON_ALL(moe_sum)
ON_ALL(strides)
ON_ALL(moving)
ON_ALL(empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope),        cmocka_unit_test(test_rope_tail),
        cmocka_unit_test(test_rope_tables), cmocka_unit_test(test_moe),
        cmocka_unit_test(test_moe_ties),    cmocka_unit_test(test_moe_sum),
        cmocka_unit_test(test_strides),     cmocka_unit_test(test_moving),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
