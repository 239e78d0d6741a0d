/* arch_keys.c: hyper-parameters that only some architectures have. */
#include "model/arch/arch_keys.h"

#include <math.h>

#include "base/fmath.h"

#define WINDOW "attention.sliding_window"

static int32_t window_size(qn_keys *k, int32_t fallback)
{
    return qn__keys_i32(k, WINDOW, fallback, 0, INT32_MAX / 2);
}

static int32_t need_window(qn_keys *k)
{
    return qn__keys_need_i32(k, WINDOW, 0, INT32_MAX / 2);
}

void qn__keys_clamp(qn_keys *k, qn_hparams *hp)
{
    hp->clamp_qkv = qn__keys_f32(k, "attention.clamp_kqv", 0.0f);
}

void qn__keys_cohere2(qn_keys *k, qn_hparams *hp)
{
    hp->logit_scale = qn__keys_need_f32(k, "logit_scale");
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, need_window(k), 4, false);
    qn__hparams_no_rope_in_full(hp);
}

void qn__keys_exaone4(qn_keys *k, qn_hparams *hp)
{
    if (hp->n_layer == 64) { /* the 32B model; the small one has neither windows nor gaps */
        qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, window_size(k, 4096), 4, false);
        qn__hparams_no_rope_in_full(hp);
    }
}

void qn__keys_gemma(qn_keys *k, qn_hparams *hp)
{
    (void)k;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->embd_scale_rows = true;
}

/* The largest models take the width of a head from the embedding, not from the head itself. */
static void gemma_scale(qn_hparams *hp, int32_t layers_of_largest)
{
    int32_t heads = hp->layer[0].n_head;
    if (hp->n_layer == layers_of_largest && heads > 0 && heads <= hp->n_embd) {
        hp->attend_scale = 1.0f / sqrtf((float)(hp->n_embd / heads));
    }
}

void qn__keys_gemma2(qn_keys *k, qn_hparams *hp)
{
    qn__keys_gemma(k, hp);
    gemma_scale(hp, 46);
    hp->attend_cap = qn__keys_f32(k, "attn_logit_softcapping", 50.0f);
    hp->logit_cap = qn__keys_f32(k, "final_logit_softcapping", 30.0f);
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, window_size(k, 4096), 2, false);
    qn__hparams_window_base(k, hp, hp->rope[0].params.freq_base, false);
}

void qn__keys_gemma3(qn_keys *k, qn_hparams *hp)
{
    qn__keys_gemma(k, hp);
    hp->embd_scale_rows = false;
    gemma_scale(hp, 62);
    hp->logit_cap = qn__keys_f32(k, "final_logit_softcapping", 0.0f);
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, window_size(k, 0), 6, false);
    qn__hparams_window_base(k, hp, 10000.0f, true);
}

/* Scores are scaled by the rotated width, which is the head's. */
void qn__keys_scale_by_rot(qn_keys *k, qn_hparams *hp)
{
    (void)k;
    if (hp->rope[0].params.n_rot > 0) {
        hp->attend_scale = 1.0f / sqrtf((float)hp->rope[0].params.n_rot);
    }
}

void qn__keys_gpt_oss(qn_keys *k, qn_hparams *hp)
{
    qn__keys_scale_by_rot(k, hp);
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, need_window(k), 2, false);
    qn__hparams_window_base(k, hp, hp->rope[0].params.freq_base, false);
}

void qn__keys_granitemoe(qn_keys *k, qn_hparams *hp)
{
    float logit_scale = qn__keys_need_f32(k, "logit_scale");
    hp->logit_scale = logit_scale != 0.0f ? 1.0f / logit_scale : 0.0f;
    hp->residual_scale = qn__keys_f32(k, "residual_scale", 0.0f);
    hp->embd_scale = qn__keys_f32(k, "embedding_scale", 0.0f);
    hp->attend_scale = qn__keys_f32(k, "attention.scale", 0.0f);
}

static void no_rope(qn_hparams *hp)
{
    for (int32_t il = 0; il < hp->n_layer; il++) {
        hp->layer[il].rope = -1;
    }
}

void qn__keys_granite(qn_keys *k, qn_hparams *hp)
{
    qn__keys_granitemoe(k, hp);
    if (!qn__keys_bool(k, "rope.scaling.finetuned", true)) {
        no_rope(hp);
    }
}

/* Read as a divisor also where it is absent and stands for 256 / E: odd, but what such files are
 * made for. */
void qn__keys_minicpm(qn_keys *k, qn_hparams *hp)
{
    float logit_scale = qn__keys_f32(k, "logit_scale", 256.0f / (float)hp->n_embd);
    hp->logit_scale = logit_scale != 0.0f ? 1.0f / logit_scale : 0.0f;
    hp->residual_scale = qn__keys_f32(k, "residual_scale", 1.4f / sqrtf((float)hp->n_layer));
    hp->embd_scale = qn__keys_f32(k, "embedding_scale", 12.0f);
}

