/*
 * loader.h: a model on its way from the file. The tensors that the architecture asks for become
 * weights: found by name, shape checked, what the graph will do with them noted. What is left over
 * is reported. Then weights are packed or copied and the file's pages given back (load.c).
 */
#ifndef QUERN_MODEL_LOADER_H
#define QUERN_MODEL_LOADER_H

#include "device/device.h"
#include "model/arch.h"

/* One matrix or vector with what may stand beside it. */
typedef struct qn_tensor {
    const qn_weight *weight, *bias, *scale;
} qn_tensor;

typedef struct qn_layer {
    qn_tensor t[QN_T_LAYER_COUNT]; /* by qn_tensor_id - QN_T_GLOBAL_COUNT */
} qn_layer;

/* Bytes that were copied from the file. */
typedef struct qn_owned {
    void *block;
    size_t bytes;
    bool small; /* freed with free(), not as a large block */
} qn_owned;

struct qn_model {
    qn_gguf *gguf;
    qn_vocab *vocab;
    const char *architecture;
    const qn_arch *arch; /* NULL: not known (vocab_only) */
    qn_device *device;   /* that packed the weights and frees them */
    qn_hparams hp;
    qn_kv_layout kv;
    qn_weight *weights; /* [n_weights] */
    qn_tensor global[QN_T_GLOBAL_COUNT];
    qn_layer *layers; /* [n_layer] */
    qn_owned *owned;  /* [n_weights] */
    int32_t n_weights;
    uint64_t n_params, n_bytes, n_packed_bytes;
    qn_arena arena; /* texts */
    char *description;
    bool vocab_only;
};

typedef struct qn_loader {
    qn_model *model;
    const qn_model_options *options;
    const qn_gguf_tensor **sources; /* [n_weights], beside model->weights */
    bool *wanted;                   /* [tensors of the file] */
    size_t n_tensors;
    qn_status status; /* of the first error */
    qn_error error;
} qn_loader;

/* How a tensor is used and what shape it must have; ne[i] of 0 beyond the first means 1. */
typedef struct qn_want {
    qn_tensor_id id;
    qn_tensor_part part;
    qn_need need;
    uint32_t uses;
    int64_t ne[3];
} qn_want;

/* Keeps the first error. */
void qn__loader_fail(qn_loader *l, qn_status code, const char *format, ...) QN_PRINTF(3, 4);

/* Asks for a tensor of layer il (any number for those of the whole model) and puts it into the
 * model. NULL where it is absent, ignored, or after an error. */
const qn_weight *qn__loader_want(qn_loader *l, int32_t il, const qn_want *want);

/* Whether the file has it. */
bool qn__loader_has(const qn_loader *l, int32_t il, qn_tensor_id id, qn_tensor_part part);

/* A matrix [in, out] (planes > 1: a stack) with its scale (one value a plane; not honoured: left
 * alone) and, as `bias` says, its bias. */
void qn__loader_matrix(qn_loader *l, int32_t il, qn_tensor_id id, qn_need need, qn_need bias,
                       bool scale, int64_t in, int64_t out, int64_t planes);

/* A small vector of n values, read as F32. */
void qn__loader_vector(qn_loader *l, int32_t il, qn_tensor_id id, qn_tensor_part part, qn_need need,
                       int64_t n);

/* A table of rows of the whole model, for GET_ROWS. */
void qn__loader_table(qn_loader *l, qn_tensor_id id, qn_need need, int64_t n, int64_t rows);

/* The parameters of a norm over n values; tables have rows > 1. */
void qn__loader_norm(qn_loader *l, int32_t il, qn_tensor_id id, qn_arch_norm norm, qn_need need,
                     int64_t n, int64_t rows);

/* All tensors of the architecture, then a look at what was not asked for. */
qn_status qn__loader_tensors(qn_loader *l, qn_error *err);

/* The parts of a plain layer, for architectures that have their own. */
void qn__loader_layer_norm(qn_loader *l, int32_t il, qn_tensor_id id, qn_need need);
void qn__loader_attention(qn_loader *l, int32_t il);
void qn__loader_dense_ffn(qn_loader *l, int32_t il, int64_t width);
void qn__loader_experts(qn_loader *l, int32_t il);
void qn__loader_plain_layer(qn_loader *l, int32_t il);

static inline qn_tensor *qn__model_tensor(qn_model *m, int32_t il, qn_tensor_id id)
{
    return qn__tensor_is_global(id) ? &m->global[id] : &m->layers[il].t[id - QN_T_GLOBAL_COUNT];
}

static inline const qn_tensor *qn__model_get(const qn_model *m, int32_t il, qn_tensor_id id)
{
    return qn__tensor_is_global(id) ? &m->global[id] : &m->layers[il].t[id - QN_T_GLOBAL_COUNT];
}

#endif
