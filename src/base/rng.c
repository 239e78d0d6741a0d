/* rng.c: MT19937. */
#define _GNU_SOURCE
#include "base/rng.h"

#include <sys/random.h>

#include "base/clock.h"

#define N 624
#define M 397

void qn__rng_seed(qn_rng *rng, uint32_t seed)
{
    rng->state[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t x = rng->state[i - 1];
        rng->state[i] = 1812433253U * (x ^ (x >> 30)) + i;
    }
    rng->index = N;
}

static void twist(qn_rng *rng)
{
    uint32_t *s = rng->state;
    for (uint32_t k = 0; k < N; k++) {
        uint32_t y = (s[k] & 0x80000000U) | (s[(k + 1) % N] & 0x7fffffffU);
        s[k] = s[(k + M) % N] ^ (y >> 1) ^ ((y & 1U) ? 0x9908b0dfU : 0U);
    }
    rng->index = 0;
}

uint32_t qn__rng_next(qn_rng *rng)
{
    if (rng->index >= N) {
        twist(rng);
    }
    uint32_t y = rng->state[rng->index++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

uint64_t qn__rng_fraction64(qn_rng *rng)
{
    uint64_t low = qn__rng_next(rng);
    uint64_t high = qn__rng_next(rng);
    return low | high << 32;
}

uint32_t qn__rng_entropy(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        seed = (uint32_t)(qn__clock_ns() * 0x9e3779b97f4a7c15U >> 32);
    }
    return seed;
}
