/*
 * quantize_plan.h: what a quantization run will do, decided before anything is written: each
 * tensor's target format, in the order in which the tensors are written.
 */
#ifndef QUERN_MODEL_QUANTIZE_PLAN_H
#define QUERN_MODEL_QUANTIZE_PLAN_H

#include <quern/gguf.h>
#include <quern/quantize.h>

#include "model/importance.h"

typedef struct qn_quantize_item {
    const qn_gguf_tensor *tensor;
    qn_type target; /* the tensor's own type: copied */
    size_t target_bytes;
    const float *importance; /* ne[0] weights per matrix, or NULL */
    int64_t importance_sets; /* matrices with weights of their own: 1 or ne[2] */
    bool shape_fallback, lacks_importance;
} qn_quantize_item;

typedef struct qn_quantize_plan {
    qn_quantize_item *items;
    size_t count;
} qn_quantize_plan;

/*
 * Fills the plan from an open model. `importance` may be NULL. Everything that can be refused
 * without looking at the data is refused here. The items point into both; free with the function
 * below, also after a failure.
 */
qn_status qn__quantize_plan_make(qn_quantize_plan *plan, const qn_gguf *model,
                                 const qn_quantize_options *options,
                                 const qn_importance *importance, qn_error *err);
void qn__quantize_plan_free(qn_quantize_plan *plan);

#endif
