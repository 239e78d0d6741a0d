/* fuzz_gbnf.c: any bytes as the text of a grammar; one that is taken is followed a little. */
#include <stdlib.h>

#include <quern/grammar.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_grammar *g = NULL;
    qn_matcher *m = NULL;
    qn_error err = {0};
    if (qn_grammar_parse((const char *)data, size, NULL, NULL, &g, &err) != QN_OK) {
        if (g || err.code == QN_OK || err.message[0] == '\0') {
            abort();
        }
        return 0;
    }
    if (qn_matcher_make(g, &m, &err) == QN_OK) {
        (void)qn_matcher_accept_text(m, (const char *)data, size, NULL);
        (void)qn_matcher_is_complete(m);
    }
    qn_matcher_free(m);
    qn_grammar_free(g);
    return 0;
}
