/*
 * test_cases.c: the recorded cases of the grammar language and of JSON schemas: texts that must and
 * must not fit, fed whole, character by character, byte by byte and in random pieces; pieces that
 * may and may not come next; errors.
 */
#include "support/support.h"

#include <jansson.h>

#include <quern/grammar.h>

#include "base/utf8.h"

static json_t *load_cases(void)
{
    const char *path = qn_test_shared("grammar-cases.json");
    if (!path) {
        return NULL;
    }
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    return all;
}

typedef enum cut { BY_ALL, BY_CHARACTER, BY_BYTE, BY_CHANCE, N_CUTS } cut;

static size_t next_piece(cut how, const char *text, size_t size, qn_test_random *r)
{
    uint32_t cp;
    switch (how) {
    case BY_CHARACTER:
        return (size_t)qn__utf8_decode(text, size, &cp);
    case BY_BYTE:
        return 1;
    case BY_CHANCE:
        return 1 + qn_test_bits(r) % (size < 5 ? size : 5);
    default:
        return size;
    }
}

static bool matches(qn_matcher *m, const char *text, size_t size, cut how, qn_test_random *r)
{
    bool ok = true;
    qn_matcher_reset(m);
    for (size_t at = 0; ok && at < size;) {
        size_t n = next_piece(how, text + at, size - at, r);
        ok = qn_matcher_accept_text(m, text + at, n, NULL) == QN_OK;
        at += n;
    }
    return ok && qn_matcher_is_complete(m);
}

static void check_list(const char *id, qn_grammar *g, const json_t *list, bool expected)
{
    qn_test_random r = {7};
    qn_matcher *m = NULL;
    qn_error err;
    qn_test_ok(qn_matcher_make(g, &m, &err), err);
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);
        size_t size = json_string_length(item);
        for (int round = 0; round < N_CUTS + 4; round++) {
            cut how = round < N_CUTS ? (cut)round : BY_CHANCE;
            if (matches(m, text, size, how, &r) != expected) {
                fail_msg("%s: %s should %s (way %d)", id, text, expected ? "fit" : "not fit", how);
            }
        }
    }
    qn_matcher_free(m);
}

/* The grammar of a case, or NULL where it is an error (then the case must say so). */
static qn_grammar *compile(const json_t *one, const char *id)
{
    bool is_error = json_object_get(one, "error") != NULL;
    const json_t *text = json_object_get(one, "grammar"), *schema = json_object_get(one, "schema");
    qn_grammar *g = NULL;
    qn_error err = {0};
    qn_status status;
    if (text) {
        status = qn_grammar_parse(json_string_value(text), json_string_length(text), NULL, NULL, &g,
                                  &err);
    } else {
        char *dump = json_dumps(schema, JSON_ENCODE_ANY), *gbnf = NULL, *warnings = NULL;
        status = qn_grammar_from_schema(dump, strlen(dump), &gbnf, &warnings, &err);
        if (status == QN_OK) {
            status = qn_grammar_parse(gbnf, strlen(gbnf), NULL, NULL, &g, &err);
            if (status != QN_OK) {
                fail_msg("%s: the schema made a bad grammar: %s\n%s", id, err.message, gbnf);
            }
        }
        qn_grammar_text_free(gbnf);
        qn_grammar_text_free(warnings);
        free(dump);
    }
    if (status != QN_OK && !is_error) {
        fail_msg("%s: %s", id, err.message);
    }
    if (status == QN_OK && is_error) {
        fail_msg("%s: should be refused: %s", id, json_string_value(json_object_get(one, "error")));
    }
    if (is_error) {
        assert_true(strlen(err.message) > 0);
    }
    return g;
}

