/* smallthinker.c: the router looks at the layer's bare input; the experts at the normed rows. */
#include "model/arch/arch_keys.h"

void qn__keys_smallthinker(qn_keys *k, qn_hparams *hp)
{
    if (qn__keys_i32(k, "attention.sliding_window", 0, 0, INT32_MAX / 2) > 0) {
        /* any size stands for 4096 */
        qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, 4096, 4, true);
        qn__hparams_window_base(k, hp, hp->rope[0].params.freq_base, false);
        for (int32_t il = 0; il < hp->n_layer; il += 4) {
            hp->layer[il].rope = -1;
        }
    }
}

qn_node *qn__layer_smallthinker(qn_builder *b, int32_t il, qn_node *x)
{
    qn_node *attn = qn__build_attention(b, il, qn__build_layer_norm(b, il, QN_T_ATTN_NORM, x));
    if (qn__build_only_stores(b, il)) {
        return x;
    }
    x = qn__build_cut(b, il, x);
    qn_node *h = qn__graph_add(b->g, attn, x);
    qn_node *n = qn__build_layer_norm(b, il, QN_T_FFN_NORM, h);
    return qn__graph_add(b->g, qn__build_experts(b, il, n, x), h);
}
