/*
 * graph.h: the tensor graph, the only place where numbers are computed.
 *
 * A qn_graph is an arena of nodes in creation order, which is a topological order. Builder calls
 * check shapes and keep the first error; the caller checks once, with qn__graph_finish. The graph
 * holds no results: a plan (device/plan.h) places nodes on devices, gives them storage and runs.
 *
 * Shapes: ne[0] is the fastest dimension ("row"), missing dimensions are 1. Strides nb in bytes.
 * Activations are F32; T below is the number of tokens; [a, b] lists ne[0], ne[1].
 * Views (view, reshape, permute) are nodes that share storage with their source.
 *
 * Every operation is one row of the table in ops.c (name, number of sources, shape rule).
 */
#ifndef QUERN_TENSOR_GRAPH_H
#define QUERN_TENSOR_GRAPH_H

#include <quern/type.h>

#include "base/mem.h"

#define QN_MAX_DIMS  4
#define QN_MAX_SRC   8
#define QN_NAME_SIZE 48

typedef enum qn_op {
    QN_OP_NONE,    /* leaf: weight, constant, input or store; its bytes come from outside */
    QN_OP_VIEW,    /* window into src0: strides and offset */
    QN_OP_RESHAPE, /* same contiguous bytes, other ne */
    QN_OP_PERMUTE, /* dimensions in another order */
    QN_OP_COPY,    /* contiguous copy of a view, converted to `type` (F32, F16, BF16) */
    QN_OP_CONCAT,  /* src0 and src1 one behind the other along params.dim */
    QN_OP_ADD,     /* element-wise; src1 is repeated where its ne is 1 */
    QN_OP_SUB,
    QN_OP_MUL,
    QN_OP_DIV,
    QN_OP_SCALE_BIAS, /* fmaf(x, scale, bias): one rounding */
    QN_OP_UNARY,      /* params.unary */
    QN_OP_CLAMP,
    QN_OP_GLU,        /* params.glu of gate src0 and up src1 */
    QN_OP_NORM,       /* params.norm over ne[0]; src1 weight, src2 bias, each optional */
    QN_OP_SOFT_MAX,   /* over ne[0] */
    QN_OP_SUM_ROWS,   /* over ne[0] -> ne[0] = 1 */
    QN_OP_ARGMAX,     /* over ne[0] -> I32; ties to the lowest index, NaN never wins */
    QN_OP_ROPE_TABLE, /* positions -> cos, sin of every pair */
    QN_OP_ROPE,       /* rotation of heads by a table */
    QN_OP_GET_ROWS,   /* rows of src0 (any type) chosen by I32 src1 -> F32 */
    QN_OP_SET_ROWS,   /* rows of src1 into a copy of src0 at the places I32 src2 */
    QN_OP_MUL_MAT,    /* weight src0 [in, out] times src1 [in, T] -> [out, T]; src2 bias optional */
    QN_OP_MUL_MAT_ID, /* the same with one matrix of a stack for each (token, rank) */
    QN_OP_ADD_ID,     /* adds row ids[k, t] of src1 to src0[:, k, t] */
    QN_OP_MOE_SELECT, /* the K experts of each token, best first -> I32 [K, T] */
    QN_OP_MOE_WEIGHTS, /* their weights -> F32 [K, T] */
    QN_OP_MOE_SUM,     /* sum over K of x[:, k, t] * w[k, t], k ascending */
    QN_OP_KV_STORE,    /* writes K or V rows into a paged store */
    QN_OP_ATTEND,      /* attention over a paged store */
    QN_OP_SAMPLE,      /* rows of logits through a chain of samplers each: sample.h */
    QN_OP_COUNT
} qn_op;

typedef enum qn_unary {
    QN_UNARY_SILU,
    QN_UNARY_GELU, /* tanh form */
    QN_UNARY_GELU_ERF,
    QN_UNARY_GELU_QUICK,
    QN_UNARY_RELU,
    QN_UNARY_RELU_SQR,
    QN_UNARY_SIGMOID,
    QN_UNARY_TANH,
    QN_UNARY_SOFTPLUS,
    QN_UNARY_EXP,
    QN_UNARY_LOG,
    QN_UNARY_SQRT,
    QN_UNARY_SQR,
    QN_UNARY_NEG,
    QN_UNARY_ABS,
    QN_UNARY_SOFT_CAP, /* cap * tanh(x / cap); the cap in params.value */
    QN_UNARY_COUNT
} qn_unary;

