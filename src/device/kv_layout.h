/*
 * kv_layout.h: how one block of a paged K or V store lies in memory. A block holds the 32 positions
 * of one KV head; the block of number b and head g of a store [.., .., G, n_blocks] starts at byte
 * (b * G + g) * qn__kv_block_bytes(…).
 *
 *  K, plain types   [d][32]: position fastest, so that a vector lane is a position
 *  V, plain types   [32][dv]: element fastest, so that a vector lane is an output element
 *  K, Q8_0          int8 [d][32], then F16 scales [d / 32][32]
 *  V, Q8_0          int8 [32][dv], then F16 scales [32][dv / 32]
 *
 * Q8_0 cells have one scale for 32 values of the head dimension of one position (d, dv multiples of
 * 32): s = F16(max |x| / 127), q = x / s rounded to nearest even and held within -127 .. 127, all
 * zero where s is. The value is (float)q * s, which F32 holds exactly.
 */
#ifndef QUERN_DEVICE_KV_LAYOUT_H
#define QUERN_DEVICE_KV_LAYOUT_H

#include <quern/type.h>

#include "tensor/graph.h"

/* The types a store can have: F32, F16, BF16, and Q8_0 where d is a multiple of 32. */
bool qn__kv_type_supported(qn_type type, int64_t d);

/* Bytes of one block of one head; 0 where the type is not supported or on overflow. */
size_t qn__kv_block_bytes(qn_type type, int64_t d);

/* One position of one head: `row` has d values, `place` is 0 .. 31. */
void qn__kv_put_k(qn_type type, void *block, int64_t d, int place, const float *row);
void qn__kv_get_k(qn_type type, const void *block, int64_t d, int place, float *row);
void qn__kv_put_v(qn_type type, void *block, int64_t dv, int place, const float *row);
void qn__kv_get_v(qn_type type, const void *block, int64_t dv, int place, float *row);

/* Copies the stored bits of one position, unchanged, from place to place. */
void qn__kv_move_k(qn_type type, void *to, int to_place, const void *from, int from_place,
                   int64_t d);
void qn__kv_move_v(qn_type type, void *to, int to_place, const void *from, int from_place,
                   int64_t dv);

#endif
