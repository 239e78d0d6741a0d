/*
 * sampler.c: what sampling costs: microseconds of a row, by sampler and size of vocabulary; the
 * usual chain and a heavy one, outside and in the graph, one row at a time and many at once; with a
 * vocabulary, also with a grammar on top.
 *
 *   bench_sampler [VOCAB.gguf]
 *
 * Rows: "peaked" as a model gives them where it is sure, "flat" where it is not: normal numbers,
 * and above them a tail in which the logit falls with the logarithm of the rank. The best of many
 * runs; filling the candidates from the row is part of each. A step of a model of 1.2 billion
 * weights in Q4_0 takes about 35 ms on two cores: the last column is the part of it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/grammar.h>
#include <quern/sampler.h>

#include "base/clock.h"
#include "base/rng.h"
#include "device/plan.h"
#include "sampler/graph.h"

#define STEP_US   35000.0
#define BUDGET_NS 60000000U /* of one measurement */
#define TAIL      1000      /* candidates that stand out */
#define N_GROUP   32
#define HISTORY   64

static const size_t sizes[] = {128256, 262144};

static float normal(qn_rng *rng)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (double)qn__rng_next(rng) / 4294967296.0;
    }
    return (float)(sum - 6.0);
}

static void make_row(float *row, size_t n, bool flat, qn_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        row[i] = normal(rng) * 2.0F;
    }
    for (size_t i = 0; i < TAIL; i++) {
        float rank = logf((float)i + 1.0F);
        row[i * 7919 % n] = flat ? 13.0F - 0.9F * rank : 18.0F - 1.6F * rank;
    }
}

/* ---- The samplers, each alone ---- */

static qn_sampler *make_greedy(void)
{
    return qn_sampler_greedy(NULL);
}

static qn_sampler *make_dist(void)
{
    return qn_sampler_dist(1, NULL);
}

static qn_sampler *make_top_k(void)
{
    return qn_sampler_top_k(40, NULL);
}

static qn_sampler *make_top_k_1000(void)
{
    return qn_sampler_top_k(1000, NULL);
}

static qn_sampler *make_top_p(void)
{
    return qn_sampler_top_p(0.95F, 0, NULL);
}

static qn_sampler *make_min_p(void)
{
    return qn_sampler_min_p(0.05F, 0, NULL);
}

static qn_sampler *make_typical(void)
{
    return qn_sampler_typical(0.9F, 0, NULL);
}

static qn_sampler *make_top_n_sigma(void)
{
    return qn_sampler_top_n_sigma(1.0F, NULL);
}

static qn_sampler *make_temp(void)
{
    return qn_sampler_temp(0.8F, NULL);
}

static qn_sampler *make_dynamic_temp(void)
{
    return qn_sampler_temp_ext(0.8F, 0.5F, 1.0F, NULL);
}

static qn_sampler *make_xtc(void)
{
    return qn_sampler_xtc(1.0F, 0.1F, 0, 1, NULL);
}

static qn_sampler *make_mirostat(void)
{
    return qn_sampler_mirostat(128256, 1, 5.0F, 0.1F, 100, NULL);
}

static qn_sampler *make_mirostat_v2(void)
{
    return qn_sampler_mirostat_v2(1, 5.0F, 0.1F, NULL);
}

static qn_sampler *make_adaptive_p(void)
{
    return qn_sampler_adaptive_p(0.3F, 0.9F, 1, NULL);
}

static qn_sampler *make_penalties(void)
{
    return qn_sampler_penalties(HISTORY, 1.1F, 0.1F, 0.1F, NULL);
}

static qn_sampler *make_dry(void)
{
    const qn_dry_options o = {.multiplier = 0.8F, .base = 1.75F, .allowed_length = 2, .last_n = 64};
    return qn_sampler_dry(NULL, &o, NULL);
}

static qn_sampler *make_bias(void)
{
    static const qn_logit_bias biases[] = {{17, -INFINITY}, {400, 1.0F}, {9000, -2.0F}};
    return qn_sampler_logit_bias(biases, 3, NULL);
}

static qn_sampler *make_usual(void)
{
    return qn_sampler_from_options(NULL, NULL);
}

static qn_sampling_options heavy_options(void)
{
    qn_sampling_options o = qn_sampling_defaults();
    o.seed = 1;
    o.penalty_repeat = 1.1F;
    o.penalty_frequency = o.penalty_presence = 0.1F;
    o.dry.multiplier = 0.8F;
    o.dry.n_breakers = 0;
    o.xtc_probability = 0.5F;
    return o;
}

