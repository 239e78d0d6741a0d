/*
 * special.c: the special tokens of a vocabulary. Files often lack ids or give wrong types, so texts
 * are searched as well.
 */
#include "vocab/internal.h"

#include "base/error.h"

#define BAR "\xEF\xBD\x9C" /* U+FF5C */

typedef struct name_row {
    qn_vocab_role role;
    const char *text;
} name_row;

/* Texts that stand for a role; the first one that is a token counts. */
static const name_row names[] = {
    {QN_ROLE_EOT, "<|eot_id|>"},
    {QN_ROLE_EOT, "<|im_end|>"},
    {QN_ROLE_EOT, "<|end|>"},
    {QN_ROLE_EOT, "<end_of_turn>"},
    {QN_ROLE_EOT, "<|endoftext|>"},
    {QN_ROLE_EOT, "<|end_of_text|>"},
    {QN_ROLE_EOT, "<EOT>"},
    {QN_ROLE_EOT, "_<EOT>"},
    {QN_ROLE_EOT, "[EOT]"},
    {QN_ROLE_EOT, "<" BAR "end" QN_SPACE_MARK "of" QN_SPACE_MARK "sentence" BAR ">"},
    {QN_ROLE_EOT, "<end_of_utterance>"},
    {QN_ROLE_EOM, "<|eom_id|>"},
    {QN_ROLE_FIM_PREFIX, "<|fim_prefix|>"},
    {QN_ROLE_FIM_PREFIX, "<fim-prefix>"},
    {QN_ROLE_FIM_PREFIX, "<fim_prefix>"},
    {QN_ROLE_FIM_PREFIX, "<" BAR "fim" QN_SPACE_MARK "begin" BAR ">"},
    {QN_ROLE_FIM_PREFIX, "<PRE>"},
    {QN_ROLE_FIM_PREFIX, QN_SPACE_MARK "<PRE>"},
    {QN_ROLE_FIM_PREFIX, "<|code_prefix|>"},
    {QN_ROLE_FIM_PREFIX, "<|prefix|>"},
    {QN_ROLE_FIM_SUFFIX, "<|fim_suffix|>"},
    {QN_ROLE_FIM_SUFFIX, "<fim-suffix>"},
    {QN_ROLE_FIM_SUFFIX, "<fim_suffix>"},
    {QN_ROLE_FIM_SUFFIX, "<" BAR "fim" QN_SPACE_MARK "hole" BAR ">"},
    {QN_ROLE_FIM_SUFFIX, "<SUF>"},
    {QN_ROLE_FIM_SUFFIX, QN_SPACE_MARK "<SUF>"},
    {QN_ROLE_FIM_SUFFIX, "<|code_suffix|>"},
    {QN_ROLE_FIM_SUFFIX, "<|suffix|>"},
    {QN_ROLE_FIM_MIDDLE, "<|fim_middle|>"},
    {QN_ROLE_FIM_MIDDLE, "<fim-middle>"},
    {QN_ROLE_FIM_MIDDLE, "<fim_middle>"},
    {QN_ROLE_FIM_MIDDLE, "<" BAR "fim" QN_SPACE_MARK "end" BAR ">"},
    {QN_ROLE_FIM_MIDDLE, "<MID>"},
    {QN_ROLE_FIM_MIDDLE, QN_SPACE_MARK "<MID>"},
    {QN_ROLE_FIM_MIDDLE, "<|code_middle|>"},
    {QN_ROLE_FIM_MIDDLE, "<|middle|>"},
    {QN_ROLE_FIM_PAD, "<|fim_pad|>"},
    {QN_ROLE_FIM_PAD, "<fim-pad>"},
    {QN_ROLE_FIM_PAD, "<fim_pad>"},
    {QN_ROLE_FIM_PAD, "<PAD>"},
    {QN_ROLE_FIM_PAD, "[PAD]"},
    {QN_ROLE_FIM_REPO, "<|fim_repo|>"},
    {QN_ROLE_FIM_REPO, "<|repo_name|>"},
    {QN_ROLE_FIM_REPO, "<fim-repo>"},
    {QN_ROLE_FIM_REPO, "<REPO>"},
    {QN_ROLE_FIM_REPO, "<reponame>"},
    {QN_ROLE_FIM_SEP, "<|file_sep|>"},
};

