/*
 * sampling.c: chains attached to sequences. For each output row of such a sequence a program is
 * written (sampler/graph.h), which the graph's SAMPLE node runs on the row's logits; what it leaves
 * is read back here. Tokens of the batch between the rows of a sequence go into the shadows of its
 * samplers, in order.
 *
 * A row's program is an input of the plan. So a plan depends only on how many rows are sampled and
 * on room: words of the longest program and candidates that come back, rounded up. Attaching,
 * detaching and other settings make no new plans once the few sizes have been seen.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "context/context.h"

/* Least room of programs and of candidates that come back; larger ones are powers of two. */
#define PROGRAM_WORDS_MIN 64
#define KEEP_MIN          64

qn_status qn__sampling_make(qn_context *ctx, qn_error *err)
{
    ctx->attached = qn__calloc((size_t)ctx->options.n_seq_max, sizeof *ctx->attached);
    ctx->rows = qn__calloc((size_t)ctx->options.n_outputs_max, sizeof *ctx->rows);
    return ctx->attached && ctx->rows ? QN_OK : qn__error_memory(err, "sampled rows");
}

static void attached_clear(qn_attached *a)
{
    if (a->chain) {
        qn__chain_detach(a->chain);
    }
    free(a->memory);
    *a = (qn_attached){0};
}

void qn__sampling_free(qn_context *ctx)
{
    for (int32_t i = 0; ctx->attached && i < ctx->options.n_seq_max; i++) {
        attached_clear(&ctx->attached[i]);
    }
    free(ctx->attached);
    free(ctx->rows);
}

/* Whether the device can run the samplers' node. */
static bool device_samples(const qn_context *ctx)
{
    qn_graph *g = qn__graph_make(NULL);
    if (!g) {
        return false;
    }
    const int64_t row[2] = {ctx->hparams->n_vocab, 1}, program[2] = {PROGRAM_WORDS_MIN, 1};
    qn_node *logits = qn__graph_input(g, QN_TYPE_F32, 2, row, "logits");
    qn_node *programs = qn__graph_input(g, QN_TYPE_I32, 2, program, "programs");
    const qn_node *node = qn__graph_sample(g, logits, programs, &qn__sample_table, 0);
    bool can = g->status == QN_OK && qn__device_supports(ctx->options.device, node);
    qn__graph_free(g);
    return can;
}

static qn_status attached_make(const qn_context *ctx, qn_sampler *chain, qn_attached *a,
                               qn_error *err)
{
    qn_status status =
        qn__chain_attach(chain, device_samples(ctx), (size_t)ctx->hparams->n_vocab, &a->form, err);
    if (status != QN_OK) {
        return status;
    }
    a->chain = chain;
    bool done = a->form.whole && a->form.picks; /* the token is all that anyone needs */
    if (a->form.n_prefix > 0 && (!done || ctx->options.keep_candidates)) {
        a->n_back = a->form.n_keep;
    }
    size_t n, bytes, n_rows = (size_t)ctx->options.n_outputs_max_per_seq;
    size_t carry_bytes = n_rows * QN_SAMPLE_CARRY_WORDS * sizeof(int32_t);
    if (!qn__mul_size(a->n_back, n_rows, &n) || !qn__mul_size(n, 4 * sizeof(float), &bytes) ||
        !qn__add_size(bytes, carry_bytes, &bytes) || !(a->memory = qn__calloc(bytes, 1))) {
        attached_clear(a);
        return qn__error(err, QN_ERR_MEMORY, "out of memory for %d rows of %zu candidates",
                         ctx->options.n_outputs_max_per_seq, a->n_back);
    }
    a->ids = a->memory;
    a->logits = (float *)a->memory + n;
    a->probs = (float *)a->memory + 2 * n;
    a->weights = (uint32_t *)a->memory + 3 * n;
    a->carries = (int32_t *)a->memory + 4 * n;
    a->n_valid = INT32_MAX;
    return QN_OK;
}

qn_status qn_context_set_sampler(qn_context *ctx, int32_t seq, qn_sampler *chain, qn_error *err)
{
    if (seq < 0 || seq >= ctx->options.n_seq_max) {
        return qn__error(err, QN_ERR_ARGUMENT, "sequence id %d is not below n_seq_max = %d", seq,
                         ctx->options.n_seq_max);
    }
    qn_attached made = {0};
    if (chain) {
        qn_status status = attached_make(ctx, chain, &made, err);
        if (status != QN_OK) {
            return status;
        }
    }
    attached_clear(&ctx->attached[seq]);
    ctx->attached[seq] = made;
    for (int32_t i = 0; i < ctx->n_rows; i++) {
        qn_row_info *row = &ctx->rows[i];
        row->lost = row->lost || (row->kept && row->seq == seq);
        row->kept = row->kept && !row->lost;
    }
    return QN_OK;
}

