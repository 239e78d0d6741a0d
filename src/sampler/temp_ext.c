/*
 * temp_ext.c: dynamic temperature: low where the model is sure, high where it is not. The measure
 * is the entropy of the candidates as a part of the greatest that so many could have.
 */
#include <math.h>

#include "base/error.h"
#include "base/fmath.h"
#include "sampler/graph.h"

/* x^exponent for 0 <= x, any exponent. */
static float power(float x, float exponent)
{
    const float tiny = 1e-38F;
    return exponent == 0.0F ? 1.0F : qn__expf(exponent * qn__logf(x > tiny ? x : tiny));
}

void qn__temp_ext_row(qn_candidates *c, float low, float high, float exponent)
{
    if (c->size < 2) {
        return;
    }
    qn_candidates_sort(c);
    size_t n = qn__row_active(c);
    if (n < 2) {
        return;
    }
    qn_candidates_weigh(c);
    float entropy = qn__row_log_sum(c) + qn__row_mean_distance(c, c->logits[0]);
    float part = entropy / qn__logf((float)n);
    float factor = 1.0F / fmaf(high - low, power(part, exponent), low);
    if (factor > 0.0F && isfinite(factor)) {
        qn__scale_row(c, factor);
    } else if (!(factor == 0.0F)) { /* a temperature of 0, or no number */
        qn__only_best_row(c);
    } else { /* infinitely hot */
        qn__scale_row(c, 0x1p-149F);
    }
}

typedef struct temp_ext_state {
    qn_plain_state plain;
    float low, high, exponent;
    float factor; /* without a range: as temp, 0 for only the best */
    bool ranged;
} temp_ext_state;

static const char *temp_ext_name(const void *state)
{
    (void)state;
    return "temp-ext";
}

static void temp_ext_apply(void *state, qn_candidates *c)
{
    const temp_ext_state *s = state;
    if (s->ranged) {
        qn__temp_ext_row(c, s->low, s->high, s->exponent);
    } else if (s->factor > 0.0F) {
        qn__scale_row(c, s->factor);
    } else {
        qn__only_best_row(c);
    }
}

const qn_sample_stage qn__stage_temp_ext = {.name = "temp-ext", .row = temp_ext_apply};

static const qn_sampler_graph temp_ext_graph = {.stage = QN_STAGE_TEMP_EXT};

static const qn_sampler_interface temp_ext_fns = {.name = temp_ext_name,
                                                  .apply = temp_ext_apply,
                                                  .clone = qn__plain_clone,
                                                  .copy_state = qn__plain_copy,
                                                  .free = qn__plain_free,
                                                  .graph = &temp_ext_graph};

qn_sampler *qn_sampler_temp_ext(float t, float range, float exponent, qn_error *err)
{
    if (!isfinite(t) || !isfinite(range) || !isfinite(exponent)) {
        qn__error(err, QN_ERR_ARGUMENT,
                  "temperature: %g (range %g, exponent %g): all must be finite numbers", (double)t,
                  (double)range, (double)exponent);
        return NULL;
    }
    if (t == 1.0F && range <= 0.0F) {
        return qn__sampler_empty("?temp-ext", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&temp_ext_fns, sizeof(temp_ext_state), &state, err);
    if (s) {
        temp_ext_state *e = state;
        e->ranged = range > 0.0F;
        e->low = t - range > 0.0F ? t - range : 0.0F;
        e->high = qn__finite(t + range);
        e->exponent = exponent;
        float factor = t > 0.0F ? 1.0F / t : 0.0F;
        e->factor = isfinite(factor) ? factor : 0.0F;
    }
    return s;
}
