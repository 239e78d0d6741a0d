/*
 * context.h: inside the context room.
 *
 * A batch passes through:
 *   batch.c     checks it and writes down, for each token, its position, sequences and output row
 *   decode.c    lets the memory cut it into micro-batches and place them; for each micro-batch
 *   compute.c   finds the plan of its shape (or builds graph and plan), whose inputs are filled
 *   decode.c    runs it and copies the output rows out
 *   outputs.c   hands them out
 *   sampling.c  chains that are attached to sequences: their rows are sampled in the graph
 */
#ifndef QUERN_CONTEXT_CONTEXT_H
#define QUERN_CONTEXT_CONTEXT_H

#include <quern/context.h>

#include "device/plan.h"
#include "memory/memory.h"
#include "model/model.h"
#include "sampler/graph.h"

#define QN_CONTEXT_ROUND 256       /* n_ctx is a multiple of it */
#define QN_CONTEXT_MAX   (1 << 28) /* largest n_ctx */

/* What fixes the graph of a micro-batch. All members of one size: compared as bytes. */
typedef struct qn_shape {
    int32_t n_tokens, n_outputs;
    int32_t from_embeddings; /* rows given by the caller instead of token ids */
    int32_t want_embeddings;
    int32_t capacity[QN_MAX_KV_GROUPS]; /* length of each group's tables */
    int32_t n_sampled;                  /* output rows that are sampled in the graph */
    int32_t program_words, n_keep;      /* room of each; see tensor/sample.h */
} qn_shape;

/* A shape ready to run: graph, plan, and the nodes to fill and to read. */
typedef struct qn_compute {
    qn_shape shape;
    uint64_t last_used;
    qn_graph *graph;
    qn_plan *plan;
    qn_build_inputs in;
    qn_build_group groups[QN_MAX_KV_GROUPS];
    qn_build_outputs out;
    qn_node *programs, *sampled; /* NULL where no row is sampled */
} qn_compute;

#define QN_COMPUTE_CACHE 24

typedef struct qn_compute_cache {
    qn_compute *slots[QN_COMPUTE_CACHE];
    uint64_t clock;
} qn_compute_cache;

/* A chain attached to a sequence, and what its rows of the last decode left. */
typedef struct qn_attached {
    qn_sampler *chain; /* the caller's; NULL: none */
    qn_chain_form form;
    size_t n_back;    /* candidates that a row hands back at most */
    int32_t n_rows;   /* of this sequence in the batch at work, noted up to now */
    int32_t n_filled; /* rows whose programs are written */
    int32_t n_drafts; /* tokens of the sequence in the batch since its first row, up to now */
    int32_t last_row; /* the last one noted, as an index in the context's rows */
    int32_t last;     /* the last one in the micro-batch's programs, counted from 1; 0: none */
    int32_t n_valid;  /* rows for the text that was accepted; INT32_MAX: no other was */
    void *memory;     /* [n_outputs_max_per_seq, n_back] of each: */
    int32_t *ids;
    float *logits, *probs;
    uint32_t *weights;
    int32_t *carries; /* [n_outputs_max_per_seq, QN_SAMPLE_CARRY_WORDS] */
} qn_attached;

/* What is known of an output row of the last decode. */
typedef struct qn_row_info {
    bool sampled;  /* in the graph; there are no raw logits */
    bool kept;     /* its candidates are in the memory of its chain */
    bool lost;     /* they were, but that chain is not attached any more */
    int32_t seq;   /* the row's sequence: the first id of its token */
    int32_t place; /* number among the rows of its chain */
    int32_t next;  /* token of the batch that comes next in its sequence, or QN_TOKEN_NONE */
    int32_t token; /* what the whole chain picked in the graph, or QN_TOKEN_NONE */
    int32_t size, selected, flags;
    uint64_t total;
} qn_row_info;

struct qn_context {
    const qn_model *model;
    const qn_hparams *hparams;
    const qn_kv_layout *layout;
    qn_context_options options;
    qn_device *own_device; /* NULL where the caller gave one */
    qn_kv *kv;
    qn_plan_memory *memory;
    qn_compute_cache computes;
    qn_node **stores; /* 2 n_layers pointers, for building */

    /* The batch at work, n_batch entries each. */
    qn_kv_token *tokens;
    int32_t *row_of;  /* output row of each token, -1: none */
    int32_t *out_ids; /* the tokens of a micro-batch that have rows, as indices in it */
    int32_t n_tokens, n_rows;

    /* Rows of the last decode. */
    float *logits;     /* [n_outputs_max, n_vocab] */
    float *embeddings; /* [n_outputs_max, n_embd_out]; NULL until asked for */
    bool has_logits, has_embeddings;
    qn_row_info *rows; /* [n_outputs_max] */

    qn_attached *attached; /* [n_seq_max] */

    qn_candidates *candidates;
    qn_counters counters;
};

/* options.c */
qn_status qn__context_check_options(const qn_model *model, qn_context_options *o, qn_error *err);

/* batch.c: fills tokens, row_of, n_tokens, n_rows; changes nothing else. */
qn_status qn__batch_check(qn_context *ctx, const qn_batch *batch, qn_error *err);

/* compute.c */
/* The compute of a shape, from the cache or new. It stays valid until the next call. */
qn_status qn__compute_get(qn_context *ctx, const qn_shape *shape, qn_compute **out, qn_error *err);
/* Tables of at least `n` entries: the capacity that shapes use. */
int32_t qn__compute_capacity(int32_t n);
void qn__compute_free_all(qn_context *ctx);

/* outputs.c: makes room for embedding rows where they are asked for. */
qn_status qn__outputs_reserve(qn_context *ctx, qn_error *err);

int32_t qn__outputs_find(const qn_context *ctx, int32_t i, qn_error *err);

/* sampling.c */
qn_status qn__sampling_make(qn_context *ctx, qn_error *err);
void qn__sampling_free(qn_context *ctx);
/* Whether a sequence has more rows in the checked batch than it may have; its number is named. */
qn_status qn__sampling_check(const qn_context *ctx, const qn_batch *batch, qn_error *err);
/* A batch begins, or was given up. */
void qn__sampling_begin(qn_context *ctx);
/* Notes the rows of a micro-batch and adds to its shape what their sampling needs. */
void qn__sampling_shape(qn_context *ctx, const qn_kv_ubatch *ub, qn_shape *shape);
/* Writes their programs; the first of the micro-batch's rows is `first_row`. */
void qn__sampling_fill(qn_context *ctx, const qn_kv_ubatch *ub, const qn_compute *c,
                       int32_t first_row);
/* Takes over what came out. */
void qn__sampling_read(qn_context *ctx, const qn_compute *c, int32_t first_row);

#endif
