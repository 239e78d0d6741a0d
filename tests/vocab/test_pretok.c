/* test_pretok.c: the splits of every pattern set, recorded and by hand; the table of names. */
#include "support/vocab_data.h"

#include "vocab/pretok.h"

typedef struct lines {
    json_t *items[512];
    size_t count;
} lines;

static void keep(json_t *line, size_t number, void *user)
{
    (void)number;
    lines *l = user;
    assert_true(l->count < 512);
    l->items[l->count++] = json_incref(line);
}

static void release(lines *l)
{
    for (size_t i = 0; i < l->count; i++) {
        json_decref(l->items[i]);
    }
    l->count = 0;
}

static void end_run(qn_run *run)
{
    for (int i = 0; i < QN_SCRATCH_COUNT; i++) {
        free(run->scratch[i].data);
    }
    qn__regex_run_free(run->regex);
}

/* Lengths of the segments of a text into `out`; how many there are. */
static size_t split(const qn_pretok *p, const char *text, size_t size, size_t out[], size_t room)
{
    qn_error err = {0};
    qn_run run = {.err = &err};
    uint32_t *points;
    size_t n = 0;
    const uint32_t *ends = NULL;
    size_t count = 0;
    if (size > 0) {
        qn_test_ok(qn__pretok_decode(&run, text, size, &points, &n), err);
        qn_test_ok(qn__pretok_run(p, &run, points, n, &ends, &count), err);
    }
    for (size_t i = 0; i < count && i < room; i++) {
        out[i] = ends[i] - (i > 0 ? ends[i - 1] : 0);
    }
    assert_true(count == 0 ? n == 0 : ends[count - 1] == n);
    end_run(&run);
    return count;
}

/* One set against its recorded file; the number of lines that differ. */
static size_t check_set(const char *name, const char *path, const lines *inputs)
{
    lines expected = {.count = 0};
    size_t wrong = 0;
    qn_error err = {0};
    qn_pretok *p = NULL;
    qn_test_ok(qn__pretok_make(name, &p, &err), err);
    qn_test_json_lines(path, keep, &expected);
    assert_int_equal(expected.count, inputs->count);
    for (size_t i = 0; i < inputs->count; i++) {
        if (!json_is_array(expected.items[i])) {
            continue;
        }
        size_t size;
        char *text =
            qn_test_json_bytes(inputs->items[i], json_object_get(inputs->items[i], "hex"), &size);
        size_t got[4096];
        size_t count = split(p, text, size, got, 4096);
        bool same = count == json_array_size(expected.items[i]);
        for (size_t k = 0; same && k < count; k++) {
            same = (size_t)json_integer_value(json_array_get(expected.items[i], k)) == got[k];
        }
        if (!same) {
            printf("set %s, line %zu: other segments\n", name, i + 1);
            wrong++;
        }
        free(text);
    }
    release(&expected);
    qn__pretok_free(p);
    return wrong;
}

static void recorded_splits(void **state)
{
    (void)state;
    const char *cases = qn_test_shared("tokenizer-cases.txt");
    const char *fuzz = qn_test_shared("pretokenizer-fuzz.txt");
    if (!cases || !fuzz) {
        qn_test_skip("no recorded data");
    }
    lines inputs = {.count = 0};
    qn_test_json_lines(cases, keep, &inputs);
    qn_test_json_lines(fuzz, keep, &inputs);
    assert_int_equal(inputs.count, 333);
    size_t wrong = 0;
    size_t sets = 0;
    const qn_pre_row *row;
    const char *seen[128];
    for (size_t i = 0; (row = qn__pre_at(i)); i++) {
        bool again = false;
        for (size_t k = 0; k < sets; k++) {
            again = again || strcmp(seen[k], row->set) == 0;
        }
        if (again) {
            continue;
        }
        seen[sets++] = row->set;
        char file[128];
        snprintf(file, sizeof file, "pretokenizer-expected/%s.jsonl", row->set);
        const char *path = qn_test_shared(file);
        assert_non_null(path);
        wrong += check_set(row->set, path, &inputs);
    }
    release(&inputs);
    assert_int_equal(sets, 31);
    assert_int_equal(wrong, 0);
}

