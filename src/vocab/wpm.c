/*
 * wpm.c: WordPiece ("bert"). A text is normalised into words; each word, with U+2581 in front, is
 * covered from the left by the longest token that fits, or is unknown as a whole.
 */
#include "vocab/pretok.h"
#include "vocab/unicode.h"

#include "base/error.h"
#include "base/utf8.h"

static qn_status wpm_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    (void)from;
    qn_trie *trie = qn__calloc(1, sizeof *trie);
    qn_slice *texts = qn__calloc((size_t)v->n_tokens, sizeof *texts);
    v->state = trie;
    for (int32_t id = 0; texts && id < v->n_tokens; id++) {
        texts[id] = (qn_slice){qn__vocab_text_of(v, id), v->tokens[id].text_size, id};
    }
    bool good = trie && texts && qn__trie_build(trie, texts, (size_t)v->n_tokens);
    free(texts);
    return good ? QN_OK : qn__error_memory(err, "the vocabulary");
}

static void wpm_release(void *state)
{
    if (state) {
        qn__trie_free(state);
        free(state);
    }
}

/* Not all that Unicode calls Han: the ranges are those that BERT vocabularies were made with. */
static bool is_chinese(uint32_t c)
{
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; c >= 0x3400 && i < sizeof ranges / sizeof ranges[0]; i++) {
        if (c >= ranges[i][0] && c <= ranges[i][1]) {
            return true;
        }
    }
    return false;
}

/* `word` has U+2581 in front. */
static qn_status emit_word(qn_run *run, const char *word, size_t n)
{
    const qn_vocab *v = run->vocab;
    size_t before = run->out->count;
    qn_status status = QN_OK;
    for (size_t at = 0; status == QN_OK && at < n;) {
        int32_t id = -1;
        size_t size = qn__trie_longest(v->state, word + at, n - at, &id);
        if (size == 0) {
            run->out->count = before;
            int32_t unknown = v->roles[QN_ROLE_UNK];
            return unknown >= 0 ? qn__run_emit(run, unknown) : qn__run_no_token(run, "a word");
        }
        status = qn__run_emit(run, id);
        at += size;
    }
    return status;
}

typedef struct word_maker {
    qn_run *run;
    char *word;
    size_t size; /* QN_SPACE_MARK_SIZE: empty */
    qn_status status;
} word_maker;

static void end_word(word_maker *m)
{
    if (m->size > QN_SPACE_MARK_SIZE && m->status == QN_OK) {
        m->status = emit_word(m->run, m->word, m->size);
    }
    m->size = QN_SPACE_MARK_SIZE;
}

static void add_point(word_maker *m, uint32_t c)
{
    const qn_vocab *v = m->run->vocab;
    if (qn__unicode_is_space(c)) {
        end_word(m);
        return;
    }
    qn_unicode_class class = qn__unicode_class_of(c);
    if (c == 0 || c == QN_REPLACEMENT_POINT || class == QN_CLASS_OTHER ||
        (v->strip_accents && class == QN_CLASS_MARK)) {
        return;
    }
    uint32_t shown = v->lowercase ? qn__unicode_lower(c) : c;
    bool alone =
        class == QN_CLASS_PUNCTUATION || (c < 0x7F && class == QN_CLASS_SYMBOL) || is_chinese(c);
    if (alone) {
        end_word(m);
    }
    m->size += (size_t)qn__utf8_encode(shown, m->word + m->size);
    if (alone) {
        end_word(m);
    }
}

static qn_status wpm_fragment(qn_run *run, const char *text, size_t n)
{
    uint32_t *points;
    size_t count;
    qn_status status = qn__pretok_decode(run, text, n, &points, &count);
    if (status != QN_OK) {
        return status;
    }
    word_maker m = {.run = run, .size = QN_SPACE_MARK_SIZE, .status = QN_OK};
    m.word = qn__run_need(run, QN_SCRATCH_BYTES, count + 1, 4);
    if (!m.word) {
        return qn__run_no_memory(run);
    }
    memcpy(m.word, QN_SPACE_MARK, QN_SPACE_MARK_SIZE);
    for (size_t i = 0; m.status == QN_OK && i < count; i++) {
        add_point(&m, run->vocab->strip_accents ? qn__unicode_nfd_first(points[i]) : points[i]);
    }
    end_word(&m);
    return m.status;
}

const qn_tokenizer qn__tokenizer_wpm = {wpm_prepare, wpm_fragment, wpm_release};
