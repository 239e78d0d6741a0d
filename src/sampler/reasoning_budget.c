/*
 * reasoning_budget.c: bounds how long a model reasons before it answers. Watches the text for the
 * token sequences that begin and end reasoning; where the budget is spent, and no UTF-8 character
 * is cut in two, it leaves only the tokens of a given end possible, one after the other.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/graph.h"

#define SEQUENCE_MAX  256  /* tokens of a sequence */
#define SEQUENCES_MAX 1024 /* sequences that begin, or end */
#define CHARACTER_MAX 4    /* bytes of a UTF-8 character */

/* Sequences, of which the longest that ends with the newest token counts. */
typedef struct matcher {
    size_t n, first; /* index of the first one in the spans */
} matcher;

/* Tokens since the last hit, as far as they can matter. */
typedef struct recent {
    uint32_t n;
    int32_t tokens[SEQUENCE_MAX];
} recent;

/* Where the text is. */
typedef struct progress {
    qn_reasoning_state state;
    int32_t remaining;
    int32_t end;     /* index of the sequence that ended the last reasoning, or -1 */
    size_t position; /* of the next forced token */
    recent starts, ends;
    uint8_t tail[CHARACTER_MAX]; /* last bytes of the text */
    size_t n_tail;
} progress;

typedef struct span {
    uint32_t at, count; /* in the tokens */
    int32_t index;      /* as the caller counts them */
} span;

/* room: spans (begins, then ends), then their tokens, then the forced ones. */
typedef struct reasoning_state {
    qn_plain_state plain;
    const qn_vocab *vocab;
    int32_t budget;
    matcher starts, ends;
    size_t n_spans, n_tokens, n_forced;
    progress now, ahead; /* ahead: with the drafts that follow */
    span room[];
} reasoning_state;

static const int32_t *tokens_of(const reasoning_state *s)
{
    return (const int32_t *)(s->room + s->n_spans);
}

bool qn__text_is_complete(const uint8_t *text, size_t size)
{
    for (size_t back = 1; back <= CHARACTER_MAX && back <= size; back++) {
        uint8_t byte = text[size - back];
        if ((byte & 0xC0U) != 0x80U) {
            size_t expected = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
            return back >= expected;
        }
    }
    return size == 0;
}

/* Takes a token in; index of the longest sequence that ends with it, or -1. A hit begins anew. */
static int32_t match(const reasoning_state *s, const matcher *m, recent *r, int32_t token)
{
    if (m->n == 0) {
        return -1;
    }
    if (r->n == SEQUENCE_MAX) {
        memmove(r->tokens, r->tokens + 1, (SEQUENCE_MAX - 1) * sizeof *r->tokens);
        r->n--;
    }
    r->tokens[r->n++] = token;
    const span *best = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const span *one = &s->room[m->first + i];
        if (one->count <= r->n && (!best || one->count > best->count) &&
            memcmp(r->tokens + (r->n - one->count), tokens_of(s) + one->at,
                   one->count * sizeof(int32_t)) == 0) {
            best = one;
        }
    }
    if (!best) {
        return -1;
    }
    r->n = 0;
    return best->index;
}

static void force(progress *p)
{
    p->state = QN_REASONING_FORCING;
    p->position = 0;
    p->ends.n = 0;
}

static void begin(progress *p, int32_t budget)
{
    p->state = QN_REASONING_COUNTING;
    p->remaining = budget;
    p->end = -1;
    p->ends.n = 0;
    if (p->remaining <= 0) {
        force(p);
    }
}

/* Whether the text is at the boundary of a character, once this token is part of it. */
static bool add_text(const reasoning_state *s, progress *p, int32_t token)
{
    size_t size = 0;
    const char *piece = s->vocab ? qn_vocab_piece(s->vocab, token, false, &size) : NULL;
    for (size_t i = size > CHARACTER_MAX ? size - CHARACTER_MAX : 0; piece && i < size; i++) {
        if (p->n_tail == CHARACTER_MAX) {
            memmove(p->tail, p->tail + 1, CHARACTER_MAX - 1);
            p->n_tail--;
        }
        p->tail[p->n_tail++] = (uint8_t)piece[i];
    }
    return qn__text_is_complete(p->tail, p->n_tail);
}

