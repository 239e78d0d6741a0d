/* random_chain.h: chains of samplers with random settings, the same for the same numbers. */
#ifndef QUERN_TESTS_RANDOM_CHAIN_H
#define QUERN_TESTS_RANDOM_CHAIN_H

#include "support/support.h"

#include <quern/sampler.h>

#define QN_TEST_N_SAMPLERS 11

/* One of the samplers with a form in graphs, by number, with random settings. */
qn_sampler *qn_test_random_sampler(uint32_t which, qn_test_random *r);

/* Up to six of them in any order; most often, but not always, one that picks comes last. */
qn_sampler *qn_test_random_chain(qn_test_random *r);

/* A chain of one sampler; it takes it. */
qn_sampler *qn_test_chain_of(qn_sampler *member);

/* A sampler of the test's own, without a form in graphs: bans every id that `divisor` divides. */
qn_sampler *qn_test_own_sampler(int32_t divisor);

#endif
