/* mirostat_v2.c: mirostat 2: keeps the surprise of the text near a target by dropping every
 * candidate that is more surprising than mu, which follows what was picked. */
#include "sampler/mirostat.h"

#include <math.h>

/* The least logit that is not more surprising than mu; at most the best one. */
static float least_logit(float max, float log_sum, float mu)
{
    uint64_t inside = qn__candidate_key(max, 0), outside = qn__candidate_key(-INFINITY, 0);
    while (outside - inside > (uint64_t)1 << 32) { /* keys of id 0; they ascend as logits descend */
        uint64_t middle = (inside + (outside - inside) / 2) >> 32 << 32;
        if (qn__surprise(max, qn__key_logit(middle), log_sum) <= mu) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    return qn__key_logit(inside);
}

void qn__mirostat_v2_row(qn_candidates *c, float mu)
{
    float max = qn__row_max(c->logits, c->size);
    if (qn_candidates_weigh(c) == 0) {
        qn_candidates_sort(c);
        return;
    }
    float log_sum = qn__row_log_sum(c);
    if (!(qn__surprise(max, max, log_sum) <= mu)) {
        qn__top_k_row(c, 1);
    } else {
        qn__row_cut(c, least_logit(max, log_sum, mu));
        qn_candidates_sort(c);
    }
    qn__row_weigh(c->logits, c->size, max, c->weights);
    c->has_weights = true;
}

static const char *mirostat_v2_name(const void *state)
{
    (void)state;
    return "mirostat-v2";
}

static void mirostat_v2_apply(void *state, qn_candidates *c)
{
    qn_mirostat *m = state;
    qn__mirostat_v2_row(c, m->memory.mu);
    qn__mirostat_pick(m, c);
}

/* In a graph. */
static void mirostat_v2_stage(void *params, int32_t *carry, qn_candidates *c)
{
    qn_mirostat_memory memory = qn__mirostat_row_begin(params, carry);
    qn__mirostat_v2_row(c, memory.mu);
    qn__mirostat_row_end(params, &memory, c, carry);
}

const qn_sample_stage qn__stage_mirostat_v2 = {.name = "mirostat-v2", .carried = mirostat_v2_stage};

static const qn_sampler_graph mirostat_v2_graph = {.stage = QN_STAGE_MIROSTAT_V2,
                                                   .picks = true,
                                                   .draws = true,
                                                   .room = qn__mirostat_room,
                                                   .params = qn__mirostat_params,
                                                   .begin = qn__mirostat_begin,
                                                   .draft = qn__mirostat_draft,
                                                   .take = qn__mirostat_take};

static const qn_sampler_interface mirostat_v2_fns = {.name = mirostat_v2_name,
                                                     .accept = qn__mirostat_accept,
                                                     .apply = mirostat_v2_apply,
                                                     .reset = qn__mirostat_reset,
                                                     .clone = qn__plain_clone,
                                                     .copy_state = qn__plain_copy,
                                                     .free = qn__plain_free,
                                                     .seed = qn__mirostat_seed,
                                                     .graph = &mirostat_v2_graph};

qn_sampler *qn_sampler_mirostat_v2(uint32_t seed, float tau, float eta, qn_error *err)
{
    void *state;
    qn_sampler *s = qn__sampler_make(&mirostat_v2_fns, sizeof(qn_mirostat), &state, err);
    if (s && !qn__mirostat_init(state, seed, tau, eta, err)) {
        qn_sampler_free(s);
        s = NULL;
    }
    return s;
}
