/*
 * penalties.c: makes tokens of the last part of the text less likely: for having occurred, and for
 * each time (the repeat penalty of Keskar et al. 2019; presence and frequency).
 *
 * The history is a ring. Counts by token are made of it when apply needs them and it has changed.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "sampler/graph.h"

typedef struct penalty_list {
    const qn_penalties *p;
    const int32_t *counts;
} penalty_list;

static float penalize(float logit, size_t i, const void *with)
{
    const penalty_list *list = with;
    const qn_penalties *p = list->p;
    if (logit == -INFINITY) {
        return logit;
    }
    float x = logit * (logit <= 0.0F ? p->repeat : p->inverse_repeat);
    return qn__finite(x - ((float)list->counts[i] * p->frequency + p->presence));
}

void qn__penalties_row(qn_candidates *c, const qn_penalties *p, const int32_t *ids,
                       const int32_t *counts, size_t n)
{
    penalty_list list = {p, counts};
    qn__row_change(c, ids, n, penalize, &list);
}

/* room: sort keys and their spare (capacity words each), then ring and drafts, ids, counts. */
typedef struct penalties_state {
    qn_plain_state plain;
    qn_penalties p;
    qn_history history;
    bool counted; /* ids and counts are those of the text */
    size_t n;     /* of them */
    uint64_t room[];
} penalties_state;

static int32_t *ring_of(penalties_state *s)
{
    return (int32_t *)(s->room + 2 * (size_t)s->history.capacity);
}

static int32_t *ids_of(penalties_state *s)
{
    return ring_of(s) + 2 * (size_t)s->history.capacity;
}

static const char *penalties_name(const void *state)
{
    (void)state;
    return "penalties";
}

static qn_status penalties_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)generated;
    (void)err;
    penalties_state *s = state;
    qn__history_push(&s->history, ring_of(s), token);
    s->counted = false;
    return QN_OK;
}

/* Of the text, or of the text and the drafts behind it. */
static void count_tokens(penalties_state *s, bool with_drafts)
{
    const qn_history *h = &s->history;
    with_drafts = with_drafts && h->draft_count > 0;
    if (s->counted && !with_drafts) {
        return;
    }
    size_t capacity = h->capacity;
    const int32_t *ring = ring_of(s);
    int32_t *ids = ids_of(s), *counts = ids + capacity;
    uint32_t n = qn__history_count(h, with_drafts);
    for (uint32_t i = 0; i < n; i++) {
        s->room[i] = (uint64_t)(uint32_t)qn__history_back(h, ring, with_drafts, i) << 32 | i;
    }
    qn__sort_keys(s->room, n, s->room + capacity);
    s->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)(uint32_t)(s->room[i] >> 32);
        if (id < 0) {
            break; /* no tokens; they are last */
        }
        if (s->n == 0 || ids[s->n - 1] != id) {
            ids[s->n] = id;
            counts[s->n++] = 0;
        }
        counts[s->n - 1]++;
    }
    s->counted = !with_drafts;
}

static void penalties_apply(void *state, qn_candidates *c)
{
    penalties_state *s = state;
    count_tokens(s, false);
    qn__penalties_row(c, &s->p, ids_of(s), ids_of(s) + s->history.capacity, s->n);
}

static void penalties_reset(void *state)
{
    penalties_state *s = state;
    qn__history_clear(&s->history);
    s->counted = false;
}

/* In a graph, a row gets the list: ids, then counts. */
typedef struct penalties_params {
    qn_penalties p;
    int32_t n, list[];
} penalties_params;

static void penalties_stage(void *params, qn_candidates *c)
{
    const penalties_params *p = params;
    qn__penalties_row(c, &p->p, p->list, p->list + p->n, (size_t)p->n);
}

static const int32_t *penalties_names(const void *params, size_t *n)
{
    const penalties_params *p = params;
    *n = (size_t)p->n;
    return p->list;
}

const qn_sample_stage qn__stage_penalties = {
    .name = "penalties", .row = penalties_stage, .names = penalties_names};

static size_t params_bytes(size_t n)
{
    return sizeof(penalties_params) + 2 * n * sizeof(int32_t);
}

static size_t penalties_room(const void *state, int32_t j, size_t n_drafts)
{
    const qn_history *h = &((const penalties_state *)state)->history;
    (void)j;
    size_t n = h->count + n_drafts;
    return params_bytes(n < h->capacity ? n : h->capacity);
}

static size_t penalties_write(void *state, int32_t j, void *out)
{
    penalties_state *s = state;
    penalties_params *p = out;
    (void)j;
    count_tokens(s, true);
    p->p = s->p;
    p->n = (int32_t)s->n;
    memcpy(p->list, ids_of(s), s->n * sizeof(int32_t));
    memcpy(p->list + s->n, ids_of(s) + s->history.capacity, s->n * sizeof(int32_t));
    return params_bytes(s->n);
}

static void penalties_begin(void *state)
{
    qn__history_forget_drafts(&((penalties_state *)state)->history);
}

static void penalties_draft(void *state, int32_t token)
{
    penalties_state *s = state;
    qn__history_draft(&s->history, ring_of(s), token);
}

static const qn_sampler_graph penalties_graph = {.stage = QN_STAGE_PENALTIES,
                                                 .room = penalties_room,
                                                 .params = penalties_write,
                                                 .begin = penalties_begin,
                                                 .draft = penalties_draft};

static const qn_sampler_interface penalties_fns = {.name = penalties_name,
                                                   .accept = penalties_accept,
                                                   .apply = penalties_apply,
                                                   .reset = penalties_reset,
                                                   .clone = qn__plain_clone,
                                                   .copy_state = qn__plain_copy,
                                                   .free = qn__plain_free,
                                                   .graph = &penalties_graph};

static bool check(float repeat, float frequency, float presence, qn_error *err)
{
    if (!isfinite(repeat) || !(repeat > 0.0F) || !isfinite(1.0F / repeat)) {
        qn__error(err, QN_ERR_ARGUMENT, "penalty_repeat must be finite and greater than 0");
    } else if (!isfinite(frequency)) {
        qn__error(err, QN_ERR_ARGUMENT, "penalty_freq must be finite");
    } else if (!isfinite(presence)) {
        qn__error(err, QN_ERR_ARGUMENT, "penalty_present must be finite");
    } else {
        return true;
    }
    return false;
}

qn_sampler *qn_sampler_penalties(int32_t last_n, float repeat, float frequency, float presence,
                                 qn_error *err)
{
    if (!check(repeat, frequency, presence, err)) {
        return NULL;
    }
    if (last_n > QN_HISTORY_MAX) {
        qn__error(err, QN_ERR_LIMIT, "penalties: last_n %d is more than %d", last_n,
                  QN_HISTORY_MAX);
        return NULL;
    }
    if (last_n <= 0 || (repeat == 1.0F && frequency == 0.0F && presence == 0.0F)) {
        return qn__sampler_empty("?penalties", err);
    }
    size_t n = (size_t)last_n;
    size_t bytes = sizeof(penalties_state) + 2 * n * sizeof(uint64_t) + 4 * n * sizeof(int32_t);
    void *state;
    qn_sampler *s = qn__sampler_make(&penalties_fns, bytes, &state, err);
    if (s) {
        penalties_state *own = state;
        own->p = (qn_penalties){repeat, 1.0F / repeat, frequency, presence};
        own->history.capacity = (uint32_t)n;
    }
    return s;
}
