/*
 * Attached chains over batches with drafts: the texts are those that the same chains make outside,
 * token by token, however many drafts are taken or refused, with several sequences, cut into any
 * micro-batches, and whatever was computed in between and thrown away.
 */
#include "support/engine.h"
#include "support/random_chain.h"

static qn_error err;
static qn_model *model;

#define WIDTH QN_TEST_TINY_VOCAB

enum { N_SEQ = 3, N_PROMPT = 9, N_TEXT = 12, N_ROWS = 6, N_BATCH = N_SEQ * N_ROWS };

/* A text at work. */
typedef struct text {
    qn_sampler *chain, *fresh; /* fresh: as it was made */
    int32_t prompt[N_PROMPT];
    int32_t want[N_TEXT]; /* as made outside; n of them, fewer where nothing can be picked */
    int32_t n;
    int32_t done;          /* accepted inside */
    int32_t draft[N_ROWS]; /* of the batch: behind the last token that was accepted */
    int32_t row[N_ROWS];   /* places of the rows in the batch */
    int32_t n_rows;
} text;

/* ---- Outside ---- */

static void decode_prompt(qn_context *ctx, int32_t seq, const text *t)
{
    int32_t ids[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++) {
        ids[i] = seq;
    }
    qn_batch batch = {.n_tokens = N_PROMPT, .tokens = t->prompt, .seq_id = ids};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
}

static void accept_prompt(qn_sampler *chain, const text *t)
{
    for (int32_t i = 0; i < N_PROMPT; i++) {
        qn_test_ok(qn_sampler_accept(chain, t->prompt[i], false, &err), err);
    }
}

static void write_outside(qn_context *ctx, text *t)
{
    qn_sampler *chain = qn_sampler_clone(t->fresh, &err);
    qn_context_clear(ctx);
    accept_prompt(chain, t);
    decode_prompt(ctx, 0, t);
    for (t->n = 0; t->n < N_TEXT; t->n++) {
        int32_t *token = &t->want[t->n];
        if (qn_context_sample(ctx, chain, -1, token, &err) != QN_OK) {
            break;
        }
        qn_batch batch = qn_batch_of(token, 1);
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    }
    qn_sampler_free(chain);
}

/* Puts a sampler into a chain. */
static void insert(qn_sampler *chain, size_t at, qn_sampler *member)
{
    qn_sampler *moved[16];
    size_t n = 0;
    while (qn_sampler_chain_size(chain) > at) {
        moved[n++] = qn_sampler_chain_remove(chain, at);
    }
    qn_test_ok(qn_sampler_chain_add(chain, member, &err), err);
    for (size_t k = 0; k < n; k++) {
        qn_test_ok(qn_sampler_chain_add(chain, moved[k], &err), err);
    }
}

/* Reasoning that begins at every fourth token and is ended soon. */
static qn_sampler *make_budget(qn_test_random *r)
{
    enum { N_STARTS = WIDTH / 4 };
    static const int32_t forced[3] = {5, 1, 9};
    int32_t begin[N_STARTS];
    qn_token_span starts[N_STARTS], end = {&forced[2], 1};
    for (int32_t i = 0; i < N_STARTS; i++) {
        begin[i] = 4 * i;
        starts[i] = (qn_token_span){&begin[i], 1};
    }
    const qn_reasoning_options o = {.starts = starts,
                                    .n_starts = N_STARTS,
                                    .ends = &end,
                                    .n_ends = 1,
                                    .forced = {forced, 3},
                                    .budget = (int32_t)(qn_test_bits(r) % 3)};
    return qn_sampler_reasoning_budget(&o, &err);
}

static qn_sampler *make_chain(qn_test_random *r)
{
    uint32_t n_learning = QN_TEST_N_SAMPLERS - QN_TEST_CARRYING, kind = qn_test_bits(r) % 4;
    qn_sampler *chain = NULL;
    if (kind == 0) {
        uint32_t which = QN_TEST_CARRYING + qn_test_bits(r) % n_learning;
        chain = qn_test_chain_of(qn_test_random_sampler(which, r));
    } else {
        chain = qn_test_random_chain(r);
    }
    if (kind == 1) { /* what is behind one of the test's own runs outside */
        size_t at = qn_test_bits(r) % (qn_sampler_chain_size(chain) + 1);
        insert(chain, at, qn_test_own_sampler(3));
    }
    if (qn_test_bits(r) % 4 == 0) {
        insert(chain, 0, make_budget(r));
    }
    if (kind == 0 || qn_test_bits(r) % 2) { /* the model is very sure: heat it */
        insert(chain, 0, qn_sampler_temp(qn_test_uniform(r, 5.0F, 60.0F), &err));
    }
    return chain;
}

