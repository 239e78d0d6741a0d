/*
 * test_memory.c: the paged KV store against a simple model: for each sequence the value that each
 * position holds. A value stands for a token in its context, so it tells whether a cell is the
 * right one; "computing" a micro-batch writes the values to the slots that the store gives.
 */
#include "support/support.h"

#include "base/fmath.h"
#include "device/kv_layout.h"
#include "memory/internal.h"

#define N_SEQ   5
#define MAX_POS 1024
#define HEADS   2
#define D       32

/* Things under test ---------------------------------------------------------------------------- */

typedef struct cell {
    bool held;
    uint32_t value;
    int32_t token;
} cell;

typedef struct fixture {
    qn_kv *kv;
    qn_kv_layout layout;
    qn_kv_config config;
    cell model[N_SEQ][MAX_POS];
    qn_test_random random;
} fixture;

static void fixture_make(fixture *f, int64_t n_ctx, bool windows)
{
    memset(f, 0, sizeof *f);
    f->layout.n_groups = windows ? 2 : 1;
    f->layout.n_layers = 3;
    f->layout.can_shift = true;
    f->layout.groups[1] = (qn_kv_group){QN_WINDOW_STANDARD, 40};
    for (int i = 0; i < 3; i++) {
        f->layout.layers[i] = (qn_kv_layer){.group = windows && i > 0,
                                            .n_head_kv = HEADS,
                                            .d_k = D,
                                            .d_v = i == 2 ? 0 : D,
                                            .rope = -1};
    }
    f->config = (qn_kv_config){.layout = &f->layout,
                               .n_ctx = n_ctx,
                               .n_seq_max = N_SEQ,
                               .n_ubatch = 64,
                               .window_slack = 8,
                               .type_k = QN_TYPE_F32,
                               .type_v = QN_TYPE_F16,
                               .model_hash = 7};
    qn_error err;
    qn_test_ok(qn__kv_make(&f->kv, &f->config, &err), err);
}

static int32_t below(fixture *f, int32_t n)
{
    return (int32_t)(qn_test_bits(&f->random) % (uint32_t)n);
}

static uint32_t mix(uint32_t before, int32_t token, int32_t pos)
{
    uint32_t x = before * 2654435761U + (uint32_t)token * 40503U + (uint32_t)pos + 1U;
    x ^= x >> 15;
    return (x * 2246822519U) & 0xffffffU;
}

static int32_t model_max(const fixture *f, int32_t s)
{
    for (int32_t p = MAX_POS - 1; p >= 0; p--) {
        if (f->model[s][p].held) {
            return p;
        }
    }
    return -1;
}

static void write_value(const fixture *f, int32_t layer, int32_t slot, uint32_t value)
{
    const qn_kv_layer *l = &f->layout.layers[layer];
    qn_kv_store k = qn__kv_store_k(f->kv, layer), v = qn__kv_store_v(f->kv, layer);
    for (int h = 0; h < HEADS; h++) {
        float row[D];
        for (int i = 0; i < D; i++) {
            row[i] = (float)((value + (uint32_t)(h + i)) & 0xffffffU);
        }
        size_t at = (size_t)(slot / 32 * HEADS + h);
        qn__kv_put_k(k.type, (uint8_t *)k.data + at * qn__kv_block_bytes(k.type, l->d_k), l->d_k,
                     slot % 32, row);
        if (v.data) {
            for (int i = 0; i < D; i++) {
                row[i] = (float)(((value >> i % 13) + (uint32_t)h) & 0x7ffU);
            }
            qn__kv_put_v(v.type, (uint8_t *)v.data + at * qn__kv_block_bytes(v.type, l->d_v),
                         l->d_v, slot % 32, row);
        }
    }
}

static void check_value(const fixture *f, int32_t layer, int32_t slot, uint32_t value)
{
    const qn_kv_layer *l = &f->layout.layers[layer];
    qn_kv_store k = qn__kv_store_k(f->kv, layer), v = qn__kv_store_v(f->kv, layer);
    for (int h = 0; h < HEADS; h++) {
        float row[D];
        size_t at = (size_t)(slot / 32 * HEADS + h);
        qn__kv_get_k(k.type, (uint8_t *)k.data + at * qn__kv_block_bytes(k.type, l->d_k), l->d_k,
                     slot % 32, row);
        if (row[3] != (float)((value + (uint32_t)(h + 3)) & 0xffffffU)) {
            fail_msg("K of layer %d holds another cell", layer);
        }
        if (v.data) {
            qn__kv_get_v(v.type, (uint8_t *)v.data + at * qn__kv_block_bytes(v.type, l->d_v),
                         l->d_v, slot % 32, row);
            if (row[5] != (float)(((value >> 5) + (uint32_t)h) & 0x7ffU)) {
                fail_msg("V of layer %d holds another cell", layer);
            }
        }
    }
}

