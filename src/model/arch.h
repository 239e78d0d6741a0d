/*
 * arch.h: what makes one architecture differ from another. An architecture is a row of the tables
 * in arch/table_dense.c and table_experts.c: the features of the plain decoder (one norm,
 * attention, feed-forward, one after the other or in parallel), read by hparams.c, tensors.c and
 * build.c; zero is the most common choice of every field. Where a row does not say enough it names
 * functions of its own (arch/NAME.c).
 */
#ifndef QUERN_MODEL_ARCH_H
#define QUERN_MODEL_ARCH_H

#include "model/keys.h"
#include "model/model.h"
#include "model/names.h"

/* Whether a tensor must be there. */
typedef enum qn_need {
    QN_NEED_NO,  /* not of this architecture: its presence is a warning, or an error */
    QN_NEED_OPT, /* used where it is there */
    QN_NEED_REQ, /* its absence is an error */
    QN_NEED_IGN  /* accepted and not used */
} qn_need;

typedef enum qn_arch_norm {
    QN_ARCH_RMS,       /* weight */
    QN_ARCH_RMS_BIAS,  /* weight and bias */
    QN_ARCH_LAYER,     /* layer norm, weight and bias */
    QN_ARCH_LAYER_OPT, /* weight, bias optional */
    QN_ARCH_LAYER_W,   /* weight only */
    QN_ARCH_LAYER_0    /* no parameters */
} qn_arch_norm;

typedef enum qn_arch_qk {
    QN_QK_NONE,
    QN_QK_HEAD,  /* one weight [d] for all heads */
    QN_QK_TABLE, /* weight [d, H]: a row for each head */
    QN_QK_FULL   /* weight [H d]: over all heads together */
} qn_arch_qk;

typedef enum qn_arch_ffn {
    QN_FFN_GATED,  /* act(gate) * up */
    QN_FFN_PLAIN,  /* act(up) */
    QN_FFN_PACKED, /* up holds gate and up, one behind the other */
    QN_FFN_NONE    /* experts in all layers */
} qn_arch_ffn;

typedef enum qn_arch_block {
    QN_BLOCK_SEQUENTIAL,
    QN_BLOCK_FFN_ATTN_X, /* (ffn + attn) + x, both of inputs made of x */
    QN_BLOCK_FFN_X_ATTN  /* (ffn + x) + attn */
} qn_arch_block;

typedef enum qn_arch_head {
    QN_HEAD_TIED_OPT,    /* output, or token_embd where it is absent */
    QN_HEAD_TIED_ALWAYS, /* token_embd */
    QN_HEAD_OWN          /* output is required */
} qn_arch_head;

/* How wide the shared expert is. */
typedef enum qn_arch_shared {
    QN_SHARED_NONE,
    QN_SHARED_KEY,       /* expert_shared_feed_forward_length; 0 or absent: none */
    QN_SHARED_KEY_OR_F,  /* the same key, default F */
    QN_SHARED_KEY_OR_FE, /* the same key, default Fe */
    QN_SHARED_COUNT,     /* Fe * expert_shared_count */
    QN_SHARED_FE         /* Fe */
} qn_arch_shared;

typedef enum qn_arch_experts_when {
    QN_EXPERTS_NEVER,
    QN_EXPERTS_BY_COUNT, /* all layers where expert_count > 0, else none */
    QN_EXPERTS_ALL,      /* all layers; expert_count is required */
    QN_EXPERTS_LEAD,     /* layers from leading_dense_block_count on */
    QN_EXPERTS_STEP      /* layers with (il + 1) mod interleave_moe_layer_step = 0, from the lead
                            on */
} qn_arch_experts_when;

typedef enum qn_by_key {
    QN_KEY_NO,   /* off, the key is not looked at */
    QN_KEY_YES,  /* on, the key is not looked at */
    QN_KEY_ASKED /* by the key */
} qn_by_key;

typedef struct qn_arch_moe {
    qn_arch_experts_when when;
    qn_moe_gate gate;     /* default; 0: the key must say it */
    bool gate_key;        /* expert_gating_func is read */
    bool select_by_logit; /* and weigh the input of the experts, not their output */
    qn_by_key normalize;  /* expert_weights_norm */
    bool scale_key;       /* expert_weights_scale is read */
    bool wide;            /* the experts' width is F; else expert_feed_forward_length */
    bool ff_from_used;    /* that key's default is F / K */
    bool ff_default;      /* that key's default is F */
    qn_arch_shared shared;
    bool shared_gate;    /* times sigmoid(ffn_gate_inp_shexp) */
    qn_need select_bias; /* exp_probs_b */
    qn_need router_bias, expert_bias;
    qn_need gate_exps; /* OPT: experts without a gate are possible; NO means REQ */
    qn_glu glu;
} qn_arch_moe;

