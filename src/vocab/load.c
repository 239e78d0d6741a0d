/*
 * load.c: makes a vocabulary from the metadata of a model file. Later steps see what earlier ones
 * changed, so their order is part of the format: qn__vocab_load shows it.
 */
#include "vocab/internal.h"

#include "vocab/pretok.h"
#include <stdio.h>

#include "base/error.h"

#define KEY(name) "tokenizer.ggml." name

/* ---- Tokenizer models ------------------------------------------------------------------------ */

/* Flags that hold where the file says nothing. */
enum { PREFIX = 1, ESCAPE = 2, CLEAN = 4, BOS = 8, EOS = 16, SEP = 32 };

typedef struct model_row {
    const char *name;
    qn_vocab_kind kind;
    const qn_tokenizer *tokenizer;
    int32_t bos, eos, unk, sep, pad, mask; /* default ids */
    unsigned flags;
} model_row;

static const model_row models[] = {
    {"llama", QN_VOCAB_SPM, &qn__tokenizer_spm, 1, 2, 0, -1, -1, -1, PREFIX | ESCAPE | BOS},
    {"bert", QN_VOCAB_WPM, &qn__tokenizer_wpm, 101, -1, 100, 102, 0, 103,
     ESCAPE | CLEAN | BOS | SEP},
    {"gpt2", QN_VOCAB_BPE, &qn__tokenizer_bpe, 11, 11, -1, -1, -1, -1, 0},
    {"gemma4", QN_VOCAB_BPE, &qn__tokenizer_bpe, -1, -1, -1, -1, -1, -1, 0},
    {"hybriddna", QN_VOCAB_BPE, &qn__tokenizer_hybriddna, 11, 11, -1, -1, -1, -1, 0},
    {"whitespace", QN_VOCAB_BPE, &qn__tokenizer_whitespace, 11, 11, -1, -1, -1, -1, 0},
    {"t5", QN_VOCAB_UGM, &qn__tokenizer_ugm, -1, 1, 2, -1, 0, -1, ESCAPE | EOS},
    {"rwkv", QN_VOCAB_RWKV, &qn__tokenizer_rwkv, -1, -1, -1, -1, -1, -1, ESCAPE},
    {"plamo2", QN_VOCAB_PLAMO2, &qn__tokenizer_plamo2, 1, 2, 0, -1, 3, -1, ESCAPE},
    {"test", QN_VOCAB_TEST, &qn__tokenizer_test, -1, -1, -1, -1, -1, -1, ESCAPE},
    {"no_vocab", QN_VOCAB_NONE, NULL, -1, -1, -1, -1, -1, -1, 0},
    {"none", QN_VOCAB_NONE, NULL, -1, -1, -1, -1, -1, -1, 0},
};

