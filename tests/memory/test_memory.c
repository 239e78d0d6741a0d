/* The paged KV store against a simple model (memory_case.h): random operations, and single matters.
 */
#include "memory/memory_case.h"

/* Random operations ---------------------------------------------------------------------------- */

static void random_decode(fixture *f)
{
    static int32_t ids[N_SEQ] = {0, 1, 2, 3, 4};
    qn_kv_token tokens[300];
    int32_t n = 0, want = 1 + below(f, below(f, 8) == 0 ? 120 : 12), pos[N_SEQ];
    for (int32_t s = 0; s < N_SEQ; s++) {
        int32_t max = model_max(f, s);
        pos[s] = max >= 0 ? max + 1 : below(f, 4) == 0 ? below(f, 50) : 0;
        if (pos[s] + want >= MAX_POS) {
            return;
        }
    }
    for (int32_t i = 0; i < want; i++) {
        int32_t s = below(f, N_SEQ);
        tokens[n] = (qn_kv_token){below(f, 2), pos[s], 1, &ids[s]};
        pos[s]++;
        n++;
    }
    int32_t n_ubatch = 1 + below(f, 64);
    qn_error err;
    if (below(f, 6) > 0) {
        bool near_full = false; /* a token takes at most one block of a group */
        for (int32_t gi = 0; gi < f->layout.n_groups; gi++) {
            near_full = near_full || qn__kv_blocks_free(&f->kv->groups[gi]) < n;
        }
        qn_buf before = near_full ? save(f, -1) : (qn_buf){0};
        qn_status status = decode(f, tokens, n, n_ubatch, &err);
        if (status != QN_OK) {
            assert_int_equal(status, QN_ERR_FULL);
            qn_buf after = save(f, -1);
            assert_true(near_full);
            assert_int_equal(before.size, after.size);
            assert_memory_equal(before.data, after.data, before.size);
            qn__buf_free(&after);
        }
        qn__buf_free(&before);
        return;
    }
    /* The same, but given up in the middle of a micro-batch. */
    if (qn__kv_batch_begin(f->kv, tokens, n, n_ubatch, &err) != QN_OK) {
        return;
    }
    qn_kv_ubatch ub;
    while (qn__kv_ubatch_next(f->kv, &ub)) {
        if (below(f, 3) == 0) {
            static cell kept[N_SEQ][MAX_POS];
            memcpy(kept, f->model, sizeof kept);
            compute(f, tokens, &ub);
            memcpy(f->model, kept, sizeof kept);
            qn__kv_batch_abort(f->kv);
            return;
        }
        compute(f, tokens, &ub);
        qn__kv_ubatch_done(f->kv);
    }
}

/* Empty or forked sequences take tokens together, and part within the batch. */
static void random_coupled(fixture *f)
{
    static int32_t ids[3];
    int32_t a = below(f, N_SEQ), b = below(f, N_SEQ), start = 0;
    if (a == b) {
        return;
    }
    ids[0] = a;
    ids[1] = b;
    ids[2] = b;
    qn_error err;
    qn__kv_seq_rm(f->kv, b, -1, -1);
    memset(f->model[b], 0, sizeof f->model[b]);
    if (model_max(f, a) >= 0) {
        if (qn__kv_seq_cp(f->kv, a, b, -1, -1, &err) != QN_OK) {
            return;
        }
        memcpy(f->model[b], f->model[a], sizeof f->model[a]);
        start = model_max(f, a) + 1;
    }
    if (start + 100 > MAX_POS) {
        return;
    }
    qn_kv_token tokens[100];
    int32_t together = below(f, 40), n = 0;
    for (; n < together; n++) {
        tokens[n] = (qn_kv_token){below(f, 2), start + n, 2, ids};
    }
    for (int32_t i = 0; i <= below(f, 5); i++) {
        tokens[n++] = (qn_kv_token){below(f, 2), start + together + i, 1, &ids[0]};
        tokens[n++] = (qn_kv_token){below(f, 2), start + together + i, 1, &ids[2]};
    }
    (void)decode(f, tokens, n, 1 + below(f, 64), &err);
}

