/*
 * rwkv.c: the RWKV world vocabulary ("rwkv"): at each place the longest token. Token texts in the
 * file are escaped; inside they are bytes.
 */
#include "vocab/internal.h"

#include "base/error.h"

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t qn__rwkv_unescape(const char *text, size_t n, char *out)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\\' && i + 1 < n) {
            c = text[++i];
            bool byte =
                c == 'x' && i + 2 < n && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
            if (byte) {
                c = (char)(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
                i += 2;
            } else {
                c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            }
        }
        out[size++] = c;
    }
    return size;
}

static qn_status rwkv_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    (void)from;
    qn_trie *trie = qn__calloc(1, sizeof *trie);
    v->state = trie;
    qn_slice *texts = qn__calloc((size_t)v->n_tokens, sizeof *texts);
    size_t bytes = 0;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        bytes += v->tokens[id].text_size;
    }
    char *plain = qn__calloc(bytes + 1, 1);
    bool good = trie && texts && plain;
    char *at = plain;
    for (int32_t id = 0; good && id < v->n_tokens; id++) {
        size_t size = qn__rwkv_unescape(qn__vocab_text_of(v, id), v->tokens[id].text_size, at);
        texts[id] = (qn_slice){at, (uint32_t)size, id};
        at += size;
    }
    good = good && qn__trie_build(trie, texts, (size_t)v->n_tokens);
    free(texts);
    free(plain);
    return good ? QN_OK : qn__error_memory(err, "the vocabulary");
}

static void rwkv_release(void *state)
{
    if (state) {
        qn__trie_free(state);
        free(state);
    }
}

static qn_status rwkv_fragment(qn_run *run, const char *text, size_t n)
{
    qn_status status = QN_OK;
    for (size_t at = 0; status == QN_OK && at < n;) {
        int32_t id = run->vocab->roles[QN_ROLE_UNK]; /* may be -1: an id all the same */
        size_t size = qn__trie_longest(run->vocab->state, text + at, n - at, &id);
        status = qn__run_emit(run, id);
        at += size > 0 ? size : 1;
    }
    return status;
}

const qn_tokenizer qn__tokenizer_rwkv = {rwkv_prepare, rwkv_fragment, rwkv_release};
