/*
 * reasoning_budget.c: bounds how long a model reasons before it answers. Watches the text for the
 * token sequences that begin and end reasoning; where the budget is spent, and no UTF-8 character
 * is cut in two, it leaves only the tokens of a given end possible, one after the other.
 */
#include <math.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/sampler.h"

#define SEQUENCE_MAX  256  /* tokens of a sequence */
#define SEQUENCES_MAX 1024 /* sequences that begin, or end */
#define CHARACTER_MAX 4    /* bytes of a UTF-8 character */

/* Sequences, of which the longest that ends with the newest token counts. */
typedef struct matcher {
    size_t n, first;   /* index of the first one in the spans */
    uint32_t n_recent; /* tokens since the last hit, as far as they can matter */
    int32_t recent[SEQUENCE_MAX];
} matcher;

typedef struct span {
    uint32_t at, count; /* in the tokens */
    int32_t index;      /* as the caller counts them */
} span;

/* room: spans (begins, then ends), then their tokens, then the forced ones. */
typedef struct reasoning_state {
    qn_plain_state plain;
    const qn_vocab *vocab;
    int32_t budget, remaining;
    qn_reasoning_state state;
    int32_t end; /* index of the sequence that ended the last reasoning, or -1 */
    matcher starts, ends;
    size_t n_spans, n_tokens, n_forced, position; /* position: of the next forced token */
    uint8_t tail[CHARACTER_MAX];                  /* last bytes of the text */
    size_t n_tail;
    span room[];
} reasoning_state;

static int32_t *tokens_of(reasoning_state *s)
{
    return (int32_t *)(s->room + s->n_spans);
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
static int32_t match(reasoning_state *s, matcher *m, int32_t token)
{
    if (m->n == 0) {
        return -1;
    }
    if (m->n_recent == SEQUENCE_MAX) {
        memmove(m->recent, m->recent + 1, (SEQUENCE_MAX - 1) * sizeof *m->recent);
        m->n_recent--;
    }
    m->recent[m->n_recent++] = token;
    const span *best = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const span *one = &s->room[m->first + i];
        if (one->count <= m->n_recent && (!best || one->count > best->count) &&
            memcmp(m->recent + (m->n_recent - one->count), tokens_of(s) + one->at,
                   one->count * sizeof(int32_t)) == 0) {
            best = one;
        }
    }
    if (!best) {
        return -1;
    }
    m->n_recent = 0;
    return best->index;
}

static void force(reasoning_state *s)
{
    s->state = QN_REASONING_FORCING;
    s->position = 0;
    s->ends.n_recent = 0;
}

static void begin(reasoning_state *s)
{
    s->state = QN_REASONING_COUNTING;
    s->remaining = s->budget;
    s->end = -1;
    s->ends.n_recent = 0;
    if (s->remaining <= 0) {
        force(s);
    }
}

/* Whether the text is at the boundary of a character, once this token is part of it. */
static bool add_text(reasoning_state *s, int32_t token)
{
    size_t size = 0;
    const char *piece = s->vocab ? qn_vocab_piece(s->vocab, token, false, &size) : NULL;
    for (size_t i = size > CHARACTER_MAX ? size - CHARACTER_MAX : 0; piece && i < size; i++) {
        if (s->n_tail == CHARACTER_MAX) {
            memmove(s->tail, s->tail + 1, CHARACTER_MAX - 1);
            s->n_tail--;
        }
        s->tail[s->n_tail++] = (uint8_t)piece[i];
    }
    return qn__text_is_complete(s->tail, s->n_tail);
}

static void count(reasoning_state *s, int32_t token, bool complete)
{
    int32_t end = match(s, &s->ends, token);
    if (end >= 0) {
        s->state = QN_REASONING_DONE;
        s->end = end;
        return;
    }
    if (s->state == QN_REASONING_COUNTING) {
        s->remaining--;
        if (s->remaining > 0) {
            return;
        }
        s->state = QN_REASONING_WAITING;
        s->ends.n_recent = 0;
    }
    if (complete) {
        force(s);
    }
}

static qn_status reasoning_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)generated;
    (void)err;
    reasoning_state *s = state;
    bool complete = add_text(s, token);
    switch (s->state) {
    case QN_REASONING_IDLE:
    case QN_REASONING_DONE:
        if (match(s, &s->starts, token) >= 0) {
            begin(s);
        }
        break;
    case QN_REASONING_COUNTING:
    case QN_REASONING_WAITING:
        count(s, token, complete);
        break;
    default: {
        int32_t end = match(s, &s->ends, token);
        s->position++;
        if (s->position >= s->n_forced) {
            s->state = QN_REASONING_DONE;
            s->end = end;
            s->starts.n_recent = 0;
        }
    }
    }
    return QN_OK;
}

void qn__force_row(qn_candidates *c, int32_t id)
{
    for (size_t i = 0; i < c->size; i++) {
        c->logits[i] = c->ids[i] == id ? c->logits[i] : -INFINITY;
    }
    c->sorted = c->has_weights = false;
}

static void reasoning_apply(void *state, qn_candidates *c)
{
    reasoning_state *s = state;
    if (s->state == QN_REASONING_FORCING && s->position < s->n_forced) {
        qn__force_row(c, tokens_of(s)[s->n_tokens + s->position]);
    }
}

static void reasoning_reset(void *state)
{
    reasoning_state *s = state;
    s->state = QN_REASONING_IDLE;
    s->remaining = 0;
    s->end = -1;
    s->starts.n_recent = s->ends.n_recent = 0;
    s->position = s->n_tail = 0;
}

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
                                                   .free = qn__plain_free};

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

static void add_spans(reasoning_state *s, matcher *m, const qn_token_span *spans, size_t n,
                      size_t *n_spans, size_t *n_tokens)
{
    m->first = *n_spans;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].count > 0) {
            s->room[(*n_spans)++] =
                (span){(uint32_t)*n_tokens, (uint32_t)spans[i].count, (int32_t)i};
            memcpy(tokens_of(s) + *n_tokens, spans[i].ids, spans[i].count * sizeof(int32_t));
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
        memcpy(tokens_of(own) + token_at, o->forced.ids, own->n_forced * sizeof(int32_t));
    }
    reasoning_reset(own);
    if (o->first == QN_REASONING_COUNTING) {
        begin(own);
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
    return own ? own->state : QN_REASONING_IDLE;
}

bool qn_sampler_reasoning_force(qn_sampler *s)
{
    reasoning_state *own = state_of(s);
    if (!own || own->state != QN_REASONING_COUNTING) {
        return false;
    }
    force(own);
    return true;
}

int32_t qn_sampler_reasoning_end(const qn_sampler *s)
{
    const reasoning_state *own = state_of(s);
    return own ? own->end : -1;
}
