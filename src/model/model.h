/*
 * model.h: a loaded model as the memory and context rooms see it: hyper-parameters, the list of KV
 * layers and groups, and the function that puts the model's layers into a graph.
 *
 * How data passes: qn_model_load (load.c) reads hyper-parameters (hparams.c) by the architecture's
 * row of the table (arch.h), finds and checks tensors (tensors.c), packs weights. A context makes
 * the input leaves and stores, calls qn__model_build, plans the graph and runs it.
 */
#ifndef QUERN_MODEL_MODEL_H
#define QUERN_MODEL_MODEL_H

#include <quern/model.h>

#include "tensor/graph.h"
#include "tensor/weight.h"

#define QN_MAX_LAYERS     512
#define QN_MAX_EXPERTS    1024
#define QN_MAX_KV_GROUPS  4
#define QN_MAX_ROPE_KINDS 3

/* One layer of the trunk. Sizes in elements. */
typedef struct qn_layer_params {
    int32_t n_head, n_head_kv; /* H, G; G = 0: no attention in this layer */
    int32_t d_k, d_v;          /* size of a K and a V head */
    int32_t n_ff;              /* F */
    int32_t n_used;            /* experts a token; 0: a dense layer */
    int32_t rope;              /* index in qn_hparams.rope; -1: this layer does not rotate */
    int32_t kv;                /* index in qn_kv_layout.layers; -1: none */
    bool owns_kv;              /* false: reads the K and V that an earlier layer stored */
    bool has_window;
} qn_layer_params;

/* Which tensor, if any, divides the angles of a rope kind. */
typedef enum qn_rope_factors {
    QN_ROPE_FACTORS_NONE,
    QN_ROPE_FACTORS_FREQS,     /* rope_freqs */
    QN_ROPE_FACTORS_LONG_SHORT /* by the size of the context */
} qn_rope_factors;

typedef struct qn_rope_kind {
    qn_rope_params params;
    qn_rope_factors factors;
    float magnitude;      /* of the file, multiplies what YaRN gives */
    float log_multiplier; /* of YaRN; 0: none */
} qn_rope_kind;

/* Latent attention: K and V of all heads are made of one short row a token. */
typedef struct qn_mla_params {
    int32_t q_rank;      /* of the query's compression; 0: none */
    int32_t kv_rank;     /* R; 0: no latent attention */
    int32_t d_nope, d_v; /* of one head, before absorption; d = d_nope + n_rot */
    bool absorbed;       /* the store holds latent rows and one KV head, R + n_rot wide */
} qn_mla_params;

typedef struct qn_hparams {
    int32_t n_vocab, n_ctx_train, n_embd, n_embd_out, n_layer, n_nextn;
    int32_t n_side; /* width of the per-layer inputs of a token; 0: none */
    int32_t n_expert, n_ff_expert, n_ff_shared;
    float norm_eps;
    bool causal;
    qn_pooling pooling;
    qn_rope_kind rope[QN_MAX_ROPE_KINDS];
    int32_t n_rope;
    int32_t n_ctx_orig; /* above it a context takes the long factors */
    qn_moe_params moe;
    qn_mla_params mla;
    qn_window window;
    int32_t window_size;
    float attend_scale;   /* 0: 1 / sqrt(d_k) of the layer */
    float attend_cap;     /* 0: none */
    float alibi_bias;     /* 0: none */
    float clamp_qkv;      /* 0: none */
    float embd_scale;     /* 0: none; text tokens */
    bool embd_scale_rows; /* embd_scale also applies to rows given by the caller */
    float residual_scale; /* 0: none */
    float logit_scale;    /* 0: none; multiplies */
    float logit_cap;      /* 0: none */
    float q_temp_scale;   /* 0: Q takes no temperature by position */
    int32_t q_temp_length, q_temp_offset;
    bool q_temp_no_rope; /* … only in layers that do not rotate */
    bool qk_unit_norm;   /* Q and K heads are normed without weights after they are rotated */
    bool parallel;       /* attention and feed-forward side by side */
    qn_layer_params layer[QN_MAX_LAYERS];
} qn_hparams;

/*
 * What the memory room must hold: one K and one V store a KV layer; KV layers of one group share
 * slots, tables, masks and rows. Layers of a model that share a store have one entry here.
 */
