/*
 * mla.c: latent attention (deepseek2, mistral4, minicpm3). A token's K and V of all heads are
 * linear in one row c of R values, and K has a rotated part k_pe that all heads share.
 *
 * Absorbed form: the store holds the rows c ‖ k_pe as one KV head and c as its V; each query head
 * is taken into the space of c by attn_k_b, and what attention gives is taken out of it by
 * attn_v_b. Legacy form (files with attn_kv_b): K and V of all heads are made and stored as usual.
 */
#include <math.h>

#include "base/fmath.h"
#include "model/arch/arch_keys.h"

#define MAX_RANK 65536

/* Layer counts of the models that do not compress their queries. */
static bool is_lite(const qn_hparams *hp)
{
    return hp->n_layer == 26 || hp->n_layer == 27 || (hp->n_layer == 48 && hp->n_vocab == 128256);
}

/* Sizes; the layers' heads become those of the store. */
static void read_mla(qn_keys *k, qn_hparams *hp, bool lite, bool may_absorb)
{
    qn_mla_params *mla = &hp->mla;
    int32_t n_rot = hp->rope[0].params.n_rot;
    mla->q_rank = lite ? 0 : qn__keys_need_i32(k, "attention.q_lora_rank", 1, MAX_RANK);
    mla->kv_rank = qn__keys_need_i32(k, "attention.kv_lora_rank", 1, MAX_RANK);
    int32_t d = qn__keys_i32(k, "attention.key_length_mla", 0, 0, MAX_RANK);
    int32_t d_v = qn__keys_i32(k, "attention.value_length_mla", 0, 0, MAX_RANK);
    mla->absorbed = may_absorb && d > 0 && d_v > 0;
    mla->d_nope = (mla->absorbed ? d : hp->layer[0].d_k) - n_rot;
    mla->d_v = mla->absorbed ? d_v : hp->layer[0].d_v;
    if (mla->d_nope < 1 || mla->d_v < 1) {
        qn__keys_fail(k, QN_ERR_FORMAT, "attention.key_length", "%d rotated values of heads of %d",
                      (int)n_rot, (int)(mla->d_nope + n_rot));
    }
    for (int32_t il = 0; il < hp->n_layer; il++) {
        qn_layer_params *lp = &hp->layer[il];
        lp->n_head_kv = mla->absorbed ? 1 : lp->n_head;
        lp->d_k = mla->absorbed ? mla->kv_rank + n_rot : mla->d_nope + n_rot;
        lp->d_v = mla->absorbed ? mla->kv_rank : mla->d_v;
    }
}

/* The scale of scores: 1 / sqrt(d), and with YaRN the square of its magnitude, which the rotation
 * puts on one part of the head only. `multiplier`: of the logarithm. */
static void set_scale(qn_hparams *hp, float multiplier)
{
    const qn_rope_kind *kind = &hp->rope[0];
    float m = 1.0f;
    if (kind->params.ext_factor != 0.0f) {
        float growth = 0.1f * (float)qn__log(1.0 / (double)kind->params.freq_scale);
        m = qn__rope_magnitude(kind, kind->params.freq_scale) * (1.0f + growth);
        m *= 1.0f + multiplier * growth;
    }
    hp->attend_scale = m * m / sqrtf((float)(hp->mla.d_nope + kind->params.n_rot));
}

static void read_deepseek2(qn_keys *k, qn_hparams *hp, bool own_multiplier)
{
    float multiplier = qn__keys_f32(k, "rope.scaling.yarn_log_multiplier", 0.0f) / 0.1f;
    read_mla(k, hp, is_lite(hp), true);
    hp->rope[0].log_multiplier = multiplier == 0.0f ? 0.0f : own_multiplier ? multiplier : 1.0f;
    set_scale(hp, multiplier);
    bool glm = (hp->n_layer == 47 || hp->n_layer == 48) && hp->n_vocab == 154880;
    if (glm && qn__keys_i32(k, "expert_gating_func", 0, 0, QN_MOE_SQRT_SOFTPLUS) == 0) {
        hp->moe.gate = QN_MOE_SIGMOID;
    }
    hp->q_temp_scale = qn__keys_f32(k, "attention.temperature_scale", 0.0f);
    hp->q_temp_length = qn__keys_i32(k, "attention.temperature_length", 0, 0, INT32_MAX / 2);
    if (hp->q_temp_scale != 0.0f && hp->q_temp_length == 0) {
        qn__keys_fail(k, QN_ERR_FORMAT, "attention.temperature_length", "missing");
    }
}

