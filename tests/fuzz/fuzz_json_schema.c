/* fuzz_json_schema.c: any bytes as a JSON schema. The grammar that comes of it must be one that the
 * parser takes, unless it exceeds a limit or a reference leads to itself. */
#include <stdlib.h>
#include <string.h>

#include <quern/grammar.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = NULL, *warnings = NULL;
    qn_grammar *g = NULL;
    qn_error err = {0};
    if (qn_grammar_from_schema((const char *)data, size, &text, &warnings, &err) != QN_OK) {
        if (text || err.message[0] == '\0') {
            abort();
        }
        return 0;
    }
    qn_status status = qn_grammar_parse(text, strlen(text), NULL, NULL, &g, &err);
    if (status == QN_ERR_FORMAT && !strstr(err.message, "left recursion")) {
        abort();
    }
    qn_grammar_free(g);
    qn_grammar_text_free(text);
    qn_grammar_text_free(warnings);
    return 0;
}
