/*
 * quern/type.h: the number formats of tensors. The values of qn_type are those of the GGUF file
 * format, so a type read from a file is one of these or is refused.
 */
#ifndef QUERN_TYPE_H
#define QUERN_TYPE_H

#include <quern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qn_type {
    QN_TYPE_F32 = 0,
    QN_TYPE_F16 = 1,
    QN_TYPE_Q4_0 = 2,
    QN_TYPE_Q4_1 = 3,
    QN_TYPE_Q5_0 = 6,
    QN_TYPE_Q5_1 = 7,
    QN_TYPE_Q8_0 = 8,
    QN_TYPE_Q8_1 = 9,
    QN_TYPE_Q2_K = 10,
    QN_TYPE_Q3_K = 11,
    QN_TYPE_Q4_K = 12,
    QN_TYPE_Q5_K = 13,
    QN_TYPE_Q6_K = 14,
    QN_TYPE_Q8_K = 15,
    QN_TYPE_IQ2_XXS = 16,
    QN_TYPE_IQ2_XS = 17,
    QN_TYPE_IQ3_XXS = 18,
    QN_TYPE_IQ1_S = 19,
    QN_TYPE_IQ4_NL = 20,
    QN_TYPE_IQ3_S = 21,
    QN_TYPE_IQ2_S = 22,
    QN_TYPE_IQ4_XS = 23,
    QN_TYPE_I8 = 24,
    QN_TYPE_I16 = 25,
    QN_TYPE_I32 = 26,
    QN_TYPE_I64 = 27,
    QN_TYPE_F64 = 28,
    QN_TYPE_IQ1_M = 29,
    QN_TYPE_BF16 = 30,
    QN_TYPE_TQ1_0 = 34,
    QN_TYPE_TQ2_0 = 35,
    QN_TYPE_MXFP4 = 39,
    QN_TYPE_NVFP4 = 40,
    QN_TYPE_Q1_0 = 41,
    QN_TYPE_Q2_0 = 42,
    QN_TYPE_COUNT = 43 /* one past the largest id; ids in between may be unused */
} qn_type;

/* Layout of a type: `block_values` consecutive values of a row take `block_bytes` bytes. */
typedef struct qn_type_info {
    const char *name;      /* lower case, as "q4_0" */
    uint32_t block_values; /* 1 for plain numbers */
    uint32_t block_bytes;
    bool quantized; /* a block format */
} qn_type_info;

/* The row of the type table, or NULL for an id that is not a type. Thread safe. */
QN_API const qn_type_info *qn_type_get_info(int64_t id);

/* The type of that name (any letter case); false where there is none. Thread safe. */
QN_API bool qn_type_from_name(const char *name, qn_type *out);

/*
 * Bytes of one row of `n` values. Fails with QN_ERR_FORMAT where n is negative or not a multiple of
 * the block, and with QN_ERR_LIMIT where the product overflows. Thread safe.
 */
QN_API qn_status qn_type_row_bytes(qn_type type, int64_t n, size_t *out, qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