static bool text_is(qn_gguf_text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

/* Model string to kind, default ids and flags. */
static qn_status read_model(qn_vocab *v, const qn_vocab_source *from, const model_row **out,
                            qn_error *err)
{
    qn_gguf_text name = {0};
    qn_status status = qn_gguf_get_str(from->gguf, KEY("model"), &name, err);
    if (status != QN_OK) {
        return status;
    }
    const model_row *row = NULL;
    for (size_t i = 0; !row && i < sizeof models / sizeof models[0]; i++) {
        row = text_is(name, models[i].name) ? &models[i] : NULL;
    }
    if (!row) {
        return qn__vocab_error(from, err, QN_ERR_UNSUPPORTED, KEY("model"),
                               "'%.*s' is no tokenizer model that quern knows",
                               (int)(name.size < 64 ? name.size : 64), name.data);
    }
    v->kind = row->kind;
    v->tokenizer = row->tokenizer;
    for (int i = 0; i < QN_ROLE_COUNT; i++) {
        v->roles[i] = -1;
    }
    v->roles[QN_ROLE_BOS] = row->bos;
    v->roles[QN_ROLE_EOS] = row->eos;
    v->roles[QN_ROLE_UNK] = row->unk;
    v->roles[QN_ROLE_SEP] = row->sep;
    v->roles[QN_ROLE_PAD] = row->pad;
    v->roles[QN_ROLE_MASK] = row->mask;
    v->add_space_prefix = (row->flags & PREFIX) != 0;
    v->escape_whitespace = (row->flags & ESCAPE) != 0;
    v->clean_spaces = (row->flags & CLEAN) != 0;
    v->add_bos = (row->flags & BOS) != 0;
    v->add_eos = (row->flags & EOS) != 0;
    v->add_sep = (row->flags & SEP) != 0;
    v->lowercase = true;
    *out = row;
    return QN_OK;
}

/* The name of the pre-tokenizer, and what it sets. */
static qn_status read_pre(qn_vocab *v, const qn_vocab_source *from, const model_row *model,
                          qn_error *err)
{
    qn_gguf_text name = {0};
    qn_status status = qn_gguf_opt_str(from->gguf, KEY("pre"), &name, err);
    if (status != QN_OK || v->kind != QN_VOCAB_BPE) {
        return status;
    }
    if (strcmp(model->name, "gemma4") == 0) {
        name = (qn_gguf_text){"gemma4", 6};
    } else if (name.size == 0) {
        qn__vocab_warn(from, KEY("pre") " is missing; tokens may differ from those of the model");
        name = (qn_gguf_text){"default", 7};
    }
    v->pre = qn__pre_find(name.data, name.size);
    if (!v->pre) {
        return qn__vocab_error(from, err, QN_ERR_UNSUPPORTED, KEY("pre"),
                               "'%.*s' is no pre-tokenizer that quern knows",
                               (int)(name.size < 64 ? name.size : 64), name.data);
    }
    unsigned flags = v->pre->flags;
    v->ignore_merges = (flags & QN_PRE_IGNORE_MERGES) != 0;
    v->clean_spaces = (flags & QN_PRE_CLEAN) != 0;
    v->add_bos = (flags & QN_PRE_BOS) != 0;
    v->add_sep = (flags & QN_PRE_SEP) != 0;
    v->escape_whitespace = (flags & QN_PRE_ESCAPE) != 0;
    v->byte_alphabet = (flags & (QN_PRE_ESCAPE | QN_PRE_RAW)) == 0;
    v->newline_rule = (flags & QN_PRE_NEWLINES) != 0;
    v->lowercase = (flags & QN_PRE_KEEP_CASE) == 0;
    if (flags & QN_PRE_NO_BOS_ID) {
        v->roles[QN_ROLE_BOS] = -1;
    }
    return QN_OK;
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static uint32_t attributes_of(int32_t file_type)
{
    static const uint32_t table[] = {0,
                                     QN_TOKEN_NORMAL,
                                     QN_TOKEN_UNKNOWN,
                                     QN_TOKEN_CONTROL,
                                     QN_TOKEN_USER_DEFINED,
                                     QN_TOKEN_UNUSED,
                                     QN_TOKEN_BYTE};
    return file_type >= 0 && file_type < 7 ? table[file_type] : 0;
}

/* Copies the texts; v->tokens is there. A text ends at a NUL; an empty one gets a name. */
static qn_status read_texts(qn_vocab *v, const qn_vocab_source *from, const qn_gguf_pair *pair,
                            qn_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < pair->count; i++) {
        total += qn_gguf_array_text(from->gguf, pair, i).size + 1;
        if (total > QN_VOCAB_MAX_TEXT_BYTES) {
            return qn__vocab_error(from, err, QN_ERR_LIMIT, KEY("tokens"),
                                   "the texts are too long");
        }
    }
    qn_buf texts = {0};
    qn__buf_reserve(&texts, total);
    for (size_t i = 0; i < pair->count; i++) {
        qn_gguf_text text = qn_gguf_array_text(from->gguf, pair, i);
        const char *nul = text.size > 0 ? memchr(text.data, 0, text.size) : NULL;
        size_t size = nul ? (size_t)(nul - text.data) : text.size;
        v->tokens[i].text = (uint32_t)texts.size;
        if (size == 0) {
            qn__vocab_warn(from, "token %zu has no text", i);
            qn__buf_printf(&texts, "[EMPTY_%zu]", i);
        } else {
            qn__buf_add(&texts, text.data, size);
        }
        v->tokens[i].text_size = (uint32_t)texts.size - v->tokens[i].text;
        qn__buf_add_byte(&texts, 0);
        if (v->tokens[i].text_size > v->longest) {
            v->longest = v->tokens[i].text_size;
        }
    }
    v->texts = (char *)texts.data;
    if (texts.failed || texts.size > UINT32_MAX) {
        return qn__error_memory(err, "the tokens");
    }
    return QN_OK;
}

static qn_status read_scores(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    const qn_gguf_pair *pair = qn_gguf_find(from->gguf, KEY("scores"));
    if (!pair) {
        return QN_OK;
    }
    size_t n = (size_t)v->n_tokens;
    bool integers = pair->type == QN_GGUF_ARR && pair->element_type == QN_GGUF_I32;
    size_t count = 0;
    qn_status status = qn_gguf_get_array(from->gguf, KEY("scores"),
                                         integers ? QN_GGUF_I32 : QN_GGUF_F32, &count, err);
    if (status == QN_OK && count < n) {
        status = qn__vocab_error(from, err, QN_ERR_FORMAT, KEY("scores"),
                                 "%zu entries for %zu tokens", count, n);
    }
    union {
        float *f32;
        int32_t *i32;
        void *block;
    } scores = {.block = status == QN_OK ? qn__calloc(n, 4) : NULL};
    if (status == QN_OK && !scores.block) {
        status = qn__error_memory(err, "the scores");
    }
    if (status == QN_OK) {
        status = integers ? qn_gguf_get_i32s(from->gguf, KEY("scores"), 0, n, scores.i32, err)
                          : qn_gguf_get_f32s(from->gguf, KEY("scores"), 0, n, scores.f32, err);
    }
    for (size_t i = 0; status == QN_OK && i < n; i++) {
        v->tokens[i].score = integers ? (float)scores.i32[i] : scores.f32[i];
    }
    free(scores.block);
    return status;
}

static qn_status read_types(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    size_t n = (size_t)v->n_tokens;
    if (!qn_gguf_find(from->gguf, KEY("token_type"))) {
        for (size_t i = 0; i < n; i++) {
            v->tokens[i].attributes = QN_TOKEN_NORMAL;
        }
        return QN_OK;
    }
    size_t count = 0;
    qn_status status = qn_gguf_get_array(from->gguf, KEY("token_type"), QN_GGUF_I32, &count, err);
    if (status != QN_OK) {
        return status;
    }
    if (count < n) {
        return qn__vocab_error(from, err, QN_ERR_FORMAT, KEY("token_type"),
                               "%zu entries for %zu tokens", count, n);
    }
    int32_t *types = qn__calloc(n, sizeof *types);
    status = types ? qn_gguf_get_i32s(from->gguf, KEY("token_type"), 0, n, types, err)
                   : qn__error_memory(err, "the token types");
    for (size_t i = 0; status == QN_OK && i < n; i++) {
        v->tokens[i].attributes = attributes_of(types[i]);
    }
    free(types);
    return status;
}

static qn_status make_map(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    /* Room for merges too: most of their parts and results are tokens. */
    if (!qn__text_map_init(&v->map, (size_t)v->n_tokens)) {
        return qn__error_memory(err, "the tokens");
    }
    for (int32_t id = 0; id < v->n_tokens; id++) {
        const char *text = qn__vocab_text_of(v, id);
        int32_t index = qn__text_map_add(&v->map, text, v->tokens[id].text_size);
        if (index < 0) {
            return qn__error_memory(err, "the tokens");
        }
        if (index != id) {
            return qn__vocab_error(from, err, QN_ERR_FORMAT, KEY("tokens"),
                                   "tokens %d and %d have the same text '%.64s'", (int)index,
                                   (int)id, text);
        }
    }
    return QN_OK;
}

static qn_status read_tokens(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    size_t count = 0;
    qn_status status = qn_gguf_get_array(from->gguf, KEY("tokens"), QN_GGUF_STR, &count, err);
    if (status != QN_OK) {
        return status;
    }
    if (count == 0) {
        return qn__vocab_error(from, err, QN_ERR_FORMAT, KEY("tokens"), "there are no tokens");
    }
    if (count > QN_VOCAB_MAX_TOKENS) {
        return qn__vocab_error(from, err, QN_ERR_LIMIT, KEY("tokens"), "%zu tokens are too many",
                               count);
    }
    v->n_tokens = (int32_t)count;
    v->tokens = qn__calloc(count, sizeof *v->tokens);
    v->ends = qn__calloc(count, sizeof *v->ends);
    if (!v->tokens || !v->ends) {
        return qn__error_memory(err, "the tokens");
    }
    status = read_texts(v, from, qn_gguf_find(from->gguf, KEY("tokens")), err);
    if (status == QN_OK) {
        status = read_scores(v, from, err);
    }
    if (status == QN_OK) {
        status = read_types(v, from, err);
    }
    return status == QN_OK ? make_map(v, from, err) : status;
}

/* Kind NONE: ids without texts, as many as the architecture says. */
static qn_status read_nameless(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    qn_gguf_text arch = {0};
    uint32_t count = 0;
    char key[128];
    qn_status status = qn_gguf_opt_str(from->gguf, "general.architecture", &arch, err);
    if (status == QN_OK && arch.size > 0 && arch.size < 100) {
        snprintf(key, sizeof key, "%.*s.vocab_size", (int)arch.size, arch.data);
        status = qn_gguf_opt_u32(from->gguf, key, &count, err);
    }
    if (status != QN_OK) {
        return status;
    }
    if (count > QN_VOCAB_MAX_TOKENS) {
        return qn__vocab_error(from, err, QN_ERR_LIMIT, key, "%u tokens are too many", count);
    }
    v->n_tokens = (int32_t)count;
    v->tokens = qn__calloc((size_t)count + 1, sizeof *v->tokens);
    v->ends = qn__calloc((size_t)count + 1, sizeof *v->ends);
    v->texts = qn__calloc(1, 1); /* one NUL: the text and the piece of them all */
    v->pieces = qn__calloc(1, 1);
    return v->tokens && v->ends && v->texts && v->pieces ? QN_OK
                                                         : qn__error_memory(err, "the tokens");
}

/* ---- Ids and flags --------------------------------------------------------------------------- */

typedef struct role_row {
    const char *key;
    qn_vocab_role role;
} role_row;

/* The old names of the fill-in-the-middle ids come last, so that they win. */
static const role_row role_rows[] = {
    {KEY("bos_token_id"), QN_ROLE_BOS},
    {KEY("eos_token_id"), QN_ROLE_EOS},
    {KEY("eot_token_id"), QN_ROLE_EOT},
    {KEY("eom_token_id"), QN_ROLE_EOM},
    {KEY("unknown_token_id"), QN_ROLE_UNK},
    {KEY("seperator_token_id"), QN_ROLE_SEP},
    {KEY("padding_token_id"), QN_ROLE_PAD},
    {KEY("mask_token_id"), QN_ROLE_MASK},
    {KEY("fim_pre_token_id"), QN_ROLE_FIM_PREFIX},
    {KEY("fim_suf_token_id"), QN_ROLE_FIM_SUFFIX},
    {KEY("fim_mid_token_id"), QN_ROLE_FIM_MIDDLE},
    {KEY("fim_pad_token_id"), QN_ROLE_FIM_PAD},
    {KEY("fim_rep_token_id"), QN_ROLE_FIM_REPO},
    {KEY("fim_sep_token_id"), QN_ROLE_FIM_SEP},
    {KEY("prefix_token_id"), QN_ROLE_FIM_PREFIX},
    {KEY("suffix_token_id"), QN_ROLE_FIM_SUFFIX},
    {KEY("middle_token_id"), QN_ROLE_FIM_MIDDLE},
};

/* The token for a line break, while no special token is known yet. */
static qn_status find_newline(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    int32_t id = v->roles[QN_ROLE_PAD];
    if (v->kind == QN_VOCAB_SPM) {
        int32_t bytes[256];
        qn__vocab_byte_tokens(v, bytes);
        id = bytes['\n'] >= 0 ? bytes['\n'] : id;
    } else if (v->kind != QN_VOCAB_WPM) {
        qn_tokens ids = {0};
        qn_error ignored = {0};
        qn_status status = qn__vocab_tokenize_raw(v, "\n", 1, &ids, &ignored);
        bool found = status == QN_OK && ids.count > 0 && ids.ids[0] >= 0;
        id = found ? ids.ids[0] : id;
        qn_tokens_free(&ids);
        if (status == QN_ERR_MEMORY) {
            return qn__error_memory(err, "the vocabulary");
        }
        if (status == QN_ERR_FORMAT) {
            return qn__vocab_error(from, err, status, KEY("tokens"), "%s", ignored.message);
        }
        if (v->kind == QN_VOCAB_RWKV && !found) {
            return qn__vocab_error(from, err, QN_ERR_FORMAT, KEY("tokens"),
                                   "no token covers a line break");
        }
    }
    v->roles[QN_ROLE_NEWLINE] = id < v->n_tokens ? id : -1;
    return QN_OK;
}

static qn_status read_roles(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    for (int i = 0; i < QN_ROLE_COUNT; i++) {
        if (v->roles[i] >= v->n_tokens) {
            v->roles[i] = -1;
        }
    }
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < sizeof role_rows / sizeof role_rows[0]; i++) {
        uint32_t id = UINT32_MAX;
        status = qn_gguf_opt_u32(from->gguf, role_rows[i].key, &id, err);
        if (status == QN_OK && id < (uint32_t)v->n_tokens) {
            v->roles[role_rows[i].role] = (int32_t)id;
        } else if (status == QN_OK && qn_gguf_find(from->gguf, role_rows[i].key)) {
            qn__vocab_warn(from, "%s is %u, but there are %d tokens; ignored", role_rows[i].key, id,
                           (int)v->n_tokens);
        }
    }
    return status;
}

