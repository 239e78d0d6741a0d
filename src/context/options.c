/* options.c: what a context may be made with. */
#include "base/error.h"
#include "context/context.h"

qn_context_options qn_context_defaults(void)
{
    return (qn_context_options){.n_ctx = 512,
                                .n_batch = 2048,
                                .n_ubatch = 512,
                                .n_seq_max = 1,
                                .n_outputs_max_per_seq = 1,
                                .type_k = QN_TYPE_F16,
                                .type_v = QN_TYPE_F16,
                                .window_slack = 64};
}

static qn_status check_range(const char *name, int32_t value, int32_t low, int32_t high,
                             qn_error *err)
{
    if (value < low || value > high) {
        return qn__error(err, QN_ERR_ARGUMENT, "%s is %d, must be %d to %d", name, value, low,
                         high);
    }
    return QN_OK;
}

static bool is_kv_type(qn_type type)
{
    return type == QN_TYPE_F32 || type == QN_TYPE_F16 || type == QN_TYPE_BF16 ||
           type == QN_TYPE_Q8_0;
}

static qn_status check_type(const char *name, qn_type type, qn_error *err)
{
    if (!is_kv_type(type)) {
        const qn_type_info *info = qn_type_get_info((int64_t)type);
        return qn__error(err, QN_ERR_ARGUMENT, "%s is %s, must be f32, f16, bf16 or q8_0", name,
                         info ? info->name : "no type");
    }
    return QN_OK;
}

static void fill_in(const qn_model *model, qn_context_options *o)
{
    int32_t n_train = qn_model_n_ctx_train(model);
    int32_t n_ctx = o->n_ctx ? o->n_ctx : (n_train > 0 ? n_train : 512);
    n_ctx = n_ctx < QN_CONTEXT_MAX ? n_ctx : QN_CONTEXT_MAX;
    o->n_ctx = (n_ctx + QN_CONTEXT_ROUND - 1) / QN_CONTEXT_ROUND * QN_CONTEXT_ROUND;
    o->n_batch = o->n_batch ? o->n_batch : o->n_ubatch;
    o->n_batch = o->n_batch < o->n_ctx ? o->n_batch : o->n_ctx;
    o->n_ubatch = o->n_ubatch && o->n_ubatch < o->n_batch ? o->n_ubatch : o->n_batch;
    if (o->n_outputs_max == 0 || o->n_outputs_max > o->n_batch) {
        o->n_outputs_max = o->n_batch;
    }
    if (o->n_outputs_max_per_seq == 0 || o->n_outputs_max_per_seq > o->n_outputs_max) {
        o->n_outputs_max_per_seq = o->n_outputs_max;
    }
}

qn_status qn__context_check_options(const qn_model *model, qn_context_options *o, qn_error *err)
{
    const struct {
        const char *name;
        int32_t value, low, high;
    } ranges[] = {
        {"n_ctx", o->n_ctx, 0, QN_CONTEXT_MAX},
        {"n_batch", o->n_batch, o->n_ubatch > 0 ? 0 : 1, INT32_MAX},
        {"n_ubatch", o->n_ubatch, 0, INT32_MAX},
        {"n_outputs_max", o->n_outputs_max, 0, INT32_MAX},
        {"n_outputs_max_per_seq", o->n_outputs_max_per_seq, 0, INT32_MAX},
        {"n_seq_max", o->n_seq_max, 1, QN_MAX_SEQUENCES},
        {"n_threads", o->n_threads, 0, QN_MAX_THREADS},
        {"n_threads_batch", o->n_threads_batch, 0, QN_MAX_THREADS},
        {"window_slack", o->window_slack, 0, QN_CONTEXT_MAX},
    };
    qn_status status = QN_OK;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && status == QN_OK; i++) {
        status = check_range(ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high, err);
    }
    if (status == QN_OK) {
        status = check_type("type_k", o->type_k, err);
    }
    if (status == QN_OK) {
        status = check_type("type_v", o->type_v, err);
    }
    if (status == QN_OK && qn_model_is_vocab_only(model)) {
        status = qn__error(err, QN_ERR_ARGUMENT, "the model was loaded without weights");
    }
    if (status == QN_OK && qn__model_kv_layout(model)->n_layers == 0) {
        status = qn__error(err, QN_ERR_UNSUPPORTED,
                           "architecture %s has no keys and values to remember: this build cannot "
                           "run it",
                           qn_model_architecture(model));
    }
    if (status == QN_OK) {
        fill_in(model, o);
    }
    return status;
}