/* The usual one with penalties, DRY and XTC at work. */
static qn_sampler *make_heavy(void)
{
    qn_sampling_options o = heavy_options();
    return qn_sampler_from_options(&o, NULL);
}

/* As many samplers as there are, no bound first. */
static qn_sampler *make_uncut(void)
{
    qn_sampling_options o = heavy_options();
    o.top_k = 0;
    o.typical_p = 0.95F;
    return qn_sampler_from_options(&o, NULL);
}

typedef struct item {
    const char *name;
    qn_sampler *(*make)(void);
} item;

static const item items[] = {
    {"greedy", make_greedy},
    {"dist", make_dist},
    {"temp .8", make_temp},
    {"temp .8, range .5", make_dynamic_temp},
    {"top-k 40", make_top_k},
    {"top-k 1000", make_top_k_1000},
    {"top-p .95", make_top_p},
    {"min-p .05", make_min_p},
    {"typical .9", make_typical},
    {"top-n-sigma 1", make_top_n_sigma},
    {"xtc, acting", make_xtc},
    {"mirostat 1", make_mirostat},
    {"mirostat 2", make_mirostat_v2},
    {"adaptive-p .3", make_adaptive_p},
    {"penalties", make_penalties},
    {"dry", make_dry},
    {"logit bias of 3", make_bias},
    {"the usual chain", make_usual},
    {"+ penalties, dry, xtc", make_heavy},
    {"these without top-k", make_uncut},
};

/* A text with repetitions: history for those that look back. */
static void accept_history(qn_sampler *s)
{
    for (int32_t i = 0; i < HISTORY; i++) {
        (void)qn_sampler_accept(s, i % 11 * 7919 % 32000, false, NULL);
    }
}

static double time_apply(qn_sampler *s, qn_candidates *c, const float *row, size_t n)
{
    uint64_t best = UINT64_MAX, spent = 0;
    for (int i = 0; i < 10 || spent < BUDGET_NS; i++) {
        uint64_t start = qn__clock_ns();
        qn__sampler_start(s, c, row, n);
        uint64_t ns = qn__clock_ns() - start;
        best = ns < best ? ns : best;
        spent += ns;
    }
    return (double)best / 1000.0;
}

static bool print_items(void)
{
    size_t n_max = sizes[1];
    float *rows[4] = {0};
    qn_candidates *c = qn_candidates_make(n_max, NULL);
    bool ok = c != NULL;
    qn_rng rng;
    qn__rng_seed(&rng, 1);
    for (size_t r = 0; r < 4; r++) {
        rows[r] = calloc(n_max, sizeof *rows[r]);
        ok = ok && rows[r];
        if (ok) {
            make_row(rows[r], sizes[r / 2], r % 2, &rng);
        }
    }
    printf("us a row %26zu %19zu   part of a step\n", sizes[0], sizes[1]);
    printf("%-24s %9s %9s %9s %9s\n", "", "peaked", "flat", "peaked", "flat");
    for (size_t i = 0; ok && i < sizeof items / sizeof *items; i++) {
        qn_sampler *s = items[i].make();
        ok = s != NULL;
        double us[4] = {0};
        for (size_t r = 0; ok && r < 4; r++) {
            accept_history(s);
            us[r] = time_apply(s, c, rows[r], sizes[r / 2]);
        }
        printf("%-24s %9.1f %9.1f %9.1f %9.1f   %6.2f %%\n", items[i].name, us[0], us[1], us[2],
               us[3], 100.0 * us[0] / STEP_US);
        qn_sampler_free(s);
    }
    for (size_t r = 0; r < 4; r++) {
        free(rows[r]);
    }
    qn_candidates_free(c);
    return ok;
}

/* ---- In the graph ---- */

typedef struct node {
    qn_graph *graph;
    qn_plan *plan;
    qn_node *logits, *programs;
} node;

static void node_free(node *s)
{
    qn__plan_free(s->plan);
    qn__graph_free(s->graph);
}