qn_sampler *qn_context_get_sampler(const qn_context *ctx, int32_t seq)
{
    return seq >= 0 && seq < ctx->options.n_seq_max ? ctx->attached[seq].chain : NULL;
}

qn_status qn__sampling_check(const qn_context *ctx, const qn_batch *batch, qn_error *err)
{
    int32_t counts[QN_MAX_SEQUENCES] = {0};
    int32_t limit = ctx->options.n_outputs_max_per_seq;
    for (int32_t i = 0; i < batch->n_tokens; i++) {
        int32_t seq = ctx->tokens[i].seq[0];
        if (ctx->row_of[i] >= 0 && ctx->attached[seq].chain && ++counts[seq] > limit) {
            return qn__error(err, QN_ERR_ARGUMENT,
                             "token %d of the batch is output row %d of sequence %d, to which a "
                             "sampler is attached; n_outputs_max_per_seq is %d",
                             i, counts[seq], seq, limit);
        }
    }
    return QN_OK;
}

void qn__sampling_begin(qn_context *ctx)
{
    for (int32_t i = 0; i < ctx->options.n_seq_max; i++) {
        qn_attached *a = &ctx->attached[i];
        a->n_rows = a->n_filled = a->n_drafts = 0;
        a->n_valid = INT32_MAX;
        if (a->chain) {
            qn__chain_begin(a->chain);
        }
    }
}

/* `n` rounded up to a power of two, from `least` on. */
static int32_t round_up(size_t n, size_t least)
{
    size_t size = least;
    while (size < n) {
        size *= 2;
    }
    return (int32_t)size;
}

/* Token i of the batch comes behind the rows of its sequences: the first one behind a row is what
 * the row goes on with. */
static void note_token(qn_context *ctx, int32_t i)
{
    const qn_kv_token *t = &ctx->tokens[i];
    for (int32_t k = 0; k < t->n_seq; k++) {
        qn_attached *a = &ctx->attached[t->seq[k]];
        if (a->n_rows > 0) {
            qn_row_info *row = &ctx->rows[a->last_row];
            row->next = row->next == QN_TOKEN_NONE ? t->token : row->next;
            a->n_drafts++;
        }
    }
}

/* The row of token i, if it has one, and what its sampling needs. */
static void note_row(qn_context *ctx, int32_t i, qn_shape *shape, size_t *words, size_t *n_back)
{
    int32_t index = ctx->row_of[i], seq = ctx->tokens[i].seq[0];
    qn_attached *a = &ctx->attached[seq];
    if (index < 0) {
        return;
    }
    qn_row_info *row = &ctx->rows[index];
    *row = (qn_row_info){.seq = seq, .token = QN_TOKEN_NONE, .next = QN_TOKEN_NONE, .selected = -1};
    if (a->chain && a->form.n_prefix > 0) {
        row->sampled = true;
        row->place = a->n_rows++;
        a->last_row = index;
        size_t need = qn__chain_program_words(a->chain, &a->form, row->place, (size_t)a->n_drafts);
        *words = need > *words ? need : *words;
        *n_back = a->n_back > *n_back ? a->n_back : *n_back;
        shape->n_sampled++;
    }
}

void qn__sampling_shape(qn_context *ctx, const qn_kv_ubatch *ub, qn_shape *shape)
{
    size_t words = 0, n_back = 0, n_vocab = (size_t)ctx->hparams->n_vocab;
    for (int32_t i = 0; i < ub->n_tokens; i++) {
        note_token(ctx, ub->first + i);
        note_row(ctx, ub->first + i, shape, &words, &n_back);
    }
    if (shape->n_sampled > 0) {
        shape->program_words = round_up(words, PROGRAM_WORDS_MIN);
        size_t keep = n_back > 0 ? (size_t)round_up(n_back, KEEP_MIN) : 0;
        shape->n_keep = (int32_t)(keep < n_vocab ? keep : n_vocab);
    }
}

/* Token i of the batch goes into the shadows of its sequences that have had a row. */
static void feed_token(qn_context *ctx, int32_t i)
{
    const qn_kv_token *t = &ctx->tokens[i];
    for (int32_t k = 0; t->token >= 0 && k < t->n_seq; k++) {
        const qn_attached *a = &ctx->attached[t->seq[k]];
        if (a->n_filled > 0) {
            qn__chain_draft(a->chain, &a->form, t->token);
        }
    }
}

