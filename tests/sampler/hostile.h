/* hostile.h: rows of all kinds for the tests of row functions and passes. */
#ifndef QUERN_TESTS_SAMPLER_HOSTILE_H
#define QUERN_TESTS_SAMPLER_HOSTILE_H

#include "support/support.h"

#include <math.h>

/* Rows that samplers must bear. */
enum {
    NORMAL,
    TIED,
    NAN_ROW,
    ALL_BANNED,
    ONE_LEFT,
    INFINITE,
    TINY,
    FLAT,
    SPREAD,
    PEAKED,  /* as a model gives them: most of the weight on few */
    CLUSTER, /* these stand side by side */
    N_ROWS
};

static inline float row_value(int kind, size_t i, size_t n, qn_test_random *r)
{
    float x = qn_test_normal(r) * 4.0F;
    switch (kind) {
    case TIED:
        return (float)(qn_test_bits(r) % 5);
    case NAN_ROW:
        return qn_test_bits(r) % 3 ? x : NAN;
    case ALL_BANNED:
        return -INFINITY;
    case ONE_LEFT:
        return i == n / 2 ? -3.0F : -INFINITY;
    case INFINITE:
        return qn_test_bits(r) % 4 ? x : (qn_test_bits(r) % 2 ? INFINITY : -INFINITY);
    case TINY:
        return (qn_test_bits(r) % 2 ? 1.0F : -1.0F) * (float)(qn_test_bits(r) % 9) * 0x1p-149F;
    case FLAT:
        return 7.25F;
    case SPREAD:
        return x * 1e37F;
    case PEAKED:
        return qn_test_bits(r) % 97 ? x * 0.5F : 12.0F + x;
    case CLUSTER:
        return i / 100 == n / 200 ? 12.0F + x : x * 0.5F;
    default:
        return x;
    }
}

static inline void make_row(int kind, float *row, size_t n, qn_test_random *r)
{
    for (size_t i = 0; i < n; i++) {
        row[i] = row_value(kind, i, n, r);
    }
}

#endif