/* Tokens that end generation by their text. */
static const char *const end_names[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<" BAR "end" QN_SPACE_MARK "of" QN_SPACE_MARK "sentence" BAR ">",
    "[e~[",
};

/* Markers of a chat format that are printed and matched like ordinary text. */
static const char *const marker_names[] = {"<|channel|>", "<|message|>", "<|start|>",
                                           "<|constrain|>"};

static int32_t find(const qn_vocab *v, const char *text)
{
    return qn__vocab_id_of(v, text, strlen(text));
}

static void make_control(qn_vocab *v, const qn_vocab_source *from, int32_t id)
{
    qn_vocab_token *t = &v->tokens[id];
    if (!(t->attributes & QN_TOKEN_CONTROL)) {
        qn__vocab_warn(from, "token %d '%s' looks like a control token; taken as one", (int)id,
                       v->texts + t->text);
        t->attributes |= QN_TOKEN_CONTROL;
    }
}

static void find_roles(qn_vocab *v, const qn_vocab_source *from)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t id = v->roles[names[i].role] < 0 ? find(v, names[i].text) : -1;
        if (id >= 0) {
            v->roles[names[i].role] = id;
            make_control(v, from, id);
        }
    }
}

static void mark_unused(qn_vocab *v)
{
    for (int32_t id = 0; id < v->n_tokens; id++) {
        if (v->tokens[id].attributes & QN_TOKEN_CONTROL &&
            strstr(qn__vocab_text_of(v, id), "unused")) {
            v->tokens[id].attributes |= QN_TOKEN_UNUSED;
        }
    }
}

static bool ends(const qn_vocab *v, const char *text)
{
    int32_t id = find(v, text);
    return id >= 0 && v->ends[id];
}

static void take_out(qn_vocab *v, const char *text, uint32_t attributes)
{
    int32_t id = find(v, text);
    v->ends[id] = false;
    v->tokens[id].attributes = attributes;
}