static void random_remove(fixture *f)
{
    int32_t s = below(f, N_SEQ), max = model_max(f, s);
    int32_t p0 = below(f, 5) == 0 ? -1 : below(f, max + 2);
    int32_t p1 = below(f, 2) == 0 ? -1 : p0 + below(f, 60);
    if (!qn__kv_seq_rm(f->kv, s, p0, p1)) {
        assert_true(f->layout.n_groups > 1);
        return;
    }
    for (int32_t p = p0 < 0 ? 0 : p0; p < (p1 < 0 ? MAX_POS : p1) && p < MAX_POS; p++) {
        f->model[s][p] = (cell){0};
    }
}

static void random_copy(fixture *f)
{
    int32_t a = below(f, N_SEQ), b = below(f, N_SEQ), max = model_max(f, a);
    int32_t p0 = below(f, 2) == 0 ? -1 : below(f, max + 2);
    int32_t p1 = below(f, 2) == 0 ? -1 : p0 + below(f, 100);
    bool clash = false;
    for (int32_t p = p0 < 0 ? 0 : p0; p < (p1 < 0 ? MAX_POS : p1) && p < MAX_POS; p++) {
        clash = clash || (f->model[a][p].held && f->model[b][p].held);
    }
    qn_error err;
    qn_status status = qn__kv_seq_cp(f->kv, a, b, p0, p1, &err);
    if (a == b) {
        return;
    }
    assert_true(!clash || status != QN_OK || f->layout.n_groups > 1);
    for (int32_t p = p0 < 0 ? 0 : p0; status == QN_OK && p < (p1 < 0 ? MAX_POS : p1); p++) {
        if (p < MAX_POS && f->model[a][p].held) {
            f->model[b][p] = f->model[a][p];
        }
    }
}

static void random_shift(fixture *f)
{
    int32_t s = below(f, N_SEQ), max = model_max(f, s), p0 = below(f, max + 2);
    int32_t p1 = below(f, 2) == 0 ? -1 : p0 + below(f, 200), delta = below(f, 120) - 70;
    delta = below(f, 3) == 0 ? delta / 32 * 32 : delta;
    if (max + delta >= MAX_POS) {
        return;
    }
    cell moved[MAX_POS] = {{0}};
    bool clash = false;
    int32_t end = p1 < 0 || p1 > max + 1 ? max + 1 : p1;
    for (int32_t p = 0; p <= max; p++) {
        int32_t to = p >= p0 && p < end ? p + delta : p;
        if (f->model[s][p].held && to >= 0) {
            clash = clash || moved[to].held;
            moved[to] = f->model[s][p];
        }
    }
    qn_error err;
    qn_status status = qn__kv_seq_add(f->kv, s, p0, p1, delta, &err);
    if (!qn__kv_can_shift(f->kv)) {
        assert_int_equal(status, QN_ERR_UNSUPPORTED);
        return;
    }
    assert_true(status == QN_OK ? !clash || delta == 0 : clash || status == QN_ERR_FULL);
    if (status == QN_OK && delta != 0) {
        memcpy(f->model[s], moved, sizeof moved);
    }
}

static void random_prefix(fixture *f)
{
    int32_t s = below(f, N_SEQ), like = below(f, N_SEQ), tokens[MAX_POS], n = 0;
    while (n < MAX_POS && f->model[like][n].held) {
        tokens[n] = f->model[like][n].token;
        n++;
    }
    if (n < 20 || !qn__kv_seq_rm(f->kv, s, -1, -1)) {
        return;
    }
    memset(f->model[s], 0, sizeof f->model[s]);
    int32_t known = qn__kv_find_prefix(f->kv, tokens, n);
    assert_int_equal(qn__kv_adopt_prefix(f->kv, s, tokens, n), known);
    uint32_t value = 0;
    for (int32_t p = 0; p < known; p++) {
        value = mix(value, tokens[p], p);
        f->model[s][p] = (cell){true, value, tokens[p]};
    }
}

