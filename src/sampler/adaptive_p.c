/*
 * adaptive_p.c: prefers tokens whose probability is near an aim, and moves the aim so that the
 * probabilities of the tokens accepted are near the target on a fading average.
 */
#include <math.h>

#include "base/error.h"
#include "sampler/sampler.h"

#define WIDTH_INVERSE (1.0F / 0.3F)
#define PEAK          5.0F
#define SHARPNESS     10.0F
#define DECAY_MAX     0.99F

uint64_t qn__adaptive_p_row(qn_candidates *c, float aim)
{
    uint64_t total = qn_candidates_weigh(c);
    if (total == 0) {
        return 0;
    }
    float inverse = (float)(1.0 / (double)total);
    for (size_t i = 0; i < c->size; i++) {
        c->work[i] = c->weights[i];
        if (c->logits[i] > -INFINITY) {
            float d = fabsf(((float)c->weights[i] * inverse - aim) * WIDTH_INVERSE);
            c->logits[i] = PEAK - SHARPNESS * (d * d / (1.0F + d));
        }
    }
    c->sorted = c->has_weights = false;
    return total;
}

typedef struct adaptive_p_state {
    qn_plain_state plain;
    float target, decay;
    float sum, weight; /* of the probabilities accepted, fading */
    int32_t token;     /* what the last apply picked, or QN_TOKEN_NONE */
    float token_p;     /* its probability before the change */
    qn_draw draw;
} adaptive_p_state;

static const char *adaptive_p_name(const void *state)
{
    (void)state;
    return "adaptive-p";
}

static float clamp01(float x)
{
    return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F;
}

static void adaptive_p_apply(void *state, qn_candidates *c)
{
    adaptive_p_state *s = state;
    s->token = QN_TOKEN_NONE;
    if (s->target < 0.0F) {
        qn__draw_pick(&s->draw, c);
        return;
    }
    float target = clamp01(s->target);
    uint64_t total = qn__adaptive_p_row(c, clamp01(2.0F * target - s->sum / s->weight));
    qn__draw_pick(&s->draw, c);
    if (c->selected >= 0) {
        s->token = c->ids[c->selected];
        s->token_p = (float)((double)c->work[c->selected] / (double)total);
    }
}

static qn_status adaptive_p_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)err;
    adaptive_p_state *s = state;
    if (generated && token == s->token && token != QN_TOKEN_NONE) {
        s->sum = s->token_p + s->decay * s->sum;
        s->weight = 1.0F + s->decay * s->weight;
    }
    s->token = generated ? QN_TOKEN_NONE : s->token;
    qn__draw_accept(&s->draw, generated);
    return QN_OK;
}

static void adaptive_p_reset(void *state)
{
    adaptive_p_state *s = state;
    s->sum = s->target / (1.0F - s->decay);
    s->weight = 1.0F / (1.0F - s->decay);
    s->token = QN_TOKEN_NONE;
    s->token_p = 0.0F;
    qn__draw_reset(&s->draw);
}

static bool adaptive_p_seed(const void *state, uint32_t *out)
{
    *out = ((const adaptive_p_state *)state)->draw.used_seed;
    return true;
}

static const qn_sampler_interface adaptive_p_fns = {.name = adaptive_p_name,
                                                    .accept = adaptive_p_accept,
                                                    .apply = adaptive_p_apply,
                                                    .reset = adaptive_p_reset,
                                                    .clone = qn__plain_clone,
                                                    .copy_state = qn__plain_copy,
                                                    .free = qn__plain_free,
                                                    .seed = adaptive_p_seed};

qn_sampler *qn_sampler_adaptive_p(float target, float decay, uint32_t seed, qn_error *err)
{
    if (!isfinite(target) || !isfinite(decay)) {
        qn__error(err, QN_ERR_ARGUMENT, "adaptive-p: target %g and decay %g must be finite numbers",
                  (double)target, (double)decay);
        return NULL;
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&adaptive_p_fns, sizeof(adaptive_p_state), &state, err);
    if (s) {
        adaptive_p_state *own = state;
        own->target = target < 1.0F ? target : 1.0F;
        own->decay = decay > 0.0F ? (decay < DECAY_MAX ? decay : DECAY_MAX) : 0.0F;
        own->draw.seed = seed;
        adaptive_p_reset(own);
    }
    return s;
}
