/*
 * hparams.c: reads hyper-parameters: the keys that all architectures share, then what the row of
 * the architecture adds, then the checks that tie them together.
 */
#include "model/hparams.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fmath.h"

#define MAX_HEADS    4096
#define MAX_HEAD     4096 /* values of one head */
#define MAX_PATTERN  QN_MAX_LAYERS
#define MAX_POSITION (INT32_MAX / 2)

static void read_sizes(qn_keys *k, qn_hparams *hp, int32_t n_vocab)
{
    hp->n_ctx_train = qn__keys_need_i32(k, "context_length", 1, MAX_POSITION);
    hp->n_embd = qn__keys_need_i32(k, "embedding_length", 1, QN_MAX_WIDTH);
    hp->n_embd_out = qn__keys_i32(k, "embedding_length_out", hp->n_embd, 1, QN_MAX_WIDTH);
    int32_t blocks = qn__keys_need_i32(k, "block_count", 1, QN_MAX_LAYERS);
    hp->n_nextn = qn__keys_i32(k, "nextn_predict_layers", 0, 0, blocks - 1);
    hp->n_layer = blocks - hp->n_nextn;
    hp->n_vocab = n_vocab > 0 ? n_vocab : qn__keys_need_i32(k, "vocab_size", 1, INT32_MAX);
}

static void read_layers(qn_keys *k, qn_hparams *hp, const qn_arch *arch)
{
    size_t n = (size_t)(hp->n_layer + hp->n_nextn);
    int32_t heads[QN_MAX_LAYERS], kv_heads[QN_MAX_LAYERS], ff[QN_MAX_LAYERS], used[QN_MAX_LAYERS];
    qn__keys_i32_each(k, "attention.head_count", 0, 0, MAX_HEADS, n, heads);
    qn__keys_i32_each(k, "attention.head_count_kv", 0, 0, MAX_HEADS, n, kv_heads);
    qn__keys_i32_each(k, "feed_forward_length", 0, 0, QN_MAX_WIDTH, n, ff);
    qn__keys_i32_each(k, "expert_used_count", 0, 0, QN_MAX_EXPERTS, n, used);
    bool has_kv_heads = qn__keys_find(k, "attention.head_count_kv") != NULL;
    int32_t d = heads[0] > 0 ? hp->n_embd / heads[0] : 0;
    int32_t d_k = qn__keys_i32(k, "attention.key_length", d, 0, MAX_HEAD);
    int32_t d_v = qn__keys_i32(k, "attention.value_length", d, 0, MAX_HEAD);
    hp->moe.n_used = used[0];
    for (int32_t il = 0; il < hp->n_layer; il++) {
        qn_layer_params *lp = &hp->layer[il];
        lp->n_head = heads[il];
        lp->n_head_kv = has_kv_heads ? kv_heads[il] : heads[il];
        lp->d_k = d_k;
        lp->d_v = d_v;
        lp->n_ff = ff[il];
        lp->n_used = used[il]; /* cleared again for dense layers */
        lp->rope = arch->rope == QN_MODEL_ROPE_NONE ? -1 : 0;
        lp->owns_kv = true;
        bool varies = heads[il] != heads[0] || kv_heads[il] != kv_heads[0] || ff[il] != ff[0];
        if (varies && !(arch->flags & QN_ARCH_PER_LAYER)) {
            qn__keys_fail(k, QN_ERR_UNSUPPORTED, "attention.head_count",
                          "heads or feed-forward widths that differ between layers are not known "
                          "for this architecture");
        }
    }
}

