/*
 * memory.h: the paged KV store of a context.
 *
 * Layers are put in groups; the layers of a group see the same keys (all of them, or a window). A
 * group has a pool of blocks of 32 positions; block b of a group is row b of the K and V stores of
 * all its layers. A sequence is, in each group, a list of entries consecutive in block index, each
 * a block number and a mask of the places that hold keys of this sequence; position p lives in
 * place p mod 32 of the entry of block index p / 32. Blocks are counted, shared between sequences,
 * and copied before a sequence writes into one that others hold. Window groups give blocks back
 * once they lie behind the window (and `window_slack` positions more, so that a tail can be taken
 * back).
 *
 * The store is always unified: every sequence draws from the same pools. Sharing is invisible: an
 * operation on one sequence never changes what another one holds. (A shift therefore moves the
 * named sequence only, also where its cells are shared: prefixes are shared without being asked
 * for, and must not tie strangers together.)
 *
 * Full blocks of a sequence that began at position 0 with known tokens are remembered by content
 * (parent content and the 32 tokens, compared exactly) and stay findable after their sequence is
 * gone until the place is needed: qn__kv_find_prefix.
 *
 * All memory is taken by qn__kv_make. Not thread safe: one context, one store.
 *
 * How a batch passes through:
 *     qn__kv_batch_begin      checks, cuts and tries the whole batch; changes nothing that shows
 *     while (qn__kv_ubatch_next(kv, &ub))
 *         qn__kv_ubatch_fill  slots, tables, masks, rows of each group
 *         … compute …
 *         qn__kv_ubatch_done, or qn__kv_batch_abort: removes this micro-batch's positions, ends
 */
#ifndef QUERN_MEMORY_MEMORY_H
#define QUERN_MEMORY_MEMORY_H

#include <quern/device.h>

#include "base/mem.h"
#include "model/model.h"
#include "tensor/graph.h"

#define QN_KV_MAX_SEQ 256
#define QN_KV_MAX_POS (INT32_C(1) << 30) /* positions are below this */

/* How K of a rope kind was rotated, so that a shift can rotate it on (with magnitude 1). */
typedef struct qn_kv_rope {
    qn_rope_params params;
    const float *factors; /* n_rot / 2 values or NULL; copied */
} qn_kv_rope;

typedef struct qn_kv_config {
    const qn_kv_layout *layout; /* layers and groups, of the model */
    const qn_kv_rope *ropes; /* indexed by the layers' rope; NULL where layout->can_shift is not */
    int32_t n_ropes;
    int64_t n_ctx;        /* cells: at least so many positions fit, over all sequences */
    int32_t n_seq_max;    /* 1 .. QN_KV_MAX_SEQ */
    int32_t n_ubatch;     /* most tokens of a micro-batch */
    int32_t window_slack; /* positions kept behind a window, so that a tail can be removed */
    bool full_windows;    /* window groups keep all positions */
    qn_type type_k, type_v;
    qn_device *device;   /* where the stores live, outlives them; NULL: plain memory */
    uint64_t model_hash; /* stands for architecture and sizes; goes into the state's hash: a state
                            loads into its own model only */
} qn_kv_config;

typedef struct qn_kv qn_kv;

/* Takes all memory. The config and what it points to are copied. Errors: ARGUMENT (a value out of
 * range, a type that does not suit the head sizes), LIMIT, MEMORY. */
qn_status qn__kv_make(qn_kv **out, const qn_kv_config *config, qn_error *err);
void qn__kv_free(qn_kv *kv);

/* Stores as graph leaves: qn__graph_store(g, s.type, s.ne, s.data, …). `layer` is an index in
 * layout->layers. */
typedef struct qn_kv_store {
    qn_type type;
    int64_t ne[4];
    void *data; /* NULL: the layer has no such store */
    size_t bytes;
} qn_kv_store;
qn_kv_store qn__kv_store_k(const qn_kv *kv, int32_t layer);
qn_kv_store qn__kv_store_v(const qn_kv *kv, int32_t layer);
size_t qn__kv_bytes(const qn_kv *kv);    /* of all stores */
int64_t qn__kv_n_cells(const qn_kv *kv); /* places of the largest group */
int64_t qn__kv_n_used(const qn_kv *kv);  /* places held by sequences, in the largest group */

/*
 * Sequence operations. p0 < 0 means 0, p1 < 0 means no end; ranges are half-open. Ids outside
 * 0 .. n_seq_max - 1 give false, an error, or -1. None may be called between qn__kv_batch_begin and
 * the end of that batch.
 */

/* Removes [p0, p1) of sequence s, of every sequence for s < 0. False, with nothing changed, where a
 * tail would go and what remains of a window is not enough to go on from p0 (qn__kv_can_resume);
 * removing everything always succeeds. */
bool qn__kv_seq_rm(qn_kv *kv, int32_t s, int32_t p0, int32_t p1);

/* Gives `to` the positions [p0, p1) of `from` (whole blocks are shared). FULL where a partial block
 * finds no room; ARGUMENT where `to` holds one of the positions already or could not be continued
 * exactly at its new end because a window is incomplete there. Nothing changes on an error. */
