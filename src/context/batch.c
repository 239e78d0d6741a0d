/*
 * batch.c: checks a batch and fills in what it leaves out. Nothing shows from outside when a check
 * fails. That positions go on where the memory ends is checked by the memory (qn__kv_batch_begin).
 */
#include "base/error.h"
#include "context/context.h"

#define SET_WORDS (QN_MAX_SEQUENCES / 64)

typedef struct id_set {
    uint64_t bits[SET_WORDS];
} id_set;

/* What is known of each sequence while walking the batch. */
typedef struct walk {
    int32_t next[QN_MAX_SEQUENCES]; /* position of its next token; -1: not asked yet */
    int32_t last[QN_MAX_SEQUENCES]; /* index of its last token in the batch; -1: none yet */
    id_set sets[QN_MAX_SEQUENCES];  /* the set of that token */
} walk;

static bool is_subset(const id_set *a, const id_set *b)
{
    uint64_t outside = 0;
    for (int i = 0; i < SET_WORDS; i++) {
        outside |= a->bits[i] & ~b->bits[i];
    }
    return outside == 0;
}

static qn_status check_sizes(const qn_context *ctx, const qn_batch *b, qn_error *err)
{
    const qn_context_options *o = &ctx->options;
    if (b->n_tokens <= 0) {
        return qn__error(err, QN_ERR_ARGUMENT, "the batch has %d tokens", b->n_tokens);
    }
    if (b->n_tokens > o->n_batch) {
        return qn__error(err, QN_ERR_ARGUMENT, "the batch has %d tokens, n_batch is %d",
                         b->n_tokens, o->n_batch);
    }
    if (!ctx->hparams->causal && b->n_tokens > o->n_ubatch) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "the batch has %d tokens, but tokens that look ahead must be computed at "
                         "once and n_ubatch is %d",
                         b->n_tokens, o->n_ubatch);
    }
    if (!b->tokens == !b->embeddings) {
        return qn__error(err, QN_ERR_ARGUMENT, "the batch must have either tokens or embeddings");
    }
    if (b->n_seq_id && !b->seq_id) {
        return qn__error(err, QN_ERR_ARGUMENT, "the batch counts sequence ids but has none");
    }
    if (b->embeddings && qn__model_n_positions(ctx->model) != 1) {
        return qn__error(err, QN_ERR_UNSUPPORTED,
                         "embeddings with several positions a token are not supported");
    }
    return QN_OK;
}

static qn_status check_ids(const qn_context *ctx, const qn_batch *b, qn_error *err)
{
    for (int32_t i = 0; b->tokens && i < b->n_tokens; i++) {
        if (b->tokens[i] < 0 || b->tokens[i] >= ctx->hparams->n_vocab) {
            return qn__error(err, QN_ERR_ARGUMENT, "token %d of the batch is %d, not 0 to %d", i,
                             b->tokens[i], ctx->hparams->n_vocab - 1);
        }
    }
    return QN_OK;
}

/* Points tokens[i].seq at its ids and collects them as a set. */
static qn_status check_set(const qn_context *ctx, int32_t i, id_set *set, qn_error *err)
{
    const qn_kv_token *t = &ctx->tokens[i];
    *set = (id_set){{0}};
    for (int32_t j = 0; j < t->n_seq; j++) {
        int32_t id = t->seq[j];
        if (id < 0 || id >= ctx->options.n_seq_max) {
            return qn__error(err, QN_ERR_ARGUMENT,
                             "token %d of the batch: sequence id %d is not below n_seq_max = %d", i,
                             id, ctx->options.n_seq_max);
        }
        uint64_t bit = UINT64_C(1) << (id % 64);
        if (set->bits[id / 64] & bit) {
            return qn__error(err, QN_ERR_ARGUMENT, "token %d of the batch has sequence id %d twice",
                             i, id);
        }
        set->bits[id / 64] |= bit;
    }
    return QN_OK;
}

