/*
 * test_long_slow.c: texts of 1 MiB. The recorded ones are compared by hash; on others the time is
 * compared with that of half the text, so that nothing may be quadratic, and is bounded.
 */
#include "support/vocab_data.h"

#include "vocab/pretok.h"

#include <time.h>

#define MEGABYTE ((size_t)1 << 20)

static const char *const names[] = {"bert-bge",       "deepseek-llm", "gemma-4",
                                    "gpt-2",          "llama-bpe",    "llama-spm",
                                    "nomic-bert-moe", "syn-plamo2",   "syn-rwkv"};

typedef struct recorded {
    qn_vocab *vocab;
    char name[64];
    size_t lines;
} recorded;

static char *repeat(const char *unit, size_t unit_size, size_t count)
{
    char *text = malloc(unit_size * count + 1);
    for (size_t i = 0; i < count; i++) {
        memcpy(text + i * unit_size, unit, unit_size);
    }
    return text;
}

static void check_hash(json_t *line, size_t number, void *user)
{
    recorded *r = user;
    const char *name = json_string_value(json_object_get(line, "vocab"));
    if (strcmp(name, r->name) != 0) {
        qn_vocab_free(r->vocab);
        r->vocab = qn_test_vocab(name);
        assert_non_null(r->vocab);
        snprintf(r->name, sizeof r->name, "%s", name);
    }
    size_t unit_size;
    char *unit = qn_test_json_bytes(json_object_get(line, "unit"), NULL, &unit_size);
    size_t count = (size_t)json_integer_value(json_object_get(line, "count"));
    char *text = repeat(unit, unit_size, count);
    unsigned flags =
        json_is_true(json_object_get(line, "parse_special")) ? QN_TOKENIZE_PARSE_SPECIAL : 0U;
    qn_error err = {0};
    qn_tokens got = {0};
    qn_test_ok(qn_vocab_tokenize(r->vocab, text, unit_size * count, flags, &got, &err), err);
    char hash[65];
    qn_test_sha256(got.ids, got.count * sizeof *got.ids, hash);
    if (got.count != (size_t)json_integer_value(json_object_get(line, "n_ids")) ||
        strcmp(hash, json_string_value(json_object_get(line, "sha256"))) != 0) {
        fail_msg("line %zu: %s, '%s' x %zu: other ids (%zu of them)", number, name, unit, count,
                 got.count);
    }
    r->lines++;
    qn_tokens_free(&got);
    free(text);
    free(unit);
}

static void recorded_runs(void **state)
{
    (void)state;
    const char *path = qn_test_shared("tokenizer-long-runs.jsonl");
    if (!path) {
        qn_test_skip("no recorded data");
    }
    recorded r = {0};
    qn_test_json_lines(path, check_hash, &r);
    assert_true(r.lines >= 100);
    qn_vocab_free(r.vocab);
}

/* Milliseconds of processor time: other work on the machine does not count. */
static double time_of(const qn_vocab *vocab, const char *text, size_t size)
{
    qn_error err = {0};
    qn_tokens got = {0};
    clock_t start = clock();
    qn_test_ok(qn_vocab_tokenize(vocab, text, size, QN_TOKENIZE_PARSE_SPECIAL, &got, &err), err);
    double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
    qn_tokens_free(&got);
    return ms;
}

static char *random_utf8(size_t size)
{
    qn_test_random r = {3};
    char *text = malloc(size + 4);
    for (size_t i = 0; i < size;) {
        uint32_t range = qn_test_bits(&r) % 4;
        uint32_t cp = range == 0   ? 0x20 + qn_test_bits(&r) % 0x5F
                      : range == 1 ? 0xA0 + qn_test_bits(&r) % 0x760
                      : range == 2 ? 0x800 + qn_test_bits(&r) % 0xD000
                                   : 0x10000 + qn_test_bits(&r) % 0x20000;
        int n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
        for (int k = n - 1; k > 0; k--, cp >>= 6) {
            text[i + (size_t)k] = (char)(0x80 | (cp & 0x3F));
        }
        text[i] = (char)(lead[n] | cp);
        i += (size_t)n;
    }
    return text;
}