/* Program number `n` of the micro-batch, of a row whose logits are column `column`. */
static void write_program(const qn_compute *c, qn_attached *a, const qn_row_info *row,
                          int32_t column, int32_t n)
{
    size_t words = (size_t)c->shape.program_words;
    int32_t *programs = c->programs->data, *program = programs + (size_t)n * words;
    const int32_t *carry = NULL;
    memset(program, 0, QN_SAMPLE_PROGRAM_HEAD * sizeof *program);
    program[QN_SAMPLE_COLUMN] = column;
    program[QN_SAMPLE_N_BACK] = (int32_t)a->n_back;
    if (a->form.carrier && a->last > 0) {
        program[QN_SAMPLE_PREVIOUS] = a->last;
        programs[(size_t)(a->last - 1) * words + QN_SAMPLE_NEXT] = n;
    } else if (row->place > 0) {
        carry = a->carries + (size_t)(row->place - 1) * QN_SAMPLE_CARRY_WORDS;
    }
    qn__chain_program(a->chain, &a->form, row->place, carry, program);
    a->last = n + 1;
    a->n_filled++;
}

void qn__sampling_fill(qn_context *ctx, const qn_kv_ubatch *ub, const qn_compute *c,
                       int32_t first_row)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ctx->options.n_seq_max; i++) {
        ctx->attached[i].last = 0;
    }
    for (int32_t i = ub->first; i < ub->first + ub->n_tokens; i++) {
        feed_token(ctx, i);
        const qn_row_info *row = ctx->row_of[i] < 0 ? NULL : &ctx->rows[ctx->row_of[i]];
        if (row && row->sampled) {
            write_program(c, &ctx->attached[row->seq], row, ctx->row_of[i] - first_row, n++);
        }
    }
}

static void read_row(qn_attached *a, qn_row_info *row, const int32_t *result, size_t n_keep)
{
    row->size = result[QN_SAMPLE_SIZE];
    row->selected = result[QN_SAMPLE_SELECTED];
    row->flags = result[QN_SAMPLE_FLAGS];
    row->total = (uint64_t)(uint32_t)result[QN_SAMPLE_TOTAL_HIGH] << 32 |
                 (uint32_t)result[QN_SAMPLE_TOTAL_LOW];
    row->token = a->form.whole ? result[QN_SAMPLE_TOKEN] : QN_TOKEN_NONE;
    row->kept = a->n_back > 0;
    memcpy(a->carries + (size_t)row->place * QN_SAMPLE_CARRY_WORDS, result + QN_SAMPLE_CARRY,
           QN_SAMPLE_CARRY_WORDS * sizeof *result);
    if (row->kept) {
        /* Never more, unless other settings were copied into the chain since it was attached. */
        row->size = (size_t)row->size < a->n_back ? row->size : (int32_t)a->n_back;
        const int32_t *arrays = result + QN_SAMPLE_RESULT_HEAD;
        size_t at = (size_t)row->place * a->n_back, bytes = (size_t)row->size * sizeof(int32_t);
        memcpy(a->ids + at, arrays, bytes);
        memcpy(a->logits + at, arrays + n_keep, bytes);
        if (row->flags & QN_SAMPLE_HAS_WEIGHTS) {
            memcpy(a->weights + at, arrays + 2 * n_keep, bytes);
        }
    }
}

void qn__sampling_read(qn_context *ctx, const qn_compute *c, int32_t first_row)
{
    const int32_t *result = c->sampled ? c->sampled->data : NULL;
    for (int32_t i = 0; result && i < c->shape.n_outputs; i++) {
        qn_row_info *row = &ctx->rows[first_row + i];
        if (row->sampled) {
            qn_attached *a = &ctx->attached[row->seq];
            read_row(a, row, result, (size_t)c->shape.n_keep);
            qn__chain_rows(a->chain, &a->form, a->carries, row->place + 1, 0);
            result += c->sampled->ne[0];
        }
    }
}

int32_t qn_context_sampled(const qn_context *ctx, int32_t i, qn_error *err)
{
    int32_t row = qn__outputs_find(ctx, i, err);
    return row < 0 ? QN_TOKEN_NONE : ctx->rows[row].token;
}

static qn_status no_candidates(const qn_context *ctx, int32_t i, const qn_row_info *row,
                               qn_error *err)
{
    const char *why = "its chain is not attached any more";
    if (!row->sampled) {
        why = "it was not sampled in the graph";
    } else if (row->token != QN_TOKEN_NONE && !ctx->options.keep_candidates) {
        why = "its token was picked and options.keep_candidates is not set";
    }
    return qn__error(err, QN_ERR_NOT_FOUND, "row %d has no candidates: %s", i, why);
}

