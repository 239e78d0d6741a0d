/* build_ffn.c: the feed-forward of a layer: dense, or routed experts with a shared one. */
#include "model/builder.h"

static qn_node *act(qn_builder *b, qn_node *gate, qn_node *up)
{
    return qn__graph_glu(b->g, gate, up, b->arch->glu, 0.0f);
}

qn_node *qn__build_dense_ffn(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    const qn_arch *a = b->arch;
    qn_node *up = qn__build_linear(b, qn__build_tensor(b, il, QN_T_FFN_UP), x, true);
    qn_node *h = NULL;
    if (a->ffn == QN_FFN_PACKED) {
        int64_t f = up->ne[0] / 2;
        h = act(b, qn__graph_slice(g, up, 0, f), qn__graph_slice(g, up, f, f));
    } else if (a->ffn == QN_FFN_GATED) {
        h = act(b, qn__build_linear(b, qn__build_tensor(b, il, QN_T_FFN_GATE), x, true), up);
    } else {
        h = qn__graph_unary(g, up, a->unary);
    }
    const qn_weight *divisors = qn__build_tensor(b, il, QN_T_FFN_ACT)->weight;
    if (divisors) {
        h = qn__graph_div(g, h, qn__build_leaf(b, divisors));
    }
    return qn__build_linear(b, qn__build_tensor(b, il, QN_T_FFN_DOWN), h, true);
}

/* One matrix of the stack for each (rank, token): x [in, 1 or K, T] -> [out, K, T], times the
 * expert's scale, plus its bias. */
static qn_node *expert_linear(qn_builder *b, const qn_tensor *t, qn_node *x, qn_node *ids)
{
    qn_graph *g = b->g;
    qn_node *y = qn__graph_mul_mat_id(g, qn__build_leaf(b, t->weight), x, ids);
    if (t->scale) {
        qn_node *table = qn__build_leaf(b, t->scale);
        table = qn__graph_reshape(g, table, 1, table->ne[0], 1, 1);
        y = qn__graph_mul(g, y, qn__graph_get_rows(g, table, ids)); /* [1, K, T] */
    }
    return t->bias ? qn__graph_add_id(g, y, qn__build_leaf(b, t->bias), ids) : y;
}

static qn_node *shared_expert(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    qn_node *gate = qn__build_linear(b, qn__build_tensor(b, il, QN_T_FFN_GATE_SHEXP), x, false);
    qn_node *up = qn__build_linear(b, qn__build_tensor(b, il, QN_T_FFN_UP_SHEXP), x, false);
    qn_node *h = qn__graph_glu(g, gate, up, b->arch->moe.glu, 0.0f);
    qn_node *y = qn__build_linear(b, qn__build_tensor(b, il, QN_T_FFN_DOWN_SHEXP), h, false);
    if (b->arch->moe.shared_gate) {
        const qn_tensor *t = qn__build_tensor(b, il, QN_T_FFN_GATE_INP_SHEXP);
        qn_node *weight = qn__graph_unary(g, qn__build_linear(b, t, x, false), QN_UNARY_SIGMOID);
        y = qn__graph_mul(g, y, weight);
    }
    return y;
}

/* The hidden rows [Fe, K, T] of the chosen experts. x [E, 1, T]; weights [1, K, T] multiply the
 * input of the experts (which, products being linear, is the same as what comes out of gate and
 * up), or NULL. */
static qn_node *expert_hidden(qn_builder *b, int32_t il, qn_node *x, qn_node *ids, qn_node *weights)
{
    qn_graph *g = b->g;
    const qn_arch_moe *moe = &b->arch->moe;
    const qn_tensor *both = qn__build_tensor(b, il, QN_T_FFN_GATE_UP_EXPS);
    const qn_tensor *gate_t = qn__build_tensor(b, il, QN_T_FFN_GATE_EXPS);
    qn_node *gate = NULL, *up = NULL;
    if (both->weight) {
        int64_t f = b->hp->n_ff_expert;
        qn_node *packed = expert_linear(b, both, x, ids);
        gate = qn__graph_slice(g, packed, 0, f);
        up = qn__graph_slice(g, packed, f, f);
    } else {
        up = expert_linear(b, qn__build_tensor(b, il, QN_T_FFN_UP_EXPS), x, ids);
        gate = gate_t->weight ? expert_linear(b, gate_t, x, ids) : NULL;
    }
    if (weights) {
        up = qn__graph_mul(g, up, weights);
        gate = gate ? qn__graph_mul(g, gate, weights) : NULL;
    }
    static const qn_unary plain[QN_GLU_COUNT] = {
        [QN_GLU_SWIGLU] = QN_UNARY_SILU,
        [QN_GLU_GEGLU] = QN_UNARY_GELU,
        [QN_GLU_REGLU] = QN_UNARY_RELU,
    };
    return gate ? qn__graph_glu(g, gate, up, moe->glu, 0.0f)
                : qn__graph_unary(g, up, plain[moe->glu]);
}

qn_node *qn__build_experts(qn_builder *b, int32_t il, qn_node *x, qn_node *router_x)
{
    qn_graph *g = b->g;
    const qn_moe_params *p = &b->hp->moe;
    bool on_input = b->arch->moe.select_by_logit;
    int64_t n_rows = x->ne[1];
    const qn_tensor *router = qn__build_tensor(b, il, QN_T_FFN_GATE_INP);
    qn_node *logits = qn__graph_mul_mat(g, qn__build_leaf(b, router->weight), router_x,
                                        qn__build_leaf(b, router->bias));
    qn_node *bias = qn__build_leaf(b, qn__build_tensor(b, il, QN_T_EXP_PROBS_B)->bias);
    qn_node *ids = qn__graph_moe_select(g, logits, bias, p);
    qn_node *weights = qn__graph_moe_weights(g, logits, ids, p);
    qn_node *x3 = qn__graph_reshape(g, x, x->ne[0], 1, n_rows, 1);
    qn_node *w3 = on_input ? qn__graph_reshape(g, weights, 1, p->n_used, n_rows, 1) : NULL;
    qn_node *h = expert_hidden(b, il, x3, ids, w3);
    qn_node *y = expert_linear(b, qn__build_tensor(b, il, QN_T_FFN_DOWN_EXPS), h, ids);
    y = qn__graph_moe_sum(g, y, on_input ? NULL : weights);
    if (qn__build_tensor(b, il, QN_T_FFN_UP_SHEXP)->weight) {
        y = qn__graph_add(g, y, shared_expert(b, il, x));
    }
    return y;
}

qn_node *qn__build_ffn(qn_builder *b, int32_t il, qn_node *x)
{
    return b->hp->layer[il].n_used > 0 ? qn__build_experts(b, il, x, x)
                                       : qn__build_dense_ffn(b, il, x);
}
