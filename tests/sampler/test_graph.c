/*
 * The SAMPLE operation gives what the chain gives outside of graphs, bit for bit: tokens and what
 * is left of the candidates; on ordinary and hostile rows, at any number of rows and threads and
 * with any instruction set.
 */
#include "support/random_chain.h"

#include <math.h>

#include "device/plan.h"
#include "sampler/graph.h"

static qn_error err;

/* Columns of logits that samplers must bear. */
enum { NORMAL, FLAT, TIED, NAN_ROW, ALL_BANNED, ONE_LEFT, INFINITE, TINY, SPREAD, N_KINDS };

static float value(int kind, size_t i, size_t n, qn_test_random *r)
{
    float x = qn_test_normal(r) * 4.0F;
    switch (kind) {
    case FLAT:
        return -2.5F;
    case TIED:
        return (float)(qn_test_bits(r) % 5);
    case NAN_ROW:
        return qn_test_bits(r) % 3 ? x : NAN;
    case ALL_BANNED:
        return qn_test_bits(r) % 2 ? -INFINITY : NAN;
    case ONE_LEFT:
        return i == n / 2 ? -3.0F : -INFINITY;
    case INFINITE:
        return qn_test_bits(r) % 4 ? x : (qn_test_bits(r) % 2 ? INFINITY : -INFINITY);
    case TINY:
        return (qn_test_bits(r) % 2 ? 1.0F : -1.0F) * (float)(qn_test_bits(r) % 9) * 0x1p-149F;
    case SPREAD:
        return x * 1e37F;
    default:
        return x;
    }
}

/* A node with rows of many chains, up to four a chain. What the chain picks for a row outside is
 * most often the batch's next token; where it is not, the rows behind it are for nothing. */
enum { ROWS_MAX = 1000 };
typedef struct bench_row {
    int32_t chain, nth, kind;
    int32_t token, draft, extra; /* picked; the batch's next ones, extra may be none */
    bool live;                   /* the rows before it were followed */
    int32_t slot;                /* in the node: first the first rows of all chains, and so on */
} bench_row;

typedef struct bench {
    size_t n;                                       /* vocabulary */
    int32_t n_chains, n_rows, limit;                /* limit: most rows */
    qn_sampler *chains[ROWS_MAX], *saved[ROWS_MAX]; /* saved: as they were at first */
    qn_chain_form forms[ROWS_MAX];
    bench_row rows[ROWS_MAX];
    size_t program_words;
    float *logits; /* [n, N_KINDS] */
} bench;

static void add_chain(bench *b, qn_sampler *chain, qn_test_random *r)
{
    int32_t at = b->n_chains++;
    qn_test_random_text(chain, (int32_t)(qn_test_bits(r) % 40), (int32_t)b->n, r);
    b->chains[at] = chain;
    b->saved[at] = qn_sampler_clone(chain, &err);
    assert_non_null(b->saved[at]);
    qn_test_ok(qn__chain_attach(chain, true, b->n, &b->forms[at], &err), err);
    int32_t count = 1 + (int32_t)(qn_test_bits(r) % 4);
    for (int32_t j = 0; j < count && b->n_rows < b->limit; j++) {
        int32_t kind = qn_test_bits(r) % 2 ? NORMAL : (int32_t)(qn_test_bits(r) % N_KINDS);
        b->rows[b->n_rows++] = (bench_row){.chain = at, .nth = j, .kind = kind};
        size_t words = qn__chain_program_words(chain, &b->forms[at], j, 2 * (size_t)j);
        b->program_words = words > b->program_words ? words : b->program_words;
    }
}

static int32_t token_of(const qn_candidates *c)
{
    return c->selected >= 0 && (size_t)c->selected < c->size ? c->ids[c->selected] : QN_TOKEN_NONE;
}

/* Applies the members [from, to) of a chain. */
static void apply_some(qn_sampler *chain, qn_candidates *c, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        qn_sampler_apply(qn_sampler_chain_get(chain, i), c);
    }
}

static void fill(const bench *b, int32_t kind, qn_candidates *c)
{
    qn_candidates_fill(c, b->logits + (size_t)kind * b->n, b->n);
}