static bool text_is(qn_gguf_text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

static const qn_rope_mode rope_modes[] = {
    [QN_MODEL_ROPE_NONE] = QN_ROPE_NORM,     [QN_MODEL_ROPE_NORM] = QN_ROPE_NORM,
    [QN_MODEL_ROPE_NEOX] = QN_ROPE_NEOX,     [QN_MODEL_ROPE_MROPE] = QN_ROPE_MROPE,
    [QN_MODEL_ROPE_IMROPE] = QN_ROPE_IMROPE,
};

static void read_sections(qn_keys *k, qn_rope_params *p, const qn_arch *arch)
{
    bool needed = arch->rope == QN_MODEL_ROPE_MROPE || arch->rope == QN_MODEL_ROPE_IMROPE;
    if (!needed && !(arch->flags & QN_ARCH_SECTIONS)) {
        return;
    }
    size_t n = qn__keys_i32_array(k, "rope.dimension_sections", 4, p->sections);
    if (needed && n == 0) {
        qn__keys_fail(k, QN_ERR_FORMAT, "rope.dimension_sections", "missing");
    } else if (n != 0 && n != 4) {
        qn__keys_fail(k, QN_ERR_FORMAT, "rope.dimension_sections", "has %zu values, not 4", n);
    }
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += p->sections[i];
        if (p->sections[i] < 0) {
            qn__keys_fail(k, QN_ERR_FORMAT, "rope.dimension_sections", "a section is negative");
        }
    }
    if (n == 4 && (needed || p->sections[0] > 0 || p->sections[1] > 0) &&
        (sum < 1 || sum > MAX_HEAD)) {
        qn__keys_fail(k, QN_ERR_FORMAT, "rope.dimension_sections", "sum %lld is out of range",
                      (long long)sum);
    }
    if (!needed && p->sections[0] > 0 && p->sections[1] > 0) {
        p->mode = QN_ROPE_MROPE;
    }
}

/* The frequency scale as the file says it, whatever the type of scaling. */
static float file_scale(qn_keys *k)
{
    float factor = qn__keys_f32(k, "rope.scaling.factor", 0.0f);
    if (factor == 0.0f) {
        factor = qn__keys_f32(k, "rope.scale_linear", 0.0f);
    }
    return factor == 0.0f ? 1.0f : 1.0f / factor;
}

static void read_rope(qn_keys *k, qn_hparams *hp, const qn_arch *arch)
{
    qn_rope_kind *kind = &hp->rope[0];
    qn_rope_params *p = &kind->params;
    hp->n_rope = arch->rope == QN_MODEL_ROPE_NONE ? 0 : 1;
    hp->n_ctx_orig =
        qn__keys_i32(k, "rope.scaling.original_context_length", hp->n_ctx_train, 1, MAX_POSITION);
    p->mode = rope_modes[arch->rope];
    p->n_rot = qn__keys_i32(k, "rope.dimension_count", hp->layer[0].d_k, 0, MAX_HEAD);
    p->n_ctx_orig = hp->n_ctx_orig;
    p->freq_base = qn__keys_f32(k, "rope.freq_base", 10000.0f);
    p->freq_scale = file_scale(k);
    p->beta_fast = 32.0f;
    p->beta_slow = 1.0f;
    kind->magnitude = qn__keys_f32(k, "rope.scaling.attn_factor", 1.0f);
    qn_gguf_text type = qn__keys_text(k, "rope.scaling.type");
    bool longrope = text_is(type, "longrope");
    if (text_is(type, "none")) {
        p->freq_scale = 1.0f;
    } else if (text_is(type, "yarn")) {
        p->ext_factor = 1.0f;
    } else if (type.data && !longrope && !text_is(type, "linear")) {
        qn__keys_fail(k, QN_ERR_UNSUPPORTED, "rope.scaling.type", "unknown kind of scaling");
    }
    if ((arch->flags & QN_ARCH_LONG) || (longrope && (arch->flags & QN_ARCH_LONG_BY_TYPE))) {
        kind->factors = QN_ROPE_FACTORS_LONG_SHORT;
    } else if (arch->flags & QN_ARCH_FREQS) {
        kind->factors = QN_ROPE_FACTORS_FREQS;
    }
    read_sections(k, p, arch);
}

