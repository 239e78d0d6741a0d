/* The reasoning budget: recorded runs, boundaries of characters, forcing, clones. */
#include "sampler/row.h"

#include "sampler/sampler.h"
#include "support/small_vocab.h"

static qn_error err;

#define SPAN(...)                                                                                  \
    {                                                                                              \
        (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)   \
    }

typedef struct budget_run {
    qn_token_span starts[2], ends[2], forced;
    int32_t budget;
    qn_reasoning_state first;
    int32_t fed[8];
    size_t n_fed;
    size_t from, to; /* forcing before these are accepted; from > to: never */
} budget_run;

static qn_sampler *make(const budget_run *r)
{
    qn_reasoning_options o = {.starts = r->starts,
                              .ends = r->ends,
                              .n_starts = 2, /* an empty one counts for nothing */
                              .n_ends = 2,
                              .forced = r->forced,
                              .budget = r->budget,
                              .first = r->first};
    qn_sampler *s = qn_sampler_reasoning_budget(&o, &err);
    assert_non_null(s);
    return s;
}

/* The token that apply leaves, or -1 where it leaves all. */
static int32_t forced_token(qn_sampler *s)
{
    float row[200] = {0};
    int32_t left = -1;
    size_t n = 0;
    qn_candidates *c = qn_candidates_make(200, &err);
    qn_candidates_fill(c, row, 200);
    qn_sampler_apply(s, c);
    for (size_t i = 0; i < 200; i++) {
        if (c->logits[i] > -INFINITY) {
            left = c->ids[i];
            n++;
        }
    }
    qn_candidates_free(c);
    assert_true(n == 1 || n == 200);
    return n == 1 ? left : -1;
}

static void feed(qn_sampler *s, int32_t token)
{
    qn_test_ok(qn_sampler_accept(s, token, true, &err), err);
}

static void test_recorded_runs(void **state)
{
    (void)state;
    const budget_run runs[] = {
        {{SPAN(100)},
         {SPAN(101)},
         SPAN(102),
         5,
         QN_REASONING_IDLE,
         {100, 50, 51, 101, 52},
         5,
         1,
         0},
        {{SPAN(100)},
         {SPAN(101)},
         SPAN(102, 101),
         2,
         QN_REASONING_IDLE,
         {100, 50, 51, 52, 53},
         5,
         3,
         4},
        {{SPAN(100)},
         {SPAN(101)},
         SPAN(102, 101),
         0,
         QN_REASONING_COUNTING,
         {100, 50, 51, 52},
         4,
         0,
         1},
        {{{0}}, {{0}}, SPAN(102), 2, QN_REASONING_IDLE, {50, 51, 52, 53}, 4, 1, 0},
        {{SPAN(100)},
         {SPAN(101)},
         SPAN(102, 101),
         2,
         QN_REASONING_COUNTING,
         {50, 51, 52, 53},
         4,
         2,
         3},
        {{SPAN(100)},
         {SPAN(101)},
         SPAN(102, 101),
         2,
         QN_REASONING_IDLE,
         {100, 50, 101, 100, 60, 61, 62, 63},
         8,
         6,
         7},
        {{SPAN(100), SPAN(110, 111)},
         {SPAN(101)},
         SPAN(102, 101),
         2,
         QN_REASONING_IDLE,
         {110, 111, 50, 51, 52, 53},
         6,
         4,
         5},
        {{SPAN(100)},
         {SPAN(101), SPAN(103, 104)},
         SPAN(102, 101),
         5,
         QN_REASONING_IDLE,
         {100, 50, 103, 104, 52},
         5,
         1,
         0},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const budget_run *r = &runs[i];
        qn_sampler *s = make(r);
        for (size_t k = 0; k < r->n_fed; k++) {
            bool want = k >= r->from && k <= r->to;
            int32_t token = forced_token(s);
            if ((token >= 0) != want) {
                fail_msg("run %zu: %sforcing before token %zu", i, want ? "not " : "", k);
            }
            if (want) {
                assert_int_equal(token, r->forced.ids[k - r->from]);
            }
            feed(s, r->fed[k]);
        }
        qn_sampler_free(s);
    }
}