typedef enum qn_glu {
    QN_GLU_SWIGLU,
    QN_GLU_GEGLU,
    QN_GLU_REGLU,
    QN_GLU_SWIGLU_OAI,       /* min(g, 7), clamp(u, -7, 7): g sigmoid(1.702 g) (u + 1) */
    QN_GLU_SWIGLU_CLAMP_IN,  /* silu(min(g, c)) * clamp(u, -c, c) */
    QN_GLU_SWIGLU_CLAMP_OUT, /* min(silu(g), c) * clamp(u, -c, c) */
    QN_GLU_COUNT
} qn_glu;

typedef enum qn_norm {
    QN_NORM_RMS,
    QN_NORM_LAYER,
    QN_NORM_L2_MAX, /* x / max(sqrt(sum x^2), eps) */
    QN_NORM_L2_EPS, /* x / sqrt(sum x^2 + eps) */
    QN_NORM_COUNT
} qn_norm;

/* Which elements of a head make a rotated pair j, and which of the four positions turns it. */
typedef enum qn_rope_mode {
    QN_ROPE_NORM,  /* (2j, 2j+1) */
    QN_ROPE_NEOX,  /* (j, j + n_rot/2) */
    QN_ROPE_MROPE, /* as NEOX, four positions by sections */
    QN_ROPE_IMROPE /* as NEOX, four positions interleaved */
} qn_rope_mode;

/* Everything that fixes the angles of one kind of layer. Layers with equal kinds share one table
 * node. attn_factor is the final magnitude factor without the YaRN part (0.1 ln(1/s) + 1), which
 * the table multiplies in when ext_factor != 0. */
typedef struct qn_rope_params {
    qn_rope_mode mode;
    int32_t n_rot;       /* rotated dimensions, even */
    int32_t n_ctx_orig;  /* YaRN only */
    int32_t sections[4]; /* M-RoPE */
    float freq_base, freq_scale;
    float ext_factor, attn_factor, beta_fast, beta_slow;
} qn_rope_params;

typedef enum qn_moe_gate {
    QN_MOE_SOFT_MAX = 1,
    QN_MOE_SIGMOID = 2,
    QN_MOE_SOFT_MAX_CHOSEN = 3, /* soft-max over the chosen logits only */
    QN_MOE_SQRT_SOFTPLUS = 4
} qn_moe_gate;

typedef struct qn_moe_params {
    qn_moe_gate gate;
    int32_t n_used;                  /* K */
    int32_t n_groups, n_groups_used; /* n_groups <= 1: no groups */
    bool select_by_logit;            /* choose by the logits themselves, weigh by the gate */
    bool normalize;                  /* w /= max(sum w, 6.103515625e-5) */
    float scale;                     /* 0 and 1: none */
} qn_moe_params;

typedef enum qn_window {
    QN_WINDOW_NONE,
    QN_WINDOW_STANDARD, /* masked: p_q - p_k >= n */
    QN_WINDOW_CHUNKED,  /* masked: p_k < floor(p_q / n) * n */
    QN_WINDOW_SYMMETRIC /* masked: |p_q - p_k| > n / 2 */
} qn_window;

typedef struct qn_attend_params {
    float scale;
    float soft_cap;   /* 0: none; applied to scale * score */
    float alibi_bias; /* max bias B; 0: none */
    qn_window window;
    int32_t window_size;
    bool causal;
    int32_t n_kv_heads; /* heads of the store; the query head h reads h / (H / n_kv_heads) */
} qn_attend_params;

/*
 * The paged store, as tensors, so that every device can hold one:
 *  K store: [32, d, G, n_blocks] of type F32, F16 or BF16 (position fastest: a lane is a position),
 *           or Q8_0 as described with qn__kv_block_bytes;
 *  V store: [dv, 32, G, n_blocks].
 * Position p of a sequence lives in place p mod 32 of its block floor(p / 32).
 *
 * KV_STORE sources: store, rows [d, G, T] F32, slots I32 [T] (block * 32 + place).
 * ATTEND sources: q [d, H, T]; K store; V store; tables I32 [n_table]: the block number of each
 * entry; masks I32 [n_table]: bit i set = place i of that entry holds a key of this sequence;
 * rows I32 [4, T]: for each token the first entry of its sequence in `tables`, the number of
 * entries, the block index (floor(p / 32)) of the first entry, the token's own position;
 * sinks [H] optional. -> [dv, H, T].
 * Entries of one sequence are consecutive in block index. Storing comes before attending by the
 * order of nodes: KV_STORE returns a view of the store that ATTEND takes as its source.
 */
#define QN_KV_BLOCK 32

