/*
 * quern/context.h: a model at work. A context owns the memory of what was read (keys and values of
 * every sequence), computes batches of tokens, and hands out their output rows.
 *
 * The rows of a sequence depend on its tokens and on nothing else: not on how the batch is cut, on
 * what other sequences are in it, on the number of threads, or on whether the memory was computed,
 * shared or restored. (Moving positions, qn_context_seq_add, is the one thing that changes them.)
 *
 * A context is used by one thread at a time. Contexts of one model are independent; the model must
 * outlive them.
 *
 * Positions are counted per sequence from where it starts; ranges [p0, p1) take p0 < 0 as 0 and
 * p1 < 0 as the end. Sequence ids are 0 .. n_seq_max - 1.
 */
#ifndef QUERN_CONTEXT_H
#define QUERN_CONTEXT_H

#include <quern/base.h>
#include <quern/device.h>
#include <quern/sampler.h>
#include <quern/type.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_model qn_model; /* quern/model.h */
typedef struct qn_context qn_context;

#define QN_MAX_SEQUENCES 256
#define QN_MAX_THREADS   512

typedef struct qn_context_options {
    int32_t n_ctx;         /* 512; positions of all sequences together, rounded up to a multiple
                              of 256; 0: the model's training context */
    int32_t n_batch;       /* 2048; most tokens of one decode; cut to n_ctx */
    int32_t n_ubatch;      /* 512; most tokens computed at once; cut to n_batch, 0: n_batch */
    int32_t n_outputs_max; /* 0; most output rows of one decode; cut to n_batch, 0: n_batch */
    int32_t n_outputs_max_per_seq; /* 1; most output rows of one decode for a sequence with a chain
                                      attached; cut to n_outputs_max, 0: n_outputs_max */
    int32_t n_seq_max;             /* 1; sequences, at most QN_MAX_SEQUENCES */
    int32_t n_threads;       /* 0; for micro-batches of one token. 0: as many as the machine has
                                cores. Cut to those of the device */
    int32_t n_threads_batch; /* 0; for larger ones. 0: n_threads */
    qn_type type_k, type_v;  /* F16; F32, F16, BF16 or Q8_0 */
    bool embeddings;         /* false; hand out the final hidden rows; all tokens are then outputs
                                unless the batch says which */
    bool full_windows;       /* false; layers with a sliding window keep all positions, so that any
                                tail can be taken back */
    int32_t window_slack;    /* 64; positions that they keep behind the window otherwise */
    bool keep_candidates;    /* false; rows whose token was picked in the graph hand out what it
                                was picked from, too */
    qn_device *device;       /* NULL: a CPU device of its own; else it must outlive the context */
    const char *isa;         /* NULL; instruction set of that own device, see quern/device.h */
    /* Asked between the steps of a computation; true ends it with QN_ERR_ABORTED. May be called
     * from another thread of the device, never from two at once. NULL: never asked. */
    bool (*abort)(void *user);
    void *abort_user;
    qn_log log;
} qn_context_options;

QN_API qn_context_options qn_context_defaults(void);

/*
 * Takes all memory that the context will ever need for tokens: the store of keys and values, the
 * workspace of the largest micro-batch, the output rows. NULL options: the defaults. Errors:
 * QN_ERR_ARGUMENT names the option; QN_ERR_MEMORY; QN_ERR_UNSUPPORTED where the model cannot be run
 * so (a type of K or V that does not fit its heads, …).
 */
QN_API qn_status qn_context_make(const qn_model *model, const qn_context_options *options,
                                 qn_context **out, qn_error *err);
QN_API void qn_context_free(qn_context *ctx);

/* What the context came to after rounding and cutting; fields that were 0 are filled in. */
QN_API qn_context_options qn_context_get_options(const qn_context *ctx);
QN_API const qn_model *qn_context_model(const qn_context *ctx);

