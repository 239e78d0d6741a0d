/*
 * tensors.c: which tensors a model has, by the features of its architecture's row, and what to say
 * about those that are left over.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/loader.h"

#define MAX_LEFTOVER_LINES 8

void qn__loader_vector(qn_loader *l, int32_t il, qn_tensor_id id, qn_tensor_part part, qn_need need,
                       int64_t n)
{
    qn_want want = {.id = id, .part = part, .need = need, .uses = QN_WEIGHT_PLAIN, .ne = {n}};
    qn__loader_want(l, il, &want);
}

/* Of the whole model ------------------------------------------------------------------------- */

void qn__loader_table(qn_loader *l, qn_tensor_id id, qn_need need, int64_t n, int64_t rows)
{
    qn_want want = {.id = id, .need = need, .uses = QN_WEIGHT_ROWS, .ne = {n, rows}};
    qn__loader_want(l, 0, &want);
}

static void want_factors(qn_loader *l)
{
    qn_hparams *hp = &l->model->hp;
    if (l->model->arch->flags & QN_ARCH_FACTORS_IGN) {
        qn__loader_vector(l, 0, QN_T_ROPE_FREQS, QN_PART_WEIGHT, QN_NEED_IGN, 0);
    }
    if (hp->n_rope == 0 || hp->rope[0].factors == QN_ROPE_FACTORS_NONE) {
        return;
    }
    int64_t pairs = hp->rope[0].params.n_rot / 2;
    bool freqs = l->model->arch->flags & QN_ARCH_FREQS;
    qn__loader_vector(l, 0, QN_T_ROPE_FREQS, QN_PART_WEIGHT, freqs ? QN_NEED_OPT : QN_NEED_NO,
                      pairs);
    qn_rope_factors factors = QN_ROPE_FACTORS_FREQS;
    if (!l->model->global[QN_T_ROPE_FREQS].weight) {
        factors = hp->rope[0].factors == QN_ROPE_FACTORS_LONG_SHORT ? QN_ROPE_FACTORS_LONG_SHORT
                                                                    : QN_ROPE_FACTORS_NONE;
    }
    if (factors == QN_ROPE_FACTORS_LONG_SHORT) {
        qn__loader_vector(l, 0, QN_T_ROPE_LONG, QN_PART_WEIGHT, QN_NEED_OPT, pairs);
        bool has_long = l->model->global[QN_T_ROPE_LONG].weight != NULL;
        qn__loader_vector(l, 0, QN_T_ROPE_SHORT, QN_PART_WEIGHT,
                          has_long ? QN_NEED_REQ : QN_NEED_NO, pairs);
        factors = has_long ? factors : QN_ROPE_FACTORS_NONE;
    }
    for (int32_t i = 0; i < hp->n_rope; i++) {
        if (hp->rope[i].factors != QN_ROPE_FACTORS_NONE) {
            hp->rope[i].factors = factors;
        }
    }
}

static void want_globals(qn_loader *l)
{
    qn_model *m = l->model;
    const qn_arch *a = m->arch;
    const qn_hparams *hp = &m->hp;
    int64_t e = hp->n_embd, v = hp->n_vocab;
    bool has_output = qn__loader_has(l, 0, QN_T_OUTPUT, QN_PART_WEIGHT);
    qn_need embd = a->flags & QN_ARCH_EMBD_OPTIONAL ? QN_NEED_OPT : QN_NEED_REQ;
    qn__loader_table(l, QN_T_TOKEN_EMBD, embd, e, v);
    qn__loader_table(l, QN_T_POSITION_EMBD, a->positions, e, hp->n_ctx_train);
    if (a->embd_norm != QN_NEED_NO) {
        qn__loader_norm(l, 0, QN_T_TOKEN_EMBD_NORM, a->norm, a->embd_norm, e, 1);
    }
    qn__loader_norm(l, 0, QN_T_OUTPUT_NORM, a->norm, QN_NEED_REQ, e, 1);
    if (a->head == QN_HEAD_TIED_ALWAYS || (a->head == QN_HEAD_TIED_OPT && !has_output)) {
        qn__loader_matrix(l, 0, QN_T_TOKEN_EMBD, QN_NEED_REQ, QN_NEED_NO, false, e, v, 1);
        m->global[QN_T_OUTPUT] = m->global[QN_T_TOKEN_EMBD];
        qn__loader_vector(l, 0, QN_T_OUTPUT, QN_PART_BIAS, a->head_bias, v);
    } else {
        qn__loader_matrix(l, 0, QN_T_OUTPUT, QN_NEED_REQ, a->head_bias, false, e, v, 1);
    }
    if (!m->global[QN_T_TOKEN_EMBD].weight && l->status == QN_OK) {
        qn__loader_table(l, QN_T_OUTPUT, QN_NEED_REQ, e, v);
        m->global[QN_T_TOKEN_EMBD].weight = m->global[QN_T_OUTPUT].weight;
    }
    want_factors(l);
    if (a->global_tensors) {
        a->global_tensors(l);
    }
}

