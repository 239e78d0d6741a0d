/*
 * grammar.c: bans what a grammar does not allow; and a chain with a grammar behind it, which looks
 * at the whole vocabulary only where the chain's pick is refused.
 *
 * In a graph, the first row of a sequence stands where the text does, so it asks the sampler's own
 * matcher, and a mask is made only if one is needed. A row behind drafts brings its mask along,
 * made by the shadow, a matcher that takes the drafts.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/graph.h"
#include "sampler/scan.h"

/* So many candidates are asked about one by one; more, and the mask of all is made. */
#define FEW 16

typedef struct grammar_state {
    qn_matcher *matcher; /* NULL: everything is allowed */
    int32_t n_vocab;
    size_t words;      /* of a mask */
    uint32_t *bits;    /* room for one */
    qn_sampler *chain; /* of a constrained one */
    qn_status status;  /* why nothing is allowed any more */
    qn_error error;
    qn_matcher *shadow;    /* beside `matcher` */
    bool drafted, refused; /* there are drafts; the grammar refuses one of them */
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
    if (s->status == QN_OK && id < s->n_vocab) {
        s->status = qn_matcher_allows(s->matcher, id, &allowed, &s->error);
    }
    return allowed && s->status == QN_OK;
}

static bool has_bit(const uint32_t *bits, size_t words, int32_t id)
{
    uint32_t at = (uint32_t)id;
    return at / 32 < words && (bits[at / 32] >> at % 32 & 1) != 0;
}

void qn__mask_row(qn_candidates *c, const uint32_t *bits, size_t words)
{
    qn__scan()->mask(c->logits, c->ids, c->size, bits, words);
    c->selected = -1;
    c->sorted = c->has_weights = false;
}

static bool allows_all(const grammar_state *s)
{
    return !s->matcher || qn_matcher_is_waiting(s->matcher);
}

/* Bans by the mask, or one by one. */
static void ban(grammar_state *s, qn_candidates *c)
{
    if (allows_all(s)) {
        return;
    }
    if (c->size > FEW) {
        if (s->status == QN_OK) {
            s->status = qn_matcher_mask(s->matcher, s->bits, s->words, &s->error);
        }
        qn__mask_row(c, s->bits, s->status == QN_OK ? s->words : 0);
        return;
    }
    for (size_t i = 0; i < c->size; i++) {
        bool keep = c->logits[i] > -INFINITY && is_allowed(s, c->ids[i]);
        c->logits[i] = keep ? c->logits[i] : -INFINITY;
    }
    c->selected = -1;
    c->sorted = c->has_weights = false;
}

/* Whether a constrained chain has to pick once more. */
static bool refuses_pick(grammar_state *s, const qn_candidates *c)
{
    bool picked = c->selected >= 0 && (size_t)c->selected < c->size;
    return !picked || (!allows_all(s) && !is_allowed(s, c->ids[c->selected]));
}

static void grammar_apply(void *state, qn_candidates *c)
{
    ban(state, c);
}

static void pick_again(grammar_state *s, qn_candidates *c)
{
    ban(s, c);
    qn_sampler_apply(s->chain, c);
}

static void constrained_apply(void *state, qn_candidates *c)
{
    grammar_state *s = state;
    if (c->row) {
        qn_sampler_apply(s->chain, c);
        if (!refuses_pick(s, c)) {
            return;
        }
        qn_candidates_fill(c, c->row, c->n_row);
    }
    pick_again(s, c);
}