/*
 * Tokens to compute. Arrays have n_tokens entries and are only read during the call. Exactly one of
 * tokens and embeddings is given; what a missing one (NULL) of the others means:
 * - embeddings: rows of the model's input width, F32, instead of looking up ids.
 * - pos: each token comes right after what its sequence holds (0 where that is empty).
 * - n_seq_id: one sequence id for each token.
 * - seq_id: sequence 0. Otherwise the ids of token 0, then of token 1, …: the sum of n_seq_id in
 *   all. A token with several ids is computed once and becomes part of all these sequences.
 * - output: only the last token has an output row (all tokens where the context makes embeddings).
 *   Otherwise non-zero asks for a row.
 */
typedef struct qn_batch {
    int32_t n_tokens;
    const int32_t *tokens;
    const float *embeddings;
    const int32_t *pos;
    const int32_t *n_seq_id;
    const int32_t *seq_id;
    const int8_t *output;
} qn_batch;

/* `n` tokens that continue sequence 0, with a row for the last. */
QN_API qn_batch qn_batch_of(const int32_t *tokens, int32_t n);

/*
 * Computes a batch: its tokens become part of their sequences, and the rows asked for can be read
 * until the next decode. Rules: the positions of a sequence continue where it ends, without gap or
 * repetition, in batch order (an empty sequence may start anywhere); the sets of ids of a
 * sequence's tokens only shrink along the batch (a common prefix that branches); sequences that
 * share a token hold the same positions before it.
 * - QN_OK: done.
 * - QN_ERR_ARGUMENT: a broken rule, with the token named; nothing was changed.
 * - QN_ERR_FULL: no room for these tokens; nothing was changed.
 * - QN_ERR_ABORTED: the abort callback said stop. Micro-batches that were finished stay, see
 *   qn_context_pos_max; there are no rows.
 * - QN_ERR_COMPUTE (the device failed), QN_ERR_MEMORY: as for QN_ERR_ABORTED.
 */
QN_API qn_status qn_context_decode(qn_context *ctx, const qn_batch *batch, qn_error *err);

/*
 * Output rows of the last decode, in batch order. `i` >= 0 is the index of a token in the batch;
 * i < 0 counts from the last row (-1 is the last). NULL with a message where there is no such row.
 * Valid until the next decode.
 */
/* [n_vocab], as the model gives them, not normalised. Rows that were sampled in the graph have none
 * (see qn_context_set_sampler): NULL. */
QN_API const float *qn_context_logits(const qn_context *ctx, int32_t i, qn_error *err);
/* [width of the model's output], after the final norm; only where options.embeddings is set. */
QN_API const float *qn_context_embeddings(const qn_context *ctx, int32_t i, qn_error *err);
QN_API int32_t qn_context_n_outputs(const qn_context *ctx);

/*
 * Sampling inside the graph. A chain that is attached to a sequence runs where its logits are: all
 * its members, or those from the front up to the first that has no form for graphs (a sampler of
 * one's own). Only what they leave comes back: the token, or the candidates. The token is the same
 * as that of qn_context_sample without attaching, bit for bit, at any number of rows and threads.
 *
 * The chain's state when the decode begins is what its rows are sampled with: so the prompt is
 * accepted (qn_sampler_accept, not `generated`) before the decode whose row continues it, and a
 * token before the decode that computes it.
 *
 * Several rows of a sequence in a decode are for drafts: row j is sampled for the text that goes on
 * with the batch's tokens of the sequence behind its first row, up to the row's own token, and with
 * the j-th next draw of the chain. It is of use only if the tokens accepted for the rows before it
 * are those of the batch. A token between two rows that has no row itself takes no draw and is part
 * of that text all the same; a grammar follows it as if it were generated.
 * Nothing is consumed or learned by a decode, but by accepting tokens in
 * the order of the rows (qn_context_sample, or qn_sampler_accept with `generated`). So a decode
 * that fails, or whose rows are not used, changes no later token; a chain can be put back by
 * qn_sampler_copy, and rows of the last decode sampled again.
 *
 * A row belongs to the first sequence id of its token. Rows given as embeddings have no token: the
 * text is taken to go on without them.
 */

