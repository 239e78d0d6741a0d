/*
 * fuzz_vocab.c: tokenizers. With the top bit of the first byte set, the rest is a model file: it is
 * loaded and tries a text. Otherwise the first byte picks a small vocabulary, the second the flags,
 * and the rest is text: it goes to tokens, back to text at once, and back token by token.
 */
#include <stdlib.h>
#include <string.h>

#include <quern/gguf.h>

#include "support/small_vocab.h"
#include "vocab/vocab.h"

#define MOST_VOCABS 16

static void require(bool good)
{
    if (!good) {
        abort();
    }
}

/* What streaming gives must be the pieces, one behind the other. */
static void check_stream(const qn_vocab *v, const qn_tokens *tokens)
{
    qn_detokenizer *d = NULL;
    if (qn_detokenizer_make(v, true, &d, NULL) != QN_OK) {
        return;
    }
    size_t pieces = 0;
    size_t streamed = 0;
    size_t n;
    for (size_t i = 0; i < tokens->count; i++) {
        const char *piece = qn_vocab_piece(v, tokens->ids[i], true, &n);
        require(piece || tokens->ids[i] == -1);
        pieces += n;
        qn_detokenizer_add(d, tokens->ids[i], &n);
        streamed += n;
    }
    qn_detokenizer_finish(d, &n);
    require(streamed + n == pieces);
    qn_detokenizer_free(d);
}

static void use(const qn_vocab *v, const char *text, size_t size, unsigned flags)
{
    qn_tokens tokens = {0};
    if (qn_vocab_tokenize(v, text, size, flags & 3U, &tokens, NULL) == QN_OK) {
        for (size_t i = 0; i < tokens.count; i++) {
            require(tokens.ids[i] >= -1 && tokens.ids[i] < qn_vocab_size(v));
        }
        size_t length = 0;
        (void)qn_vocab_detokenize(v, tokens.ids, tokens.count, (flags >> 2) & 3U, NULL, 0, &length,
                                  NULL);
        check_stream(v, &tokens);
    }
    qn_tokens_free(&tokens);
}

static void load_and_use(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello, w\xC3\xB6rld 1234!\n\n  <s>[X]\xE2\x96\x81 \xFF\xE4\xB8";
    qn_gguf *gguf = NULL;
    qn_vocab *v = NULL;
    if (qn_gguf_open_memory(&gguf, data, size, "fuzz", NULL, NULL) == QN_OK &&
        qn__vocab_load(gguf, NULL, &v, NULL) == QN_OK) {
        use(v, text, sizeof text - 1, 1);
        use(v, text, sizeof text - 1, 2);
    }
    qn_vocab_free(v);
    qn_gguf_free(gguf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static qn_vocab *vocabs[MOST_VOCABS];
    static size_t n_vocabs;
    while (n_vocabs < MOST_VOCABS && small_vocab_name(n_vocabs)) {
        const char *name = small_vocab_name(n_vocabs);
        require(small_vocab_load(small_vocab_writer(name), &vocabs[n_vocabs], NULL) == QN_OK);
        n_vocabs++;
    }
    if (size < 2) {
        return 0;
    }
    if (data[0] & 0x80) {
        load_and_use(data + 1, size - 1);
    } else {
        use(vocabs[data[0] % n_vocabs], (const char *)data + 2, size - 2, data[1]);
    }
    return 0;
}
