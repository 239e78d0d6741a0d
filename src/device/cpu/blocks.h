/*
 * blocks.h: many columns with the block formats: the order in which packed weights and activations
 * meet, the same for all instruction sets. What differs, opening a chunk and multiplying it, comes
 * as functions.
 *
 * A chunk of 16 rows is *opened* once (every level a byte, every scale a float), which leaves it in
 * the L1 cache; then the columns meet it, a few at a time. Columns are taken by the *block*, K by
 * the *panel* of some chunks, so that the activations of a block in a panel stay in the L2 cache
 * while the groups of the tile walk over them. Chunk sums wait in stacks (join.h), one a group.
 */
#ifndef QUERN_DEVICE_CPU_BLOCKS_H
#define QUERN_DEVICE_CPU_BLOCKS_H

#include "device/cpu/matmul.h"

enum {
    QN_BLOCKS_COLS = 128,           /* columns of a block */
    QN_BLOCKS_OPEN_BYTES = 9 << 10, /* an open chunk has at most; aligned to 64 */
    QN_BLOCKS_ACT_BYTES = 512       /* what a kernel makes of a column's chunk, if it does */
};

/* An open chunk on its way. */
typedef struct qn_blocks_chunk {
    const void *open;
    int64_t n_blocks;
    int64_t index;        /* of the chunk in its row */
    const uint8_t *fetch; /* weights that are opened next, from here … */
    const uint8_t *fetch_end;
    int64_t fetch_bytes; /* … to there: a block of a walk asks for so many, a multiple of 64 */
    const void *acts;    /* what `prepare` made of the columns, one behind the other */
    size_t level;        /* floats from one level of the stacks to the next */
} qn_blocks_chunk;

/* Multiplies with n_cols columns and joins the sums to the stacks: those of column c, 16 rows, are
 * at stack + 16 * c, on the lowest level. */
typedef void (*qn_blocks_walk_fn)(const qn_blocks_chunk *chunk, const qn_act_chunk *const x[],
                                  int64_t n_cols, float *stack);

typedef struct qn_blocks_kernel {
    qn_type type;
    void (*open)(const uint8_t *chunk, int64_t n_blocks, void *open);
    /* Brings a column's chunk into QN_BLOCKS_ACT_BYTES of another form, once for all groups of a
     * tile; NULL where walks take it as it is. */
    void (*prepare)(const qn_act_chunk *x, int64_t n_blocks, void *out);
    int64_t widest; /* columns that a walk takes together */
    qn_blocks_walk_fn walk;
} qn_blocks_kernel;

void qn__blocks_mul(const qn_blocks_kernel *kernel, const qn_matmul_tile *tile);

/* Asks for a block's share of the weights that come next, from *at on. */
QN_INLINE void qn__blocks_fetch(const qn_blocks_chunk *chunk, const uint8_t **at)
{
    const uint8_t *end = *at + chunk->fetch_bytes;
    for (; *at < end && *at < chunk->fetch_end; *at += 64) {
        __builtin_prefetch(*at);
    }
}

/*
 * Defines walk_<how>, a qn_blocks_walk_fn: all columns, `widest` at a time, then those that are
 * left, `rests` being QN_BLOCKS_REST(1) … QN_BLOCKS_REST(widest - 1). The file's own
 * walk(how, cols, chunk, x, first, stack, &fetch) multiplies with `cols` columns, a constant.
 */
#define QN_BLOCKS_WALK(how, widest, rests)                                                         \
    static void walk_##how(const qn_blocks_chunk *chunk, const qn_act_chunk *const x[],            \
                           int64_t n_cols, float *stack)                                           \
    {                                                                                              \
        const kind of = how;                                                                       \
        const uint8_t *fetch = chunk->fetch;                                                       \
        int64_t c = 0;                                                                             \
        for (; c + widest <= n_cols; c += widest) {                                                \
            walk(of, widest, chunk, x, c, stack, &fetch);                                          \
        }                                                                                          \
        switch (n_cols - c) {                                                                      \
            rests default : break;                                                                 \
        }                                                                                          \
    }
#define QN_BLOCKS_REST(cols)                                                                       \
    case cols:                                                                                     \
        walk(of, cols, chunk, x, c, stack, &fetch);                                                \
        break;

#endif