static void count(const reasoning_state *s, progress *p, int32_t token, bool complete)
{
    int32_t end = match(s, &s->ends, &p->ends, token);
    if (end >= 0) {
        p->state = QN_REASONING_DONE;
        p->end = end;
        return;
    }
    if (p->state == QN_REASONING_COUNTING) {
        p->remaining--;
        if (p->remaining > 0) {
            return;
        }
        p->state = QN_REASONING_WAITING;
        p->ends.n = 0;
    }
    if (complete) {
        force(p);
    }
}

/* A token becomes part of the text. */
static void advance(const reasoning_state *s, progress *p, int32_t token)
{
    bool complete = add_text(s, p, token);
    switch (p->state) {
    case QN_REASONING_IDLE:
    case QN_REASONING_DONE:
        if (match(s, &s->starts, &p->starts, token) >= 0) {
            begin(p, s->budget);
        }
        break;
    case QN_REASONING_COUNTING:
    case QN_REASONING_WAITING:
        count(s, p, token, complete);
        break;
    default: {
        int32_t end = match(s, &s->ends, &p->ends, token);
        p->position++;
        if (p->position >= s->n_forced) {
            p->state = QN_REASONING_DONE;
            p->end = end;
            p->starts.n = 0;
        }
    }
    }
}

static qn_status reasoning_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)generated;
    (void)err;
    reasoning_state *s = state;
    advance(s, &s->now, token);
    return QN_OK;
}

void qn__force_row(qn_candidates *c, int32_t id)
{
    for (size_t i = 0; i < c->size; i++) {
        c->logits[i] = c->ids[i] == id ? c->logits[i] : -INFINITY;
    }
    c->sorted = c->has_weights = false;
}

/* The only token that is possible, or QN_TOKEN_NONE. */
static int32_t forced_token(const reasoning_state *s, const progress *p)
{
    bool forces = p->state == QN_REASONING_FORCING && p->position < s->n_forced;
    return forces ? tokens_of(s)[s->n_tokens + p->position] : QN_TOKEN_NONE;
}

static void apply_forced(qn_candidates *c, int32_t token)
{
    if (token != QN_TOKEN_NONE) {
        qn__force_row(c, token);
    }
}

static void reasoning_apply(void *state, qn_candidates *c)
{
    const reasoning_state *s = state;
    apply_forced(c, forced_token(s, &s->now));
}

static void reasoning_reset(void *state)
{
    ((reasoning_state *)state)->now = (progress){.state = QN_REASONING_IDLE, .end = -1};
}

/* In a graph, a row gets the token. */
static void reasoning_stage(void *params, qn_candidates *c)
{
    apply_forced(c, *(const int32_t *)params);
}

const qn_sample_stage qn__stage_reasoning = {.name = "reasoning-budget", .row = reasoning_stage};

static size_t reasoning_params(void *state, int32_t j, void *out)
{
    const reasoning_state *s = state;
    (void)j;
    *(int32_t *)out = forced_token(s, &s->ahead);
    return sizeof(int32_t);
}

static void reasoning_begin(void *state)
{
    reasoning_state *s = state;
    s->ahead = s->now;
}

static void reasoning_draft(void *state, int32_t token)
{
    reasoning_state *s = state;
    advance(s, &s->ahead, token);
}

static const qn_sampler_graph reasoning_graph = {.stage = QN_STAGE_REASONING,
                                                 .param_bytes = sizeof(int32_t),
                                                 .params = reasoning_params,
                                                 .begin = reasoning_begin,
                                                 .draft = reasoning_draft};

static const char *reasoning_name(const void *state)
{
    (void)state;
    return "reasoning-budget";
}

static const qn_sampler_interface reasoning_fns = {.name = reasoning_name,
                                                   .accept = reasoning_accept,
                                                   .apply = reasoning_apply,
                                                   .reset = reasoning_reset,
                                                   .clone = qn__plain_clone,
                                                   .copy_state = qn__plain_copy,
                                                   .free = qn__plain_free,
                                                   .graph = &reasoning_graph};