/* What is picked for a row, and what the batch goes on with, is now accepted by a chain. */
static void accept_row(qn_sampler *chain, const bench_row *row)
{
    if (row->token != QN_TOKEN_NONE) {
        qn_test_ok(qn_sampler_accept(chain, row->token, true, &err), err);
    }
    if (row->token == row->draft && row->extra != QN_TOKEN_NONE) {
        qn_test_ok(qn_sampler_accept(chain, row->extra, false, &err), err);
    }
}

/* The tokens between the rows. */
static void make_text(bench *b, qn_test_random *r)
{
    qn_candidates *c = qn_candidates_make(b->n, &err);
    qn_sampler *outside = NULL;
    for (int32_t i = 0; i < b->n_rows; i++) {
        bench_row *row = &b->rows[i];
        if (row->nth == 0) {
            qn_sampler_free(outside);
            outside = qn_sampler_clone(b->saved[row->chain], &err);
        }
        row->live = row->nth == 0 || (row[-1].live && row[-1].token == row[-1].draft);
        fill(b, row->kind, c);
        qn_sampler_apply(outside, c);
        row->token = token_of(c);
        bool follows = row->token != QN_TOKEN_NONE && qn_test_bits(r) % 6;
        row->draft = follows ? row->token : (int32_t)(qn_test_bits(r) % b->n);
        row->extra = qn_test_bits(r) % 4 ? QN_TOKEN_NONE : (int32_t)(qn_test_bits(r) % b->n);
        accept_row(outside, row);
    }
    qn_sampler_free(outside);
    qn_candidates_free(c);
    int32_t slot = 0;
    for (int32_t nth = 0; nth < 4; nth++) {
        for (int32_t i = 0; i < b->n_rows; i++) {
            b->rows[i].slot = b->rows[i].nth == nth ? slot++ : b->rows[i].slot;
        }
    }
}

static void bench_make(bench *b, size_t n, int32_t n_random, int32_t limit, uint64_t seed)
{
    *b = (bench){.n = n, .limit = limit};
    qn_test_random r = {seed};
    for (uint32_t which = 0; which < QN_TEST_N_SAMPLERS; which++) {
        for (int i = 0; i < (n_random ? 2 : 1); i++) {
            add_chain(b, qn_test_chain_of(qn_test_random_sampler(which, &r)), &r);
        }
    }
    qn_sampling_options usual = qn_sampling_defaults();
    usual.seed = 17;
    add_chain(b, qn_sampler_from_options(&usual, &err), &r);
    for (int32_t i = 0; i < n_random; i++) {
        add_chain(b, qn_test_random_chain(&r), &r);
    }
    b->logits = malloc(n * N_KINDS * sizeof(float));
    assert_non_null(b->logits);
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (size_t i = 0; i < n; i++) {
            b->logits[(size_t)kind * n + i] = value(kind, i, n, &r);
        }
    }
    make_text(b, &r);
}

static void bench_free(bench *b)
{
    for (int32_t i = 0; i < b->n_chains; i++) {
        qn__chain_detach(b->chains[i]);
        qn_sampler_free(b->chains[i]);
        qn_sampler_free(b->saved[i]);
    }
    free(b->logits);
}

/* One row of the result against the members of the prefix applied outside. */
static void check_row(const bench *b, const bench_row *row, const int32_t *result, size_t n_keep,
                      qn_candidates *c, qn_sampler *outside)
{
    const qn_chain_form *form = &b->forms[row->chain];
    fill(b, row->kind, c);
    apply_some(outside, c, 0, form->n_prefix);
    const int32_t *arrays = result + QN_SAMPLE_RESULT_HEAD;
    if (result[QN_SAMPLE_TOKEN] != token_of(c)) {
        char text[200] = "";
        (void)qn_sampler_describe(b->chains[row->chain], text, sizeof text);
        fail_msg("row %d of kind %d of chain %d (%s): token %d, outside %d", row->nth, row->kind,
                 row->chain, text, result[QN_SAMPLE_TOKEN], token_of(c));
    }
    assert_int_equal(result[QN_SAMPLE_SIZE], c->size);
    assert_true(c->size <= form->n_keep);
    assert_int_equal((result[QN_SAMPLE_FLAGS] & QN_SAMPLE_SORTED) != 0, c->sorted);
    assert_int_equal((result[QN_SAMPLE_FLAGS] & QN_SAMPLE_HAS_WEIGHTS) != 0, c->has_weights);
    size_t n = c->size < n_keep ? c->size : n_keep;
    assert_memory_equal(arrays, c->ids, n * 4);
    assert_memory_equal(arrays + n_keep, c->logits, n * 4);
    if (c->has_weights) {
        assert_memory_equal(arrays + 2 * n_keep, c->weights, n * 4);
        assert_int_equal((uint32_t)result[QN_SAMPLE_TOTAL_LOW], (uint32_t)c->total);
        assert_int_equal((uint32_t)result[QN_SAMPLE_TOTAL_HIGH], (uint32_t)(c->total >> 32));
    }
    apply_some(outside, c, form->n_prefix, qn_sampler_chain_size(outside));
    assert_int_equal(token_of(c), row->token);
}

