/*
 * hybriddna.c: byte-pair vocabularies with DNA in between ("hybriddna"): between <dna> and </dna>
 * each six letters are one token. Those tokens carry a marker, U+E000, behind their text in the
 * file, so that they do not meet the ordinary ones.
 */
#include "vocab/internal.h"

#include "base/error.h"

#define MARKER      "\xEE\x80\x80"
#define MARKER_SIZE 3
#define GROUP       6

static qn_status hybriddna_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    qn_status status = qn__tokenizer_bpe.prepare(v, from, err);
    if (status != QN_OK) {
        return status;
    }
    int32_t oov = qn__vocab_id_of(v, "<oov>", 5);
    for (int32_t id = oov + 1; oov >= 0 && id < v->n_tokens; id++) {
        qn_vocab_token *t = &v->tokens[id];
        char *text = v->texts + t->text;
        if (t->text_size < MARKER_SIZE ||
            memcmp(text + t->text_size - MARKER_SIZE, MARKER, MARKER_SIZE) != 0) {
            continue;
        }
        /* The map keeps the marked text, the token loses the marker. */
        v->map.entries[id].data = qn__arena_strndup(&v->arena, text, t->text_size);
        t->text_size -= MARKER_SIZE;
        text[t->text_size] = '\0';
        if (v->arena.failed) {
            v->map.entries[id].size = 0;
            return qn__error_memory(err, "the vocabulary");
        }
    }
    return QN_OK;
}

/* Puts out the letters of one <dna> section. */
static qn_status emit_dna(qn_run *run, const char *text, size_t n, int32_t oov)
{
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < n; i += GROUP) {
        char group[GROUP + MARKER_SIZE];
        memset(group, 'A', GROUP);
        for (size_t k = 0; k < GROUP && i + k < n; k++) {
            char c = text[i + k];
            group[k] = (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
        }
        memcpy(group + GROUP, MARKER, MARKER_SIZE);
        int32_t id = qn__vocab_id_of(run->vocab, group, sizeof group);
        status = qn__run_emit(run, id >= 0 ? id : oov);
    }
    return status;
}

/* First place of `tag` in text[0, n), or n. */
static size_t find_tag(const char *text, size_t n, const char *tag)
{
    size_t size = strlen(tag);
    for (size_t i = 0; i + size <= n; i++) {
        const char *hit = memchr(text + i, tag[0], n - size - i + 1);
        if (!hit) {
            break;
        }
        i = (size_t)(hit - text);
        if (memcmp(hit, tag, size) == 0) {
            return i;
        }
    }
    return n;
}

static qn_status hybriddna_fragment(qn_run *run, const char *text, size_t n)
{
    static const char begin_tag[] = "<dna>";
    static const char end_tag[] = "</dna>";
    int32_t begin_id = qn__vocab_id_of(run->vocab, begin_tag, sizeof begin_tag - 1);
    int32_t end_id = qn__vocab_id_of(run->vocab, end_tag, sizeof end_tag - 1);
    int32_t oov = qn__vocab_id_of(run->vocab, "<oov>", 5);
    if (begin_id < 0 || end_id < 0 || oov < 0) {
        return qn__bpe_fragment(run, text, n);
    }
    qn_status status = QN_OK;
    size_t at = 0;
    while (status == QN_OK && at < n) {
        size_t begin = at + find_tag(text + at, n - at, begin_tag);
        if (begin > at) {
            status = qn__bpe_fragment(run, text + at, begin - at);
        }
        if (status != QN_OK || begin == n) {
            break;
        }
        status = qn__run_emit(run, begin_id);
        at = begin + sizeof begin_tag - 1;
        size_t end = at + find_tag(text + at, n - at, end_tag);
        if (status == QN_OK) {
            status = emit_dna(run, text + at, end - at, oov);
        }
        at = end;
        if (status == QN_OK && end < n) {
            status = qn__run_emit(run, end_id);
            at = end + sizeof end_tag - 1;
        }
    }
    return status;
}

static void hybriddna_release(void *state)
{
    qn__tokenizer_bpe.release(state);
}

const qn_tokenizer qn__tokenizer_hybriddna = {hybriddna_prepare, hybriddna_fragment,
                                              hybriddna_release};
