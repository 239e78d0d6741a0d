/* The usual chain from settings: orders by name and letter, what it is made of, what is refused;
 * samplers that need a vocabulary. */
#include "sampler/row.h"

#include "sampler/sampler.h"
#include "support/small_vocab.h"

static qn_error err;

enum { END = 2, A = 4, B = 5, SPACE_A = 6, AB = 7, X = 10, BA = 11, N_VOCAB = 12 };

static qn_vocab *load(void)
{
    qn_vocab *vocab = NULL;
    qn_test_ok(small_vocab_load(small_vocab_writer("spm"), &vocab, &err), err);
    assert_int_equal(qn_vocab_size(vocab), N_VOCAB);
    assert_true(qn_vocab_is_end(vocab, END));
    return vocab;
}

static void expect_chain(const qn_sampling_options *o, const char *want)
{
    char text[512];
    qn_sampler *chain = qn_sampler_from_options(o, &err);
    if (!chain) {
        fail_msg("%s", err.message);
    }
    size_t n = qn_sampler_describe(chain, text, sizeof text);
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
    char cut[16];
    assert_int_equal(qn_sampler_describe(chain, cut, sizeof cut), n);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(strncmp(cut, want, sizeof cut - 1), 0);
    qn_sampler_free(chain);
}

static void test_chain_of_options(void **state)
{
    (void)state;
    qn_vocab *vocab = load();
    expect_chain(NULL, "logits -> ?penalties -> ?dry -> ?top-n-sigma -> top-k -> ?typical -> "
                       "top-p -> min-p -> ?xtc -> temp-ext -> dist ");
    qn_sampling_options o = qn_sampling_defaults();
    o.penalty_repeat = 1.1F;
    o.xtc_probability = .5F;
    qn_test_ok(qn_sampler_order_from_names("xtc;penalties;xtc", NULL, &o.order, &err), err);
    expect_chain(&o, "logits -> xtc -> penalties -> xtc -> dist ");
    qn_test_ok(qn_sampler_order_from_letters("ak", NULL, &o.order, &err), err);
    expect_chain(&o, "logits -> top-k -> adaptive-p ");
    qn_test_ok(qn_sampler_order_from_letters("", NULL, &o.order, &err), err);
    expect_chain(&o, "logits -> dist ");
    const qn_logit_bias bias = {3, 1};
    o.biases = &bias;
    o.n_biases = 1;
    expect_chain(&o, "logits -> logit-bias -> dist ");
    o.mirostat = 2;
    expect_chain(&o, "logits -> logit-bias -> temp -> mirostat-v2 ");
    o = qn_sampling_defaults();
    o.vocab = vocab;
    o.mirostat = 1;
    o.temperature = 1;
    expect_chain(&o, "logits -> ?temp -> mirostat ");
    o = qn_sampling_defaults();
    o.vocab = vocab;
    o.ignore_eos = true;
    o.dry.multiplier = 1;
    qn_test_ok(qn_sampler_order_from_letters("di", NULL, &o.order, &err), err);
    expect_chain(&o, "logits -> logit-bias -> dry -> infill -> dist ");
    qn_vocab_free(vocab);
}

static void on_warning(void *user, qn_log_level level, const char *line)
{
    (void)line;
    assert_int_equal(level, QN_LOG_WARN);
    ++*(int *)user;
}

