/* xtc.c: exclude top choices. At some of the places where several tokens are likely, all of them
 * but the least likely one go, so that the text takes a turn without becoming unlikely. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "sampler/graph.h"

#define THRESHOLD_MAX 0.5F /* above it two cannot reach it */

void qn__xtc_row(qn_candidates *c, float threshold, size_t min_keep)
{
    if (c->size < 2) {
        return;
    }
    qn_candidates_sort(c);
    if (qn_candidates_weigh(c) == 0) {
        return;
    }
    size_t n = 0;
    while (n < c->size && c->weights[n] > 0 && qn_candidates_prob(c, n) >= threshold) {
        n++;
    }
    size_t drop = n > 1 ? n - 1 : 0;
    size_t active = qn__row_active(c);
    if (drop == 0 || active - drop < min_keep) {
        return;
    }
    c->size -= drop;
    memmove(c->ids, c->ids + drop, c->size * sizeof *c->ids);
    memmove(c->logits, c->logits + drop, c->size * sizeof *c->logits);
    memmove(c->weights, c->weights + drop, c->size * sizeof *c->weights);
}

typedef struct xtc_state {
    qn_plain_state plain;
    float probability, threshold;
    size_t min_keep;
    qn_draw draw;
} xtc_state;

static const char *xtc_name(const void *state)
{
    (void)state;
    return "xtc";
}

static void xtc_apply(void *state, qn_candidates *c)
{
    xtc_state *s = state;
    if (qn__fraction_float(qn__draw_fraction(&s->draw)) <=
        s->probability) { /* drawn whatever the set is */
        qn__xtc_row(c, s->threshold, s->min_keep);
    }
}

static qn_status xtc_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)token;
    (void)err;
    qn__draw_accept(&((xtc_state *)state)->draw, generated);
    return QN_OK;
}

static void xtc_reset(void *state)
{
    qn__draw_reset(&((xtc_state *)state)->draw);
}

static bool xtc_seed(const void *state, uint32_t *out)
{
    *out = ((const xtc_state *)state)->draw.used_seed;
    return true;
}

/* In a graph, the draw is made when the row's parameters are written. */
typedef struct xtc_params {
    size_t min_keep;
    float threshold;
    bool acts;
} xtc_params;

static void xtc_stage(void *params, qn_candidates *c)
{
    const xtc_params *p = params;
    if (p->acts) {
        qn__xtc_row(c, p->threshold, p->min_keep);
    }
}

const qn_sample_stage qn__stage_xtc = {.name = "xtc", .row = xtc_stage};

static size_t write_xtc_params(void *state, int32_t j, void *out)
{
    xtc_state *s = state;
    float drawn = qn__fraction_float(qn__draw_fraction_ahead(&s->draw, (uint32_t)j));
    *(xtc_params *)out = (xtc_params){
        .min_keep = s->min_keep, .threshold = s->threshold, .acts = drawn <= s->probability};
    return sizeof(xtc_params);
}

static void xtc_begin(void *state)
{
    qn__draw_forget(&((xtc_state *)state)->draw);
}

static void xtc_take(void *state, const int32_t *carry)
{
    (void)carry;
    qn__draw_take(&((xtc_state *)state)->draw, true);
}

static const qn_sampler_graph xtc_graph = {.stage = QN_STAGE_XTC,
                                           .param_bytes = sizeof(xtc_params),
                                           .params = write_xtc_params,
                                           .begin = xtc_begin,
                                           .take = xtc_take};

static const qn_sampler_interface xtc_fns = {.name = xtc_name,
                                             .accept = xtc_accept,
                                             .apply = xtc_apply,
                                             .reset = xtc_reset,
                                             .clone = qn__plain_clone,
                                             .copy_state = qn__plain_copy,
                                             .free = qn__plain_free,
                                             .seed = xtc_seed,
                                             .graph = &xtc_graph};

qn_sampler *qn_sampler_xtc(float probability, float threshold, size_t min_keep, uint32_t seed,
                           qn_error *err)
{
    if (isnan(probability) || isnan(threshold)) {
        qn__error(err, QN_ERR_ARGUMENT, "xtc: probability or threshold is not a number");
        return NULL;
    }
    if (probability <= 0.0F || threshold > THRESHOLD_MAX) {
        return qn__sampler_empty("?xtc", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&xtc_fns, sizeof(xtc_state), &state, err);
    if (s) {
        xtc_state *x = state;
        x->probability = probability;
        x->threshold = threshold;
        x->min_keep = min_keep;
        x->draw.single = true;
        qn__draw_init(&x->draw, seed);
    }
    return s;
}