/* Words of a program that is written. */
static size_t length_of(const int32_t *program)
{
    size_t at = QN_SAMPLE_PROGRAM_HEAD;
    for (int32_t i = 0; i < program[QN_SAMPLE_N_STAGES]; i++) {
        at += 2 + (size_t)program[at + 1];
    }
    return at;
}

static void write_programs(const bench *b, int32_t *programs, size_t n_keep)
{
    size_t n_drafts = 0;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const bench_row *row = &b->rows[i];
        const qn_chain_form *form = &b->forms[row->chain];
        qn_sampler *chain = b->chains[row->chain];
        int32_t *program = programs + (size_t)row->slot * b->program_words;
        memset(program, 0, QN_SAMPLE_PROGRAM_HEAD * sizeof *program);
        program[QN_SAMPLE_COLUMN] = row->kind;
        program[QN_SAMPLE_N_BACK] = (int32_t)n_keep;
        if (row->nth == 0) {
            qn__chain_begin(chain);
            n_drafts = 0;
        } else {
            qn__chain_draft(chain, form, row[-1].draft);
            n_drafts++;
            if (row[-1].extra != QN_TOKEN_NONE) {
                qn__chain_draft(chain, form, row[-1].extra);
                n_drafts++;
            }
            if (form->carrier) {
                program[QN_SAMPLE_PREVIOUS] = row[-1].slot + 1;
                programs[(size_t)row[-1].slot * b->program_words + QN_SAMPLE_NEXT] = row->slot;
            }
        }
        qn__chain_program(chain, form, row->nth, NULL, program);
        assert_true(program[QN_SAMPLE_N_STAGES] <= (int32_t)form->n_prefix);
        size_t room = qn__chain_program_words(chain, form, row->nth, n_drafts);
        assert_true(length_of(program) <= room && room <= b->program_words);
    }
}

/* The rows of a chain from `row` on. A chain that is whole in the graph then accepts their tokens:
 * it is where the chain outside is. Then it is put back. */
static void check_chain(const bench *b, const bench_row *row, const qn_node *out, size_t n_keep,
                        qn_candidates *c)
{
    qn_sampler *outside = qn_sampler_clone(b->saved[row->chain], &err);
    qn_sampler *chain = b->chains[row->chain];
    int32_t n = 0, carries[4 * QN_SAMPLE_CARRY_WORDS], at = row->chain;
    const int32_t *results = out->data;
    for (const bench_row *one = row; one < b->rows + b->n_rows && one->chain == at; one++, n++) {
        const int32_t *result = results + one->slot * out->ne[0];
        memcpy(carries + n * QN_SAMPLE_CARRY_WORDS, result + QN_SAMPLE_CARRY,
               QN_SAMPLE_CARRY_WORDS * sizeof *carries);
        if (one->live) {
            check_row(b, one, result, n_keep, c, outside);
            accept_row(outside, one);
        }
    }
    qn__chain_rows(chain, &b->forms[at], carries, n, 0);
    for (int32_t i = 0; i < n && row[i].live; i++) {
        accept_row(chain, &row[i]);
    }
    for (int i = 0; i < 2 && b->forms[at].whole; i++) {
        fill(b, NORMAL, c);
        qn_sampler_apply(chain, c);
        int32_t token = token_of(c);
        fill(b, NORMAL, c);
        qn_sampler_apply(outside, c);
        if (token != token_of(c)) {
            char text[200] = "";
            (void)qn_sampler_describe(chain, text, sizeof text);
            fail_msg("after the rows of chain %d (%s): token %d, outside %d", at, text, token,
                     token_of(c));
        }
        if (token != QN_TOKEN_NONE) {
            qn_test_ok(qn_sampler_accept(chain, token, true, &err), err);
            qn_test_ok(qn_sampler_accept(outside, token, true, &err), err);
        }
    }
    qn_test_ok(qn_sampler_copy(chain, b->saved[at], &err), err);
    qn_sampler_free(outside);
}