static void test_orders(void **state)
{
    (void)state;
    static const struct {
        const char *names, *letters;
        int unknown;
    } rows[] = {
        {"penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "edskypmxt", 0},
        {"Top-K;topk;TOPNSIGMA;top-n-sigma;typp;typ-p;typ", "kkssyyy", 0},
        {"nucleus;top-p;minp;temp;infill;adaptive_p;adaptive-p;adaptivep", "ppmtiaaa", 0},
        {";;top_k;;temperature;", "kt", 0},
        {"typical;top-nsigma;top_kk;top_;;top_k", "k", 4},
        {"", "", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int warnings = 0;
        const qn_log log = {.fn = on_warning, .user = &warnings, .max_level = QN_LOG_WARN};
        qn_sampler_order a, b;
        qn_test_ok(qn_sampler_order_from_names(rows[i].names, &log, &a, &err), err);
        assert_int_equal(warnings, rows[i].unknown);
        qn_test_ok(qn_sampler_order_from_letters(rows[i].letters, &log, &b, &err), err);
        assert_int_equal(a.count, b.count);
        for (size_t k = 0; k < a.count; k++) {
            assert_int_equal(a.kinds[k], b.kinds[k]);
        }
    }
    int warnings = 0;
    const qn_log log = {.fn = on_warning, .user = &warnings, .max_level = QN_LOG_WARN};
    qn_sampler_order order = qn_sampling_defaults().order;
    assert_int_equal(order.count, 9);
    char letters[80];
    memset(letters, 'k', sizeof letters);
    letters[65] = '\0';
    assert_int_equal(qn_sampler_order_from_letters(letters, &log, &order, &err), QN_ERR_LIMIT);
    assert_int_equal(order.count, 9); /* as it was */
    qn_test_ok(qn_sampler_order_from_letters("z?K", &log, &order, &err), err);
    assert_int_equal(warnings, 3);
    assert_int_equal(order.count, 0);
    for (int k = 0; k < QN_SAMPLER_KINDS; k++) {
        const char *name = qn_sampler_kind_name((qn_sampler_kind)k);
        qn_test_ok(qn_sampler_order_from_names(name, NULL, &order, &err), err);
        assert_true(order.count == 1 && order.kinds[0] == (qn_sampler_kind)k);
    }
    assert_null(qn_sampler_kind_name(QN_SAMPLER_KINDS));
}

static void refused(const qn_sampling_options *o, const char *message)
{
    err = (qn_error){0};
    assert_null(qn_sampler_from_options(o, &err));
    assert_int_equal(err.code, QN_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, message));
}

static void test_refused(void **state)
{
    (void)state;
    qn_sampling_options o = {0};
    refused(&o, "penalty_repeat must be finite and greater than 0");
    o = qn_sampling_defaults();
    o.penalty_frequency = NAN;
    refused(&o, "penalty_freq must be finite");
    o = qn_sampling_defaults();
    o.penalty_presence = INFINITY;
    o.mirostat = 2; /* though there it does not matter */
    refused(&o, "penalty_present must be finite");
    o = qn_sampling_defaults();
    o.mirostat = 3;
    refused(&o, "mirostat: 3");
    o.mirostat = 1;
    refused(&o, "mirostat 1 needs a vocabulary");
    o = qn_sampling_defaults();
    o.ignore_eos = true;
    refused(&o, "ignore_eos needs a vocabulary");
    o = qn_sampling_defaults();
    o.dry.multiplier = 1;
    refused(&o, "dry: breakers need a vocabulary");
    o = qn_sampling_defaults();
    o.order.kinds[0] = QN_SAMPLER_KINDS;
    refused(&o, "unknown kind");
    o.order.kinds[0] = QN_SAMPLER_INFILL;
    refused(&o, "infill needs a vocabulary");
    o = qn_sampling_defaults();
    o.typical_p = NAN;
    refused(&o, "typical");
    o = qn_sampling_defaults();
    o.temperature = NAN;
    refused(&o, "temperature");
    o = qn_sampling_defaults();
    o.top_n_sigma = NAN;
    refused(&o, "top-n-sigma");
    o = qn_sampling_defaults();
    o.xtc_threshold = NAN;
    refused(&o, "xtc");
    o = qn_sampling_defaults();
    o.mirostat = 2;
    o.mirostat_tau = INFINITY;
    refused(&o, "mirostat: tau");
    o = qn_sampling_defaults();
    qn_test_ok(qn_sampler_order_from_letters("a", NULL, &o.order, &err), err);
    o.adaptive_decay = NAN;
    refused(&o, "adaptive-p");
    assert_null(qn_sampler_mirostat(0, 1, 5, .1F, 100, &err));
    assert_null(qn_sampler_mirostat(7, 1, 5, .1F, INT32_MAX, &err));
}

/* ---- Settings out of range ---- */

enum { ROWS = 24, LADDER = 1000 };

/* Ids that the chain of the options picks, each accepted, from a row whose tail is steep. */
static void pick_row(const qn_sampling_options *o, int32_t *ids)
{
    float row[LADDER];
    ladder_row(row);
    qn_sampler *chain = qn_sampler_from_options(o, &err);
    if (!chain) {
        fail_msg("%s", err.message);
    }
    qn_candidates *c = qn_candidates_make(LADDER, &err);
    for (int i = 0; i < ROWS; i++) {
        qn_candidates_fill(c, row, LADDER);
        qn_sampler_apply(chain, c);
        assert_true(c->selected >= 0);
        ids[i] = c->ids[c->selected];
        qn_test_ok(qn_sampler_accept(chain, ids[i], true, &err), err);
    }
    qn_candidates_free(c);
    qn_sampler_free(chain);
}

#define AT(field) offsetof(qn_sampling_options, field)

static qn_sampling_options base_options(const char *letters)
{
    qn_sampling_options o = qn_sampling_defaults();
    qn_test_ok(qn_sampler_order_from_letters(letters, NULL, &o.order, &err), err);
    o.seed = 7;
    o.temperature = 1.0F;
    o.dry.n_breakers = 0;
    return o;
}

static void set_float(qn_sampling_options *o, size_t at, float value)
{
    memcpy((char *)o + at, &value, sizeof value);
}

static void set_int(qn_sampling_options *o, size_t at, int32_t value)
{
    memcpy((char *)o + at, &value, sizeof value);
}

/* A value out of range stands for the nearest one that means something. */
static void test_clamped(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *letters;
        float value, like;
    } reals[] = {
        {AT(top_p), "p", -1, 0},
        {AT(top_p), "p", 2, 1},
        {AT(top_p), "p", INFINITY, 1},
        {AT(min_p), "m", -1, 0},
        {AT(min_p), "m", 2, 1},
        {AT(min_p), "m", INFINITY, 1},
        {AT(typical_p), "y", -1, 0},
        {AT(typical_p), "y", 3, 1},
        {AT(top_n_sigma), "s", -9, 0},
        {AT(top_n_sigma), "s", INFINITY, 1e9F},
        {AT(xtc_probability), "x", -1, 0},
        {AT(xtc_probability), "x", 8, 1},
        {AT(xtc_threshold), "x", -1, 0},
        {AT(xtc_threshold), "x", 0.6F, 1},
        {AT(temperature), "t", -2, 0},
        {AT(dynatemp_range), "t", -2, 0},
        {AT(dry.base), "d", 0.5F, -3},
        {AT(adaptive_target), "ma", -7, -1},
        {AT(adaptive_target), "ma", 7, 1},
        {AT(adaptive_decay), "ma", -7, 0},
        {AT(adaptive_decay), "ma", 7, 0.99F},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        qn_sampling_options a = base_options(reals[i].letters);
        a.xtc_probability = 0.5F;
        a.dry.multiplier = 1;
        a.adaptive_target = 0.1F;
        qn_sampling_options b = a;
        set_float(&a, reals[i].at, reals[i].value);
        set_float(&b, reals[i].at, reals[i].like);
        int32_t got[ROWS], want[ROWS];
        pick_row(&a, got);
        pick_row(&b, want);
        assert_memory_equal(got, want, sizeof got);
    }
    static const struct {
        size_t at;
        const char *letters;
        int32_t value, like;
    } wholes[] = {
        {AT(top_k), "k", -1, 0},
        {AT(top_k), "k", INT32_MIN, 0},
        {AT(top_k), "k", INT32_MAX, LADDER},
        {AT(penalty_last_n), "e", -1, 0},
        {AT(penalty_last_n), "e", INT32_MIN, 0},
        {AT(dry.last_n), "d", -1, 0},
        {AT(dry.allowed_length), "d", -1, 0},
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        qn_sampling_options a = base_options(wholes[i].letters);
        a.penalty_presence = 4;
        a.dry.multiplier = 1;
        qn_sampling_options b = a;
        set_int(&a, wholes[i].at, wholes[i].value);
        set_int(&b, wholes[i].at, wholes[i].like);
        int32_t got[ROWS], want[ROWS];
        pick_row(&a, got);
        pick_row(&b, want);
        assert_memory_equal(got, want, sizeof got);
    }
}

