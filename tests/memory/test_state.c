/* The paged KV store: moving positions, saving and restoring. */
#include "memory/memory_case.h"

#include "base/fmath.h"

/* Shift ------------------------------------------------------------------------------------------
 */

static void fill_rope(qn_kv_rope *r, qn_rope_mode mode, bool yarn, const float *factors)
{
    *r = (qn_kv_rope){.params = {.mode = mode,
                                 .n_rot = 24,
                                 .n_ctx_orig = 64,
                                 .freq_base = 10000.0F,
                                 .freq_scale = yarn ? 0.25F : 1.0F,
                                 .ext_factor = yarn ? 1.0F : 0.0F,
                                 .attn_factor = 1.3F,
                                 .beta_fast = 32.0F,
                                 .beta_slow = 1.0F},
                      .factors = factors};
}

static void get_row(const fixture *f, int32_t s, int32_t p, float *row)
{
    const entry *e = qn__kv_table_find(&f->kv->groups[0].tables[s], p / 32);
    qn_kv_store k = qn__kv_store_k(f->kv, 0);
    qn__kv_get_k(k.type,
                 (uint8_t *)k.data + (size_t)e->block * HEADS * qn__kv_block_bytes(k.type, D), D,
                 p % 32, row);
}

/* Rotates rows by the definition, in double; magnitude 1. */
static void rotate_row(const qn_kv_rope *r, int first, double delta, float *row)
{
    const double pi = 3.14159265358979323846;
    const qn_rope_params *p = &r->params;
    int half = p->n_rot / 2;
    double base = (double)p->freq_base, lo, hi;
    lo = p->n_rot * qn__log(p->n_ctx_orig / ((double)p->beta_fast * 2 * pi)) / (2 * qn__log(base));
    hi = p->n_rot * qn__log(p->n_ctx_orig / ((double)p->beta_slow * 2 * pi)) / (2 * qn__log(base));
    lo = lo < 0 ? 0 : (double)(int)lo;
    hi = (double)(int)hi + ((double)(int)hi < hi);
    hi = hi > p->n_rot - 1 ? p->n_rot - 1 : hi;
    for (int j = 0; j < half; j++) {
        double a = delta * qn__pow(base, -2.0 * j / p->n_rot);
        a /= r->factors ? (double)r->factors[j] : 1.0;
        double angle = a * (double)p->freq_scale;
        if (p->ext_factor != 0.0F) {
            double ramp = (j - lo) / (hi - lo > 0.001 ? hi - lo : 0.001);
            ramp = 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
            angle = angle * (1 - ramp) + a * ramp;
        }
        double c, s;
        qn__sincos(angle, &s, &c);
        float *x = &row[first + (p->mode == QN_ROPE_NORM ? 2 * j : j)];
        float *y = &row[first + (p->mode == QN_ROPE_NORM ? 2 * j + 1 : j + half)];
        double u = (double)*x, v = (double)*y;
        *x = (float)(u * c - v * s);
        *y = (float)(u * s + v * c);
    }
}

