/*
 * test_real_models_slow.c: two real models against the exact reference (recorded: the weights
 * dequantized to F32, exact attention): greedy paths, and the divergence of the next-token
 * distributions over a text. Once with the file as it is, once dequantized to F32 by our own
 * quantizer. The limits are those of the recording's README.
 */
#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <quern/quern.h>
#include <unistd.h>

typedef struct real_model {
    const char *name;   /* as qn_test_real_model takes it */
    const char *greedy; /* recorded files */
    const char *text;
    double divergence_limit; /* of the file as it is: what llama.cpp reaches */
} real_model;

static const real_model smollm2 = {"smollm2", "real-models/smollm2-135m.greedy.jsonl",
                                   "real-models/smollm2-135m.text.top128", 0.00256};
static const real_model gemma3 = {"gemma3", "real-models/gemma3-270m.greedy.jsonl",
                                  "real-models/gemma3-270m.text.top128", 0.00456};

/* A dequantized copy must be this close to the exact run. */
#define EXACT_DIVERGENCE 1e-6

static int32_t arg_max(const float *row, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

static qn_context *open_context(const char *path, qn_type kv, qn_model **model)
{
    qn_error err = {0};
    qn_context *ctx;
    qn_test_ok(qn_model_load(model, path, NULL, &err), err);
    qn_context_options options = qn_context_defaults();
    options.n_ctx = 1024;
    options.type_k = kv;
    options.type_v = kv;
    qn_test_ok(qn_context_make(*model, &options, &ctx, &err), err);
    return ctx;
}

/* One recorded prompt: ids, margins, how many leading steps are certain. */
typedef struct greedy_case {
    int32_t prompt[1024], ids[64];
    char text[256]; /* of the prompt; "@…": a file's */
    double margin[64];
    size_t n_prompt, n_ids, certain;
} greedy_case;

static void read_ids(const json_t *array, int32_t *out, size_t capacity, size_t *n)
{
    *n = json_array_size(array);
    assert_true(*n > 0 && *n <= capacity);
    for (size_t i = 0; i < *n; i++) {
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
}

static void read_case(const char *line, greedy_case *c)
{
    json_error_t error;
    json_t *root = json_loads(line, 0, &error);
    assert_non_null(root);
    const json_t *exact = json_object_get(root, "exact");
    size_t n_margins;
    read_ids(json_object_get(root, "prompt_ids"), c->prompt, 1024, &c->n_prompt);
    const char *text = json_string_value(json_object_get(root, "prompt"));
    assert_true(text && strlen(text) < sizeof c->text);
    snprintf(c->text, sizeof c->text, "%s", text);
    read_ids(json_object_get(exact, "ids"), c->ids, 64, &c->n_ids);
    const json_t *margins = json_object_get(exact, "margin");
    n_margins = json_array_size(margins);
    assert_int_equal(n_margins, c->n_ids);
    for (size_t i = 0; i < n_margins; i++) {
        c->margin[i] = json_number_value(json_array_get(margins, i));
    }
    const json_t *certain = json_object_get(root, "certain");
    if (!certain) {
        certain = json_object_get(exact, "certain");
    }
    assert_non_null(certain);
    c->certain = (size_t)json_integer_value(certain);
    json_decref(root);
}

/*
 * Feeds the exact path and looks at the arg-max of each step. `exact`: it must be the exact id
 * wherever every margin so far is at least 0.01. Otherwise: at the certain steps, and at every step
 * whose margin is at least 1.
 */
static void follow_case(qn_context *ctx, const greedy_case *c, bool exact)
{
    qn_error err = {0};
    int32_t n_vocab = qn_model_n_vocab(qn_context_model(ctx));
    bool clear = true;
    if (c->text[0] != '@') {
        qn_tokens tokens = {0};
        const qn_vocab *vocab = qn_model_vocab(qn_context_model(ctx));
        unsigned flags = QN_TOKENIZE_ADD_SPECIAL | QN_TOKENIZE_PARSE_SPECIAL;
        qn_test_ok(qn_vocab_tokenize(vocab, c->text, strlen(c->text), flags, &tokens, &err), err);
        assert_int_equal(tokens.count, c->n_prompt);
        assert_memory_equal(tokens.ids, c->prompt, c->n_prompt * sizeof(int32_t));
        qn_tokens_free(&tokens);
    }
    qn_context_clear(ctx);
    qn_batch batch = qn_batch_of(c->prompt, (int32_t)c->n_prompt);
    for (size_t step = 0; step < c->n_ids; step++) {
        qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
        const float *row = qn_context_logits(ctx, -1, &err);
        assert_non_null(row);
        clear = clear && c->margin[step] >= 0.01;
        bool must = exact ? clear : step < c->certain || c->margin[step] >= 1.0;
        int32_t best = arg_max(row, n_vocab);
        if (must && best != c->ids[step]) {
            fail_msg("step %zu: token %d instead of %d, margin %g", step, best, c->ids[step],
                     c->margin[step]);
        }
        batch = qn_batch_of(&c->ids[step], 1);
    }
}

static void follow_greedy(qn_context *ctx, const real_model *m, bool exact)
{
    size_t size;
    char *lines = (char *)qn_test_read(qn_test_shared(m->greedy), &size);
    int cases = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        static greedy_case c;
        read_case(line, &c);
        follow_case(ctx, &c, exact);
        cases++;
    }
    assert_true(cases >= 5);
    free(lines);
}

/* p ln(p / q) over the recorded candidates and the rest of the vocabulary as one more. */
static double row_divergence(const float *logits, int32_t n_vocab, const int32_t *ids,
                             const float *log_p, int k)
{
    double top = (double)logits[arg_max(logits, n_vocab)];
    double total = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        total += exp((double)logits[i] - top);
    }
    double divergence = 0.0;
    double p_sum = 0.0;
    double q_sum = 0.0;
    for (int i = 0; i < k; i++) {
        double p = exp((double)log_p[i]);
        double log_q = (double)logits[ids[i]] - top - log(total);
        divergence += p * ((double)log_p[i] - log_q);
        p_sum += p;
        q_sum += exp(log_q);
    }
    double p_rest = 1.0 - p_sum;
    double q_rest = 1.0 - q_sum;
    if (p_rest > 0.0 && q_rest > 0.0) {
        divergence += p_rest * log(p_rest / q_rest);
    }
    return divergence;
}

