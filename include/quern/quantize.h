/*
 * quern/quantize.h: makes a model file of other number formats from a model file: every weight
 * matrix goes to the format that a mix chooses for it, everything else is copied.
 *
 * Encoding is reproducible: the same input and options give the same bytes, whatever the number of
 * threads. Memory stays small (a slab of rows at a time), and the result stands under its name only
 * when it is complete.
 */
#ifndef QUERN_QUANTIZE_H
#define QUERN_QUANTIZE_H

#include <quern/base.h>
#include <quern/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mix: a default format and its exceptions. The numbers are those of the metadata key
 * "general.file_type". */
typedef enum qn_mix {
    QN_MIX_COPY = -1, /* converts nothing */
    QN_MIX_F32 = 0,
    QN_MIX_F16 = 1,
    QN_MIX_Q4_0 = 2,
    QN_MIX_Q4_1 = 3,
    QN_MIX_Q8_0 = 7,
    QN_MIX_Q5_0 = 8,
    QN_MIX_Q5_1 = 9,
    QN_MIX_Q2_K = 10,
    QN_MIX_Q3_K_S = 11,
    QN_MIX_Q3_K_M = 12,
    QN_MIX_Q3_K_L = 13,
    QN_MIX_Q4_K_S = 14,
    QN_MIX_Q4_K_M = 15,
    QN_MIX_Q5_K_S = 16,
    QN_MIX_Q5_K_M = 17,
    QN_MIX_Q6_K = 18,
    QN_MIX_IQ2_XXS = 19,
    QN_MIX_IQ2_XS = 20,
    QN_MIX_Q2_K_S = 21,
    QN_MIX_IQ3_XS = 22,
    QN_MIX_IQ3_XXS = 23,
    QN_MIX_IQ1_S = 24,
    QN_MIX_IQ4_NL = 25,
    QN_MIX_IQ3_S = 26,
    QN_MIX_IQ3_M = 27,
    QN_MIX_IQ2_S = 28,
    QN_MIX_IQ2_M = 29,
    QN_MIX_IQ4_XS = 30,
    QN_MIX_IQ1_M = 31,
    QN_MIX_BF16 = 32,
    QN_MIX_TQ1_0 = 36,
    QN_MIX_TQ2_0 = 37,
    QN_MIX_MXFP4_MOE = 38,
    QN_MIX_Q1_0 = 40,
    QN_MIX_Q2_0 = 41
} qn_mix;

/* "Q4_K_M", or NULL for a number that is no mix. Thread safe. */
QN_API const char *qn_mix_name(int mix);

/* By name (any letter case; Q3_K, Q4_K and Q5_K mean the _M mixes, COPY copies) or number; false
 * where there is none. Thread safe. */
QN_API bool qn_mix_from_name(const char *text, qn_mix *out);

/* The formats of the tensors whose name matches a regular expression (found anywhere in it). */
typedef struct qn_quantize_override {
    const char *pattern; /* PCRE2 syntax */
    qn_type type;
} qn_quantize_override;

/* What happens to one tensor. Pointers live during the call. */
typedef struct qn_quantize_tensor {
    size_t index, count; /* 0 .. count - 1 */
    const char *name;
    int n_dims;
    const int64_t *ne;
    qn_type source, target;
    uint64_t source_bytes, target_bytes;
    bool shape_fallback;   /* the row length does not fit the chosen format: another was taken */
    bool lacks_importance; /* a dry run met a format that cannot be made without importance */
} qn_quantize_tensor;

typedef struct qn_quantize_options {
    qn_mix mix;                            /* default QN_MIX_Q4_K_M */
    bool allow_requantize;                 /* take quantized input tensors, at a loss */
    bool leave_output;                     /* leave output.weight as it is */
    bool pure;                             /* the mix's default format for every matrix */
    bool dry_run;                          /* choose and report, write nothing */
    int output_type;                       /* qn_type for output.weight; -1: the mix chooses */
    int embedding_type;                    /* the same for the token embedding */
    const qn_quantize_override *overrides; /* the first that matches wins */
    size_t override_count;
    const char *importance_file; /* importance of the columns (imatrix); NULL: none */
    int threads;                 /* 0: as many as the process may run on */
    size_t buffer_bytes;         /* bound of the slab buffers, default 64 MiB; one row of each
                                    thread always fits */
    void (*on_tensor)(void *user, const qn_quantize_tensor *tensor); /* before its conversion */
    qn_progress_fn progress;
    void *user; /* for on_tensor and progress */
    qn_log log;
} qn_quantize_options;

QN_API qn_quantize_options qn_quantize_defaults(void);

typedef struct qn_quantize_result {
    size_t tensors, converted, shape_fallbacks, lacking_importance;
    uint64_t values;                     /* elements of all tensors */
    uint64_t source_bytes, target_bytes; /* of all tensors' data */
} qn_quantize_result;

/*
 * Reads `input` (a file, or a split set through its first shard) and writes `output` (one file; may
 * be NULL in a dry run). `result` may be NULL. Callbacks come from the calling thread.
 *
 * Errors: those of reading and writing; QN_ERR_ARGUMENT (output is an input file, bad pattern,
 * quantized input without allow_requantize); QN_ERR_UNSUPPORTED (a format without encoder, an
 * integer tensor that would have to be converted); QN_ERR_FORMAT (infinite or NaN values: names the
 * tensor); QN_ERR_NOT_FOUND (no importance for a tensor that needs it); QN_ERR_ABORTED. Where it
 * fails no file stands under the output's name but one that stood there before. Thread safe.
 */
QN_API qn_status qn_quantize_file(const char *input, const char *output,
                                  const qn_quantize_options *options, qn_quantize_result *result,
                                  qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
