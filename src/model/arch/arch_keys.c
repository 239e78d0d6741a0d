/* arch_keys.c: hyper-parameters that only some architectures have. */
#include "model/arch/arch_keys.h"

#include <math.h>

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
    if (hp->n_layer == layers_of_largest && hp->layer[0].n_head > 0) {
        hp->attend_scale = 1.0f / sqrtf((float)(hp->n_embd / hp->layer[0].n_head));
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

void qn__keys_gpt_oss(qn_keys *k, qn_hparams *hp)
{
    if (hp->rope[0].params.n_rot > 0) {
        hp->attend_scale = 1.0f / sqrtf((float)hp->rope[0].params.n_rot);
    }
    qn__hparams_windows(k, hp, QN_WINDOW_STANDARD, need_window(k), 2, false);
    qn__hparams_window_base(k, hp, hp->rope[0].params.freq_base, false);
}

void qn__keys_granite(qn_keys *k, qn_hparams *hp)
{
    float logit_scale = qn__keys_need_f32(k, "logit_scale");
    hp->logit_scale = logit_scale != 0.0f ? 1.0f / logit_scale : 0.0f;
    hp->residual_scale = qn__keys_f32(k, "residual_scale", 0.0f);
    hp->embd_scale = qn__keys_f32(k, "embedding_scale", 0.0f);
    hp->attend_scale = qn__keys_f32(k, "attention.scale", 0.0f);
    if (!qn__keys_bool(k, "rope.scaling.finetuned", true)) {
        for (int32_t il = 0; il < hp->n_layer; il++) {
            hp->layer[il].rope = -1;
        }
    }
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
