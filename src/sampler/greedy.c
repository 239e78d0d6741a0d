/* greedy.c: the largest logit. */
#include <math.h>

#include "sampler/graph.h"
#include "sampler/scan.h"

/* Candidates that are asked at once whether one of them is the best. */
#define STRETCH 2048

int64_t qn__row_best(const qn_candidates *c)
{
    float max = qn__row_max(c->logits, c->size);
    if (max == -INFINITY) {
        return -1;
    }
    int64_t best = -1;
    for (size_t first = 0; first < c->size; first += STRETCH) {
        size_t n = c->size - first < STRETCH ? c->size - first : STRETCH;
        size_t equal = qn__scan()->count(c->logits + first, n, max);
        for (size_t i = first; equal > 0; i++) {
            if (c->logits[i] == max) {
                best = best < 0 || c->ids[i] < c->ids[best] ? (int64_t)i : best;
                equal--;
            }
        }
    }
    return best;
}

void qn__greedy_row(qn_candidates *c)
{
    c->selected = qn__row_best(c);
}

static const char *greedy_name(const void *state)
{
    (void)state;
    return "greedy";
}

static void greedy_apply(void *state, qn_candidates *c)
{
    (void)state;
    qn__greedy_row(c);
}

const qn_sample_stage qn__stage_greedy = {.name = "greedy", .row = greedy_apply};

static const qn_sampler_graph greedy_graph = {.stage = QN_STAGE_GREEDY, .picks = true};

static const qn_sampler_interface greedy_fns = {
    .name = greedy_name, .apply = greedy_apply, .graph = &greedy_graph};

qn_sampler *qn_sampler_greedy(qn_error *err)
{
    return qn_sampler_make(&greedy_fns, NULL, err);
}
