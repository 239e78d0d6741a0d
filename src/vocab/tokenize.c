/* tokenize.c: text to ids: cuts at special tokens, lets the tokenizer model do the rest, puts the
 * tokens around it that the vocabulary asks for. */
#include "vocab/internal.h"
#include "vocab/pretok.h"

#include "base/error.h"

void *qn__vec_need(qn_vec *vec, size_t count, size_t size)
{
    size_t bytes;
    if (!qn__mul_size(count, size, &bytes)) {
        return NULL;
    }
    if (bytes > vec->bytes || !vec->data) {
        bytes = bytes + bytes / 2 + 64;
        if (!qn__realloc(&vec->data, bytes, 1)) {
            return NULL;
        }
        vec->bytes = bytes;
    }
    return vec->data;
}

qn_status qn__run_no_memory(qn_run *run)
{
    return qn__error_memory(run->err, "the tokens of a text");
}

qn_status qn__run_no_token(qn_run *run, const char *what)
{
    return qn__error(run->err, QN_ERR_NOT_FOUND, "the vocabulary has no token for %s", what);
}

static bool tokens_reserve(qn_tokens *tokens, size_t extra)
{
    size_t need;
    if (!qn__add_size(tokens->count, extra, &need)) {
        return false;
    }
    if (need <= tokens->capacity) {
        return true;
    }
    size_t capacity = tokens->capacity * 2 > need ? tokens->capacity * 2 : need + 32;
    void *ids = tokens->ids;
    if (!qn__realloc(&ids, capacity, sizeof *tokens->ids)) {
        return false;
    }
    tokens->ids = ids;
    tokens->capacity = capacity;
    return true;
}

qn_status qn__run_emit(qn_run *run, int32_t id)
{
    if (run->out->count == run->out->capacity && !tokens_reserve(run->out, 1)) {
        return qn__run_no_memory(run);
    }
    run->out->ids[run->out->count++] = id;
    return QN_OK;
}

void qn_tokens_free(qn_tokens *tokens)
{
    if (tokens) {
        free(tokens->ids);
        *tokens = (qn_tokens){0};
    }
}

qn_status qn_tokens_add(qn_tokens *tokens, const int32_t *ids, size_t count, qn_error *err)
{
    if (!tokens_reserve(tokens, count)) {
        return qn__error_memory(err, "tokens");
    }
    if (count > 0) {
        memcpy(tokens->ids + tokens->count, ids, count * sizeof *ids);
        tokens->count += count;
    }
    return QN_OK;
}

static void run_end(qn_run *run)
{
    for (int i = 0; i < QN_SCRATCH_COUNT; i++) {
        free(run->scratch[i].data);
    }
    qn__regex_run_free(run->regex);
}

qn_status qn__vocab_tokenize_raw(const qn_vocab *v, const char *text, size_t size, qn_tokens *out,
                                 qn_error *err)
{
    qn_run run = {.vocab = v, .out = out, .space_prefix = true, .err = err};
    qn_status status = v->tokenizer->fragment(&run, text, size);
    run_end(&run);
    return status;
}

static qn_status emit_fragments(qn_run *run, const char *text, size_t size, bool parse_special)
{
    qn_fragment *fragments = NULL;
    size_t count = 0;
    qn_status status =
        qn__vocab_split(run->vocab, text, size, parse_special, &fragments, &count, run->err);
    run->space_prefix = true;
    for (size_t i = 0; status == QN_OK && i < count; i++) {
        const qn_fragment *f = &fragments[i];
        status = f->id >= 0 ? qn__run_emit(run, f->id)
                            : run->vocab->tokenizer->fragment(run, text + f->start, f->size);
        run->space_prefix = f->id >= 0;
    }
    free(fragments);
    return status;
}

/* The token that add_special puts at the beginning (or the end); -1: none. */
static qn_status emit_special(qn_run *run, bool at_end)
{
    const qn_vocab *v = run->vocab;
    qn_vocab_role role = at_end ? QN_ROLE_EOS : QN_ROLE_BOS;
    bool wanted = false;
    if (v->kind == QN_VOCAB_WPM) {
        role = at_end ? QN_ROLE_SEP : QN_ROLE_BOS;
        wanted = true;
    } else if (v->kind == QN_VOCAB_SPM || v->kind == QN_VOCAB_UGM || v->kind == QN_VOCAB_BPE) {
        wanted = at_end ? v->add_eos : v->add_bos;
    }
    if (!wanted) {
        return QN_OK;
    }
    if (v->roles[role] < 0) {
        return qn__run_no_token(run, at_end ? "the end of a text" : "the beginning of a text");
    }
    return qn__run_emit(run, v->roles[role]);
}

qn_status qn_vocab_tokenize(const qn_vocab *v, const char *text, size_t size, unsigned flags,
                            qn_tokens *out, qn_error *err)
{
    if (v->kind == QN_VOCAB_NONE) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "the model has no vocabulary of texts");
    }
    if (size > QN_TOKENIZE_MAX_BYTES) {
        return qn__error(err, QN_ERR_LIMIT, "a text of %zu bytes is too long to tokenize", size);
    }
    size_t before = out->count;
    qn_run run = {.vocab = v, .out = out, .err = err};
    bool around = (flags & QN_TOKENIZE_ADD_SPECIAL) != 0;
    qn_status status = around ? emit_special(&run, false) : QN_OK;
    if (status == QN_OK && size > 0) {
        status = emit_fragments(&run, text, size, (flags & QN_TOKENIZE_PARSE_SPECIAL) != 0);
    }
    if (status == QN_OK && around) {
        status = emit_special(&run, true);
    }
    run_end(&run);
    if (status != QN_OK) {
        out->count = before;
    }
    return status;
}

qn_status qn_vocab_tokenize_into(const qn_vocab *v, const char *text, size_t size, unsigned flags,
                                 int32_t *ids, size_t capacity, size_t *count, qn_error *err)
{
    qn_tokens tokens = {0};
    qn_status status = qn_vocab_tokenize(v, text, size, flags, &tokens, err);
    if (status == QN_OK) {
        size_t fits = tokens.count < capacity ? tokens.count : capacity;
        if (fits > 0) {
            memcpy(ids, tokens.ids, fits * sizeof *ids);
        }
        *count = tokens.count;
    }
    qn_tokens_free(&tokens);
    return status;
}