/* What is no number at all, or makes none of the logits, is refused by name. */
static void test_no_numbers(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *letters, *message;
        bool infinite_too;
    } rows[] = {
        {AT(top_p), "p", "top-p", false},
        {AT(min_p), "m", "min-p", false},
        {AT(typical_p), "y", "typical", false},
        {AT(top_n_sigma), "s", "top-n-sigma", false},
        {AT(xtc_probability), "x", "xtc", false},
        {AT(xtc_threshold), "x", "xtc", false},
        {AT(temperature), "t", "temperature", true},
        {AT(dynatemp_range), "t", "temperature", true},
        {AT(dynatemp_exponent), "t", "temperature", true},
        {AT(penalty_repeat), "", "penalty_repeat", true},
        {AT(penalty_frequency), "", "penalty_freq", true},
        {AT(penalty_presence), "", "penalty_present", true},
        {AT(dry.multiplier), "d", "dry: multiplier", true},
        {AT(dry.base), "d", "dry: multiplier", true},
        {AT(adaptive_target), "a", "adaptive-p", true},
        {AT(adaptive_decay), "a", "adaptive-p", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_sampling_options o = base_options(rows[i].letters);
        set_float(&o, rows[i].at, NAN);
        refused(&o, rows[i].message);
        for (int sign = -1; sign <= 1 && rows[i].infinite_too; sign += 2) {
            set_float(&o, rows[i].at, (float)sign * INFINITY);
            refused(&o, rows[i].message);
        }
    }
    qn_sampling_options o = base_options("");
    static const float repeats[] = {0, -1, -0.0F, 1e-45F};
    for (size_t i = 0; i < sizeof repeats / sizeof *repeats; i++) {
        o.penalty_repeat = repeats[i];
        refused(&o, "penalty_repeat must be finite and greater than 0");
    }
    o = base_options("");
    o.mirostat = -1;
    refused(&o, "mirostat: -1");
    o.mirostat = 2;
    o.mirostat_eta = NAN;
    refused(&o, "mirostat: tau");
    o = base_options("d");
    o.penalty_last_n = INT32_MAX;
    o.penalty_repeat = 2;
    assert_null(qn_sampler_from_options(&o, &err));
    o.penalty_last_n = 64;
    o.dry.multiplier = 1;
    o.dry.last_n = INT32_MAX;
    assert_null(qn_sampler_from_options(&o, &err));
    assert_int_equal(err.code, QN_ERR_LIMIT);
    assert_non_null(strstr(err.message, "dry: last_n 2147483647"));
}