static void find_ends(qn_vocab *v, const qn_vocab_source *from)
{
    static const qn_vocab_role first[] = {QN_ROLE_FIM_PAD, QN_ROLE_FIM_REPO, QN_ROLE_FIM_SEP};
    static const qn_vocab_role last[] = {QN_ROLE_EOS, QN_ROLE_EOT, QN_ROLE_EOM};
    for (int i = 0; i < 3; i++) {
        if (v->roles[first[i]] >= 0) {
            v->ends[v->roles[first[i]]] = true;
        }
    }
    for (size_t i = 0; i < sizeof end_names / sizeof end_names[0]; i++) {
        int32_t id = find(v, end_names[i]);
        if (id >= 0) {
            v->ends[id] = true;
            make_control(v, from, id);
        }
    }
    for (size_t i = 0; i < sizeof marker_names / sizeof marker_names[0]; i++) {
        int32_t id = find(v, marker_names[i]);
        if (id >= 0) {
            v->tokens[id].attributes = QN_TOKEN_USER_DEFINED;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (v->roles[last[i]] >= 0) {
            v->ends[v->roles[last[i]]] = true;
        }
    }
    bool calls = ends(v, "<|call|>") || ends(v, "<|calls|>");
    if (ends(v, "<|end|>") && calls && (ends(v, "<|return|>") || ends(v, "<|flush|>"))) {
        take_out(v, "<|end|>", QN_TOKEN_USER_DEFINED);
    }
    if (ends(v, "<|tool_response>") && ends(v, "</s>")) {
        take_out(v, "</s>", QN_TOKEN_NORMAL);
    }
}

/* ---- The list -------------------------------------------------------------------------------- */

typedef struct special_entry {
    uint32_t size;
    int32_t id;
} special_entry;

static int longest_first(const void *a, const void *b)
{
    const special_entry *x = a;
    const special_entry *y = b;
    if (x->size != y->size) {
        return x->size > y->size ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static qn_status make_list(qn_vocab *v, qn_error *err)
{
    const uint32_t special = QN_TOKEN_CONTROL | QN_TOKEN_USER_DEFINED | QN_TOKEN_UNKNOWN;
    qn_special_list *list = &v->special;
    size_t count = 0;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        count += (v->tokens[id].attributes & special) != 0 && v->tokens[id].text_size > 0;
    }
    special_entry *entries = qn__calloc(count + 1, sizeof *entries);
    qn_slice *texts = qn__calloc(count + 1, sizeof *texts);
    list->ids = qn__calloc(count + 1, sizeof *list->ids);
    list->sizes = qn__calloc(count + 1, sizeof *list->sizes);
    bool good = entries && texts && list->ids && list->sizes;
    for (int32_t id = 0; good && id < v->n_tokens; id++) {
        if (v->tokens[id].attributes & special && v->tokens[id].text_size > 0) {
            entries[list->count++] = (special_entry){v->tokens[id].text_size, id};
        }
    }
    size_t n_plain = 0;
    if (good) {
        qsort(entries, count, sizeof *entries, longest_first);
        for (size_t i = 0; i < count; i++) {
            int32_t id = entries[i].id;
            list->ids[i] = id;
            list->sizes[i] = entries[i].size;
            if (!(v->tokens[id].attributes & (QN_TOKEN_CONTROL | QN_TOKEN_UNKNOWN))) {
                texts[n_plain++] =
                    (qn_slice){qn__vocab_text_of(v, id), entries[i].size, (int32_t)i};
            }
        }
        good = qn__trie_build(&list->plain, texts, n_plain);
        for (size_t i = 0; i < count; i++) {
            texts[i] = (qn_slice){qn__vocab_text_of(v, list->ids[i]), entries[i].size, (int32_t)i};
        }
        good = good && qn__trie_build(&list->all, texts, count);
    }
    free(entries);
    free(texts);
    return good ? QN_OK : qn__error_memory(err, "the special tokens");
}

/* ---- Strip attributes ------------------------------------------------------------------------ */

static void add_attribute(qn_vocab *v, const qn_vocab_source *from, const char *text,
                          uint32_t attribute, bool on)
{
    int32_t id = find(v, text);
    if (id < 0) {
        qn__vocab_warn(from, "token '%s' is missing", text);
    } else if (on) {
        v->tokens[id].attributes |= attribute;
    } else {
        v->tokens[id].attributes &= ~attribute;
    }
}

/* A text of the metadata, NUL-terminated and made small where `lower`; "" where it is absent. */
static void read_name(const qn_vocab_source *from, const char *key, bool lower, char out[256])
{
    qn_gguf_text text = {0};
    (void)qn_gguf_opt_str(from->gguf, key, &text, NULL);
    size_t n = text.size < 255 ? text.size : 255;
    for (size_t i = 0; i < n; i++) {
        char c = text.data[i];
        out[i] = (char)(lower && c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[n] = '\0';
}

static void set_strip(qn_vocab *v, const qn_vocab_source *from)
{
    char pre[256];
    char name[256];
    char arch[256];
    read_name(from, "tokenizer.ggml.pre", false, pre);
    read_name(from, "general.name", true, name);
    read_name(from, "general.architecture", false, arch);
    if (strstr(pre, "jina-v2-de") || strstr(pre, "jina-v2-es") || strstr(pre, "jina-v2-code") ||
        strstr(arch, "nomic-bert-moe") || strstr(arch, "jina-bert-v3")) {
        add_attribute(v, from, "<mask>", QN_TOKEN_LSTRIP, true);
    } else if (strstr(name, "phi-3") || strstr(name, "phi3")) {
        for (size_t i = 0; i < v->special.count; i++) {
            v->tokens[v->special.ids[i]].attributes |= QN_TOKEN_RSTRIP;
        }
        add_attribute(v, from, "</s>", QN_TOKEN_RSTRIP, true);
        add_attribute(v, from, "<unk>", QN_TOKEN_RSTRIP, false);
        add_attribute(v, from, "<s>", QN_TOKEN_RSTRIP, false);
        add_attribute(v, from, "<|endoftext|>", QN_TOKEN_RSTRIP, false);
    } else if (strstr(name, "modern-bert")) {
        add_attribute(v, from, "[MASK]", QN_TOKEN_LSTRIP, true);
    }
    for (size_t i = 0; i < v->special.count; i++) {
        uint32_t attributes = v->tokens[v->special.ids[i]].attributes;
        v->special.strips =
            v->special.strips || (attributes & (QN_TOKEN_LSTRIP | QN_TOKEN_RSTRIP)) != 0;
    }
}

qn_status qn__vocab_find_special(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    find_roles(v, from);
    mark_unused(v);
    find_ends(v, from);
    qn_status status = make_list(v, err);
    if (status == QN_OK) {
        set_strip(v, from);
    }
    return status;
}
