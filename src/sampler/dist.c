/*
 * dist.c: the seeded draw. The pick is the first candidate, in their order, whose running sum of
 * weights exceeds fraction * total.
 *
 * The fraction of a pick is drawn when it is first needed and kept until a generated token is
 * accepted: however often apply runs at one place, and whatever is thrown away, the n-th accepted
 * token is picked with the n-th number of the generator.
 */
#include "base/error.h"
#include "base/rng.h"
#include "sampler/sampler.h"

void qn__dist_row(qn_candidates *c, uint64_t fraction)
{
    c->selected = -1;
    uint64_t total = qn_candidates_weigh(c);
    if (total == 0) {
        return;
    }
    uint64_t target = qn__mul_high(fraction, total), sum = 0;
    for (size_t i = 0; i < c->size; i++) {
        sum += c->weights[i];
        if (sum > target) { /* reached before the end: target < total */
            c->selected = (int64_t)i;
            return;
        }
    }
}

typedef struct dist_state {
    qn_plain_state plain;
    uint32_t seed, used_seed;
    bool drawn;        /* `fraction` holds the next number, the generator is past it */
    bool used;         /* some apply picked with it since the last accept */
    uint64_t fraction; /* of 2^64 */
    qn_rng rng;
} dist_state;

static const char *dist_name(const void *state)
{
    (void)state;
    return "dist";
}

static void dist_apply(void *state, qn_candidates *c)
{
    dist_state *s = state;
    if (c->size == 0) {
        c->selected = -1;
        return;
    }
    if (!s->drawn) {
        s->fraction = qn__rng_fraction64(&s->rng);
        s->drawn = true;
    }
    s->used = true;
    qn__dist_row(c, s->fraction);
}

static qn_status dist_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)token;
    (void)err;
    dist_state *s = state;
    if (generated && s->used) {
        s->drawn = s->used = false;
    }
    return QN_OK;
}

static void dist_reset(void *state)
{
    dist_state *s = state;
    s->used_seed = s->seed;
    while (s->used_seed == QN_SEED_RANDOM) {
        s->used_seed = qn__rng_entropy();
    }
    qn__rng_seed(&s->rng, s->used_seed);
    s->drawn = s->used = false;
    s->fraction = 0;
}

static qn_status dist_copy_state(void *to, const void *from, qn_error *err)
{
    (void)err;
    *(dist_state *)to = *(const dist_state *)from;
    return QN_OK;
}

static bool dist_seed(const void *state, uint32_t *out)
{
    *out = ((const dist_state *)state)->used_seed;
    return true;
}

static const qn_sampler_interface dist_fns = {.name = dist_name,
                                              .accept = dist_accept,
                                              .apply = dist_apply,
                                              .reset = dist_reset,
                                              .clone = qn__plain_clone,
                                              .copy_state = dist_copy_state,
                                              .free = qn__plain_free,
                                              .seed = dist_seed};

qn_sampler *qn_sampler_dist(uint32_t seed, qn_error *err)
{
    void *state;
    qn_sampler *s = qn__sampler_make(&dist_fns, sizeof(dist_state), &state, err);
    if (s) {
        ((dist_state *)state)->seed = seed;
        dist_reset(state);
    }
    return s;
}
