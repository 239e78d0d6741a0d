/*
 * quern/model.h: a language model loaded from a GGUF file: its vocabulary, its hyper-parameters and
 * its weights, packed for the device that will compute with them.
 *
 * A loaded model never changes. All functions that take a `const qn_model *` are thread safe, and
 * any number of contexts may share one model; it must outlive them.
 */
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#include <quern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_model qn_model;
typedef struct qn_vocab qn_vocab; /* quern/vocab.h */
typedef struct qn_gguf qn_gguf;   /* quern/gguf.h */

typedef struct qn_model_options {
    bool use_mmap;      /* map the file; otherwise read it tensor by tensor. Default true */
    bool use_mlock;     /* keep the weights in memory (mlock). Default false */
    bool vocab_only;    /* load vocabulary and metadata, no weights; cannot be computed with */
    bool check_tensors; /* look at every block of every tensor and refuse NaN and infinity; small
                           tensors always are. Default true */
    int32_t n_threads;  /* for packing; 0: all cores */
    qn_log log;         /* copied; silent by default */
    qn_progress_fn progress; /* or NULL; called between tensors */
    void *progress_user;
} qn_model_options;

QN_API qn_model_options qn_model_defaults(void);

/*
 * Loads the model in the GGUF file `path` (for a split model: its first file). `options` may be
 * NULL. On success *out owns everything and is freed with qn_model_free.
 * Errors: QN_ERR_IO, QN_ERR_FORMAT (damaged file, wrong shape, missing tensor, absurd or missing
 * hyper-parameter, NaN weight; the message names file and tensor or key), QN_ERR_UNSUPPORTED
 * (architecture, type or option that this build cannot compute), QN_ERR_LIMIT, QN_ERR_MEMORY,
 * QN_ERR_ABORTED (progress said stop).
 */
QN_API qn_status qn_model_load(qn_model **out, const char *path, const qn_model_options *options,
                               qn_error *err);
QN_API void qn_model_free(qn_model *model);

/* What is owned by the model and lives as long as it. Never NULL. */
QN_API const qn_vocab *qn_model_vocab(const qn_model *model);
QN_API const qn_gguf *qn_model_gguf(const qn_model *model); /* metadata, tensor list */

/* The value of general.architecture, as "llama". */
QN_API const char *qn_model_architecture(const qn_model *model);
/* One line for people: architecture, parameters, main weight type, as "llama 135M q4_1". */
QN_API const char *qn_model_description(const qn_model *model);
/* The file's chat template of that name (NULL: the default one), or NULL where it has none. */
QN_API const char *qn_model_chat_template(const qn_model *model, const char *name);

QN_API int32_t qn_model_n_ctx_train(const qn_model *model); /* positions it was trained for */
QN_API int32_t qn_model_n_embd(const qn_model *model);      /* width of input rows */
QN_API int32_t qn_model_n_embd_out(const qn_model *model);  /* width of embedding rows */
QN_API int32_t qn_model_n_layer(const qn_model *model);     /* executed layers */
QN_API int32_t qn_model_n_head(const qn_model *model);      /* query heads of layer 0 */
QN_API int32_t qn_model_n_head_kv(const qn_model *model);   /* KV heads of layer 0 */
QN_API int32_t qn_model_n_vocab(const qn_model *model);     /* width of logit rows */
QN_API int32_t qn_model_n_swa(const qn_model *model);       /* window size; 0: no windows */
QN_API uint64_t qn_model_n_params(const qn_model *model);   /* values in all tensors of the file */
QN_API uint64_t qn_model_n_bytes(const qn_model *model);    /* bytes of all tensors of the file */
QN_API uint64_t qn_model_n_packed_bytes(const qn_model *model); /* held in packed form */

/* What a context can do with it. */
QN_API bool qn_model_has_encoder(const qn_model *model);
QN_API bool qn_model_has_decoder(const qn_model *model);
QN_API bool qn_model_is_causal(const qn_model *model);
QN_API bool qn_model_is_vocab_only(const qn_model *model);

typedef enum qn_model_rope {
    QN_MODEL_ROPE_NONE,  /* no rotation: learned positions, ALiBi or none */
    QN_MODEL_ROPE_NORM,  /* pairs of neighbours */
    QN_MODEL_ROPE_NEOX,  /* pairs of halves */
    QN_MODEL_ROPE_MROPE, /* four positions a token, by sections */
    QN_MODEL_ROPE_IMROPE /* four positions a token, interleaved */
} qn_model_rope;
QN_API qn_model_rope qn_model_rope_kind(const qn_model *model);

typedef enum qn_pooling {
    QN_POOLING_NONE = 0,
    QN_POOLING_MEAN = 1,
    QN_POOLING_CLS = 2,
    QN_POOLING_LAST = 3,
    QN_POOLING_RANK = 4
} qn_pooling;
/* What the file asks for. */
QN_API qn_pooling qn_model_pooling(const qn_model *model);

/* Names of the architectures that this build computes, by number; NULL past the last. */
QN_API const char *qn_model_architecture_at(int32_t index);

#ifdef __cplusplus
}
#endif
#endif