/* SAMPLE of n_rows of N_GROUP rows of logits. */
static bool node_make(node *s, qn_device *device, const float *rows, size_t n, size_t words,
                      int64_t n_rows)
{
    const int64_t ne[2] = {(int64_t)n, N_GROUP}, nw[2] = {(int64_t)words, n_rows};
    s->graph = qn__graph_make(NULL);
    if (!s->graph) {
        return false;
    }
    s->logits = qn__graph_input(s->graph, QN_TYPE_F32, 2, ne, "logits");
    s->programs = qn__graph_input(s->graph, QN_TYPE_I32, 2, nw, "programs");
    qn_node *out = qn__graph_sample(s->graph, s->logits, s->programs, &qn__sample_table, 0);
    (void)qn__graph_output(s->graph, out, "sampled");
    if (qn__graph_finish(s->graph, NULL) != QN_OK ||
        qn__plan_make(s->graph, device, NULL, &s->plan, NULL) != QN_OK) {
        return false;
    }
    memcpy(s->logits->data, rows, n * N_GROUP * sizeof *rows);
    return true;
}

/* Programs for rows [first, first + n_rows) and a run. */
static bool node_run(const node *s, const qn_sampler *chain, const qn_chain_form *form,
                     int32_t first, int32_t n_threads)
{
    int64_t words = s->programs->ne[0];
    for (int32_t i = 0; i < (int32_t)s->programs->ne[1]; i++) {
        int32_t *program = (int32_t *)s->programs->data + i * words;
        memset(program, 0, QN_SAMPLE_PROGRAM_HEAD * sizeof *program);
        program[QN_SAMPLE_COLUMN] = first + i;
        qn__chain_begin(chain);
        qn__chain_program(chain, form, 0, NULL, program);
    }
    return qn__plan_run(s->plan, n_threads, NULL, NULL) == QN_OK;
}

/* Microseconds of all N_GROUP rows, n_rows in a run. */
static double time_group(qn_device *device, qn_sampler *chain, const qn_chain_form *form,
                         const float *rows, size_t n, int32_t n_rows, int32_t n_threads)
{
    node s = {0};
    size_t words = qn__chain_program_words(chain, form, 0, 0);
    bool ok = node_make(&s, device, rows, n, words, n_rows);
    uint64_t best = UINT64_MAX, spent = 0;
    for (int i = 0; ok && (i < 5 || spent < 4U * BUDGET_NS); i++) {
        uint64_t start = qn__clock_ns();
        for (int32_t first = 0; ok && first < N_GROUP; first += n_rows) {
            ok = node_run(&s, chain, form, first, n_threads);
        }
        uint64_t ns = qn__clock_ns() - start;
        best = ns < best ? ns : best;
        spent += ns;
    }
    node_free(&s);
    return ok ? (double)best / 1000.0 : 0.0;
}

/* The same outside: each row is copied out of the graph's memory, as a decode does, and sampled. */
static double time_outside(qn_sampler *chain, const float *rows, size_t n)
{
    qn_candidates *c = qn_candidates_make(n, NULL);
    float *out = calloc(n, N_GROUP * sizeof *out);
    uint64_t best = UINT64_MAX, spent = 0;
    for (int i = 0; c && out && (i < 5 || spent < 4U * BUDGET_NS); i++) {
        uint64_t start = qn__clock_ns();
        for (size_t r = 0; r < N_GROUP; r++) {
            memcpy(out + r * n, rows + r * n, n * sizeof *out);
            qn__sampler_start(chain, c, out + r * n, n);
        }
        uint64_t ns = qn__clock_ns() - start;
        best = ns < best ? ns : best;
        spent += ns;
    }
    bool ok = c && out;
    free(out);
    qn_candidates_free(c);
    return ok ? (double)best / 1000.0 : 0.0;
}

static bool print_groups(void)
{
    qn_device *device = NULL;
    qn_device_options options = qn_device_defaults();
    float *rows = calloc(sizes[1] * N_GROUP, sizeof *rows);
    qn_rng rng;
    qn__rng_seed(&rng, 2);
    bool ok = rows && qn_device_open(0, &options, &device, NULL) == QN_OK;
    for (size_t i = 0; ok && i < 2; i++) {
        size_t n = sizes[i];
        int32_t n_threads = qn_device_n_threads(device);
        printf("\n%d rows of %zu in the graph, %d threads     us\n", N_GROUP, n, n_threads);
        for (size_t r = 0; r < N_GROUP; r++) {
            make_row(rows + r * n, n, r % 4 == 3, &rng);
        }
        for (size_t k = 0; ok && k < 2; k++) {
            qn_sampler *chain = k == 0 ? make_usual() : make_heavy();
            qn_chain_form form;
            ok = chain && qn__chain_attach(chain, true, n, &form, NULL) == QN_OK;
            if (ok) {
                accept_history(chain);
                double one = time_group(device, chain, &form, rows, n, 1, n_threads);
                double all = time_group(device, chain, &form, rows, n, N_GROUP, n_threads);
                qn__chain_detach(chain);
                double outside = time_outside(chain, rows, n);
                printf("%-24s outside %9.1f, a node each %9.1f, in one node %9.1f: %.2f, %.2f\n",
                       k == 0 ? "the usual chain" : "+ penalties, dry, xtc", outside, one, all,
                       all / outside, all / one);
            }
            qn_sampler_free(chain);
        }
    }
    qn_device_free(device);
    free(rows);
    return ok;
}