typedef struct flag_row {
    const char *key;
    size_t offset; /* of the bool in qn_vocab */
} flag_row;

static qn_status read_flags(qn_vocab *v, const qn_vocab_source *from, const flag_row *rows,
                            size_t n, qn_error *err)
{
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < n; i++) {
        status =
            qn_gguf_opt_bool(from->gguf, rows[i].key, (bool *)((char *)v + rows[i].offset), err);
    }
    return status;
}

#define FLAG(key, field)                                                                           \
    {                                                                                              \
        KEY(key), offsetof(qn_vocab, field)                                                        \
    }

/* Before the tokens: what newlines and texts depend on. */
static const flag_row early_flags[] = {FLAG("add_space_prefix", add_space_prefix),
                                       FLAG("remove_extra_whitespaces", remove_extra_whitespaces)};
static const flag_row late_flags[] = {
    FLAG("add_bos_token", add_bos),
    FLAG("add_eos_token", add_eos),
    FLAG("add_sep_token", add_sep),
    FLAG("normalizer.lowercase", lowercase),
};
static const flag_row last_flags[] = {FLAG("normalizer.strip_accents", strip_accents)};

static qn_status read_late_flags(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    qn_status status =
        read_flags(v, from, late_flags, sizeof late_flags / sizeof late_flags[0], err);
    if (status != QN_OK) {
        return status;
    }
    if (v->pre && v->pre->flags & QN_PRE_FORCE_BOS) {
        v->add_bos = true;
    }
    v->strip_accents = v->lowercase;
    return read_flags(v, from, last_flags, 1, err);
}

