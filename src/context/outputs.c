/* outputs.c: the rows of the last decode. */
#include "base/error.h"
#include "base/mem.h"
#include "context/context.h"

qn_status qn__outputs_reserve(qn_context *ctx, qn_error *err)
{
    size_t row, bytes;
    if (!ctx->options.embeddings || ctx->embeddings) {
        return QN_OK;
    }
    if (!qn__mul_size((size_t)ctx->hparams->n_embd_out, sizeof(float), &row) ||
        !qn__mul_size(row, (size_t)ctx->options.n_outputs_max, &bytes) ||
        !(ctx->embeddings = qn__block_alloc(bytes))) {
        return qn__error_memory(err, "embedding rows");
    }
    return QN_OK;
}

void qn_context_set_embeddings(qn_context *ctx, bool embeddings)
{
    ctx->options.embeddings = embeddings;
}

/* Index of the row that `i` means, -1 with a message where there is none. */
int32_t qn__outputs_find(const qn_context *ctx, int32_t i, qn_error *err)
{
    if (ctx->n_rows == 0) {
        qn__error(err, QN_ERR_NOT_FOUND, "there are no output rows");
        return -1;
    }
    int64_t row = i >= 0 ? (i < ctx->n_tokens ? ctx->row_of[i] : -1) : (int64_t)ctx->n_rows + i;
    if (row >= 0) {
        return (int32_t)row;
    }
    if (i < 0) {
        qn__error(err, QN_ERR_NOT_FOUND, "output row %d of %d does not exist", i, ctx->n_rows);
    } else if (i >= ctx->n_tokens) {
        qn__error(err, QN_ERR_NOT_FOUND, "the last batch had %d tokens, there is no token %d",
                  ctx->n_tokens, i);
    } else {
        qn__error(err, QN_ERR_NOT_FOUND, "token %d of the last batch was no output", i);
    }
    return -1;
}

int32_t qn_context_n_outputs(const qn_context *ctx)
{
    return ctx->n_rows;
}

const float *qn_context_logits(const qn_context *ctx, int32_t i, qn_error *err)
{
    int32_t row = qn__outputs_find(ctx, i, err);
    if (row >= 0 && !ctx->has_logits) {
        qn__error(err, QN_ERR_NOT_FOUND, "the model gives no logits");
        return NULL;
    }
    if (row >= 0 && ctx->rows[row].sampled) {
        qn__error(err, QN_ERR_NOT_FOUND,
                  "row %d was sampled in the graph by the chain of sequence %d: it has no logits",
                  i, ctx->rows[row].seq);
        return NULL;
    }
    return row < 0 ? NULL : ctx->logits + (size_t)row * (size_t)ctx->hparams->n_vocab;
}

const float *qn_context_embeddings(const qn_context *ctx, int32_t i, qn_error *err)
{
    int32_t row = qn__outputs_find(ctx, i, err);
    if (row >= 0 && !ctx->has_embeddings) {
        qn__error(err, QN_ERR_NOT_FOUND, "the last batch was computed without embeddings");
        return NULL;
    }
    return row < 0 ? NULL : ctx->embeddings + (size_t)row * (size_t)ctx->hparams->n_embd_out;
}
