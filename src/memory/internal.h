/*
 * internal.h: what the files of this room share.
 *
 *  blocks.c    pools of blocks: counting, the list of unused ones, contents (known prefixes)
 *  table.c     one sequence in one group: its entries
 *  memory.c    making the store, its size, invariants
 *  sequence.c  operations on sequences, prefixes
 *  shift.c     moving positions
 *  batch.c     placing batches
 *  state.c     saving and restoring
 */
#ifndef QUERN_MEMORY_INTERNAL_H
#define QUERN_MEMORY_INTERNAL_H

#include "memory/memory.h"

#define SIDE  QN_KV_BLOCK
#define NONE  (-1)
#define SPARE 2 /* blocks of a pool that only a shift may take, and gives back */

/* A block of a pool. Those with no reference are in the pool's list, next to be taken first. */
typedef struct block {
    int32_t refs;
    int32_t content; /* index of what it holds, NONE: not findable */
    int32_t prev, next;
} block;

/* What 32 known tokens behind known ones are: exact, so that finding needs no trust in a hash. */
typedef struct content {
    uint64_t id, parent; /* ids are never used again */
    int32_t tokens[SIDE];
    int32_t block[QN_MAX_KV_GROUPS]; /* NONE: that group has it no longer */
    int32_t n_blocks;
    int32_t next; /* in its bucket, or in the free list */
} content;

/* One block index of one sequence. */
typedef struct entry {
    int32_t block; /* NONE where the mask is 0 */
    uint32_t mask; /* places that hold keys of the sequence */
} entry;

/* A sequence in a group. First and last entry have a mask that is not 0. */
typedef struct table {
    entry *entries;  /* [capacity] */
    int32_t head;    /* the first one in use */
    int32_t count;   /* in use; 0: empty */
    int32_t first;   /* block index of the first one */
    int32_t dropped; /* positions below it were given back behind the window; 0: none */
} table;

typedef struct group {
    qn_window window;
    int32_t window_size;
    int32_t n_blocks; /* spare ones included */
    int32_t capacity; /* of a table */
    block *blocks;
    int32_t free_head, free_tail, n_free;
    table *tables;  /* [n_seq_max] */
    int32_t *moved; /* [n_blocks][32]: by how much K is still to be rotated; NULL: cannot shift */
    bool any_moved;
    /* Shadows, for trying a batch. */
    block *saved_blocks;
    table *saved_tables; /* entries of their own */
    entry *scratch;      /* [capacity], of a shift */
    int32_t saved_head, saved_tail, saved_n_free;
} group;

typedef struct store {
    uint8_t *k, *v;          /* v NULL: none */
    size_t k_bytes, v_bytes; /* in all */
    size_t k_block, v_block; /* of all heads of a block */
} store;

typedef struct sequence {
    int32_t n_tokens; /* tokens known, from position 0 on without a gap */
    int32_t n_chain;  /* full blocks of them with an id, at most n_tokens / 32 */
    int32_t *tokens;  /* [token_capacity] */
    uint64_t *chain;  /* [token_capacity / 32]: content ids */
} sequence;

typedef struct batch {
    const qn_kv_token *tokens;
    int32_t n, n_ubatch;
    int32_t first, count; /* the placed micro-batch */
    bool open, placed;
} batch;

struct qn_kv {
    qn_kv_config config;
    qn_kv_layout layout;
    qn_kv_rope ropes[QN_MAX_ROPE_KINDS];
    int32_t n_groups, n_seq;
    group groups[QN_MAX_KV_GROUPS];
    store *stores; /* [layout.n_layers] */
    sequence *sequences;
    int32_t token_capacity;
    int32_t *token_block; /* the memory of all tokens and chains */
    uint64_t *chain_block;
    content *contents;
    int32_t n_contents, free_content;
    int32_t *buckets;
    int32_t n_buckets; /* a power of two */
    uint64_t next_id, salt;
    batch batch;
    int32_t *seq_mark, *seq_last; /* [n_seq], scratch of batch.c */
    float *staging;               /* one K head */
    float *angles;                /* cos and sin of the pairs of a rope kind */
};