/* Units that are repeated to 1 MiB; the last text is no repetition. */
static const struct {
    const char *name, *unit;
} kinds[] = {
    {"letter", "a"},
    {"spaces", " "},
    {"line breaks", "\n"},
    {"CR LF", "\r\n"},
    {"digits", "7"},
    {"marks", "!"},
    {"accents", "\xCC\x81"},
    {"letters", "\xC3\xA9"},
    {"han", "\xE4\xB8\xAD"},
    {"emoji", "\xF0\x9F\x99\x82"},
    {"invalid", "\xFF"},
    {"words", "a "},
    {"less", "<"},
    {"quotes", "'s"},
    {"special", "<|endoftext|>"},
    {"padding", "<pad>"},
    {"mixed case", "aB"},
    {"random", NULL},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static char *text_of(size_t kind)
{
    const char *unit = kinds[kind].unit;
    return unit ? repeat(unit, strlen(unit), MEGABYTE / strlen(unit) + 1) : random_utf8(MEGABYTE);
}

static void every_text_is_fast(void **state)
{
    (void)state;
    if (!qn_test_shared("vocab")) {
        qn_test_skip("no recorded data");
    }
    for (size_t v = 0; v < sizeof names / sizeof names[0]; v++) {
        qn_vocab *vocab = qn_test_vocab(names[v]);
        assert_non_null(vocab);
        double worst = 0.0;
        const char *slowest = "";
        for (size_t k = 0; k < KINDS; k++) {
            char *text = text_of(k);
            double whole = time_of(vocab, text, MEGABYTE);
            if (whole > worst) {
                worst = whole;
                slowest = kinds[k].name;
            }
            if (whole > 1000.0) {
                double half = time_of(vocab, text, MEGABYTE / 2);
                printf("%s, %s: %.0f ms, half of it %.0f ms\n", names[v], kinds[k].name, whole,
                       half);
                assert_true(whole < 2.6 * half + 200.0);
                assert_true(whole < 8000.0);
            }
            free(text);
        }
        printf("%s: at most %.0f ms for 1 MiB (%s)\n", names[v], worst, slowest);
        qn_vocab_free(vocab);
    }
}

/* The pattern sets alone, so that those are measured too for which there is no vocabulary. */
static void every_set_is_fast(void **state)
{
    (void)state;
    const qn_pre_row *row;
    const char *last = "";
    for (size_t i = 0; (row = qn__pre_at(i)); i++) {
        if (strcmp(row->set, last) == 0) {
            continue; /* names of one set stand together */
        }
        last = row->set;
        qn_error err = {0};
        qn_pretok *p = NULL;
        qn_test_ok(qn__pretok_make(row->set, &p, &err), err);
        for (size_t k = 0; k < KINDS; k++) {
            char *text = text_of(k);
            qn_run run = {.err = &err};
            uint32_t *points;
            const uint32_t *ends;
            size_t n = 0;
            size_t count = 0;
            clock_t start = clock();
            qn_test_ok(qn__pretok_decode(&run, text, MEGABYTE, &points, &n), err);
            qn_test_ok(qn__pretok_run(p, &run, points, n, &ends, &count), err);
            double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
            if (ms > 500.0) {
                fail_msg("set %s, %s: %.0f ms for 1 MiB", row->set, kinds[k].name, ms);
            }
            for (int s = 0; s < QN_SCRATCH_COUNT; s++) {
                free(run.scratch[s].data);
            }
            qn__regex_run_free(run.regex);
            free(text);
        }
        qn__pretok_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_runs),
        cmocka_unit_test(every_text_is_fast),
        cmocka_unit_test(every_set_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
