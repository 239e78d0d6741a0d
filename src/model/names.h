/* names.h: the tensors that models are made of, by their names in files. */
#ifndef QUERN_MODEL_NAMES_H
#define QUERN_MODEL_NAMES_H

#include <stdbool.h>

typedef enum qn_tensor_id {
    QN_T_NONE,
    /* of the whole model */
    QN_T_TOKEN_EMBD,
    QN_T_TOKEN_EMBD_NORM,
    QN_T_POSITION_EMBD,
    QN_T_OUTPUT_NORM,
    QN_T_OUTPUT,
    QN_T_ROPE_FREQS,
    QN_T_ROPE_LONG,
    QN_T_ROPE_SHORT,
    QN_T_PER_LAYER_EMBD,
    QN_T_PER_LAYER_PROJ,
    QN_T_PER_LAYER_NORM,
    QN_T_GLOBAL_COUNT,
    /* of a layer */
    QN_T_ATTN_NORM = QN_T_GLOBAL_COUNT,
    QN_T_ATTN_NORM_2,
    QN_T_ATTN_Q,
    QN_T_ATTN_K,
    QN_T_ATTN_V,
    QN_T_ATTN_QKV,
    QN_T_ATTN_Q_NORM,
    QN_T_ATTN_K_NORM,
    QN_T_ATTN_OUTPUT,
    QN_T_ATTN_OUTPUT_NORM,
    QN_T_ATTN_SINKS,
    QN_T_ATTN_Q_A,
    QN_T_ATTN_Q_A_NORM,
    QN_T_ATTN_Q_B,
    QN_T_ATTN_KV_A_MQA,
    QN_T_ATTN_KV_A_NORM,
    QN_T_ATTN_KV_B,
    QN_T_ATTN_K_B,
    QN_T_ATTN_V_B,
    QN_T_POST_ATTN_NORM,
    QN_T_FFN_NORM,
    QN_T_FFN_NORM_EXPS,
    QN_T_FFN_GATE,
    QN_T_FFN_UP,
    QN_T_FFN_DOWN,
    QN_T_FFN_ACT,
    QN_T_FFN_GATE_INP,
    QN_T_FFN_GATE_EXPS,
    QN_T_FFN_UP_EXPS,
    QN_T_FFN_DOWN_EXPS,
    QN_T_FFN_GATE_UP_EXPS,
    QN_T_FFN_GATE_INP_SHEXP,
    QN_T_FFN_GATE_SHEXP,
    QN_T_FFN_UP_SHEXP,
    QN_T_FFN_DOWN_SHEXP,
    QN_T_EXP_PROBS_B,
    QN_T_PRE_FFW_NORM_2,
    QN_T_POST_FFW_NORM,
    QN_T_POST_FFW_NORM_1,
    QN_T_POST_FFW_NORM_2,
    QN_T_INP_GATE,
    QN_T_PROJ,
    QN_T_POST_NORM,
    QN_T_LAYER_OUTPUT_SCALE,
    QN_T_LAYER_OUTPUT_NORM,
    QN_T_COUNT
} qn_tensor_id;

enum { QN_T_LAYER_COUNT = QN_T_COUNT - QN_T_GLOBAL_COUNT };

/* What may stand behind a name. */
typedef enum qn_tensor_part {
    QN_PART_WEIGHT,
    QN_PART_BIAS,
    QN_PART_SCALE,
    QN_PART_COUNT
} qn_tensor_part;

static inline bool qn__tensor_is_global(qn_tensor_id id)
{
    return id < QN_T_GLOBAL_COUNT;
}

/* "blk.3.attn_q.weight" into out[64]; layer is not looked at for tensors of the whole model. */
void qn__tensor_name(char out[64], qn_tensor_id id, qn_tensor_part part, int layer);

#endif