static void check(const bench *b, const char *isa, int32_t n_threads, size_t n_keep)
{
    qn_device *device = NULL;
    qn_device_options options = qn_device_defaults();
    options.isa = isa;
    options.threads.n_threads = n_threads;
    qn_status status = qn_device_open(0, &options, &device, &err);
    if (isa && status == QN_ERR_UNSUPPORTED) {
        return; /* this machine lacks it */
    }
    qn_test_ok(status, err);
    qn_graph *g = qn__graph_make(&err);
    const int64_t ne[2] = {(int64_t)b->n, N_KINDS};
    const int64_t nw[2] = {(int64_t)b->program_words, b->n_rows};
    qn_node *logits = qn__graph_input(g, QN_TYPE_F32, 2, ne, "logits");
    qn_node *programs = qn__graph_input(g, QN_TYPE_I32, 2, nw, "programs");
    qn_node *out = qn__graph_output(
        g, qn__graph_sample(g, logits, programs, &qn__sample_table, (int64_t)n_keep), "sampled");
    qn_test_ok(qn__graph_finish(g, &err), err);
    qn_plan *plan = NULL;
    qn_test_ok(qn__plan_make(g, device, NULL, &plan, &err), err);
    memcpy(logits->data, b->logits, b->n * N_KINDS * sizeof(float));
    write_programs(b, programs->data, n_keep);
    qn_test_ok(qn__plan_run(plan, n_threads, NULL, &err), err);
    qn_candidates *c = qn_candidates_make(b->n, &err);
    for (int32_t i = 0; i < b->n_rows; i++) {
        if (b->rows[i].nth == 0) {
            check_chain(b, &b->rows[i], out, n_keep, c);
        }
    }
    qn_candidates_free(c);
    qn__plan_free(plan);
    qn__graph_free(g);
    qn_device_free(device);
}

static void test_small(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 128};
    static const int32_t threads[] = {1, 2, 7};
    for (size_t i = 0; i < 4; i++) {
        bench *b = calloc(1, sizeof *b);
        bench_make(b, sizes[i], 250, ROWS_MAX, 100 + i);
        for (size_t t = 0; t < 3; t++) {
            check(b, NULL, threads[t], sizes[i]);
            check(b, "scalar", threads[t], sizes[i] / 2);
        }
        check(b, "avx2", 2, sizes[i]);
        check(b, "avx512", 2, sizes[i]);
        bench_free(b);
        free(b);
    }
}

static void test_large(void **state)
{
    (void)state;
    static const size_t sizes[] = {32000, 262144};
    static const int32_t chains[] = {40, 4};
    for (size_t i = 0; i < 2; i++) {
        bench *b = calloc(1, sizeof *b);
        bench_make(b, sizes[i], chains[i], ROWS_MAX, 7 + i);
        check(b, NULL, 2, 1000);
        check(b, "scalar", 7, 0);
        bench_free(b);
        free(b);
    }
}

static void test_few_rows(void **state)
{
    (void)state; /* fewer rows than threads: places by row */
    bench *b = calloc(1, sizeof *b);
    bench_make(b, 5000, 0, 3, 3);
    check(b, NULL, 7, 5000);
    bench_free(b);
    free(b);
}

