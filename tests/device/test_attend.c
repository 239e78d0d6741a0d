/*
 * Attention over a paged store: the plain form against double precision, and equal bits for every
 * instruction set, every cut into batches, every place of the blocks, whatever unused places hold.
 * QN_TEST_EMULATED: also with emulated AVX-512.
 */
#include "support/support.h"

#include <math.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "device/cpu/attend.h"
#include "device/cpu/cpu.h"
#include "device/kv_layout.h"
#include "device/plan.h"

#define MAX_SEQ     3
#define MAX_ENTRIES 160
#define MAX_TOKENS  96

/* One store and the sequences in it. */
typedef struct sequence {
    int32_t start, end;   /* positions start .. end, of which some may be missing */
    int32_t first, count; /* block index of the first entry, entries */
    int32_t block[MAX_ENTRIES];
    uint32_t mask[MAX_ENTRIES];
    float *k, *v; /* [position - start][G][d], what was stored, as the type holds it */
} sequence;

typedef struct token {
    int32_t seq, pos;
} token;

typedef struct world {
    qn_test_random random;
    qn_attend_params params;
    int64_t d, dv, heads;
    qn_type type_k, type_v;
    bool with_sinks;
    int32_t n_seq, n_blocks, n_tokens;
    sequence seq[MAX_SEQ];
    token tokens[MAX_TOKENS];
    uint8_t *k, *v;
    float *q, *sinks; /* q [T][H][d] */
} world;

static qn_node make_node(qn_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                         void *data)
{
    qn_node node = {.op = QN_OP_NONE, .type = type, .ne = {ne0, ne1, ne2, ne3}, .data = data};
    size_t row = 0;
    assert_int_equal(qn_type_row_bytes(type, ne0, &row, NULL), QN_OK);
    const qn_type_info *info = qn_type_get_info(type);
    node.nb[0] = info->block_bytes;
    node.nb[1] = row;
    node.nb[2] = row * (size_t)ne1;
    node.nb[3] = node.nb[2] * (size_t)ne2;
    return node;
}

/* Runs a node as the plan would, tasks in another order, with dirty workspaces. */
static void run_node(const qn_cpu_isa *isa, const qn_cpu_kernel *kernel, const qn_node *node)
{
    assert_true(!kernel->supports || kernel->supports(node));
    qn_cpu_step step = {.node = node, .kernel = kernel, .isa = isa, .n_threads = 2, .n_phases = 1};
    kernel->prepare(&step);
    step.shared = qn__block_alloc(step.shared_bytes + 64);
    void *scratch = qn__block_alloc(step.scratch_bytes + 64);
    memset(step.shared, 0xff, step.shared_bytes);
    for (int phase = 0; phase < step.n_phases; phase++) {
        for (int64_t task = kernel->count(&step, phase) - 1; task >= 0; task--) {
            memset(scratch, 0xff, step.scratch_bytes);
            kernel->run(&step, phase, task, scratch);
        }
    }
    qn__block_free(step.shared, step.shared_bytes + 64);
    qn__block_free(scratch, step.scratch_bytes + 64);
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || qn__float_bits(a) == qn__float_bits(b);
}

/* Making worlds ---------------------------------------------------------------------------------
 */

static size_t store_bytes(const world *w, bool is_v)
{
    size_t block = qn__kv_block_bytes(is_v ? w->type_v : w->type_k, is_v ? w->dv : w->d);
    return block * (size_t)w->params.n_kv_heads * (size_t)w->n_blocks;
}

/* Gives every entry a block of its own, in a random order, and fills the stores with garbage. */
static void deal_blocks(world *w, uint8_t garbage)
{
    int32_t *numbers = calloc((size_t)w->n_blocks, sizeof *numbers), used = 0;
    for (int32_t i = 0; i < w->n_blocks; i++) {
        int32_t at = (int32_t)(qn_test_bits(&w->random) % (uint32_t)(i + 1));
        numbers[i] = numbers[at];
        numbers[at] = i;
    }
    for (int32_t s = 0; s < w->n_seq; s++) {
        for (int32_t i = 0; i < w->seq[s].count; i++) {
            w->seq[s].block[i] = numbers[used++];
        }
    }
    assert_true(used <= w->n_blocks);
    free(numbers);
    memset(w->k, garbage, store_bytes(w, false));
    memset(w->v, garbage, store_bytes(w, true));
}

