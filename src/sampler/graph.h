/*
 * graph.h: chains inside a compute graph.
 *
 * A chain that is attached to a sequence runs in two parts: its members from the front that have a
 * form in graphs (the prefix) become, for each output row, a program of the SAMPLE operation
 * (tensor/sample.h); the rest goes on outside from the candidates that are left.
 *
 * The form of a sampler is a row of the table in graph.c: its row function, the same one that apply
 * calls, and what the row needs to know, written before each run.
 */
#ifndef QUERN_SAMPLER_GRAPH_H
#define QUERN_SAMPLER_GRAPH_H

#include "sampler/sampler.h"
#include "tensor/sample.h"

typedef enum qn_stage_id {
    QN_STAGE_GREEDY,
    QN_STAGE_DIST,
    QN_STAGE_TOP_K,
    QN_STAGE_TOP_P,
    QN_STAGE_MIN_P,
    QN_STAGE_TEMP,
    QN_STAGE_TEMP_EXT,
    QN_STAGE_TYPICAL,
    QN_STAGE_TOP_N_SIGMA,
    QN_STAGE_LOGIT_BIAS,
    QN_STAGE_XTC,
    QN_STAGE_COUNT,
    QN_STAGE_NONE /* a sampler that is off: part of the prefix, nothing to do */
} qn_stage_id;

extern const qn_sample_table qn__sample_table;

/* The stages, each in its sampler's file. */
extern const qn_sample_stage qn__stage_greedy, qn__stage_dist, qn__stage_top_k, qn__stage_top_p,
    qn__stage_min_p, qn__stage_temp, qn__stage_temp_ext, qn__stage_typical, qn__stage_top_n_sigma,
    qn__stage_logit_bias, qn__stage_xtc;

/* A sampler's form; the `graph` of its interface. */
typedef struct qn_sampler_graph {
    qn_stage_id stage;
    bool picks;
    bool draws; /* picks by the weights of the set, which are then its probabilities */
    /* Parameters of a row: at most this many bytes, written by `params`. NULL: the whole state, a
     * qn_plain_state that apply only reads (or none). */
    size_t param_bytes;
    /* For the j-th output row of the batch at work, j counted in the sampler's sequence. Returns
     * the bytes written. `out` is aligned to 8. */
    size_t (*params)(void *state, int32_t j, void *out);
    /* A batch begins, or was given up: what was drawn ahead for rows is to be forgotten. */
    void (*begin)(void *state);
    /* How many of n candidates are left at most. NULL: n. */
    size_t (*keep)(const void *state, size_t n);
} qn_sampler_graph;

/* What the prefix of a chain comes to. */
typedef struct qn_chain_form {
    size_t n_prefix; /* members */
    bool whole;      /* no member is behind it */
    bool picks, draws;
    size_t n_keep;        /* candidates left at most */
    size_t program_words; /* of a row at most, head included, even */
} qn_chain_form;

/*
 * Prepares a chain for a graph over a vocabulary of n: its members get their marks ("+top-k": in
 * the graph, "-top-k": asked and refused, because `supported` says that the device has no SAMPLE).
 * Until qn__chain_detach no member can be added or removed, and it cannot be attached again.
 * QN_ERR_ARGUMENT for what is no chain, is empty or attached.
 */
qn_status qn__chain_attach(qn_sampler *chain, bool supported, size_t n, qn_chain_form *out,
                           qn_error *err);
void qn__chain_detach(qn_sampler *chain);

/* A batch begins, or was given up. */
void qn__chain_begin(const qn_sampler *chain);

/* Writes the stages of a row's program behind its head, which gets their number. */
void qn__chain_program(const qn_sampler *chain, const qn_chain_form *form, int32_t j,
                       int32_t *program);

/* Applies the members behind the prefix. */
void qn__chain_apply_rest(const qn_sampler *chain, const qn_chain_form *form, qn_candidates *c);

#endif
