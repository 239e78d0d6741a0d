/*
 * build.c: puts a model into a graph: input rows, layers, head. The plain decoder layer follows the
 * features of the architecture's row; attention is in build_attention.c, the feed-forward in
 * build_ffn.c.
 */
#include "model/builder.h"

#include "base/error.h"

qn_node *qn__build_leaf(qn_builder *b, const qn_weight *w)
{
    return w ? qn__graph_weight(b->g, w, w->name) : NULL;
}

qn_node *qn__build_linear(qn_builder *b, const qn_tensor *t, qn_node *x, bool bias_first)
{
    qn_graph *g = b->g;
    qn_node *w = qn__build_leaf(b, t->weight), *bias = qn__build_leaf(b, t->bias);
    if (!t->scale) {
        return qn__graph_mul_mat(g, w, x, bias);
    }
    qn_node *scale = qn__build_leaf(b, t->scale);
    if (bias_first) {
        return qn__graph_mul(g, qn__graph_mul_mat(g, w, x, bias), scale);
    }
    qn_node *y = qn__graph_mul(g, qn__graph_mul_mat(g, w, x, NULL), scale);
    return bias ? qn__graph_add(g, y, bias) : y;
}

qn_node *qn__build_norm(qn_builder *b, qn_arch_norm norm, const qn_tensor *t, qn_node *x)
{
    qn_norm kind = norm <= QN_ARCH_RMS_BIAS ? QN_NORM_RMS : QN_NORM_LAYER;
    return qn__graph_norm(b->g, x, kind, b->hp->norm_eps, qn__build_leaf(b, t->weight),
                          qn__build_leaf(b, t->bias));
}

/* Input rows [E, T]: embedding, scale, positions, norm. */
static qn_node *input_rows(qn_builder *b)
{
    qn_graph *g = b->g;
    const qn_model *m = b->model;
    const qn_build_inputs *in = b->in;
    qn_node *x = in->embeddings;
    if (in->tokens) {
        x = qn__graph_get_rows(g, qn__build_leaf(b, m->global[QN_T_TOKEN_EMBD].weight), in->tokens);
    }
    if (b->hp->embd_scale != 0.0f && (in->tokens || b->hp->embd_scale_rows)) {
        x = qn__graph_scale_bias(g, x, b->hp->embd_scale, 0.0f);
    }
    const qn_weight *positions = m->global[QN_T_POSITION_EMBD].weight;
    if (positions) {
        qn_node *table = qn__build_leaf(b, positions);
        x = qn__graph_add(g, x, qn__graph_get_rows(g, table, in->positions));
    }
    if (m->global[QN_T_TOKEN_EMBD_NORM].weight) {
        x = qn__build_norm(b, b->arch->norm, &m->global[QN_T_TOKEN_EMBD_NORM], x);
    }
    return x;
}

bool qn__build_only_stores(const qn_builder *b, int32_t il)
{
    return il == b->hp->n_layer - 1 && !b->in->want_logits && !b->in->want_embeddings;
}

qn_node *qn__build_cut(qn_builder *b, int32_t il, qn_node *x)
{
    if (il != b->hp->n_layer - 1 || !b->in->out_ids) {
        return x;
    }
    return qn__graph_get_rows(b->g, x, b->in->out_ids);
}

static qn_node *residual(qn_builder *b, qn_node *branch)
{
    float scale = b->hp->residual_scale;
    return scale != 0.0f ? qn__graph_scale_bias(b->g, branch, scale, 0.0f) : branch;
}

qn_node *qn__build_layer_norm(qn_builder *b, int32_t il, qn_tensor_id id, qn_node *x)
{
    if (id == QN_T_NONE) {
        return x;
    }
    return qn__build_norm(b, b->arch->norm, qn__build_tensor(b, il, id), x);
}

qn_node *qn__build_plain_layer(qn_builder *b, int32_t il, qn_node *x)
{
    qn_graph *g = b->g;
    const qn_arch *a = b->arch;
    qn_node *attn_x = qn__build_layer_norm(b, il, a->attn_in, x);
    bool two = qn__build_tensor(b, il, QN_T_ATTN_NORM_2)->weight != NULL;
    qn_node *attn =
        qn__build_attention(b, il, two ? qn__build_layer_norm(b, il, QN_T_ATTN_NORM_2, x) : attn_x);
    if (qn__build_only_stores(b, il)) {
        return x;
    }
    attn = qn__build_layer_norm(b, il, a->attn_post, attn);
    x = qn__build_cut(b, il, x);
    if (!b->hp->parallel) {
        x = qn__graph_add(g, residual(b, attn), x);
        bool absent = a->ffn_in_optional && !qn__build_tensor(b, il, a->ffn_in)->weight;
        qn_node *ffn_x =
            absent ? qn__build_cut(b, il, attn_x) : qn__build_layer_norm(b, il, a->ffn_in, x);
        qn_node *ffn = qn__build_layer_norm(b, il, a->ffn_post, qn__build_ffn(b, il, ffn_x));
        return qn__graph_add(g, residual(b, ffn), x);
    }
    bool own_norm = a->ffn_in != QN_T_NONE;
    qn_node *ffn_x =
        own_norm ? qn__build_layer_norm(b, il, a->ffn_in, x) : qn__build_cut(b, il, attn_x);
    qn_node *ffn = qn__build_layer_norm(b, il, a->ffn_post, qn__build_ffn(b, il, ffn_x));
    if (a->block == QN_BLOCK_FFN_ATTN_X) {
        return qn__graph_add(g, qn__graph_add(g, ffn, attn), x);
    }
    return qn__graph_add(g, qn__graph_add(g, ffn, x), attn);
}

static void build_head(qn_builder *b, qn_node *x, qn_build_outputs *out)
{
    qn_graph *g = b->g;
    const qn_model *m = b->model;
    x = qn__build_norm(b, b->arch->norm, &m->global[QN_T_OUTPUT_NORM], x);
    if (b->in->want_embeddings) {
        out->embeddings = qn__graph_output(g, x, "embeddings");
    }
    if (!b->in->want_logits) {
        return;
    }
    x = qn__build_linear(b, &m->global[QN_T_OUTPUT], x, false);
    if (b->hp->logit_scale != 0.0f) {
        x = qn__graph_scale_bias(g, x, b->hp->logit_scale, 0.0f);
    }
    if (b->hp->logit_cap != 0.0f) {
        x = qn__graph_soft_cap(g, x, b->hp->logit_cap);
    }
    out->logits = qn__graph_output(g, x, "logits");
}

qn_status qn__model_build(const qn_model *model, qn_graph *g, const qn_build_inputs *in,
                          qn_build_outputs *out, qn_error *err)
{
    *out = (qn_build_outputs){0};
    if (model->vocab_only) {
        return qn__error(err, QN_ERR_ARGUMENT, "%s: opened for its vocabulary only, has no weights",
                         qn_gguf_file_name(model->gguf, 0));
    }
    qn_builder b = {
        .model = model,
        .arch = model->arch,
        .hp = &model->hp,
        .g = g,
        .in = in,
        .n_tokens = in->tokens ? in->tokens->ne[0] : in->embeddings->ne[1],
    };
    qn_node *x = input_rows(&b);
    for (int32_t il = 0; il < b.hp->n_layer; il++) {
        x = b.arch->layer ? b.arch->layer(&b, il, x) : qn__build_plain_layer(&b, il, x);
    }
    if (in->want_logits || in->want_embeddings) {
        build_head(&b, x, out);
    }
    if (g->status != QN_OK && err) {
        *err = g->error;
    }
    return g->status;
}
