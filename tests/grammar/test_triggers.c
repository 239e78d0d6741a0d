/* test_triggers.c: a text that grows is searched from where the last search left off, and fires as
 * if all of it were searched; expressions for whole texts are searched for where that is the same;
 * matchers forget and copy where they are; long texts cost no more by token than short ones. */
#include "support/support.h"

#include "grammar/internal.h"

static qn_error err;

static qn_triggers *make(qn_trigger_kind kind, const char *text)
{
    const qn_trigger trigger = {.kind = kind, .text = text};
    qn_triggers *t = NULL;
    qn_test_ok(qn__triggers_make(&trigger, 1, &t, &err), err);
    assert_in_range(qn__triggers_count(t), 1, 2);
    return t;
}

static bool fires(const qn_triggers *t, size_t *from, const char *text, size_t size, size_t *start)
{
    bool yes = false;
    qn_test_ok(qn__triggers_search(t, from, text, size, &yes, start, &err), err);
    return yes;
}

static void random_text(qn_test_random *r, char *text, size_t size)
{
    static const char some[] = "aab<<>tt/\nx \"1";
    for (size_t i = 0; i < size; i++) {
        text[i] = some[qn_test_bits(r) % (sizeof some - 1)];
    }
}

/* At each length: the search that goes on, against the same or another one of all the text. */
static void compare(const char *what, const qn_triggers *t, const qn_triggers *other,
                    qn_test_random *r)
{
    char text[48];
    random_text(r, text, sizeof text);
    size_t from[2] = {0}, size = 0;
    while (size < sizeof text) {
        size += 1 + qn_test_bits(r) % 4;
        size = size < sizeof text ? size : sizeof text;
        size_t none[2] = {0}, start = 0, want_start = 0;
        bool got = fires(t, from, text, size, &start);
        bool want = fires(other, none, text, size, &want_start);
        if (got != want || (got && start != want_start)) {
            fail_msg("%s: %d at %zu, not %d at %zu, in %.*s", what, got, start, want, want_start,
                     (int)size, text);
        }
        if (got) {
            return;
        }
    }
}

static void test_incremental(void **state)
{
    (void)state;
    static const struct {
        qn_trigger_kind kind;
        const char *text;
    } cases[] = {
        {QN_TRIGGER_WORD, "<t>"},
        {QN_TRIGGER_WORD, "a<a<b"},
        {QN_TRIGGER_PATTERN, "<t+(/?)>"},
        {QN_TRIGGER_PATTERN, "(?<=b<)t|xx\\b"},
        {QN_TRIGGER_PATTERN, "(?<![ab])<(?!<)."},
        {QN_TRIGGER_PATTERN, "\\bt(?=>)"},
        {QN_TRIGGER_PATTERN, "a\\B."},
        {QN_TRIGGER_PATTERN, "t>$"},
        {QN_TRIGGER_PATTERN, "^a.*(t)"},
        {QN_TRIGGER_PATTERN, "([abt])\\1\\1"},
        {QN_TRIGGER_PATTERN, "<[^>]*/(a|b)"},
        {QN_TRIGGER_PATTERN, ".*t/"},
        {QN_TRIGGER_PATTERN, "(a|ab)(?:b<|<)t"},
        {QN_TRIGGER_PATTERN, "(?:a(?=b)|(x))[\\s\\S]{3}\""},
        {QN_TRIGGER_PATTERN, "^a|t>$"},
        {QN_TRIGGER_PATTERN, "^[^<]*(<t)[\\s\\S]*$"},
        {QN_TRIGGER_PATTERN_FULL, "[\\s\\S]*?(<t)[\\s\\S]*"},
        {QN_TRIGGER_PATTERN_FULL, "[\\s\\S]*?(?:x|(t>))[\\s\\S]*?"},
        {QN_TRIGGER_PATTERN_FULL, "(a|b)+<*(t?)"},
        {QN_TRIGGER_PATTERN_FULL, "a*|[^t]*t/"},
        {QN_TRIGGER_PATTERN_FULL, "b\\$"},
    };
    qn_test_random r = {7};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qn_triggers *t = make(cases[i].kind, cases[i].text);
        for (int round = 0; round < 400; round++) {
            compare(cases[i].text, t, t, &r);
        }
        qn__triggers_free(t);
    }
}