/* Of a layer --------------------------------------------------------------------------------- */

static void want_qkv(qn_loader *l, int32_t il)
{
    const qn_arch *a = l->model->arch;
    const qn_layer_params *lp = &l->model->hp.layer[il];
    int64_t e = l->model->hp.n_embd;
    int64_t q = (int64_t)lp->n_head * lp->d_k, k = (int64_t)lp->n_head_kv * lp->d_k,
            v = (int64_t)lp->n_head_kv * lp->d_v;
    bool fused = qn__loader_has(l, il, QN_T_ATTN_QKV, QN_PART_WEIGHT);
    if (!fused && !(a->flags & QN_ARCH_QKV_FUSED)) {
        qn__loader_matrix(l, il, QN_T_ATTN_Q, QN_NEED_REQ, a->qkv_bias, true, e, q, 1);
        qn__loader_matrix(l, il, QN_T_ATTN_K, QN_NEED_REQ, a->qkv_bias, true, e, k, 1);
        qn__loader_matrix(l, il, QN_T_ATTN_V, QN_NEED_REQ, a->qkv_bias, true, e, v, 1);
        return;
    }
    bool scale = !(a->flags & QN_ARCH_NO_QKV_SCALE);
    qn__loader_matrix(l, il, QN_T_ATTN_QKV, QN_NEED_REQ, a->qkv_bias, scale, e, q + k + v, 1);
    bool separate = qn__loader_has(l, il, QN_T_ATTN_Q, QN_PART_BIAS) &&
                    qn__loader_has(l, il, QN_T_ATTN_K, QN_PART_BIAS) &&
                    qn__loader_has(l, il, QN_T_ATTN_V, QN_PART_BIAS);
    if (a->qkv_bias == QN_NEED_OPT && separate &&
        !qn__model_get(l->model, il, QN_T_ATTN_QKV)->bias) {
        qn__loader_vector(l, il, QN_T_ATTN_Q, QN_PART_BIAS, QN_NEED_REQ, q);
        qn__loader_vector(l, il, QN_T_ATTN_K, QN_PART_BIAS, QN_NEED_REQ, k);
        qn__loader_vector(l, il, QN_T_ATTN_V, QN_PART_BIAS, QN_NEED_REQ, v);
    }
}

void qn__loader_attention(qn_loader *l, int32_t il)
{
    const qn_arch *a = l->model->arch;
    const qn_layer_params *lp = &l->model->hp.layer[il];
    if (a->attention_tensors) {
        a->attention_tensors(l, il);
        return;
    }
    want_qkv(l, il);
    qn__loader_matrix(l, il, QN_T_ATTN_OUTPUT, QN_NEED_REQ, a->out_bias, true,
                      (int64_t)lp->n_head * lp->d_v, l->model->hp.n_embd, 1);
    qn__loader_vector(l, il, QN_T_ATTN_SINKS, QN_PART_WEIGHT, a->sinks, lp->n_head);
    if (a->qk == QN_QK_NONE) {
        return;
    }
    bool full = a->qk == QN_QK_FULL, table = a->qk == QN_QK_TABLE;
    qn_need need = a->qk_need == QN_NEED_NO ? QN_NEED_REQ : a->qk_need;
    qn__loader_norm(l, il, QN_T_ATTN_Q_NORM, a->qk_norm, need,
                    (int64_t)lp->d_k * (full ? lp->n_head : 1), table ? lp->n_head : 1);
    qn__loader_norm(l, il, QN_T_ATTN_K_NORM, a->qk_norm, need,
                    (int64_t)lp->d_k * (full ? lp->n_head_kv : 1), table ? lp->n_head_kv : 1);
}

