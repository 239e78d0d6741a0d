/*
 * refact.c: a plain decoder with ALiBi. Files that say they have experts were only ever evaluated
 * without any feed-forward matrix, silu of the normed rows in their place; such a file has no other
 * meaning to agree with.
 */
#include "model/arch/arch_keys.h"

void qn__tensors_refact(qn_loader *l, int32_t il)
{
    static const qn_tensor_id unused[] = {QN_T_FFN_GATE_INP, QN_T_FFN_GATE_EXPS, QN_T_FFN_UP_EXPS,
                                          QN_T_FFN_DOWN_EXPS};
    if (l->model->hp.n_expert == 0) {
        qn__loader_plain_layer(l, il);
        return;
    }
    qn__loader_layer_norm(l, il, QN_T_ATTN_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, QN_T_FFN_NORM, QN_NEED_REQ);
    qn__loader_attention(l, il);
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++) {
        qn__loader_want(l, il, &(qn_want){.id = unused[i], .need = QN_NEED_IGN});
    }
}

qn_node *qn__layer_refact(qn_builder *b, int32_t il, qn_node *x)
{
    if (b->hp->n_expert == 0) {
        return qn__build_plain_layer(b, il, x);
    }
    qn_node *attn = qn__build_attention(b, il, qn__build_layer_norm(b, il, QN_T_ATTN_NORM, x));
    if (qn__build_only_stores(b, il)) {
        return x;
    }
    x = qn__graph_add(b->g, attn, qn__build_cut(b, il, x));
    qn_node *n = qn__build_layer_norm(b, il, QN_T_FFN_NORM, x);
    return qn__graph_add(b->g, qn__graph_unary(b->g, n, QN_UNARY_SILU), x);
}