static void random_state(fixture *f)
{
    int32_t from = below(f, N_SEQ + 1) - 1, to = from < 0 ? -1 : below(f, N_SEQ);
    qn_buf buf = save(f, from);
    qn_error err;
    qn_status status = qn__kv_state_read(f->kv, to, buf.data, buf.size, &err);
    qn__buf_free(&buf);
    if (status != QN_OK) {
        assert_int_equal(status, QN_ERR_FULL);
        assert_true(from >= 0);
    } else if (from >= 0 && from != to) {
        memcpy(f->model[to], f->model[from], sizeof f->model[to]);
    }
}

static void run_random(bool windows, int64_t n_ctx, uint64_t seed, int steps)
{
    static fixture f;
    fixture_make(&f, n_ctx, windows);
    f.random.state = seed;
    steps /= QN_TEST_LIGHT ? 4 : 1;
    for (int i = 0; i < steps; i++) {
        int32_t what = below(&f, 40);
        if (what < 18) {
            random_decode(&f);
        } else if (what < 20) {
            random_coupled(&f);
        } else if (what < 26) {
            random_remove(&f);
        } else if (what < 30) {
            random_copy(&f);
        } else if (what < 34) {
            random_shift(&f);
        } else if (what < 37) {
            random_prefix(&f);
        } else if (what < 39) {
            random_state(&f);
        } else if (below(&f, 4) == 0) {
            int32_t s = below(&f, N_SEQ);
            qn__kv_seq_keep(f.kv, s);
            for (int32_t other = 0; other < N_SEQ; other++) {
                if (other != s) {
                    memset(f.model[other], 0, sizeof f.model[other]);
                }
            }
        }
        if (i % 4 == 0 || i + 1 == steps) {
            check_all(&f);
        }
    }
    qn__kv_free(f.kv);
}

static void test_random_full(void **state)
{
    (void)state;
    run_random(false, 512, 1, 3500);
    run_random(false, 200, 2, 2500);
}

static void test_random_windows(void **state)
{
    (void)state;
    run_random(true, 512, 3, 3000);
    run_random(true, 2000, 4, 1000);
}

/* Single matters --------------------------------------------------------------------------------
 */

static void test_full_cache_changes_nothing(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 256, false);
    f.config.n_seq_max = 1;
    qn__kv_free(f.kv);
    qn_error err;
    qn_test_ok(qn__kv_make(&f.kv, &f.config, &err), err);
    qn_test_ok(feed(&f, 0, 0, 250, 32, &err), err);
    qn_buf before = save(&f, -1);
    assert_int_equal(feed(&f, 0, 250, 10, 3, &err), QN_ERR_FULL);
    qn_buf after = save(&f, -1);
    assert_memory_equal(before.data, after.data, before.size);
    qn_test_ok(feed(&f, 0, 250, 6, 3, &err), err);
    assert_int_equal(feed(&f, 0, 256, 1, 1, &err), QN_ERR_FULL);
    assert_int_equal(qn__kv_n_used(f.kv), 256);
    assert_true(qn__kv_seq_rm(f.kv, 0, 100, 150)); /* shift in a full cache */
    qn_test_ok(qn__kv_seq_add(f.kv, 0, 150, -1, -50, &err), err);
    memmove(&f.model[0][100], &f.model[0][150], 106 * sizeof(cell));
    memset(&f.model[0][206], 0, 50 * sizeof(cell));
    qn_test_ok(feed(&f, 0, 206, 50, 64, &err), err);
    assert_int_equal(feed(&f, 0, 256, 1, 1, &err), QN_ERR_FULL);
    qn__buf_free(&before);
    qn__buf_free(&after);
    qn__kv_free(f.kv);
}