static qn_status check_sequences(qn_context *ctx, const qn_batch *b, walk *w, qn_error *err)
{
    static const int32_t sequence_zero = 0;
    const int32_t *ids = b->seq_id;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        qn_kv_token *t = &ctx->tokens[i];
        t->n_seq = b->n_seq_id ? b->n_seq_id[i] : 1;
        if (t->n_seq < 1 || t->n_seq > ctx->options.n_seq_max) {
            return qn__error(err, QN_ERR_ARGUMENT,
                             "token %d of the batch has %d sequence ids, not 1 to %d", i, t->n_seq,
                             ctx->options.n_seq_max);
        }
        t->seq = ids ? ids : &sequence_zero;
        ids = ids ? ids + t->n_seq : NULL;
        id_set set;
        qn_status status = check_set(ctx, i, &set, err);
        if (status != QN_OK) {
            return status;
        }
        for (int32_t j = 0; j < t->n_seq; j++) {
            int32_t id = t->seq[j];
            if (w->last[id] >= 0 && !is_subset(&set, &w->sets[id])) {
                return qn__error(err, QN_ERR_ARGUMENT,
                                 "token %d of the batch joins sequence %d with one that its token "
                                 "%d was not in: sequences may only part",
                                 i, id, w->last[id]);
            }
            w->last[id] = i;
            w->sets[id] = set;
        }
    }
    return QN_OK;
}

static qn_status check_positions(qn_context *ctx, const qn_batch *b, walk *w, qn_error *err)
{
    int32_t limit = qn__model_max_positions(ctx->model);
    limit = limit > 0 && limit < QN_KV_MAX_POS ? limit : QN_KV_MAX_POS;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        qn_kv_token *t = &ctx->tokens[i];
        for (int32_t j = 0; j < t->n_seq; j++) {
            int32_t id = t->seq[j];
            if (w->next[id] < 0) {
                w->next[id] = qn__kv_seq_pos_max(ctx->kv, id) + 1;
            }
            if (!b->pos && w->next[id] != w->next[t->seq[0]]) {
                return qn__error(err, QN_ERR_ARGUMENT,
                                 "token %d of the batch is in sequences %d and %d, which do not "
                                 "end at the same position",
                                 i, t->seq[0], id);
            }
        }
        t->pos = b->pos ? b->pos[i] : w->next[t->seq[0]];
        if (t->pos < 0 || t->pos >= limit) {
            return qn__error(err, QN_ERR_ARGUMENT,
                             "token %d of the batch has position %d, not 0 to %d", i, t->pos,
                             limit - 1);
        }
        for (int32_t j = 0; j < t->n_seq; j++) {
            w->next[t->seq[j]] = t->pos + 1;
        }
    }
    return QN_OK;
}

static qn_status check_outputs(qn_context *ctx, const qn_batch *b, qn_error *err)
{
    int32_t n_rows = 0;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        bool row = b->output ? b->output[i] != 0 : ctx->options.embeddings || i + 1 == b->n_tokens;
        ctx->row_of[i] = row ? n_rows++ : -1;
    }
    if (n_rows > ctx->options.n_outputs_max) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "the batch asks for %d output rows, n_outputs_max is %d", n_rows,
                         ctx->options.n_outputs_max);
    }
    ctx->n_rows = n_rows;
    return QN_OK;
}

qn_status qn__batch_check(qn_context *ctx, const qn_batch *b, qn_error *err)
{
    walk w;
    for (int i = 0; i < QN_MAX_SEQUENCES; i++) {
        w.next[i] = w.last[i] = -1;
    }
    qn_status status = check_sizes(ctx, b, err);
    if (status == QN_OK) {
        status = check_ids(ctx, b, err);
    }
    for (int32_t i = 0; status == QN_OK && i < b->n_tokens; i++) {
        ctx->tokens[i].token = b->tokens ? b->tokens[i] : -1;
    }
    if (status == QN_OK) {
        status = check_sequences(ctx, b, &w, err);
    }
    if (status == QN_OK) {
        status = check_positions(ctx, b, &w, err);
    }
    if (status == QN_OK) {
        status = check_outputs(ctx, b, err);
    }
    if (status == QN_OK) {
        status = qn__sampling_check(ctx, b, err);
    }
    if (status == QN_OK) {
        ctx->n_tokens = b->n_tokens;
    }
    return status;
}

qn_batch qn_batch_of(const int32_t *tokens, int32_t n)
{
    return (qn_batch){.n_tokens = n, .tokens = tokens};
}
