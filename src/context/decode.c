/* decode.c: a batch from check to rows. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "context/context.h"

/* Fills the inputs of a micro-batch. embeddings: all rows of the batch, or NULL. */
static void fill_inputs(const qn_context *ctx, const qn_kv_ubatch *ub, const qn_compute *c,
                        const float *embeddings)
{
    const qn_kv_token *tokens = ctx->tokens + ub->first;
    const qn_build_inputs *in = &c->in;
    size_t n = (size_t)ub->n_tokens;
    int32_t *positions = in->positions->data;
    int32_t sections = qn__model_n_positions(ctx->model);
    for (size_t i = 0; i < n; i++) {
        positions[i] = tokens[i].pos;
        for (int32_t s = 1; s < sections; s++) { /* text: time, height, width alike; then 0 */
            positions[(size_t)s * n + i] = s < 3 ? tokens[i].pos : 0;
        }
        if (in->tokens) {
            ((int32_t *)in->tokens->data)[i] = tokens[i].token;
        }
        if (in->q_scale) {
            ((float *)in->q_scale->data)[i] = qn__model_q_scale(ctx->model, tokens[i].pos);
        }
    }
    if (in->embeddings) {
        size_t width = (size_t)ctx->hparams->n_embd;
        memcpy(in->embeddings->data, embeddings + (size_t)ub->first * width,
               n * width * sizeof(float));
    }
    if (in->out_ids) {
        memcpy(in->out_ids->data, ctx->out_ids, (size_t)c->shape.n_outputs * sizeof(int32_t));
    }
    for (int32_t g = 0; g < ctx->layout->n_groups; g++) {
        const qn_build_group *group = &in->groups[g];
        qn__kv_ubatch_fill(ctx->kv, g, ub->n_tokens, group->slots->data, c->shape.capacity[g],
                           group->tables->data, group->masks->data, group->rows->data);
    }
}

/* Lists the tokens of a micro-batch that have rows; returns how many, and the first one's row. */
static int32_t list_outputs(qn_context *ctx, const qn_kv_ubatch *ub, int32_t *first_row)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ub->n_tokens; i++) {
        int32_t row = ctx->row_of[ub->first + i];
        if (row >= 0) {
            *first_row = n == 0 ? row : *first_row;
            ctx->out_ids[n++] = i;
        }
    }
    return n;
}

/* Copies `n` result rows to place `first` of the context's. Rows are in batch order: a micro-batch
 * is a range of the batch. */
static void copy_rows(float *to, const qn_node *from, int32_t first, int32_t n)
{
    size_t width = (size_t)from->ne[0];
    memcpy(to + (size_t)first * width, from->data, (size_t)n * width * sizeof(float));
}

/* Copies the logits of the rows that were not sampled in the graph. */
static void copy_logits(qn_context *ctx, const qn_compute *c, int32_t first_row)
{
    int32_t n = c->shape.n_outputs;
    size_t width = (size_t)c->out.logits->ne[0];
    const float *rows = c->out.logits->data;
    if (c->shape.n_sampled == 0) {
        copy_rows(ctx->logits, c->out.logits, first_row, n);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        if (!ctx->rows[first_row + i].sampled) {
            memcpy(ctx->logits + (size_t)(first_row + i) * width, rows + (size_t)i * width,
                   width * sizeof(float));
        }
    }
}

static qn_status run_micro_batch(qn_context *ctx, const qn_kv_ubatch *ub, const float *embeddings,
                                 qn_error *err)
{
    const qn_context_options *o = &ctx->options;
    int32_t first_row = 0;
    qn_shape shape = {.n_tokens = ub->n_tokens,
                      .n_outputs = list_outputs(ctx, ub, &first_row),
                      .from_embeddings = embeddings != NULL};
    shape.want_embeddings = shape.n_outputs > 0 && o->embeddings;
    for (int32_t g = 0; g < ctx->layout->n_groups; g++) {
        shape.capacity[g] = qn__compute_capacity(ub->n_table[g]);
    }
    qn__sampling_shape(ctx, ub, &shape);
    qn_compute *c;
    qn_status status = qn__compute_get(ctx, &shape, &c, err);
    if (status != QN_OK) {
        return status;
    }
    qn__plan_bind(c->plan);
    fill_inputs(ctx, ub, c, embeddings);
    qn__sampling_fill(ctx, ub, c, first_row);
    qn_abort abort = {o->abort, o->abort_user};
    status =
        qn__plan_run(c->plan, ub->n_tokens == 1 ? o->n_threads : o->n_threads_batch, &abort, err);
    if (status != QN_OK) {
        return status;
    }
    if (c->out.logits) {
        copy_logits(ctx, c, first_row);
        qn__sampling_read(ctx, c, first_row);
    }
    if (c->out.embeddings && shape.want_embeddings) {
        copy_rows(ctx->embeddings, c->out.embeddings, first_row, shape.n_outputs);
    }
    if (shape.n_outputs > 0) {
        ctx->has_logits = c->out.logits != NULL;
        ctx->has_embeddings = c->out.embeddings && shape.want_embeddings;
    }
    ctx->counters.n_micro_batches++;
    return QN_OK;
}

static qn_status run_batch(qn_context *ctx, const qn_batch *batch, qn_error *err)
{
    qn_status status =
        qn__kv_batch_begin(ctx->kv, ctx->tokens, ctx->n_tokens, ctx->options.n_ubatch, err);
    if (status != QN_OK) {
        return status;
    }
    qn__sampling_begin(ctx);
    qn_kv_ubatch ub;
    while (qn__kv_ubatch_next(ctx->kv, &ub)) {
        status = run_micro_batch(ctx, &ub, batch->embeddings, err);
        if (status != QN_OK) {
            qn__kv_batch_abort(ctx->kv);
            qn__sampling_begin(ctx);
            return status;
        }
        qn__kv_ubatch_done(ctx->kv);
    }
    return QN_OK;
}

qn_status qn_context_decode(qn_context *ctx, const qn_batch *batch, qn_error *err)
{
    uint64_t start = qn__clock_ns();
    ctx->n_tokens = ctx->n_rows = 0;
    ctx->has_logits = ctx->has_embeddings = false;
    qn_status status = qn__outputs_reserve(ctx, err);
    if (status == QN_OK) {
        status = qn__batch_check(ctx, batch, err);
    }
    if (status == QN_OK) {
        status = run_batch(ctx, batch, err);
    }
    if (status != QN_OK) {
        ctx->n_tokens = ctx->n_rows = 0;
        ctx->has_logits = ctx->has_embeddings = false;
        return status;
    }
    double ms = (double)(qn__clock_ns() - start) / 1e6;
    if (batch->n_tokens == 1) {
        ctx->counters.generation_ms += ms;
        ctx->counters.n_generation_tokens++;
    } else {
        ctx->counters.prompt_ms += ms;
        ctx->counters.n_prompt_tokens += batch->n_tokens;
    }
    ctx->counters.n_decodes++;
    return QN_OK;
}