/* The store against the model, and its own invariants. */
static void check_all(const fixture *f)
{
    qn_error err;
    if (!qn__kv_check(f->kv, &err)) {
        fail_msg("%s", err.message);
    }
    for (int32_t s = 0; s < N_SEQ; s++) {
        assert_int_equal(qn__kv_seq_pos_max(f->kv, s), model_max(f, s));
        assert_true(qn__kv_seq_pos_min(f->kv, s) <= qn__kv_seq_pos_max(f->kv, s));
        for (int32_t gi = 0; gi < f->layout.n_groups; gi++) {
            const table *t = &f->kv->groups[gi].tables[s];
            for (int32_t p = 0; p < MAX_POS; p++) {
                const entry *e = qn__kv_table_find(t, p / 32);
                bool held = e && e->mask >> (p % 32) & 1U;
                if (p < t->dropped ? held && !f->model[s][p].held : held != f->model[s][p].held) {
                    fail_msg("sequence %d, group %d, position %d: held %d", s, gi, p, held);
                }
                for (int32_t i = 0; held && i < f->layout.n_layers; i++) {
                    if (f->layout.layers[i].group == gi) {
                        check_value(f, i, e->block * 32 + p % 32, f->model[s][p].value);
                    }
                }
            }
        }
    }
}

/* Computes the placed micro-batch: every token's value must follow from what its table shows. */
static void compute(fixture *f, const qn_kv_token *tokens, const qn_kv_ubatch *ub)
{
    int32_t slots[80], rows[4 * 80], tables[512], masks[512];
    for (int32_t gi = 0; gi < f->layout.n_groups; gi++) {
        assert_true(ub->n_table[gi] <= 500);
        qn__kv_ubatch_fill(f->kv, gi, ub->n_tokens + 2, slots, ub->n_table[gi] + 3, tables, masks,
                           rows);
        assert_int_equal(slots[ub->n_tokens], -1);
        assert_int_equal(rows[4 * ub->n_tokens + 1], 0);
        assert_int_equal(masks[ub->n_table[gi]], 0);
        for (int32_t i = 0; i < ub->n_tokens; i++) {
            const qn_kv_token *t = &tokens[ub->first + i];
            cell *own = f->model[t->seq[0]];
            int32_t before = t->pos - 1;
            while (before >= 0 && !own[before].held) {
                before--;
            }
            uint32_t value = mix(before >= 0 ? own[before].value : 0, t->token, t->pos);
            for (int32_t a = 0; a < t->n_seq; a++) {
                f->model[t->seq[a]][t->pos] = (cell){true, value, t->token};
            }
            for (int32_t layer = 0; layer < f->layout.n_layers; layer++) {
                if (f->layout.layers[layer].group == gi) {
                    write_value(f, layer, slots[i], value);
                }
            }
        }
        for (int32_t i = 0; i < ub->n_tokens; i++) {
            const qn_kv_token *t = &tokens[ub->first + i];
            const int32_t *row = rows + 4 * i;
            assert_int_equal(row[3], t->pos);
            for (int32_t e = 0; e < row[1]; e++) {
                for (int32_t j = 0; j < 32; j++) {
                    int32_t p = (row[2] + e) * 32 + j;
                    bool shown = (uint32_t)masks[row[0] + e] >> j & 1U;
                    assert_true(!shown || f->model[t->seq[0]][p].held);
                    for (int32_t layer = 0; shown && layer < f->layout.n_layers; layer++) {
                        if (f->layout.layers[layer].group == gi) {
                            check_value(f, layer, tables[row[0] + e] * 32 + j,
                                        f->model[t->seq[0]][p].value);
                        }
                    }
                }
            }
        }
    }
}

static qn_status decode(fixture *f, const qn_kv_token *tokens, int32_t n, int32_t n_ubatch,
                        qn_error *err)
{
    qn_status status = qn__kv_batch_begin(f->kv, tokens, n, n_ubatch, err);
    qn_kv_ubatch ub;
    int32_t next = 0;
    while (status == QN_OK && qn__kv_ubatch_next(f->kv, &ub)) {
        assert_int_equal(ub.first, next);
        assert_true(ub.n_tokens >= 1 && ub.n_tokens <= n_ubatch);
        next += ub.n_tokens;
        compute(f, tokens, &ub);
        qn__kv_ubatch_done(f->kv);
    }
    assert_true(status != QN_OK || next == n);
    return status;
}

/* Tokens of one sequence from position `pos` on. */
static qn_status feed(fixture *f, int32_t s, int32_t pos, int32_t n, int32_t n_ubatch,
                      qn_error *err)
{
    static int32_t ids[N_SEQ] = {0, 1, 2, 3, 4};
    qn_kv_token tokens[700];
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (qn_kv_token){(pos + i) % 7, pos + i, 1, &ids[s]};
    }
    return decode(f, tokens, n, n_ubatch, err);
}

static qn_buf save(fixture *f, int32_t s)
{
    qn_buf buf = {0};
    qn_error err;
    qn_test_ok(qn__kv_state_write(f->kv, s, &buf, &err), err);
    assert_int_equal(buf.size, qn__kv_state_size(f->kv, s));
    return buf;
}

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
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_state_elsewhere),
        cmocka_unit_test(test_state_damaged),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_random_full),
        cmocka_unit_test(test_random_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
