/*
 * join.h: the chunk sums of a dot product, joined pairwise by index as they come.
 *
 * The sums of chunks 0, 1, 2, … are the leaves of the binary tree (c0+c1)+(c2+c3)…, an odd one left
 * over moving up unchanged. Streaming: a sum that is a right child is added to its left sibling at
 * once, so that after chunk i one sum waits on the level of each set bit of i + 1; at the end they
 * are added from the lowest level up, each to the right of the next.
 */
#ifndef QUERN_DEVICE_CPU_JOIN_H
#define QUERN_DEVICE_CPU_JOIN_H

#include <stdint.h>

/* Levels of the tree; rows have at most 256 * 2^(levels - 1) values. */
#define QN_JOIN_LEVELS 24

/* How many waiting sums, on levels 0 and up, the sum of chunk `index` is added to when it comes:
 * (((level 1) + ((level 0) + sum))…; the result then waits on the level of that number. */
static inline int qn__join_count(int64_t index)
{
    return __builtin_ctzll(~(unsigned long long)index);
}

#endif
