/*
 * quant.h: the number formats at work: rows of blocks to float and back. One table row a type; one
 * source file a family: plain.c, simple.c, k_23.c, k_45.c, k_68.c, iq4.c, fp4.c, ternary.c,
 * lattice_23.c, lattice_1.c.
 *
 * A row is `n` values, a multiple of the block length; rows are independent of each other, so any
 * division of a tensor among threads gives the same bytes. Decoding is exact in single precision
 * and one order (spec: the format itself), encoding is reproducible byte for byte: IEEE single
 * precision, ascending sums, nothing fused. All functions are thread safe.
 */
#ifndef QUERN_QUANT_QUANT_H
#define QUERN_QUANT_QUANT_H

#include <quern/type.h>

typedef struct qn_quant qn_quant;

struct qn_quant {
    /* Blocks of one row to n floats. Any bytes are accepted; bad ones give meaningless numbers. */
    void (*decode)(const void *blocks, float *y, int64_t n);

    /*
     * n floats to the blocks of one row. `weights`: n importance weights (>= 0) of the columns, or
     * NULL. `tables`: what make_tables gave, else NULL. Finite input gives valid blocks wherever
     * the scales fit the format; the caller checks with `valid`. NULL: no encoder.
     */
    void (*encode)(const float *x, void *blocks, int64_t n, const float *weights,
                   const void *tables);

    /* Which fields of a block must be finite half floats: their byte offsets. */
    uint8_t half_count;
    uint16_t half_at[2];

    /* Index of the first of `count` blocks that breaks another rule of the format (a forbidden
     * code, an infinite f32), or -1. NULL: there is none. Use qn__quant_find_invalid. */
    int64_t (*find_invalid)(const void *blocks, int64_t count);

    /* Tables that the encoder needs, made once for any number of rows and threads; freed with
     * free(). NULL without memory. The member is NULL where there is no need of them. */
    void *(*make_tables)(void);

    bool needs_weights;   /* cannot encode without importance weights */
    bool activation_only; /* no weight type: refused in models */
};

/* The row of a type, or NULL for types without one (integers, f64, unknown ids). */
const qn_quant *qn__quant_get(qn_type type);

/*
 * Index of the first of `count` blocks (numbers, for types without blocks) at `data` with an
 * infinity, a NaN or a forbidden code, or -1 where all are valid. Integers always are.
 */
int64_t qn__quant_find_invalid(qn_type type, const void *data, int64_t count);

/* The same as an error that names row and block, for `rows` rows of `n` values. */
qn_status qn__quant_check(qn_type type, const void *data, int64_t first_row, int64_t rows,
                          int64_t n, qn_error *err);

#endif