static void test_marks(void **state)
{
    (void)state;
    qn_sampler *chain = qn_test_chain_of(qn_sampler_top_k(0, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_top_k(8, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_test_own_sampler(2), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_dist(1, &err), &err), err);
    static const char *const names[3][4] = {{"?top-k", "top-k", "own", "dist"},
                                            {"?top-k", "+top-k", "own", "dist"},
                                            {"?top-k", "-top-k", "own", "dist"}};
    for (int how = 0; how < 3; how++) {
        qn_chain_form form = {0};
        if (how > 0) {
            qn_test_ok(qn__chain_attach(chain, how == 1, 100, &form, &err), err);
            assert_int_equal(form.n_prefix, how == 1 ? 2 : 0);
            assert_false(form.whole);
            assert_int_equal(qn__chain_attach(chain, true, 100, &form, &err), QN_ERR_ARGUMENT);
            assert_null(qn_sampler_chain_remove(chain, 0));
            assert_int_equal(qn_sampler_chain_add(chain, qn_sampler_greedy(&err), &err),
                             QN_ERR_ARGUMENT);
        }
        for (size_t i = 0; i < 4; i++) {
            assert_string_equal(qn_sampler_name(qn_sampler_chain_get(chain, i)), names[how][i]);
        }
        qn_sampler *clone = qn_sampler_clone(chain, &err); /* is not in the graph */
        assert_string_equal(qn_sampler_name(qn_sampler_chain_get(clone, 1)), "top-k");
        qn_sampler_free(clone);
        if (how > 0) {
            qn__chain_detach(chain);
        }
    }
    qn_sampler_free(chain);
}

/* One that learns from its picks runs in the graph, a second one behind it. */
static void test_second_carrier(void **state)
{
    (void)state;
    qn_sampler *chain = qn_test_chain_of(qn_sampler_mirostat_v2(1, 5, 0.1F, &err));
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_temp(0.5F, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_adaptive_p(0.3F, 0.9F, 2, &err), &err), err);
    qn_test_ok(qn_sampler_chain_add(chain, qn_sampler_top_k(5, &err), &err), err);
    char text[100];
    qn_chain_form form = {0};
    qn_test_ok(qn__chain_attach(chain, true, 100, &form, &err), err);
    (void)qn_sampler_describe(chain, text, sizeof text);
    assert_string_equal(text, "logits -> +mirostat-v2 -> +temp -> -adaptive-p -> top-k ");
    assert_int_equal(form.n_prefix, 2);
    assert_ptr_equal(form.carrier, qn_sampler_chain_get(chain, 0));
    qn__chain_detach(chain);
    qn_sampler_free(chain);
}

/* The n-th accepted token gets the n-th number, whatever was looked at. */
static void test_draws(void **state)
{
    (void)state;
    qn_draw plain = {0}, d = {0};
    qn__draw_init(&plain, 95);
    uint64_t want[8];
    for (int i = 0; i < 8; i++) {
        want[i] = qn__draw_fraction(&plain);
        qn__draw_accept(&plain, true);
    }
    qn__draw_init(&d, 95);
    qn__draw_accept(&d, true); /* nothing was looked at: nothing is consumed */
    assert_true(qn__draw_fraction_ahead(&d, 3) == want[3]);
    assert_true(qn__draw_fraction_ahead(&d, 1) == want[1]);
    assert_true(qn__draw_fraction_ahead(&d, 2) == want[2]);
    assert_true(qn__draw_fraction(&d) == want[0]);
    qn__draw_accept(&d, false); /* of a prompt */
    qn__draw_accept(&d, true);
    qn__draw_accept(&d, true);
    assert_true(qn__draw_fraction(&d) == want[2]);
    assert_true(qn__draw_fraction_ahead(&d, 1) == want[3]);
    qn__draw_forget(&d);
    qn__draw_accept(&d, true);
    assert_true(qn__draw_fraction_ahead(&d, 5) == want[7]);
    assert_true(qn__draw_fraction(&d) == want[2]);
}

static void test_shapes(void **state)
{
    (void)state;
    const int64_t ne[2] = {10, 2}, odd[2] = {65, 2}, good[2] = {64, 2};
    for (int i = 0; i < 3; i++) {
        qn_graph *g = qn__graph_make(&err);
        qn_node *logits = qn__graph_input(g, QN_TYPE_F32, 2, ne, "logits");
        qn_node *programs = qn__graph_input(g, QN_TYPE_I32, 2, i == 0 ? odd : good, "programs");
        qn__graph_sample(g, logits, programs, &qn__sample_table, i == 1 ? 11 : 10);
        assert_int_equal(qn__graph_finish(g, &err), i == 2 ? QN_OK : QN_ERR_ARGUMENT);
        qn__graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),          cmocka_unit_test(test_large),
        cmocka_unit_test(test_few_rows),       cmocka_unit_test(test_marks),
        cmocka_unit_test(test_second_carrier), cmocka_unit_test(test_draws),
        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