static double text_divergence(qn_context *ctx, const real_model *m)
{
    qn_error err = {0};
    size_t size;
    uint8_t *file = qn_test_read(qn_test_shared(m->text), &size);
    int32_t head[2];
    memcpy(head, file, sizeof head);
    int32_t n = head[0];
    int32_t k = head[1];
    assert_int_equal(size, 8 + (size_t)n * 4 + (size_t)n * (size_t)k * 8);
    const int32_t *ids = (const int32_t *)(const void *)(file + 8);
    const int32_t *candidates = ids + n;
    const float *log_p = (const float *)(const void *)(candidates + (size_t)n * (size_t)k);

    /* The recorded ids are what the text tokenizes to. */
    size_t text_size;
    uint8_t *text = qn_test_read(qn_test_shared("real-models/text.txt"), &text_size);
    qn_tokens tokens = {0};
    const qn_vocab *vocab = qn_model_vocab(qn_context_model(ctx));
    qn_test_ok(qn_vocab_tokenize(vocab, (const char *)text, text_size, QN_TOKENIZE_ADD_SPECIAL,
                                 &tokens, &err),
               err);
    assert_int_equal(tokens.count, n);
    assert_memory_equal(tokens.ids, ids, (size_t)n * 4);
    qn_tokens_free(&tokens);
    free(text);

    int8_t *output = malloc((size_t)n);
    memset(output, 1, (size_t)n);
    qn_context_clear(ctx);
    qn_batch batch = qn_batch_of(ids, n);
    batch.output = output;
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    double sum = 0.0;
    double worst = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const float *row = qn_context_logits(ctx, i, &err);
        assert_non_null(row);
        double d =
            row_divergence(row, qn_model_n_vocab(qn_context_model(ctx)),
                           candidates + (size_t)i * (size_t)k, log_p + (size_t)i * (size_t)k, k);
        sum += d;
        worst = d > worst ? d : worst;
    }
    printf("%s: divergence from exact over %d positions: mean %.3g, max %.3g\n", m->name, n,
           sum / n, worst);
    free(output);
    free(file);
    return sum / n;
}

static void file_as_it_is(const real_model *m)
{
    const char *path = qn_test_real_model(m->name);
    if (!path || !qn_test_shared(m->greedy)) {
        qn_test_skip("%s or its recordings are not here", m->name);
    }
    qn_model *model;
    qn_context *ctx = open_context(path, QN_TYPE_F16, &model);
    follow_greedy(ctx, m, false);
    assert_true(text_divergence(ctx, m) <= m->divergence_limit);
    qn_context_free(ctx);
    qn_model_free(model);
}

static void file_dequantized(const real_model *m)
{
    const char *path = qn_test_real_model(m->name);
    if (!path || !qn_test_shared(m->greedy)) {
        qn_test_skip("%s or its recordings are not here", m->name);
    }
    qn_error err = {0};
    qn_quantize_options options = qn_quantize_defaults();
    options.mix = QN_MIX_F32;
    options.allow_requantize = true;
    const char *exact = qn_test_temporary(".gguf");
    qn_test_ok(qn_quantize_file(path, exact, &options, NULL, &err), err);
    qn_model *model;
    qn_context *ctx = open_context(exact, QN_TYPE_F32, &model);
    unlink(exact); /* the mapping keeps it */
    follow_greedy(ctx, m, true);
    assert_true(text_divergence(ctx, m) <= EXACT_DIVERGENCE);
    qn_context_free(ctx);
    qn_model_free(model);
}

static void smollm2_as_it_is(void **state)
{
    (void)state;
    file_as_it_is(&smollm2);
}

static void smollm2_dequantized(void **state)
{
    (void)state;
    file_dequantized(&smollm2);
}

static void gemma3_as_it_is(void **state)
{
    (void)state;
    file_as_it_is(&gemma3);
}

static void gemma3_dequantized(void **state)
{
    (void)state;
    file_dequantized(&gemma3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_as_it_is),
        cmocka_unit_test(smollm2_dequantized),
        cmocka_unit_test(gemma3_as_it_is),
        cmocka_unit_test(gemma3_dequantized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
