/*
 * pack.h: weights as the matrix kernels of the CPU read them.
 *
 * A packed matrix is planes (ne[2]: experts, heads), a plane is *groups* of 16 rows (the last one
 * filled up with zero rows), a group is *chunks* of 256 values of each of its rows, one behind the
 * other. The last chunk of a row whose length is no multiple of 256 holds only the blocks that
 * exist. So a group is read from its first byte to its last, and a vector lane is a row.
 *
 * The chunk of a block format begins with
 *
 *   super   d (and dmin) of the K formats
 *
 * Then come its n <= 8 blocks of 32 values, each of them
 *
 *   low     low bits of the levels
 *   high    high bits of the levels, where a format splits them
 *   sub     integer sub-scales (and minima) of the K formats
 *   scale   d (and m) of the 32-value formats
 *
 * and it is padded to 64 bytes. So a kernel that goes from block to block reads one stream, which
 * the processor's prefetch follows; with arrays of levels and of scales behind each other it read
 * up to a sixth less. Levels: the unit is the quad, values 4 i .. 4 i + 3 of a block (i = 0 .. 7)
 * of all 16 rows: 64 bytes at 8 bits, the byte 4 r + j being value 4 i + j of row r. At b bits 8 /
 * b quads share the same 64 bytes: with v vectors in a block, quad i lies in vector i % v, bits b
 * (i / v) and up. Scales: the 16 rows one behind the other, F16 (MXFP4: one byte E8M0); where
 * there are two (d and m), 16 of the first, then 16 of the second; likewise the sub-scales:
 * [scale][row] bytes, those of Q6_K, Q3_K (less 32) and IQ4_XS (less 32) signed.
 *
 * Float formats: [k][16 rows] F32 or F16; BF16 in pairs of k, [k / 2][16 rows][2], so that a lane
 * of 32 bits holds two values of its row; an odd last value has a zero beside it.
 *
 * A packed matrix is as large as in the file; Q3_K grows by 5 %, Q4_K, Q5_K and IQ4_XS by 3 % and
 * less (6-bit scales in bytes).
 */
#ifndef QUERN_DEVICE_CPU_PACK_H
#define QUERN_DEVICE_CPU_PACK_H

#include <quern/type.h>

#include "base/mem.h"

#define QN_PACK_ROWS  16  /* rows of a group */
#define QN_PACK_CHUNK 256 /* values of a chunk, also the chunk of the dot product */
#define QN_PACK_BLOCK 32  /* values that share an activation scale */
#define QN_PACK_MAX_K                                                                              \
    (INT64_C(1) << 31) /* values of a row: what the kernels' stacks hold (join.h) */

/* Bytes of the parts of a block format, for 16 rows: see above. */
typedef struct qn_pack_layout {
    uint32_t low, high, sub, scale; /* a block */
    uint32_t super;                 /* a chunk */
} qn_pack_layout;

/* The layout of a block format; all zero for other types. Constant folds for a constant type. */
static inline qn_pack_layout qn__pack_layout(qn_type type)
{
    switch (type) {
    case QN_TYPE_Q4_0:
    case QN_TYPE_IQ4_NL:
        return (qn_pack_layout){.low = 256, .scale = 32};
    case QN_TYPE_Q4_1:
        return (qn_pack_layout){.low = 256, .scale = 64};
    case QN_TYPE_Q5_0:
        return (qn_pack_layout){.low = 256, .high = 64, .scale = 32};
    case QN_TYPE_Q5_1:
        return (qn_pack_layout){.low = 256, .high = 64, .scale = 64};
    case QN_TYPE_Q8_0:
        return (qn_pack_layout){.low = 512, .scale = 32};
    case QN_TYPE_MXFP4:
        return (qn_pack_layout){.low = 256, .scale = 16};
    case QN_TYPE_Q2_K: /* sub: two u8 of scale | minimum << 4 */
        return (qn_pack_layout){.low = 128, .sub = 32, .super = 64};
    case QN_TYPE_Q3_K: /* sub: two i8 */
        return (qn_pack_layout){.low = 128, .high = 64, .sub = 32, .super = 32};
    case QN_TYPE_Q4_K: /* sub: u8 scale, u8 minimum */
        return (qn_pack_layout){.low = 256, .sub = 32, .super = 64};
    case QN_TYPE_Q5_K: /* as Q4_K */
        return (qn_pack_layout){.low = 256, .high = 64, .sub = 32, .super = 64};
    case QN_TYPE_Q6_K: /* sub: two i8 */
        return (qn_pack_layout){.low = 256, .high = 128, .sub = 32, .super = 32};
    case QN_TYPE_IQ4_XS: /* sub: one i8 */
        return (qn_pack_layout){.low = 256, .sub = 16, .super = 32};
    default:
        return (qn_pack_layout){0};
    }
}