static bool held(const sequence *s, int32_t p)
{
    int32_t i = p / 32 - s->first;
    return p >= 0 && i >= 0 && i < s->count && (s->mask[i] >> (p % 32) & 1U);
}

/* Stores all keys that exist by KV_STORE nodes. */
static void store_keys(const world *w, const qn_cpu_isa *isa)
{
    int64_t g = w->params.n_kv_heads;
    for (int32_t s = 0; s < w->n_seq; s++) {
        const sequence *q = &w->seq[s];
        int32_t n = q->end - q->start + 1;
        int32_t *slots = calloc((size_t)n, sizeof *slots);
        for (int32_t i = 0; i < n; i++) {
            int32_t p = q->start + i;
            slots[i] = held(q, p) ? q->block[p / 32 - q->first] * 32 + p % 32 : -1;
        }
        qn_node slot_node = make_node(QN_TYPE_I32, n, 1, 1, 1, slots);
        qn_node k_rows = make_node(QN_TYPE_F32, w->d, g, n, 1, q->k);
        qn_node v_rows = make_node(QN_TYPE_F32, w->dv, g, n, 1, q->v);
        qn_node k = make_node(w->type_k, 32, w->d, g, w->n_blocks, w->k);
        qn_node v = make_node(w->type_v, w->dv, 32, g, w->n_blocks, w->v);
        k.op = v.op = QN_OP_KV_STORE;
        k.src[1] = &k_rows;
        v.src[1] = &v_rows;
        k.src[2] = v.src[2] = &slot_node;
        v.params.kv.is_v = true;
        run_node(isa, &qn__cpu_kernel_kv_store, &k);
        run_node(isa, &qn__cpu_kernel_kv_store, &v);
        free(slots);
    }
}

/* Rounds the rows to what the type holds, so that the reference sees what the kernel reads. */
static void round_rows(qn_type type, float *rows, int64_t d, int64_t n, bool is_v)
{
    uint8_t *block = calloc(1, qn__kv_block_bytes(type, d));
    for (int64_t i = 0; i < n; i++) {
        int place = (int)(i % 32);
        if (is_v) {
            qn__kv_put_v(type, block, d, place, rows + i * d);
            qn__kv_get_v(type, block, d, place, rows + i * d);
        } else {
            qn__kv_put_k(type, block, d, place, rows + i * d);
            qn__kv_get_k(type, block, d, place, rows + i * d);
        }
    }
    free(block);
}

static void make_sequence(world *w, int32_t s, int32_t start, int32_t end, bool holes)
{
    sequence *q = &w->seq[s];
    int64_t g = w->params.n_kv_heads, n = end - start + 1;
    *q = (sequence){.start = start, .end = end, .first = start / 32};
    q->count = end / 32 - q->first + 1;
    assert_true(q->count <= MAX_ENTRIES);
    for (int32_t p = start; p <= end; p++) {
        bool hole = holes && (p / 40) % 4 == 1; /* runs, some of whole blocks */
        q->mask[p / 32 - q->first] |= hole ? 0 : UINT32_C(1) << (p % 32);
    }
    q->k = calloc((size_t)(n * g * w->d), sizeof *q->k);
    q->v = calloc((size_t)(n * g * w->dv), sizeof *q->v);
    for (int64_t i = 0; i < n * g * w->d; i++) {
        q->k[i] = qn_test_normal(&w->random);
    }
    for (int64_t i = 0; i < n * g * w->dv; i++) {
        q->v[i] = qn_test_normal(&w->random);
    }
    round_rows(w->type_k, q->k, w->d, n * g, false);
    round_rows(w->type_v, q->v, w->dv, n * g, true);
    w->n_blocks += q->count;
}

static void add_tokens(world *w, int32_t s, int32_t from, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        w->tokens[w->n_tokens++] = (token){s, from + i};
    }
    assert_true(w->n_tokens <= MAX_TOKENS);
}

