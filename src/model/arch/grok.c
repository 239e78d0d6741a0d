/*
 * grok.c: norms on both ends of attention and feed-forward; experts beside a dense feed-forward
 * where the file has one (grok-2), their sum times sqrt(1/2).
 */
#include <math.h>

#include "model/arch/arch_keys.h"

void qn__keys_grok(qn_keys *k, qn_hparams *hp)
{
    qn_rope_kind *rope = &hp->rope[0];
    hp->logit_scale = qn__keys_f32(k, "logit_scale", 0.5773502691896257f);
    hp->embd_scale = qn__keys_f32(k, "embedding_scale", 78.38367176906169f);
    hp->attend_scale = qn__keys_f32(k, "attention.output_scale", 0.08838834764831845f);
    hp->attend_cap = qn__keys_f32(k, "attn_logit_softcapping", 30.0f);
    hp->logit_cap = qn__keys_f32(k, "final_logit_softcapping", 0.0f);
    rope->params.beta_fast = qn__keys_f32(k, "rope.scaling.yarn_beta_fast", 8.0f);
    rope->params.beta_slow = qn__keys_f32(k, "rope.scaling.yarn_beta_slow", 1.0f);
    float ext = qn__keys_f32(k, "rope.scaling.yarn_ext_factor", -1.0f);
    if (ext >= 0.0f) {
        rope->params.ext_factor = ext;
    }
    rope->magnitude *= qn__keys_f32(k, "rope.scaling.yarn_attn_factor", 1.0f);
}

void qn__tensors_grok(qn_loader *l, int32_t il)
{
    bool dense = qn__loader_has(l, il, QN_T_FFN_UP, QN_PART_WEIGHT);
    bool own_post = qn__loader_has(l, il, QN_T_LAYER_OUTPUT_NORM, QN_PART_WEIGHT);
    qn__loader_layer_norm(l, il, QN_T_ATTN_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, QN_T_ATTN_OUTPUT_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, QN_T_FFN_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, own_post ? QN_T_LAYER_OUTPUT_NORM : QN_T_POST_FFW_NORM,
                          QN_NEED_REQ);
    qn__loader_attention(l, il);
    if (dense) {
        qn__loader_dense_ffn(l, il, l->model->hp.layer[il].n_ff);
    }
    qn__loader_experts(l, il);
}

qn_node *qn__layer_grok(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    qn_node *attn = qn__build_attention(b, il, qn__build_layer_norm(b, il, QN_T_ATTN_NORM, x));
    if (qn__build_only_stores(b, il)) {
        return x;
    }
    attn = qn__build_layer_norm(b, il, QN_T_ATTN_OUTPUT_NORM, attn);
    x = qn__graph_add(g, attn, qn__build_cut(b, il, x));
    qn_node *n = qn__build_layer_norm(b, il, QN_T_FFN_NORM, x);
    qn_node *y = qn__build_experts(b, il, n, n);
    if (qn__build_tensor(b, il, QN_T_FFN_UP)->weight) {
        y = qn__graph_add(g, qn__build_dense_ffn(b, il, n), y);
        y = qn__graph_scale_bias(g, y, sqrtf(0.5f), 0.0f);
    }
    bool own_post = qn__build_tensor(b, il, QN_T_LAYER_OUTPUT_NORM)->weight != NULL;
    y = qn__build_layer_norm(b, il, own_post ? QN_T_LAYER_OUTPUT_NORM : QN_T_POST_FFW_NORM, y);
    return qn__graph_add(g, y, x);
}