/* The names and their flags against the recorded table. */
static void recorded_names(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        unsigned flag;
    } flags[] = {
        {"ignore_merges", QN_PRE_IGNORE_MERGES}, {"clean_spaces", QN_PRE_CLEAN},
        {"add_bos_default", QN_PRE_BOS},         {"add_sep_default", QN_PRE_SEP},
        {"escape_whitespace", QN_PRE_ESCAPE},    {"force_add_bos", QN_PRE_FORCE_BOS},
        {"newline_run_lookup", QN_PRE_NEWLINES}, {"bos_default_none", QN_PRE_NO_BOS_ID},
        {"merges_optional", QN_PRE_NO_MERGES},
    };
    const char *path = qn_test_shared("pretokenizers.json");
    if (!path) {
        qn_test_skip("no recorded data");
    }
    json_error_t why;
    json_t *whole = json_load_file(path, 0, &why);
    assert_non_null(whole);
    const char *name;
    json_t *value;
    size_t names = 0;
    json_object_foreach(json_object_get(whole, "pre"), name, value)
    {
        if (name[0] == '\0') {
            continue; /* a missing name: the loader's business */
        }
        const qn_pre_row *row = qn__pre_find(name, strlen(name));
        assert_non_null(row);
        assert_string_equal(row->set, json_string_value(json_object_get(value, "set")));
        for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
            assert_int_equal((row->flags & flags[i].flag) != 0,
                             json_is_true(json_object_get(value, flags[i].key)));
        }
        bool raw = (row->flags & (QN_PRE_RAW | QN_PRE_ESCAPE)) != 0;
        assert_int_equal(!raw, json_is_true(json_object_get(value, "byte_level")));
        names++;
    }
    assert_null(qn__pre_at(names));
    json_decref(whole);
}

static void every_set_compiles(void **state)
{
    (void)state;
    const qn_pre_row *row;
    for (size_t i = 0; (row = qn__pre_at(i)); i++) {
        qn_error err = {0};
        qn_pretok *p = NULL;
        qn_test_ok(qn__pretok_make(row->set, &p, &err), err);
        size_t got[64];
        /* Whatever the set, nothing is lost: split() checks that the segments cover the text. */
        static const char text[] = "It's 1234567  caf\xC3\xA9\r\n\xFF\xE4\xB8\xAD\xE6\x96\x87 <x>";
        split(p, text, sizeof text - 1, got, 64);
        qn__pretok_free(p);
    }
    qn_error err = {0};
    qn_pretok *p = NULL;
    assert_int_equal(qn__pretok_make("no such set", &p, &err), QN_ERR_ARGUMENT);
    assert_null(qn__pre_find("no such name", 12));
    assert_null(qn__pre_find("gpt-2x", 6));
}

typedef struct hand {
    const char *set, *text, *segments; /* segments parted by | */
} hand;

static void splits_by_hand(void **state)
{
    (void)state;
    static const hand cases[] = {
        {"gpt2", "It's 12  ok\n", "It|'s| 12| | ok|\n"},
        {"gpt2", "a\tb", "a|\t|b"},
        {"llama3", "a\tb 1234", "a|\tb| |123|4"},
        {"qwen2", "x12\n\n y", "x|1|2|\n\n| y"},
        {"tiny-aya", "abc1234 56", "abc|1|234| |56"},
        {"superbpe", "1234567", "1|234|567"},
        {"superbpe", "x123456", "x|123|456"},
        {"starcoder", "x12", "x|1|2"},
        {"newlines", "a b\n\nc", "a b|\n\n|c"},
        {"whitespace", "a  b", "a|  |b"},
        {"jais2", "a       b", "a|    |  | b"},
        {"deepseek-llm", "caf\xC3\xA9 42\xE4\xB8\xAD  ", "caf|\xC3\xA9| |42|\xE4\xB8\xAD|  "},
        {"chameleon", "<sentinel:12>IMGIMGBZ", "<|sentinel|:|1|2|>|IMGIMGBZ"},
        {"kimi-k2", "\xE4\xB8\xADx's", "\xE4\xB8\xAD|x's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qn_error err = {0};
        qn_pretok *p = NULL;
        qn_test_ok(qn__pretok_make(cases[i].set, &p, &err), err);
        size_t got[64];
        size_t count = split(p, cases[i].text, strlen(cases[i].text), got, 64);
        char joined[256] = "";
        const char *at = cases[i].text;
        for (size_t k = 0; k < count; k++) {
            strcat(joined, k > 0 ? "|" : "");
            for (size_t points = got[k]; points > 0; points--) {
                do {
                    strncat(joined, at++, 1);
                } while (((uint8_t)*at & 0xC0) == 0x80);
            }
        }
        assert_string_equal(joined, cases[i].segments);
        qn__pretok_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_splits),
        cmocka_unit_test(recorded_names),
        cmocka_unit_test(every_set_compiles),
        cmocka_unit_test(splits_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
