/* temp.c: temperature. Logits times 1/t; at 0 and below only the best candidate keeps its logit. */
#include <float.h>
#include <math.h>

#include "base/error.h"
#include "sampler/graph.h"

void qn__scale_row(qn_candidates *c, float factor)
{
    for (size_t i = 0; i < c->size; i++) {
        float x = c->logits[i] * factor;
        x = x > FLT_MAX ? FLT_MAX : x;
        x = x < -FLT_MAX ? -FLT_MAX : x; /* far down, but not banned */
        c->logits[i] = c->logits[i] == -INFINITY ? -INFINITY : x;
    }
    /* Different logits may have become equal, and then the order of ids counts. */
    bool sorted = c->sorted;
    for (size_t i = 1; i < c->size && sorted; i++) {
        sorted = c->logits[i - 1] > c->logits[i] || c->ids[i - 1] < c->ids[i];
    }
    c->sorted = sorted;
    c->has_weights = false;
}

void qn__only_best_row(qn_candidates *c)
{
    int64_t best = qn__row_best(c);
    for (size_t i = 0; i < c->size; i++) {
        if ((int64_t)i != best) {
            c->logits[i] = -INFINITY;
        }
    }
    c->sorted = false;
    c->has_weights = false;
}

typedef struct temp_state {
    qn_plain_state plain;
    float factor; /* 0: only the best */
} temp_state;

static const char *temp_name(const void *state)
{
    (void)state;
    return "temp";
}

static void temp_apply(void *state, qn_candidates *c)
{
    const temp_state *s = state;
    if (s->factor > 0.0F) {
        qn__scale_row(c, s->factor);
    } else {
        qn__only_best_row(c);
    }
}

const qn_sample_stage qn__stage_temp = {.name = "temp", .row = temp_apply};

static const qn_sampler_graph temp_graph = {.stage = QN_STAGE_TEMP};

static const qn_sampler_interface temp_fns = {.name = temp_name,
                                              .apply = temp_apply,
                                              .clone = qn__plain_clone,
                                              .free = qn__plain_free,
                                              .graph = &temp_graph};

qn_sampler *qn_sampler_temp(float t, qn_error *err)
{
    if (!isfinite(t)) {
        qn__error(err, QN_ERR_ARGUMENT, "temperature: %g is not a finite number", (double)t);
        return NULL;
    }
    if (t == 1.0F) {
        return qn__sampler_empty("?temp", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&temp_fns, sizeof(temp_state), &state, err);
    if (s) {
        /* A t so small that 1/t overflows is as good as 0. */
        float factor = t > 0.0F ? 1.0F / t : 0.0F;
        ((temp_state *)state)->factor = isfinite(factor) ? factor : 0.0F;
    }
    return s;
}
