/*
 * table.c: the architectures, one row each, sorted by name. What a field means and what zero stands
 * for: model/arch.h. Rows that need more than features name functions of the files beside this one.
 */
#include <string.h>

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

static const qn_arch table[] = {
    {
        .name = "cohere2",
        .rope = QN_MODEL_ROPE_NORM,
        .norm = QN_ARCH_LAYER_W,
        NORMS_PRE_ATTN,
        BIAS_QKV,
        .block = QN_BLOCK_FFN_X_ATTN,
        .head = QN_HEAD_TIED_ALWAYS,
        .flags = QN_ARCH_SCALE_FFN,
        .keys = qn__keys_cohere2,
    },
    {
        .name = "exaone4",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_POST,
        BIAS_QKV,
        .qk = QN_QK_HEAD,
        .flags = QN_ARCH_FREQS | ROT_FULL,
        .keys = qn__keys_exaone4,
    },
    {
        .name = "gemma",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .glu = QN_GLU_GEGLU,
        .head = QN_HEAD_TIED_ALWAYS,
        .keys = qn__keys_gemma,
    },
    {
        .name = "gemma2",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE_POST,
        BIAS_QKV,
        .glu = QN_GLU_GEGLU,
        .head = QN_HEAD_TIED_ALWAYS,
        .keys = qn__keys_gemma2,
    },
    {
        .name = "gemma3",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE_POST,
        BIAS_QKV,
        .qk = QN_QK_HEAD,
        .glu = QN_GLU_GEGLU,
        .keys = qn__keys_gemma3,
    },
    {
        .name = "glm4",
        .rope = QN_MODEL_ROPE_NORM,
        NORMS_PRE_POST,
        BIAS_QKV,
        .ffn = QN_FFN_PACKED,
        .flags = QN_ARCH_SECTIONS,
    },
    {
        .name = "gpt-oss",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE_AFTER,
        BIAS_QKV,
        BIAS_OUT_REQUIRED,
        .sinks = QN_NEED_REQ,
        .ffn = QN_FFN_NONE,
        .moe = {.when = QN_EXPERTS_ALL,
                .gate = QN_MOE_SOFT_MAX_CHOSEN,
                .router_bias = QN_NEED_REQ,
                .expert_bias = QN_NEED_REQ,
                .glu = QN_GLU_SWIGLU_OAI},
        .head = QN_HEAD_OWN,
        .keys = qn__keys_gpt_oss,
    },
    {
        .name = "gpt2",
        .norm = QN_ARCH_LAYER,
        NORMS_PRE,
        BIAS_QKV_REQUIRED,
        BIAS_OUT_REQUIRED,
        FFN_GELU,
        BIAS_FFN_REQUIRED,
        .positions = QN_NEED_REQ,
        .flags = QN_ARCH_QKV_FUSED,
    },
    {
        .name = "granite",
        .rope = QN_MODEL_ROPE_NORM,
        NORMS_PRE,
        BIAS_QKV,
        BIAS_OUT,
        BIAS_FFN,
        .moe = {MOE_MIXTRAL, .shared = QN_SHARED_KEY},
        .flags = FACTORS | ROT_FULL | QN_ARCH_PER_LAYER,
        .keys = qn__keys_granite,
    },
    {
        .name = "internlm2",
        .rope = QN_MODEL_ROPE_NORM,
        NORMS_PRE,
        BIAS_QKV,
        .head = QN_HEAD_OWN,
        .flags = ROT_FULL,
    },
    {
        .name = "llama",
        .rope = QN_MODEL_ROPE_NORM,
        NORMS_PRE,
        BIAS_QKV,
        BIAS_OUT,
        BIAS_FFN,
        .moe = {MOE_MIXTRAL},
        .flags = FACTORS | ROT_FULL | SCALES,
    },
    {
        .name = "mistral3",
        .rope = QN_MODEL_ROPE_NORM,
        NORMS_PRE,
        BIAS_QKV,
        BIAS_OUT,
        BIAS_FFN,
        .moe = {MOE_MIXTRAL},
        .flags = FACTORS | ROT_FULL | SCALES,
        .keys = qn__keys_mistral3,
    },
    {
        .name = "olmo",
        .rope = QN_MODEL_ROPE_NORM,
        .norm = QN_ARCH_LAYER_0,
        NORMS_PRE,
        BIAS_QKV,
        .flags = ROT_FULL,
        .keys = qn__keys_clamp,
    },
    {
        .name = "olmo2",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_POST,
        BIAS_QKV,
        .qk = QN_QK_FULL,
        .head = QN_HEAD_OWN,
        .flags = ROT_FULL,
        .keys = qn__keys_olmo2,
    },
    {
        .name = "olmoe",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .qk = QN_QK_FULL,
        .ffn = QN_FFN_NONE,
        .moe = {.when = QN_EXPERTS_ALL, .gate = QN_MOE_SOFT_MAX, .wide = true},
        .head = QN_HEAD_OWN,
        .flags = ROT_FULL,
    },
    {
        .name = "phi3",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .ffn = QN_FFN_PACKED,
        .flags = QN_ARCH_LONG,
    },
    {
        .name = "qwen2",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .head_bias = QN_NEED_OPT,
        .flags = ROT_FULL,
    },
    {
        .name = "qwen2moe",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .ffn = QN_FFN_NONE,
        .moe = {.when = QN_EXPERTS_ALL,
                .gate = QN_MOE_SOFT_MAX,
                .ff_from_used = true,
                .shared = QN_SHARED_KEY_OR_F,
                .shared_gate = true},
        .head = QN_HEAD_OWN,
        .flags = ROT_FULL,
    },
    {
        .name = "qwen3",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .qk = QN_QK_HEAD,
        .flags = ROT_FULL | QN_ARCH_SCALE_FFN,
    },
    {
        .name = "qwen3moe",
        .rope = QN_MODEL_ROPE_NEOX,
        NORMS_PRE,
        BIAS_QKV,
        .qk = QN_QK_HEAD,
        .ffn = QN_FFN_NONE,
        .moe = {.when = QN_EXPERTS_ALL,
                .gate = QN_MOE_SOFT_MAX,
                .normalize = QN_KEY_YES,
                .ff_from_used = true},
        .flags = ROT_FULL | QN_ARCH_SCALE_EXPERTS,
    },
    {
        .name = "smollm3",
        .rope = QN_MODEL_ROPE_NORM,
        NORMS_PRE,
        BIAS_QKV,
        .flags = ROT_FULL,
        .keys = qn__keys_smollm3,
    },
    {
        .name = "stablelm",
        .rope = QN_MODEL_ROPE_NEOX,
        .norm = QN_ARCH_LAYER,
        NORMS_PRE,
        .ffn_in_optional = true,
        BIAS_QKV,
        .qk = QN_QK_TABLE,
        .qk_norm = QN_ARCH_LAYER_W,
        .qk_need = QN_NEED_OPT,
        .head = QN_HEAD_OWN,
    },
    {
        .name = "starcoder2",
        .rope = QN_MODEL_ROPE_NEOX,
        .norm = QN_ARCH_LAYER,
        NORMS_PRE,
        BIAS_QKV,
        BIAS_OUT,
        FFN_GELU,
        BIAS_FFN_PLAIN,
        .flags = ROT_FULL,
    },
};

enum { N_ARCHS = sizeof(table) / sizeof(table[0]) };

const qn_arch *qn__arch_find(const char *name, size_t size)
{
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strlen(table[i].name) == size && memcmp(table[i].name, name, size) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

const char *qn_model_architecture_at(int32_t index)
{
    return index >= 0 && index < (int32_t)N_ARCHS ? table[index].name : NULL;
}