static void test_force_clone_and_end(void **state)
{
    (void)state;
    const budget_run r = {{SPAN(100)},
                          {SPAN(104), SPAN(103, 104)},
                          SPAN(102, 103, 104),
                          3,
                          QN_REASONING_IDLE,
                          {0},
                          0,
                          0,
                          0};
    qn_sampler *s = make(&r);
    assert_false(qn_sampler_reasoning_force(s));
    assert_int_equal(qn_sampler_reasoning_state(s), QN_REASONING_IDLE);
    feed(s, 100);
    feed(s, 50);
    qn_sampler *half = qn_sampler_clone(s, &err); /* two tokens are left */
    feed(half, 51);
    assert_int_equal(qn_sampler_reasoning_state(half), QN_REASONING_COUNTING);
    feed(half, 52);
    assert_int_equal(forced_token(half), 102);
    feed(half, 102);
    qn_sampler *forcing = qn_sampler_clone(half, &err);
    assert_int_equal(forced_token(forcing), 103);
    assert_false(qn_sampler_reasoning_force(forcing)); /* does not go back */
    assert_int_equal(forced_token(forcing), 103);
    feed(forcing, 103);
    feed(forcing, 104);
    assert_int_equal(qn_sampler_reasoning_state(forcing), QN_REASONING_DONE);
    assert_int_equal(qn_sampler_reasoning_end(forcing), 1); /* the longer one */

    assert_true(qn_sampler_reasoning_force(s));
    assert_int_equal(forced_token(s), 102);
    qn_test_ok(qn_sampler_copy(s, forcing, &err), err);
    assert_int_equal(qn_sampler_reasoning_state(s), QN_REASONING_DONE);
    feed(s, 100); /* begins anew */
    assert_int_equal(qn_sampler_reasoning_end(s), -1);
    feed(s, 104);
    assert_int_equal(qn_sampler_reasoning_end(s), 0);
    qn_sampler_reset(s);
    assert_int_equal(qn_sampler_reasoning_state(s), QN_REASONING_IDLE);
    assert_int_equal(qn_sampler_reasoning_end(s), -1);
    qn_sampler_free(s);
    qn_sampler_free(half);
    qn_sampler_free(forcing);

    const budget_run other = {{SPAN(100)}, {SPAN(101)}, SPAN(102), 1, QN_REASONING_COUNTING,
                              {0},         0,           0,         0};
    s = make(&other);
    feed(s, 50);
    feed(s, 102);
    assert_int_equal(qn_sampler_reasoning_state(s), QN_REASONING_DONE);
    assert_int_equal(qn_sampler_reasoning_end(s), -1); /* 102 is no known end */
    qn_sampler_free(s);
    s = qn_sampler_greedy(&err);
    assert_false(qn_sampler_reasoning_force(s));
    assert_int_equal(qn_sampler_reasoning_end(s), -1);
    qn_sampler_free(s);
}

static void test_boundaries(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool complete;
    } rows[] = {
        {"", true},
        {"hello", true},
        {"\xC3\xA9", true},
        {"\xE2\x82\xAC", true},
        {"\xF0\x9F\x98\x80", true},
        {"\xC2", false},
        {"\xE2", false},
        {"\xE2\x80", false},
        {"\xF0", false},
        {"\xF0\x9F", false},
        {"\xF0\x9F\x98", false},
        {"\x80", false},
        {"hello\xC3", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool got = qn__text_is_complete((const uint8_t *)rows[i].text, strlen(rows[i].text));
        if (got != rows[i].complete) {
            fail_msg("boundary %zu", i);
        }
    }
}

/* Where the budget ends inside a character, the end is forced behind it. */
static void test_character_is_finished(void **state)
{
    (void)state;
    enum { BYTE_C3 = 9, A = 4, END = 2 };
    qn_vocab *vocab = NULL;
    qn_test_ok(small_vocab_load(small_vocab_writer("spm"), &vocab, &err), err);
    const int32_t forced = END;
    const qn_reasoning_options o = {
        .vocab = vocab, .forced = {&forced, 1}, .budget = 2, .first = QN_REASONING_COUNTING};
    qn_sampler *s = qn_sampler_reasoning_budget(&o, &err);
    assert_non_null(s);
    feed(s, A);
    feed(s, BYTE_C3);
    assert_int_equal(qn_sampler_reasoning_state(s), QN_REASONING_WAITING);
    assert_int_equal(forced_token(s), -1);
    feed(s, BYTE_C3); /* another first byte: still unfinished */
    assert_int_equal(qn_sampler_reasoning_state(s), QN_REASONING_WAITING);
    assert_false(qn_sampler_reasoning_force(s));
    feed(s, A);
    assert_int_equal(forced_token(s), END);
    qn_sampler_free(s);
    qn_vocab_free(vocab);
}

static void test_refused(void **state)
{
    (void)state;
    static int32_t many[300];
    qn_token_span span = {many, 300};
    qn_reasoning_options o = {.starts = &span, .n_starts = 1};
    assert_null(qn_sampler_reasoning_budget(&o, &err));
    assert_int_equal(err.code, QN_ERR_LIMIT);
    o = (qn_reasoning_options){.first = QN_REASONING_DONE};
    assert_null(qn_sampler_reasoning_budget(&o, &err));
    assert_int_equal(err.code, QN_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_runs), cmocka_unit_test(test_force_clone_and_end),
        cmocka_unit_test(test_boundaries),    cmocka_unit_test(test_character_is_finished),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