enum {
    QN_ARCH_SCALE_FFN = 1 << 0,     /* honours the scale tensors of the dense feed-forward */
    QN_ARCH_SCALE_EXPERTS = 1 << 1, /* … of the experts */
    QN_ARCH_ROT_FULL = 1 << 2,      /* every element of a head must rotate: n_rot = d */
    QN_ARCH_FREQS = 1 << 3,         /* rope_freqs is used */
    QN_ARCH_LONG = 1 << 4,          /* long and short factors are used */
    QN_ARCH_LONG_BY_TYPE = 1 << 5,  /* … where the scaling type is longrope */
    QN_ARCH_PER_LAYER = 1 << 6,     /* H, G and F may differ from layer to layer */
    QN_ARCH_NOT_CAUSAL = 1 << 7,
    QN_ARCH_QKV_FUSED = 1 << 8,      /* only attn_qkv is accepted */
    QN_ARCH_SECTIONS = 1 << 9,       /* sections in the file switch to M-RoPE */
    QN_ARCH_NO_EPS = 1 << 10,        /* the norm's eps key is not read and is 0 */
    QN_ARCH_EMBD_OPTIONAL = 1 << 11, /* token_embd may be absent: output serves */
    QN_ARCH_FACTORS_IGN = 1 << 12,   /* rope_freqs is accepted and not used */
    QN_ARCH_QK_AFTER_ROPE = 1 << 13, /* Q and K norms come after the rotation */
    QN_ARCH_NO_QKV_SCALE = 1 << 14,  /* the scale of attn_qkv is not honoured */
    QN_ARCH_ATTN_NORM_2 = 1 << 15    /* attention takes attn_norm_2 of x where that is there */
};

struct qn_builder;
struct qn_loader;

typedef struct qn_arch {
    const char *name;
    qn_model_rope rope;
    uint32_t flags; /* QN_ARCH_… */

    /* Norms. */
    qn_arch_norm norm;
    qn_tensor_id attn_in;   /* before attention; QN_T_NONE: none */
    qn_tensor_id attn_post; /* on the output of attention, before the residual */
    qn_tensor_id ffn_in;    /* before the feed-forward; none: in a parallel block the input of
                               attention, else the bare residual */
    bool ffn_in_optional;   /* absent: the block is parallel with the input of attention */
    qn_tensor_id ffn_post;

    /* Attention. */
    qn_need qkv_bias, out_bias;
    qn_arch_qk qk;
    qn_arch_norm qk_norm;
    qn_need qk_need; /* QN_NEED_NO means REQ where qk is not none */
    qn_need sinks;

    /* Feed-forward. */
    qn_arch_ffn ffn;
    qn_glu glu;     /* of the gated and packed forms */
    qn_unary unary; /* of the plain form */
    qn_need gate_bias, up_bias, down_bias;
    qn_need act_scales; /* ffn.act: divides the plain form behind its activation */
    qn_arch_moe moe;
    qn_arch_block block; /* default of hparams; a key may say otherwise */

    /* Ends. */
    qn_need positions; /* position_embd */
    qn_need embd_norm; /* token_embd_norm */
    qn_arch_head head;
    qn_need head_bias;

    /* Reads the keys that only this architecture has, after the common ones. */
    void (*keys)(qn_keys *k, qn_hparams *hp);
    /* Asks for tensors of the whole model beside the common ones. */
    void (*global_tensors)(struct qn_loader *l);
    /* Asks for the tensors of attention and builds it up to its output projection; NULL: Q, K and
     * V of the layer's input. */
    void (*attention_tensors)(struct qn_loader *l, int32_t il);
    struct qn_node *(*attention)(struct qn_builder *b, int32_t il, struct qn_node *x);
    /* The same of a whole layer; NULL: the plain decoder layer. */
    void (*layer_tensors)(struct qn_loader *l, int32_t il);
    struct qn_node *(*layer)(struct qn_builder *b, int32_t il, struct qn_node *x);
} qn_arch;

/* The row of an architecture, or NULL. */
const qn_arch *qn__arch_find(const char *name, size_t size);

#endif
