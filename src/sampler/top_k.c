/* top_k.c: keeps the k best, in order. */
#include "base/error.h"
#include "sampler/graph.h"

void qn__top_k_row(qn_candidates *c, size_t k)
{
    k = k < c->size ? k : c->size;
    if (c->sorted) {
        c->size = k;
        return;
    }
    qn__row_best_keys(c, k);
    qn__row_take_keys(c, c->work, k);
}

typedef struct top_k_state {
    qn_plain_state plain;
    size_t k;
} top_k_state;

static const char *top_k_name(const void *state)
{
    (void)state;
    return "top-k";
}

static void top_k_apply(void *state, qn_candidates *c)
{
    qn__top_k_row(c, ((const top_k_state *)state)->k);
}

static size_t top_k_keeps(const void *state)
{
    return ((const top_k_state *)state)->k;
}

const qn_sample_stage qn__stage_top_k = {.name = "top-k", .row = top_k_apply, .keeps = top_k_keeps};

static size_t top_k_keep(const void *state, size_t n)
{
    size_t k = ((const top_k_state *)state)->k;
    return k < n ? k : n;
}

static const qn_sampler_graph top_k_graph = {.stage = QN_STAGE_TOP_K, .keep = top_k_keep};

static const qn_sampler_interface top_k_fns = {.name = top_k_name,
                                               .apply = top_k_apply,
                                               .clone = qn__plain_clone,
                                               .free = qn__plain_free,
                                               .graph = &top_k_graph};

qn_sampler *qn_sampler_top_k(int32_t k, qn_error *err)
{
    if (k <= 0) {
        return qn__sampler_empty("?top-k", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&top_k_fns, sizeof(top_k_state), &state, err);
    if (s) {
        ((top_k_state *)state)->k = (size_t)k;
    }
    return s;
}
