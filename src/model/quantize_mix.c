/*
 * quantize_mix.c: see quantize_mix.h. The exceptions of the mixes are one table: a row says for
 * which categories of tensors, in which mixes and under which conditions a format is taken; the
 * first row that matches decides, and where none does the mix's default format stays.
 */
#include "model/quantize_mix.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

/* ---- Mixes ----------------------------------------------------------------------------------- */

static const struct {
    int mix;
    const char *name;
    qn_type type;
} mixes[] = {
    {QN_MIX_F32, "F32", QN_TYPE_F32},
    {QN_MIX_F16, "F16", QN_TYPE_F16},
    {QN_MIX_BF16, "BF16", QN_TYPE_BF16},
    {QN_MIX_Q4_0, "Q4_0", QN_TYPE_Q4_0},
    {QN_MIX_Q4_1, "Q4_1", QN_TYPE_Q4_1},
    {QN_MIX_Q5_0, "Q5_0", QN_TYPE_Q5_0},
    {QN_MIX_Q5_1, "Q5_1", QN_TYPE_Q5_1},
    {QN_MIX_Q8_0, "Q8_0", QN_TYPE_Q8_0},
    {QN_MIX_Q2_K, "Q2_K", QN_TYPE_Q2_K},
    {QN_MIX_Q2_K_S, "Q2_K_S", QN_TYPE_Q2_K},
    {QN_MIX_Q3_K_S, "Q3_K_S", QN_TYPE_Q3_K},
    {QN_MIX_Q3_K_M, "Q3_K_M", QN_TYPE_Q3_K},
    {QN_MIX_Q3_K_M, "Q3_K", QN_TYPE_Q3_K}, /* aliases stand behind the name */
    {QN_MIX_Q3_K_L, "Q3_K_L", QN_TYPE_Q3_K},
    {QN_MIX_Q4_K_S, "Q4_K_S", QN_TYPE_Q4_K},
    {QN_MIX_Q4_K_M, "Q4_K_M", QN_TYPE_Q4_K},
    {QN_MIX_Q4_K_M, "Q4_K", QN_TYPE_Q4_K},
    {QN_MIX_Q5_K_S, "Q5_K_S", QN_TYPE_Q5_K},
    {QN_MIX_Q5_K_M, "Q5_K_M", QN_TYPE_Q5_K},
    {QN_MIX_Q5_K_M, "Q5_K", QN_TYPE_Q5_K},
    {QN_MIX_Q6_K, "Q6_K", QN_TYPE_Q6_K},
    {QN_MIX_IQ1_S, "IQ1_S", QN_TYPE_IQ1_S},
    {QN_MIX_IQ1_M, "IQ1_M", QN_TYPE_IQ1_M},
    {QN_MIX_IQ2_XXS, "IQ2_XXS", QN_TYPE_IQ2_XXS},
    {QN_MIX_IQ2_XS, "IQ2_XS", QN_TYPE_IQ2_XS},
    {QN_MIX_IQ2_S, "IQ2_S", QN_TYPE_IQ2_XS},
    {QN_MIX_IQ2_M, "IQ2_M", QN_TYPE_IQ2_S},
    {QN_MIX_IQ3_XXS, "IQ3_XXS", QN_TYPE_IQ3_XXS},
    {QN_MIX_IQ3_XS, "IQ3_XS", QN_TYPE_IQ3_S},
    {QN_MIX_IQ3_S, "IQ3_S", QN_TYPE_IQ3_S},
    {QN_MIX_IQ3_M, "IQ3_M", QN_TYPE_IQ3_S},
    {QN_MIX_IQ4_NL, "IQ4_NL", QN_TYPE_IQ4_NL},
    {QN_MIX_IQ4_XS, "IQ4_XS", QN_TYPE_IQ4_XS},
    {QN_MIX_TQ1_0, "TQ1_0", QN_TYPE_TQ1_0},
    {QN_MIX_TQ2_0, "TQ2_0", QN_TYPE_TQ2_0},
    {QN_MIX_MXFP4_MOE, "MXFP4_MOE", QN_TYPE_MXFP4},
    {QN_MIX_Q1_0, "Q1_0", QN_TYPE_Q1_0},
    {QN_MIX_Q2_0, "Q2_0", QN_TYPE_Q2_0},
    {QN_MIX_COPY, "COPY", QN_TYPE_COUNT},
};
enum { MIX_ROWS = sizeof mixes / sizeof mixes[0] };