qn_status qn_context_candidates(qn_context *ctx, int32_t i, qn_row_candidates *out, qn_error *err)
{
    *out = (qn_row_candidates){0};
    int32_t index = qn__outputs_find(ctx, i, err);
    if (index < 0) {
        return QN_ERR_NOT_FOUND;
    }
    const qn_row_info *row = &ctx->rows[index];
    if (!row->kept) {
        return no_candidates(ctx, i, row, err);
    }
    const qn_attached *a = &ctx->attached[row->seq];
    size_t at = (size_t)row->place * a->n_back, n = (size_t)row->size;
    bool drawn = a->form.draws && row->selected >= 0 && row->flags & QN_SAMPLE_HAS_WEIGHTS;
    for (size_t k = 0; drawn && k < n; k++) {
        a->probs[at + k] = (float)((double)a->weights[at + k] / (double)row->total);
    }
    *out = (qn_row_candidates){.ids = a->ids + at,
                               .logits = a->logits + at,
                               .probs = drawn ? a->probs + at : NULL,
                               .count = n,
                               .sorted = row->flags & QN_SAMPLE_SORTED};
    return QN_OK;
}

/* The candidates that the graph left of a row, as its last sampler left them. */
static void take_candidates(qn_candidates *c, const qn_attached *a, const qn_row_info *row)
{
    size_t at = (size_t)row->place * a->n_back;
    c->row = NULL;
    c->size = (size_t)row->size;
    c->selected = row->selected;
    c->sorted = row->flags & QN_SAMPLE_SORTED;
    c->has_weights = row->flags & QN_SAMPLE_HAS_WEIGHTS;
    c->total = row->total;
    memcpy(c->ids, a->ids + at, c->size * sizeof *c->ids);
    memcpy(c->logits, a->logits + at, c->size * sizeof *c->logits);
    memcpy(c->weights, a->weights + at, c->size * sizeof *c->weights);
}

/* What the sampler picks outside of the graph, in ctx->candidates. */
static qn_status pick_outside(qn_context *ctx, qn_sampler *sampler, int32_t i,
                              const qn_row_info *row, int32_t *picked, qn_error *err)
{
    qn_candidates *c = ctx->candidates;
    const qn_attached *a = &ctx->attached[row->seq];
    if (!row->sampled) {
        const float *logits = qn_context_logits(ctx, i, err);
        if (!logits) {
            return QN_ERR_NOT_FOUND;
        }
        qn__sampler_start(sampler, c, logits, (size_t)ctx->hparams->n_vocab);
    } else if (row->kept) {
        take_candidates(c, a, row);
        if (sampler == a->chain) {
            qn__chain_apply_rest(sampler, &a->form, c);
        } else {
            c->selected = -1;
            qn_sampler_apply(sampler, c);
        }
    } else if (row->lost) {
        return no_candidates(ctx, i, row, err);
    } else {
        c->size = 0; /* it was left to the graph, which found nothing to pick */
        c->selected = -1;
    }
    if (c->selected < 0 || (size_t)c->selected >= c->size) {
        return qn__error(err, QN_ERR_NOT_FOUND, "%s picked no token: no candidate is left",
                         qn_sampler_name(sampler));
    }
    *picked = c->ids[c->selected];
    return QN_OK;
}

qn_status qn_context_sample(qn_context *ctx, qn_sampler *sampler, int32_t i, int32_t *token,
                            qn_error *err)
{
    *token = QN_TOKEN_NONE;
    int32_t index = qn__outputs_find(ctx, i, err);
    if (index < 0) {
        return QN_ERR_NOT_FOUND;
    }
    const qn_row_info *row = &ctx->rows[index];
    qn_attached *a = &ctx->attached[row->seq];
    sampler = sampler ? sampler : a->chain;
    if (!sampler) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "no sampler is given, and none is attached to sequence %d", row->seq);
    }
    bool own = row->sampled && sampler == a->chain;
    if (own && a->form.follows && row->place >= a->n_valid) {
        return qn__error(err, QN_ERR_NOT_FOUND,
                         "row %d was sampled for a text that goes on as the batch does, but "
                         "another token was accepted for the row before it",
                         i);
    }
    int32_t picked = row->token;
    qn_status status = QN_OK;
    if (picked == QN_TOKEN_NONE) {
        status = pick_outside(ctx, sampler, i, row, &picked, err);
    }
    if (status == QN_OK && own) {
        qn__chain_rows(a->chain, &a->form, a->carries, a->n_rows, row->place);
        bool fits = row->next == QN_TOKEN_NONE || row->next == picked;
        a->n_valid = fits ? INT32_MAX : row->place + 1;
    }
    if (status == QN_OK) {
        status = qn_sampler_accept(sampler, picked, true, err);
    }
    *token = status == QN_OK ? picked : QN_TOKEN_NONE;
    return status;
}