static void shift_case(qn_type type, qn_rope_mode mode, bool yarn, bool with_factors, double bound)
{
    static fixture f;
    float factors[12];
    qn_kv_rope rope;
    fill_rope(&rope, mode, yarn, with_factors ? factors : NULL);
    fixture_make(&f, 512, false);
    qn__kv_free(f.kv);
    for (int i = 0; i < 12; i++) {
        factors[i] = qn_test_uniform(&f.random, 0.5F, 4.0F);
    }
    for (int i = 0; i < 3; i++) {
        f.layout.layers[i].rope = i == 1 ? -1 : 0;
        f.layout.layers[i].rot_first = 8;
    }
    f.config.ropes = &rope;
    f.config.n_ropes = 1;
    f.config.type_k = type;
    qn_error err;
    qn_test_ok(qn__kv_make(&f.kv, &f.config, &err), err);
    int32_t id = 0;
    static float rows[200][D];
    for (int32_t p = 0; p < 200; p++) {
        qn_kv_token t = {p, p, 1, &id};
        qn_kv_ubatch ub;
        int32_t slot, row[4], tables[16], masks[16];
        qn_test_ok(qn__kv_batch_begin(f.kv, &t, 1, 1, &err), err);
        assert_true(qn__kv_ubatch_next(f.kv, &ub));
        qn__kv_ubatch_fill(f.kv, 0, 1, &slot, 16, tables, masks, row);
        float x[D];
        for (int i = 0; i < D; i++) {
            x[i] = qn_test_normal(&f.random);
        }
        qn_kv_store k = qn__kv_store_k(f.kv, 0);
        size_t bytes = qn__kv_block_bytes(k.type, D);
        for (size_t h = 0; h < HEADS; h++) {
            qn__kv_put_k(k.type, (uint8_t *)k.data + ((size_t)slot / 32 * HEADS + h) * bytes, D,
                         slot % 32, x);
        }
        qn__kv_ubatch_done(f.kv);
        assert_false(qn__kv_ubatch_next(f.kv, &ub));
        get_row(&f, 0, p, rows[p]); /* as the type holds it */
    }
    qn_test_ok(qn__kv_seq_cp(f.kv, 0, 1, -1, -1, &err), err);
    qn_test_ok(qn__kv_seq_cp(f.kv, 0, 2, -1, -1, &err), err);
    assert_true(qn__kv_seq_rm(f.kv, 1, 10, 47));
    assert_true(qn__kv_seq_rm(f.kv, 2, 10, 47));
    qn_test_ok(qn__kv_seq_add(f.kv, 1, 47, -1, -37, &err), err);
    qn_test_ok(qn__kv_seq_add(f.kv, 2, 47, -1, -20, &err), err);
    qn_test_ok(qn__kv_seq_add(f.kv, 2, 27, -1, -17, &err), err);
    qn__kv_apply_moves(f.kv);
    double worst = 0.0;
    for (int32_t p = 0; p < 163; p++) {
        float got[D], again[D], want[D];
        get_row(&f, 1, p, got);
        get_row(&f, 2, p, again);
        assert_memory_equal(got, again, sizeof got); /* two moves are one */
        memcpy(want, rows[p < 10 ? p : p + 37], sizeof want);
        if (p >= 10) {
            rotate_row(&rope, 8, -37.0, want);
        } else {
            assert_memory_equal(got, want, sizeof got);
        }
        double e = qn_test_nmse(got, want, D);
        worst = e > worst ? e : worst;
    }
    assert_true(worst <= bound);
    for (int32_t p = 0; p < 200; p++) { /* the other sequence's cells stayed */
        float got[D];
        get_row(&f, 0, p, got);
        assert_memory_equal(got, rows[p], sizeof got);
    }
    qn__kv_free(f.kv);
}

static void test_shift(void **state)
{
    (void)state;
    shift_case(QN_TYPE_F32, QN_ROPE_NORM, false, false, 1e-10);
    shift_case(QN_TYPE_F32, QN_ROPE_NEOX, true, false, 1e-10);
    shift_case(QN_TYPE_F32, QN_ROPE_NEOX, true, true, 1e-10);
    shift_case(QN_TYPE_F16, QN_ROPE_NORM, false, true, 1e-6);
    shift_case(QN_TYPE_BF16, QN_ROPE_NEOX, false, false, 2e-5);
    shift_case(QN_TYPE_Q8_0, QN_ROPE_NEOX, true, false, 2e-4);
}

/* State ------------------------------------------------------------------------------------------
 */

