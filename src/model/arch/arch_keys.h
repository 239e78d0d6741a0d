/* arch_keys.h: what rows of the table read beside the common keys, for table.c. */
#ifndef QUERN_MODEL_ARCH_ARCH_KEYS_H
#define QUERN_MODEL_ARCH_ARCH_KEYS_H

#include "model/hparams.h"

void qn__keys_clamp(qn_keys *k, qn_hparams *hp); /* attention.clamp_kqv */
void qn__keys_cohere2(qn_keys *k, qn_hparams *hp);
void qn__keys_exaone4(qn_keys *k, qn_hparams *hp);
void qn__keys_gemma(qn_keys *k, qn_hparams *hp);
void qn__keys_gemma2(qn_keys *k, qn_hparams *hp);
void qn__keys_gemma3(qn_keys *k, qn_hparams *hp);
void qn__keys_gpt_oss(qn_keys *k, qn_hparams *hp);
void qn__keys_granite(qn_keys *k, qn_hparams *hp);
void qn__keys_mistral3(qn_keys *k, qn_hparams *hp);
void qn__keys_olmo2(qn_keys *k, qn_hparams *hp);
void qn__keys_smollm3(qn_keys *k, qn_hparams *hp);

#endif
