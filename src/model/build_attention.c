/*
 * build_attention.c: projections, norms and rotation of Q and K, the KV store, attention over it,
 * the output projection.
 */
#include <math.h>

#include "model/builder.h"

typedef struct heads {
    qn_node *q, *k, *v; /* [d, H, T], [d, G, T], [dv, G, T]; rows may be strided */
} heads;

qn_node *qn__build_rope_table(qn_builder *b, int32_t rope)
{
    if (!b->rope[rope]) {
        qn_rope_params p =
            qn__model_rope_params(b->model, rope, b->in->rope_freq_base, b->in->rope_freq_scale);
        const qn_weight *factors = qn__model_rope_factors(b->model, rope, b->in->n_ctx_seq);
        b->rope[rope] =
            qn__graph_rope_table(b->g, b->in->positions, qn__build_leaf(b, factors), &p);
        qn__node_set_name(b->rope[rope], "rope.%d", rope);
    }
    return b->rope[rope];
}

qn_node *qn__build_heads(qn_builder *b, qn_node *x, int64_t d, int64_t n_heads, int64_t first)
{
    const int64_t ne[4] = {d, n_heads, b->n_tokens, 1};
    const size_t nb[4] = {sizeof(float), (size_t)d * sizeof(float), x->nb[1],
                          x->nb[1] * (size_t)b->n_tokens};
    return qn__graph_view(b->g, x, ne, nb, (size_t)first * sizeof(float));
}

static qn_node *clamp_if(qn_builder *b, qn_node *x)
{
    float c = b->hp->clamp_qkv;
    return c > 0.0f ? qn__graph_clamp(b->g, x, -c, c) : x;
}

/* A norm over all heads of rows [n, T]; as it was where the row of the table has no such norm. */
static qn_node *full_norm(qn_builder *b, int32_t il, qn_tensor_id id, qn_node *x)
{
    bool has = b->arch->qk == QN_QK_FULL && qn__build_tensor(b, il, QN_T_ATTN_Q_NORM)->weight;
    return has ? qn__build_norm(b, b->arch->qk_norm, qn__build_tensor(b, il, id), x) : x;
}

static heads separate_qkv(qn_builder *b, int32_t il, qn_node *x)
{
    const qn_layer_params *lp = &b->hp->layer[il];
    qn_node *q = qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_Q), x, false);
    qn_node *k = qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_K), x, false);
    qn_node *v = qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_V), x, false);
    q = full_norm(b, il, QN_T_ATTN_Q_NORM, clamp_if(b, q));
    k = full_norm(b, il, QN_T_ATTN_K_NORM, clamp_if(b, k));
    v = clamp_if(b, v);
    return (heads){
        .q = qn__build_heads(b, q, lp->d_k, lp->n_head, 0),
        .k = qn__build_heads(b, k, lp->d_k, lp->n_head_kv, 0),
        .v = qn__build_heads(b, v, lp->d_v, lp->n_head_kv, 0),
    };
}

/* One part of a packed projection with what comes on it before the split into heads. */
static qn_node *packed_part(qn_builder *b, int32_t il, qn_tensor_id id, qn_tensor_id norm,
                            qn_node *qkv, int64_t d, int64_t n_heads, int64_t first)
{
    const qn_weight *bias = qn__build_tensor(b, il, id)->bias;
    bool full = b->arch->qk == QN_QK_FULL && norm != QN_T_NONE;
    if (!bias && !full) {
        return qn__build_heads(b, qkv, d, n_heads, first);
    }
    qn_node *part = qn__graph_slice(b->g, qkv, first, d * n_heads);
    if (bias) {
        part = qn__graph_add(b->g, part, qn__build_leaf(b, bias));
    }
    if (full) {
        part = full_norm(b, il, norm, part);
    }
    return qn__build_heads(b, part, d, n_heads, 0);
}

static heads fused_qkv(qn_builder *b, int32_t il, qn_node *x)
{
    const qn_layer_params *lp = &b->hp->layer[il];
    int64_t q_rows = (int64_t)lp->d_k * lp->n_head, k_rows = (int64_t)lp->d_k * lp->n_head_kv;
    qn_node *qkv = qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_QKV), x, false);
    qkv = clamp_if(b, qkv);
    return (heads){
        .q = packed_part(b, il, QN_T_ATTN_Q, QN_T_ATTN_Q_NORM, qkv, lp->d_k, lp->n_head, 0),
        .k = packed_part(b, il, QN_T_ATTN_K, QN_T_ATTN_K_NORM, qkv, lp->d_k, lp->n_head_kv, q_rows),
        .v = packed_part(b, il, QN_T_ATTN_V, QN_T_NONE, qkv, lp->d_v, lp->n_head_kv,
                         q_rows + k_rows),
    };
}