static void test_state_elsewhere(void **state)
{
    (void)state;
    static fixture f, g;
    fixture_make(&f, 512, true);
    qn_error err;
    qn_test_ok(feed(&f, 0, 0, 100, 64, &err), err);
    qn_test_ok(feed(&f, 3, 70, 90, 64, &err), err);
    qn_test_ok(qn__kv_seq_cp(f.kv, 0, 1, -1, 80, &err), err);
    memcpy(f.model[1], f.model[0], 80 * sizeof(cell));
    fixture_make(&g, 1024, true); /* a larger store takes both kinds */
    qn_buf all = save(&f, -1), one = save(&f, 3);
    qn_test_ok(qn__kv_state_read(g.kv, -1, all.data, all.size, &err), err);
    memcpy(g.model, f.model, sizeof g.model);
    check_all(&g);
    qn_test_ok(qn__kv_state_read(g.kv, 4, one.data, one.size, &err), err);
    memcpy(g.model[4], f.model[3], sizeof g.model[4]);
    check_all(&g);
    qn_test_ok(feed(&g, 4, 160, 40, 8, &err), err);
    check_all(&g);
    qn_buf again = save(&g, 3);
    assert_int_equal(again.size, one.size);
    assert_memory_equal(again.data, one.data, one.size);
    qn__buf_free(&again);
    again = save(&g, 2); /* an empty sequence */
    qn_test_ok(qn__kv_state_read(g.kv, 4, again.data, again.size, &err), err);
    memset(g.model[4], 0, sizeof g.model[4]);
    check_all(&g);
    /* Of the wrong kind, of another model, into a store that is too small. */
    assert_int_equal(qn__kv_state_read(g.kv, -1, one.data, one.size, &err), QN_ERR_FORMAT);
    assert_int_equal(qn__kv_state_read(g.kv, 0, all.data, all.size, &err), QN_ERR_FORMAT);
    assert_int_equal(qn__kv_state_read(g.kv, N_SEQ, one.data, one.size, &err), QN_ERR_ARGUMENT);
    check_all(&g);
    qn__kv_free(g.kv);
    fixture_make(&g, 32, true);
    assert_int_equal(qn__kv_state_read(g.kv, -1, all.data, all.size, &err), QN_ERR_FULL);
    check_all(&g);
    qn__kv_free(g.kv);
    g.config.model_hash = 8;
    qn_test_ok(qn__kv_make(&g.kv, &g.config, &err), err);
    assert_int_equal(qn__kv_state_read(g.kv, -1, all.data, all.size, &err), QN_ERR_FORMAT);
    qn__kv_free(g.kv);
    qn__kv_free(f.kv);
    qn__buf_free(&all);
    qn__buf_free(&one);
    qn__buf_free(&again);
}

/* Puts the right checksum into a changed state, so that the other checks are reached. */
static void mend(qn_buf *buf)
{
    uint64_t h =
        qn__kv_state_checksum(buf->data + QN_KV_STATE_HEADER, buf->size - QN_KV_STATE_HEADER);
    for (int i = 0; i < 8; i++) {
        buf->data[32 + i] = (uint8_t)(h >> (8 * i));
    }
}

static void test_state_damaged(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 256, true);
    qn_error err;
    qn_test_ok(feed(&f, 0, 0, 40, 64, &err), err);
    qn_test_ok(qn__kv_seq_cp(f.kv, 0, 2, -1, -1, &err), err);
    memcpy(f.model[2], f.model[0], sizeof f.model[0]);
    qn_buf all = save(&f, -1);
    qn_test_ok(feed(&f, 1, 0, 50, 64, &err), err); /* what must stay */
    for (size_t n = 0; n < all.size; n += n < 400 ? 1 : 97) {
        assert_int_not_equal(qn__kv_state_read(f.kv, -1, all.data, n, &err), QN_OK);
    }
    check_all(&f);
    for (int i = 0; i < 400; i++) {
        size_t at = qn_test_bits(&f.random) % all.size;
        uint8_t old = all.data[at];
        all.data[at] ^= (uint8_t)(1U << qn_test_bits(&f.random) % 8);
        assert_int_not_equal(qn__kv_state_read(f.kv, -1, all.data, all.size, &err), QN_OK);
        all.data[at] = old;
    }
    check_all(&f);
    /* With a checksum that fits, a changed state is refused or taken, but never does harm. */
    for (int i = 0; i < 3000; i++) {
        size_t at = 40 + qn_test_bits(&f.random) % 160;
        uint8_t old = all.data[at];
        all.data[at] = (uint8_t)qn_test_bits(&f.random);
        mend(&all);
        (void)qn__kv_state_read(f.kv, -1, all.data, all.size, &err);
        all.data[at] = old;
        if (!qn__kv_check(f.kv, &err)) {
            fail_msg("%s", err.message);
        }
    }
    mend(&all);
    qn_test_ok(qn__kv_state_read(f.kv, -1, all.data, all.size, &err), err);
    qn__buf_free(&all);
    qn__kv_free(f.kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_state_elsewhere),
        cmocka_unit_test(test_state_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