static void read_experts(qn_keys *k, qn_hparams *hp, const qn_arch_moe *moe)
{
    qn_moe_params *p = &hp->moe;
    hp->n_expert = qn__keys_i32(k, "expert_count", 0, 0, QN_MAX_EXPERTS);
    p->n_groups = qn__keys_i32(k, "expert_group_count", 0, 0, QN_MAX_EXPERTS);
    p->n_groups_used = qn__keys_i32(k, "expert_group_used_count", 0, 0, QN_MAX_EXPERTS);
    if (hp->n_expert == 0 || moe->when == QN_EXPERTS_NEVER) {
        return;
    }
    if (p->n_used < 1 || p->n_used > hp->n_expert) {
        qn__keys_fail(k, QN_ERR_FORMAT, "expert_used_count", "%d of %d experts", (int)p->n_used,
                      (int)hp->n_expert);
    }
    if (p->n_groups > 1 && (hp->n_expert % p->n_groups != 0 || p->n_groups_used < 1 ||
                            p->n_groups_used > p->n_groups ||
                            p->n_used > hp->n_expert / p->n_groups * p->n_groups_used)) {
        qn__keys_fail(k, QN_ERR_FORMAT, "expert_group_count",
                      "%d groups of which %d do not divide %d experts", (int)p->n_groups,
                      (int)p->n_groups_used, (int)hp->n_expert);
    }
    int32_t gate = (int32_t)moe->gate;
    if (moe->gate_key) {
        gate = qn__keys_i32(k, "expert_gating_func", gate, 0, QN_MOE_SQRT_SOFTPLUS);
        gate = gate == 0 ? (int32_t)moe->gate : gate;
    }
    if (gate == 0) {
        qn__keys_fail(k, QN_ERR_FORMAT, "expert_gating_func", "missing");
    }
    p->gate = (qn_moe_gate)gate;
    p->select_by_logit = moe->select_by_logit;
    p->normalize = moe->normalize == QN_KEY_ASKED ? qn__keys_bool(k, "expert_weights_norm", false)
                                                  : moe->normalize == QN_KEY_YES;
    p->scale = moe->scale_key ? qn__keys_f32(k, "expert_weights_scale", 0.0f) : 0.0f;
}

/* Width of experts and of the shared expert; which layers have them. */
static void read_expert_sizes(qn_keys *k, qn_hparams *hp, const qn_arch_moe *moe)
{
    int32_t f = hp->layer[0].n_ff, fe = f;
    const char *shared_key = "expert_shared_feed_forward_length";
    if (!moe->wide) {
        int32_t fallback = moe->ff_default ? f : 0;
        if (moe->ff_from_used && hp->moe.n_used > 0) {
            fallback = f / hp->moe.n_used;
        }
        fe = qn__keys_i32(k, "expert_feed_forward_length", fallback, 0, QN_MAX_WIDTH);
        fe = fe == 0 ? fallback : fe;
        if (fe == 0) {
            qn__keys_fail(k, QN_ERR_FORMAT, "expert_feed_forward_length", "missing");
        }
    }
    hp->n_ff_expert = fe;
    if (moe->shared == QN_SHARED_COUNT) {
        int32_t count = qn__keys_need_i32(k, "expert_shared_count", 0, QN_MAX_EXPERTS);
        int64_t width = (int64_t)fe * count;
        if (width > QN_MAX_WIDTH) {
            qn__keys_fail(k, QN_ERR_LIMIT, "expert_shared_count", "shared experts are too wide");
            width = 0;
        }
        hp->n_ff_shared = (int32_t)width;
    } else if (moe->shared == QN_SHARED_FE) {
        hp->n_ff_shared = fe;
    } else if (moe->shared != QN_SHARED_NONE) {
        int32_t fallback = moe->shared == QN_SHARED_KEY_OR_F    ? f
                           : moe->shared == QN_SHARED_KEY_OR_FE ? fe
                                                                : 0;
        hp->n_ff_shared = qn__keys_i32(k, shared_key, fallback, 0, QN_MAX_WIDTH);
    }
}