/*
 * Attaches a chain, or a constrained one (qn_sampler_constrained; it runs in the graph if all of
 * its chain does), to a sequence, in place of the one that it has; NULL detaches. The chain stays
 * the caller's: it must live, without members added or removed, until it is detached or the
 * context is freed. It is in one place at a time. Holds for the decodes to come; of the rows of the
 * last one, the candidates are lost. Takes memory for the candidates of n_outputs_max_per_seq rows.
 * Errors, with nothing changed: QN_ERR_ARGUMENT (no such sequence; no chain, an empty or an
 * attached one); QN_ERR_MEMORY.
 */
QN_API qn_status qn_context_set_sampler(qn_context *ctx, int32_t seq, qn_sampler *chain,
                                        qn_error *err);
/* The chain of a sequence; NULL for none. */
QN_API qn_sampler *qn_context_get_sampler(const qn_context *ctx, int32_t seq);

/* The token that was picked for row `i` in the graph, QN_TOKEN_NONE where none was: no chain is
 * attached, its end runs outside, it does not pick, or every candidate is banned. Accepts nothing.
 * `err` is filled only where there is no such row. */
QN_API int32_t qn_context_sampled(const qn_context *ctx, int32_t i, qn_error *err);

/* What the graph left of a row, in the order of the candidates: arrays of `count`, valid until the
 * next decode or qn_context_set_sampler. */
typedef struct qn_row_candidates {
    const int32_t *ids;
    const float *logits; /* as the samplers left them; -inf: banned */
    const float *probs;  /* by which the token was drawn; NULL where none was */
    size_t count;
    bool sorted; /* by (logit descending, id ascending) */
} qn_row_candidates;

/*
 * QN_ERR_NOT_FOUND: there is no such row; it was not sampled in the graph (read
 * qn_context_logits); its token was picked there and options.keep_candidates is not set; or the
 * chain was detached since.
 */
QN_API qn_status qn_context_candidates(qn_context *ctx, int32_t i, qn_row_candidates *out,
                                       qn_error *err);

/*
 * A token for row `i`, accepted by `sampler` (usually a chain); NULL means the chain attached to
 * the row's sequence.
 *  - A token that was picked in the graph is it.
 *  - From candidates that the graph left: the attached chain goes on where the graph stopped;
 *    another sampler is applied to them.
 *  - Otherwise the sampler is applied to the row's logits.
 * Several rows of a sequence are taken in their order. QN_ERR_NOT_FOUND: every candidate is banned,
 * the sampler did not pick, the row is gone, or it was sampled for another text than was accepted
 * and its chain looks at the text; QN_ERR_ARGUMENT: no sampler. Nothing was accepted then.
 */
QN_API qn_status qn_context_sample(qn_context *ctx, qn_sampler *sampler, int32_t i, int32_t *token,
                                   qn_error *err);

/*
 * The memory of sequences. An id out of range is QN_ERR_ARGUMENT (false, -1) and changes nothing.
 */

/*
 * Removes the positions [p0, p1) of a sequence, of all sequences for seq < 0. A tail can always be
 * removed unless what remains could not be continued exactly, because a sliding window has already
 * dropped what the next token would look at: then QN_ERR_ARGUMENT, and nothing changes; removing
 * the whole sequence always works. A hole in the middle must be closed by seq_add before it can go
 * on.
 */
QN_API qn_status qn_context_seq_rm(qn_context *ctx, int32_t seq, int32_t p0, int32_t p1,
                                   qn_error *err);
/* `to` also gets the positions [p0, p1) of `from`, none of which it may hold; memory is shared
 * until one of them changes it. QN_ERR_FULL: no room for a block that is shared in part. */
QN_API qn_status qn_context_seq_cp(qn_context *ctx, int32_t from, int32_t to, int32_t p0,
                                   int32_t p1, qn_error *err);
