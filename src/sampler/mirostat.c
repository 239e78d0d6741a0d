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
    m->memory = (qn_mirostat_memory){.mu = qn__finite(2.0F * m->tau), .token = QN_TOKEN_NONE};
    m->draft = QN_TOKEN_NONE;
    qn__draw_reset(&m->draw);
}

/* `c` has a pick, or every candidate is banned. */
static void remember(qn_mirostat_memory *memory, const qn_candidates *c)
{
    memory->token = QN_TOKEN_NONE;
    if (c->selected >= 0) {
        memory->token = c->ids[c->selected];
        memory->surprise = qn__surprise(c->logits[0], c->logits[c->selected], qn__row_log_sum(c));
    }
}

static void learn(qn_mirostat_memory *memory, float tau, float eta, int32_t token)
{
    if (token == memory->token && token != QN_TOKEN_NONE) {
        memory->mu = qn__finite(memory->mu - eta * (memory->surprise - tau));
    }
    memory->token = QN_TOKEN_NONE;
}

void qn__mirostat_pick(qn_mirostat *m, qn_candidates *c)
{
    qn__draw_pick(&m->draw, c);
    remember(&m->memory, c);
}

void qn__mirostat_accept(qn_mirostat *m, int32_t token, bool generated)
{
    if (generated) {
        learn(&m->memory, m->tau, m->eta, token);
    }
    qn__draw_accept(&m->draw, generated);
}

size_t qn__mirostat_room(int32_t j)
{
    return sizeof(qn_mirostat_params) + ((size_t)j + 1) * sizeof(uint64_t);
}

size_t qn__mirostat_params_write(qn_mirostat *m, int32_t j, qn_mirostat_params *out)
{
    *out = (qn_mirostat_params){
        .memory = m->memory, .tau = m->tau, .eta = m->eta, .token = m->draft, .n_fractions = j + 1};
    out->memory.token = QN_TOKEN_NONE; /* nothing is picked yet in this batch */
    qn__draw_write_ahead(&m->draw, j, out->fractions);
    m->draft = QN_TOKEN_NONE;
    return qn__mirostat_room(j);
}

void qn__mirostat_begin(qn_mirostat *m)
{
    m->draft = QN_TOKEN_NONE;
    qn__draw_forget(&m->draw);
}

void qn__mirostat_draft(qn_mirostat *m, int32_t token)
{
    m->draft = m->draft == QN_TOKEN_NONE ? token : m->draft;
}

void qn__mirostat_take(qn_mirostat *m, const int32_t *carry)
{
    qn_mirostat_memory row;
    memcpy(&row, carry, sizeof row);
    m->memory.token = row.token;
    m->memory.surprise = row.surprise;
    qn__draw_take(&m->draw, row.drew != 0);
}

void qn__mirostat_row_begin(const qn_mirostat_params *p, const int32_t *carry,
                            qn_mirostat_memory *memory)
{
    memcpy(memory, carry, sizeof *memory);
    learn(memory, p->tau, p->eta, p->token);
}

void qn__mirostat_row_end(const qn_mirostat_params *p, qn_mirostat_memory *memory, qn_candidates *c,
                          int32_t *carry)
{
    memory->drew = qn__draw_pick_ahead(c, p->fractions, memory->n_drawn);
    memory->n_drawn += memory->drew;
    remember(memory, c);
    memcpy(carry, memory, sizeof *memory);
}

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
    qn__mirostat_row(c, s->steps, s->n_steps, s->log_vocab, s->m.memory.mu);
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
    qn_mirostat_memory memory;
    qn__mirostat_row_begin(common, carry, &memory);
    qn__mirostat_row(c, p->steps, p->n_steps, p->log_vocab, memory.mu);
    qn__mirostat_row_end(common, &memory, c, carry);
}

const qn_sample_stage qn__stage_mirostat = {.name = "mirostat", .carried = mirostat_stage};

static size_t mirostat_room(const void *state, int32_t j, size_t n_drafts)
{
    const mirostat_state *s = state;
    (void)n_drafts;
    return qn__mirostat_room(j) + sizeof(mirostat_params) + s->n_steps * sizeof(float);
}

static size_t mirostat_write(void *state, int32_t j, void *out)
{
    mirostat_state *s = state;
    size_t bytes = qn__mirostat_params_write(&s->m, j, out);
    mirostat_params *p = (void *)((uint8_t *)out + bytes);
    p->log_vocab = s->log_vocab;
    p->n_steps = s->n_steps;
    memcpy(p->steps, s->steps, s->n_steps * sizeof(float));
    return mirostat_room(s, j, 0);
}

static void mirostat_begin(void *state)
{
    qn__mirostat_begin(&((mirostat_state *)state)->m);
}

static void mirostat_draft(void *state, int32_t token)
{
    qn__mirostat_draft(&((mirostat_state *)state)->m, token);
}

static void mirostat_take(void *state, const int32_t *carry)
{
    qn__mirostat_take(&((mirostat_state *)state)->m, carry);
}

static const qn_sampler_graph mirostat_graph = {.stage = QN_STAGE_MIROSTAT,
                                                .picks = true,
                                                .draws = true,
                                                .room = mirostat_room,
                                                .params = mirostat_write,
                                                .begin = mirostat_begin,
                                                .draft = mirostat_draft,
                                                .take = mirostat_take};

static const qn_sampler_interface mirostat_fns = {.name = mirostat_name,
                                                  .accept = mirostat_accept,
                                                  .apply = mirostat_apply,
                                                  .reset = mirostat_reset,
                                                  .clone = qn__plain_clone,
                                                  .copy_state = qn__plain_copy,
                                                  .free = qn__plain_free,
                                                  .seed = mirostat_seed,
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
