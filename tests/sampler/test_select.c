/* Samplers that select from a large set instead of sorting it give what they give for a set that is
 * sorted already, which they walk through; min-p against a plain loop. */
#include "support/support.h"

#include <math.h>

#include "sampler/hostile.h"
#include "sampler/sampler.h"

static qn_error err;

enum { N_LARGE = 20000 };

static void expect_equal(const qn_candidates *a, const qn_candidates *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->ids, b->ids, a->size * sizeof *a->ids);
    for (size_t i = 0; i < a->size; i++) { /* +0 for -0 is the same */
        assert_true(a->logits[i] == b->logits[i]);
    }
    assert_int_equal(a->sorted, b->sorted);
    assert_true(a->total == b->total);
    assert_int_equal(a->has_weights, b->has_weights);
    if (a->has_weights) {
        assert_memory_equal(a->weights, b->weights, a->size * sizeof *a->weights);
    }
}

typedef struct both {
    qn_candidates *a, *b; /* as the row was; sorted */
    const float *row;
    size_t n;
} both;

static void refill(const both *s)
{
    qn_candidates_fill(s->a, s->row, s->n);
    qn_candidates_fill(s->b, s->row, s->n);
    qn_candidates_sort(s->b);
}

static void check_typical(const both *s, qn_test_random *r)
{
    static const float ps[] = {0.0F, 0.2F, 0.9F, 0.995F};
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
        size_t min_keep = qn_test_bits(r) % 3 ? 0 : qn_test_bits(r) % (s->n + 2);
        refill(s);
        qn__typical_row(s->a, qn__fraction_of(ps[i]), min_keep);
        qn__typical_row(s->b, qn__fraction_of(ps[i]), min_keep);
        s->a->sorted = s->b->sorted; /* where all are banned */
        expect_equal(s->a, s->b);
    }
}

static void check_mirostats(const both *s, const float *steps, size_t n_steps)
{
    static const float mus[] = {-3.0F, 0.0F, 0.7F, 4.0F, 10.0F, 40.0F, NAN};
    for (size_t i = 0; i < sizeof mus / sizeof *mus; i++) {
        refill(s);
        qn__mirostat_row(s->a, steps, n_steps, 11.0F, mus[i]);
        qn__mirostat_row(s->b, steps, n_steps, 11.0F, mus[i]);
        expect_equal(s->a, s->b);
        refill(s);
        qn__mirostat_v2_row(s->a, mus[i]);
        qn__mirostat_v2_row(s->b, mus[i]);
        expect_equal(s->a, s->b);
    }
}

/* What mirostat 2 keeps, candidate by candidate. */
static void check_mirostat_v2_kept(const both *s)
{
    static const float mus[] = {0.0F, 0.7F, 4.0F, 10.0F};
    for (size_t i = 0; i < sizeof mus / sizeof *mus; i++) {
        refill(s);
        if (qn_candidates_weigh(s->b) == 0) {
            return;
        }
        float log_sum = qn__row_log_sum(s->b);
        size_t n = 1;
        while (n < s->n &&
               (s->b->logits[0] - s->b->logits[n] + log_sum) * 0x1.715476p+0F <= mus[i]) {
            n++;
        }
        qn__mirostat_v2_row(s->a, mus[i]);
        assert_int_equal(s->a->size, n);
        assert_memory_equal(s->a->ids, s->b->ids, n * sizeof *s->a->ids);
    }
}

static void check_min_p(const both *s, qn_test_random *r)
{
    static const float log_ps[] = {-INFINITY, -9.0F, -3.0F, -0.1F, 0.0F, 0.5F, INFINITY};
    for (size_t i = 0; i < sizeof log_ps / sizeof *log_ps; i++) {
        size_t min_keep = qn_test_bits(r) % 3 ? 0 : qn_test_bits(r) % (s->n + 2);
        refill(s);
        float max = qn__row_max(s->a->logits, s->n), least = max + log_ps[i];
        size_t keep = 0;
        for (size_t j = 0; j < s->n; j++) {
            keep += s->a->logits[j] >= least;
        }
        qn__min_p_row(s->a, log_ps[i], min_keep);
        if (max == -INFINITY) {
            assert_int_equal(s->a->size, s->n);
            continue;
        }
        size_t wanted = min_keep < s->n ? min_keep : s->n;
        if (keep == 0 || keep < wanted) {
            qn__top_k_row(s->b, wanted > 0 ? wanted : 1);
            expect_equal(s->a, s->b);
            continue;
        }
        assert_int_equal(s->a->size, keep);
        qn_candidates_fill(s->b, s->row, s->n);
        for (size_t j = 0, n = 0; j < s->n; j++) { /* in their order */
            if (s->b->logits[j] >= least) {
                assert_int_equal(s->a->ids[n++], j);
            }
        }
    }
}

