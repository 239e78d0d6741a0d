/*
 * gemma4.c: heads of two sizes (full and window layers), V normed without weights and where absent
 * taken from the bare K projection, last layers that read the K and V of earlier ones, experts
 * beside the dense feed-forward, and for the small models an input of its own for every layer.
 */
#include <math.h>

#include "model/arch/arch_keys.h"
#include "tensor/build.h"

#define MAX_SIZE 65536

/* The last `shared` layers read what the last two layers before them stored. */
static void share_kv(qn_keys *k, qn_hparams *hp, int32_t shared)
{
    int32_t own = hp->n_layer - shared;
    if (shared == 0) {
        return;
    }
    if (own < 2 || !hp->layer[own - 2].has_window || hp->layer[own - 1].has_window) {
        qn__keys_fail(k, QN_ERR_FORMAT, "attention.shared_kv_layers",
                      "layers %d and %d are not a window and a full layer", (int)own - 2,
                      (int)own - 1);
        return;
    }
    for (int32_t il = own; il < hp->n_layer; il++) {
        hp->layer[il].owns_kv = false;
        hp->layer[il].kv = hp->layer[il].has_window ? own - 2 : own - 1;
    }
}

void qn__keys_gemma4(qn_keys *k, qn_hparams *hp)
{
    const char *pattern = "attention.sliding_window_pattern";
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->attend_scale = 1.0f;
    hp->logit_cap = qn__keys_f32(k, "final_logit_softcapping", 30.0f);
    hp->n_side = qn__keys_need_i32(k, "embedding_length_per_layer_input", 0, MAX_SIZE);
    int32_t d_k = qn__keys_need_i32(k, "attention.key_length_swa", 1, MAX_SIZE);
    int32_t d_v = qn__keys_need_i32(k, "attention.value_length_swa", 1, MAX_SIZE);
    int32_t window = qn__keys_need_i32(k, "attention.sliding_window", 1, INT32_MAX / 2);
    if (!qn__keys_find(k, pattern)) {
        qn__keys_fail(k, QN_ERR_FORMAT, pattern, "missing");
    }
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, window, 1, false);
    qn__hparams_window_base(k, hp, 10000.0f, true);
    qn_rope_kind *own = &hp->rope[1];
    own->params.n_rot =
        qn__keys_i32(k, "rope.dimension_count_swa", hp->rope[0].params.n_rot, 0, MAX_SIZE);
    own->factors = QN_ROPE_FACTORS_NONE;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].has_window) {
            hp->layer[il].d_k = d_k;
            hp->layer[il].d_v = d_v;
        }
    }
    share_kv(k, hp, qn__keys_i32(k, "attention.shared_kv_layers", 0, 0, hp->n_layer));
}

void qn__globals_gemma4(qn_loader *l)
{
    const qn_hparams *hp = &l->model->hp;
    int64_t all = (int64_t)hp->n_side * hp->n_layer;
    if (all == 0) {
        return;
    }
    qn__loader_table(l, QN_T_PER_LAYER_EMBD, QN_NEED_REQ, all, hp->n_vocab);
    qn__loader_matrix(l, 0, QN_T_PER_LAYER_PROJ, QN_NEED_REQ, QN_NEED_NO, false, hp->n_embd, all,
                      1);
    qn__loader_norm(l, 0, QN_T_PER_LAYER_NORM, QN_ARCH_RMS, QN_NEED_REQ, hp->n_side, 1);
}