static void place_experts(qn_keys *k, qn_hparams *hp, const qn_arch_moe *moe)
{
    int32_t lead = 0, step = 1;
    if (moe->when >= QN_EXPERTS_LEAD) {
        lead = qn__keys_i32(k, "leading_dense_block_count", 0, 0, QN_MAX_LAYERS);
    }
    if (moe->when == QN_EXPERTS_STEP) {
        step = qn__keys_need_i32(k, "interleave_moe_layer_step", 1, QN_MAX_LAYERS);
    }
    bool any = hp->n_expert > 0 && moe->when != QN_EXPERTS_NEVER;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        if (!any || il < lead || (il + 1) % step != 0) {
            hp->layer[il].n_used = 0;
        } else if (hp->layer[il].n_used != hp->moe.n_used) {
            qn__keys_fail(k, QN_ERR_UNSUPPORTED, "expert_used_count",
                          "differs from layer to layer");
        }
    }
    if (!any && moe->when >= QN_EXPERTS_ALL) {
        qn__keys_fail(k, QN_ERR_FORMAT, "expert_count", "missing");
    }
}

static bool is_above_0(float x)
{
    return isfinite(x) && x > 0.0f;
}

/* Checks what all readers together made of the rope kinds. */
static void finish_rope(qn_keys *k, qn_hparams *hp)
{
    for (int32_t i = 0; i < hp->n_rope; i++) {
        qn_rope_kind *kind = &hp->rope[i];
        qn_rope_params *p = &kind->params;
        p->attn_factor = qn__rope_magnitude(kind, p->freq_scale);
        if (!is_above_0(p->freq_base)) {
            qn__keys_fail(k, QN_ERR_FORMAT, i == 0 ? "rope.freq_base" : "rope.freq_base_swa",
                          "must be above 0");
        }
        if (!is_above_0(p->freq_scale) || !isfinite(p->attn_factor) || !is_above_0(p->beta_fast) ||
            !is_above_0(p->beta_slow)) {
            qn__keys_fail(k, QN_ERR_FORMAT, "rope.scaling.factor",
                          "the numbers of rope.scaling are out of range");
        }
    }
}

/* Numbers the KV layers. Layers that do not own one were given the number of the owner's layer,
 * whose heads must be like their own. */
static void place_kv(qn_keys *k, qn_hparams *hp)
{
    int32_t n = 0;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        qn_layer_params *lp = &hp->layer[il];
        if (lp->owns_kv) {
            lp->kv = n++;
            continue;
        }
        const qn_layer_params *owner = &hp->layer[lp->kv];
        if (owner->n_head_kv != lp->n_head_kv || owner->d_k != lp->d_k || owner->d_v != lp->d_v) {
            qn__keys_fail(k, QN_ERR_FORMAT, "attention.head_count_kv",
                          "layer %d reads the keys of layer %d, but has other heads", (int)il,
                          (int)lp->kv);
        }
        lp->kv = owner->kv;
    }
}