void qn__constrained_start(qn_sampler *sampler, qn_candidates *c, const float *logits, size_t n)
{
    grammar_state *s = sampler->state;
    qn__sampler_start(s->chain, c, logits, n);
    if (refuses_pick(s, c)) {
        qn_candidates_fill(c, logits, n);
        pick_again(s, c);
    }
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
    s->drafted = false;
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
        qn_matcher_free(s->shadow);
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
    s->n_vocab = from->n_vocab;
    s->words = from->words;
    s->bits = qn__calloc(from->words + 1, sizeof(uint32_t));
    bool ok = s->bits != NULL;
    if (ok && from->matcher) {
        ok = qn_matcher_clone(from->matcher, &s->matcher, NULL) == QN_OK &&
             qn_matcher_clone(from->matcher, &s->shadow, NULL) == QN_OK;
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

/* ---- In a graph ---- */

typedef enum mask_kind {
    MASK_ALL, /* everything is allowed */
    MASK_ASK, /* what the sampler's own matcher says */
    MASK_BITS
} mask_kind;

typedef struct grammar_params {
    grammar_state *state; /* MASK_ASK */
    int32_t kind, words;  /* no words: nothing is allowed */
    uint32_t bits[];
} grammar_params;

static void grammar_stage(void *params, qn_candidates *c)
{
    const grammar_params *p = params;
    if (p->kind == MASK_ASK) {
        ban(p->state, c);
    } else if (p->kind == MASK_BITS) {
        qn__mask_row(c, p->bits, (size_t)p->words);
    }
}

static bool grammar_refuses(void *params, const qn_candidates *c)
{
    const grammar_params *p = params;
    bool picked = c->selected >= 0 && (size_t)c->selected < c->size;
    if (p->kind == MASK_ASK) {
        return refuses_pick(p->state, c);
    }
    return !picked ||
           (p->kind == MASK_BITS && !has_bit(p->bits, (size_t)p->words, c->ids[c->selected]));
}

const qn_sample_stage qn__stage_grammar = {
    .name = "grammar", .row = grammar_stage, .refuses = grammar_refuses};

static size_t grammar_room(const void *state, int32_t j, size_t n_drafts)
{
    (void)j;
    size_t words = n_drafts > 0 ? ((const grammar_state *)state)->words : 0;
    return sizeof(grammar_params) + words * sizeof(uint32_t);
}

static size_t grammar_write(void *state, int32_t j, void *out)
{
    grammar_state *s = state;
    grammar_params *p = out;
    (void)j;
    *p = (grammar_params){.kind = MASK_ALL};
    if (s->matcher && !s->drafted) {
        *p = (grammar_params){.state = s, .kind = MASK_ASK};
    } else if (s->matcher && !s->refused && !qn_matcher_is_waiting(s->shadow)) {
        /* where there is no mask, the row has no pick; who accepts its drafts meets the error */
        bool made =
            s->status == QN_OK && qn_matcher_mask(s->shadow, p->bits, s->words, NULL) == QN_OK;
        p->kind = MASK_BITS;
        p->words = made ? (int32_t)s->words : 0;
    }
    return sizeof *p + (size_t)p->words * sizeof(uint32_t);
}

static void grammar_begin(void *state)
{
    ((grammar_state *)state)->drafted = false;
}

/* Rows behind a draft that is refused are never used. */
static void grammar_draft(void *state, int32_t token)
{
    grammar_state *s = state;
    if (!s->matcher) {
        return;
    }
    if (!s->drafted) {
        s->drafted = true;
        s->refused = qn_matcher_copy(s->shadow, s->matcher, NULL) != QN_OK;
    }
    s->refused = s->refused || qn_matcher_accept_token(s->shadow, token, NULL) != QN_OK;
}

const qn_sampler_graph qn__grammar_graph = {.stage = QN_STAGE_GRAMMAR,
                                            .room = grammar_room,
                                            .params = grammar_write,
                                            .begin = grammar_begin,
                                            .draft = grammar_draft};

static const qn_sampler_interface grammar_fns = {.name = grammar_name,
                                                 .accept = grammar_accept,
                                                 .apply = grammar_apply,
                                                 .reset = grammar_reset,
                                                 .clone = grammar_clone,
                                                 .copy_state = grammar_copy,
                                                 .free = grammar_free,
                                                 .graph = &qn__grammar_graph};

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
    s->n_vocab = vocab ? qn_vocab_size(vocab) : 0;
    s->words = ((size_t)s->n_vocab + 31) / 32;
    s->bits = qn__calloc(s->words + 1, sizeof(uint32_t));
    if (!s->bits) {
        qn__error_memory(err, "grammar sampler");
        goto done;
    }
    if (!grammar || (qn_matcher_make(grammar, &s->matcher, err) == QN_OK &&
                     qn_matcher_make(grammar, &s->shadow, err) == QN_OK)) {
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

/* A sampler that is no chain becomes one of one member. */
static qn_sampler *chain_of(qn_sampler *sampler, qn_error *err)
{
    if (qn_sampler_is_chain(sampler)) {
        return sampler;
    }
    qn_sampler *chain = qn_sampler_chain(err);
    if (!chain) {
        qn_sampler_free(sampler);
    } else if (qn_sampler_chain_add(chain, sampler, err) != QN_OK) { /* which has freed it */
        qn_sampler_free(chain);
        chain = NULL;
    }
    return chain;
}

qn_sampler *qn_sampler_constrained(qn_sampler *chain, qn_grammar *grammar, qn_error *err)
{
    chain = chain ? chain_of(chain, err) : NULL; /* without one its maker has filled err */
    return chain ? make(&constrained_fns, chain, grammar, err) : NULL;
}

qn_sampler *qn__constrained_chain(const qn_sampler *s)
{
    return s && s->fns == &constrained_fns ? ((const grammar_state *)s->state)->chain : NULL;
}
