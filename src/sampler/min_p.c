/*
 * min_p.c: keeps candidates that are at least p times as likely as the best one (Nguyen et al.
 * 2024), in the order in which they are; where that leaves less than min_keep, the min_keep best.
 */
#include <math.h>

#include "base/error.h"
#include "base/fmath.h"
#include "sampler/graph.h"
#include "sampler/scan.h"

void qn__min_p_row(qn_candidates *c, float log_p, size_t min_keep)
{
    float max = qn__row_max(c->logits, c->size);
    if (max == -INFINITY) {
        return;
    }
    float least = max + log_p;
    min_keep = min_keep < c->size ? min_keep : c->size;
    if (!(least <= max) ||
        (min_keep > 1 && qn__scan()->count(c->logits, c->size, least) < min_keep)) {
        qn__top_k_row(c, min_keep > 0 ? min_keep : 1);
        return;
    }
    c->has_weights = false;
    qn__row_cut(c, least);
}

typedef struct min_p_state {
    qn_plain_state plain;
    float log_p;
    size_t min_keep;
} min_p_state;

static const char *min_p_name(const void *state)
{
    (void)state;
    return "min-p";
}

static void min_p_apply(void *state, qn_candidates *c)
{
    const min_p_state *s = state;
    qn__min_p_row(c, s->log_p, s->min_keep);
}

const qn_sample_stage qn__stage_min_p = {.name = "min-p", .row = min_p_apply};

static const qn_sampler_graph min_p_graph = {.stage = QN_STAGE_MIN_P};

static const qn_sampler_interface min_p_fns = {.name = min_p_name,
                                               .apply = min_p_apply,
                                               .clone = qn__plain_clone,
                                               .free = qn__plain_free,
                                               .graph = &min_p_graph};

qn_sampler *qn_sampler_min_p(float p, size_t min_keep, qn_error *err)
{
    if (isnan(p)) {
        qn__error(err, QN_ERR_ARGUMENT, "min-p: p is not a number");
        return NULL;
    }
    if (p <= 0.0F) {
        return qn__sampler_empty("?min-p", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&min_p_fns, sizeof(min_p_state), &state, err);
    if (s) {
        ((min_p_state *)state)->log_p = qn__logf(p);
        ((min_p_state *)state)->min_keep = min_keep;
    }
    return s;
}
