/* context.c: making and freeing a context, and its small services. */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* FNV-1a, a byte at a time: for a handful of numbers. */
static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* Stands for what a state depends on besides the layout of the memory: not every weight is looked
 * at, but models that differ in kind or size, or in how keys are rotated, differ. */
static uint64_t model_hash(const qn_context *ctx)
{
    const qn_hparams *h = ctx->hparams;
    const char *arch = qn_model_architecture(ctx->model);
    int64_t numbers[] = {h->n_vocab, h->n_embd, h->n_layer, (int64_t)qn_model_n_params(ctx->model)};
    uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), arch, strlen(arch));
    hash = hash_bytes(hash, numbers, sizeof numbers);
    for (int32_t i = 0; i < h->n_rope; i++) {
        const qn_rope_params *p = &h->rope[i].params;
        float angles[] = {p->freq_base, p->freq_scale, p->ext_factor, (float)p->n_rot};
        hash = hash_bytes(hash, angles, sizeof angles);
    }
    return hash;
}

static qn_status open_device(qn_context *ctx, qn_error *err)
{
    qn_context_options *o = &ctx->options;
    if (!o->device) {
        qn_device_info info;
        qn_status status = qn_device_get_info(0, &info, err);
        if (status != QN_OK) {
            return status;
        }
        qn_device_options d = qn_device_defaults();
        d.isa = o->isa;
        d.log = o->log;
        int32_t most = o->n_threads > o->n_threads_batch ? o->n_threads : o->n_threads_batch;
        d.threads.n_threads = most > info.n_cores ? most : info.n_cores;
        status = qn_device_open(0, &d, &ctx->own_device, err);
        if (status != QN_OK) {
            return status;
        }
        o->device = ctx->own_device;
        o->n_threads = o->n_threads ? o->n_threads : info.n_cores;
    }
    o->isa = qn_device_isa(o->device);
    int32_t limit = qn_device_n_threads(o->device);
    o->n_threads = o->n_threads && o->n_threads < limit ? o->n_threads : limit;
    o->n_threads_batch = o->n_threads_batch ? o->n_threads_batch : o->n_threads;
    o->n_threads_batch = o->n_threads_batch < limit ? o->n_threads_batch : limit;
    return QN_OK;
}

static qn_status make_memory(qn_context *ctx, qn_error *err)
{
    const qn_context_options *o = &ctx->options;
    qn_kv_rope ropes[QN_MAX_ROPE_KINDS] = {0};
    for (int32_t i = 0; i < ctx->hparams->n_rope; i++) {
        const qn_weight *factors = qn__model_rope_factors(ctx->model, i, o->n_ctx);
        ropes[i].params = ctx->hparams->rope[i].params;
        ropes[i].factors = factors ? factors->data : NULL;
    }
    qn_kv_config config = {
        .layout = ctx->layout,
        .ropes = ropes,
        .n_ropes = ctx->hparams->n_rope,
        .n_ctx = o->n_ctx,
        .n_seq_max = o->n_seq_max,
        .n_ubatch = o->n_ubatch,
        .window_slack = o->window_slack,
        .full_windows = o->full_windows,
        .type_k = o->type_k,
        .type_v = o->type_v,
        .device = o->device,
        .model_hash = model_hash(ctx),
    };
    return qn__kv_make(&ctx->kv, &config, err);
}

static qn_status make_arrays(qn_context *ctx, qn_error *err)
{
    const qn_context_options *o = &ctx->options;
    size_t n = (size_t)o->n_batch, row, bytes;
    ctx->stores = qn__calloc(2 * (size_t)ctx->layout->n_layers, sizeof(qn_node *));
    ctx->tokens = qn__calloc(n, sizeof *ctx->tokens);
    ctx->row_of = qn__calloc(n, sizeof *ctx->row_of);
    ctx->out_ids = qn__calloc((size_t)o->n_ubatch, sizeof *ctx->out_ids);
    if (!ctx->stores || !ctx->tokens || !ctx->row_of || !ctx->out_ids) {
        return qn__error_memory(err, "batches");
    }
    if (!qn__mul_size((size_t)ctx->hparams->n_vocab, sizeof(float), &row) ||
        !qn__mul_size(row, (size_t)o->n_outputs_max, &bytes) ||
        !(ctx->logits = qn__block_alloc(bytes))) {
        return qn__error(err, QN_ERR_MEMORY, "out of memory for %d output rows of %d logits",
                         o->n_outputs_max, ctx->hparams->n_vocab);
    }
    ctx->candidates = qn_candidates_make((size_t)ctx->hparams->n_vocab, err);
    if (!ctx->candidates) {
        return QN_ERR_MEMORY;
    }
    qn_status status = qn__sampling_make(ctx, err);
    if (status != QN_OK) {
        return status;
    }
    return qn__outputs_reserve(ctx, err);
}

/* Makes the plans of the largest micro-batch and of one token: later plans fit into their memory,
 * and what the device cannot compute is known now. */