const char *qn_mix_name(int mix)
{
    for (int i = 0; i < MIX_ROWS; i++) {
        if (mixes[i].mix == mix) {
            return mixes[i].name;
        }
    }
    return NULL;
}

bool qn_mix_from_name(const char *text, qn_mix *out)
{
    char *end;
    long number = strtol(text, &end, 10);
    bool is_number = end != text && *end == '\0' && text[0] >= '0' && text[0] <= '9';
    for (int i = 0; i < MIX_ROWS; i++) {
        if (is_number ? mixes[i].mix == number : strcasecmp(mixes[i].name, text) == 0) {
            *out = (qn_mix)mixes[i].mix;
            return true;
        }
    }
    return false;
}

bool qn__mix_default_type(int mix, qn_type *out)
{
    for (int i = 0; i < MIX_ROWS; i++) {
        if (mixes[i].mix == mix && mixes[i].type != QN_TYPE_COUNT) {
            *out = mixes[i].type;
            return true;
        }
    }
    return false;
}

/* ---- Names ----------------------------------------------------------------------------------- */

bool qn__mix_is_output(const char *name)
{
    return strcmp(name, "output.weight") == 0;
}

bool qn__mix_is_embedding(const char *name)
{
    return strcmp(name, "token_embd.weight") == 0 ||
           strcmp(name, "per_layer_token_embd.weight") == 0;
}

/* Tensors that are small, or delicate, or not multiplied with. */
static const char *const kept_names[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

bool qn__mix_may_convert(const char *name, int n_dims, const int64_t *ne)
{
    while (n_dims > 0 && ne[n_dims - 1] == 1) {
        n_dims--;
    }
    size_t length = strlen(name);
    if (n_dims < 2 || length < 6 || strcmp(name + length - 6, "weight") != 0 ||
        strcmp(name, "position_embd.weight") == 0 || strcmp(name, "token_types.weight") == 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof kept_names / sizeof kept_names[0]; i++) {
        if (strstr(name, kept_names[i])) {
            return false;
        }
    }
    return true;
}

int64_t qn__mix_layer(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0) {
        return -1;
    }
    const char *digit = name + 4;
    int64_t layer = 0;
    while (*digit >= '0' && *digit <= '9' && layer < INT32_MAX) {
        layer = layer * 10 + (*digit++ - '0');
    }
    return digit > name + 4 && *digit == '.' ? layer : -1;
}

int qn__mix_compare(const char *a, const char *b)
{
    int64_t layer_a = qn__mix_layer(a);
    int64_t layer_b = qn__mix_layer(b);
    if (layer_a != layer_b) {
        return layer_a < layer_b ? -1 : 1;
    }
    return strcmp(a, b);
}

/* Categories, as a set of bits so that a row of the rules can name several. */
enum {
    OUT = 1 << 0,
    EMB = 1 << 1,
    QKV = 1 << 2,
    KVB = 1 << 3,
    V = 1 << 4,
    K = 1 << 5,
    Q = 1 << 6,
    O = 1 << 7,
    UP = 1 << 8,
    GATE = 1 << 9,
    DOWN = 1 << 10,
    OTHER = 1 << 11,
    V_LIKE = QKV | KVB | V,
    ANY = (1 << 12) - 1
};

static unsigned category(const char *name)
{
    static const struct {
        const char *part;
        unsigned category;
    } parts[] = {
        {"attn_qkv.weight", QKV}, {"attn_kv_b.weight", KVB}, {"attn_v.weight", V},
        {"attn_k.weight", K},     {"attn_q.weight", Q},      {"attn_output.weight", O},
        {"ffn_up", UP},           {"ffn_gate", GATE},        {"ffn_down", DOWN},
    };
    if (qn__mix_is_output(name)) {
        return OUT;
    }
    if (qn__mix_is_embedding(name)) {
        return EMB;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(name, parts[i].part)) {
            return parts[i].category;
        }
    }
    return OTHER;
}