static void check_layers(qn_keys *k, const qn_hparams *hp, const qn_arch *arch)
{
    for (int32_t il = 0; il < hp->n_layer; il++) {
        const qn_layer_params *lp = &hp->layer[il];
        if (lp->n_head < 1 || lp->n_head_kv < 1 || lp->n_head % lp->n_head_kv != 0) {
            qn__keys_fail(k, QN_ERR_FORMAT, "attention.head_count",
                          "%d query heads over %d key heads in layer %d", (int)lp->n_head,
                          (int)lp->n_head_kv, (int)il);
        }
        if (lp->d_k < 1 || lp->d_v < 1 || (int64_t)lp->d_k * lp->n_head > QN_MAX_WIDTH ||
            (int64_t)lp->d_v * lp->n_head > QN_MAX_WIDTH) {
            qn__keys_fail(k, QN_ERR_FORMAT, "attention.key_length",
                          "heads of %d and %d values in layer %d", (int)lp->d_k, (int)lp->d_v,
                          (int)il);
        }
        if (lp->n_used == 0 && lp->n_ff < 1 && arch->ffn != QN_FFN_NONE) {
            qn__keys_fail(k, QN_ERR_FORMAT, "feed_forward_length", "missing");
        }
        if (lp->rope < 0) {
            continue;
        }
        int32_t n_rot = hp->rope[lp->rope].params.n_rot;
        if (n_rot < 2 || n_rot % 2 != 0 || n_rot > lp->d_k) {
            qn__keys_fail(k, QN_ERR_FORMAT, "rope.dimension_count",
                          "%d rotated values of heads of %d", (int)n_rot, (int)lp->d_k);
        }
        if (n_rot != lp->d_k && (arch->flags & QN_ARCH_ROT_FULL)) {
            qn__keys_fail(k, QN_ERR_FORMAT, "rope.dimension_count",
                          "is %d, but this architecture rotates all %d values of a head",
                          (int)n_rot, (int)lp->d_k);
        }
    }
}

qn_status qn__hparams_read(qn_hparams *hp, const qn_gguf *gguf, const qn_arch *arch,
                           int32_t n_vocab, qn_error *err)
{
    memset(hp, 0, sizeof(*hp));
    qn_keys keys = {.gguf = gguf, .prefix = arch->name};
    qn_keys *k = &keys;
    read_sizes(k, hp, n_vocab);
    if (k->status != QN_OK) {
        goto done;
    }
    read_layers(k, hp, arch);
    bool rms = arch->norm <= QN_ARCH_RMS_BIAS;
    hp->norm_eps = arch->flags & QN_ARCH_NO_EPS ? 0.0f
                   : rms ? qn__keys_need_f32(k, "attention.layer_norm_rms_epsilon")
                         : qn__keys_need_f32(k, "attention.layer_norm_epsilon");
    if (hp->norm_eps < 0.0f) {
        qn__keys_fail(k, QN_ERR_FORMAT, "attention.layer_norm_rms_epsilon", "is negative");
    }
    hp->causal = qn__keys_bool(k, "attention.causal", true) && !(arch->flags & QN_ARCH_NOT_CAUSAL);
    int32_t pooling = qn__keys_i32(k, "pooling_type", 0, -1, QN_POOLING_RANK);
    hp->pooling = pooling < 0 ? QN_POOLING_NONE : (qn_pooling)pooling;
    hp->parallel = arch->block != QN_BLOCK_SEQUENTIAL;
    read_rope(k, hp, arch);
    read_experts(k, hp, &arch->moe);
    place_experts(k, hp, &arch->moe);
    if (hp->n_expert > 0 && arch->moe.when != QN_EXPERTS_NEVER) {
        read_expert_sizes(k, hp, &arch->moe);
    }
    if (arch->keys) {
        arch->keys(k, hp);
    }
    finish_rope(k, hp);
    check_layers(k, hp, arch);
    place_kv(k, hp);
done:
    if (k->status != QN_OK && err) {
        *err = k->error;
    }
    return k->status;
}

/* Growth of the magnitude with the stretch f of the context, YaRN's mscale. */
static float yarn_growth(float f, float multiplier)
{
    return f <= 1.0f ? 1.0f : 0.1f * multiplier * (float)qn__log(f) + 1.0f;
}

float qn__rope_magnitude(const qn_rope_kind *kind, float freq_scale)
{
    float m = 1.0f;
    if (kind->params.ext_factor != 0.0f) {
        float f = 1.0f / freq_scale;
        m = yarn_growth(f, 1.0f);
        if (kind->log_multiplier != 0.0f) {
            m /= yarn_growth(f, kind->log_multiplier);
        }
        m /= 1.0f + 0.1f * (float)qn__log(f);
    }
    return m * kind->magnitude;
}