void qn__keys_deepseek2(qn_keys *k, qn_hparams *hp)
{
    read_deepseek2(k, hp, false);
}

void qn__keys_mistral4(qn_keys *k, qn_hparams *hp)
{
    read_deepseek2(k, hp, true);
}

/* The multipliers of this family are fixed. */
void qn__keys_minicpm3(qn_keys *k, qn_hparams *hp)
{
    read_mla(k, hp, false, false);
    set_scale(hp, 0.0f);
    hp->embd_scale = 12.0f;
    hp->residual_scale = 1.4f / sqrtf((float)hp->n_layer);
    hp->logit_scale = 256.0f / (float)hp->n_embd;
}

void qn__tensors_mla(qn_loader *l, int32_t il)
{
    const qn_hparams *hp = &l->model->hp;
    const qn_mla_params *mla = &hp->mla;
    int64_t e = hp->n_embd, h = hp->layer[il].n_head, r = mla->kv_rank;
    int64_t n_rot = hp->rope[0].params.n_rot, q = h * (mla->d_nope + n_rot);
    qn_need req = QN_NEED_REQ, no = QN_NEED_NO;
    if (mla->q_rank > 0) {
        qn__loader_matrix(l, il, QN_T_ATTN_Q_A, req, no, false, e, mla->q_rank, 1);
        qn__loader_norm(l, il, QN_T_ATTN_Q_A_NORM, QN_ARCH_RMS, req, mla->q_rank, 1);
        qn__loader_matrix(l, il, QN_T_ATTN_Q_B, req, no, false, mla->q_rank, q, 1);
    } else {
        qn__loader_matrix(l, il, QN_T_ATTN_Q, req, no, false, e, q, 1);
    }
    qn__loader_matrix(l, il, QN_T_ATTN_KV_A_MQA, req, no, false, e, r + n_rot, 1);
    qn__loader_norm(l, il, QN_T_ATTN_KV_A_NORM, QN_ARCH_RMS, req, r, 1);
    if (mla->absorbed) {
        qn__loader_matrix(l, il, QN_T_ATTN_K_B, req, no, false, mla->d_nope, r, h);
        qn__loader_matrix(l, il, QN_T_ATTN_V_B, req, no, false, r, mla->d_v, h);
    } else {
        int64_t rows = h * (mla->d_nope + mla->d_v);
        qn__loader_matrix(l, il, QN_T_ATTN_KV_B, req, no, false, r, rows, 1);
    }
    qn__loader_matrix(l, il, QN_T_ATTN_OUTPUT, req, no, true, h * mla->d_v, e, 1);
}

typedef struct parts {
    qn_node *q_nope, *q_pe; /* [d_nope, H, T], [n_rot, H, T] */
    qn_node *c, *k_pe;      /* [R, T], [n_rot, 1, T] */
} parts;

static qn_node *linear(qn_builder *b, int32_t il, qn_tensor_id id, qn_node *x)
{
    return qn__build_linear(b, qn__build_tensor(b, il, id), x, false);
}