static void want_attention(qn_loader *l, int32_t il)
{
    const qn_layer_params *lp = &l->model->hp.layer[il];
    int64_t e = l->model->hp.n_embd, q = (int64_t)lp->n_head * lp->d_k;
    int64_t k = (int64_t)lp->n_head_kv * lp->d_k, v = (int64_t)lp->n_head_kv * lp->d_v;
    /* K and V of layers that do not own any may be in the file and are not used */
    qn_need need = lp->owns_kv ? QN_NEED_REQ : QN_NEED_IGN;
    qn_need v_need = lp->owns_kv ? QN_NEED_OPT : QN_NEED_IGN, no = QN_NEED_NO;
    qn__loader_layer_norm(l, il, QN_T_ATTN_NORM, QN_NEED_REQ);
    qn__loader_matrix(l, il, QN_T_ATTN_Q, QN_NEED_REQ, no, true, e, q, 1);
    qn__loader_matrix(l, il, QN_T_ATTN_K, need, no, true, e, k, 1);
    qn__loader_matrix(l, il, QN_T_ATTN_V, v_need, no, true, e, v, 1);
    if (lp->owns_kv && !qn__model_get(l->model, il, QN_T_ATTN_V)->weight && k != v) {
        qn__loader_fail(l, QN_ERR_FORMAT, "tensor blk.%d.attn_v.weight is missing", (int)il);
    }
    qn__loader_norm(l, il, QN_T_ATTN_Q_NORM, QN_ARCH_RMS, QN_NEED_REQ, lp->d_k, 1);
    qn__loader_norm(l, il, QN_T_ATTN_K_NORM, QN_ARCH_RMS, need, lp->d_k, 1);
    qn__loader_matrix(l, il, QN_T_ATTN_OUTPUT, QN_NEED_REQ, no, true, (int64_t)lp->n_head * lp->d_v,
                      e, 1);
    qn__loader_layer_norm(l, il, QN_T_POST_ATTN_NORM, QN_NEED_REQ);
}

void qn__tensors_gemma4(qn_loader *l, int32_t il)
{
    const qn_hparams *hp = &l->model->hp;
    want_attention(l, il);
    qn__loader_layer_norm(l, il, QN_T_FFN_NORM, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, QN_T_POST_FFW_NORM, QN_NEED_REQ);
    qn__loader_dense_ffn(l, il, hp->layer[il].n_ff);
    if (hp->n_expert > 0 && qn__loader_has(l, il, QN_T_FFN_GATE_INP, QN_PART_WEIGHT)) {
        qn__loader_experts(l, il);
        qn__loader_vector(l, il, QN_T_FFN_GATE_INP, QN_PART_SCALE, QN_NEED_REQ, hp->n_embd);
        qn__loader_layer_norm(l, il, QN_T_PRE_FFW_NORM_2, QN_NEED_REQ);
        qn__loader_layer_norm(l, il, QN_T_POST_FFW_NORM_1, QN_NEED_REQ);
        qn__loader_layer_norm(l, il, QN_T_POST_FFW_NORM_2, QN_NEED_REQ);
    }
    if (hp->n_side > 0) {
        qn_need no = QN_NEED_NO;
        qn__loader_matrix(l, il, QN_T_INP_GATE, QN_NEED_REQ, no, false, hp->n_embd, hp->n_side, 1);
        qn__loader_matrix(l, il, QN_T_PROJ, QN_NEED_REQ, no, false, hp->n_side, hp->n_embd, 1);
        qn__loader_layer_norm(l, il, QN_T_POST_NORM, QN_NEED_REQ);
    }
    qn__loader_vector(l, il, QN_T_LAYER_OUTPUT_SCALE, QN_PART_WEIGHT, QN_NEED_OPT, 1);
}

/* The inputs of all layers [A, L, T]: a row of a table for the token, and a projection of x. */
static qn_node *make_side(qn_builder *b, qn_node *x)
{
    qn_graph *g = b->g;
    const qn_model *m = b->model;
    int64_t a = b->hp->n_side, n = b->hp->n_layer, t = b->n_tokens;
    if (!b->in->tokens) {
        return qn__graph_fail(
            g, QN_ERR_UNSUPPORTED,
            "this model takes token ids only: its layers have inputs of their own");
    }
    qn_node *table = qn__build_leaf(b, m->global[QN_T_PER_LAYER_EMBD].weight);
    qn_node *tok = qn__graph_get_rows(g, table, b->in->tokens);
    tok = qn__graph_scale_bias(g, tok, sqrtf((float)a), 0.0f);
    qn_node *pr = qn__build_linear(b, &m->global[QN_T_PER_LAYER_PROJ], x, false);
    pr = qn__graph_scale_bias(g, pr, 1.0f / sqrtf((float)b->hp->n_embd), 0.0f);
    pr = qn__graph_reshape(g, pr, a, n, t, 1);
    pr = qn__build_norm(b, QN_ARCH_RMS, &m->global[QN_T_PER_LAYER_NORM], pr);
    qn_node *sum = qn__graph_add(g, pr, qn__graph_reshape(g, tok, a, n, t, 1));
    return qn__graph_scale_bias(g, sum, sqrtf(0.5f), 0.0f);
}

