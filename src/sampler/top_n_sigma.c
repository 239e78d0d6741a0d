/*
 * top_n_sigma.c: bans candidates whose logit is more than n standard deviations below the best
 * (Tang et al. 2024). The deviation comes from exact integer sums of distances and their squares.
 */
#include <math.h>

#include "base/error.h"
#include "sampler/graph.h"
#include "sampler/scan.h"

void qn__top_n_sigma_row(qn_candidates *c, float n)
{
    float max = qn__row_max(c->logits, c->size);
    if (max == -INFINITY) {
        return;
    }
    qn_scan_spread all; /* d^2 <= 2^44, for up to 2^20 candidates */
    qn__scan()->spread(c->logits, c->size, max, &all);
    if (all.count < 2) {
        return;
    }
    double mean = (double)all.sum / (double)all.count;
    double variance = (double)all.squares / (double)all.count - mean * mean;
    double sigma = variance > 0 ? sqrt(variance) / (double)QN_DISTANCE_UNIT : 0.0;
    float least = max - qn__finite((float)((double)n * sigma));
    for (size_t i = 0; i < c->size; i++) {
        c->logits[i] = c->logits[i] < least ? -INFINITY : c->logits[i];
    }
    c->sorted = c->has_weights = false;
}

typedef struct top_n_sigma_state {
    qn_plain_state plain;
    float n;
} top_n_sigma_state;

static const char *top_n_sigma_name(const void *state)
{
    (void)state;
    return "top-n-sigma";
}

static void top_n_sigma_apply(void *state, qn_candidates *c)
{
    qn__top_n_sigma_row(c, ((const top_n_sigma_state *)state)->n);
}

const qn_sample_stage qn__stage_top_n_sigma = {.name = "top-n-sigma", .row = top_n_sigma_apply};

static const qn_sampler_graph top_n_sigma_graph = {.stage = QN_STAGE_TOP_N_SIGMA};

static const qn_sampler_interface top_n_sigma_fns = {.name = top_n_sigma_name,
                                                     .apply = top_n_sigma_apply,
                                                     .clone = qn__plain_clone,
                                                     .copy_state = qn__plain_copy,
                                                     .free = qn__plain_free,
                                                     .graph = &top_n_sigma_graph};

qn_sampler *qn_sampler_top_n_sigma(float n, qn_error *err)
{
    if (isnan(n)) {
        qn__error(err, QN_ERR_ARGUMENT, "top-n-sigma: n is not a number");
        return NULL;
    }
    if (n <= 0.0F) {
        return qn__sampler_empty("?top-n-sigma", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&top_n_sigma_fns, sizeof(top_n_sigma_state), &state, err);
    if (s) {
        ((top_n_sigma_state *)state)->n = n;
    }
    return s;
}