typedef union qn_op_params {
    struct {
        float value, value2; /* SCALE_BIAS scale, bias; CLAMP low, high; UNARY cap; GLU limit */
        int32_t kind;        /* qn_unary, qn_glu */
    } scalar;
    struct {
        qn_norm kind;
        float eps;
    } norm;
    struct {
        int32_t dim;
    } concat;
    struct {
        size_t offset;
    } view;
    struct {
        qn_rope_mode mode;
        int32_t n_rot, first; /* the rotated elements are first .. first + n_rot of each head */
    } rope;
    qn_rope_params rope_table;
    qn_moe_params moe;
    struct {
        bool is_v;
    } kv;
    qn_attend_params attend;
    struct {
        const struct qn_sample_table *table;
        int32_t n_keep;
    } sample;
} qn_op_params;

enum {
    QN_NODE_INPUT = 1,  /* leaf that the caller fills before a run */
    QN_NODE_OUTPUT = 2, /* result that the caller reads: its storage is not reused */
    QN_NODE_WEIGHT = 4, /* leaf of a model: bytes never change */
    QN_NODE_STORE = 8   /* leaf that nodes write into (KV store) */
};

typedef struct qn_node qn_node;
struct qn_weight; /* tensor/weight.h: a loaded, perhaps packed, weight */

struct qn_node {
    qn_op op;
    qn_type type;
    int64_t ne[QN_MAX_DIMS];
    size_t nb[QN_MAX_DIMS];
    qn_node *src[QN_MAX_SRC]; /* absent optional sources are NULL */
    qn_op_params params;
    uint32_t flags;
    int32_t id;         /* index in the graph */
    qn_node *view_of;   /* the node that owns the storage; NULL for an owner */
    size_t view_offset; /* bytes from the start of the owner's storage */
    void *data;         /* leaves: set by the owner of the bytes; others: set by the plan */
    const struct qn_weight *weight; /* QN_NODE_WEIGHT leaves */
    char name[QN_NAME_SIZE];
};

typedef struct qn_graph {
    qn_arena arena;
    qn_node **nodes;
    int32_t n_nodes, capacity;
    qn_status status; /* of the first error */
    qn_error error;
    qn_node dummy; /* what builders return after an error: F32 [1] */
} qn_graph;

qn_graph *qn__graph_make(qn_error *err);
void qn__graph_free(qn_graph *g);

/* QN_OK, or the first error that a builder call met. */
qn_status qn__graph_finish(qn_graph *g, qn_error *err);

/*
 * Builders. Each returns a node of `g`; after an error they return a harmless dummy, never NULL, so
 * building code has no ladder of checks. Sources must be nodes of the same graph. Operands of all
 * operations but COPY and views must have contiguous rows (nb[0] = element size); the strides of
 * the other dimensions are free, but for indices (I32), weights of MUL_MAT and stores.
 */

/* Leaves. */
qn_node *qn__graph_input(qn_graph *g, qn_type type, int dims, const int64_t *ne, const char *name);
qn_node *qn__graph_weight(qn_graph *g, const struct qn_weight *w, const char *name);
qn_node *qn__graph_store(qn_graph *g, qn_type type, const int64_t ne[4], void *data,
                         const char *name);

/* Views. `view` takes ne and the strides of dimensions 1..3 in bytes (nb[0] is not looked at: it is
 * the size of an element); it must stay inside the storage. `permute`: dimension i of the result is
 * dimension d_i of x. `reshape` takes contiguous nodes only. */
qn_node *qn__graph_view(qn_graph *g, qn_node *x, const int64_t ne[4], const size_t nb[4],
                        size_t offset);
qn_node *qn__graph_reshape(qn_graph *g, qn_node *x, int64_t ne0, int64_t ne1, int64_t ne2,
                           int64_t ne3);
qn_node *qn__graph_permute(qn_graph *g, qn_node *x, int d0, int d1, int d2, int d3);
/* Rows first .. first + count of dimension 0 of every row: a part of a packed projection. */
qn_node *qn__graph_slice(qn_graph *g, qn_node *x, int64_t first, int64_t count);

/* Element-wise and row-wise. */
qn_node *qn__graph_copy(qn_graph *g, qn_node *x, qn_type type);
qn_node *qn__graph_concat(qn_graph *g, qn_node *a, qn_node *b, int dim);
qn_node *qn__graph_add(qn_graph *g, qn_node *a, qn_node *b);
qn_node *qn__graph_sub(qn_graph *g, qn_node *a, qn_node *b);
qn_node *qn__graph_mul(qn_graph *g, qn_node *a, qn_node *b);
qn_node *qn__graph_div(qn_graph *g, qn_node *a, qn_node *b);
qn_node *qn__graph_scale_bias(qn_graph *g, qn_node *x, float scale, float bias);
qn_node *qn__graph_unary(qn_graph *g, qn_node *x, qn_unary kind);
qn_node *qn__graph_soft_cap(qn_graph *g, qn_node *x, float cap);
qn_node *qn__graph_clamp(qn_graph *g, qn_node *x, float low, float high);
qn_node *qn__graph_glu(qn_graph *g, qn_node *gate, qn_node *up, qn_glu kind, float limit);
/* weight: [ne0] or [ne0, ne1] (a row for each head); bias [ne0]; both may be NULL. */
qn_node *qn__graph_norm(qn_graph *g, qn_node *x, qn_norm kind, float eps, qn_node *weight,
                        qn_node *bias);