bool qn__mix_is_v_like(const char *name)
{
    return (category(name) & V_LIKE) != 0;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* Conditions: bits that are all true for a row to match. i is the index of the tensor among its
 * kind, n the number of layers (of V-like tensors for those). */
enum {
    GQA4 = 1 << 0,    /* at least four heads share a KV head */
    MOE4 = 1 << 1,    /* at least four experts */
    MOE8 = 1 << 2,    /* exactly eight experts */
    FIRST2 = 1 << 3,  /* i < 2 */
    FIRST4 = 1 << 4,  /* i < 4 */
    EARLY16 = 1 << 5, /* i < n / 16 */
    EARLY8 = 1 << 6,  /* i < n / 8 */
    MIDDLE = 1 << 7,  /* n / 8 <= i < 7 n / 8 */
    MORE = 1 << 8,    /* first and last eighth, and every third between */
    FALCON = 1 << 9,
    NO_FALCON = 1 << 10,
    IMPORTANCE = 1 << 11,
    NO_IMPORTANCE = 1 << 12,
    MISFIT = 1 << 13, /* the row length is no multiple of the default format's block */
    STACK = 1 << 14,  /* a stack of matrices (experts) */
    NO_BAILING3 = 1 << 15
};

#define M(name) (UINT64_C(1) << QN_MIX_##name)
#define IQ1_MIX (M(IQ1_S) | M(IQ1_M))
#define IQ2_TOP (M(IQ2_S) | M(IQ2_M))
#define LOW_MIX (IQ1_MIX | IQ2_TOP | M(IQ2_XXS) | M(IQ2_XS))
#define ALL_MIX UINT64_MAX
#define KEEP    QN_TYPE_COUNT /* the default format */

static const struct rule {
    unsigned categories;
    uint64_t in_mixes;
    unsigned conditions;
    qn_type type;
} rules[] = {
    /* Output matrix (or the embedding that serves as one). */
    {OUT, M(MXFP4_MOE), 0, QN_TYPE_Q8_0},
    {OUT, ALL_MIX, FALCON, QN_TYPE_Q8_0},
    {OUT, ALL_MIX, MISFIT, QN_TYPE_Q8_0},
    {OUT, LOW_MIX | M(IQ3_XXS), 0, QN_TYPE_Q5_K},
    {OUT, M(Q8_0), 0, KEEP},
    {OUT, ALL_MIX, 0, QN_TYPE_Q6_K},

    {ANY, M(MXFP4_MOE), STACK | NO_BAILING3, QN_TYPE_MXFP4},
    {UP | GATE | DOWN, M(MXFP4_MOE), STACK, QN_TYPE_MXFP4},
    {ANY, M(MXFP4_MOE), 0, QN_TYPE_Q8_0},

    /* Token embedding with an output matrix beside it. */
    {EMB, IQ1_MIX | M(IQ2_XXS) | M(IQ2_XS), 0, QN_TYPE_Q2_K},
    {EMB, IQ2_TOP | M(IQ3_XXS), 0, QN_TYPE_IQ3_S},
    {EMB, M(TQ1_0) | M(TQ2_0) | M(Q2_0), 0, QN_TYPE_Q4_K},
    {EMB, ALL_MIX, 0, KEEP},

    /* The mixes of about two bits. */
    {V_LIKE, LOW_MIX, GQA4, QN_TYPE_Q4_K},
    {V_LIKE, LOW_MIX, MOE4, QN_TYPE_Q4_K},
    {V_LIKE, IQ2_TOP, 0, QN_TYPE_IQ3_S},
    {V_LIKE, LOW_MIX, 0, QN_TYPE_Q2_K},
    {K, LOW_MIX, MOE8, QN_TYPE_Q4_K},
    {DOWN, IQ2_TOP, EARLY8, QN_TYPE_IQ3_S},
    {DOWN, LOW_MIX, EARLY8, QN_TYPE_Q2_K},
    {O, LOW_MIX, MOE8, QN_TYPE_Q5_K},
    {O, IQ1_MIX, 0, QN_TYPE_IQ2_XXS},
    {O, IQ2_TOP, 0, QN_TYPE_IQ3_S},
    {ANY, LOW_MIX, 0, KEEP},

    {V_LIKE, M(Q2_K) | M(Q2_K_S) | M(IQ3_XXS) | M(IQ3_XS) | M(IQ3_S), GQA4, QN_TYPE_Q4_K},
    {V_LIKE, M(Q2_K), 0, QN_TYPE_Q3_K},
    {V_LIKE, M(IQ3_XXS), IMPORTANCE, QN_TYPE_IQ3_XXS},
    {V_LIKE, M(IQ3_XXS), 0, QN_TYPE_IQ3_S},
    {V_LIKE, M(IQ3_M), 0, QN_TYPE_Q4_K},
    {V_LIKE, M(Q3_K_M), FIRST2, QN_TYPE_Q5_K},
    {V_LIKE, M(Q3_K_M), 0, QN_TYPE_Q4_K},
    {V_LIKE, M(Q3_K_L), 0, QN_TYPE_Q5_K},
    {V_LIKE, M(IQ4_NL) | M(IQ4_XS), GQA4, QN_TYPE_Q5_K},
    {V_LIKE, M(Q4_K_M) | M(Q5_K_M), MORE, QN_TYPE_Q6_K},
    {V_LIKE, M(Q4_K_S), FIRST4, QN_TYPE_Q5_K},

    {K, ALL_MIX, MOE8, QN_TYPE_Q8_0},
    {K | Q, M(IQ3_XS), 0, QN_TYPE_IQ3_XXS},
    {K | Q, M(IQ3_XXS), 0, QN_TYPE_IQ2_S},

    {DOWN, M(Q2_K), 0, QN_TYPE_Q3_K},
    {DOWN, M(Q2_K_S), EARLY8, QN_TYPE_Q4_K},
    {DOWN, M(IQ3_XXS), NO_IMPORTANCE | EARLY8, QN_TYPE_Q4_K},
    {DOWN, M(IQ3_XXS), NO_IMPORTANCE, QN_TYPE_Q3_K},
    {DOWN, M(Q3_K_M), EARLY16, QN_TYPE_Q5_K},
    {DOWN, M(Q3_K_M), NO_FALCON, QN_TYPE_Q4_K},
    {DOWN, M(Q3_K_M), MORE, QN_TYPE_Q4_K},
    {DOWN, M(IQ3_M), EARLY8, QN_TYPE_Q4_K},
    {DOWN, M(IQ3_M), MOE8 | MORE, QN_TYPE_Q4_K},
    {DOWN, M(Q3_K_L), FALCON, QN_TYPE_Q4_K},
    {DOWN, M(Q3_K_L), 0, QN_TYPE_Q5_K},
    {DOWN, M(Q4_K_M), FALCON | EARLY16, QN_TYPE_Q6_K},
    {DOWN, M(Q4_K_M), FALCON | MORE, QN_TYPE_Q5_K},
    {DOWN, M(Q4_K_M), FALCON, QN_TYPE_Q4_K},
    {DOWN, M(Q4_K_M) | M(Q5_K_M), MORE, QN_TYPE_Q6_K},
    {DOWN, M(IQ4_NL) | M(IQ4_XS), NO_IMPORTANCE | EARLY8, QN_TYPE_Q5_K},
    {DOWN, M(Q4_K_S), NO_FALCON | EARLY8, QN_TYPE_Q5_K},
    {DOWN, M(Q4_0), IMPORTANCE | EARLY8, QN_TYPE_Q4_1},
    {DOWN, M(Q5_0), IMPORTANCE | EARLY8, QN_TYPE_Q5_1},

    {O, M(Q3_K_L), FALCON, QN_TYPE_Q4_K},
    {O, ALL_MIX, FALCON, KEEP},
    {O,
     M(Q2_K) | M(IQ3_XS) | M(IQ3_XXS) | M(Q3_K_S) | M(Q3_K_M) | M(IQ4_NL) | M(Q4_K_S) | M(Q4_K_M) |
         M(IQ3_S) | M(IQ3_M) | M(IQ4_XS),
     MOE8, QN_TYPE_Q5_K},
    {O, ALL_MIX, MOE8, KEEP},
    {O, M(Q2_K), 0, QN_TYPE_Q3_K},
    {O, M(IQ3_XXS), 0, QN_TYPE_IQ3_S},
    {O, M(Q3_K_M) | M(IQ3_M), 0, QN_TYPE_Q4_K},
    {O, M(Q3_K_L), 0, QN_TYPE_Q5_K},

    {GATE | UP, M(IQ3_XS), MIDDLE, QN_TYPE_IQ3_XXS},
};

/* Conditions that depend on a position among n tensors of a kind. */
static unsigned position_conditions(int64_t i, int64_t n)
{
    bool early = i < n / 8;
    bool late = i >= 7 * n / 8;
    unsigned c = 0;
    c |= i < 2 ? FIRST2 : 0;
    c |= i < 4 ? FIRST4 : 0;
    c |= i < n / 16 ? EARLY16 : 0;
    c |= early ? EARLY8 : 0;
    c |= !early && !late ? MIDDLE : 0;
    c |= early || late || (i - n / 8) % 3 == 2 ? MORE : 0;
    return c;
}

static unsigned model_conditions(const qn_mix_model *model)
{
    bool falcon = strcmp(model->architecture, "falcon") == 0;
    unsigned c = 0;
    c |= model->kv_heads > 0 && model->heads / model->kv_heads >= 4 ? GQA4 : 0;
    c |= model->experts >= 4 ? MOE4 : 0;
    c |= model->experts == 8 ? MOE8 : 0;
    c |= falcon ? FALCON : NO_FALCON;
    c |= model->importance ? IMPORTANCE : NO_IMPORTANCE;
    c |= strcmp(model->architecture, "bailingmoe3") != 0 ? NO_BAILING3 : 0;
    return c;
}

/* Index of the tensor among its kind and the length of that sequence; counts it. */
static qn_status tensor_position(const qn_mix_model *model, qn_mix_state *state, const char *name,
                                 unsigned kind, int64_t *i, int64_t *n, qn_error *err)
{
    *n = kind & V_LIKE ? model->v_like : model->layers;
    int64_t *counter = kind & V_LIKE  ? &state->v_like
                       : kind == DOWN ? &state->down
                       : kind == GATE ? &state->gate
                       : kind == UP   ? &state->up
                                      : NULL;
    *i = counter ? (*counter)++ : 0;
    if (!(kind & (DOWN | GATE | UP)) || model->experts <= 1) {
        return QN_OK;
    }
    /* Several matrices a layer: the name tells the layer, the counter would not. */
    *i = qn__mix_layer(name);
    if (*i < 0 || *i >= model->layers) {
        return qn__error(err, QN_ERR_FORMAT,
                         "tensor %s: no layer number below the layer count %lld in its name", name,
                         (long long)model->layers);
    }
    return QN_OK;
}

qn_status qn__mix_choose(int mix, const qn_mix_model *model, qn_mix_state *state, const char *name,
                         const int64_t *ne, qn_type *out, qn_error *err)
{
    qn_type type;
    if (!qn__mix_default_type(mix, &type)) {
        return qn__error(err, QN_ERR_ARGUMENT, "%d is no mix that chooses formats", mix);
    }
    unsigned kind = category(name);
    if (kind == EMB && model->tied) {
        kind = OUT;
    }
    int64_t i;
    int64_t n;
    qn_status status = tensor_position(model, state, name, kind, &i, &n, err);
    if (status != QN_OK) {
        return status;
    }
    unsigned conditions = model_conditions(model) | position_conditions(i, n);
    conditions |= ne[0] % qn_type_get_info(type)->block_values != 0 ? MISFIT : 0;
    conditions |= ne[2] > 1 ? STACK : 0;
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        if ((rules[r].categories & kind) && (rules[r].in_mixes >> mix & 1) &&
            (rules[r].conditions & ~conditions) == 0) {
            type = rules[r].type == KEEP ? type : rules[r].type;
            break;
        }
    }
    /* Few V-like tensors weigh little in a large model or among eight experts: they may be finer.
     */
    if ((kind & V_LIKE) && !((LOW_MIX | M(MXFP4_MOE)) >> mix & 1)) {
        bool large = strcmp(model->architecture, "llama") == 0 && model->layers == 80 &&
                     model->heads != model->kv_heads;
        if (large && (type == QN_TYPE_Q3_K || type == QN_TYPE_Q4_K)) {
            type = QN_TYPE_Q5_K;
        }
        type = model->experts == 8 ? QN_TYPE_Q8_0 : type;
    }
    *out = type;
    return QN_OK;
}

