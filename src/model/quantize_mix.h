/*
 * quantize_mix.h: which format a mix gives to which tensor. Pure functions of a few facts of the
 * model and of the tensor's name and shape, so that they can be tested without files.
 */
#ifndef QUERN_MODEL_QUANTIZE_MIX_H
#define QUERN_MODEL_QUANTIZE_MIX_H

#include <quern/quantize.h>

/* What the rules ask about a model. */
typedef struct qn_mix_model {
    const char *architecture;
    int64_t layers;
    int64_t heads, kv_heads; /* of layer 0 */
    int64_t experts;
    int64_t v_like; /* tensors of the categories V, QKV and KVB in the whole model */
    bool tied;      /* no output.weight */
    bool importance;
} qn_mix_model;

/* Counters of the tensors that the rules have decided about; zero-initialise, then visit the
 * tensors in the order of qn__mix_compare. */
typedef struct qn_mix_state {
    int64_t v_like, down, gate, up;
} qn_mix_state;

/* The format that a mix starts from; false for COPY and unknown mixes. */
bool qn__mix_default_type(int mix, qn_type *out);

/* Whether a tensor may change its format at all. */
bool qn__mix_may_convert(const char *name, int n_dims, const int64_t *ne);

/* Whether the name counts as V-like. */
bool qn__mix_is_v_like(const char *name);

/* Whether the name is output.weight; the token embedding (two names). */
bool qn__mix_is_output(const char *name);
bool qn__mix_is_embedding(const char *name);

/* Order of visiting: by layer number (none first), then by bytes of the name. */
int qn__mix_compare(const char *a, const char *b);

/* The layer number of "blk.N.…", or -1. */
int64_t qn__mix_layer(const char *name);

/*
 * The mix's choice for a tensor that may be converted; advances the counters. The mix is a
 * quantized one. Fails where a model with experts names a layer that it does not have.
 */
qn_status qn__mix_choose(int mix, const qn_mix_model *model, qn_mix_state *state, const char *name,
                         const int64_t *ne, qn_type *out, qn_error *err);

/* Replaces a format whose block does not divide ne0; *fell_back tells. Fails where the format has
 * no replacement. */
qn_status qn__mix_fit_shape(const char *name, int64_t ne0, qn_type *type, bool *fell_back,
                            qn_error *err);

/* Whether `name` cannot go to `type` in this mix without importance weights. */
bool qn__mix_needs_importance(int mix, const char *name, qn_type type);

#endif