void qn__hparams_windows(qn_keys *k, qn_hparams *hp, qn_window kind, int32_t size, int32_t period,
                         bool first)
{
    if (size <= 0) {
        return;
    }
    const char *key = "attention.sliding_window_pattern";
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    int32_t pattern[MAX_PATTERN] = {0};
    if (pair && pair->type == QN_GGUF_ARR) {
        if (qn__keys_i32_array(k, key, MAX_PATTERN, pattern) > MAX_PATTERN) {
            qn__keys_fail(k, QN_ERR_LIMIT, key, "more than %d values", MAX_PATTERN);
        }
    } else {
        period = qn__keys_i32(k, key, period, 0, MAX_PATTERN);
        for (int32_t il = 0; il < hp->n_layer; il++) {
            int32_t place = period > 0 ? il % period : 0;
            pattern[il] = period == 0 || (first ? place != 0 : place < period - 1);
        }
    }
    hp->window = kind;
    hp->window_size = size;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        hp->layer[il].has_window = pattern[il] != 0;
    }
}

void qn__hparams_window_base(qn_keys *k, qn_hparams *hp, float base, bool own_scale)
{
    if (hp->window == QN_WINDOW_NONE || hp->n_rope != 1) {
        return;
    }
    qn_rope_kind *own = &hp->rope[1];
    *own = hp->rope[0];
    own->params.freq_base = qn__keys_f32(k, "rope.freq_base_swa", base);
    own->params.freq_scale = own_scale ? 1.0f : file_scale(k);
    hp->n_rope = 2;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].has_window) {
            hp->layer[il].rope = 1;
        }
    }
}

void qn__hparams_no_rope_in_full(qn_hparams *hp)
{
    for (int32_t il = 0; il < hp->n_layer; il++) {
        if (!hp->layer[il].has_window) {
            hp->layer[il].rope = -1;
        }
    }
}

static const char *shift_obstacle(const qn_hparams *hp, const qn_arch *arch)
{
    if (arch->positions == QN_NEED_REQ) {
        return "the model has learned positions";
    }
    if (hp->q_temp_scale != 0.0f) {
        return "the model's queries depend on their position";
    }
    if (arch->flags & QN_ARCH_QK_AFTER_ROPE) {
        return "the model's keys are scaled after they are rotated";
    }
    if (hp->n_rope > 0 && hp->rope[0].params.mode >= QN_ROPE_MROPE) {
        return "the model's tokens have more than one position";
    }
    return NULL;
}

void qn__hparams_kv_layout(const qn_hparams *hp, const qn_arch *arch, qn_kv_layout *kv)
{
    memset(kv, 0, sizeof(*kv));
    int32_t group_of[2] = {-1, -1}; /* full, window */
    for (int32_t il = 0; il < hp->n_layer; il++) {
        const qn_layer_params *lp = &hp->layer[il];
        if (!lp->owns_kv) {
            continue;
        }
        int32_t *group = &group_of[lp->has_window];
        if (*group < 0) {
            *group = kv->n_groups;
            kv->groups[kv->n_groups++] = (qn_kv_group){
                .window = lp->has_window ? hp->window : QN_WINDOW_NONE,
                .window_size = lp->has_window ? hp->window_size : 0,
            };
        }
        kv->layers[kv->n_layers++] = (qn_kv_layer){
            .group = *group,
            .n_head_kv = lp->n_head_kv,
            .d_k = lp->d_k,
            .d_v = lp->d_v,
            .rope = lp->rope,
            .rot_first = hp->mla.kv_rank > 0 && lp->rope >= 0
                             ? lp->d_k - hp->rope[lp->rope].params.n_rot
                             : 0,
        };
    }
    kv->why_fixed = shift_obstacle(hp, arch);
    kv->can_shift = kv->why_fixed == NULL;
}
