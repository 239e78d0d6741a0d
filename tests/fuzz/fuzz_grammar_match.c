/*
 * fuzz_grammar_match.c: any bytes as text that a grammar follows. The first byte chooses grammar
 * and vocabulary; the others are pieces of text. The verdict must not depend on how the text is
 * cut, and a mask must say what asking for each token says.
 */
#include <stdlib.h>
#include <string.h>

#include <quern/grammar.h>

#include "support/small_vocab.h"

static const char *const grammars[] = {
    "root ::= ([^a-f] | \"a\" [a-c]* | [\\u00e0-\\u00ff] .)* \"z\"?",
    "root ::= v\nv ::= \"[\" (v (\",\" v)*)? \"]\" | [0-9]+ | \"\\\"\" [^\"\\\\]* \"\\\"\"",
    "root ::= \"a\" root \"x\" | \"a\" root \"y\" | [^a]{0,3}",
    "root ::= (\"ab\" | <[3]> | !<[4]> | [\\U0001F600-\\U0001F64F]){0,9} .*",
};

static void compare_mask(qn_matcher *m, const qn_vocab *vocab)
{
    uint32_t bits[32];
    int32_t n = qn_vocab_size(vocab);
    if (n > 1024 || qn_matcher_mask(m, bits, 32, NULL) != QN_OK) {
        return;
    }
    for (int32_t id = 0; id < n; id++) {
        bool allowed = false;
        if (qn_matcher_allows(m, id, &allowed, NULL) == QN_OK &&
            allowed != ((bits[id / 32] >> id % 32 & 1) != 0)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_vocab *vocab = NULL;
    qn_grammar *g = NULL;
    qn_matcher *whole = NULL, *parts = NULL;
    qn_status first = QN_OK, second = QN_OK;
    if (size < 2 || size > 4096) {
        return 0;
    }
    const char *text = grammars[data[0] % 4], *name = small_vocab_name(data[0] / 4 % 4);
    if (small_vocab_load(small_vocab_writer(name), &vocab, NULL) != QN_OK ||
        qn_grammar_parse(text, strlen(text), vocab, NULL, &g, NULL) != QN_OK ||
        qn_matcher_make(g, &whole, NULL) != QN_OK || qn_matcher_make(g, &parts, NULL) != QN_OK) {
        abort();
    }
    first = qn_matcher_accept_text(whole, (const char *)data + 1, size - 1, NULL);
    for (size_t i = 1; i < size && second == QN_OK; i++) {
        if (i % 16 == 1) {
            compare_mask(parts, vocab);
        }
        second = qn_matcher_accept_text(parts, (const char *)data + i, 1, NULL);
    }
    if (first != QN_ERR_LIMIT && second != QN_ERR_LIMIT &&
        ((first == QN_OK) != (second == QN_OK) ||
         (first == QN_OK && qn_matcher_is_complete(whole) != qn_matcher_is_complete(parts)))) {
        abort();
    }
    qn_matcher_free(whole);
    qn_matcher_free(parts);
    qn_grammar_free(g);
    qn_vocab_free(vocab);
    return 0;
}