/* ---- With a vocabulary ---- */

static void test_unknown_biases(void **state)
{
    (void)state;
    qn_vocab *vocab = load();
    qn_logit_bias bias = {N_VOCAB, -INFINITY};
    qn_sampling_options o = qn_sampling_defaults();
    o.biases = &bias;
    o.n_biases = 1;
    qn_sampler_free(qn_sampler_from_options(&o, &err)); /* without a vocabulary nobody knows */
    o.vocab = vocab;
    refused(&o, "there is no token 12, the vocabulary has 12 tokens");
    bias.token = INT32_MAX;
    refused(&o, "there is no token 2147483647");
    bias.token = -1;
    refused(&o, "-1 is not a token id");
    o.vocab = NULL;
    refused(&o, "-1 is not a token id");
    bias.token = N_VOCAB - 1;
    o.vocab = vocab;
    qn_sampler *chain = qn_sampler_from_options(&o, &err);
    assert_non_null(chain);
    qn_sampler_free(chain);
    qn_vocab_free(vocab);
}

/* A set of ids with these probabilities; the rest of the vocabulary is banned. */
static void fill_ids(qn_candidates *c, const int32_t *ids, const float *p, size_t n)
{
    float logits[N_VOCAB];
    for (size_t i = 0; i < N_VOCAB; i++) {
        logits[i] = -INFINITY;
    }
    for (size_t i = 0; i < n; i++) {
        logits[ids[i]] = logf(p[i]);
    }
    qn_candidates_fill(c, logits, N_VOCAB);
}

