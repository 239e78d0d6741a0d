/* test_kind.c: the tokenizer model "test", which needs no real vocabulary: each five bytes of text
 * give an id by hash. For tests of engines. */
#include "vocab/internal.h"

#define CHUNK 5

static qn_status test_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    (void)v;
    (void)from;
    (void)err;
    return QN_OK;
}

static qn_status test_fragment(qn_run *run, const char *text, size_t n)
{
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < n; i += CHUNK) {
        uint64_t hash = 0;
        for (size_t k = i; k < n && k < i + CHUNK; k++) {
            hash = hash * 31 + (uint8_t)text[k];
        }
        status = qn__run_emit(run, (int32_t)(hash % (uint64_t)run->vocab->n_tokens));
    }
    return status;
}

static void test_release(void *state)
{
    (void)state;
}

const qn_tokenizer qn__tokenizer_test = {test_prepare, test_fragment, test_release};
