/* test_recorded.c: ids and texts of every recorded vocabulary and case. */
#include "support/vocab_data.h"

#include "base/utf8.h"

static const char *const names[] = {"bert-bge",
                                    "command-r",
                                    "deepseek-coder",
                                    "deepseek-llm",
                                    "falcon",
                                    "gemma-4",
                                    "gpt-2",
                                    "llama-bpe",
                                    "llama-spm",
                                    "mpt",
                                    "nomic-bert-moe",
                                    "phi-3",
                                    "qwen2",
                                    "qwen35",
                                    "refact",
                                    "starcoder",
                                    "syn-hybriddna",
                                    "syn-hybriddna-n",
                                    "syn-plamo2",
                                    "syn-rwkv",
                                    "syn-spm-0",
                                    "syn-spm-1",
                                    "syn-ugm-a",
                                    "syn-ugm-b",
                                    "syn-ugm-c",
                                    "syn-ugm-d",
                                    "syn-whitespace-0",
                                    "syn-whitespace-1"};

typedef struct check {
    const char *name;
    const qn_vocab *vocab;
    size_t wrong, lines;
} check;

static void show(const check *c, size_t number, const char *what, const qn_tokens *got)
{
    printf("%s line %zu: %s; got", c->name, number, what);
    for (size_t i = 0; i < got->count && i < 24; i++) {
        printf(" %d", (int)got->ids[i]);
    }
    printf("\n");
}

/* What detokenizing should give: the input, or what the line says; NULL: nothing is known. */
static char *expected_text(const json_t *line, const char *input, size_t input_size, size_t *size)
{
    if (json_is_true(json_object_get(line, "round_trip"))) {
        char *copy = malloc(input_size + 1);
        memcpy(copy, input, input_size);
        *size = input_size;
        return copy;
    }
    const json_t *text = json_object_get(line, "detok");
    const json_t *hex = json_object_get(line, "detok_hex");
    return text || hex ? qn_test_json_bytes(text, hex, size) : NULL;
}

static void check_line(json_t *line, size_t number, void *user)
{
    check *c = user;
    size_t size;
    char *text =
        qn_test_json_bytes(json_object_get(line, "text"), json_object_get(line, "hex"), &size);
    bool around = json_is_true(json_object_get(line, "add_special"));
    unsigned flags =
        (around ? QN_TOKENIZE_ADD_SPECIAL : 0U) |
        (json_is_true(json_object_get(line, "parse_special")) ? QN_TOKENIZE_PARSE_SPECIAL : 0U);
    qn_error err = {0};
    qn_tokens got = {0};
    qn_test_ok(qn_vocab_tokenize(c->vocab, text, size, flags, &got, &err), err);
    const json_t *ids = json_object_get(line, "ids");
    bool same = !json_is_array(ids) || json_array_size(ids) == got.count;
    for (size_t i = 0; same && json_is_array(ids) && i < got.count; i++) {
        same = json_integer_value(json_array_get(ids, i)) == got.ids[i];
    }
    if (!same) {
        show(c, number, "other ids", &got);
    }
    size_t want_size = 0;
    char *want = expected_text(line, text, size, &want_size);
    if (want) {
        size_t have = 0;
        char *shown = malloc(want_size + 1);
        unsigned how = QN_DETOKENIZE_UNPARSE_SPECIAL | (around ? QN_DETOKENIZE_REMOVE_SPECIAL : 0U);
        qn_test_ok(
            qn_vocab_detokenize(c->vocab, got.ids, got.count, how, shown, want_size, &have, &err),
            err);
        if (have != want_size || memcmp(shown, want, have) != 0) {
            show(c, number, "other text", &got);
            same = false;
        }
        free(shown);
    }
    c->wrong += !same;
    c->lines++;
    free(want);
    free(text);
    qn_tokens_free(&got);
}

static void expected_ids(void **state)
{
    (void)state;
    size_t wrong = 0;
    if (!qn_test_shared("tokenizer-expected")) {
        qn_test_skip("no recorded data");
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[128];
        snprintf(file, sizeof file, "tokenizer-expected/%s.jsonl", names[i]);
        const char *path = qn_test_shared(file);
        assert_non_null(path);
        qn_vocab *vocab = qn_test_vocab(names[i]);
        assert_non_null(vocab);
        check c = {.name = names[i], .vocab = vocab};
        qn_test_json_lines(path, check_line, &c);
        assert_true(c.lines > 100);
        wrong += c.wrong;
        qn_vocab_free(vocab);
    }
    assert_int_equal(wrong, 0);
}