static void text_make(qn_context *outside, text *t, qn_test_random *r)
{
    *t = (text){.chain = make_chain(r)};
    t->fresh = qn_sampler_clone(t->chain, &err);
    assert_non_null(t->fresh);
    qn_test_tokens(qn_test_bits(r) % 50, t->prompt, N_PROMPT);
    for (int32_t i = 0; i < N_PROMPT; i++) {
        t->prompt[i] %= 20; /* it repeats, and what is rare is met */
    }
    write_outside(outside, t);
}

/* ---- Inside ---- */

/* One more part of each text: its last token, then drafts, right ones and then others. */
static void make_drafts(text *t, qn_test_random *r)
{
    int32_t right = (int32_t)(qn_test_bits(r) % N_ROWS), n = (int32_t)(qn_test_bits(r) % N_ROWS);
    t->n_rows = t->done < t->n ? n + 1 : 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t next = t->done + i;
        bool is_right = i < right && next < t->n;
        t->draft[i] = is_right ? t->want[next] : (int32_t)(qn_test_bits(r) % WIDTH);
    }
}

typedef struct parts {
    int32_t n, tokens[N_BATCH], ids[N_BATCH], pos[N_BATCH];
    int8_t output[N_BATCH];
} parts;

static void add_token(parts *p, text *t, int32_t s, int32_t j)
{
    if (j < t->n_rows) {
        t->row[j] = p->n;
        p->tokens[p->n] = j == 0 ? t->want[t->done - 1] : t->draft[j - 1];
        p->ids[p->n] = s;
        p->pos[p->n] = N_PROMPT + t->done - 1 + j;
        p->output[p->n++] = 1;
    }
}

static void parts_make(parts *p, text *texts, qn_test_random *r)
{
    bool mixed = qn_test_bits(r) % 2;
    p->n = 0;
    for (int32_t s = 0; s < N_SEQ; s++) {
        make_drafts(&texts[s], r);
    }
    for (int32_t i = 0; i < N_BATCH; i++) {
        int32_t s = mixed ? i % N_SEQ : i / N_ROWS;
        add_token(p, &texts[s], s, mixed ? i / N_SEQ : i % N_ROWS);
    }
}

static qn_status parts_decode(qn_context *ctx, const parts *p)
{
    qn_batch batch = {.n_tokens = p->n,
                      .tokens = p->tokens,
                      .pos = p->pos,
                      .seq_id = p->ids,
                      .output = p->output};
    return qn_context_decode(ctx, &batch, &err);
}

/* Only what became part of the texts stays in the memory, but for their last tokens. */
static void take_back(qn_context *ctx, const text *texts)
{
    for (int32_t s = 0; s < N_SEQ; s++) {
        if (texts[s].done > 0) {
            qn_test_ok(qn_context_seq_rm(ctx, s, N_PROMPT + texts[s].done - 1, -1, &err), err);
        }
    }
}

static void check_token(const text *t, int32_t i, int32_t token)
{
    if (token != t->want[i]) {
        char names[200] = "";
        (void)qn_sampler_describe(t->chain, names, sizeof names);
        fail_msg("token %d, %s: %d inside, %d outside", i, names, token, t->want[i]);
    }
}

/* Samples rows in order as long as the drafts are right, at most `limit`; returns how many. */
static int32_t accept_rows(qn_context *ctx, const text *t, int32_t limit)
{
    int32_t n = 0;
    while (n < t->n_rows && n < limit && t->done + n < N_TEXT) {
        int32_t token;
        qn_status status = qn_context_sample(ctx, NULL, t->row[n], &token, &err);
        if (t->done + n == t->n) { /* nothing could be picked */
            assert_int_equal(status, QN_ERR_NOT_FOUND);
            break;
        }
        qn_test_ok(status, err);
        check_token(t, t->done + n, token);
        n++;
        if (n < t->n_rows && t->draft[n - 1] != token) {
            break;
        }
    }
    return n;
}

static void begin_inside(qn_context *ctx, text *texts)
{
    qn_context_clear(ctx);
    for (int32_t s = 0; s < N_SEQ; s++) {
        text *t = &texts[s];
        int32_t token;
        qn_test_ok(qn_context_set_sampler(ctx, s, t->chain, &err), err);
        accept_prompt(t->chain, t);
        decode_prompt(ctx, s, t);
        qn_status status = qn_context_sample(ctx, NULL, -1, &token, &err);
        assert_int_equal(status, t->n > 0 ? QN_OK : QN_ERR_NOT_FOUND);
        t->done = t->n > 0;
        if (t->n > 0) {
            check_token(t, 0, token);
        }
    }
}

typedef enum follow_up { DECODE, DECODED, AGAIN } follow_up;