qn_status qn__kv_seq_cp(qn_kv *kv, int32_t from, int32_t to, int32_t p0, int32_t p1, qn_error *err);

/* Removes all other sequences. */
void qn__kv_seq_keep(qn_kv *kv, int32_t s);

/*
 * Moves the positions [p0, p1) of s by delta; those that fall below 0 are freed. K is rotated on by
 * the sum of all moves before it is next used: once, magnitude 1. UNSUPPORTED where can_shift is
 * false; ARGUMENT where a moved position would fall on one that stays; FULL where shared blocks
 * find no room to be copied. Nothing changes on an error.
 */
qn_status qn__kv_seq_add(qn_kv *kv, int32_t s, int32_t p0, int32_t p1, int32_t delta,
                         qn_error *err);

int32_t qn__kv_seq_pos_min(const qn_kv *kv, int32_t s); /* largest of the groups; -1: empty */
int32_t qn__kv_seq_pos_max(const qn_kv *kv, int32_t s); /* -1: empty */
bool qn__kv_can_shift(const qn_kv *kv);

/* Whether a token at position p would see all that its windows let through, once everything from p
 * on is removed. False for an id out of range. */
bool qn__kv_can_resume(const qn_kv *kv, int32_t s, int32_t p);

/* Frees all sequences and forgets all prefixes; `data` also zeroes the stores. */
void qn__kv_clear(qn_kv *kv, bool data);

/*
 * Prefixes. find: how many leading tokens are known, a multiple of 32. adopt: gives them to the
 * empty sequence s and returns how many it got (0 where s is not empty). Results computed under
 * other weights (adapters) must not be found: set_salt takes a number that stands for what the
 * cached values depend on besides the tokens.
 */
int32_t qn__kv_find_prefix(const qn_kv *kv, const int32_t *tokens, int32_t n);
int32_t qn__kv_adopt_prefix(qn_kv *kv, int32_t s, const int32_t *tokens, int32_t n);
void qn__kv_set_salt(qn_kv *kv, uint64_t salt);

/* A token of a batch. */
typedef struct qn_kv_token {
    int32_t token; /* -1: not known (embeddings); its block is then not remembered */
    int32_t pos;
    int32_t n_seq;      /* at least 1 */
    const int32_t *seq; /* distinct ids; the token attends as the first one */
} qn_kv_token;

/* A placed micro-batch: tokens first .. first + n_tokens of the batch, in batch order. */
typedef struct qn_kv_ubatch {
    int32_t first, n_tokens;
    int32_t n_table[QN_MAX_KV_GROUPS]; /* entries that fill writes for each group */
} qn_kv_ubatch;

/*
 * Begins a batch: checks that every sequence goes on at pos_max + 1 (or starts, anywhere) without
 * gaps and that coupled sequences (several ids of a token) hold the same positions and the same
 * last block; cuts into micro-batches of at most n_ubatch tokens (a token whose set of ids differs
 * from that of an earlier one that shares an id with it begins a new one); and makes sure that all
 * of them have room. `tokens` must stay valid until the batch ends. `n_ubatch` is at most that of
 * the config. Errors: ARGUMENT, FULL; nothing has changed then, and no batch is open.
 */
qn_status qn__kv_batch_begin(qn_kv *kv, const qn_kv_token *tokens, int32_t n, int32_t n_ubatch,
                             qn_error *err);

/* Places the next micro-batch; false when there is none left: the batch has then ended. */
bool qn__kv_ubatch_next(qn_kv *kv, qn_kv_ubatch *ub);

/*
 * The graph inputs of the placed micro-batch for one group, as graph.h describes them. `capacity`
 * is the length of tables and masks (at least ub.n_table[group]), the rest of which is zeroed;
 * `n_rows` the tokens of slots [n_rows] and rows [4 * n_rows] (at least ub.n_tokens): slots beyond
 * are -1 (stores nothing), rows beyond have no entries (attend to nothing).
 */
void qn__kv_ubatch_fill(const qn_kv *kv, int32_t group, int32_t n_rows, int32_t *slots,
                        int32_t capacity, int32_t *tables, int32_t *masks, int32_t *rows);

void qn__kv_ubatch_done(qn_kv *kv); /* its positions are computed and stay */
void qn__kv_batch_abort(
    qn_kv *kv); /* removes the placed micro-batch from all ids; ends the batch */

/*
 * State. write appends the state of sequence s, or of all for s < 0, to `out`; pending shifts are
 * applied first. read takes it back: a state of all replaces everything; a sequence's state, into
 * any id, replaces that sequence. The input is checked whole before anything changes. Errors:
 * FORMAT (damaged, or of another model or store), FULL, ARGUMENT, MEMORY.
 */
qn_status qn__kv_state_write(qn_kv *kv, int32_t s, qn_buf *out, qn_error *err);
qn_status qn__kv_state_read(qn_kv *kv, int32_t s, const uint8_t *data, size_t size, qn_error *err);
size_t qn__kv_state_size(qn_kv *kv, int32_t s); /* exact; 0 for a bad id */

/* The invariants, for tests: false and a message where one is broken. */
bool qn__kv_check(const qn_kv *kv, qn_error *err);

#endif
