/*
 * arctic.c: a dense feed-forward of the embedding's width behind attention, and beside both,
 * experts that look at the layer's input: x' = experts(norm_exps(x)) + (h + ffn(norm(h))), h = x +
 * attn.
 */
#include "model/arch/arch_keys.h"

void qn__tensors_arctic(qn_loader *l, int32_t il)
{
    qn__loader_layer_norm(l, il, QN_T_ATTN_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, QN_T_FFN_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, QN_T_FFN_NORM_EXPS, QN_NEED_REQ);
    qn__loader_attention(l, il);
    qn__loader_dense_ffn(l, il, l->model->hp.n_embd);
    qn__loader_experts(l, il);
}

qn_node *qn__layer_arctic(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    qn_node *attn = qn__build_attention(b, il, qn__build_layer_norm(b, il, QN_T_ATTN_NORM, x));
    if (qn__build_only_stores(b, il)) {
        return x;
    }
    x = qn__build_cut(b, il, x);
    qn_node *h = qn__graph_add(g, attn, x);
    qn_node *dense = qn__build_dense_ffn(b, il, qn__build_layer_norm(b, il, QN_T_FFN_NORM, h));
    qn_node *n = qn__build_layer_norm(b, il, QN_T_FFN_NORM_EXPS, x);
    return qn__graph_add(g, qn__build_experts(b, il, n, n), qn__graph_add(g, dense, h));
}
