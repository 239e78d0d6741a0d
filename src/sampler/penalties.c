/*
 * penalties.c: makes tokens of the last part of the text less likely: for having occurred, and for
 * each time (the repeat penalty of Keskar et al. 2019; presence and frequency).
 *
 * The history is a ring. Counts by token are made of it when apply needs them and it has changed.
 */
#include <math.h>

#include "base/error.h"
#include "sampler/sampler.h"

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

/* room: sort keys and their spare (capacity words each), then ring, ids, counts. */
typedef struct penalties_state {
    qn_plain_state plain;
    qn_penalties p;
    qn_history history;
    bool counted; /* ids and counts are those of the history */
    size_t n;     /* of them */
    uint64_t room[];
} penalties_state;

static int32_t *ring_of(penalties_state *s)
{
    return (int32_t *)(s->room + 2 * (size_t)s->history.capacity);
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

static void count_tokens(penalties_state *s)
{
    size_t capacity = s->history.capacity;
    int32_t *ring = ring_of(s), *ids = ring + capacity, *counts = ids + capacity;
    for (uint32_t i = 0; i < s->history.count; i++) { /* the order does not matter */
        s->room[i] = (uint64_t)(uint32_t)ring[i] << 32 | i;
    }
    qn__sort_keys(s->room, s->history.count, s->room + capacity);
    s->n = 0;
    for (uint32_t i = 0; i < s->history.count; i++) {
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
    s->counted = true;
}

static void penalties_apply(void *state, qn_candidates *c)
{
    penalties_state *s = state;
    if (!s->counted) {
        count_tokens(s);
    }
    const int32_t *ids = ring_of(s) + s->history.capacity;
    qn__penalties_row(c, &s->p, ids, ids + s->history.capacity, s->n);
}

static void penalties_reset(void *state)
{
    penalties_state *s = state;
    s->history.count = s->history.next = 0;
    s->counted = false;
}

static const qn_sampler_interface penalties_fns = {.name = penalties_name,
                                                   .accept = penalties_accept,
                                                   .apply = penalties_apply,
                                                   .reset = penalties_reset,
                                                   .clone = qn__plain_clone,
                                                   .copy_state = qn__plain_copy,
                                                   .free = qn__plain_free};

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
    size_t bytes = sizeof(penalties_state) + 2 * n * sizeof(uint64_t) + 3 * n * sizeof(int32_t);
    void *state;
    qn_sampler *s = qn__sampler_make(&penalties_fns, bytes, &state, err);
    if (s) {
        penalties_state *own = state;
        own->p = (qn_penalties){repeat, 1.0F / repeat, frequency, presence};
        own->history.capacity = (uint32_t)n;
    }
    return s;
}
