/*
 * infill.c: for filling in the middle. The end of the middle is easily missed by a draw: several
 * tokens that begin alike share what is one continuation. So probabilities of tokens whose texts
 * begin with one another are joined, the unlikely go, and ending stays possible.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "sampler/graph.h"

/* Candidates looked at: joining compares each with each. */
#define CANDIDATES_MAX 1024

static void keep(qn_candidates *c, size_t *n, size_t i)
{
    c->ids[*n] = c->ids[i];
    c->logits[*n] = c->logits[i];
    c->work[*n] = c->work[i];
    ++*n;
}

/* Only tokens that end the text. */
static void keep_ends(qn_candidates *c, const qn_vocab *vocab)
{
    size_t n = 0;
    for (size_t i = 0; i < c->size; i++) {
        if (c->logits[i] > -INFINITY && qn_vocab_is_end(vocab, c->ids[i])) {
            keep(c, &n, i);
        }
    }
    c->size = n;
}

/* Whether a text is not empty and the other begins with it. */
static bool begins(const qn_vocab *vocab, int32_t shorter, int32_t longer)
{
    size_t n, m;
    const char *a = qn_vocab_piece(vocab, shorter, false, &n);
    const char *b = qn_vocab_piece(vocab, longer, false, &m);
    return a && b && n > 0 && n <= m && memcmp(a, b, n) == 0;
}

/* Of two tokens that begin alike the less likely one gives its weight to the other. */
static void join(qn_candidates *c, const qn_vocab *vocab, uint64_t *w)
{
    for (size_t i = 0; i < c->size; i++) {
        for (size_t j = 0; j < c->size && c->logits[i] > -INFINITY; j++) {
            if (i == j || c->logits[j] == -INFINITY || !begins(vocab, c->ids[i], c->ids[j])) {
                continue;
            }
            size_t to = w[i] >= w[j] ? i : j, from = to == i ? j : i;
            w[to] += w[from];
            w[from] = 0;
            c->logits[from] = -INFINITY;
        }
    }
}

/* Keeps tokens with weight * parts >= total and all ends. Returns how many are no ends; *left gets
 * the weight that is left. */
static size_t keep_likely(qn_candidates *c, const qn_vocab *vocab, uint64_t parts, uint64_t total,
                          uint64_t *left)
{
    size_t n = 0, others = 0;
    *left = 0;
    for (size_t i = 0; i < c->size; i++) {
        bool end = qn_vocab_is_end(vocab, c->ids[i]);
        if (c->logits[i] > -INFINITY && (end || c->work[i] * parts >= total)) {
            others += !end;
            *left += c->work[i];
            keep(c, &n, i);
        }
    }
    c->size = n;
    return others;
}

/* The one candidate that is left where no text is: the end; the best where there is no end. */
static void only_end(qn_candidates *c, const qn_vocab *vocab, int32_t best)
{
    int32_t end = qn_vocab_special(vocab, QN_ROLE_EOT);
    end = end >= 0 ? end : qn_vocab_special(vocab, QN_ROLE_EOS);
    c->ids[0] = end >= 0 ? end : best;
    c->logits[0] = 1.0F;
    c->size = 1;
}

void qn__infill_row(qn_candidates *c, const qn_vocab *vocab)
{
    if (c->size > CANDIDATES_MAX) {
        qn__top_k_row(c, CANDIDATES_MAX);
    }
    qn_candidates_sort(c);
    uint64_t total = qn_candidates_weigh(c), ends = 0, left;
    if (total == 0) {
        return;
    }
    for (size_t i = 0; i < c->size; i++) {
        c->work[i] = c->weights[i];
        ends += qn_vocab_is_end(vocab, c->ids[i]) ? c->weights[i] : 0;
    }
    c->sorted = c->has_weights = false;
    if (3 * ends * qn__row_active(c) > total - ends) {
        keep_ends(c, vocab);
        return;
    }
    int32_t best = c->ids[0];
    join(c, vocab, c->work);
    size_t others = keep_likely(c, vocab, 5, total, &left);
    if (others == 0) {
        only_end(c, vocab, best);
        return;
    }
    (void)keep_likely(c, vocab, others + 1, left, &left);
}

typedef struct infill_state {
    qn_plain_state plain;
    const qn_vocab *vocab;
} infill_state;

static const char *infill_name(const void *state)
{
    (void)state;
    return "infill";
}

static void infill_apply(void *state, qn_candidates *c)
{
    qn__infill_row(c, ((const infill_state *)state)->vocab);
}

/* Its parameters hold the address of the vocabulary, which outlives the sampler. */
const qn_sample_stage qn__stage_infill = {.name = "infill", .row = infill_apply};

static size_t infill_keep(const void *state, size_t n)
{
    (void)state;
    return n < CANDIDATES_MAX ? n : CANDIDATES_MAX;
}

static const qn_sampler_graph infill_graph = {.stage = QN_STAGE_INFILL, .keep = infill_keep};

static const qn_sampler_interface infill_fns = {.name = infill_name,
                                                .apply = infill_apply,
                                                .clone = qn__plain_clone,
                                                .copy_state = qn__plain_copy,
                                                .free = qn__plain_free,
                                                .graph = &infill_graph};

qn_sampler *qn_sampler_infill(const qn_vocab *vocab, qn_error *err)
{
    if (!vocab) {
        qn__error(err, QN_ERR_ARGUMENT, "infill needs a vocabulary");
        return NULL;
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&infill_fns, sizeof(infill_state), &state, err);
    if (s) {
        ((infill_state *)state)->vocab = vocab;
    }
    return s;
}
