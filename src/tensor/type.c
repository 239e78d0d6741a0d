/* type.c: the table of tensor types; a type is one row. Sizes: GGUF, see quern/type.h. */
#include <quern/type.h>

#include <strings.h>

#include "base/error.h"
#include "base/mem.h"

static const qn_type_info types[QN_TYPE_COUNT] = {
    [QN_TYPE_F32] = {"f32", 1, 4, false},
    [QN_TYPE_F16] = {"f16", 1, 2, false},
    [QN_TYPE_Q4_0] = {"q4_0", 32, 18, true},
    [QN_TYPE_Q4_1] = {"q4_1", 32, 20, true},
    [QN_TYPE_Q5_0] = {"q5_0", 32, 22, true},
    [QN_TYPE_Q5_1] = {"q5_1", 32, 24, true},
    [QN_TYPE_Q8_0] = {"q8_0", 32, 34, true},
    [QN_TYPE_Q8_1] = {"q8_1", 32, 36, true},
    [QN_TYPE_Q2_K] = {"q2_K", 256, 84, true},
    [QN_TYPE_Q3_K] = {"q3_K", 256, 110, true},
    [QN_TYPE_Q4_K] = {"q4_K", 256, 144, true},
    [QN_TYPE_Q5_K] = {"q5_K", 256, 176, true},
    [QN_TYPE_Q6_K] = {"q6_K", 256, 210, true},
    [QN_TYPE_Q8_K] = {"q8_K", 256, 292, true},
    [QN_TYPE_IQ2_XXS] = {"iq2_xxs", 256, 66, true},
    [QN_TYPE_IQ2_XS] = {"iq2_xs", 256, 74, true},
    [QN_TYPE_IQ3_XXS] = {"iq3_xxs", 256, 98, true},
    [QN_TYPE_IQ1_S] = {"iq1_s", 256, 50, true},
    [QN_TYPE_IQ4_NL] = {"iq4_nl", 32, 18, true},
    [QN_TYPE_IQ3_S] = {"iq3_s", 256, 110, true},
    [QN_TYPE_IQ2_S] = {"iq2_s", 256, 82, true},
    [QN_TYPE_IQ4_XS] = {"iq4_xs", 256, 136, true},
    [QN_TYPE_I8] = {"i8", 1, 1, false},
    [QN_TYPE_I16] = {"i16", 1, 2, false},
    [QN_TYPE_I32] = {"i32", 1, 4, false},
    [QN_TYPE_I64] = {"i64", 1, 8, false},
    [QN_TYPE_F64] = {"f64", 1, 8, false},
    [QN_TYPE_IQ1_M] = {"iq1_m", 256, 56, true},
    [QN_TYPE_BF16] = {"bf16", 1, 2, false},
    [QN_TYPE_TQ1_0] = {"tq1_0", 256, 54, true},
    [QN_TYPE_TQ2_0] = {"tq2_0", 256, 66, true},
    [QN_TYPE_MXFP4] = {"mxfp4", 32, 17, true},
    [QN_TYPE_NVFP4] = {"nvfp4", 64, 36, true},
    [QN_TYPE_Q1_0] = {"q1_0", 128, 18, true},
    [QN_TYPE_Q2_0] = {"q2_0", 64, 18, true},
};

const qn_type_info *qn_type_get_info(int64_t id)
{
    if (id < 0 || id >= QN_TYPE_COUNT || !types[id].name) {
        return NULL;
    }
    return &types[id];
}

bool qn_type_from_name(const char *name, qn_type *out)
{
    for (int id = 0; id < QN_TYPE_COUNT; id++) {
        if (types[id].name && strcasecmp(types[id].name, name) == 0) {
            *out = (qn_type)id;
            return true;
        }
    }
    return false;
}

qn_status qn_type_row_bytes(qn_type type, int64_t n, size_t *out, qn_error *err)
{
    const qn_type_info *info = qn_type_get_info(type);
    if (!info) {
        return qn__error(err, QN_ERR_FORMAT, "%d is not a tensor type", (int)type);
    }
    if (n < 0 || n % info->block_values != 0) {
        return qn__error(err, QN_ERR_FORMAT,
                         "a row of %lld values is no multiple of the %s block of %u", (long long)n,
                         info->name, info->block_values);
    }
    if (!qn__mul_size((size_t)(n / info->block_values), info->block_bytes, out)) {
        return qn__error(err, QN_ERR_LIMIT, "a row of %lld values is too long", (long long)n);
    }
    return QN_OK;
}