static void finish_world(world *w)
{
    w->n_blocks += 3;
    w->k = qn__block_alloc(store_bytes(w, false));
    w->v = qn__block_alloc(store_bytes(w, true));
    int64_t n = w->n_tokens * w->heads * w->d;
    w->q = calloc((size_t)n, sizeof *w->q);
    for (int64_t i = 0; i < n; i++) {
        w->q[i] = qn_test_normal(&w->random) * 2.0F;
    }
    w->sinks = calloc((size_t)w->heads, sizeof *w->sinks);
    for (int64_t i = 0; i < w->heads; i++) {
        w->sinks[i] = qn_test_normal(&w->random);
    }
}

static void free_world(world *w)
{
    for (int32_t s = 0; s < w->n_seq; s++) {
        free(w->seq[s].k);
        free(w->seq[s].v);
    }
    qn__block_free(w->k, store_bytes(w, false));
    qn__block_free(w->v, store_bytes(w, true));
    free(w->q);
    free(w->sinks);
}

/* Attending -------------------------------------------------------------------------------------
 */

/* Tokens first .. first + n as one node. `future`: keys behind the last token exist already. */
static void attend(const world *w, const qn_cpu_isa *isa, int32_t first, int32_t n, bool future,
                   float *out)
{
    enum { CAPACITY = MAX_SEQ * MAX_ENTRIES + 7 };
    static int32_t tables[CAPACITY], masks[CAPACITY], rows[4 * MAX_TOKENS];
    int32_t used = 0, offset[MAX_SEQ], last[MAX_SEQ];
    for (int32_t s = 0; s < w->n_seq; s++) {
        offset[s] = last[s] = -1;
    }
    for (int32_t i = first; i < first + n; i++) {
        token t = w->tokens[i];
        last[t.seq] = t.pos > last[t.seq] ? t.pos : last[t.seq];
    }
    for (int32_t s = w->n_seq - 1; s >= 0; s--) {
        if (last[s] < 0) {
            continue;
        }
        const sequence *q = &w->seq[s];
        offset[s] = used;
        for (int32_t e = 0; e < q->count; e++) {
            uint32_t mask = 0;
            for (int32_t j = 0; j < 32; j++) {
                bool there = held(q, (q->first + e) * 32 + j);
                bool known = future || (q->first + e) * 32 + j <= last[s];
                mask |= there && known ? UINT32_C(1) << j : 0;
            }
            tables[used] = mask ? q->block[e] : 0;
            masks[used++] = (int32_t)mask;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        token t = w->tokens[first + i];
        rows[4 * i] = offset[t.seq];
        rows[4 * i + 1] = w->seq[t.seq].count;
        rows[4 * i + 2] = w->seq[t.seq].first;
        rows[4 * i + 3] = t.pos;
    }
    int64_t g = w->params.n_kv_heads;
    qn_node q = make_node(QN_TYPE_F32, w->d, w->heads, n, 1, w->q + first * w->heads * w->d);
    qn_node k = make_node(w->type_k, 32, w->d, g, w->n_blocks, w->k);
    qn_node v = make_node(w->type_v, w->dv, 32, g, w->n_blocks, w->v);
    qn_node table_node = make_node(QN_TYPE_I32, CAPACITY, 1, 1, 1, tables);
    qn_node mask_node = make_node(QN_TYPE_I32, CAPACITY, 1, 1, 1, masks);
    qn_node row_node = make_node(QN_TYPE_I32, 4, n, 1, 1, rows);
    qn_node sinks = make_node(QN_TYPE_F32, w->heads, 1, 1, 1, w->sinks);
    qn_node node = make_node(QN_TYPE_F32, w->dv, w->heads, n, 1, out);
    node.op = QN_OP_ATTEND;
    node.params.attend = w->params;
    qn_node *src[] = {
        &q, &k, &v, &table_node, &mask_node, &row_node, w->with_sinks ? &sinks : NULL};
    memcpy(node.src, src, sizeof src);
    run_node(isa, &qn__cpu_kernel_attend, &node);
}

static bool sees(const world *w, int32_t q, int32_t k)
{
    int32_t n = w->params.window_size;
    if (w->params.causal && k > q) {
        return false;
    }
    switch (w->params.window) {
    case QN_WINDOW_STANDARD:
        return q - k < n;
    case QN_WINDOW_CHUNKED:
        return k >= q / n * n;
    case QN_WINDOW_SYMMETRIC:
        return abs(q - k) <= n / 2;
    default:
        return true;
    }
}

static double slope(const world *w, int64_t h)
{
    int64_t n2 = 1;
    while (n2 * 2 <= w->heads) {
        n2 *= 2;
    }
    double b = (double)w->params.alibi_bias, n = (double)n2;
    return h < n2 ? pow(2.0, -b * (double)(h + 1) / n)
                  : pow(2.0, -b * (double)(2 * (h - n2) + 1) / (2.0 * n));
}

/* The definition in double precision, without its order. */
static void reference(const world *w, int32_t i, int64_t h, float *out)
{
    token t = w->tokens[i];
    const sequence *s = &w->seq[t.seq];
    int64_t g = w->params.n_kv_heads, group = h / (w->heads / g);
    double *acc = calloc((size_t)w->dv, sizeof *acc);
    double largest = -INFINITY, sum = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && w->with_sinks) {
            largest = fmax(largest, (double)w->sinks[h]);
            sum = exp((double)w->sinks[h] - largest);
        }
        for (int32_t p = s->start; p <= s->end; p++) {
            if (!held(s, p) || !sees(w, t.pos, p)) {
                continue;
            }
            const float *q = w->q + (i * w->heads + h) * w->d;
            const float *k = s->k + ((p - s->start) * g + group) * w->d;
            const float *v = s->v + ((p - s->start) * g + group) * w->dv;
            double x = 0.0;
            for (int64_t e = 0; e < w->d; e++) {
                x += (double)q[e] * (double)k[e];
            }
            x *= (double)w->params.scale;
            double cap = (double)w->params.soft_cap;
            x = cap != 0.0 ? cap * tanh(x / cap) : x;
            x -= w->params.alibi_bias > 0.0F ? slope(w, h) * abs(t.pos - p) : 0.0;
            if (pass == 0) {
                largest = fmax(largest, x);
                continue;
            }
            sum += exp(x - largest);
            for (int64_t e = 0; e < w->dv; e++) {
                acc[e] += exp(x - largest) * (double)v[e];
            }
        }
    }
    for (int64_t e = 0; e < w->dv; e++) {
        out[e] = sum > 0.0 ? (float)(acc[e] / sum) : 0.0F;
    }
    free(acc);
}