typedef struct qn_kv_layer {
    int32_t group;     /* index in groups */
    int32_t n_head_kv; /* G */
    int32_t d_k, d_v;  /* row of one head */
    int32_t rope;      /* index in qn_hparams.rope, for moving positions; -1: not rotated */
    int32_t rot_first; /* the rotated elements are rot_first … + n_rot of each K head */
} qn_kv_layer;

typedef struct qn_kv_group {
    qn_window window;    /* QN_WINDOW_NONE: keys of all positions are needed */
    int32_t window_size; /* a query at p needs no key that the window masks for all p' >= p */
} qn_kv_group;

typedef struct qn_kv_layout {
    int32_t n_groups, n_layers;
    qn_kv_group groups[QN_MAX_KV_GROUPS];
    qn_kv_layer layers[QN_MAX_LAYERS];
    bool can_shift;        /* positions of stored keys may be moved by rotating K */
    const char *why_fixed; /* a reason for people where can_shift is false; else NULL */
} qn_kv_layout;

const qn_hparams *qn__model_hparams(const qn_model *model);
const qn_kv_layout *qn__model_kv_layout(const qn_model *model);

/*
 * Everything that fixes the angles of a rope kind, with the base and scale that the context was
 * made with (0: the model's; they change kind 0 only). For moving keys; qn__model_build does the
 * same.
 */
qn_rope_params qn__model_rope_params(const qn_model *model, int32_t rope, float freq_base,
                                     float freq_scale);

/* The frequency factors leaf (F32 [n_rot / 2]) of a rope kind for a context of `n_ctx_seq`
 * positions a sequence, or NULL where its angles are not divided. For moving keys. */
const qn_weight *qn__model_rope_factors(const qn_model *model, int32_t rope, int64_t n_ctx_seq);

/* Leaves of the graph that the context made and fills before each run. */
typedef struct qn_build_group {
    qn_node *slots;                 /* I32 [T], of KV_STORE */
    qn_node *tables, *masks, *rows; /* of ATTEND, see tensor/graph.h */
} qn_build_group;

typedef struct qn_build_inputs {
    qn_node *tokens;     /* I32 [T]; or NULL, then */
    qn_node *embeddings; /* F32 [E, T], rows given by the caller */
    qn_node *positions;  /* I32 [T], or [T, 4] where qn__model_n_positions says 4 */
    qn_node *q_scale;    /* F32 [1, 1, T], filled with qn__model_q_scale; NULL where the model does
                            not need it (qn__model_needs_q_scale) */
    qn_node *out_ids;    /* I32 [n_out]: the tokens whose rows are asked for; NULL: all T */
    bool want_logits, want_embeddings;     /* neither: only the stores are written */
    int64_t n_ctx_seq;                     /* positions that a sequence of this context may have */
    float rope_freq_base, rope_freq_scale; /* of the context; 0: the model's */
    const qn_build_group *groups;          /* [kv_layout.n_groups] */
    qn_node *const *k, *const *v;          /* [kv_layout.n_layers] store leaves */
} qn_build_inputs;

typedef struct qn_build_outputs {
    qn_node *logits;     /* F32 [V, n_out]; NULL where not asked for or not there */
    qn_node *embeddings; /* F32 [E_out, n_out], rows after the final norm; NULL likewise */
} qn_build_outputs;

/*
 * Adds the model's nodes to `g`. Results are marked as outputs of the graph. Errors stay in the
 * graph (qn__graph_finish) or are returned. The model must hold weights (not vocab_only).
 */
qn_status qn__model_build(const qn_model *model, qn_graph *g, const qn_build_inputs *in,
                          qn_build_outputs *out, qn_error *err);

/* How many positions a token has: 1, or 4 for the M-RoPE modes (section after section). */
int32_t qn__model_n_positions(const qn_model *model);

/* Positions at or above it have no row in the model's table of learned positions; 0: no limit. */
int32_t qn__model_max_positions(const qn_model *model);

/* The factor of Q for a token at `position`, for models that have one. */
bool qn__model_needs_q_scale(const qn_model *model);
float qn__model_q_scale(const qn_model *model, int32_t position);

#endif
