/*
 * Figures of the small models that tests make for themselves, computed by a program of its own in
 * double precision: so that a clone without the recorded models tests the formulas too.
 */
#include "support/support.h"

#include <quern/device.h>
#include <quern/model.h>

#include <math.h>
#include <unistd.h>

#include "support/run_model.h"
#include "support/tiny_model.h"

#define N_TOKENS 48
#define N_PICKED 8  /* columns 0, 31, 62, … */
#define STEP     31 /* between picked columns */

typedef struct figures {
    qn_test_tiny_kind kind;
    int32_t row;
    float picked[N_PICKED];
    double sum_of_squares; /* of the whole row */
} figures;

static const figures expected[] = {
    {QN_TEST_TINY_LLAMA,
     0,
     {21.232971F, 7.576762F, 8.672060F, 18.581913F, 4.117862F, -3.118183F, -11.489147F, 13.823438F},
     81005.7198},
    {QN_TEST_TINY_LLAMA,
     47,
     {-21.286613F, -16.292852F, 5.514030F, 11.577674F, -5.395601F, 3.223239F, 12.801165F,
      -5.791411F},
     79646.8457},
    {QN_TEST_TINY_GEMMA3,
     0,
     {-14.097160F, 7.861805F, 8.384464F, -4.895747F, -3.988279F, 7.827005F, -20.666035F,
      -17.483028F},
     138761.0421},
    {QN_TEST_TINY_GEMMA3,
     47,
     {-32.199768F, -13.242603F, -6.469321F, 0.268489F, 2.050579F, -12.150169F, -6.467553F,
      2.319476F},
     153228.8397},
    {QN_TEST_TINY_QWEN3MOE,
     0,
     {0.045206F, 0.146524F, -0.683729F, -2.089646F, -1.541400F, 0.332200F, -0.323632F, -0.775214F},
     569.4237},
    {QN_TEST_TINY_QWEN3MOE,
     47,
     {0.911772F, 0.092541F, 0.264039F, -0.139278F, -0.393373F, -0.831162F, 0.478347F, 1.106148F},
     695.4721},
};

static void check_row(const float *row, const figures *f)
{
    double sum = 0;
    for (int i = 0; i < QN_TEST_TINY_VOCAB; i++) {
        sum += (double)row[i] * (double)row[i];
    }
    double size = sqrt(f->sum_of_squares / QN_TEST_TINY_VOCAB);
    for (int i = 0; i < N_PICKED; i++) {
        double far = fabs((double)(row[(ptrdiff_t)i * STEP] - f->picked[i])) / size;
        if (!(far < 1e-5)) {
            fail_msg("%s, row %d, column %d: %g where %g is right", qn_test_tiny_name(f->kind),
                     (int)f->row, i * STEP, (double)row[(ptrdiff_t)i * STEP], (double)f->picked[i]);
        }
    }
    assert_true(fabs(sum / f->sum_of_squares - 1.0) < 1e-5);
}

static void figures_are_right(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_device *device = NULL;
    qn_test_ok(qn_device_open(0, NULL, &device, &err), err);
    int32_t tokens[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (37 * i + 11) % 128;
    }
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        const char *path = qn_test_temporary(".gguf");
        qn_test_tiny_write(path, (qn_test_tiny_kind)kind, QN_TYPE_F32, 0);
        qn_model *model = NULL;
        qn_test_ok(qn_model_load(&model, path, NULL, &err), err);
        qn_test_batch batch = {.tokens = tokens, .n_tokens = N_TOKENS, .n_ctx = 256};
        int64_t columns = 0;
        float *rows = qn_test_run_model(model, device, &batch, &columns);
        assert_int_equal(columns, QN_TEST_TINY_VOCAB);
        for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
            if ((int)expected[i].kind == kind) {
                check_row(rows + expected[i].row * columns, &expected[i]);
            }
        }
        free(rows);
        qn_model_free(model);
        unlink(path);
    }
    qn_device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
