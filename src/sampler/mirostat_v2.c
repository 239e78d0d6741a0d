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

typedef struct mirostat_v2_state {
    qn_plain_state plain;
    qn_mirostat m;
} mirostat_v2_state;

static const char *mirostat_v2_name(const void *state)
{
    (void)state;
    return "mirostat-v2";
}

static void mirostat_v2_apply(void *state, qn_candidates *c)
{
    mirostat_v2_state *s = state;
    qn__mirostat_v2_row(c, s->m.memory.mu);
    qn__mirostat_pick(&s->m, c);
}

static qn_status mirostat_v2_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)err;
    qn__mirostat_accept(&((mirostat_v2_state *)state)->m, token, generated);
    return QN_OK;
}

static void mirostat_v2_reset(void *state)
{
    qn__mirostat_reset(&((mirostat_v2_state *)state)->m);
}

static bool mirostat_v2_seed(const void *state, uint32_t *out)
{
    *out = ((const mirostat_v2_state *)state)->m.draw.used_seed;
    return true;
}

/* In a graph. */
static void mirostat_v2_stage(void *params, int32_t *carry, qn_candidates *c)
{
    qn_mirostat_memory memory;
    qn__mirostat_row_begin(params, carry, &memory);
    qn__mirostat_v2_row(c, memory.mu);
    qn__mirostat_row_end(params, &memory, c, carry);
}

const qn_sample_stage qn__stage_mirostat_v2 = {.name = "mirostat-v2", .carried = mirostat_v2_stage};

static size_t mirostat_v2_room(const void *state, int32_t j, size_t n_drafts)
{
    (void)state;
    (void)n_drafts;
    return qn__mirostat_room(j);
}

static size_t mirostat_v2_params(void *state, int32_t j, void *out)
{
    return qn__mirostat_params_write(&((mirostat_v2_state *)state)->m, j, out);
}

static void mirostat_v2_begin(void *state)
{
    qn__mirostat_begin(&((mirostat_v2_state *)state)->m);
}

static void mirostat_v2_draft(void *state, int32_t token)
{
    qn__mirostat_draft(&((mirostat_v2_state *)state)->m, token);
}

static void mirostat_v2_take(void *state, const int32_t *carry)
{
    qn__mirostat_take(&((mirostat_v2_state *)state)->m, carry);
}

static const qn_sampler_graph mirostat_v2_graph = {.stage = QN_STAGE_MIROSTAT_V2,
                                                   .picks = true,
                                                   .draws = true,
                                                   .room = mirostat_v2_room,
                                                   .params = mirostat_v2_params,
                                                   .begin = mirostat_v2_begin,
                                                   .draft = mirostat_v2_draft,
                                                   .take = mirostat_v2_take};

static const qn_sampler_interface mirostat_v2_fns = {.name = mirostat_v2_name,
                                                     .accept = mirostat_v2_accept,
                                                     .apply = mirostat_v2_apply,
                                                     .reset = mirostat_v2_reset,
                                                     .clone = qn__plain_clone,
                                                     .copy_state = qn__plain_copy,
                                                     .free = qn__plain_free,
                                                     .seed = mirostat_v2_seed,
                                                     .graph = &mirostat_v2_graph};

qn_sampler *qn_sampler_mirostat_v2(uint32_t seed, float tau, float eta, qn_error *err)
{
    void *state;
    qn_sampler *s = qn__sampler_make(&mirostat_v2_fns, sizeof(mirostat_v2_state), &state, err);
    if (s && !qn__mirostat_init(&((mirostat_v2_state *)state)->m, seed, tau, eta, err)) {
        qn_sampler_free(s);
        s = NULL;
    }
    return s;
}
