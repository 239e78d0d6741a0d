/*
 * mirostat.c: mirostat 1 (Basu et al. 2021): keeps the surprise of the text near a target by
 * cutting the set at a rank. From the best candidates it estimates the exponent s of Zipf's law,
 * by which probability falls with rank; s and the greatest surprise allowed, mu, give the rank.
 */
#include "sampler/mirostat.h"

#include <math.h>

#include "base/error.h"
#include "base/fmath.h"

#define LN2    0x1.62e430p-1F
#define LOG2_E 0x1.715476p+0F

/* Most candidates that the estimate looks at. */
#define STEPS_MAX 65536

float qn__surprise(float max, float logit, float log_sum)
{
    return (max - logit + log_sum) * LOG2_E;
}

bool qn__mirostat_init(qn_mirostat *m, uint32_t seed, float tau, float eta, qn_error *err)
{
    if (!isfinite(tau) || !isfinite(eta)) {
        qn__error(err, QN_ERR_ARGUMENT, "mirostat: tau %g and eta %g must be finite numbers",
                  (double)tau, (double)eta);
        return false;
    }
    m->tau = tau;
    m->eta = eta;
    m->draw.seed = seed;
    qn__mirostat_reset(m);
    return true;
}

void qn__mirostat_reset(qn_mirostat *m)
{
    m->mu = qn__finite(2.0F * m->tau);
    m->token = QN_TOKEN_NONE;
    m->surprise = 0.0F;
    qn__draw_reset(&m->draw);
}

void qn__mirostat_pick(qn_mirostat *m, qn_candidates *c)
{
    qn__draw_pick(&m->draw, c);
    m->token = QN_TOKEN_NONE;
    if (c->selected >= 0) {
        m->token = c->ids[c->selected];
        m->surprise = qn__surprise(c->logits[0], c->logits[c->selected], qn__row_log_sum(c));
    }
}

void qn__mirostat_accept(qn_mirostat *m, int32_t token, bool generated)
{
    if (generated && token == m->token && token != QN_TOKEN_NONE) {
        m->mu = qn__finite(m->mu - m->eta * (m->surprise - m->tau));
    }
    m->token = generated ? QN_TOKEN_NONE : m->token;
    qn__draw_accept(&m->draw, generated);
}

void qn__mirostat_row(qn_candidates *c, const float *steps, size_t n_steps, float log_vocab,
                      float mu)
{
    qn_candidates_sort(c);
    size_t n = qn__row_active(c);
    float slope = 0.0F, square = 0.0F;
    for (size_t i = 0; i < n_steps && i + 1 < n; i++) { /* ln(p_i / p_i+1) is a difference */
        slope = fmaf(steps[i], c->logits[i] - c->logits[i + 1], slope);
        square = fmaf(steps[i], steps[i], square);
    }
    float s = slope / square, e = s - 1.0F;
    float ratio = e * qn__expf(mu * LN2) / (1.0F - qn__expf(-e * log_vocab));
    float k = qn__expf(qn__logf(ratio) / s);
    size_t keep = k >= (float)c->size ? c->size : k > 1.0F ? (size_t)k : 1; /* NaN: 1 */
    qn__top_k_row(c, keep);
}

typedef struct mirostat_state {
    qn_plain_state plain;
    qn_mirostat m;
    float log_vocab;
    uint32_t n_steps;
    float steps[]; /* ln((i + 2) / (i + 1)) */
} mirostat_state;

static const char *mirostat_name(const void *state)
{
    (void)state;
    return "mirostat";
}

static void mirostat_apply(void *state, qn_candidates *c)
{
    mirostat_state *s = state;
    qn__mirostat_row(c, s->steps, s->n_steps, s->log_vocab, s->m.mu);
    qn__mirostat_pick(&s->m, c);
}

static qn_status mirostat_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)err;
    qn__mirostat_accept(&((mirostat_state *)state)->m, token, generated);
    return QN_OK;
}

static void mirostat_reset(void *state)
{
    qn__mirostat_reset(&((mirostat_state *)state)->m);
}

static bool mirostat_seed(const void *state, uint32_t *out)
{
    *out = ((const mirostat_state *)state)->m.draw.used_seed;
    return true;
}

static const qn_sampler_interface mirostat_fns = {.name = mirostat_name,
                                                  .accept = mirostat_accept,
                                                  .apply = mirostat_apply,
                                                  .reset = mirostat_reset,
                                                  .clone = qn__plain_clone,
                                                  .copy_state = qn__plain_copy,
                                                  .free = qn__plain_free,
                                                  .seed = mirostat_seed};

qn_sampler *qn_sampler_mirostat(int32_t n_vocab, uint32_t seed, float tau, float eta, int32_t m,
                                qn_error *err)
{
    if (n_vocab < 1 || m > STEPS_MAX) {
        qn__error(err, QN_ERR_ARGUMENT, "mirostat: no vocabulary of %d tokens, no %d best ones",
                  n_vocab, m);
        return NULL;
    }
    size_t n_steps = m > 1 ? (size_t)m - 1 : 0;
    void *state;
    qn_sampler *s = qn__sampler_make(&mirostat_fns,
                                     sizeof(mirostat_state) + n_steps * sizeof(float), &state, err);
    if (!s) {
        return NULL;
    }
    mirostat_state *own = state;
    if (!qn__mirostat_init(&own->m, seed, tau, eta, err)) {
        qn_sampler_free(s);
        return NULL;
    }
    own->log_vocab = qn__logf((float)n_vocab);
    own->n_steps = (uint32_t)n_steps;
    for (size_t i = 0; i < n_steps; i++) {
        own->steps[i] = qn__logf((float)(i + 2) / (float)(i + 1));
    }
    return s;
}