static void check_same(const world *w, const char *what, const float *got, const float *want)
{
    int64_t n = w->n_tokens * w->heads * w->dv;
    for (int64_t i = 0; i < n; i++) {
        if (!same(got[i], want[i])) {
            fail_msg("%s: element %d: %a, should be %a", what, (int)i, (double)got[i],
                     (double)want[i]);
        }
    }
}

/* Everything that must hold for one world. `exact`: against double precision too. */
static void check_world(world *w)
{
    finish_world(w);
    int64_t row = w->heads * w->dv, n = w->n_tokens * row;
    float *want = calloc((size_t)n, sizeof *want), *got = calloc((size_t)n, sizeof *got);
    const qn_cpu_isa *scalar = qn__cpu_isa_at(0);
    deal_blocks(w, 0);
    store_keys(w, scalar);
    attend(w, scalar, 0, w->n_tokens, true, want);
    for (int32_t i = 0; i < w->n_tokens; i++) {
        for (int64_t h = 0; h < w->heads; h++) {
            reference(w, i, h, got + i * row + h * w->dv);
        }
    }
    double error = qn_test_nmse(want, got, (size_t)n);
    if (!(error < 1e-11)) {
        fail_msg("error %g against double precision", error);
    }
    const qn_cpu_isa *isa;
    for (int32_t k = 0; (isa = qn__cpu_isa_at(k)); k++) {
        deal_blocks(w, 0xff); /* other places, NaN in unused ones */
        store_keys(w, isa);
        attend(w, isa, 0, w->n_tokens, true, got);
        check_same(w, isa->name, got, want);
        for (int32_t step = 1; w->params.causal && step <= 17; step += QN_TEST_LIGHT ? 16 : 4) {
            memset(got, 0xff, (size_t)n * sizeof *got);
            for (int32_t i = 0; i < w->n_tokens; i += step) {
                int32_t count = w->n_tokens - i < step ? w->n_tokens - i : step;
                attend(w, isa, i, count, false, got + i * row);
            }
            check_same(w, "micro-batches", got, want);
        }
    }
    free(want);
    free(got);
    free_world(w);
}

