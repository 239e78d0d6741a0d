/*
 * run_model.h: one batch of one sequence through a model's graph without a context: F32 stores of
 * its own, blocks in an order that is not that of positions. For tests of the model room.
 */
#ifndef QUERN_TESTS_RUN_MODEL_H
#define QUERN_TESTS_RUN_MODEL_H

#include <quern/model.h>

#include "device/device.h"

typedef struct qn_test_batch {
    const int32_t *tokens;
    int32_t n_tokens, first_position;
    const int32_t *out_ids; /* NULL: all tokens are output rows */
    int32_t n_out;
    bool embeddings; /* rows after the final norm, not logits */
    int64_t n_ctx;
} qn_test_batch;

/* The output rows, one behind the other, *columns wide; free() them. Fails the running test where
 * something goes wrong. */
float *qn_test_run_model(const qn_model *model, qn_device *device, const qn_test_batch *batch,
                         int64_t *columns);

#endif