void qn__keys_mistral3(qn_keys *k, qn_hparams *hp)
{
    qn_rope_params *p = &hp->rope[0].params;
    p->beta_fast = qn__keys_f32(k, "rope.scaling.yarn_beta_fast", p->beta_fast);
    p->beta_slow = qn__keys_f32(k, "rope.scaling.yarn_beta_slow", p->beta_slow);
    hp->rope[0].log_multiplier = qn__keys_f32(k, "rope.scaling.yarn_log_multiplier", 0.0f);
    hp->q_temp_scale = qn__keys_f32(k, "attention.temperature_scale", 0.0f);
    hp->q_temp_length = hp->n_ctx_orig;
}

void qn__keys_olmo2(qn_keys *k, qn_hparams *hp)
{
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, window_size(k, 0), 4, false);
    qn__hparams_window_base(k, hp, hp->rope[0].params.freq_base, true);
    if (hp->n_rope > 1) { /* window layers: the base of all, no YaRN */
        qn_rope_kind *own = &hp->rope[1];
        own->params.freq_base = hp->rope[0].params.freq_base;
        own->params.ext_factor = 0.0f;
        own->magnitude = 1.0f;
    }
}

void qn__keys_smollm3(qn_keys *k, qn_hparams *hp)
{
    (void)k;
    for (int32_t il = 3; il < hp->n_layer; il += 4) {
        hp->layer[il].rope = -1;
    }
}

void qn__keys_alibi_8(qn_keys *k, qn_hparams *hp)
{
    (void)k;
    hp->alibi_bias = 8.0f;
}

/* The number of layers tells the sizes apart: 7B rotates, 13B has ALiBi, others have neither. */
void qn__keys_baichuan(qn_keys *k, qn_hparams *hp)
{
    (void)k;
    if (hp->n_layer != 32) {
        no_rope(hp);
    }
    if (hp->n_layer == 40) {
        hp->alibi_bias = 8.0f;
    }
}

void qn__keys_command_r(qn_keys *k, qn_hparams *hp)
{
    hp->logit_scale = qn__keys_f32(k, "logit_scale", 0.0f);
}

void qn__keys_dbrx(qn_keys *k, qn_hparams *hp)
{
    hp->clamp_qkv = qn__keys_need_f32(k, "attention.clamp_kqv");
}

void qn__keys_exaone_moe(qn_keys *k, qn_hparams *hp)
{
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, need_window(k), 4, false);
    qn__hparams_no_rope_in_full(hp);
}

void qn__keys_gptneox(qn_keys *k, qn_hparams *hp)
{
    if (!qn__keys_find(k, "use_parallel_residual")) {
        qn__keys_fail(k, QN_ERR_FORMAT, "use_parallel_residual", "missing");
    }
    hp->parallel = qn__keys_bool(k, "use_parallel_residual", true);
}

void qn__keys_hunyuan_dense(qn_keys *k, qn_hparams *hp)
{
    float alpha = qn__keys_f32(k, "rope.scaling.alpha", 0.0f);
    double d = (double)hp->layer[0].d_k;
    if (alpha > 0.0f && d > 2.0) {
        hp->rope[0].params.freq_base *= (float)qn__pow((double)alpha, d / (d - 2.0));
    }
}

void qn__keys_jais(qn_keys *k, qn_hparams *hp)
{
    hp->alibi_bias = qn__keys_f32(k, "attention.max_alibi_bias", 0.0f);
    if (hp->layer[0].d_k > 0) {
        hp->attend_scale = 1.0f / (float)hp->layer[0].d_k;
    }
}

void qn__keys_llama4(qn_keys *k, qn_hparams *hp)
{
    if (window_size(k, 8192) > 0) { /* any size stands for chunks of 8192 */
        qn__hparams_windows(k, hp, QN_WINDOW_CHUNKED, 8192, 4, false);
        qn__hparams_window_base(k, hp, hp->rope[0].params.freq_base, false);
    }
    for (int32_t il = 3; il < hp->n_layer; il += 4) {
        hp->layer[il].rope = -1;
    }
    hp->q_temp_scale = 0.1f;
    hp->q_temp_length = 8192;
    hp->q_temp_offset = 1;
    hp->q_temp_no_rope = true;
    hp->qk_unit_norm = hp->n_expert != 128;
}

void qn__keys_mpt(qn_keys *k, qn_hparams *hp)
{
    qn__keys_clamp(k, hp);
    hp->alibi_bias = qn__keys_f32(k, "attention.max_alibi_bias", 0.0f);
}

void qn__keys_plamo(qn_keys *k, qn_hparams *hp)
{
    (void)k;
    hp->rope[0].params.n_rot = hp->layer[0].d_k; /* whatever the key says */
}