static qn_status reserve_plans(qn_context *ctx, qn_error *err)
{
    const qn_context_options *o = &ctx->options;
    ctx->memory = qn__plan_memory_make(o->device, err);
    if (!ctx->memory) {
        return QN_ERR_MEMORY;
    }
    const int32_t sizes[2] = {o->n_ubatch, 1};
    qn_status status = QN_OK;
    for (int i = 0; i < 2 && status == QN_OK; i++) {
        qn_shape shape = {.n_tokens = sizes[i], .want_embeddings = o->embeddings};
        shape.n_outputs = sizes[i] < o->n_outputs_max ? sizes[i] : o->n_outputs_max;
        for (int32_t g = 0; g < ctx->layout->n_groups; g++) {
            shape.capacity[g] = qn__compute_capacity(o->n_ctx / QN_KV_BLOCK);
        }
        qn_compute *compute;
        status = qn__compute_get(ctx, &shape, &compute, err);
    }
    return status;
}

qn_status qn_context_make(const qn_model *model, const qn_context_options *options,
                          qn_context **out, qn_error *err)
{
    *out = NULL;
    qn_context *ctx = qn__calloc(1, sizeof *ctx);
    if (!ctx) {
        return qn__error_memory(err, "context");
    }
    ctx->model = model;
    ctx->hparams = qn__model_hparams(model);
    ctx->layout = qn__model_kv_layout(model);
    ctx->options = options ? *options : qn_context_defaults();
    qn_status status = qn__context_check_options(model, &ctx->options, err);
    if (status == QN_OK) {
        status = open_device(ctx, err);
    }
    if (status == QN_OK) {
        status = make_memory(ctx, err);
    }
    if (status == QN_OK) {
        status = make_arrays(ctx, err);
    }
    if (status == QN_OK) {
        status = reserve_plans(ctx, err);
    }
    if (status != QN_OK) {
        qn_context_free(ctx);
        return status;
    }
    qn_context_reset_counters(ctx);
    if (ctx->options.n_ctx > ctx->hparams->n_ctx_train && ctx->hparams->n_ctx_train > 0) {
        qn__log_line(&ctx->options.log, QN_LOG_WARN,
                     "the context has %d positions, the model was trained for %d",
                     ctx->options.n_ctx, ctx->hparams->n_ctx_train);
    }
    *out = ctx;
    return QN_OK;
}

void qn_context_free(qn_context *ctx)
{
    if (!ctx) {
        return;
    }
    const qn_context_options *o = &ctx->options;
    size_t rows = (size_t)o->n_outputs_max * sizeof(float);
    qn__sampling_free(ctx);
    qn__compute_free_all(ctx);
    qn__plan_memory_free(ctx->memory);
    qn__kv_free(ctx->kv);
    qn_device_free(ctx->own_device);
    qn_candidates_free(ctx->candidates);
    if (ctx->logits) {
        qn__block_free(ctx->logits, rows * (size_t)ctx->hparams->n_vocab);
    }
    if (ctx->embeddings) {
        qn__block_free(ctx->embeddings, rows * (size_t)ctx->hparams->n_embd_out);
    }
    free(ctx->out_ids);
    free(ctx->row_of);
    free(ctx->tokens);
    free(ctx->stores);
    free(ctx);
}

qn_context_options qn_context_get_options(const qn_context *ctx)
{
    return ctx->options;
}

const qn_model *qn_context_model(const qn_context *ctx)
{
    return ctx->model;
}

qn_status qn_context_set_n_threads(qn_context *ctx, int32_t n_threads, int32_t n_threads_batch,
                                   qn_error *err)
{
    if (n_threads < 1 || n_threads > QN_MAX_THREADS || n_threads_batch < 1 ||
        n_threads_batch > QN_MAX_THREADS) {
        return qn__error(err, QN_ERR_ARGUMENT, "numbers of threads are %d and %d, must be 1 to %d",
                         n_threads, n_threads_batch, QN_MAX_THREADS);
    }
    int32_t limit = qn_device_n_threads(ctx->options.device);
    ctx->options.n_threads = n_threads < limit ? n_threads : limit;
    ctx->options.n_threads_batch = n_threads_batch < limit ? n_threads_batch : limit;
    return QN_OK;
}

qn_counters qn_context_counters(const qn_context *ctx)
{
    return ctx->counters;
}

void qn_context_reset_counters(qn_context *ctx)
{
    ctx->counters = (qn_counters){0};
}

qn_memory_report qn_context_memory(const qn_context *ctx)
{
    const qn_context_options *o = &ctx->options;
    size_t rows = (size_t)o->n_outputs_max * sizeof(float);
    qn_memory_report report = {
        .store_bytes = qn__kv_bytes(ctx->kv),
        .compute_bytes = qn__plan_memory_bytes(ctx->memory),
        .output_bytes = rows * (size_t)ctx->hparams->n_vocab,
        .n_positions = (int32_t)qn__kv_n_cells(ctx->kv),
        .n_positions_used = (int32_t)qn__kv_n_used(ctx->kv),
    };
    if (ctx->embeddings) {
        report.output_bytes += rows * (size_t)ctx->hparams->n_embd_out;
    }
    return report;
}
