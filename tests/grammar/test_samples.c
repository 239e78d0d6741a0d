/* test_samples.c: the sample grammars in grammars/: each takes a text of its kind, refuses another,
 * and leaves every beginning of the text open. */
#include "support/support.h"

#include <quern/grammar.h>

static const struct {
    const char *name, *good, *bad;
} samples[] = {
    {"json", " {\"a\": [1, -2.5e3, \"x\\n\"], \"b\": {}, \"c\": null}\n", "{\"a\": [1,]}"},
    {"json", "[[], {}, \"\\u00e9\", true]", "{\"a\" 1}"},
    {"json_array", "[\n  {\"a\": 1},\n  \"b\"\n]", "[1]"},
    {"arithmetic", "2 * (x + 3) = 14\ny1 = 2^3 - 1\n", "2 * = 3\n"},
    {"c_subset",
     "int f(int a, char b) {\n    int c = a * (b + 2);\n    while (c < 10) {\n        c = g(c);\n"
     "    }\n    return c;\n}\n",
     "int f( {\n}\n"},
    {"chess", "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n4. O-O bxa1=Q+\n", "1. e9 e5\n2. a3\n"},
    {"english", "It was late; the well-known clock said \"nine\". We had 2.5% left!\n\nWho knew?",
     "no end"},
    {"japanese", "「今日」は、いい天気です。\n散歩しましょう！", "hello。"},
    {"list", "- one\n- two, with more\n", "one\n"},
};

static void test_samples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        char path[1024];
        int folder = (int)(strlen(QN_TEST_OWN_DATA) - strlen("tests/data")); /* of the project */
        snprintf(path, sizeof path, "%.*sgrammars/%s.gbnf", folder, QN_TEST_OWN_DATA,
                 samples[i].name);
        size_t size;
        char *text = (char *)qn_test_read(path, &size);
        qn_grammar *g = NULL;
        qn_matcher *m = NULL;
        qn_error err = {0};
        qn_test_ok(qn_grammar_parse(text, size, NULL, NULL, &g, &err), err);
        qn_test_ok(qn_matcher_make(g, &m, &err), err);
        for (const char *c = samples[i].good; *c; c++) {
            if (qn_matcher_accept_text(m, c, 1, &err) != QN_OK) {
                fail_msg("%s: stops before: %s", samples[i].name, c);
            }
        }
        assert_true(qn_matcher_is_complete(m));
        qn_matcher_reset(m);
        const char *bad = samples[i].bad;
        assert_false(qn_matcher_accept_text(m, bad, strlen(bad), &err) == QN_OK &&
                     qn_matcher_is_complete(m));
        qn_matcher_free(m);
        qn_grammar_free(g);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
