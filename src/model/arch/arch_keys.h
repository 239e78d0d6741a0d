/* arch_keys.h: the functions that rows of the table name, beside the common ones. */
#ifndef QUERN_MODEL_ARCH_ARCH_KEYS_H
#define QUERN_MODEL_ARCH_ARCH_KEYS_H

#include "model/builder.h"
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
void qn__keys_grok(qn_keys *k, qn_hparams *hp);
void qn__keys_smallthinker(qn_keys *k, qn_hparams *hp);

void qn__tensors_arctic(qn_loader *l, int32_t il);
void qn__tensors_grok(qn_loader *l, int32_t il);
void qn__tensors_refact(qn_loader *l, int32_t il);

qn_node *qn__layer_arctic(qn_builder *b, int32_t il, qn_node *x);
qn_node *qn__layer_grok(qn_builder *b, int32_t il, qn_node *x);
qn_node *qn__layer_refact(qn_builder *b, int32_t il, qn_node *x);
qn_node *qn__layer_smallthinker(qn_builder *b, int32_t il, qn_node *x);

/* Latent attention (mla.c). */
void qn__keys_deepseek2(qn_keys *k, qn_hparams *hp);
void qn__keys_minicpm3(qn_keys *k, qn_hparams *hp);
void qn__keys_mistral4(qn_keys *k, qn_hparams *hp);
void qn__tensors_mla(qn_loader *l, int32_t il);
qn_node *qn__attention_mla(qn_builder *b, int32_t il, qn_node *x);

/* gemma4.c */
void qn__keys_gemma4(qn_keys *k, qn_hparams *hp);
void qn__globals_gemma4(qn_loader *l);
void qn__tensors_gemma4(qn_loader *l, int32_t il);
qn_node *qn__layer_gemma4(qn_builder *b, int32_t il, qn_node *x);

#endif