/* Removes all other sequences. */
QN_API qn_status qn_context_seq_keep(qn_context *ctx, int32_t seq, qn_error *err);
/* Adds `delta` to the positions [p0, p1): keys are turned to their new place. Positions that fall
 * below 0 are dropped, none may fall on one that stays. The turned keys are rounded again, so what
 * follows is close to, not equal to, what a sequence computed at its new place gives.
 * QN_ERR_UNSUPPORTED where qn_context_can_shift is false. */
QN_API qn_status qn_context_seq_add(qn_context *ctx, int32_t seq, int32_t p0, int32_t p1,
                                    int32_t delta, qn_error *err);
/* Smallest and largest position that is held, -1 for an empty sequence. */
QN_API int32_t qn_context_pos_min(const qn_context *ctx, int32_t seq);
QN_API int32_t qn_context_pos_max(const qn_context *ctx, int32_t seq);
QN_API bool qn_context_can_shift(const qn_context *ctx);
/* Whether all that a token at position `pos` must see is still held, so that removing [pos, end)
 * and going on is exact. */
QN_API bool qn_context_can_resume(const qn_context *ctx, int32_t seq, int32_t pos);
/* Empties all sequences. */
QN_API void qn_context_clear(qn_context *ctx);

/*
 * State: what the sequences hold, of the whole context or of one sequence (which may be loaded into
 * another id or a context of another size). Not in it: output rows, samplers, options. Loading is
 * all or nothing: a damaged or foreign state is refused with QN_ERR_FORMAT, one that does not fit
 * with QN_ERR_FULL, and nothing is changed. `seq` < 0: the whole context.
 */
/* Bytes that get would write; 0 for an id out of range. */
QN_API size_t qn_context_state_size(const qn_context *ctx, int32_t seq);
/* QN_ERR_ARGUMENT where `capacity` is too small. */
QN_API qn_status qn_context_state_get(const qn_context *ctx, int32_t seq, void *bytes,
                                      size_t capacity, size_t *written, qn_error *err);
QN_API qn_status qn_context_state_set(qn_context *ctx, int32_t seq, const void *bytes, size_t n,
                                      qn_error *err);
/* The same in a file, with the tokens that the caller wants to find there again. Saving replaces a
 * file only when it is complete. */
QN_API qn_status qn_context_state_save(const qn_context *ctx, int32_t seq, const char *path,
                                       const int32_t *tokens, size_t n_tokens, qn_error *err);
/* At most `capacity` tokens are stored; more of them in the file are QN_ERR_LIMIT and nothing is
 * changed. tokens NULL with capacity 0: the list is skipped. *n_tokens gets the file's count. */
QN_API qn_status qn_context_state_load(qn_context *ctx, int32_t seq, const char *path,
                                       int32_t *tokens, size_t capacity, size_t *n_tokens,
                                       qn_error *err);

/* 1 .. QN_MAX_THREADS each. Results do not depend on them. */
QN_API qn_status qn_context_set_n_threads(qn_context *ctx, int32_t n_threads,
                                          int32_t n_threads_batch, qn_error *err);
/* Whether the next decodes make embedding rows. */
QN_API void qn_context_set_embeddings(qn_context *ctx, bool embeddings);

/* What was done since the context was made or the counters were reset. */
typedef struct qn_counters {
    double prompt_ms, generation_ms; /* time in decodes of several tokens, of one token */
    int64_t n_prompt_tokens, n_generation_tokens;
    int64_t n_decodes, n_micro_batches;
    int64_t n_plans_made, n_plans_reused;
} qn_counters;
QN_API qn_counters qn_context_counters(const qn_context *ctx);
QN_API void qn_context_reset_counters(qn_context *ctx);

/* Bytes that the context holds. */
typedef struct qn_memory_report {
    size_t store_bytes;                    /* keys and values */
    size_t compute_bytes;                  /* workspace of plans */
    size_t output_bytes;                   /* rows */
    int32_t n_positions, n_positions_used; /* room of the store */
} qn_memory_report;
QN_API qn_memory_report qn_context_memory(const qn_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