/* Ids that must never be sampled; those out of range are left out. */
static qn_status read_suppressed(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    size_t count = 0;
    if (!qn_gguf_find(from->gguf, KEY("suppress_tokens"))) {
        return QN_OK;
    }
    qn_status status =
        qn_gguf_get_array(from->gguf, KEY("suppress_tokens"), QN_GGUF_I32, &count, err);
    if (status != QN_OK || count == 0) {
        return status;
    }
    v->suppressed = qn__calloc(count, sizeof *v->suppressed);
    if (!v->suppressed) {
        return qn__error_memory(err, "the suppressed tokens");
    }
    status = qn_gguf_get_i32s(from->gguf, KEY("suppress_tokens"), 0, count, v->suppressed, err);
    for (size_t i = 0; status == QN_OK && i < count; i++) {
        if (v->suppressed[i] >= 0 && v->suppressed[i] < v->n_tokens) {
            v->suppressed[v->n_suppressed++] = v->suppressed[i];
        }
    }
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static qn_status load_texts(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    qn_status status =
        read_flags(v, from, early_flags, sizeof early_flags / sizeof early_flags[0], err);
    if (status == QN_OK) {
        status = read_tokens(v, from, err);
    }
    if (status == QN_OK) {
        status = v->tokenizer->prepare(v, from, err);
    }
    if (status == QN_OK) {
        status = find_newline(v, from, err);
    }
    if (status == QN_OK) {
        status = read_roles(v, from, err);
    }
    if (status == QN_OK) {
        status = read_late_flags(v, from, err);
    }
    if (status == QN_OK) {
        status = read_suppressed(v, from, err);
    }
    if (status == QN_OK) {
        status = qn__vocab_find_special(v, from, err);
    }
    return status == QN_OK ? qn__vocab_make_pieces(v, err) : status;
}

qn_status qn__vocab_load(const qn_gguf *gguf, const qn_log *log, qn_vocab **out, qn_error *err)
{
    qn_vocab_source from = {gguf, qn_gguf_file_name(gguf, 0), log};
    const model_row *model = NULL;
    qn_vocab *v = qn__calloc(1, sizeof *v);
    if (!v) {
        return qn__error_memory(err, "the vocabulary");
    }
    v->pieces_slot = qn__pieces_slot_make();
    qn_status status = v->pieces_slot ? read_model(v, &from, &model, err)
                                      : qn__error_memory(err, "the vocabulary");
    if (status == QN_OK) {
        status = read_pre(v, &from, model, err);
    }
    if (status == QN_OK) {
        status =
            v->kind == QN_VOCAB_NONE ? read_nameless(v, &from, err) : load_texts(v, &from, err);
    }
    if (status != QN_OK) {
        qn_vocab_free(v);
        return status;
    }
    *out = v;
    return QN_OK;
}

qn_status qn_vocab_load_file(const char *path, const qn_log *log, qn_vocab **out, qn_error *err)
{
    qn_gguf_options options = qn_gguf_defaults();
    options.single_file = true;
    options.metadata_only = true;
    if (log) {
        options.log = *log;
    }
    qn_gguf *gguf = NULL;
    qn_status status = qn_gguf_open(&gguf, path, &options, err);
    if (status == QN_OK) {
        status = qn__vocab_load(gguf, log, out, err);
        qn_gguf_free(gguf);
    }
    return status;
}

void qn_vocab_free(qn_vocab *v)
{
    if (!v) {
        return;
    }
    if (v->tokenizer) {
        v->tokenizer->release(v->state);
    }
    qn__trie_free(&v->special.all);
    qn__trie_free(&v->special.plain);
    qn__pieces_slot_free(v->pieces_slot);
    free(v->special.ids);
    free(v->special.sizes);
    free(v->suppressed);
    free(v->ends);
    free(v->tokens);
    free(v->texts);
    free(v->pieces);
    qn__text_map_free(&v->map);
    qn__arena_free(&v->arena);
    free(v);
}