static void test_infill(void **state)
{
    (void)state;
    qn_vocab *vocab = load();
    qn_candidates *c = qn_candidates_make(N_VOCAB, &err);
    /* ending is likely enough */
    fill_ids(c, (const int32_t[]){A, B, END}, (const float[]){.5F, .3F, .2F}, 3);
    apply_free(qn_sampler_infill(vocab, &err), c);
    expect_ids(c, (const int32_t[]){END}, 1);
    /* "ab" begins with "a": they are one; "b" is too unlikely; the end stays */
    fill_ids(c, (const int32_t[]){A, AB, B, END}, (const float[]){.5F, .35F, .149F, .001F}, 4);
    apply_free(qn_sampler_infill(vocab, &err), c);
    expect_ids(c, (const int32_t[]){A, END}, 2);
    assert_true(c->logits[0] == logf(.5F)); /* as it was */
    /* joined, the less likely "b" and "ba" are likely enough; the more likely one stays */
    fill_ids(c, (const int32_t[]){X, B, BA}, (const float[]){.7F, .14F, .16F}, 3);
    apply_free(qn_sampler_infill(vocab, &err), c);
    expect_ids(c, (const int32_t[]){X}, 1); /* the second cut asks for a third or more */
    fill_ids(c, (const int32_t[]){X, B, BA}, (const float[]){.5F, .24F, .26F}, 3);
    apply_free(qn_sampler_infill(vocab, &err), c);
    expect_ids(c, (const int32_t[]){X, BA}, 2);
    /* nothing is likely enough: the end, though it was banned */
    fill_ids(c, (const int32_t[]){A, B, SPACE_A, 8, 9, X},
             (const float[]){.18F, .17F, .17F, .16F, .16F, .16F}, 6);
    apply_free(qn_sampler_infill(vocab, &err), c);
    expect_ids(c, (const int32_t[]){END}, 1);
    assert_true(c->logits[0] == 1.0F);
    qn_candidates_free(c);
    qn_vocab_free(vocab);
}

static void test_dry_breakers(void **state)
{
    (void)state;
    qn_vocab *vocab = load();
    static const char *const texts[] = {"ab", "", "ab"}; /* twice counts once */
    qn_dry_breakers b = {0};
    qn_test_ok(qn__dry_breakers_make(vocab, texts, 3, &b, &err), err);
    static const int32_t heads[] = {A, SPACE_A, AB, BA}; /* end with "a", or have it all */
    qn_tokens tail = {0};
    qn_test_ok(qn_vocab_tokenize(vocab, "b", 1, 0, &tail, &err), err);
    assert_int_equal(b.n_entries, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(b.entries[i].head, heads[i]);
        assert_int_equal(b.entries[i].n, heads[i] == AB ? 0 : tail.count);
        assert_memory_equal(b.tails + b.entries[i].at, tail.ids, b.entries[i].n * sizeof(int32_t));
    }
    qn_tokens_free(&tail);
    qn__dry_breakers_free(&b);

    qn_dry_options o = {1, 2, 2, 64, texts, 1};
    qn_candidates *c = qn_candidates_make(N_VOCAB, &err);
    float row[N_VOCAB] = {0};
    qn_sampler *s = qn_sampler_dry(vocab, &o, &err);
    accept_all(s, (const int32_t[]){B, AB, X, B, AB}, 5); /* ends with the breaker itself */
    qn_candidates_fill(c, row, N_VOCAB);
    apply_free(s, c);
    assert_true(c->logits[X] == 0.0F);
    qn_candidates_free(c);
    qn_vocab_free(vocab);
}

static void test_bans_of_options(void **state)
{
    (void)state;
    qn_vocab *vocab = load();
    qn_sampling_options o = qn_sampling_defaults();
    o.vocab = vocab;
    o.ignore_eos = true;
    o.temperature = 0;
    const qn_logit_bias bias = {END, 1000};
    o.biases = &bias;
    o.n_biases = 1;
    qn_sampler *chain = qn_sampler_from_options(&o, &err);
    qn_candidates *c = qn_candidates_make(N_VOCAB, &err);
    float row[N_VOCAB] = {[END] = 5, [B] = 3};
    qn_candidates_fill(c, row, N_VOCAB);
    apply_free(chain, c);
    assert_int_equal(c->ids[c->selected], B);
    qn_candidates_free(c);
    qn_vocab_free(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_options), cmocka_unit_test(test_orders),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_infill),
        cmocka_unit_test(test_clamped),          cmocka_unit_test(test_no_numbers),
        cmocka_unit_test(test_unknown_biases),   cmocka_unit_test(test_dry_breakers),
        cmocka_unit_test(test_bans_of_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