static qn_node *attention(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    const qn_layer_params *lp = &b->hp->layer[il];
    const qn_rope_params *p = &b->hp->rope[lp->rope].params;
    const qn_tensor *v_t = qn__build_tensor(b, il, QN_T_ATTN_V), none = {0};
    qn_node *table = qn__build_rope_table(b, lp->rope), *k = NULL, *v = NULL;
    qn_node *q = qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_Q), x, false);
    q = qn__build_heads(b, q, lp->d_k, lp->n_head, 0);
    q = qn__build_layer_norm(b, il, QN_T_ATTN_Q_NORM, q);
    q = qn__graph_rope(g, q, table, p->mode, p->n_rot, 0);
    if (lp->owns_kv) {
        k = qn__build_linear(b, qn__build_tensor(b, il, QN_T_ATTN_K), x, false);
        v = v_t->weight ? qn__build_linear(b, v_t, x, false) : k;
        v = qn__build_norm(b, QN_ARCH_RMS, &none, qn__build_heads(b, v, lp->d_v, lp->n_head_kv, 0));
        k = qn__build_heads(b, k, lp->d_k, lp->n_head_kv, 0);
        k = qn__build_layer_norm(b, il, QN_T_ATTN_K_NORM, k);
        k = qn__graph_rope(g, k, table, p->mode, p->n_rot, 0);
    }
    qn_node *y = qn__build_attend(b, il, q, k, v);
    return y ? qn__build_attention_output(b, il, y) : x;
}

/* The feed-forward of h = x + attention, before its last norm. */
static qn_node *feed_forward(qn_builder *b, int32_t il, qn_node *h)
{
    qn_graph *g = b->g;
    const qn_tensor *router = qn__build_tensor(b, il, QN_T_FFN_GATE_INP), none = {0};
    qn_node *y = qn__build_dense_ffn(b, il, qn__build_layer_norm(b, il, QN_T_FFN_NORM, h));
    if (!router->weight) {
        return y;
    }
    y = qn__build_layer_norm(b, il, QN_T_POST_FFW_NORM_1, y);
    qn_node *router_x = qn__build_norm(b, QN_ARCH_RMS, &none, h);
    router_x = qn__graph_scale_bias(g, router_x, 1.0f / sqrtf((float)b->hp->n_embd), 0.0f);
    router_x = qn__graph_mul(g, router_x, qn__build_leaf(b, router->scale));
    qn_node *experts_x = qn__build_layer_norm(b, il, QN_T_PRE_FFW_NORM_2, h);
    qn_node *experts = qn__build_experts(b, il, experts_x, router_x);
    return qn__graph_add(g, y, qn__build_layer_norm(b, il, QN_T_POST_FFW_NORM_2, experts));
}

static qn_node *add_side(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    const int64_t ne[4] = {b->hp->n_side, b->n_tokens, 1, 1};
    const size_t row = b->side->nb[2], nb[4] = {sizeof(float), row, row * (size_t)ne[1], 0};
    qn_node *side = qn__graph_view(g, b->side, ne, nb, (size_t)il * b->side->nb[1]);
    qn_node *y = qn__build_linear(b, qn__build_tensor(b, il, QN_T_INP_GATE), x, false);
    y = qn__graph_unary(g, y, QN_UNARY_GELU);
    y = qn__graph_mul(g, y, qn__build_cut(b, il, side));
    y = qn__build_linear(b, qn__build_tensor(b, il, QN_T_PROJ), y, false);
    return qn__graph_add(g, qn__build_layer_norm(b, il, QN_T_POST_NORM, y), x);
}

qn_node *qn__layer_gemma4(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    if (b->hp->n_side > 0 && !b->side) {
        b->side = make_side(b, x);
    }
    qn_node *attn = attention(b, il, qn__build_layer_norm(b, il, QN_T_ATTN_NORM, x));
    if (qn__build_only_stores(b, il)) {
        return x;
    }
    attn = qn__build_layer_norm(b, il, QN_T_POST_ATTN_NORM, attn);
    x = qn__graph_add(g, attn, qn__build_cut(b, il, x));
    qn_node *ffn = qn__build_layer_norm(b, il, QN_T_POST_FFW_NORM, feed_forward(b, il, x));
    x = qn__graph_add(g, ffn, x);
    if (b->hp->n_side > 0) {
        x = add_side(b, il, x);
    }
    const qn_weight *scale = qn__build_tensor(b, il, QN_T_LAYER_OUTPUT_SCALE)->weight;
    return scale ? qn__graph_mul(g, x, qn__build_leaf(b, scale)) : x;
}
