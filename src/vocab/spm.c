/*
 * spm.c: SentencePiece-like vocabularies ("llama"): characters are merged while the joined text is
 * a token, highest score first; what no token covers becomes byte tokens.
 */
#include "vocab/merge.h"
#include "vocab/unicode.h"

#include "base/fmath.h"

typedef struct spm_state {
    int32_t byte_ids[256]; /* of "<0xXX>", else of the one-byte text, else -1 */
} spm_state;

static qn_status spm_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    (void)from;
    spm_state *s = qn__calloc(1, sizeof *s);
    if (!s) {
        return qn__run_no_memory(&(qn_run){.err = err});
    }
    v->state = s;
    qn__vocab_byte_tokens(v, s->byte_ids);
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        if (s->byte_ids[b] < 0) {
            s->byte_ids[b] = qn__vocab_id_of(v, &byte, 1);
        }
    }
    return QN_OK;
}

typedef struct pair_context {
    const qn_vocab *vocab;
    const char *text;
} pair_context;

/* Scores as ranks: a higher score is a lower rank. */
static uint32_t score_rank(float score)
{
    uint32_t bits = qn__float_bits(score + 0.0F); /* -0 becomes +0 */
    uint32_t rank = bits & 0x80000000U ? bits : 0x7FFFFFFFU - bits;
    return rank < QN_NO_RANK ? rank : QN_NO_RANK - 1; /* only some NaN is so bad */
}

static bool joins_to_token(const void *context, qn_symbol *left, const qn_symbol *right)
{
    const pair_context *c = context;
    size_t size = (size_t)left->size + right->size;
    if (size > c->vocab->longest) {
        return false;
    }
    left->joined = qn__vocab_id_of(c->vocab, c->text + left->start, size);
    if (left->joined < 0) {
        return false;
    }
    left->rank = score_rank(c->vocab->tokens[left->joined].score);
    return true;
}

/* The fragment with its spaces marked, and maybe one in front; NULL without memory. */
static char *mark_spaces(qn_run *run, const char *text, size_t n, size_t *size)
{
    char *marked = qn__run_need(run, QN_SCRATCH_BYTES, n + 1, QN_SPACE_MARK_SIZE);
    if (!marked) {
        return NULL;
    }
    size_t at = 0;
    if (run->vocab->add_space_prefix && run->space_prefix) {
        memcpy(marked, QN_SPACE_MARK, QN_SPACE_MARK_SIZE);
        at = QN_SPACE_MARK_SIZE;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') {
            memcpy(marked + at, QN_SPACE_MARK, QN_SPACE_MARK_SIZE);
            at += QN_SPACE_MARK_SIZE;
        } else {
            marked[at++] = text[i];
        }
    }
    *size = at;
    return marked;
}

static qn_status emit_symbol(qn_run *run, const char *text, const qn_symbol *symbol)
{
    const qn_vocab *v = run->vocab;
    const spm_state *s = v->state;
    int32_t id =
        symbol->id >= 0 ? symbol->id : qn__vocab_id_of(v, text + symbol->start, symbol->size);
    if (id >= 0) {
        return qn__run_emit(run, id);
    }
    for (uint32_t i = 0; i < symbol->size; i++) {
        uint8_t byte = (uint8_t)text[symbol->start + i];
        id = s->byte_ids[byte] >= 0 ? s->byte_ids[byte] : v->roles[QN_ROLE_UNK];
        qn_status status = id >= 0 ? qn__run_emit(run, id) : qn__run_no_token(run, "a byte");
        if (status != QN_OK) {
            return status;
        }
    }
    return QN_OK;
}

static qn_status spm_fragment(qn_run *run, const char *raw, size_t raw_size)
{
    size_t n = 0;
    char *text = mark_spaces(run, raw, raw_size, &n);
    qn_symbol *symbols = qn__run_need(run, QN_SCRATCH_SYMBOLS, n, sizeof *symbols);
    if (!text || !symbols) {
        return qn__run_no_memory(run);
    }
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        size_t length = qn__lead_length((uint8_t)text[i], n - i);
        symbols[count] = (qn_symbol){.start = (uint32_t)i, .size = (uint32_t)length, .id = -1};
        i += length;
    }
    pair_context context = {run->vocab, text};
    qn_status status = qn__merge(run, symbols, count, joins_to_token, &context);
    for (int32_t i = 0; status == QN_OK && i >= 0; i = symbols[i].next) {
        status = emit_symbol(run, text, &symbols[i]);
    }
    return status;
}

const qn_tokenizer qn__tokenizer_spm = {spm_prepare, spm_fragment, free};
