/*
 * memory_case.h: a store and a simple model of it: for each sequence the value that each position
 * holds. A value stands for a token in its context, so it tells whether a cell is the right one;
 * "computing" a micro-batch writes the values to the slots that the store gives.
 */
#ifndef QUERN_TESTS_MEMORY_CASE_H
#define QUERN_TESTS_MEMORY_CASE_H

#include "support/support.h"

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

static inline void fixture_make(fixture *f, int64_t n_ctx, bool windows)
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

static inline int32_t below(fixture *f, int32_t n)
{
    return (int32_t)(qn_test_bits(&f->random) % (uint32_t)n);
}

static inline uint32_t mix(uint32_t before, int32_t token, int32_t pos)
{
    uint32_t x = before * 2654435761U + (uint32_t)token * 40503U + (uint32_t)pos + 1U;
    x ^= x >> 15;
    return (x * 2246822519U) & 0xffffffU;
}

static inline int32_t model_max(const fixture *f, int32_t s)
{
    for (int32_t p = MAX_POS - 1; p >= 0; p--) {
        if (f->model[s][p].held) {
            return p;
        }
    }
    return -1;
}

static inline void write_value(const fixture *f, int32_t layer, int32_t slot, uint32_t value)
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

static inline void check_value(const fixture *f, int32_t layer, int32_t slot, uint32_t value)
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
static inline void check_all(const fixture *f)
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
static inline void compute(fixture *f, const qn_kv_token *tokens, const qn_kv_ubatch *ub)
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

static inline qn_status decode(fixture *f, const qn_kv_token *tokens, int32_t n, int32_t n_ubatch,
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
static inline qn_status feed(fixture *f, int32_t s, int32_t pos, int32_t n, int32_t n_ubatch,
                             qn_error *err)
{
    static int32_t ids[N_SEQ] = {0, 1, 2, 3, 4};
    qn_kv_token tokens[700];
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (qn_kv_token){(pos + i) % 7, pos + i, 1, &ids[s]};
    }
    return decode(f, tokens, n, n_ubatch, err);
}

static inline qn_buf save(fixture *f, int32_t s)
{
    qn_buf buf = {0};
    qn_error err;
    qn_test_ok(qn__kv_state_write(f->kv, s, &buf, &err), err);
    assert_int_equal(buf.size, qn__kv_state_size(f->kv, s));
    return buf;
}

#endif