/* Bytes of a block of 16 rows. */
static inline uint32_t qn__pack_block_bytes(qn_type type)
{
    const qn_pack_layout at = qn__pack_layout(type);
    return at.low + at.high + at.sub + at.scale;
}

/* Where in a chunk the parts of a block begin; super begins at 0. */
typedef struct qn_pack_place {
    size_t low, high, sub, scale;
} qn_pack_place;

static inline qn_pack_place qn__pack_place(qn_type type, int64_t block)
{
    const qn_pack_layout at = qn__pack_layout(type);
    qn_pack_place place;
    place.low = at.super + (size_t)block * qn__pack_block_bytes(type);
    place.high = place.low + at.low;
    place.sub = place.high + at.high;
    place.scale = place.sub + at.sub;
    return place;
}

/* Bytes of a chunk of `values` <= 256 values (a multiple of 32 for block formats). */
static inline size_t qn__pack_chunk_bytes(qn_type type, int64_t values)
{
    size_t k = (size_t)values;
    switch (type) {
    case QN_TYPE_F32:
        return k * QN_PACK_ROWS * 4;
    case QN_TYPE_F16:
        return qn__align_up(k * QN_PACK_ROWS * 2, 64);
    case QN_TYPE_BF16:
        return (k + 1) / 2 * QN_PACK_ROWS * 4;
    default:
        break;
    }
    return qn__align_up(
        qn__pack_layout(type).super + k / QN_PACK_BLOCK * qn__pack_block_bytes(type), 64);
}

/* Bytes of a group of rows of `k` values. */
static inline size_t qn__pack_group_bytes(qn_type type, int64_t k)
{
    size_t bytes = (size_t)(k / QN_PACK_CHUNK) * qn__pack_chunk_bytes(type, QN_PACK_CHUNK);
    if (k % QN_PACK_CHUNK != 0) {
        bytes += qn__pack_chunk_bytes(type, k % QN_PACK_CHUNK);
    }
    return bytes;
}

/* Whether matrices of this type can be packed and multiplied. */
bool qn__cpu_pack_supports(qn_type type);

/* Groups of a matrix ne[0..2]: those of all planes. */
int64_t qn__cpu_pack_groups(const int64_t ne[4]);

/*
 * Bytes of the packed form of a matrix; 0 where the type is not supported, a dimension is below 1,
 * ne[3] is not 1, ne[0] is no multiple of the block length or above QN_PACK_MAX_K, or the size
 * overflows.
 */
size_t qn__cpu_pack_bytes(qn_type type, const int64_t ne[4]);

/* The first row (numbered through all planes) of a group; of the group behind the last: the number
 * of rows. Groups beside each other have rows beside each other. */
int64_t qn__cpu_pack_first_row(const int64_t ne[4], int64_t group);

/*
 * Packs groups first_group .. first_group + n_groups (numbered through all planes) of a matrix.
 * Their rows lie one behind the other at `rows` as in a file (any alignment). `packed` is the start
 * of the whole packed form, aligned to 64 bytes. Different groups may be packed by different
 * threads at the same time. Any bytes are accepted.
 */
void qn__cpu_pack_rows(qn_type type, const int64_t ne[4], const void *rows, int64_t first_group,
                       int64_t n_groups, void *packed);

/* Whether single rows of this type can be had back from the packed form. */
bool qn__cpu_unpack_supports(qn_type type);

/* Writes row `row` (numbered through all planes) to `out` as the file has it. Its columns must be
 * whole blocks. Thread safe. */
void qn__cpu_unpack_row(qn_type type, const int64_t ne[4], const void *packed, int64_t row,
                        void *out);

#endif
