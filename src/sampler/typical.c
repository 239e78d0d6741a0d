/*
 * typical.c: locally typical sampling (Meister et al. 2022): keeps candidates whose surprise is
 * near the expected one.
 *
 * The surprise of candidate i is d_i + ln S with d_i = max - logit and S the sum of e^-d; the
 * expected one is the mean of d by probability, plus the same ln S. So how far off a candidate is
 * needs no logarithm: |d_i - mean|.
 */
#include <math.h>

#include "base/error.h"
#include "base/fmath.h"
#include "sampler/graph.h"
#include "sampler/scan.h"

/* Smaller sets are sorted whole. */
#define SELECT_MIN 512
/* All that is nearer than this to the best has some weight. */
#define WEIGHED 21.0F

/*
 * Drops a tail that comes after candidates of weight `cut` and more. Where even the best one is not
 * farther off than the tail's first, everything before the tail is nearer than all of it: equally
 * far ones stand in the order of their logits.
 */
static void drop_tail(qn_candidates *c, float max, float mean, uint64_t cut, size_t min_keep)
{
    static const float distances[] = {0.5F, 2.0F, 6.0F};
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        float least = max - (mean + mean + distances[i]);
        if (!(max - least - mean >= mean && max - least < WEIGHED)) {
            return;
        }
        size_t count;
        uint64_t sum = qn__scan()->sum_from(c->logits, c->weights, c->size, least, &count);
        if (sum > cut && count >= min_keep) {
            qn__row_cut(c, least);
            return;
        }
    }
}

void qn__typical_row(qn_candidates *c, uint64_t p, size_t min_keep)
{
    float max = qn__row_max(c->logits, c->size);
    uint64_t total = qn_candidates_weigh(c);
    if (total == 0) {
        qn_candidates_sort(c);
        return;
    }
    float mean = qn__row_mean_distance(c, max);
    uint64_t cut = qn__mul_high(p, total), sum = 0;
    if (!c->sorted) {
        if (c->size >= SELECT_MIN) {
            drop_tail(c, max, mean, cut, min_keep);
        }
        qn_candidates_sort(c);
        qn__row_weigh(c->logits, c->size, max, c->weights);
        c->has_weights = true;
    }
    uint64_t *keys = c->work, *spare = c->work + c->n_max;
    for (size_t i = 0; i < c->size; i++) { /* those of no weight come last; ties keep their order */
        float off = c->weights[i] > 0 ? fabsf(max - c->logits[i] - mean) : INFINITY;
        keys[i] = (uint64_t)qn__float_bits(off) << 32 | i;
    }
    qn__sort_keys(keys, c->size, spare);
    size_t keep = 0;
    while (keep < c->size && (keep == 0 || sum <= cut || keep < min_keep)) {
        sum += c->weights[(uint32_t)keys[keep++]];
    }
    for (size_t i = 0; i < keep; i++) { /* logit and id of the chosen, before they are moved */
        size_t at = (uint32_t)keys[i];
        spare[i] = (uint64_t)qn__float_bits(c->logits[at]) << 32 | (uint32_t)c->ids[at];
    }
    for (size_t i = 0; i < keep; i++) {
        c->logits[i] = qn__bits_float((uint32_t)(spare[i] >> 32));
        c->ids[i] = (int32_t)(uint32_t)spare[i];
        c->weights[i] = qn__exp_weight(c->logits[i] - max);
    }
    c->size = keep;
    c->sorted = false;
}

typedef struct typical_state {
    qn_plain_state plain;
    uint64_t p;
    size_t min_keep;
} typical_state;

static const char *typical_name(const void *state)
{
    (void)state;
    return "typical";
}

static void typical_apply(void *state, qn_candidates *c)
{
    const typical_state *s = state;
    qn__typical_row(c, s->p, s->min_keep);
}

const qn_sample_stage qn__stage_typical = {.name = "typical", .row = typical_apply};

static const qn_sampler_graph typical_graph = {.stage = QN_STAGE_TYPICAL};

static const qn_sampler_interface typical_fns = {.name = typical_name,
                                                 .apply = typical_apply,
                                                 .clone = qn__plain_clone,
                                                 .copy_state = qn__plain_copy,
                                                 .free = qn__plain_free,
                                                 .graph = &typical_graph};

qn_sampler *qn_sampler_typical(float p, size_t min_keep, qn_error *err)
{
    if (isnan(p)) {
        qn__error(err, QN_ERR_ARGUMENT, "typical: p is not a number");
        return NULL;
    }
    if (p >= 1.0F) {
        return qn__sampler_empty("?typical", err);
    }
    void *state;
    qn_sampler *s = qn__sampler_make(&typical_fns, sizeof(typical_state), &state, err);
    if (s) {
        ((typical_state *)state)->p = qn__fraction_of(p);
        ((typical_state *)state)->min_keep = min_keep;
    }
    return s;
}