static world new_world(int64_t d, int64_t dv, int64_t heads, int32_t n_kv, qn_type k, qn_type v)
{
    static uint64_t seed = 1;
    return (world){.random.state = ++seed,
                   .params = {.scale = 1.0F / sqrtf((float)d), .n_kv_heads = n_kv, .causal = true},
                   .d = d,
                   .dv = dv,
                   .heads = heads,
                   .type_k = k,
                   .type_v = v,
                   .n_seq = 1};
}

/* Tests -----------------------------------------------------------------------------------------
 */

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        int64_t d, dv, heads;
        int32_t n_kv;
    } shapes[] = {{64, 64, 4, 2}, {5, 7, 3, 1},    {128, 128, 8, 1}, {80, 80, 2, 2},
                  {1, 1, 1, 1},   {300, 50, 2, 1}, {600, 96, 7, 1},  {24, 33, 6, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        world w = new_world(shapes[i].d, shapes[i].dv, shapes[i].heads, shapes[i].n_kv, QN_TYPE_F32,
                            QN_TYPE_F32);
        make_sequence(&w, 0, 0, 70, false);
        add_tokens(&w, 0, 31, 40);
        check_world(&w);
    }
}

static void test_types(void **state)
{
    (void)state;
    static const qn_type types[] = {QN_TYPE_F32, QN_TYPE_F16, QN_TYPE_BF16, QN_TYPE_Q8_0};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 4; j++) {
            world w = new_world(64, 96, 4, 2, types[i], types[j]);
            make_sequence(&w, 0, 0, 100, false);
            add_tokens(&w, 0, 80, 21);
            check_world(&w);
        }
    }
}

static void test_long(void **state)
{
    (void)state;
    world w = new_world(32, 32, 4, 2, QN_TYPE_F16, QN_TYPE_F16);
    w.n_seq = 3;
    make_sequence(&w, 0, 0, 2600, true); /* holes of several blocks */
    make_sequence(&w, 1, 4000, 6100, false);
    make_sequence(&w, 2, 3, 9, false);
    add_tokens(&w, 0, 2590, 11);
    add_tokens(&w, 1, 4000, 3);
    add_tokens(&w, 2, 3, 7);
    add_tokens(&w, 1, 5118, 20);
    add_tokens(&w, 0, 510, 5);
    check_world(&w);
}

static void test_windows(void **state)
{
    (void)state;
    static const qn_window kinds[] = {QN_WINDOW_STANDARD, QN_WINDOW_CHUNKED, QN_WINDOW_SYMMETRIC};
    static const int32_t sizes[] = {1, 20, 64, 700};
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 4; j += QN_TEST_LIGHT ? 2 : 1) {
            world w = new_world(16, 16, 4, 2, QN_TYPE_F32, QN_TYPE_BF16);
            w.params.window = kinds[i];
            w.params.window_size = sizes[j];
            w.params.causal = j != 1;
            w.n_seq = 2;
            make_sequence(&w, 0, 0, 1300, j == 3);
            make_sequence(&w, 1, 90, 200, false);
            add_tokens(&w, 1, 100, 30);
            add_tokens(&w, 0, 1000, 33);
            add_tokens(&w, 0, 60, 9);
            check_world(&w);
        }
    }
}

static void test_options(void **state)
{
    (void)state;
    for (int i = 1; i < 16; i += QN_TEST_LIGHT ? 2 : 1) {
        world w = new_world(48, 40, 6, 2, QN_TYPE_F32, QN_TYPE_F32);
        w.with_sinks = i & 1;
        w.params.soft_cap = i & 2 ? 5.0F : 0.0F;
        w.params.alibi_bias = i & 4 ? 8.0F : 0.0F;
        w.params.causal = !(i & 8);
        w.params.scale = 0.3F;
        make_sequence(&w, 0, 20, 620, i % 3 == 0);
        add_tokens(&w, 0, 590, 31);
        add_tokens(&w, 0, 20, 3);
        check_world(&w);
    }
}

