/*
 * top_p.c: keeps the fewest best candidates whose weights reach the share p of the total (nucleus
 * sampling, Holtzman et al. 2020).
 *
 * A large set is not sorted. First the tail goes that is too unlikely to matter. If many are left,
 * candidates are counted by their distance from the best in bins of 1/64, and only those up to the
 * bin in which the cut lies are sorted.
 */
#include <math.h>

#include "base/error.h"
#include "sampler/graph.h"
#include "sampler/scan.h"

#define BINS_PER_UNIT 64.0F
#define N_BINS        2048 /* the last one takes all that is further than 32 away: weight 0 */
/* Smaller sets are sorted whole. */
#define SELECT_MIN 512

static size_t bin_of(float distance)
{
    float scaled = distance * BINS_PER_UNIT;
    return scaled < N_BINS - 1 ? (size_t)scaled : N_BINS - 1;
}

/* Last bin that must be looked at to keep `min_keep` candidates and a weight of `cut`. */
static size_t last_bin(const qn_candidates *c, float max, uint64_t cut, size_t min_keep)
{
    uint64_t sums[N_BINS] = {0};
    uint32_t counts[N_BINS] = {0};
    for (size_t i = 0; i < c->size; i++) {
        size_t bin = bin_of(max - c->logits[i]);
        sums[bin] += c->weights[i];
        counts[bin]++;
    }
    uint64_t sum = 0;
    size_t count = 0, bin = 0;
    for (; bin + 1 < N_BINS; bin++) {
        sum += sums[bin];
        count += counts[bin];
        if (sum >= cut && count >= min_keep) {
            break;
        }
    }
    return bin;
}

/* Drops a tail that is not needed to keep `min_keep` candidates and a weight of `cut`. */
static void drop_tail(qn_candidates *c, float max, uint64_t cut, size_t min_keep)
{
    static const float distances[] = {4.0F, 9.0F, 16.0F};
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        float least = max - distances[i];
        size_t count;
        uint64_t sum = qn__scan()->sum_from(c->logits, c->weights, c->size, least, &count);
        if (sum >= cut && count >= min_keep) {
            qn__row_cut(c, least);
            return;
        }
    }
}

void qn__top_p_row(qn_candidates *c, uint64_t p, size_t min_keep)
{
    min_keep = min_keep > 0 ? min_keep : 1;
    if (!c->sorted && c->size < SELECT_MIN) {
        qn_candidates_sort(c);
    }
    uint64_t total = qn_candidates_weigh(c);
    if (total == 0) {
        qn__top_k_row(c, min_keep); /* all banned */
        return;
    }
    uint64_t cut = qn__mul_high(p, total);
    if (!c->sorted) {
        float max = qn__row_max(c->logits, c->size);
        drop_tail(c, max, cut, min_keep);
        size_t last = c->size < SELECT_MIN ? N_BINS - 1 : last_bin(c, max, cut, min_keep);
        uint64_t *keys = c->work;
        size_t n = 0;
        for (size_t i = 0; i < c->size; i++) {
            if (bin_of(max - c->logits[i]) <= last) {
                keys[n++] = qn__candidate_key(c->logits[i], c->ids[i]);
            }
        }
        qn__sort_keys(keys, n, keys + c->n_max);
        qn__row_take_keys(c, keys, n);
        qn__row_weigh(c->logits, n, max, c->weights);
        c->has_weights = true;
    }
    uint64_t before = 0;
    size_t keep = 0;
    while (keep < c->size && (before < cut || keep < min_keep)) {
        before += c->weights[keep++];
    }
    c->size = keep;
}

typedef struct top_p_state {
    qn_plain_state plain;
    uint64_t p;
    size_t min_keep;
} top_p_state;

static const char *top_p_name(const void *state)
{
    (void)state;
    return "top-p";
}

static void top_p_apply(void *state, qn_candidates *c)
{
    const top_p_state *s = state;
    qn__top_p_row(c, s->p, s->min_keep);
}

const qn_sample_stage qn__stage_top_p = {.name = "top-p", .row = top_p_apply};

static const qn_sampler_graph top_p_graph = {.stage = QN_STAGE_TOP_P};

static const qn_sampler_interface top_p_fns = {.name = top_p_name,
                                               .apply = top_p_apply,
                                               .clone = qn__plain_clone,
                                               .free = qn__plain_free,
                                               .graph = &top_p_graph};

qn_sampler *qn_sampler_top_p(float p, size_t min_keep, qn_error *err)
{
    if (isnan(p)) {
        qn__error(err, QN_ERR_ARGUMENT, "top-p: p is not a number");
        return NULL;
    }
    if (p >= 1.0F) {
        return qn__sampler_empty("?top-p", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&top_p_fns, sizeof(top_p_state), &state, err);
    if (s) {
        ((top_p_state *)state)->p = qn__fraction_of(p);
        ((top_p_state *)state)->min_keep = min_keep;
    }
    return s;
}
