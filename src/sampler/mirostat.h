/* mirostat.h: what the two mirostats share: the state that learns, and the pick. */
#ifndef QUERN_SAMPLER_MIROSTAT_H
#define QUERN_SAMPLER_MIROSTAT_H

#include "sampler/sampler.h"

/* Surprises are in bits. */
typedef struct qn_mirostat {
    float tau, eta;
    float mu;       /* most surprising token allowed; learned */
    int32_t token;  /* what the last apply picked, or QN_TOKEN_NONE */
    float surprise; /* of it */
    qn_draw draw;
} qn_mirostat;

bool qn__mirostat_init(qn_mirostat *m, uint32_t seed, float tau, float eta, qn_error *err);
void qn__mirostat_reset(qn_mirostat *m);
/* Picks from a set that is cut, remembers the pick. */
void qn__mirostat_pick(qn_mirostat *m, qn_candidates *c);
/* Learns if the token is the one that was picked. */
void qn__mirostat_accept(qn_mirostat *m, int32_t token, bool generated);

/* Surprise -log2 p of a candidate of a weighed set. */
float qn__surprise(float max, float logit, float log_sum);

#endif