/* A token that sees no key gives zeros, also with a sink; rows without entries too. */
static void test_nothing_to_see(void **state)
{
    (void)state;
    world w = new_world(16, 16, 2, 1, QN_TYPE_F32, QN_TYPE_F32);
    make_sequence(&w, 0, 0, 60, false);
    w.seq[0].mask[0] = w.seq[0].mask[1] = 0;
    add_tokens(&w, 0, 10, 20);
    w.with_sinks = true;
    finish_world(&w);
    deal_blocks(&w, 0xff);
    float out[20 * 2 * 16];
    const qn_cpu_isa *isa;
    for (int32_t k = 0; (isa = qn__cpu_isa_at(k)); k++) {
        for (int32_t n = 3; n <= 20; n += 17) {
            memset(out, 0xff, sizeof out);
            attend(&w, isa, 0, n, true, out);
            for (int32_t i = 0; i < n * 32; i++) {
                assert_true(qn__float_bits(out[i]) == 0);
            }
        }
    }
    free_world(&w);
}

/* Large scores, infinities and NaN that really are there do not differ between instruction sets. */
static void test_extreme(void **state)
{
    (void)state;
    static const float odd[] = {INFINITY, -INFINITY, NAN, 1e30F, -1e30F, 1e-30F, -0.0F};
    for (int kind = 0; kind < 7; kind++) {
        world w = new_world(16, 17, 2, 1, QN_TYPE_F32, QN_TYPE_F32);
        make_sequence(&w, 0, 0, 100, false);
        add_tokens(&w, 0, 30, 40);
        finish_world(&w);
        for (int i = 0; i < 60; i++) {
            w.seq[0].k[qn_test_bits(&w.random) % (100 * 16)] = odd[kind];
            w.seq[0].v[qn_test_bits(&w.random) % (100 * 17)] = odd[(kind + i) % 7];
        }
        float want[40 * 2 * 17], got[40 * 2 * 17];
        const qn_cpu_isa *isa;
        for (int32_t k = 0; (isa = qn__cpu_isa_at(k)); k++) {
            deal_blocks(&w, 0);
            store_keys(&w, isa);
            attend(&w, isa, 0, 40, true, k == 0 ? want : got);
            if (k > 0) {
                check_same(&w, isa->name, got, want);
            }
        }
        free_world(&w);
    }
}

/* What a Q8_0 cell holds: within half a step of the largest value, and harmless on bad input. */
static void test_q8_0_cells(void **state)
{
    (void)state;
    qn_test_random r = {5};
    enum { N = 64 };
    uint8_t *block = calloc(1, qn__kv_block_bytes(QN_TYPE_Q8_0, N));
    for (int turn = 0; turn < 200; turn++) {
        float row[N], k[N], v[N], size = powf(10.0F, qn_test_uniform(&r, -4.0F, 4.0F));
        for (int i = 0; i < N; i++) {
            row[i] = qn_test_normal(&r) * size;
        }
        row[3] = turn % 50 == 7 ? NAN : turn % 50 == 8 ? INFINITY : row[3];
        int place = turn % 32;
        qn__kv_put_k(QN_TYPE_Q8_0, block, N, place, row);
        qn__kv_get_k(QN_TYPE_Q8_0, block, N, place, k);
        qn__kv_put_v(QN_TYPE_Q8_0, block, N, place, row);
        qn__kv_get_v(QN_TYPE_Q8_0, block, N, place, v);
        assert_memory_equal(k, v, sizeof k);
        for (int g = 0; g < N; g += 32) {
            float largest = 0.0F;
            for (int i = g; i < g + 32; i++) {
                largest = fmaxf(largest, fabsf(row[i]));
            }
            for (int i = g; i < g + 32 && isfinite(row[3]); i++) {
                assert_true(fabsf(k[i] - row[i]) <= largest * 0.00445F + 4e-6F);
            }
        }
    }
    free(block);
}