/* What must leave no trace; says what is to be done with the batch. */
static follow_up disturb(qn_context *ctx, text *texts, const parts *p, int *countdown,
                         qn_test_random *r)
{
    qn_sampler *saved[N_SEQ];
    parts over = {.n = N_ROWS + 1};
    qn_status status;
    switch (qn_test_bits(r) % 8) {
    case 0: /* given up midway, if it comes to that */
        *countdown = 1 + (int)(qn_test_bits(r) % 60);
        status = parts_decode(ctx, p);
        *countdown = 0;
        assert_true(status == QN_OK || status == QN_ERR_ABORTED);
        take_back(ctx, texts);
        return AGAIN;
    case 1: /* for nothing */
        qn_test_ok(parts_decode(ctx, p), err);
        take_back(ctx, texts);
        return AGAIN;
    case 2: /* more rows than a sequence may have */
        for (int32_t i = 0; i < over.n; i++) {
            over.pos[i] = qn_context_pos_max(ctx, 0) + 1 + i;
            over.output[i] = 1;
        }
        assert_int_equal(parts_decode(ctx, &over), QN_ERR_ARGUMENT);
        return DECODE;
    case 3:
    case 4: /* rows are accepted, then the chains are put back */
        for (int32_t s = 0; s < N_SEQ; s++) {
            saved[s] = qn_sampler_clone(texts[s].chain, &err);
        }
        qn_test_ok(parts_decode(ctx, p), err);
        for (int32_t s = 0; s < N_SEQ; s++) {
            (void)accept_rows(ctx, &texts[s], N_ROWS);
            qn_test_ok(qn_sampler_copy(texts[s].chain, saved[s], &err), err);
            qn_sampler_free(saved[s]);
        }
        return DECODED;
    default:
        return DECODE;
    }
}

static bool unfinished(const text *texts)
{
    bool any = false;
    for (int32_t s = 0; s < N_SEQ; s++) {
        any = any || texts[s].done < texts[s].n;
    }
    return any;
}

static void write_inside(qn_context *ctx, text *texts, int *countdown, qn_test_random *r)
{
    begin_inside(ctx, texts);
    while (unfinished(texts)) {
        parts p;
        parts_make(&p, texts, r);
        follow_up next = disturb(ctx, texts, &p, countdown, r);
        if (next == AGAIN) {
            continue;
        }
        if (next == DECODE) {
            qn_test_ok(parts_decode(ctx, &p), err);
        }
        for (int32_t s = 0; s < N_SEQ; s++) {
            int32_t limit = qn_test_bits(r) % 4 ? N_ROWS : 1 + (int32_t)(qn_test_bits(r) % 2);
            texts[s].done += accept_rows(ctx, &texts[s], limit);
        }
        take_back(ctx, texts);
    }
    for (int32_t s = 0; s < N_SEQ; s++) {
        qn_test_ok(qn_context_set_sampler(ctx, s, NULL, &err), err);
    }
}

/* ---- Tests ---- */

/* The chains are put back by reset; so are fresh ones, which write what is wanted then. */
static void write_again(qn_context *outside, text *texts)
{
    for (int32_t s = 0; s < N_SEQ; s++) {
        qn_sampler_reset(texts[s].chain);
        qn_sampler_reset(texts[s].fresh);
        write_outside(outside, &texts[s]);
    }
}

static bool say_stop(void *user)
{
    int *countdown = user;
    return *countdown > 0 && --*countdown == 0;
}

static void test_random_chains(void **state)
{
    (void)state;
    static const struct {
        int32_t n_ubatch, n_threads;
        const char *isa;
    } cases[] = {{0, 1, NULL}, {1, 2, NULL},     {2, 7, NULL}, {3, 1, "scalar"},
                 {5, 2, NULL}, {0, 2, "scalar"}, {4, 1, NULL}};
    enum { N_CASES = sizeof cases / sizeof *cases, N_ROUNDS = QN_TEST_LIGHT ? 2 : 14 };
    qn_context *outside = qn_test_context(model, NULL);
    qn_test_random r = {2024};
    for (int i = 0; i < N_CASES; i++) {
        int countdown = 0;
        qn_context_options o = qn_test_context_options();
        o.n_ubatch = cases[i].n_ubatch;
        o.n_threads = o.n_threads_batch = cases[i].n_threads;
        o.isa = cases[i].isa;
        o.n_outputs_max_per_seq = N_ROWS;
        o.abort = say_stop;
        o.abort_user = &countdown;
        qn_context *inside = qn_test_context(model, &o);
        int n_rounds = cases[i].isa ? N_ROUNDS / 4 : N_ROUNDS; /* that one is slow */
        for (int round = 0; round < n_rounds; round++) {
            text texts[N_SEQ];
            for (int32_t s = 0; s < N_SEQ; s++) {
                text_make(outside, &texts[s], &r);
            }
            write_inside(inside, texts, &countdown, &r);
            if (round % 4 == 0) {
                write_again(outside, texts);
                write_inside(inside, texts, &countdown, &r);
            }
            for (int32_t s = 0; s < N_SEQ; s++) {
                qn_sampler_free(texts[s].chain);
                qn_sampler_free(texts[s].fresh);
            }
        }
        qn_context_free(inside);
    }
    qn_context_free(outside);
}

static int setup(void **state)
{
    (void)state;
    model = qn_test_model(QN_TEST_TINY_LLAMA, QN_TYPE_F32, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    qn_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