/* ---- With a grammar ---- */

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"parts\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},"
    "\"done\":{\"type\":\"boolean\"}},\"required\":[\"id\",\"done\"]}}},\"required\":[\"name\","
    "\"parts\"]}";
static const char fitting[] =
    "{\"name\": \"The long way to the harbour and back\", \"parts\": [{\"id\": 12, \"done\": "
    "true}, {\"id\": 4077, \"done\": false}, {\"id\": 3, \"done\": true}]}";

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Follows the text; `sure`: the model wants the next token, else one that most often is refused, so
 * that the row is masked and picked from again. Times of the second pass. */
static bool follow(qn_sampler *s, const qn_tokens *text, size_t n, bool sure)
{
    qn_candidates *c = qn_candidates_make(n, NULL);
    float *row = calloc(n, sizeof *row);
    uint64_t *times = calloc(text->count, sizeof *times);
    qn_rng rng;
    qn__rng_seed(&rng, 3);
    bool ok = c && row && times;
    if (ok) {
        make_row(row, n, false, &rng);
    }
    for (int pass = 0; ok && pass < 3; pass++) {
        qn_sampler_reset(s);
        for (size_t i = 0; ok && i < text->count; i++) {
            float *wanted = &row[text->ids[i]], before = *wanted;
            *wanted = sure ? 30.0F : 17.0F;
            uint64_t start = qn__clock_ns();
            qn_candidates_fill(c, row, n);
            qn_sampler_apply(s, c);
            times[i] = qn__clock_ns() - start;
            *wanted = before;
            ok = c->selected >= 0 && qn_sampler_accept(s, text->ids[i], true, NULL) == QN_OK;
        }
    }
    if (ok) {
        qsort(times, text->count, sizeof *times, by_time);
        double median = (double)times[text->count / 2] / 1e3;
        printf("%-24s median %9.1f, most %9.1f   %6.2f %%\n",
               sure ? "allowed at once" : "masked, picked again", median,
               (double)times[text->count - 1] / 1e3, 100.0 * median / STEP_US);
    }
    free(times);
    free(row);
    qn_candidates_free(c);
    return ok;
}

static bool print_grammar(const char *path)
{
    qn_error err = {0};
    qn_vocab *vocab = NULL;
    qn_grammar *grammar = NULL;
    qn_sampler *s = NULL;
    qn_tokens text = {0};
    char *gbnf = NULL;
    bool ok = qn_vocab_load_file(path, NULL, &vocab, &err) == QN_OK &&
              qn_grammar_from_schema(schema, strlen(schema), &gbnf, NULL, &err) == QN_OK &&
              qn_grammar_parse(gbnf, strlen(gbnf), vocab, NULL, &grammar, &err) == QN_OK &&
              qn_vocab_tokenize(vocab, fitting, strlen(fitting), 0, &text, &err) == QN_OK;
    if (ok) {
        size_t n = (size_t)qn_vocab_size(vocab);
        s = qn_sampler_constrained(make_heavy(), grammar, &err);
        printf("\npenalties, dry, xtc, the usual chain and a JSON schema, %zu tokens     us\n", n);
        ok = s && follow(s, &text, n, true) && follow(s, &text, n, false);
    }
    if (!ok) {
        fprintf(stderr, "%s\n", err.message);
    }
    qn_sampler_free(s);
    qn_tokens_free(&text);
    qn_grammar_free(grammar);
    qn_grammar_text_free(gbnf);
    qn_vocab_free(vocab);
    return ok;
}

int main(int argc, char **argv)
{
    bool ok = print_items() && print_groups() && (argc < 2 || print_grammar(argv[1]));
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
