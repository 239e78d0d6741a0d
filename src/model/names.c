/* names.c: see names.h. */
#include "model/names.h"

#include <stdio.h>

static const char *const base_names[QN_T_COUNT] = {
    [QN_T_NONE] = "?",
    [QN_T_TOKEN_EMBD] = "token_embd",
    [QN_T_TOKEN_EMBD_NORM] = "token_embd_norm",
    [QN_T_POSITION_EMBD] = "position_embd",
    [QN_T_OUTPUT_NORM] = "output_norm",
    [QN_T_OUTPUT] = "output",
    [QN_T_ROPE_FREQS] = "rope_freqs",
    [QN_T_ROPE_LONG] = "rope_factors_long",
    [QN_T_ROPE_SHORT] = "rope_factors_short",
    [QN_T_PER_LAYER_EMBD] = "per_layer_token_embd",
    [QN_T_PER_LAYER_PROJ] = "per_layer_model_proj",
    [QN_T_PER_LAYER_NORM] = "per_layer_proj_norm",
    [QN_T_ATTN_NORM] = "attn_norm",
    [QN_T_ATTN_NORM_2] = "attn_norm_2",
    [QN_T_ATTN_Q] = "attn_q",
    [QN_T_ATTN_K] = "attn_k",
    [QN_T_ATTN_V] = "attn_v",
    [QN_T_ATTN_QKV] = "attn_qkv",
    [QN_T_ATTN_Q_NORM] = "attn_q_norm",
    [QN_T_ATTN_K_NORM] = "attn_k_norm",
    [QN_T_ATTN_OUTPUT] = "attn_output",
    [QN_T_ATTN_OUTPUT_NORM] = "attn_output_norm",
    [QN_T_ATTN_SINKS] = "attn_sinks",
    [QN_T_ATTN_Q_A] = "attn_q_a",
    [QN_T_ATTN_Q_A_NORM] = "attn_q_a_norm",
    [QN_T_ATTN_Q_B] = "attn_q_b",
    [QN_T_ATTN_KV_A_MQA] = "attn_kv_a_mqa",
    [QN_T_ATTN_KV_A_NORM] = "attn_kv_a_norm",
    [QN_T_ATTN_KV_B] = "attn_kv_b",
    [QN_T_ATTN_K_B] = "attn_k_b",
    [QN_T_ATTN_V_B] = "attn_v_b",
    [QN_T_POST_ATTN_NORM] = "post_attention_norm",
    [QN_T_FFN_NORM] = "ffn_norm",
    [QN_T_FFN_NORM_EXPS] = "ffn_norm_exps",
    [QN_T_FFN_GATE] = "ffn_gate",
    [QN_T_FFN_UP] = "ffn_up",
    [QN_T_FFN_DOWN] = "ffn_down",
    [QN_T_FFN_ACT] = "ffn.act",
    [QN_T_FFN_GATE_INP] = "ffn_gate_inp",
    [QN_T_FFN_GATE_EXPS] = "ffn_gate_exps",
    [QN_T_FFN_UP_EXPS] = "ffn_up_exps",
    [QN_T_FFN_DOWN_EXPS] = "ffn_down_exps",
    [QN_T_FFN_GATE_UP_EXPS] = "ffn_gate_up_exps",
    [QN_T_FFN_GATE_INP_SHEXP] = "ffn_gate_inp_shexp",
    [QN_T_FFN_GATE_SHEXP] = "ffn_gate_shexp",
    [QN_T_FFN_UP_SHEXP] = "ffn_up_shexp",
    [QN_T_FFN_DOWN_SHEXP] = "ffn_down_shexp",
    [QN_T_EXP_PROBS_B] = "exp_probs_b",
    [QN_T_PRE_FFW_NORM_2] = "pre_ffw_norm_2",
    [QN_T_POST_FFW_NORM] = "post_ffw_norm",
    [QN_T_POST_FFW_NORM_1] = "post_ffw_norm_1",
    [QN_T_POST_FFW_NORM_2] = "post_ffw_norm_2",
    [QN_T_INP_GATE] = "inp_gate",
    [QN_T_PROJ] = "proj",
    [QN_T_POST_NORM] = "post_norm",
    [QN_T_LAYER_OUTPUT_SCALE] = "layer_output_scale",
    [QN_T_LAYER_OUTPUT_NORM] = "layer_output_norm",
};

static const char *const part_names[QN_PART_COUNT] = {
    [QN_PART_WEIGHT] = "weight",
    [QN_PART_BIAS] = "bias",
    [QN_PART_SCALE] = "scale",
};

void qn__tensor_name(char out[64], qn_tensor_id id, qn_tensor_part part, int layer)
{
    const char *suffix = id == QN_T_FFN_ACT ? "scales" : part_names[part];
    if (qn__tensor_is_global(id)) {
        snprintf(out, 64, "%s.%s", base_names[id], suffix);
    } else {
        snprintf(out, 64, "blk.%d.%s.%s", layer, base_names[id], suffix);
    }
}
