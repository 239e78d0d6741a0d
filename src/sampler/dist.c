/* dist.c: the seeded draw. The pick is the first candidate, in their order, whose running sum of
 * weights exceeds fraction * total. One candidate costs a draw too, so that streams stay aligned.
 */
#include <string.h>

#include "sampler/graph.h"
#include "sampler/scan.h"

void qn__dist_row(qn_candidates *c, uint64_t fraction)
{
    c->selected = -1;
    uint64_t total = qn_candidates_weigh(c);
    if (total == 0) {
        return;
    }
    size_t at = qn__scan()->reach(c->weights, c->size, qn__mul_high(fraction, total));
    c->selected = (int64_t)at; /* within the set: the target is below the total */
}

typedef struct dist_state {
    qn_plain_state plain;
    qn_draw draw;
} dist_state;

static const char *dist_name(const void *state)
{
    (void)state;
    return "dist";
}

static void dist_apply(void *state, qn_candidates *c)
{
    dist_state *s = state;
    c->selected = -1;
    if (c->size > 0) {
        qn__dist_row(c, qn__draw_fraction(&s->draw));
    }
}

static qn_status dist_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)token;
    (void)err;
    qn__draw_accept(&((dist_state *)state)->draw, generated);
    return QN_OK;
}

static void dist_reset(void *state)
{
    qn__draw_reset(&((dist_state *)state)->draw);
}

static qn_status dist_copy_state(void *to, const void *from, qn_error *err)
{
    (void)err;
    *(dist_state *)to = *(const dist_state *)from;
    return QN_OK;
}

static bool dist_seed(const void *state, uint32_t *out)
{
    *out = ((const dist_state *)state)->draw.used_seed;
    return true;
}

/* In a graph, a row needs its number only. */
static void dist_stage(void *params, qn_candidates *c)
{
    qn__dist_row(c, *(const uint64_t *)params);
}

const qn_sample_stage qn__stage_dist = {.name = "dist", .row = dist_stage};

static size_t dist_params(void *state, int32_t j, void *out)
{
    uint64_t fraction = qn__draw_fraction_ahead(&((dist_state *)state)->draw, (uint32_t)j);
    memcpy(out, &fraction, sizeof fraction);
    return sizeof fraction;
}

static void dist_begin(void *state)
{
    qn__draw_forget(&((dist_state *)state)->draw);
}

static void dist_take(void *state, const int32_t *carry)
{
    (void)carry;
    qn__draw_take(&((dist_state *)state)->draw, true);
}

static const qn_sampler_graph dist_graph = {.stage = QN_STAGE_DIST,
                                            .picks = true,
                                            .draws = true,
                                            .param_bytes = sizeof(uint64_t),
                                            .params = dist_params,
                                            .begin = dist_begin,
                                            .take = dist_take};

static const qn_sampler_interface dist_fns = {.name = dist_name,
                                              .accept = dist_accept,
                                              .apply = dist_apply,
                                              .reset = dist_reset,
                                              .clone = qn__plain_clone,
                                              .copy_state = dist_copy_state,
                                              .free = qn__plain_free,
                                              .seed = dist_seed,
                                              .graph = &dist_graph};

qn_sampler *qn_sampler_dist(uint32_t seed, qn_error *err)
{
    void *state;
    qn_sampler *s = qn__sampler_make(&dist_fns, sizeof(dist_state), &state, err);
    if (s) {
        qn__draw_init(&((dist_state *)state)->draw, seed);
    }
    return s;
}
