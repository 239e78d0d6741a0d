/* test_rope.c: the angles of RoPE at the ends of what a model file can ask for. The usual ones are
 * tested with the operation (test_ops.c) and with the store's shift. */
#include "support/support.h"

#include <math.h>

#include "device/rope.h"

#define N_ROT 24

static void assert_turns(const qn_rope_params *p, int32_t at)
{
    float row[N_ROT];
    qn_rope_turn turn = qn__rope_turn(p);
    turn.magnitude = 1.0F;
    qn__rope_row(p, &turn, NULL, (const int32_t[4]){at, at, at, at}, row);
    for (int j = 0; j < N_ROT; j += 2) {
        float length = row[j] * row[j] + row[j + 1] * row[j + 1];
        assert_true(length > 0.9999F && length < 1.0001F); /* not for a NaN */
        assert_true(at != 0 || (row[j] == 1.0F && row[j + 1] == 0.0F));
    }
}

static void extreme_parameters_turn_by_finite_angles(void **state)
{
    (void)state;
    static const float bases[] = {1.0F, 0x1p-100F, 1.0000001F, 1e30F};
    static const float turns[] = {1e-30F, 1.0F, 32.0F, 1e30F};
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        for (size_t t = 0; t < sizeof turns / sizeof turns[0]; t++) {
            const qn_rope_params p = {.mode = QN_ROPE_NEOX,
                                      .n_rot = N_ROT,
                                      .n_ctx_orig = 1,
                                      .freq_base = bases[b],
                                      .freq_scale = 0.25F,
                                      .ext_factor = 1.0F,
                                      .attn_factor = 1.0F,
                                      .beta_fast = turns[t],
                                      .beta_slow = turns[3 - t]};
            assert_turns(&p, 0);
            if (bases[b] >= 1.0F) {
                assert_turns(&p, 1);
                assert_turns(&p, -(1 << 30));
                assert_turns(&p, (1 << 30) - 1);
            }
        }
    }
}

/* A base below 1 makes angles grow from pair to pair. */
static void angles_without_digits_are_nan(void **state)
{
    (void)state;
    const qn_rope_params p = {.mode = QN_ROPE_NORM,
                              .n_rot = N_ROT,
                              .freq_base = 1e-38F,
                              .freq_scale = 1.0F,
                              .attn_factor = 1.0F};
    const qn_rope_turn turn = qn__rope_turn(&p);
    float row[N_ROT];
    qn__rope_row(&p, &turn, (const float[N_ROT / 2]){[0] = 1.0F, [1] = 1e-30F},
                 (const int32_t[4]){1}, row);
    assert_true(fabs((double)row[0] - cos(1.0)) < 1e-6);
    for (int i = 2; i < N_ROT; i++) {
        assert_true(isnan(row[i]));
    }
}

static void sections_choose_positions(void **state)
{
    (void)state;
    const qn_rope_params p = {.mode = QN_ROPE_MROPE,
                              .n_rot = N_ROT,
                              .sections = {1, 2, 0, INT32_MAX},
                              .freq_base = 1.0F,
                              .freq_scale = 1.0F,
                              .attn_factor = 2.0F};
    const qn_rope_turn turn = qn__rope_turn(&p);
    float row[N_ROT];
    qn__rope_row(&p, &turn, NULL, (const int32_t[4]){1, 2, 3, 4}, row);
    static const double angle[N_ROT / 2] = {1, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4};
    for (int j = 0; j < N_ROT / 2; j++) {
        assert_true(fabs((double)row[2 * j] - 2.0 * cos(angle[j])) < 1e-6);
        assert_true(fabs((double)row[2 * j + 1] - 2.0 * sin(angle[j])) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extreme_parameters_turn_by_finite_angles),
        cmocka_unit_test(angles_without_digits_are_nan),
        cmocka_unit_test(sections_choose_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
