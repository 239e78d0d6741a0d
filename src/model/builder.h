/*
 * builder.h: the parts that a model's graph is put together from. T tokens, E embedding width, H
 * query heads, G KV heads, d and dv their sizes. Hidden rows are [E, T].
 */
#ifndef QUERN_MODEL_BUILDER_H
#define QUERN_MODEL_BUILDER_H

#include "model/loader.h"

typedef struct qn_builder {
    const qn_model *model;
    const qn_arch *arch;
    const qn_hparams *hp;
    qn_graph *g;
    const qn_build_inputs *in;
    qn_node *rope[QN_MAX_ROPE_KINDS]; /* tables, made when first needed */
    qn_node *side; /* per-layer inputs [n_side, n_layer, T], made by the first layer */
    int64_t n_tokens;
} qn_builder;

/* Leaves of a layer's tensor; NULL where the model has none. */
qn_node *qn__build_leaf(qn_builder *b, const qn_weight *w);

/* W x, times the scale, plus the bias; `bias_first`: the scale multiplies the sum. The bias that
 * stands beside the matrix is used. */
qn_node *qn__build_linear(qn_builder *b, const qn_tensor *t, qn_node *x, bool bias_first);

/* The norm of kind `norm` with the parameters of `t`. */
qn_node *qn__build_norm(qn_builder *b, qn_arch_norm norm, const qn_tensor *t, qn_node *x);

/* The same of a layer's tensor, with the architecture's kind of norm; x itself for QN_T_NONE. */
qn_node *qn__build_layer_norm(qn_builder *b, int32_t il, qn_tensor_id id, qn_node *x);

/* The cos and sin table of a rope kind. */
qn_node *qn__build_rope_table(qn_builder *b, int32_t rope);

/* Attention of the normed rows x, up to and with the output projection. In the last layer only the
 * rows asked for come out: [E, n_out]. */
qn_node *qn__build_attention(qn_builder *b, int32_t il, qn_node *x);

/* Its parts. Elements first … of the rows of x [n, T] as heads, a view [d, n_heads, T]. */
qn_node *qn__build_heads(qn_builder *b, qn_node *x, int64_t d, int64_t n_heads, int64_t first);
/* Stores k [d, G, T] and v [dv, G, T] (NULL: they are stored already), lets q [d, H, T] look at
 * what is stored -> [dv, H, T]; NULL where nothing behind the stores is needed. */
qn_node *qn__build_attend(qn_builder *b, int32_t il, qn_node *q, qn_node *k, qn_node *v);
/* The output projection of y [dv, H, T], of the rows asked for. */
qn_node *qn__build_attention_output(qn_builder *b, int32_t il, qn_node *y);

/* In the last layer, the rows asked for of any [n, T]; in the others x. */
qn_node *qn__build_cut(qn_builder *b, int32_t il, qn_node *x);

/* The feed-forward of a layer, dense or experts, of the normed rows x. */
qn_node *qn__build_ffn(qn_builder *b, int32_t il, qn_node *x);
qn_node *qn__build_dense_ffn(qn_builder *b, int32_t il, qn_node *x);
/* router_x: what the router looks at. */
qn_node *qn__build_experts(qn_builder *b, int32_t il, qn_node *x, qn_node *router_x);

/* One layer of the plain decoder. */
qn_node *qn__build_plain_layer(qn_builder *b, int32_t il, qn_node *x);

/* Whether nothing behind the KV store of this layer is needed. */
bool qn__build_only_stores(const qn_builder *b, int32_t il);

static inline const qn_tensor *qn__build_tensor(const qn_builder *b, int32_t il, qn_tensor_id id)
{
    return qn__model_get(b->model, il, id);
}

#endif