static parts make_parts(qn_builder *b, int32_t il, qn_node *x)
{
    const qn_mla_params *mla = &b->hp->mla;
    const qn_rope_params *rope = &b->hp->rope[0].params;
    int64_t h = b->hp->layer[il].n_head, d = mla->d_nope + rope->n_rot;
    qn_node *table = qn__build_rope_table(b, 0), *q = NULL;
    if (mla->q_rank > 0) {
        qn_node *low = linear(b, il, QN_T_ATTN_Q_A, x);
        low = qn__build_layer_norm(b, il, QN_T_ATTN_Q_A_NORM, low);
        q = linear(b, il, QN_T_ATTN_Q_B, low);
    } else {
        q = linear(b, il, QN_T_ATTN_Q, x);
    }
    q = qn__build_heads(b, q, d, h, 0);
    if (b->in->q_scale) {
        q = qn__graph_mul(b->g, q, b->in->q_scale);
    }
    const int64_t nope_ne[4] = {mla->d_nope, h, b->n_tokens, 1};
    const int64_t pe_ne[4] = {rope->n_rot, h, b->n_tokens, 1};
    qn_node *q_pe = qn__graph_view(b->g, q, pe_ne, q->nb, (size_t)mla->d_nope * sizeof(float));
    qn_node *kv = linear(b, il, QN_T_ATTN_KV_A_MQA, x);
    qn_node *c = qn__graph_slice(b->g, kv, 0, mla->kv_rank);
    qn_node *k_pe = qn__build_heads(b, kv, rope->n_rot, 1, mla->kv_rank);
    return (parts){
        .q_nope = qn__graph_view(b->g, q, nope_ne, q->nb, 0),
        .q_pe = qn__graph_rope(b->g, q_pe, table, rope->mode, rope->n_rot, 0),
        .c = qn__build_layer_norm(b, il, QN_T_ATTN_KV_A_NORM, c),
        .k_pe = qn__graph_rope(b->g, k_pe, table, rope->mode, rope->n_rot, 0),
    };
}

/* One matrix for each head: x [n, H, T] -> [m, H, T], a view. */
static qn_node *by_head(qn_builder *b, int32_t il, qn_tensor_id id, qn_node *x)
{
    qn_node *y = linear(b, il, id, qn__graph_permute(b->g, x, 0, 2, 1, 3));
    return qn__graph_permute(b->g, y, 0, 2, 1, 3);
}

static qn_node *attend_absorbed(qn_builder *b, int32_t il, const parts *p)
{
    qn_graph *g = b->g;
    qn_node *q = qn__graph_concat(g, by_head(b, il, QN_T_ATTN_K_B, p->q_nope), p->q_pe, 0);
    qn_node *c = qn__build_heads(b, p->c, b->hp->mla.kv_rank, 1, 0);
    qn_node *y = qn__build_attend(b, il, q, qn__graph_concat(g, c, p->k_pe, 0), c);
    return y ? qn__graph_copy(g, by_head(b, il, QN_T_ATTN_V_B, y), QN_TYPE_F32) : NULL;
}

static qn_node *attend_legacy(qn_builder *b, int32_t il, const parts *p)
{
    qn_graph *g = b->g;
    const qn_mla_params *mla = &b->hp->mla;
    int64_t h = b->hp->layer[il].n_head, t = b->n_tokens;
    int64_t n_rot = b->hp->rope[0].params.n_rot;
    qn_node *kv = linear(b, il, QN_T_ATTN_KV_B, p->c);
    kv = qn__build_heads(b, kv, mla->d_nope + mla->d_v, h, 0);
    const int64_t k_ne[4] = {mla->d_nope, h, t, 1}, v_ne[4] = {mla->d_v, h, t, 1};
    qn_node *k_nope = qn__graph_view(g, kv, k_ne, kv->nb, 0);
    qn_node *v = qn__graph_view(g, kv, v_ne, kv->nb, (size_t)mla->d_nope * sizeof(float));
    /* the same rotated row for every head */
    const int64_t pe_ne[4] = {n_rot, h, t, 1};
    const size_t pe_nb[4] = {sizeof(float), 0, p->k_pe->nb[2], p->k_pe->nb[3]};
    qn_node *k_pe = qn__graph_view(g, p->k_pe, pe_ne, pe_nb, 0);
    qn_node *k = qn__graph_concat(g, k_nope, k_pe, 0);
    return qn__build_attend(b, il, qn__graph_concat(g, p->q_nope, p->q_pe, 0), k, v);
}

qn_node *qn__attention_mla(qn_builder *b, int32_t il, qn_node *x)
{
    parts p = make_parts(b, il, x);
    qn_node *y = b->hp->mla.absorbed ? attend_absorbed(b, il, &p) : attend_legacy(b, il, &p);
    return y ? qn__build_attention_output(b, il, y) : x;
}
