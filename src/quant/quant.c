/* quant.c: the table of formats at work, one row a type, and the check of block data. */
#include "quant/quant.h"

#include <string.h>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/formats.h"

#define CODES(name)       .decode = qn__decode_##name, .encode = qn__encode_##name
#define HALF(type, field) .half_count = 1, .half_at = {offsetof(qn_block_##type, field)}
#define HALVES(type, one, other)                                                                   \
    .half_count = 2, .half_at = {offsetof(qn_block_##type, one), offsetof(qn_block_##type, other)}
#define FINDER(name) .find_invalid = qn__find_invalid_##name
#define TABLES(name) .make_tables = qn__tables_##name

static const qn_quant formats[QN_TYPE_COUNT] = {
    [QN_TYPE_F32] = {CODES(f32), FINDER(f32)},
    [QN_TYPE_F16] = {CODES(f16), FINDER(f16)},
    [QN_TYPE_BF16] = {CODES(bf16), FINDER(bf16)},
    [QN_TYPE_F64] = {FINDER(f64)}, /* checked, never converted */
    [QN_TYPE_Q4_0] = {CODES(q4_0), HALF(q4_0, d)},
    [QN_TYPE_Q4_1] = {CODES(q4_1), HALVES(q4_1, d, m)},
    [QN_TYPE_Q5_0] = {CODES(q5_0), HALF(q5_0, d)},
    [QN_TYPE_Q5_1] = {CODES(q5_1), HALVES(q5_1, d, m)},
    [QN_TYPE_Q8_0] = {CODES(q8_0), HALF(q8_0, d)},
    [QN_TYPE_Q8_1] = {CODES(q8_1), FINDER(q8_1), .activation_only = true},
    [QN_TYPE_Q2_K] = {CODES(q2_k), HALVES(q2_k, d, dmin)},
    [QN_TYPE_Q3_K] = {CODES(q3_k), HALF(q3_k, d)},
    [QN_TYPE_Q4_K] = {CODES(q4_k), HALVES(q4_k, d, dmin)},
    [QN_TYPE_Q5_K] = {CODES(q5_k), HALVES(q5_k, d, dmin)},
    [QN_TYPE_Q6_K] = {CODES(q6_k), HALF(q6_k, d)},
    [QN_TYPE_Q8_K] = {CODES(q8_k), FINDER(q8_k), .activation_only = true},
    [QN_TYPE_IQ4_NL] = {CODES(iq4_nl), HALF(iq4_nl, d)},
    [QN_TYPE_IQ4_XS] = {CODES(iq4_xs), HALF(iq4_xs, d)},
    [QN_TYPE_IQ2_XXS] = {CODES(iq2_xxs), HALF(iq2_xxs, d), TABLES(iq2_xxs), .needs_weights = true},
    [QN_TYPE_IQ2_XS] = {CODES(iq2_xs), HALF(iq2_xs, d), TABLES(iq2_xs), .needs_weights = true},
    [QN_TYPE_IQ2_S] = {CODES(iq2_s), HALF(iq2_s, d), TABLES(iq2_s)},
    [QN_TYPE_IQ3_XXS] = {CODES(iq3_xxs), HALF(iq3_xxs, d), TABLES(iq3_xxs)},
    [QN_TYPE_IQ3_S] = {CODES(iq3_s), HALF(iq3_s, d), TABLES(iq3_s)},
    [QN_TYPE_IQ1_S] = {CODES(iq1_s), HALF(iq1_s, d), TABLES(iq1), .needs_weights = true},
    [QN_TYPE_IQ1_M] = {CODES(iq1_m), FINDER(iq1_m), TABLES(iq1)},
    [QN_TYPE_TQ1_0] = {CODES(tq1_0), HALF(tq1_0, d)},
    [QN_TYPE_TQ2_0] = {CODES(tq2_0), HALF(tq2_0, d)},
    [QN_TYPE_MXFP4] = {CODES(mxfp4), FINDER(mxfp4)},
    [QN_TYPE_NVFP4] = {CODES(nvfp4)},
    [QN_TYPE_Q1_0] = {CODES(q1_0), HALF(q1_0, d)},
    [QN_TYPE_Q2_0] = {CODES(q2_0), HALF(q2_0, d)},
};

const qn_quant *qn__quant_get(qn_type type)
{
    if ((int)type < 0 || type >= QN_TYPE_COUNT || !formats[type].decode) {
        return NULL;
    }
    return &formats[type];
}

/* Index of the first of `count` blocks with an infinite or NaN half float at `at`, or -1. */
static int64_t find_bad_half(const void *blocks, int64_t count, size_t block_bytes, size_t at)
{
    const unsigned char *bytes = blocks;
    for (int64_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, bytes + (size_t)i * block_bytes + at, sizeof h);
        if ((h & 0x7c00U) == 0x7c00U) {
            return i;
        }
    }
    return -1;
}

int64_t qn__quant_find_invalid(qn_type type, const void *data, int64_t count)
{
    const qn_type_info *info = qn_type_get_info(type);
    if (!info) {
        return count > 0 ? 0 : -1;
    }
    const qn_quant *format = &formats[type];
    int64_t bad = format->find_invalid ? format->find_invalid(data, count) : -1;
    for (int i = 0; i < format->half_count && bad < 0; i++) {
        bad = find_bad_half(data, count, info->block_bytes, format->half_at[i]);
    }
    return bad;
}

qn_status qn__quant_check(qn_type type, const void *data, int64_t first_row, int64_t rows,
                          int64_t n, qn_error *err)
{
    size_t row_bytes;
    qn_status status = qn_type_row_bytes(type, n, &row_bytes, err);
    if (status != QN_OK) {
        return status;
    }
    const qn_type_info *info = qn_type_get_info(type);
    int64_t row_blocks = n / info->block_values;
    int64_t bad = qn__quant_find_invalid(type, data, rows * row_blocks);
    if (bad < 0) {
        return QN_OK;
    }
    return qn__error(err, QN_ERR_FORMAT,
                     "%s data are not valid: infinity, NaN or a forbidden code in row %lld, block "
                     "%lld",
                     info->name, (long long)(first_row + bad / row_blocks),
                     (long long)(bad % row_blocks));
}
