/*
 * weight.h: a model's weight as the graph and the devices see it.
 *
 * The model room fills a qn_weight from the file (name, type, shape, where the bytes lie). The
 * device that will compute with it may then pack it (device/device.h): rearranged rows replace the
 * bytes of the file, whose pages are given back. Rows of embedding tables are read from `data`, or
 * from the packed form where that is all there is.
 */
#ifndef QUERN_TENSOR_WEIGHT_H
#define QUERN_TENSOR_WEIGHT_H

#include <quern/type.h>

enum {
    QN_WEIGHT_MATRIX = 1, /* source 0 of MUL_MAT or MUL_MAT_ID */
    QN_WEIGHT_ROWS = 2,   /* source 0 of GET_ROWS */
    QN_WEIGHT_PLAIN = 4   /* operand of other nodes (norm weights, biases): F32, read from `data` */
};

typedef struct qn_weight {
    char name[64];
    qn_type type;
    int64_t ne[4];    /* file order: ne[0] = input width, ne[1] = rows, ne[2] = planes (experts) */
    uint32_t uses;    /* QN_WEIGHT_… */
    const void *data; /* contiguous rows as in the file; NULL once packed and not needed any more */
    size_t bytes;     /* of data */
    void *packed;     /* the device's own form of a MATRIX; NULL while not packed */
    size_t packed_bytes;
} qn_weight;

#endif
