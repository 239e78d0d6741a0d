/*
 * grammar_sampling.c: microseconds to sample a token with a grammar: the usual chain alone and
 * constrained, outside of the graph and in it (one row, one thread).
 *
 *   bench_grammar_sampling VOCAB.gguf
 *
 * The text stands in a string of a JSON document. "fits": the chain's pick is allowed; "refused":
 * it is not, so that the row is masked and the chain picks again. "drafted": a row behind a draft,
 * which brings its mask along. The mask is known; bench_grammar says what a new one costs. Median
 * and best of many runs; accepting the token is not part of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/grammar.h>

#include "base/clock.h"
#include "base/rng.h"
#include "device/plan.h"
#include "sampler/graph.h"

enum { ROUNDS = 200 };

static const char json[] =
    "root ::= value\n"
    "value ::= \"{\" (member (\",\" member)*)? \"}\" | string | [0-9]+\n"
    "member ::= string \":\" \" \"? value\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\n])* \"\\\"\"\n";
static const char before[] = "{\"a\":{\"name\": \"so";

/* One row on its way through the SAMPLE node. */
typedef struct lane {
    qn_device *device;
    qn_graph *graph;
    qn_plan *plan;
    qn_node *logits, *programs, *out;
} lane;

static bool lane_make(lane *l, const float *row, size_t n, size_t words, qn_error *err)
{
    qn_device_options options = qn_device_defaults();
    const int64_t ne[2] = {(int64_t)n, 1}, nw[2] = {(int64_t)words, 1};
    options.threads.n_threads = 1;
    if (qn_device_open(0, &options, &l->device, err) != QN_OK ||
        !(l->graph = qn__graph_make(err))) {
        return false;
    }
    l->logits = qn__graph_input(l->graph, QN_TYPE_F32, 2, ne, "logits");
    l->programs = qn__graph_input(l->graph, QN_TYPE_I32, 2, nw, "programs");
    l->out = qn__graph_output(
        l->graph, qn__graph_sample(l->graph, l->logits, l->programs, &qn__sample_table, 0), "out");
    if (qn__plan_make(l->graph, l->device, NULL, &l->plan, err) != QN_OK) {
        return false;
    }
    qn__plan_bind(l->plan);
    memcpy(l->logits->data, row, n * sizeof *row);
    return true;
}

static void lane_free(lane *l)
{
    qn__plan_free(l->plan);
    qn__graph_free(l->graph);
    qn_device_free(l->device);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, const char *pick, int32_t token, uint64_t *times)
{
    qsort(times, ROUNDS, sizeof *times, by_time);
    printf("%-28s %-8s token %6d   median %7.1f us   best %7.1f us\n", what, pick, token,
           (double)times[ROUNDS / 2] / 1e3, (double)times[0] / 1e3);
}

static void run_outside(const char *what, const char *pick, qn_sampler *s, const float *row,
                        size_t n)
{
    uint64_t times[ROUNDS];
    qn_candidates *c = qn_candidates_make(n, NULL);
    int32_t token = QN_TOKEN_NONE;
    for (int i = 0; c && i < ROUNDS; i++) {
        uint64_t start = qn__clock_ns();
        qn__sampler_start(s, c, row, n);
        times[i] = qn__clock_ns() - start;
        token = c->selected >= 0 ? c->ids[c->selected] : QN_TOKEN_NONE;
    }
    if (c) {
        report(what, pick, token, times);
    }
    qn_candidates_free(c);
}