/* ---- Shapes and importance ------------------------------------------------------------------- */

qn_status qn__mix_fit_shape(const char *name, int64_t ne0, qn_type *type, bool *fell_back,
                            qn_error *err)
{
    static const struct {
        qn_type from, to;
    } replacements[] = {
        {QN_TYPE_IQ1_S, QN_TYPE_IQ4_NL},   {QN_TYPE_IQ1_M, QN_TYPE_IQ4_NL},
        {QN_TYPE_IQ2_XXS, QN_TYPE_IQ4_NL}, {QN_TYPE_IQ2_XS, QN_TYPE_IQ4_NL},
        {QN_TYPE_IQ2_S, QN_TYPE_IQ4_NL},   {QN_TYPE_IQ3_XXS, QN_TYPE_IQ4_NL},
        {QN_TYPE_IQ3_S, QN_TYPE_IQ4_NL},   {QN_TYPE_IQ4_XS, QN_TYPE_IQ4_NL},
        {QN_TYPE_Q2_K, QN_TYPE_Q4_0},      {QN_TYPE_Q3_K, QN_TYPE_Q4_0},
        {QN_TYPE_TQ1_0, QN_TYPE_Q4_0},     {QN_TYPE_TQ2_0, QN_TYPE_Q4_0},
        {QN_TYPE_Q2_0, QN_TYPE_Q4_0},      {QN_TYPE_Q4_K, QN_TYPE_Q5_0},
        {QN_TYPE_Q5_K, QN_TYPE_Q5_1},      {QN_TYPE_Q6_K, QN_TYPE_Q8_0},
    };
    const qn_type_info *info = qn_type_get_info(*type);
    *fell_back = false;
    if (ne0 % info->block_values == 0) {
        return QN_OK;
    }
    *fell_back = true;
    bool known = info->block_values <= 32;
    for (size_t i = 0; i < sizeof replacements / sizeof replacements[0]; i++) {
        if (replacements[i].from == *type) {
            *type = replacements[i].to;
            known = true;
            break;
        }
    }
    if (!known) {
        return qn__error(err, QN_ERR_FORMAT,
                         "tensor %s: rows of %lld values do not fit blocks of %s", name,
                         (long long)ne0, info->name);
    }
    if (ne0 % qn_type_get_info(*type)->block_values != 0) {
        *type = QN_TYPE_F16;
    }
    return QN_OK;
}

bool qn__mix_needs_importance(int mix, const char *name, qn_type type)
{
    if (category(name) & (OUT | EMB)) {
        return false;
    }
    switch (type) {
    case QN_TYPE_IQ1_S:
    case QN_TYPE_IQ1_M:
    case QN_TYPE_IQ2_XXS:
    case QN_TYPE_IQ2_XS:
    case QN_TYPE_IQ2_S:
    case QN_TYPE_IQ3_XXS:
        return true;
    case QN_TYPE_Q2_K:
        return mix == QN_MIX_Q2_K_S;
    default:
        return false;
    }
}
