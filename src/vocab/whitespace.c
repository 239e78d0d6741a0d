/* whitespace.c: byte-pair vocabularies whose words are cut at whitespace, which is dropped
 * ("whitespace"); letters may be made small. */
#include "vocab/pretok.h"
#include "vocab/unicode.h"

#include "base/utf8.h"

static qn_status whitespace_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    v->byte_alphabet = false;
    return qn__tokenizer_bpe.prepare(v, from, err);
}

static qn_status whitespace_fragment(qn_run *run, const char *text, size_t n)
{
    uint32_t *points;
    size_t count;
    qn_status status = qn__pretok_decode(run, text, n, &points, &count);
    if (status != QN_OK) {
        return status;
    }
    char *word = qn__run_need(run, QN_SCRATCH_BYTES, count, 4);
    if (!word) {
        return qn__run_no_memory(run);
    }
    size_t size = 0;
    for (size_t i = 0; status == QN_OK && i <= count; i++) {
        if (i < count && !qn__unicode_is_space(points[i])) {
            uint32_t point = run->vocab->lowercase ? qn__unicode_lower(points[i]) : points[i];
            size += (size_t)qn__utf8_encode(point, word + size);
        } else if (size > 0) {
            status = qn__bpe_word(run, word, size);
            size = 0;
        }
    }
    return status;
}

static void whitespace_release(void *state)
{
    qn__tokenizer_bpe.release(state);
}

const qn_tokenizer qn__tokenizer_whitespace = {whitespace_prepare, whitespace_fragment,
                                               whitespace_release};
