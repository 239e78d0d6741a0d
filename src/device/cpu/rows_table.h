/* rows_table.h: the table of the functions above, the same for every instruction set. Included at
 * the end of a file of row functions with QN_ROWS_TABLE set to the table's name. */
const qn_cpu_row_fns QN_ROWS_TABLE = {
    .binary = {add, sub, mul, divide},
    .binary_one = {add_one, sub_one, mul_one, divide_one},
    .scale_bias = scale_bias,
    .clamp = clamp,
    .unary =
        {
            [QN_UNARY_SILU] = row_silu,
            [QN_UNARY_GELU] = row_gelu,
            [QN_UNARY_GELU_ERF] = row_gelu_erf,
            [QN_UNARY_GELU_QUICK] = row_gelu_quick,
            [QN_UNARY_RELU] = row_relu,
            [QN_UNARY_RELU_SQR] = row_relu_sqr,
            [QN_UNARY_SIGMOID] = row_sigmoid,
            [QN_UNARY_TANH] = row_tanh,
            [QN_UNARY_SOFTPLUS] = row_softplus,
            [QN_UNARY_EXP] = row_exp,
            [QN_UNARY_LOG] = row_log,
            [QN_UNARY_SQRT] = row_sqrt,
            [QN_UNARY_SQR] = row_sqr,
            [QN_UNARY_NEG] = row_neg,
            [QN_UNARY_ABS] = row_abs,
            [QN_UNARY_SOFT_CAP] = row_soft_cap,
        },
    .glu =
        {
            [QN_GLU_SWIGLU] = row_swiglu,
            [QN_GLU_GEGLU] = row_geglu,
            [QN_GLU_REGLU] = row_reglu,
            [QN_GLU_SWIGLU_OAI] = row_swiglu_oai,
            [QN_GLU_SWIGLU_CLAMP_IN] = row_swiglu_clamp_in,
            [QN_GLU_SWIGLU_CLAMP_OUT] = row_swiglu_clamp_out,
        },
    .norm =
        {
            [QN_NORM_RMS] = norm_rms,
            [QN_NORM_LAYER] = norm_layer,
            [QN_NORM_L2_MAX] = norm_l2_max,
            [QN_NORM_L2_EPS] = norm_l2_eps,
        },
    .soft_max = soft_max,
    .sum = sum,
    .argmax = argmax,
    .rope_norm = rope_norm,
    .rope_neox = rope_neox,
    .add_scaled = add_scaled,
    .from_f16 = from_f16,
    .from_bf16 = from_bf16,
    .to_f16 = to_f16,
    .to_bf16 = to_bf16,
};