/* Writing the program is part of it. draft: QN_TOKEN_NONE for none. */
static bool run_inside(const char *what, const char *pick, qn_sampler *s, const float *row,
                       size_t n, int32_t draft)
{
    uint64_t times[ROUNDS];
    qn_chain_form form;
    qn_error err = {0};
    lane l = {0};
    bool drafted = draft != QN_TOKEN_NONE, ok;
    if (qn__chain_attach(s, true, n, &form, &err) != QN_OK) {
        fprintf(stderr, "%s\n", err.message);
        return false;
    }
    ok = lane_make(&l, row, n, qn__chain_program_words(s, &form, drafted, drafted), &err);
    for (int i = 0; ok && i < ROUNDS; i++) {
        int32_t *program = l.programs->data;
        uint64_t start = qn__clock_ns();
        qn__chain_begin(s);
        if (drafted) {
            qn__chain_draft(s, &form, draft);
        }
        memset(program, 0, QN_SAMPLE_PROGRAM_HEAD * sizeof *program);
        qn__chain_program(s, &form, drafted, NULL, program);
        ok = qn__plan_run(l.plan, 1, NULL, &err) == QN_OK;
        times[i] = qn__clock_ns() - start;
    }
    if (ok) {
        report(what, pick, ((const int32_t *)l.out->data)[QN_SAMPLE_TOKEN], times);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    qn__chain_detach(s);
    lane_free(&l);
    return ok;
}

/* A row like a model's: one token stands out. */
static void make_row(float *row, size_t n, int32_t best)
{
    qn_rng rng;
    qn__rng_seed(&rng, 1);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++) {
            sum += (double)qn__rng_next(&rng) / 4294967296.0;
        }
        row[i] = (float)(sum - 6.0) * 2.0F;
    }
    row[best] = 30.0F;
}

static bool run(const qn_vocab *vocab, qn_grammar *g, const qn_tokens *text)
{
    qn_error err = {0};
    size_t n = (size_t)qn_vocab_size(vocab);
    float *row = calloc(n, sizeof *row);
    qn_sampling_options usual = qn_sampling_defaults();
    usual.seed = 1;
    qn_sampler *chain = qn_sampler_from_options(&usual, &err);
    qn_sampler *both = qn_sampler_constrained(qn_sampler_from_options(&usual, &err), g, &err);
    int32_t good = qn_vocab_find(vocab, "the", 3), bad = text->ids[0]; /* begins an object */
    bool ok = row && chain && both && good >= 0;
    for (size_t i = 0; ok && i < text->count; i++) {
        ok = qn_sampler_accept(both, text->ids[i], true, &err) == QN_OK;
    }
    for (size_t i = 0; i < n; i++) { /* something that no string has */
        size_t size;
        const char *piece = qn_vocab_piece(vocab, (int32_t)i, true, &size);
        bad = piece && size == 1 && piece[0] == '\n' ? (int32_t)i : bad;
    }
    for (int refused = 0; ok && refused < 2; refused++) {
        const char *pick = refused ? "refused" : "fits";
        make_row(row, n, refused ? bad : good);
        run_outside("chain alone, outside", "", chain, row, n);
        ok = run_inside("chain alone, in the graph", "", chain, row, n, QN_TOKEN_NONE);
        run_outside("with grammar, outside", pick, both, row, n);
        ok = ok && run_inside("with grammar, in the graph", pick, both, row, n, QN_TOKEN_NONE) &&
             run_inside("with grammar, drafted", pick, both, row, n, good);
    }
    if (!ok) {
        fprintf(stderr, "%s\n", err.message);
    }
    free(row);
    qn_sampler_free(chain);
    qn_sampler_free(both);
    return ok;
}

int main(int argc, char **argv)
{
    qn_error err = {0};
    qn_vocab *vocab = NULL;
    qn_grammar *g = NULL;
    qn_tokens text = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: bench_grammar_sampling VOCAB.gguf\n");
        return 2;
    }
    bool ok = qn_vocab_load_file(argv[1], NULL, &vocab, &err) == QN_OK &&
              qn_grammar_parse(json, strlen(json), vocab, NULL, &g, &err) == QN_OK &&
              qn_vocab_tokenize(vocab, before, strlen(before), 0, &text, &err) == QN_OK;
    if (ok) {
        ok = run(vocab, g, &text);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    qn_tokens_free(&text);
    qn_grammar_free(g);
    qn_vocab_free(vocab);
    return ok ? 0 : 1;
}