/* A few ids that ascend, with changes. */
static size_t random_list(int32_t *ids, float *values, size_t n, qn_test_random *r)
{
    size_t count = 0;
    int32_t id = -2;
    while (count < 60 && n > 0) {
        id += 1 + (int32_t)(qn_test_bits(r) % (n / 40 + 2));
        if (id >= (int32_t)n + 5) { /* some are not of the vocabulary */
            break;
        }
        ids[count] = id;
        values[count++] = qn_test_bits(r) % 9 ? qn_test_normal(r) * 6.0F : -INFINITY;
    }
    return count;
}

/* Only those that matter, straight from the row. */
static void check_begin(const both *s, qn_test_random *r)
{
    const size_t ks[] = {1, 2, 40, 100, s->n / 200 + 1, s->n + 1};
    int32_t ids[2][60];
    float values[2][60];
    qn_id_list lists[2];
    for (size_t i = 0; i < 3 * sizeof ks / sizeof *ks; i++) {
        size_t k = ks[i / 3], n_lists = i % 3;
        for (size_t l = 0; l < n_lists; l++) {
            lists[l] = (qn_id_list){ids[l], random_list(ids[l], values[l], s->n, r)};
        }
        memset(s->a->work, 0x55, 2 * N_LARGE * sizeof *s->a->work); /* as if never used */
        s->a->size = s->a->total = 77;
        s->a->has_weights = true;
        s->a->selected = 3;
        qn_candidates_fill(s->b, s->row, s->n);
        if (!qn__row_begin(s->a, s->row, s->n, k, lists, n_lists)) {
            continue; /* test_begins_where_it_should tells that this is not always so */
        }
        assert_true(s->a->selected == -1 && s->a->row == s->row && s->a->n_row == s->n);
        for (size_t l = 0; l < n_lists; l++) {
            qn__bias_row(s->a, ids[l], values[l], lists[l].n);
            qn__bias_row(s->b, ids[l], values[l], lists[l].n);
        }
        qn__top_k_row(s->a, k);
        qn__top_k_row(s->b, k);
        expect_equal(s->a, s->b);
    }
}

static void test_begins_where_it_should(void **state)
{
    (void)state;
    qn_test_random r = {22};
    float *row = calloc(N_LARGE, sizeof *row);
    qn_candidates *c = qn_candidates_make(N_LARGE, &err);
    for (int kind = 0; kind < N_ROWS; kind++) {
        make_row(kind, row, N_LARGE, &r);
        bool few = kind == ALL_BANNED || kind == ONE_LEFT;
        assert_int_equal(qn__row_begin(c, row, N_LARGE, 40, NULL, 0), !few);
        assert_false(qn__row_begin(c, row, N_LARGE, 5000, NULL, 0));
        assert_false(qn__row_begin(c, row, 100, 40, NULL, 0));
        assert_false(qn__row_begin(c, row, N_LARGE, SIZE_MAX, NULL, 0));
    }
    qn_candidates_free(c);
    free(row);
}

static void test_selected_equals_sorted(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 63, 64, 65, 300, 700, 5000, N_LARGE};
    qn_test_random r = {21};
    float *row = calloc(N_LARGE, sizeof *row), steps[99];
    both s = {qn_candidates_make(N_LARGE, &err), qn_candidates_make(N_LARGE, &err), row, 0};
    for (size_t i = 0; i < 99; i++) {
        steps[i] = logf((float)(i + 2) / (float)(i + 1));
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < N_ROWS; kind++) {
            s.n = sizes[i];
            make_row(kind, row, s.n, &r);
            check_typical(&s, &r);
            check_mirostats(&s, steps, 99);
            check_mirostats(&s, steps, 3);
            check_mirostat_v2_kept(&s);
            check_min_p(&s, &r);
            check_begin(&s, &r);
        }
    }
    qn_candidates_free(s.a);
    qn_candidates_free(s.b);
    free(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selected_equals_sorted),
        cmocka_unit_test(test_begins_where_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