static void test_fork_shares_whole_blocks(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 4096, false);
    qn_error err;
    qn_test_ok(feed(&f, 0, 0, 100, 64, &err), err);
    const group *g = &f.kv->groups[0];
    int32_t before = g->n_free;
    for (int32_t s = 1; s < N_SEQ; s++) {
        qn_test_ok(qn__kv_seq_cp(f.kv, 0, s, -1, -1, &err), err);
        memcpy(f.model[s], f.model[0], sizeof f.model[0]);
    }
    assert_int_equal(g->n_free, before);
    for (int32_t s = 0; s < N_SEQ; s++) {
        qn_test_ok(feed(&f, s, 100, 2 + s, 64, &err), err);
    }
    assert_int_equal(g->n_free, before - 4); /* a copy of the partial block for all but one */
    check_all(&f);
    qn__kv_free(f.kv);
}

static void test_windows_give_back(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 2048, true);
    qn_error err;
    int32_t most = f.kv->groups[1].n_blocks;
    assert_true(most < f.kv->groups[0].n_blocks);
    qn_test_ok(feed(&f, 0, 0, 600, 16, &err), err);
    qn_test_ok(feed(&f, 1, 200, 300, 64, &err), err);
    check_all(&f);
    const table *t = &f.kv->groups[1].tables[0];
    assert_int_equal(t->dropped, (600 - 39 - 8) / 32 * 32);
    assert_true(t->count <= 3);
    assert_int_equal(qn__kv_seq_pos_min(f.kv, 0), t->dropped);
    assert_int_equal(qn__kv_seq_pos_max(f.kv, 0), 599);
    assert_true(qn__kv_can_resume(f.kv, 0, 600));
    assert_true(qn__kv_can_resume(f.kv, 0, 599 - 8));
    assert_true(qn__kv_can_resume(f.kv, 0, t->dropped + 39));
    assert_false(qn__kv_can_resume(f.kv, 0, t->dropped + 38));
    assert_false(qn__kv_seq_rm(f.kv, 0, 300, -1));
    check_all(&f);
    assert_true(qn__kv_seq_rm(f.kv, 0, t->dropped + 39, -1));
    assert_int_equal(qn__kv_seq_pos_max(f.kv, 0), t->dropped + 38);
    assert_int_equal(qn__kv_seq_cp(f.kv, 1, 2, 0, 300, &err), QN_ERR_ARGUMENT);
    assert_true(qn__kv_seq_rm(f.kv, 0, 0, -1));
    assert_int_equal(qn__kv_seq_pos_max(f.kv, 0), -1);
    assert_false(qn__kv_can_shift(f.kv));
    assert_int_equal(qn__kv_seq_add(f.kv, 1, 210, -1, -1, &err), QN_ERR_UNSUPPORTED);
    qn__kv_free(f.kv);
}

