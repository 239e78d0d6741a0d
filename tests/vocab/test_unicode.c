/* test_unicode.c: classes, case, decomposition and the lenient decoder. */
#include "support/vocab_data.h"

#include "vocab/unicode.h"

static const char letters[] = "ULNPSZMC";

static void all_classes(void **state)
{
    (void)state;
    char *text = malloc(QN_LAST_POINT + 1);
    size_t count[8] = {0};
    for (uint32_t cp = 0; cp <= QN_LAST_POINT; cp++) {
        qn_unicode_class class = qn__unicode_class_of(cp);
        text[cp] = letters[class];
        count[class]++;
    }
    char hash[65];
    qn_test_sha256(text, QN_LAST_POINT + 1, hash);
    free(text);
    assert_string_equal(hash, "324562bce6af1e99728341266d9870d9811605e6c1b9be41e9bd01b97bfbbf08");
    assert_int_equal(count[QN_CLASS_LETTER], 136726);
    assert_int_equal(count[QN_CLASS_UNASSIGNED], 824718);
    assert_int_equal(qn__unicode_class_of(0x110000), QN_CLASS_UNASSIGNED);
}

static void spaces(void **state)
{
    (void)state;
    size_t count = 0;
    for (uint32_t cp = 0; cp <= QN_LAST_POINT; cp++) {
        count += qn__unicode_is_space(cp);
    }
    assert_int_equal(count, 25);
    assert_false(qn__unicode_is_space(0x180E));
    assert_false(qn__unicode_is_space(0x200B));
    assert_true(qn__unicode_is_space(0x3000));
}

/* Compares a mapping with a table of lines "first [last] target"; all else maps to itself. */
static void compare_table(const char *name, uint32_t (*map)(uint32_t))
{
    const char *path = qn_test_shared(name);
    if (!path) {
        qn_test_skip("no recorded data");
    }
    size_t size;
    char *text = (char *)qn_test_read(path, &size);
    uint32_t *expected = malloc((QN_LAST_POINT + 1) * sizeof *expected);
    for (uint32_t cp = 0; cp <= QN_LAST_POINT; cp++) {
        expected[cp] = cp;
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned a = 0;
        unsigned b = 0;
        unsigned c = 0;
        int n = sscanf(line, "%x %x %x", &a, &b, &c);
        assert_true(n >= 2);
        unsigned last = n == 3 ? b : a;
        for (unsigned cp = a; cp <= last; cp++) {
            expected[cp] = n == 3 ? c : b;
        }
    }
    for (uint32_t cp = 0; cp <= QN_LAST_POINT; cp++) {
        if (map(cp) != expected[cp]) {
            fail_msg("%s: U+%04X gives U+%04X, not U+%04X", name, (unsigned)cp, (unsigned)map(cp),
                     (unsigned)expected[cp]);
        }
    }
    free(expected);
    free(text);
}

static void lower_case(void **state)
{
    (void)state;
    assert_int_equal(qn__unicode_lower('Z'), 'z');
    assert_int_equal(qn__unicode_lower(0x130), 'i');
    assert_int_equal(qn__unicode_lower(0x3A3), 0x3C3);
    compare_table("unicode/lower.tsv", qn__unicode_lower);
}

static void decomposition(void **state)
{
    (void)state;
    assert_int_equal(qn__unicode_nfd_first(0xE9), 'e');
    assert_int_equal(qn__unicode_nfd_first(0xAC01), 0x1100);
    assert_int_equal(qn__unicode_nfd_first(0xFB01), 0xFB01); /* a compatibility form: kept */
    compare_table("unicode/nfd-first.tsv", qn__unicode_nfd_first);
}

static void decoder_is_lenient(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size, length;
        uint32_t point;
    } cases[] = {
        {"a", 1, 1, 'a'},
        {"\xC3\xA9", 2, 2, 0xE9},
        {"\xC1\x81", 2, 2, 'A'},        /* overlong */
        {"\xED\xA0\x80", 3, 3, 0xD800}, /* a surrogate */
        {"\xC3", 1, 1, 0xFFFD},         /* cut short */
        {"\xE4\xB8 ", 3, 1, 0xFFFD},    /* broken */
        {"\x80", 1, 1, 0xFFFD},         /* no lead */
        {"\xFF", 1, 1, 0xFFFD},
        {"\xF4\x90\x80\x80", 4, 1, 0xFFFD} /* above the last code point */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t point = 0;
        assert_int_equal(qn__decode_lenient(cases[i].text, cases[i].size, QN_LAST_POINT, &point),
                         cases[i].length);
        assert_int_equal(point, cases[i].point);
    }
    uint32_t point = 0;
    assert_int_equal(qn__decode_lenient("\xF4\x90\x80\x80", 4, QN_LAST_LENIENT_POINT, &point), 4);
    assert_int_equal(point, 0x110000);
    assert_int_equal(qn__lead_length(0xF0, 2), 2);
    assert_int_equal(qn__lead_length(0xBF, 9), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_classes),        cmocka_unit_test(spaces),
        cmocka_unit_test(lower_case),         cmocka_unit_test(decomposition),
        cmocka_unit_test(decoder_is_lenient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
