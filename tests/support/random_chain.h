/* random_chain.h: chains of samplers with random settings, the same for the same numbers. */
#ifndef QUERN_TESTS_RANDOM_CHAIN_H
#define QUERN_TESTS_RANDOM_CHAIN_H

#include "support/support.h"

#include <quern/sampler.h>

/* Those from QN_TEST_PICKING on pick, those from QN_TEST_CARRYING on learn from it. */
#define QN_TEST_N_SAMPLERS 18
#define QN_TEST_PICKING    13
#define QN_TEST_CARRYING   15

/* One of the samplers with a form in graphs, by number, with random settings. */
qn_sampler *qn_test_random_sampler(uint32_t which, qn_test_random *r);

/* Up to six of them in any order; most often, but not always, one that picks comes last. */
qn_sampler *qn_test_random_chain(qn_test_random *r);

/* A chain of one sampler; it takes it. */
qn_sampler *qn_test_chain_of(qn_sampler *member);

/* The small vocabulary of samplers that need one; the program's, not to be freed. */
const qn_vocab *qn_test_chain_vocab(void);

/* `n` tokens become part of the text of a chain, as a prompt or generated: of few ids, so that they
 * repeat, below `n_vocab`. */
void qn_test_random_text(qn_sampler *chain, int32_t n, int32_t n_vocab, qn_test_random *r);

/* A sampler of the test's own, without a form in graphs: bans every id that `divisor` divides. */
qn_sampler *qn_test_own_sampler(int32_t divisor);

#endif
