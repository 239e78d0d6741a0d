/*
 * graph.h: chains inside a compute graph.
 *
 * A chain that is attached to a sequence runs in two parts: its members from the front that have a
 * form in graphs (the prefix) become, for each output row, a program of the SAMPLE operation
 * (tensor/sample.h); the rest goes on outside from the candidates that are left.
 *
 * The form of a sampler is a row of the table in graph.c: its row function, the same one that apply
 * calls, and what the row needs to know, written before each run.
 *
 * What a row needs may depend on the text. Output row j of a sequence in a batch is used only if
 * the tokens accepted for the rows before it are those that the batch goes on with, so its text is
 * known before the graph runs: what was accepted, then the batch's tokens of that sequence behind
 * its first row, up to the row's own. A sampler keeps that text beside its own state, as a shadow:
 *   begin      the shadow is the state                    once a batch, before its first row
 *   draft      one more token is part of the shadow       between rows, in order
 *   params     writes what row j needs, by the shadow     rows in order
 * apply and accept know nothing of the shadow. None of the three allocates.
 *
 * A constrained chain (qn_sampler_constrained) is attached like a chain, if all its members have a
 * form and one picks: its program is that of its chain, with a check of the pick by the grammar
 * behind it. Else it runs outside. Below, `chain` may be either.
 *
 * What depends on the *pick* of the row before (mirostat, adaptive-p) is known only when that row
 * has run: it is carried from row to row in the graph, see tensor/sample.h. A chain has one such
 * member at most; a second one ends the prefix.
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
    QN_STAGE_PENALTIES,
    QN_STAGE_DRY,
    QN_STAGE_INFILL,
    QN_STAGE_REASONING,
    QN_STAGE_MIROSTAT,
    QN_STAGE_MIROSTAT_V2,
    QN_STAGE_ADAPTIVE_P,
    QN_STAGE_GRAMMAR,
    QN_STAGE_COUNT,
    QN_STAGE_NONE /* a sampler that is off: part of the prefix, nothing to do */
} qn_stage_id;

extern const qn_sample_table qn__sample_table;

/* The stages, each in its sampler's file. */
extern const qn_sample_stage qn__stage_greedy, qn__stage_dist, qn__stage_top_k, qn__stage_top_p,
    qn__stage_min_p, qn__stage_temp, qn__stage_temp_ext, qn__stage_typical, qn__stage_top_n_sigma,
    qn__stage_logit_bias, qn__stage_xtc, qn__stage_penalties, qn__stage_dry, qn__stage_infill,
    qn__stage_reasoning, qn__stage_mirostat, qn__stage_mirostat_v2, qn__stage_adaptive_p,
    qn__stage_grammar;

/* A sampler's form; the `graph` of its interface. */
typedef struct qn_sampler_graph {
    qn_stage_id stage;
    bool picks;
    bool draws; /* picks by the weights of the set, which are then its probabilities */
    /* Parameters of a row: at most this many bytes, written by `params`. NULL: the whole state, a
     * qn_plain_state that apply only reads (or none). */
    size_t param_bytes;
    /* Where that depends on settings or on the text: bytes at most for output row j, once n_drafts
     * tokens are in the shadow. Grows seldom, since a plan is made for it: a bound that is easy to
     * tell, not the exact number. NULL: param_bytes. */
    size_t (*room)(const void *state, int32_t j, size_t n_drafts);
    /* For the j-th output row of the batch at work, j counted in the sampler's sequence. Returns
     * the bytes written. `out` is aligned to 8. */
    size_t (*params)(void *state, int32_t j, void *out);
    /* A batch begins, or was given up: the shadow becomes the state, what was drawn ahead for rows
     * is forgotten. */
    void (*begin)(void *state);
    /* A generated token becomes part of the shadow: if it is the first behind a row, one that is
     * accepted for that row. NULL: the text does not matter. */
    void (*draft)(void *state, int32_t token);
    /* As if apply had just been called outside for the row that left this carry, which is that of
     * the chain's member that carries: what apply would remember until accept. NULL: nothing. */
    void (*take)(void *state, const int32_t *carry);
    /* How many of n candidates are left at most. NULL: n. */
    size_t (*keep)(const void *state, size_t n);
} qn_sampler_graph;

/* The form of a grammar, also as the check of a constrained chain. */
extern const qn_sampler_graph qn__grammar_graph;
/* The chain in a constrained one; NULL for any other sampler. */
qn_sampler *qn__constrained_chain(const qn_sampler *s);
/* qn__sampler_start for a constrained one. */
void qn__constrained_start(qn_sampler *sampler, qn_candidates *c, const float *logits, size_t n);

/* What the prefix of a chain comes to. */
typedef struct qn_chain_form {
    size_t n_prefix; /* members */
    bool whole;      /* no member is behind it */
    bool picks, draws;
    bool follows;        /* rows depend on the tokens of the batch between them */
    qn_sampler *carrier; /* the member that carries; NULL: none */
    qn_sampler *check;   /* the constrained chain whose grammar checks the pick; NULL: none */
    size_t n_keep;       /* candidates left at most */
} qn_chain_form;

/*
 * Prepares a chain for a graph over a vocabulary of n: its members get their marks ("+top-k": in
 * the graph, "-top-k": asked and refused, because `supported` says that the device has no SAMPLE,
 * or as the second one that carries). Until qn__chain_detach no member can be added or removed, and
 * it cannot be attached again. QN_ERR_ARGUMENT for what is no chain, is empty or attached.
 */
qn_status qn__chain_attach(qn_sampler *chain, bool supported, size_t n, qn_chain_form *out,
                           qn_error *err);
void qn__chain_detach(qn_sampler *chain);

/* A batch begins, or was given up. */
void qn__chain_begin(const qn_sampler *chain);

/* A token of the batch behind the sequence's first row. */
void qn__chain_draft(const qn_sampler *chain, const qn_chain_form *form, int32_t token);

/* Words of the program of row j at most, head included, an even number. n_drafts: tokens since the
 * sequence's first row. */
size_t qn__chain_program_words(const qn_sampler *chain, const qn_chain_form *form, int32_t j,
                               size_t n_drafts);

/* Writes the stages of a row's program behind its head, which gets their number. `carry`: what the
 * row before left where that one is not linked; NULL: there is none, or it is linked. */
void qn__chain_program(const qn_sampler *chain, const qn_chain_form *form, int32_t j,
                       const int32_t *carry, int32_t *program);

/*
 * The rows of the batch up to now, n of them with a carry each; form and carries stay the caller's.
 * The generated tokens that the chain accepts from now on are taken for those of rows j, j + 1, …:
 * its members do with them as if they had been applied outside. Forgotten when the chain is applied
 * outside, reset, detached, or when a batch begins.
 */
void qn__chain_rows(qn_sampler *chain, const qn_chain_form *form, const int32_t *carries, int32_t n,
                    int32_t j);

/* Applies the members behind the prefix. */
void qn__chain_apply_rest(const qn_sampler *chain, const qn_chain_form *form, qn_candidates *c);

#endif
