/*
 * top_k.c: keeps the k best, in order.
 *
 * From a large set they are selected without sorting it: the set is cut into blocks, and the k-th
 * best of the blocks' maxima is a bound that at least k candidates reach. The few that reach it are
 * sorted.
 */
#include <math.h>

#include "base/error.h"
#include "sampler/graph.h"

/* Blocks for each wanted candidate: more make the bound tighter and the maxima more. */
#define BLOCKS_PER_K 4
/* Selection pays when blocks have at least this many candidates. */
#define BLOCK_MIN 16

/* A logit that at least k candidates reach. k * BLOCKS_PER_K blocks of `block` candidates or less
 * (the last one is cut short). */
static float lower_bound(qn_candidates *c, size_t k, size_t block)
{
    uint64_t *keys = c->work;
    size_t n_blocks = 0;
    for (size_t first = 0; first < c->size; first += block) {
        size_t n = c->size - first < block ? c->size - first : block;
        float max = qn__row_max(c->logits + first, n);
        keys[n_blocks] = qn__candidate_key(max, (int32_t)n_blocks);
        n_blocks++;
    }
    qn__sort_keys(keys, n_blocks, keys + c->n_max);
    size_t at = (size_t)(uint32_t)keys[k - 1] * block;
    return qn__row_max(c->logits + at, c->size - at < block ? c->size - at : block);
}

void qn__top_k_row(qn_candidates *c, size_t k)
{
    k = k < c->size ? k : c->size;
    if (c->sorted) {
        c->size = k;
        return;
    }
    size_t block = k ? c->size / (k * BLOCKS_PER_K) : 0;
    float bound = block >= BLOCK_MIN ? lower_bound(c, k, block) : -INFINITY;
    uint64_t *keys = c->work;
    size_t n = 0;
    for (size_t i = 0; i < c->size; i++) {
        if (c->logits[i] >= bound) {
            keys[n++] = qn__candidate_key(c->logits[i], c->ids[i]);
        }
    }
    qn__sort_keys(keys, n, keys + c->n_max);
    qn__row_take_keys(c, keys, k);
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

const qn_sample_stage qn__stage_top_k = {.name = "top-k", .row = top_k_apply};

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
