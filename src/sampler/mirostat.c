/*
 * mirostat.c: mirostat 1 (Basu et al. 2021): keeps the surprise of the text near a target by
 * cutting the set at a rank. From the best candidates it estimates the exponent s of Zipf's law,
 * by which probability falls with rank; s and the greatest surprise allowed, mu, give the rank.
 */
#include "sampler/mirostat.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fmath.h"

#define LN2 0x1.62e430p-1F

/* Most candidates that the estimate looks at. */
#define STEPS_MAX 65536

void qn__mirostat_row(qn_candidates *c, const float *steps, size_t n_steps, float log_vocab,
                      float mu)
{
    size_t n = n_steps + 1 < c->size ? n_steps + 1 : c->size;
    if (!c->sorted) {
        qn__row_best_keys(c, n);
    }
    float slope = 0.0F, square = 0.0F;
    for (size_t i = 0; i + 1 < n; i++) { /* ln(p_i / p_i+1) is a difference */
        float here = c->sorted ? c->logits[i] : qn__key_logit(c->work[i]);
        float next = c->sorted ? c->logits[i + 1] : qn__key_logit(c->work[i + 1]);
        if (next == -INFINITY) {
            break;
        }
        slope = fmaf(steps[i], here - next, slope);
        square = fmaf(steps[i], steps[i], square);
    }
    float s = slope / square, e = s - 1.0F;
    float ratio = e * qn__expf(mu * LN2) / (1.0F - qn__expf(-e * log_vocab));
    float k = qn__expf(qn__logf(ratio) / s);
    size_t keep = k >= (float)c->size ? c->size : k > 1.0F ? (size_t)k : 1; /* NaN: 1 */
    qn__top_k_row(c, keep);
}

typedef struct mirostat_state {
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
    qn__mirostat_row(c, s->steps, s->n_steps, s->log_vocab, s->m.memory.mu);
    qn__mirostat_pick(&s->m, c);
}

/* In a graph: the steps stand behind the numbers. */
typedef struct mirostat_params {
    float log_vocab;
    uint32_t n_steps;
    float steps[];
} mirostat_params;

static void mirostat_stage(void *params, int32_t *carry, qn_candidates *c)
{
    const qn_mirostat_params *common = params;
    const mirostat_params *p = (const void *)(common->fractions + common->n_fractions);
    qn_mirostat_memory memory = qn__mirostat_row_begin(common, carry);
    qn__mirostat_row(c, p->steps, p->n_steps, p->log_vocab, memory.mu);
    qn__mirostat_row_end(common, &memory, c, carry);
}

const qn_sample_stage qn__stage_mirostat = {.name = "mirostat", .carried = mirostat_stage};

static size_t mirostat_room(const void *state, int32_t j, size_t n_drafts)
{
    size_t steps = ((const mirostat_state *)state)->n_steps * sizeof(float);
    return qn__mirostat_room(state, j, n_drafts) + sizeof(mirostat_params) + steps;
}

static size_t mirostat_write(void *state, int32_t j, void *out)
{
    const mirostat_state *s = state;
    mirostat_params *p = (void *)((uint8_t *)out + qn__mirostat_params(state, j, out));
    p->log_vocab = s->log_vocab;
    p->n_steps = s->n_steps;
    memcpy(p->steps, s->steps, s->n_steps * sizeof(float));
    return mirostat_room(s, j, 0);
}

static const qn_sampler_graph mirostat_graph = {.stage = QN_STAGE_MIROSTAT,
                                                .picks = true,
                                                .draws = true,
                                                .room = mirostat_room,
                                                .params = mirostat_write,
                                                .begin = qn__mirostat_begin,
                                                .draft = qn__mirostat_draft,
                                                .take = qn__mirostat_take};

static const qn_sampler_interface mirostat_fns = {.name = mirostat_name,
                                                  .accept = qn__mirostat_accept,
                                                  .apply = mirostat_apply,
                                                  .reset = qn__mirostat_reset,
                                                  .clone = qn__plain_clone,
                                                  .copy_state = qn__plain_copy,
                                                  .free = qn__plain_free,
                                                  .seed = qn__mirostat_seed,
                                                  .graph = &mirostat_graph};

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
