/* kernels.c: the kernel of each operation. Leaves and views have none. */
#include "device/cpu/attend.h"
#include "device/cpu/matmul.h"
#include "device/cpu/op.h"

const qn_cpu_kernel *const qn__cpu_kernels[QN_OP_COUNT] = {
    [QN_OP_COPY] = &qn__kernel_copy,
    [QN_OP_CONCAT] = &qn__kernel_concat,
    [QN_OP_ADD] = &qn__kernel_binary,
    [QN_OP_SUB] = &qn__kernel_binary,
    [QN_OP_MUL] = &qn__kernel_binary,
    [QN_OP_DIV] = &qn__kernel_binary,
    [QN_OP_SCALE_BIAS] = &qn__kernel_scale_bias,
    [QN_OP_UNARY] = &qn__kernel_unary,
    [QN_OP_CLAMP] = &qn__kernel_clamp,
    [QN_OP_GLU] = &qn__kernel_glu,
    [QN_OP_NORM] = &qn__kernel_norm,
    [QN_OP_SOFT_MAX] = &qn__kernel_soft_max,
    [QN_OP_SUM_ROWS] = &qn__kernel_sum_rows,
    [QN_OP_ARGMAX] = &qn__kernel_argmax,
    [QN_OP_ROPE_TABLE] = &qn__kernel_rope_table,
    [QN_OP_ROPE] = &qn__kernel_rope,
    [QN_OP_GET_ROWS] = &qn__kernel_get_rows,
    [QN_OP_SET_ROWS] = &qn__kernel_set_rows,
    [QN_OP_MUL_MAT] = &qn__cpu_mul_mat,
    [QN_OP_MUL_MAT_ID] = &qn__cpu_mul_mat_id,
    [QN_OP_ADD_ID] = &qn__kernel_add_id,
    [QN_OP_MOE_SELECT] = &qn__kernel_moe_select,
    [QN_OP_MOE_WEIGHTS] = &qn__kernel_moe_weights,
    [QN_OP_MOE_SUM] = &qn__kernel_moe_sum,
    [QN_OP_KV_STORE] = &qn__cpu_kernel_kv_store,
    [QN_OP_ATTEND] = &qn__cpu_kernel_attend,
    [QN_OP_SAMPLE] = &qn__kernel_sample,
};
