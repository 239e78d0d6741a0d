/* sequences.c: the memory of sequences, as the caller sees it. */
#include "base/error.h"
#include "context/context.h"

static qn_status check_id(const qn_context *ctx, int32_t seq, qn_error *err)
{
    if (seq < 0 || seq >= ctx->options.n_seq_max) {
        return qn__error(err, QN_ERR_ARGUMENT, "sequence id %d is not 0 to %d", seq,
                         ctx->options.n_seq_max - 1);
    }
    return QN_OK;
}

qn_status qn_context_seq_rm(qn_context *ctx, int32_t seq, int32_t p0, int32_t p1, qn_error *err)
{
    qn_status status = seq < 0 ? QN_OK : check_id(ctx, seq, err);
    if (status == QN_OK && !qn__kv_seq_rm(ctx->kv, seq, p0, p1)) {
        status = qn__error(err, QN_ERR_ARGUMENT,
                           "cannot go on from position %d: what its sliding window would see is "
                           "gone",
                           p0);
    }
    return status;
}

qn_status qn_context_seq_cp(qn_context *ctx, int32_t from, int32_t to, int32_t p0, int32_t p1,
                            qn_error *err)
{
    qn_status status = check_id(ctx, from, err);
    if (status == QN_OK) {
        status = check_id(ctx, to, err);
    }
    return status == QN_OK ? qn__kv_seq_cp(ctx->kv, from, to, p0, p1, err) : status;
}

qn_status qn_context_seq_keep(qn_context *ctx, int32_t seq, qn_error *err)
{
    qn_status status = check_id(ctx, seq, err);
    if (status == QN_OK) {
        qn__kv_seq_keep(ctx->kv, seq);
    }
    return status;
}

qn_status qn_context_seq_add(qn_context *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t delta,
                             qn_error *err)
{
    qn_status status = check_id(ctx, seq, err);
    return status == QN_OK ? qn__kv_seq_add(ctx->kv, seq, p0, p1, delta, err) : status;
}

int32_t qn_context_pos_min(const qn_context *ctx, int32_t seq)
{
    return qn__kv_seq_pos_min(ctx->kv, seq);
}

int32_t qn_context_pos_max(const qn_context *ctx, int32_t seq)
{
    return qn__kv_seq_pos_max(ctx->kv, seq);
}

bool qn_context_can_shift(const qn_context *ctx)
{
    return qn__kv_can_shift(ctx->kv);
}

bool qn_context_can_resume(const qn_context *ctx, int32_t seq, int32_t pos)
{
    return qn__kv_can_resume(ctx->kv, seq, pos);
}

void qn_context_clear(qn_context *ctx)
{
    qn__kv_clear(ctx->kv, false);
}