/* Stored and read in one graph, by a plan with any number of threads. */
static void test_threads(void **state)
{
    (void)state;
    enum { D = 40, HEADS = 6, KV = 2, BLOCKS = 60, TABLE = 50 };
    static const int64_t k_shape[] = {32, D, KV, BLOCKS}, v_shape[] = {D, 32, KV, BLOCKS};
    for (int64_t n = 3; n <= 80; n += 77) { /* segments shared out, tiles shared out */
        float *want = calloc((size_t)(n * HEADS * D), sizeof *want);
        for (int32_t threads = 1; threads <= 7; threads += threads == 3 ? 4 : 1) {
            qn_error err;
            qn_device *device = NULL;
            qn_device_options options = qn_device_defaults();
            options.threads.n_threads = threads;
            qn_test_ok(qn_device_open(0, &options, &device, &err), err);
            size_t bytes = qn__kv_block_bytes(QN_TYPE_F16, D) * KV * BLOCKS;
            void *k = qn__device_memory_alloc(device, bytes);
            void *v = qn__device_memory_alloc(device, bytes);
            qn_graph *g = qn__graph_make(NULL);
            int64_t head_shape[] = {D, HEADS, n}, row_shape[] = {D, KV, 32 * TABLE};
            qn_node *q = qn__graph_input(g, QN_TYPE_F32, 3, head_shape, "q");
            qn_node *x = qn__graph_input(g, QN_TYPE_F32, 3, row_shape, "x");
            qn_node *slots = qn__graph_input(g, QN_TYPE_I32, 1, &row_shape[2], "slots");
            qn_node *tables = qn__graph_input(g, QN_TYPE_I32, 1, (int64_t[]){TABLE}, "tables");
            qn_node *masks = qn__graph_input(g, QN_TYPE_I32, 1, (int64_t[]){TABLE}, "masks");
            qn_node *rows = qn__graph_input(g, QN_TYPE_I32, 2, (int64_t[]){4, n}, "rows");
            qn_attend_inputs in = {.tables = tables, .masks = masks, .rows = rows};
            in.k = qn__graph_kv_store(g, qn__graph_store(g, QN_TYPE_F16, k_shape, k, "k"), x, slots,
                                      false);
            in.v = qn__graph_kv_store(g, qn__graph_store(g, QN_TYPE_F16, v_shape, v, "v"), x, slots,
                                      true);
            qn_node *out = qn__graph_output(
                g,
                qn__graph_attend(
                    g, q, &in,
                    &(qn_attend_params){.scale = 0.2F, .causal = true, .n_kv_heads = KV}),
                "out");
            qn_plan *plan = NULL;
            qn_test_ok(qn__plan_make(g, device, NULL, &plan, &err), err);
            qn__plan_bind(plan);
            qn_test_random r = {9};
            for (int64_t i = 0; i < n * HEADS * D; i++) {
                ((float *)q->data)[i] = qn_test_normal(&r);
            }
            for (int64_t i = 0; i < row_shape[2] * KV * D; i++) {
                ((float *)x->data)[i] = qn_test_normal(&r);
            }
            for (int32_t i = 0; i < TABLE * 32; i++) {
                ((int32_t *)slots->data)[i] = (i / 32 * 7 % BLOCKS) * 32 + i % 32;
                ((int32_t *)tables->data)[i / 32] = i / 32 * 7 % BLOCKS;
                ((int32_t *)masks->data)[i / 32] = -1;
            }
            for (int32_t i = 0; i < n; i++) {
                const int32_t row[] = {0, TABLE, 0, 32 * TABLE - (int32_t)n + i};
                memcpy((int32_t *)rows->data + (size_t)4 * (size_t)i, row, sizeof row);
            }
            qn_test_ok(qn__plan_run(plan, threads, NULL, &err), err);
            size_t size = (size_t)(n * HEADS * D) * sizeof *want;
            if (threads == 1) {
                memcpy(want, out->data, size);
            }
            assert_memory_equal(out->data, want, size);
            qn__plan_free(plan);
            qn__graph_free(g);
            qn__device_memory_free(device, k, bytes);
            qn__device_memory_free(device, v, bytes);
            qn_device_free(device);
        }
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_types),
        cmocka_unit_test(test_long),    cmocka_unit_test(test_windows),
        cmocka_unit_test(test_options), cmocka_unit_test(test_nothing_to_see),
        cmocka_unit_test(test_extreme), cmocka_unit_test(test_q8_0_cells),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
