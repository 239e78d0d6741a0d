/*
 * rng.h: random numbers. Engine: MT19937 (Matsumoto and Nishimura 1998), so that a seed means here
 * what it means in the programs that people come from. Draws are what samplers commit; see
 * docs/determinism.md.
 */
#ifndef QUERN_BASE_RNG_H
#define QUERN_BASE_RNG_H

#include <stdint.h>

typedef struct qn_rng {
    uint32_t state[624];
    uint32_t index; /* next word of state to hand out; 624 = twist first */
} qn_rng;

void qn__rng_seed(qn_rng *rng, uint32_t seed);
uint32_t qn__rng_next(qn_rng *rng);

/* Two outputs as one 64-bit fraction of 2^64, the first one the low word. */
uint64_t qn__rng_fraction64(qn_rng *rng);

/* A seed from the operating system's entropy source. */
uint32_t qn__rng_entropy(void);

#endif