/* The ids of one text of an .inp file against its line of the .out file. */
static bool check_pair(const qn_vocab *vocab, const char *text, size_t size, const char *line)
{
    qn_error err = {0};
    qn_tokens got = {0};
    qn_test_ok(qn_vocab_tokenize(vocab, text, size, 0, &got, &err), err);
    bool same = true;
    size_t i = 0;
    for (char *end; *line && *line != '\n'; line = end, i++) {
        long id = strtol(line, &end, 10);
        same = same && i < got.count && got.ids[i] == id;
    }
    same = same && i == got.count;
    qn_tokens_free(&got);
    return same;
}

static void original_pairs(void **state)
{
    (void)state;
    static const char mark[] = "\n__ggml_vocab_test__\n";
    size_t pairs = 0;
    if (!qn_test_shared("vocab")) {
        qn_test_skip("no recorded data");
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[128];
        snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf.inp", names[i]);
        const char *inputs = qn_test_shared(file);
        snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf.out", names[i]);
        const char *outputs = qn_test_shared(file);
        if (!inputs || !outputs) {
            continue;
        }
        qn_vocab *vocab = qn_test_vocab(names[i]);
        size_t size;
        char *in = (char *)qn_test_read(inputs, &size);
        char *in_start = in;
        char *out = (char *)qn_test_read(outputs, &size);
        char *line = out;
        for (char *end; (end = strstr(in, mark)); in = end + sizeof mark - 1) {
            if (!check_pair(vocab, in, (size_t)(end - in), line)) {
                fail_msg("%s: other ids for '%.*s'", names[i], (int)(end - in), in);
            }
            pairs++;
            line += strcspn(line, "\n");
            line += *line == '\n';
        }
        free(in_start);
        free(out);
        qn_vocab_free(vocab);
    }
    assert_true(pairs >= 15 * 46);
}

/* A random text of valid UTF-8 without U+2581. */
static size_t random_text(qn_test_random *r, char *text, size_t characters)
{
    size_t n = 0;
    for (size_t i = 0; i < characters; i++) {
        static const char common[] = "aeiou tn  .,'0123\n\t<|>";
        uint32_t bits = qn_test_bits(r) >> 8;
        uint32_t cp = (uint8_t)common[bits % (sizeof common - 1)];
        switch (qn_test_bits(r) % 4) {
        case 0:
            cp = 0xA0 + bits % 0x1000;
            break;
        case 1:
            cp = 0x3000 + bits % 0x7000;
            break;
        default:
            break;
        }
        n += (size_t)qn__utf8_encode(cp, text + n);
    }
    return n;
}

/* Text to tokens and back loses nothing where the vocabulary is complete. */
static void random_round_trips(void **state)
{
    (void)state;
    static const char *const whole[] = {"gpt-2", "llama-bpe", "qwen2", "llama-spm", "deepseek-llm"};
    if (!qn_test_shared("vocab")) {
        qn_test_skip("no recorded data");
    }
    qn_test_random r = {5};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        qn_vocab *vocab = qn_test_vocab(whole[i]);
        assert_non_null(vocab);
        bool spm = qn_vocab_get_kind(vocab) == QN_VOCAB_SPM;
        for (int turn = 0; turn < 400; turn++) {
            char text[1024];
            char back[2048];
            size_t size = random_text(&r, text, 1 + qn_test_bits(&r) % 200);
            size_t got = 0;
            qn_error err = {0};
            qn_tokens tokens = {0};
            qn_test_ok(qn_vocab_tokenize(vocab, text, size, 0, &tokens, &err), err);
            for (size_t k = 0; k < tokens.count; k++) {
                size_t n;
                const char *piece = qn_vocab_piece(vocab, tokens.ids[k], true, &n);
                size_t skip = spm && k == 0; /* the space in front */
                assert_true(got + n < sizeof back);
                memcpy(back + got, piece + skip, n - skip);
                got += n - skip;
            }
            assert_int_equal(got, size);
            assert_memory_equal(back, text, size);
            qn_tokens_free(&tokens);
        }
        qn_vocab_free(vocab);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expected_ids),
        cmocka_unit_test(original_pairs),
        cmocka_unit_test(random_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
