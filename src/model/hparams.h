/* hparams.h: from metadata to hyper-parameters, and what the rows of the table use for that. */
#ifndef QUERN_MODEL_HPARAMS_H
#define QUERN_MODEL_HPARAMS_H

#include "model/arch.h"

#define QN_MAX_WIDTH (1 << 20) /* of any row: embedding, heads together, feed-forward */

/* Reads all hyper-parameters of the architecture. `n_vocab` is the length of the token list, 0
 * where the file has none. Errors name file and key. */
qn_status qn__hparams_read(qn_hparams *hp, const qn_gguf *gguf, const qn_arch *arch,
                           int32_t n_vocab, qn_error *err);

/* Groups the layers by the kind of their attention. `factors`: which tensor divides angles. */
void qn__hparams_kv_layout(const qn_hparams *hp, const qn_arch *arch, qn_kv_layout *kv);

/*
 * For the rows' `keys` functions. Layers get a window of `kind` and `size` by
 * attention.sliding_window_pattern or, where the file has none, by the period P: every P-th layer
 * is full, the last of each P (`first`: the first of each P). A size of 0 or less: no windows.
 */
void qn__hparams_windows(qn_keys *k, qn_hparams *hp, qn_window kind, int32_t size, int32_t period,
                         bool first);

/* Window layers rotate with a base of their own: rope.freq_base_swa, or `base`. */
void qn__hparams_window_base(qn_keys *k, qn_hparams *hp, float base, bool own_scale);

/* Full layers do not rotate. */
void qn__hparams_no_rope_in_full(qn_hparams *hp);

/* The final magnitude factor for a frequency scale, without the part that the table puts in. */
float qn__rope_magnitude(const qn_rope_kind *kind, float freq_scale);

#endif