/* With brackets around what is before it, an expression is not searched for. */
static void test_whole_texts(void **state)
{
    (void)state;
    static const char *const inner[] = {
        "(<t)", "<(t?)>", "x(?:a|(b))", "[]<[]t", "(a)\\|", "\\[t", "(?=<t)", "(t)$", "^(a)",
    };
    qn_test_random r = {8};
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        char a[64], b[64];
        snprintf(a, sizeof a, "[\\s\\S]*?%s[\\s\\S]*", inner[i]);
        snprintf(b, sizeof b, "(?:[\\s\\S]*?)%s[\\s\\S]*", inner[i]);
        qn_triggers *t = make(QN_TRIGGER_PATTERN_FULL, a);
        qn_triggers *other = make(QN_TRIGGER_PATTERN_FULL, b);
        for (int round = 0; round < 300; round++) {
            compare(inner[i], t, other, &r);
        }
        qn__triggers_free(t);
        qn__triggers_free(other);
    }
    /* what looks like an end may be none */
    static const char *const special[] = {
        "[\\s\\S]*?a|b[\\s\\S]*",
        "[\\s\\S]*?a\\[\\s\\S]*",
        "[\\s\\S]*?(a[\\s\\S]*",
        "[\\s\\S]*?[a[\\s\\S]*",
    };
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        const qn_trigger trigger = {.kind = QN_TRIGGER_PATTERN_FULL, .text = special[i]};
        qn_triggers *t = NULL;
        if (qn__triggers_make(&trigger, 1, &t, &err) == QN_OK) {
            for (int round = 0; round < 100; round++) {
                compare(special[i], t, t, &r);
            }
            qn__triggers_free(t);
        } else {
            assert_null(t);
        }
    }
}

/* A token that fires but does not fit is refused: the search goes on as if it had not been there. A
 * copy goes on where the original is. */
static void test_matchers(void **state)
{
    (void)state;
    const qn_trigger trigger = {.kind = QN_TRIGGER_PATTERN, .text = "<[a-z]*(<t.)"};
    qn_grammar_options o = {.root = "root", .lazy = true, .triggers = &trigger, .n_triggers = 1};
    static const char text[] = "root ::= \"<t>\" [a-z]*";
    qn_grammar *g = NULL;
    qn_matcher *m = NULL, *copy = NULL;
    qn_test_ok(qn_grammar_parse(text, strlen(text), NULL, &o, &g, &err), err);
    qn_test_ok(qn_matcher_make(g, &m, &err), err);
    for (int round = 0; round < 2; round++) {
        qn_test_ok(qn_matcher_accept_text(m, "some <abc<", 10, &err), err);
        qn_test_ok(qn_matcher_accept_text(m, "t", 1, &err), err);
        assert_int_equal(qn_matcher_accept_text(m, "x", 1, &err), QN_ERR_FORMAT);
        assert_true(qn_matcher_is_waiting(m));
        qn_test_ok(qn_matcher_clone(m, &copy, &err), err);
        qn_test_ok(qn_matcher_accept_text(m, ">a", 2, &err), err);
        assert_false(qn_matcher_is_waiting(m));
        assert_true(qn_matcher_is_waiting(copy));
        assert_int_equal(qn_matcher_accept_text(m, "1", 1, &err), QN_ERR_FORMAT);
        qn_test_ok(qn_matcher_accept_text(copy, ">b", 2, &err), err);
        assert_false(qn_matcher_is_waiting(copy));
        qn_matcher_free(copy);
        qn_matcher_reset(m);
    }
    qn_matcher_free(m);
    qn_grammar_free(g);
}

/* Searches of a text of 2 MB, token by token, would take hours if each began at its beginning. */
static void test_long_text(void **state)
{
    (void)state;
    enum { SIZE = 2 << 20, STEP = 4 };
    qn_triggers *t = make(QN_TRIGGER_PATTERN_FULL, "[\\s\\S]*?(<tool>)[\\s\\S]*");
    qn_test_random r = {1};
    char *text = malloc(SIZE);
    assert_non_null(text);
    random_text(&r, text, SIZE);
    size_t from[2] = {0}, start = 0, size = STEP;
    memcpy(text + SIZE - 16, "<tool>", 6);
    while (size < SIZE && !fires(t, from, text, size, &start)) {
        size += STEP;
    }
    assert_int_equal(start, SIZE - 16);
    assert_true(size < SIZE);
    free(text);
    qn__triggers_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_incremental),
        cmocka_unit_test(test_whole_texts),
        cmocka_unit_test(test_matchers),
        cmocka_unit_test(test_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
