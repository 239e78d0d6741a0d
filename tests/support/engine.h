/* engine.h: small models and contexts for tests that compute. All fail the running test where they
 * cannot do their work. */
#ifndef QUERN_TESTS_ENGINE_H
#define QUERN_TESTS_ENGINE_H

#include "support/support.h"
#include "support/tiny_model.h"

#include <quern/context.h>
#include <quern/model.h>

/* A tiny model, loaded from a file that is gone again. */
qn_model *qn_test_model(qn_test_tiny_kind kind, qn_type type, int n_layer);

/* A small context: 512 positions, F16 store, 4 sequences, 1 thread, all of a batch at once. */
qn_context_options qn_test_context_options(void);
qn_context *qn_test_context(const qn_model *model, const qn_context_options *options);

/* `n` tokens of a fixed text number `which`. */
void qn_test_tokens(uint32_t which, int32_t *tokens, int32_t n);

/* Decodes tokens[0, n) as positions from `pos` on of sequence `seq`, in batches of at most `cut`
 * (0: one batch), with a row for every token; copies the rows to rows [n, n_vocab]. */
void qn_test_compute(qn_context *ctx, int32_t seq, const int32_t *tokens, int32_t n, int32_t pos,
                     int32_t cut, float *rows);

/* Whether the two blocks of rows have the same bits; names the first row that differs. */
void qn_test_same_rows(const float *a, const float *b, int32_t n_rows, const char *what);

#endif
