/* mirostat.h: what the two mirostats share: what they learn, the pick, their form in graphs. */
#ifndef QUERN_SAMPLER_MIROSTAT_H
#define QUERN_SAMPLER_MIROSTAT_H

#include "sampler/graph.h"

/* What is learned and goes from row to row: the carry of tensor/sample.h. Surprises are in bits. */
typedef struct qn_mirostat_memory {
    float mu;         /* most surprising token allowed */
    int32_t token;    /* the last pick, or QN_TOKEN_NONE */
    float surprise;   /* of it */
    uint32_t drew;    /* 1 where it took a random number */
    uint32_t n_drawn; /* numbers that the rows of the batch took up to here */
    uint32_t unused;
} qn_mirostat_memory;
_Static_assert(sizeof(qn_mirostat_memory) == QN_SAMPLE_CARRY_WORDS * sizeof(int32_t), "a carry");

/* The state of both, or its beginning: what `state` points to below. */
typedef struct qn_mirostat {
    qn_plain_state plain;
    float tau, eta;
    qn_mirostat_memory memory;
    int32_t draft; /* the first token of the batch behind the last row, or QN_TOKEN_NONE */
    qn_draw draw;
} qn_mirostat;

bool qn__mirostat_init(qn_mirostat *m, uint32_t seed, float tau, float eta, qn_error *err);
/* Picks from a set that is cut and sorted, remembers the pick. */
void qn__mirostat_pick(qn_mirostat *m, qn_candidates *c);

/* Of the interface. accept learns if the token is the one that was picked. */
void qn__mirostat_reset(void *state);
qn_status qn__mirostat_accept(void *state, int32_t token, bool generated, qn_error *err);
bool qn__mirostat_seed(const void *state, uint32_t *out);

/* Surprise -log2 p of a candidate of a weighed set. */
float qn__surprise(float max, float logit, float log_sum);

/* Parameters of output row j in a graph: the rows before it may have left numbers to it. */
typedef struct qn_mirostat_params {
    qn_mirostat_memory memory;
    float tau, eta;
    int32_t token; /* accepted for the row before, or QN_TOKEN_NONE */
    int32_t n_fractions;
    uint64_t fractions[]; /* j + 1 */
} qn_mirostat_params;

/* Of the form in graphs. */
size_t qn__mirostat_room(const void *state, int32_t j, size_t n_drafts);
size_t qn__mirostat_params(void *state, int32_t j, void *out);
void qn__mirostat_begin(void *state);
void qn__mirostat_draft(void *state, int32_t token);
void qn__mirostat_take(void *state, const int32_t *carry);

/* A row in a graph: learns from the row before; then the set is cut; then picks. */
qn_mirostat_memory qn__mirostat_row_begin(const qn_mirostat_params *p, const int32_t *carry);
void qn__mirostat_row_end(const qn_mirostat_params *p, qn_mirostat_memory *memory, qn_candidates *c,
                          int32_t *carry);

#endif
