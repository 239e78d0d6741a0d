/* rows.h: words for what recurs in the rows of the architectures, and the tables of rows. */
#ifndef QUERN_MODEL_ARCH_ROWS_H
#define QUERN_MODEL_ARCH_ROWS_H

#include "model/arch/arch_keys.h"

/* Places of norms: before attention and feed-forward; on their outputs; … */
#define NORMS_PRE       .attn_in = QN_T_ATTN_NORM, .ffn_in = QN_T_FFN_NORM
#define NORMS_POST      .attn_post = QN_T_POST_ATTN_NORM, .ffn_post = QN_T_POST_FFW_NORM
#define NORMS_PRE_ATTN  .attn_in = QN_T_ATTN_NORM
#define NORMS_PRE_POST  NORMS_PRE, NORMS_POST
#define NORMS_PRE_AFTER .attn_in = QN_T_ATTN_NORM, .ffn_in = QN_T_POST_ATTN_NORM

#define BIAS_QKV          .qkv_bias = QN_NEED_OPT
#define BIAS_QKV_REQUIRED .qkv_bias = QN_NEED_REQ
#define BIAS_OUT          .out_bias = QN_NEED_OPT
#define BIAS_OUT_REQUIRED .out_bias = QN_NEED_REQ
#define BIAS_FFN          .gate_bias = QN_NEED_OPT, .up_bias = QN_NEED_OPT, .down_bias = QN_NEED_OPT
#define BIAS_FFN_REQUIRED .up_bias = QN_NEED_REQ, .down_bias = QN_NEED_REQ
#define BIAS_FFN_PLAIN    .up_bias = QN_NEED_OPT, .down_bias = QN_NEED_OPT

#define FFN_GELU .ffn = QN_FFN_PLAIN, .unary = QN_UNARY_GELU

/* Mixtral's routing: soft-max over all, the chosen weights made to sum to 1. */
#define MOE_MIXTRAL                                                                                \
    .when = QN_EXPERTS_BY_COUNT, .gate = QN_MOE_SOFT_MAX, .normalize = QN_KEY_YES, .wide = true,   \
    .gate_exps = QN_NEED_OPT

enum {
    SCALES = QN_ARCH_SCALE_FFN | QN_ARCH_SCALE_EXPERTS,
    FACTORS = QN_ARCH_FREQS | QN_ARCH_LONG_BY_TYPE,
    ROT_FULL = QN_ARCH_ROT_FULL
};

/* The tables; a row without a name ends each. */
extern const qn_arch qn__dense_archs[];
extern const qn_arch qn__expert_archs[];

#endif