static qn_node *head_norm(qn_builder *b, int32_t il, qn_tensor_id id, qn_node *x)
{
    const qn_tensor *t = qn__build_tensor(b, il, id);
    bool by_head = b->arch->qk == QN_QK_HEAD || b->arch->qk == QN_QK_TABLE;
    return by_head && t->weight ? qn__build_norm(b, b->arch->qk_norm, t, x) : x;
}

/* What happens to Q and K between projection and use. */
static void turn(qn_builder *b, int32_t il, heads *h)
{
    bool after = b->arch->flags & QN_ARCH_QK_AFTER_ROPE;
    if (!after) {
        h->q = head_norm(b, il, QN_T_ATTN_Q_NORM, h->q);
        h->k = head_norm(b, il, QN_T_ATTN_K_NORM, h->k);
    }
    int32_t rope = b->hp->layer[il].rope;
    if (rope >= 0) {
        const qn_rope_params *p = &b->hp->rope[rope].params;
        qn_node *table = qn__build_rope_table(b, rope);
        h->q = qn__graph_rope(b->g, h->q, table, p->mode, p->n_rot, 0);
        h->k = qn__graph_rope(b->g, h->k, table, p->mode, p->n_rot, 0);
    }
    if (after) {
        h->q = head_norm(b, il, QN_T_ATTN_Q_NORM, h->q);
        h->k = head_norm(b, il, QN_T_ATTN_K_NORM, h->k);
    }
    if (b->hp->qk_unit_norm && rope >= 0) {
        const qn_tensor none = {0};
        h->q = qn__build_norm(b, QN_ARCH_RMS, &none, h->q);
        h->k = qn__build_norm(b, QN_ARCH_RMS, &none, h->k);
    }
    if (b->hp->q_temp_scale != 0.0f && b->in->q_scale && !(b->hp->q_temp_no_rope && rope >= 0)) {
        h->q = qn__graph_mul(b->g, h->q, b->in->q_scale);
    }
}

static qn_attend_params attend_params(const qn_builder *b, int32_t il)
{
    const qn_hparams *hp = b->hp;
    const qn_layer_params *lp = &hp->layer[il];
    return (qn_attend_params){
        .scale = hp->attend_scale != 0.0f ? hp->attend_scale : 1.0f / sqrtf((float)lp->d_k),
        .soft_cap = hp->attend_cap,
        .alibi_bias = hp->alibi_bias,
        .window = lp->has_window ? hp->window : QN_WINDOW_NONE,
        .window_size = lp->has_window ? hp->window_size : 0,
        .causal = hp->causal,
        .n_kv_heads = lp->n_head_kv,
    };
}

qn_node *qn__build_attend(qn_builder *b, int32_t il, qn_node *q, qn_node *k, qn_node *v)
{
    const qn_layer_params *lp = &b->hp->layer[il];
    const qn_kv_layer *kv = &b->model->kv.layers[lp->kv];
    const qn_build_group *group = &b->in->groups[kv->group];
    qn_node *k_store = b->in->k[lp->kv], *v_store = b->in->v[lp->kv];
    qn_attend_inputs in = {
        .k = k ? qn__graph_kv_store(b->g, k_store, k, group->slots, false) : k_store,
        .v = v ? qn__graph_kv_store(b->g, v_store, v, group->slots, true) : v_store,
        .tables = group->tables,
        .masks = group->masks,
        .rows = group->rows,
        .sinks = qn__build_leaf(b, qn__build_tensor(b, il, QN_T_ATTN_SINKS)->weight),
    };
    if (qn__build_only_stores(b, il)) {
        return NULL;
    }
    qn_attend_params p = attend_params(b, il);
    qn_node *y = qn__graph_attend(b->g, q, &in, &p);
    qn__node_set_name(y, "blk.%d.attn", il);
    return y;
}

qn_node *qn__build_attention_output(qn_builder *b, int32_t il, qn_node *y)
{
    y = qn__graph_reshape(b->g, y, y->ne[0] * y->ne[1], b->n_tokens, 1, 1);
    y = qn__build_cut(b, il, y);
    return qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_OUTPUT), y, false);
}

qn_node *qn__build_attention(qn_builder *b, int32_t il, qn_node *x)
{
    if (b->arch->attention) {
        return b->arch->attention(b, il, x);
    }
    bool fused = qn__build_tensor(b, il, QN_T_ATTN_QKV)->weight != NULL;
    heads h = fused ? fused_qkv(b, il, x) : separate_qkv(b, il, x);
    turn(b, il, &h);
    qn_node *y = qn__build_attend(b, il, h.q, h.k, h.v);
    return y ? qn__build_attention_output(b, il, y) : x;
}
