/* model.c: what a loaded model tells about itself, to programs and to the other rooms. */
#include <stdio.h>

#include "base/fmath.h"
#include "model/hparams.h"
#include "model/loader.h"

const qn_vocab *qn_model_vocab(const qn_model *model)
{
    return model->vocab;
}

const qn_gguf *qn_model_gguf(const qn_model *model)
{
    return model->gguf;
}

const char *qn_model_architecture(const qn_model *model)
{
    return model->architecture;
}

const char *qn_model_description(const qn_model *model)
{
    return model->description;
}

const char *qn_model_chat_template(const qn_model *model, const char *name)
{
    char key[128] = "tokenizer.chat_template";
    if (name) {
        int n = snprintf(key, sizeof(key), "tokenizer.chat_template.%s", name);
        if (n < 0 || (size_t)n >= sizeof(key)) {
            return NULL;
        }
    }
    const qn_gguf_pair *pair = qn_gguf_find(model->gguf, key);
    return pair && pair->type == QN_GGUF_STR ? pair->text.data : NULL;
}

int32_t qn_model_n_ctx_train(const qn_model *model)
{
    return model->hp.n_ctx_train;
}

int32_t qn_model_n_embd(const qn_model *model)
{
    return model->hp.n_embd;
}

int32_t qn_model_n_embd_out(const qn_model *model)
{
    return model->hp.n_embd_out;
}

int32_t qn_model_n_layer(const qn_model *model)
{
    return model->hp.n_layer;
}

int32_t qn_model_n_head(const qn_model *model)
{
    return model->hp.layer[0].n_head;
}

int32_t qn_model_n_head_kv(const qn_model *model)
{
    return model->hp.layer[0].n_head_kv;
}

int32_t qn_model_n_vocab(const qn_model *model)
{
    return model->hp.n_vocab;
}

int32_t qn_model_n_swa(const qn_model *model)
{
    return model->hp.window == QN_WINDOW_NONE ? 0 : model->hp.window_size;
}

uint64_t qn_model_n_params(const qn_model *model)
{
    return model->n_params;
}

uint64_t qn_model_n_bytes(const qn_model *model)
{
    return model->n_bytes;
}

uint64_t qn_model_n_packed_bytes(const qn_model *model)
{
    return model->n_packed_bytes;
}

bool qn_model_has_encoder(const qn_model *model)
{
    (void)model; /* no architecture of the table has one */
    return false;
}

bool qn_model_has_decoder(const qn_model *model)
{
    return model->arch != NULL;
}

bool qn_model_is_causal(const qn_model *model)
{
    return model->hp.causal;
}

bool qn_model_is_vocab_only(const qn_model *model)
{
    return model->vocab_only;
}

qn_model_rope qn_model_rope_kind(const qn_model *model)
{
    if (model->hp.n_rope == 0) {
        return QN_MODEL_ROPE_NONE;
    }
    static const qn_model_rope kinds[] = {
        [QN_ROPE_NORM] = QN_MODEL_ROPE_NORM,
        [QN_ROPE_NEOX] = QN_MODEL_ROPE_NEOX,
        [QN_ROPE_MROPE] = QN_MODEL_ROPE_MROPE,
        [QN_ROPE_IMROPE] = QN_MODEL_ROPE_IMROPE,
    };
    return kinds[model->hp.rope[0].params.mode];
}

qn_pooling qn_model_pooling(const qn_model *model)
{
    return model->hp.pooling;
}

const qn_hparams *qn__model_hparams(const qn_model *model)
{
    return &model->hp;
}

const qn_kv_layout *qn__model_kv_layout(const qn_model *model)
{
    return &model->kv;
}

qn_rope_params qn__model_rope_params(const qn_model *model, int32_t rope, float freq_base,
                                     float freq_scale)
{
    const qn_rope_kind *kind = &model->hp.rope[rope];
    qn_rope_params p = kind->params;
    if (rope == 0 && freq_base > 0.0f) {
        p.freq_base = freq_base;
    }
    if (rope == 0 && freq_scale > 0.0f) {
        p.freq_scale = freq_scale;
        p.attn_factor = qn__rope_magnitude(kind, freq_scale);
    }
    return p;
}

const qn_weight *qn__model_rope_factors(const qn_model *model, int32_t rope, int64_t n_ctx_seq)
{
    switch (model->hp.rope[rope].factors) {
    case QN_ROPE_FACTORS_FREQS:
        return model->global[QN_T_ROPE_FREQS].weight;
    case QN_ROPE_FACTORS_LONG_SHORT:
        return model->global[n_ctx_seq > model->hp.n_ctx_orig ? QN_T_ROPE_LONG : QN_T_ROPE_SHORT]
            .weight;
    default:
        return NULL;
    }
}

int32_t qn__model_n_positions(const qn_model *model)
{
    return model->hp.n_rope > 0 && model->hp.rope[0].params.mode >= QN_ROPE_MROPE ? 4 : 1;
}

int32_t qn__model_max_positions(const qn_model *model)
{
    return model->global[QN_T_POSITION_EMBD].weight ? model->hp.n_ctx_train : 0;
}

bool qn__model_needs_q_scale(const qn_model *model)
{
    return model->hp.q_temp_scale != 0.0f;
}

float qn__model_q_scale(const qn_model *model, int32_t position)
{
    const qn_hparams *hp = &model->hp;
    if (hp->q_temp_scale == 0.0f || hp->q_temp_length < 1) {
        return 1.0f;
    }
    int64_t steps = ((int64_t)position + hp->q_temp_offset) / hp->q_temp_length;
    return 1.0f + hp->q_temp_scale * (float)qn__log((double)steps + 1.0);
}