void qn__loader_experts(qn_loader *l, int32_t il)
{
    const qn_arch *a = l->model->arch;
    const qn_arch_moe *moe = &a->moe;
    const qn_hparams *hp = &l->model->hp;
    int64_t e = hp->n_embd, x = hp->n_expert, fe = hp->n_ff_expert, fs = hp->n_ff_shared;
    bool scale = a->flags & QN_ARCH_SCALE_EXPERTS;
    qn_need bias = moe->expert_bias;
    qn__loader_matrix(l, il, QN_T_FFN_GATE_INP, QN_NEED_REQ, moe->router_bias, false, e, x, 1);
    qn__loader_vector(l, il, QN_T_EXP_PROBS_B, QN_PART_BIAS, moe->select_bias, x);
    if (qn__loader_has(l, il, QN_T_FFN_GATE_UP_EXPS, QN_PART_WEIGHT)) {
        qn__loader_matrix(l, il, QN_T_FFN_GATE_UP_EXPS, QN_NEED_REQ, bias, scale, e, 2 * fe, x);
    } else {
        qn_need gate = moe->gate_exps == QN_NEED_NO ? QN_NEED_REQ : moe->gate_exps;
        qn__loader_matrix(l, il, QN_T_FFN_GATE_EXPS, gate, bias, scale, e, fe, x);
        qn__loader_matrix(l, il, QN_T_FFN_UP_EXPS, QN_NEED_REQ, bias, scale, e, fe, x);
    }
    qn__loader_matrix(l, il, QN_T_FFN_DOWN_EXPS, QN_NEED_REQ, bias, scale, fe, e, x);
    if (fs > 0) {
        qn__loader_matrix(l, il, QN_T_FFN_GATE_SHEXP, QN_NEED_REQ, QN_NEED_NO, false, e, fs, 1);
        qn__loader_matrix(l, il, QN_T_FFN_UP_SHEXP, QN_NEED_REQ, QN_NEED_NO, false, e, fs, 1);
        qn__loader_matrix(l, il, QN_T_FFN_DOWN_SHEXP, QN_NEED_REQ, QN_NEED_NO, false, fs, e, 1);
    }
    if (fs > 0 && moe->shared_gate) {
        qn__loader_matrix(l, il, QN_T_FFN_GATE_INP_SHEXP, QN_NEED_REQ, QN_NEED_NO, false, e, 1, 1);
    }
}

void qn__loader_dense_ffn(qn_loader *l, int32_t il, int64_t width)
{
    const qn_arch *a = l->model->arch;
    int64_t e = l->model->hp.n_embd, f = width;
    bool scale = a->flags & QN_ARCH_SCALE_FFN;
    if (a->ffn == QN_FFN_GATED) {
        qn__loader_matrix(l, il, QN_T_FFN_GATE, QN_NEED_REQ, a->gate_bias, scale, e, f, 1);
    }
    int64_t up = a->ffn == QN_FFN_PACKED ? 2 * f : f;
    qn__loader_matrix(l, il, QN_T_FFN_UP, QN_NEED_REQ, a->up_bias, scale, e, up, 1);
    qn__loader_matrix(l, il, QN_T_FFN_DOWN, QN_NEED_REQ, a->down_bias, scale, f, e, 1);
    qn__loader_vector(l, il, QN_T_FFN_ACT, QN_PART_WEIGHT, a->act_scales, f);
}