static void test_bad_batches(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 512, false);
    qn_error err;
    qn_test_ok(feed(&f, 0, 0, 10, 64, &err), err);
    int32_t ids[] = {0, 1, 0, N_SEQ, -1, 2};
    const qn_kv_token bad[][3] = {
        {{1, 11, 1, &ids[0]}},                                        /* gap */
        {{1, 9, 1, &ids[0]}},                                         /* overlap */
        {{1, 10, 1, &ids[0]}, {1, 12, 1, &ids[0]}},                   /* gap inside */
        {{1, 10, 1, &ids[0]}, {1, 10, 1, &ids[0]}},                   /* twice */
        {{1, 0, 1, &ids[3]}},                                         /* ids */
        {{1, 0, 1, &ids[4]}},                                         /* */
        {{1, 10, 0, &ids[0]}},                                        /* none */
        {{1, 10, 3, &ids[0]}},                                        /* 0 twice */
        {{1, 10, 2, &ids[0]}},                                        /* 1 is empty: diverged */
        {{1, -1, 1, &ids[1]}},                                        /* */
        {{1, QN_KV_MAX_POS, 1, &ids[1]}},                             /* */
        {{1, 5, 1, &ids[1]}, {1, 6, 2, &ids[1]}, {1, 7, 1, &ids[1]}}, /* sets grow */
        {{1, 10, 1, NULL}},                                           /* */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int32_t n = bad[i][2].n_seq ? 3 : bad[i][1].n_seq ? 2 : 1;
        assert_int_equal(qn__kv_batch_begin(f.kv, bad[i], n, 64, &err), QN_ERR_ARGUMENT);
        check_all(&f);
    }
    assert_int_equal(qn__kv_batch_begin(f.kv, bad[0], 1, 65, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn__kv_batch_begin(f.kv, bad[0], 0, 64, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn__kv_batch_begin(f.kv, NULL, 1, 64, &err), QN_ERR_ARGUMENT);
    assert_false(qn__kv_seq_rm(f.kv, N_SEQ, -1, -1));
    assert_int_equal(qn__kv_seq_pos_max(f.kv, N_SEQ), -1);
    assert_int_equal(qn__kv_seq_pos_min(f.kv, -1), -1);
    assert_int_equal(qn__kv_seq_cp(f.kv, 0, N_SEQ, -1, -1, &err), QN_ERR_ARGUMENT);
    qn__kv_seq_keep(f.kv, N_SEQ);
    check_all(&f);
    qn__kv_free(f.kv);
}

static void test_prefixes(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 1024, false);
    qn_error err;
    int32_t tokens[200];
    for (int32_t i = 0; i < 200; i++) {
        tokens[i] = i % 7;
    }
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 200), 0);
    qn_test_ok(feed(&f, 0, 0, 150, 17, &err), err);
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 200), 128);
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 127), 96);
    tokens[70] = 99;
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 200), 64);
    tokens[70] = 70 % 7;
    qn__kv_clear(f.kv, false);
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 200), 0);
    memset(f.model, 0, sizeof f.model);
    qn_test_ok(feed(&f, 0, 0, 150, 17, &err), err);
    assert_true(qn__kv_seq_rm(f.kv, 0, -1, -1)); /* gone, but still known */
    assert_int_equal(qn__kv_adopt_prefix(f.kv, 2, tokens, 200), 128);
    assert_int_equal(qn__kv_adopt_prefix(f.kv, 2, tokens, 200), 0); /* not empty */
    assert_int_equal(qn__kv_seq_pos_max(f.kv, 2), 127);
    qn__kv_set_salt(f.kv, 5);
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 200), 0);
    qn__kv_set_salt(f.kv, 0);
    assert_int_equal(qn__kv_find_prefix(f.kv, tokens, 200), 128);
    /* A shifted sequence is not what its tokens say. */
    qn_test_ok(qn__kv_seq_add(f.kv, 2, 0, -1, 32, &err), err);
    assert_int_equal(qn__kv_adopt_prefix(f.kv, 1, tokens, 200), 0);
    qn__kv_free(f.kv);
}

static void test_bad_configs(void **state)
{
    (void)state;
    static fixture f;
    fixture_make(&f, 256, true);
    qn__kv_free(f.kv);
    qn_error err;
    qn_kv *kv = NULL;
    qn_kv_config c = f.config;
    c.n_ctx = 0;
    assert_int_equal(qn__kv_make(&kv, &c, &err), QN_ERR_ARGUMENT);
    c = f.config;
    c.n_seq_max = 257;
    assert_int_equal(qn__kv_make(&kv, &c, &err), QN_ERR_ARGUMENT);
    c = f.config;
    c.type_k = QN_TYPE_Q4_K;
    assert_int_equal(qn__kv_make(&kv, &c, &err), QN_ERR_ARGUMENT);
    c = f.config;
    c.type_v = QN_TYPE_Q8_0;
    f.layout.layers[0].d_v = 48; /* no multiple of the block */
    assert_int_equal(qn__kv_make(&kv, &c, &err), QN_ERR_ARGUMENT);
    assert_null(kv);
    qn__kv_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_cache_changes_nothing),
        cmocka_unit_test(test_fork_shares_whole_blocks),
        cmocka_unit_test(test_windows_give_back),
        cmocka_unit_test(test_bad_batches),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_random_full),
        cmocka_unit_test(test_random_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