/* Number of sequences that are not empty, and of their tokens; false after a message. */
static bool measure(const qn_token_span *spans, size_t n, size_t *n_spans, size_t *n_tokens,
                    qn_error *err)
{
    if (n > SEQUENCES_MAX) {
        qn__error(err, QN_ERR_LIMIT, "reasoning budget: more than %d sequences", SEQUENCES_MAX);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (spans[i].count > SEQUENCE_MAX) {
            qn__error(err, QN_ERR_LIMIT, "reasoning budget: a sequence has %zu tokens, not %d",
                      spans[i].count, SEQUENCE_MAX);
            return false;
        }
        *n_spans += spans[i].count > 0;
        *n_tokens += spans[i].count;
    }
    return true;
}

static int32_t *own_tokens(reasoning_state *s)
{
    return (int32_t *)(s->room + s->n_spans);
}

static void add_spans(reasoning_state *s, matcher *m, const qn_token_span *spans, size_t n,
                      size_t *n_spans, size_t *n_tokens)
{
    m->first = *n_spans;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].count > 0) {
            s->room[(*n_spans)++] =
                (span){(uint32_t)*n_tokens, (uint32_t)spans[i].count, (int32_t)i};
            memcpy(own_tokens(s) + *n_tokens, spans[i].ids, spans[i].count * sizeof(int32_t));
            *n_tokens += spans[i].count;
        }
    }
    m->n = *n_spans - m->first;
}

qn_sampler *qn_sampler_reasoning_budget(const qn_reasoning_options *options, qn_error *err)
{
    const qn_reasoning_options *o = options;
    size_t n_spans = 0, n_tokens = 0;
    if (o->first != QN_REASONING_IDLE && o->first != QN_REASONING_COUNTING) {
        qn__error(err, QN_ERR_ARGUMENT, "reasoning budget: begins idle or counting");
        return NULL;
    }
    if (!measure(o->starts, o->n_starts, &n_spans, &n_tokens, err) ||
        !measure(o->ends, o->n_ends, &n_spans, &n_tokens, err)) {
        return NULL;
    }
    if (o->forced.count > SEQUENCES_MAX) {
        qn__error(err, QN_ERR_LIMIT, "reasoning budget: the forced end has %zu tokens, not %d",
                  o->forced.count, SEQUENCES_MAX);
        return NULL;
    }
    void *state;
    size_t bytes = sizeof(reasoning_state) + n_spans * sizeof(span) +
                   (n_tokens + o->forced.count) * sizeof(int32_t);
    qn_sampler *s = qn__sampler_make(&reasoning_fns, bytes, &state, err);
    if (!s) {
        return NULL;
    }
    reasoning_state *own = state;
    own->vocab = o->vocab;
    own->budget = o->budget;
    own->n_spans = n_spans;
    own->n_forced = o->forced.count;
    size_t span_at = 0, token_at = 0;
    add_spans(own, &own->starts, o->starts, o->n_starts, &span_at, &token_at);
    add_spans(own, &own->ends, o->ends, o->n_ends, &span_at, &token_at);
    own->n_tokens = token_at;
    if (own->n_forced > 0) {
        memcpy(own_tokens(own) + token_at, o->forced.ids, own->n_forced * sizeof(int32_t));
    }
    reasoning_reset(own);
    if (o->first == QN_REASONING_COUNTING) {
        begin(&own->now, own->budget);
    }
    return s;
}

static reasoning_state *state_of(const qn_sampler *s)
{
    return s && s->fns == &reasoning_fns ? s->state : NULL;
}

qn_reasoning_state qn_sampler_reasoning_state(const qn_sampler *s)
{
    const reasoning_state *own = state_of(s);
    return own ? own->now.state : QN_REASONING_IDLE;
}

bool qn_sampler_reasoning_force(qn_sampler *s)
{
    reasoning_state *own = state_of(s);
    if (!own || own->now.state != QN_REASONING_COUNTING) {
        return false;
    }
    force(&own->now);
    return true;
}

int32_t qn_sampler_reasoning_end(const qn_sampler *s)
{
    const reasoning_state *own = state_of(s);
    return own ? own->now.end : -1;
}
