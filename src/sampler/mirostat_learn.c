/*
 * mirostat_learn.c: what the two mirostats share: they learn mu, the most surprise that a candidate
 * may have, from the surprise of what is accepted.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "sampler/mirostat.h"

#define LOG2_E 0x1.715476p+0F

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

void qn__mirostat_reset(void *state)
{
    qn_mirostat *m = state;
    m->memory = (qn_mirostat_memory){.mu = qn__finite(2.0F * m->tau), .token = QN_TOKEN_NONE};
    m->draft = QN_TOKEN_NONE;
    qn__draw_reset(&m->draw);
}

bool qn__mirostat_seed(const void *state, uint32_t *out)
{
    *out = ((const qn_mirostat *)state)->draw.used_seed;
    return true;
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

qn_status qn__mirostat_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    qn_mirostat *m = state;
    (void)err;
    if (generated) {
        learn(&m->memory, m->tau, m->eta, token);
    }
    qn__draw_accept(&m->draw, generated);
    return QN_OK;
}

size_t qn__mirostat_room(const void *state, int32_t j, size_t n_drafts)
{
    (void)state;
    (void)n_drafts;
    return sizeof(qn_mirostat_params) + ((size_t)j + 1) * sizeof(uint64_t);
}

size_t qn__mirostat_params(void *state, int32_t j, void *out)
{
    qn_mirostat *m = state;
    qn_mirostat_params *p = out;
    *p = (qn_mirostat_params){
        .memory = m->memory, .tau = m->tau, .eta = m->eta, .token = m->draft, .n_fractions = j + 1};
    p->memory.token = QN_TOKEN_NONE; /* nothing is picked yet in this batch */
    qn__draw_write_ahead(&m->draw, j, p->fractions);
    m->draft = QN_TOKEN_NONE;
    return qn__mirostat_room(m, j, 0);
}

void qn__mirostat_begin(void *state)
{
    qn_mirostat *m = state;
    m->draft = QN_TOKEN_NONE;
    qn__draw_forget(&m->draw);
}

void qn__mirostat_draft(void *state, int32_t token)
{
    qn_mirostat *m = state;
    m->draft = m->draft == QN_TOKEN_NONE ? token : m->draft;
}

void qn__mirostat_take(void *state, const int32_t *carry)
{
    qn_mirostat *m = state;
    qn_mirostat_memory row;
    memcpy(&row, carry, sizeof row);
    m->memory.token = row.token;
    m->memory.surprise = row.surprise;
    qn__draw_take(&m->draw, row.drew != 0);
}

qn_mirostat_memory qn__mirostat_row_begin(const qn_mirostat_params *p, const int32_t *carry)
{
    qn_mirostat_memory memory;
    memcpy(&memory, carry, sizeof memory);
    learn(&memory, p->tau, p->eta, p->token);
    return memory;
}

void qn__mirostat_row_end(const qn_mirostat_params *p, qn_mirostat_memory *memory, qn_candidates *c,
                          int32_t *carry)
{
    memory->drew = qn__draw_pick_ahead(c, p->fractions, memory->n_drawn);
    memory->n_drawn += memory->drew;
    remember(memory, c);
    memcpy(carry, memory, sizeof *memory);
}
