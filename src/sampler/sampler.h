/*
 * sampler.h: inside the sampler room.
 *
 * A row of logits passes through the members of a chain as one qn_candidates. Each sampler is one
 * file with one row function (below): that function is the sampler's meaning, and every other form
 * of it is tested against it. What decides is integer: weights, their sums, a 64-bit fraction.
 */
#ifndef QUERN_SAMPLER_SAMPLER_H
#define QUERN_SAMPLER_SAMPLER_H

#include <quern/sampler.h>

#include "base/rng.h"

struct qn_sampler {
    const qn_sampler_interface *fns;
    void *state;
    bool attached;  /* a chain that is attached to a sequence */
    char shown[32]; /* name with the mark of where it runs; empty: the plain name */
};

/* Order of candidates: descending logit, then ascending id, as one number that sorts ascending.
 * Equal for -0 and +0 but for the id. */
uint64_t qn__candidate_key(float logit, int32_t id);

/* Sorts keys ascending. `spare`: as many words. */
void qn__sort_keys(uint64_t *keys, size_t n, uint64_t *spare);

/* The set becomes these candidates, in this order; sorted is set. */
void qn__row_take_keys(qn_candidates *c, const uint64_t *keys, size_t n);

/* Largest logit; -inf for an empty set. */
float qn__row_max(const float *logits, size_t n);

/* weights[i] = round(2^31 e^(logits[i] - max)), 0 for a banned candidate; returns their sum. */
uint64_t qn__row_weigh(const float *logits, size_t n, float max, uint32_t *weights);

/* The same for one difference d = logit - max <= 0. */
uint32_t qn__exp_weight(float d);

/* High word of the 128-bit product: floor(fraction / 2^64 * total). */
uint64_t qn__mul_high(uint64_t fraction, uint64_t total);

/* p as a fraction of 2^64, p clamped to [0, 1). Exact: a float has 24 bits. */
uint64_t qn__fraction_of(float p);

/* Row functions. */
void qn__greedy_row(qn_candidates *c);
void qn__dist_row(qn_candidates *c, uint64_t fraction);
void qn__top_k_row(qn_candidates *c, size_t k);
void qn__top_p_row(qn_candidates *c, uint64_t p, size_t min_keep);
void qn__min_p_row(qn_candidates *c, float log_p, size_t min_keep);
void qn__scale_row(qn_candidates *c, float factor); /* temperature above 0: factor 1/t */
void qn__only_best_row(qn_candidates *c);           /* temperature 0 */

/*
 * Random numbers as a transaction. The coming numbers can be looked at, in any order and as often
 * as one likes; a generated token that is accepted consumes one, if one was looked at. So the n-th
 * accepted token gets the n-th number, whatever was computed and thrown away.
 */
typedef struct qn_draw {
    uint32_t seed, used_seed;
    bool drawn;      /* `value` holds the next number, the generator is past it */
    uint32_t n_used; /* of the coming numbers, how many were looked at */
    uint64_t value;
    qn_rng rng;
    qn_rng ahead; /* a copy that looks further; n_ahead numbers past rng */
    uint32_t n_ahead;
} qn_draw;
void qn__draw_init(qn_draw *draw, uint32_t seed);
void qn__draw_reset(qn_draw *draw);
/* The next number, a fraction of 2^64; the j-th from there. */
uint64_t qn__draw_fraction(qn_draw *draw);
uint64_t qn__draw_fraction_ahead(qn_draw *draw, uint32_t j);
/* As if none had been looked at. */
void qn__draw_forget(qn_draw *draw);
void qn__draw_accept(qn_draw *draw, bool generated);

/* Index of the best candidate by the order above; -1 where every one is banned. */
int64_t qn__row_best(const qn_candidates *c);

/* Makes a sampler with a zeroed state of `state_bytes`, which *state gets (NULL for 0 bytes). */
qn_sampler *qn__sampler_make(const qn_sampler_interface *fns, size_t state_bytes, void **state,
                             qn_error *err);

/* clone and free for a state that is one plain block; the size is the first member. */
typedef struct qn_plain_state {
    size_t bytes;
} qn_plain_state;
void *qn__plain_clone(const void *state);
void qn__plain_free(void *state);

/* A sampler that does nothing: what a maker returns when its settings turn it off. `name` is a
 * literal, as "?top-k". */
qn_sampler *qn__sampler_empty(const char *name, qn_error *err);

#endif
