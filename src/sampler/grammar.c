/*
 * grammar.c: bans what a grammar does not allow; and a chain with a grammar behind it, which looks
 * at the whole vocabulary only where the chain's pick is refused.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/sampler.h"

/* So many candidates are asked about one by one; more, and the mask of all is made. */
#define FEW 16

typedef struct grammar_state {
    qn_matcher *matcher; /* NULL: everything is allowed */
    uint32_t *bits;
    size_t words;
    qn_sampler *chain; /* of a constrained one */
    qn_status status;  /* why nothing is allowed any more */
    qn_error error;
} grammar_state;

static const char *grammar_name(const void *state)
{
    (void)state;
    return "grammar";
}

/* ---- The rows ---- */

static bool is_allowed(grammar_state *s, int32_t id)
{
    bool allowed = false;
    if (s->status == QN_OK) {
        s->status = qn_matcher_allows(s->matcher, id, &allowed, &s->error);
    }
    return allowed && s->status == QN_OK;
}

/* Bans by the mask, or one by one. */
static void ban(grammar_state *s, qn_candidates *c)
{
    if (!s->matcher || qn_matcher_is_waiting(s->matcher)) {
        return;
    }
    bool few = c->size <= FEW;
    if (!few && s->status == QN_OK) {
        s->status = qn_matcher_mask(s->matcher, s->bits, s->words, &s->error);
    }
    for (size_t i = 0; i < c->size; i++) {
        uint32_t id = (uint32_t)c->ids[i];
        bool keep = few ? c->logits[i] != -INFINITY && is_allowed(s, c->ids[i])
                        : s->status == QN_OK && id / 32 < s->words &&
                              (s->bits[id / 32] >> id % 32 & 1) != 0;
        if (!keep) {
            c->logits[i] = -INFINITY;
        }
    }
    c->selected = -1;
    c->sorted = c->has_weights = false;
}

static void grammar_apply(void *state, qn_candidates *c)
{
    ban(state, c);
}

static void constrained_apply(void *state, qn_candidates *c)
{
    grammar_state *s = state;
    if (c->row) {
        qn_sampler_apply(s->chain, c);
        bool picked = c->selected >= 0 && (size_t)c->selected < c->size;
        if (picked && (!s->matcher || qn_matcher_is_waiting(s->matcher) ||
                       is_allowed(s, c->ids[c->selected]))) {
            return;
        }
        qn_candidates_fill(c, c->row, c->n_row);
    }
    ban(s, c);
    qn_sampler_apply(s->chain, c);
}

/* ---- The text ---- */

static qn_status grammar_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    grammar_state *s = state;
    if (!s->matcher || !generated) {
        return QN_OK;
    }
    if (s->status != QN_OK) {
        return qn__error(err, s->status, "%s", s->error.message);
    }
    return qn_matcher_accept_token(s->matcher, token, err);
}

static qn_status constrained_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    grammar_state *s = state;
    qn_status status = grammar_accept(state, token, generated, err);
    qn_status other = qn_sampler_accept(s->chain, token, generated, status == QN_OK ? err : NULL);
    return status == QN_OK ? other : status;
}

static void grammar_reset(void *state)
{
    grammar_state *s = state;
    s->status = QN_OK;
    if (s->matcher) {
        qn_matcher_reset(s->matcher);
    }
    if (s->chain) {
        qn_sampler_reset(s->chain);
    }
}

static void grammar_free(void *state)
{
    grammar_state *s = state;
    if (s) {
        qn_matcher_free(s->matcher);
        qn_sampler_free(s->chain);
        free(s->bits);
        free(s);
    }
}

static void *grammar_clone(const void *state)
{
    const grammar_state *from = state;
    grammar_state *s = qn__calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->status = from->status;
    s->error = from->error;
    s->words = from->words;
    s->bits = qn__calloc(from->words + 1, sizeof(uint32_t));
    bool ok = s->bits != NULL;
    if (ok && from->matcher) {
        ok = qn_matcher_clone(from->matcher, &s->matcher, NULL) == QN_OK;
    }
    if (ok && from->chain) {
        s->chain = qn_sampler_clone(from->chain, NULL);
        ok = s->chain != NULL;
    }
    if (!ok) {
        grammar_free(s);
        return NULL;
    }
    return s;
}

static qn_status grammar_copy(void *to, const void *from, qn_error *err)
{
    grammar_state *a = to;
    const grammar_state *b = from;
    if (!a->matcher != !b->matcher) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "cannot copy between samplers of which one has no "
                         "grammar");
    }
    qn_status status = a->matcher ? qn_matcher_copy(a->matcher, b->matcher, err) : QN_OK;
    if (status == QN_OK && a->chain) {
        status = qn_sampler_copy(a->chain, b->chain, err);
    }
    if (status == QN_OK) {
        a->status = b->status;
        a->error = b->error;
    }
    return status;
}

static bool constrained_seed(const void *state, uint32_t *out)
{
    *out = qn_sampler_seed(((const grammar_state *)state)->chain);
    return *out != QN_SEED_RANDOM;
}

static const qn_sampler_interface grammar_fns = {.name = grammar_name,
                                                 .accept = grammar_accept,
                                                 .apply = grammar_apply,
                                                 .reset = grammar_reset,
                                                 .clone = grammar_clone,
                                                 .copy_state = grammar_copy,
                                                 .free = grammar_free};

static const qn_sampler_interface constrained_fns = {.name = grammar_name,
                                                     .accept = constrained_accept,
                                                     .apply = constrained_apply,
                                                     .reset = grammar_reset,
                                                     .clone = grammar_clone,
                                                     .copy_state = grammar_copy,
                                                     .free = grammar_free,
                                                     .seed = constrained_seed};

/* Takes `chain` in any case. */
static qn_sampler *make(const qn_sampler_interface *fns, qn_sampler *chain, qn_grammar *grammar,
                        qn_error *err)
{
    grammar_state *s = qn__calloc(1, sizeof *s);
    qn_sampler *sampler = NULL;
    if (!s) {
        qn_sampler_free(chain);
        qn__error_memory(err, "grammar sampler");
        return NULL;
    }
    s->chain = chain;
    const qn_vocab *vocab = grammar ? qn_grammar_vocab(grammar) : NULL;
    if (grammar && !vocab) {
        qn__error(err, QN_ERR_ARGUMENT, "a grammar that samples needs a vocabulary");
        goto done;
    }
    s->words = vocab ? ((size_t)qn_vocab_size(vocab) + 31) / 32 : 0;
    s->bits = qn__calloc(s->words + 1, sizeof(uint32_t));
    if (!s->bits) {
        qn__error_memory(err, "grammar sampler");
        goto done;
    }
    if (!grammar || qn_matcher_make(grammar, &s->matcher, err) == QN_OK) {
        sampler = qn_sampler_make(fns, s, err);
    }
done:
    if (!sampler) {
        grammar_free(s);
    }
    return sampler;
}

qn_sampler *qn_sampler_grammar(qn_grammar *grammar, qn_error *err)
{
    return make(&grammar_fns, NULL, grammar, err);
}

qn_sampler *qn_sampler_constrained(qn_sampler *chain, qn_grammar *grammar, qn_error *err)
{
    if (!chain) {
        return NULL; /* the maker of the chain has filled err */
    }
    return make(&constrained_fns, chain, grammar, err);
}
