/*
 * rope.h: the angles by which RoPE turns the pairs of a row: what the CPU's kernel makes its tables
 * of, and by what the KV store turns keys whose positions were moved.
 *
 * An angle is built in single precision by repeated multiplication, theta_(j+1) = theta_j t with t
 * = base^(-2 / n_rot): what models were trained and are compared with. Its cos and sin are taken in
 * double precision and rounded once.
 *
 * YaRN (Peng et al. 2023): pairs that turn slowly are interpolated (scaled by freq_scale), fast
 * ones are not, with a ramp between two pair numbers; the magnitude grows by 1 + 0.1 ln(1 / scale).
 */
#ifndef QUERN_DEVICE_ROPE_H
#define QUERN_DEVICE_ROPE_H

#include "tensor/graph.h"

/* What all tokens have in common. */
typedef struct qn_rope_turn {
    float ratio;     /* of the angles of neighbouring pairs */
    float low, high; /* YaRN's ramp, in pair numbers */
    float magnitude; /* of a rotated key or query */
} qn_rope_turn;

qn_rope_turn qn__rope_turn(const qn_rope_params *p);

/* cos and sin of each pair, times the magnitude of `turn`, of a token at `position` (four of them
 * for M-RoPE, else one): out [n_rot]. `factors` [n_rot / 2] divide the angles; or NULL. */
void qn__rope_row(const qn_rope_params *p, const qn_rope_turn *turn, const float *factors,
                  const int32_t position[4], float *out);

#endif