static void check_cases(const char *list)
{
    json_t *all = load_cases();
    if (!all) {
        qn_test_skip("grammar-cases.json is not there");
        return;
    }
    size_t i, n = 0;
    json_t *one;
    json_array_foreach(json_object_get(all, list), i, one)
    {
        const char *id = json_string_value(json_object_get(one, "id"));
        qn_grammar *g = compile(one, id);
        if (g) {
            check_list(id, g, json_object_get(one, "accept"), true);
            check_list(id, g, json_object_get(one, "reject"), false);
        }
        qn_grammar_free(g);
        n++;
    }
    assert_true(n > 0);
    json_decref(all);
}

static void test_grammars(void **state)
{
    (void)state;
    check_cases("grammar_cases");
}

static void test_schemas(void **state)
{
    (void)state;
    check_cases("schema_cases");
}

static void test_extensions(void **state)
{
    (void)state;
    check_cases("extension_cases");
}

static size_t unhex(const json_t *hex, char *out)
{
    const char *text = json_string_value(hex);
    size_t n = json_string_length(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char two[3] = {text[2 * i], text[2 * i + 1], '\0'};
        out[i] = (char)strtoul(two, NULL, 16);
    }
    return n;
}

static void check_next(const char *id, qn_matcher *m, const json_t *list, bool expected)
{
    size_t i;
    json_t *hex;
    json_array_foreach(list, i, hex)
    {
        char bytes[64];
        size_t n = unhex(hex, bytes);
        bool allowed;
        qn_error err;
        qn_test_ok(qn_matcher_allows_text(m, bytes, n, &allowed, &err), err);
        if (allowed != expected) {
            fail_msg("%s: %s should be %s", id, json_string_value(hex),
                     expected ? "allowed" : "denied");
        }
    }
}

static void test_candidates(void **state)
{
    (void)state;
    json_t *all = load_cases();
    if (!all) {
        qn_test_skip("grammar-cases.json is not there");
        return;
    }
    size_t i, k;
    json_t *one, *hex;
    json_array_foreach(json_object_get(all, "candidate_cases"), i, one)
    {
        const char *id = json_string_value(json_object_get(one, "id"));
        qn_grammar *g = compile(one, id);
        qn_matcher *m = NULL;
        qn_error err;
        qn_test_ok(qn_matcher_make(g, &m, &err), err);
        json_array_foreach(json_object_get(one, "prefix"), k, hex)
        {
            char bytes[64];
            size_t n = unhex(hex, bytes);
            qn_test_ok(qn_matcher_accept_text(m, bytes, n, &err), err);
        }
        check_next(id, m, json_object_get(one, "allowed"), true);
        check_next(id, m, json_object_get(one, "denied"), false);
        qn_matcher_free(m);
        qn_grammar_free(g);
    }
    json_decref(all);
}

/* Escapes in references, and what must be refused with its place. */
static void test_references(void **state)
{
    (void)state;
    static const char good[] =
        "{\"$ref\":\"#/$defs/a~1b%20~0\",\"$defs\":{\"a/b ~\":{\"const\":1}}}";
    static const char *const bad[] = {"{\"$ref\":\"#/%00\"}", "{\"$ref\":\"#/%4\"}", "{\"$ref\":5}",
                                      "{\"properties\":{\"p\":{\"$ref\":\"#/x\"}}}"};
    qn_error err = {0};
    char *text = NULL;
    qn_grammar *g = NULL;
    qn_test_ok(qn_grammar_from_schema(good, strlen(good), &text, NULL, &err), err);
    qn_test_ok(qn_grammar_parse(text, strlen(text), NULL, NULL, &g, &err), err);
    qn_grammar_free(g);
    qn_grammar_text_free(text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(qn_grammar_from_schema(bad[i], strlen(bad[i]), &text, NULL, &err),
                         QN_ERR_FORMAT);
        assert_null(text);
        assert_non_null(strstr(err.message, "JSON schema error at #"));
    }
    assert_non_null(strstr(err.message, "#/properties/p: cannot resolve $ref #/x, x not found"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammars),   cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_schemas),    cmocka_unit_test(test_extensions),
        cmocka_unit_test(test_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