qn_node *qn__graph_soft_max(qn_graph *g, qn_node *x);
qn_node *qn__graph_sum_rows(qn_graph *g, qn_node *x);
qn_node *qn__graph_argmax(qn_graph *g, qn_node *x);

/* Positions: I32 [T], or [T, 4] for the M-RoPE modes. factors: F32 [n_rot/2] or NULL.
 * -> F32 [n_rot, T]: cos and sin of pair j at 2j and 2j + 1, magnitude included. */
qn_node *qn__graph_rope_table(qn_graph *g, qn_node *positions, qn_node *factors,
                              const qn_rope_params *p);
/* x [d, H, T]; elements outside [first, first + n_rot) pass unchanged. */
qn_node *qn__graph_rope(qn_graph *g, qn_node *x, qn_node *table, qn_rope_mode mode, int n_rot,
                        int first);

/* table [n, R] of any type, ids of any shape [a, b, c] -> [n, a, b, c]. */
qn_node *qn__graph_get_rows(qn_graph *g, qn_node *table, qn_node *ids);
/* x [n, R], rows [n, M], ids [M] -> [n, R]. Ids must differ from each other. */
qn_node *qn__graph_set_rows(qn_graph *g, qn_node *x, qn_node *rows, qn_node *ids);

/* w: a weight leaf [in, out], or [in, out, B] with x [in, T, B] (one matrix for each plane). */
qn_node *qn__graph_mul_mat(qn_graph *g, qn_node *w, qn_node *x, qn_node *bias);
/* w: a weight leaf [in, out, X]; x [in, 1 or K, T]; ids I32 [K, T] -> [out, K, T]. */
qn_node *qn__graph_mul_mat_id(qn_graph *g, qn_node *w, qn_node *x, qn_node *ids);
/* x [n, K, T], rows [n, X], ids I32 [K, T] -> [n, K, T]. */
qn_node *qn__graph_add_id(qn_graph *g, qn_node *x, qn_node *rows, qn_node *ids);

/* logits [X, T]; bias [X] or NULL (changes the choice only). */
qn_node *qn__graph_moe_select(qn_graph *g, qn_node *logits, qn_node *bias, const qn_moe_params *p);
qn_node *qn__graph_moe_weights(qn_graph *g, qn_node *logits, qn_node *ids, const qn_moe_params *p);
/* x [n, K, T], weights [K, T] or NULL (a plain sum) -> [n, T]. */
qn_node *qn__graph_moe_sum(qn_graph *g, qn_node *x, qn_node *weights);

qn_node *qn__graph_kv_store(qn_graph *g, qn_node *store, qn_node *rows, qn_node *slots, bool is_v);
typedef struct qn_attend_inputs {
    qn_node *k, *v;                 /* what kv_store returned (or the store itself) */
    qn_node *tables, *masks, *rows; /* see above */
    qn_node *sinks;                 /* or NULL */
} qn_attend_inputs;
qn_node *qn__graph_attend(qn_graph *g, qn_node *q, const qn_attend_inputs *in,
                          const qn_attend_params *p);

/* logits [V, T], programs I32 [W, R] (one for each sampled row) -> I32 [12 + 3 n_keep, R]; what the
 * words mean: tensor/sample.h. 0 <= n_keep <= V. */
qn_node *qn__graph_sample(qn_graph *g, qn_node *logits, qn_node *programs,
                          const struct qn_sample_table *table, int64_t n_keep);

/* Marks a result that the caller reads after a run; gives it a name. Returns x. */
qn_node *qn__graph_output(qn_graph *g, qn_node *x, const char *name);
void qn__node_set_name(qn_node *node, const char *format, ...) QN_PRINTF(2, 3);

/* Facts about nodes. */
bool qn__node_is_contiguous(const qn_node *node);
int64_t qn__node_n_rows(const qn_node *node); /* ne[1] * ne[2] * ne[3] */
size_t qn__node_bytes(const qn_node *node);   /* of contiguous storage; 0 on overflow */
const char *qn__op_name(qn_op op);
bool qn__op_is_view(qn_op op);  /* computes nothing: view, reshape, permute */
bool qn__op_in_place(qn_op op); /* the result may take the storage of src0, if shapes agree */

#endif