/* blocks.c --------------------------------------------------------------------------------------
 */

/* How many blocks are to be had, without the spare ones. */
int32_t qn__kv_blocks_free(const group *g);

/* Takes an unused block with `refs` references; `dry`: leaves contents as they are. NONE: empty. */
int32_t qn__kv_block_take(qn_kv *kv, int32_t gi, int32_t refs, bool dry);
void qn__kv_block_release(qn_kv *kv, int32_t gi, int32_t b, int32_t refs);
/* One more reference to a block that may be unused so far. */
void qn__kv_block_share(qn_kv *kv, int32_t gi, int32_t b);
/* Its contents are about to change: it is not findable any more. */
void qn__kv_block_forget(qn_kv *kv, int32_t gi, int32_t b);
/* Copies the cells of a block in all layers of the group, pending moves too. */
void qn__kv_block_copy(qn_kv *kv, int32_t gi, int32_t to, int32_t from);
/* Copies one place in all layers of the group. */
void qn__kv_place_copy(qn_kv *kv, int32_t gi, int32_t to, int to_place, int32_t from,
                       int from_place);

uint64_t qn__kv_chain_root(const qn_kv *kv);
content *qn__kv_content_find(const qn_kv *kv, uint64_t parent, const int32_t *tokens);
/* The id of that content; the blocks (NONE where a group has none; findable as nothing so far) now
 * hold it, unless others do. */
uint64_t qn__kv_content_add(qn_kv *kv, uint64_t parent, const int32_t *tokens,
                            const int32_t blocks[QN_MAX_KV_GROUPS]);
void qn__kv_contents_clear(qn_kv *kv);

/* table.c ---------------------------------------------------------------------------------------
 */
static inline entry *qn__kv_entry(const table *t, int32_t i)
{
    return &t->entries[t->head + i];
}

int32_t qn__kv_table_min(const table *t); /* -1: empty */
int32_t qn__kv_table_max(const table *t);
/* Highest position below p, -1: none. */
int32_t qn__kv_table_below(const table *t, int32_t p);
/* The entry of a block index, or NULL. */
entry *qn__kv_table_find(const table *t, int32_t index);
/* Makes entries up to block index `index` exist, which is not below the first one; those that are
 * new are empty. False where the table is too short. */
bool qn__kv_table_extend(const group *g, table *t, int32_t index);
/* Takes empty entries off both ends. */
void qn__kv_table_trim(table *t);
/* Removes positions of the range [p0, p1). */
void qn__kv_table_remove(qn_kv *kv, int32_t gi, table *t, int64_t p0, int64_t p1);
/* Bits of the places of block `index` that lie in [p0, p1). */
uint32_t qn__kv_range_mask(int32_t index, int64_t p0, int64_t p1);
/* First position that a token at p needs. */
int32_t qn__kv_window_start(const qn_kv *kv, const group *g, int32_t p);

/* sequence.c, shift.c, batch.c ------------------------------------------------------------------
 */

/* Forgets what is known of tokens from position p on. */
void qn__kv_tokens_cut(sequence *s, int32_t p);
/* Puts an empty sequence into its first state. */
void qn__kv_sequence_reset_if_empty(qn_kv *kv, int32_t s);
bool qn__kv_id_ok(const qn_kv *kv, int32_t s);
/* Rotates what is to be rotated. */
void qn__kv_apply_moves(qn_kv *kv);

/* state.c ---------------------------------------------------------------------------------------
 */
#define QN_KV_STATE_HEADER ((size_t)40) /* bytes before the body; the last 8 are its checksum */
uint64_t qn__kv_state_checksum(const uint8_t *body, size_t n);

#endif