void qn__loader_layer_norm(qn_loader *l, int32_t il, qn_tensor_id id, qn_need need)
{
    if (id != QN_T_NONE) {
        qn__loader_norm(l, il, id, l->model->arch->norm, need, l->model->hp.n_embd, 1);
    }
}

void qn__loader_plain_layer(qn_loader *l, int32_t il)
{
    const qn_arch *a = l->model->arch;
    const qn_layer_params *lp = &l->model->hp.layer[il];
    qn__loader_layer_norm(l, il, a->attn_in, QN_NEED_REQ);
    if (a->flags & QN_ARCH_ATTN_NORM_2) {
        qn__loader_layer_norm(l, il, QN_T_ATTN_NORM_2, QN_NEED_OPT);
    }
    qn__loader_layer_norm(l, il, a->attn_post, QN_NEED_REQ);
    qn__loader_layer_norm(l, il, a->ffn_in, a->ffn_in_optional ? QN_NEED_OPT : QN_NEED_REQ);
    qn__loader_layer_norm(l, il, a->ffn_post, QN_NEED_REQ);
    qn__loader_attention(l, il);
    if (lp->n_used > 0) {
        qn__loader_experts(l, il);
    } else {
        qn__loader_dense_ffn(l, il, lp->n_ff);
    }
}

/* What is left over -------------------------------------------------------------------------- */

/* The layer number in "blk.N.…", -1 for others. */
static int layer_of(const char *name)
{
    int layer = -1;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Tensors that change what a layer computes: a model that has them is not what it says it is. */
static bool is_telling(const char *name)
{
    static const char *const telling[] = {".attn_q_norm.weight", ".attn_k_norm.weight",
                                          ".attn_sinks.weight", ".ffn_gate_inp.weight"};
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
        if (ends_with(name, telling[i])) {
            return true;
        }
    }
    return false;
}

static void report_leftovers(qn_loader *l)
{
    const qn_log *log = &l->options->log;
    const qn_model *m = l->model;
    size_t n_scales = 0, n_others = 0;
    for (size_t i = 0; i < l->n_tensors; i++) {
        const char *name = qn_gguf_tensor_at(m->gguf, i)->name;
        int layer = layer_of(name);
        bool nextn = layer >= m->hp.n_layer && layer < m->hp.n_layer + m->hp.n_nextn;
        if (l->wanted[i] || nextn || ends_with(name, ".input_scale")) {
            continue;
        }
        if (is_telling(name)) {
            qn__loader_fail(l, QN_ERR_UNSUPPORTED,
                            "tensor %s does not belong to the architecture %s", name,
                            m->arch->name);
            return;
        }
        if (ends_with(name, ".scale")) {
            if (n_scales++ == 0) {
                qn__log_line(log, QN_LOG_WARN, "%s: tensor %s and the like are not used by %s",
                             qn_gguf_file_name(m->gguf, 0), name, m->arch->name);
            }
        } else if (n_others++ < MAX_LEFTOVER_LINES) {
            qn__log_line(log, QN_LOG_WARN, "%s: tensor %s is not used by %s",
                         qn_gguf_file_name(m->gguf, 0), name, m->arch->name);
        }
    }
    if (n_others > MAX_LEFTOVER_LINES) {
        qn__log_line(log, QN_LOG_WARN, "%s: %zu tensors are not used",
                     qn_gguf_file_name(m->gguf, 0), n_others);
    }
}

qn_status qn__loader_tensors(qn_loader *l, qn_error *err)
{
    const qn_arch *a = l->model->arch;
    want_globals(l);
    for (int32_t il = 0; il < l->model->hp.n_layer && l->status == QN_OK; il++) {
        (a->layer_tensors ? a->layer_tensors : qn__loader_plain_layer)(l, il);
    }
    if (l->status == QN_OK) {
        report_leftovers(l);
    }
    if (l->status != QN_OK && err) {
        *err = l->error;
    }
    return l->status;
}
