/* arch_keys.h: what rows of the table read beside the common keys, for table.c. */
#ifndef QUERN_MODEL_ARCH_ARCH_KEYS_H
#define QUERN_MODEL_ARCH_ARCH_KEYS_H

#include "model/hparams.h"

void qn__keys_alibi_8(qn_keys *k, qn_hparams *hp);
void qn__keys_baichuan(qn_keys *k, qn_hparams *hp);
void qn__keys_clamp(qn_keys *k, qn_hparams *hp);
void qn__keys_cohere2(qn_keys *k, qn_hparams *hp);
void qn__keys_command_r(qn_keys *k, qn_hparams *hp);
void qn__keys_dbrx(qn_keys *k, qn_hparams *hp);
void qn__keys_exaone4(qn_keys *k, qn_hparams *hp);
void qn__keys_exaone_moe(qn_keys *k, qn_hparams *hp);
void qn__keys_gemma(qn_keys *k, qn_hparams *hp);
void qn__keys_gemma2(qn_keys *k, qn_hparams *hp);
void qn__keys_gemma3(qn_keys *k, qn_hparams *hp);
void qn__keys_gpt_oss(qn_keys *k, qn_hparams *hp);
void qn__keys_gptneox(qn_keys *k, qn_hparams *hp);
void qn__keys_granite(qn_keys *k, qn_hparams *hp);
void qn__keys_granitemoe(qn_keys *k, qn_hparams *hp);
void qn__keys_hunyuan_dense(qn_keys *k, qn_hparams *hp);
void qn__keys_jais(qn_keys *k, qn_hparams *hp);
void qn__keys_llama4(qn_keys *k, qn_hparams *hp);
void qn__keys_minicpm(qn_keys *k, qn_hparams *hp);
void qn__keys_mistral3(qn_keys *k, qn_hparams *hp);
void qn__keys_mpt(qn_keys *k, qn_hparams *hp);
void qn__keys_olmo2(qn_keys *k, qn_hparams *hp);
void qn__keys_plamo(qn_keys *k, qn_hparams *hp);
void qn__keys_scale_by_rot(qn_keys *k, qn_hparams *hp);
void qn__keys_smollm3(qn_keys *k, qn_hparams *hp);

#endif
