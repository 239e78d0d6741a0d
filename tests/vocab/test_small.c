/* test_small.c: every tokenizer model on a small vocabulary, with ids worked out by hand. */
#include "support/support.h"

#include "support/small_vocab.h"

#include <pthread.h>

enum { AROUND = QN_TOKENIZE_ADD_SPECIAL, PARSE = QN_TOKENIZE_PARSE_SPECIAL };

static qn_vocab *load(const char *name)
{
    qn_error err = {0};
    qn_vocab *vocab = NULL;
    qn_test_ok(small_vocab_load(small_vocab_writer(name), &vocab, &err), err);
    return vocab;
}

typedef struct sample {
    const char *text;
    unsigned flags;
    int32_t ids[16];
    size_t count;
} sample;

#define IDS(...) {__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void check(const qn_vocab *vocab, const sample *samples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        qn_error err = {0};
        qn_tokens got = {0};
        qn_test_ok(qn_vocab_tokenize(vocab, samples[i].text, strlen(samples[i].text),
                                     samples[i].flags, &got, &err),
                   err);
        bool same = got.count == samples[i].count;
        for (size_t k = 0; same && k < got.count; k++) {
            same = got.ids[k] == samples[i].ids[k];
        }
        if (!same) {
            for (size_t k = 0; k < got.count; k++) {
                printf(" %d", (int)got.ids[k]);
            }
            fail_msg("other ids for '%s'", samples[i].text);
        }
        qn_tokens_free(&got);
    }
}

#define CHECK(vocab, samples) check(vocab, samples, sizeof samples / sizeof samples[0])

/* Detokenizes and compares. */
static void shows(const qn_vocab *vocab, const int32_t *ids, size_t n, unsigned flags,
                  const char *text)
{
    char got[128];
    size_t size = 0;
    qn_error err = {0};
    qn_test_ok(qn_vocab_detokenize(vocab, ids, n, flags, got, sizeof got - 1, &size, &err), err);
    assert_true(size < sizeof got);
    got[size] = '\0';
    assert_string_equal(got, text);
}

#define SHOWS(vocab, flags, text, ...)                                                             \
    shows(vocab, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),     \
          flags, text)

static void spm(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"ab", 0, IDS(6, 5)}, /* "_a" (-1) goes before "ab" (-2) */
        {"ab", AROUND, IDS(1, 6, 5)},
        {"", AROUND, IDS(1)},
        {"\xC3\xA9\n", 0, IDS(3, 9, 0, 8)}, /* one byte has a token, one has not: unknown */
        {"a[X]b", 0, IDS(6, 10, 3, 5)},     /* text behind a token gets a space in front */
        {"ab</s>", PARSE, IDS(6, 5, 2)},
        {"a</s>", 0, IDS(6, 0, 0, 0, 0)},
        {"bab", 0, IDS(3, 11, 5)}, /* "ba" and "ab" tie: the left one */
    };
    qn_vocab *v = load("spm");
    CHECK(v, samples);
    assert_int_equal(qn_vocab_get_kind(v), QN_VOCAB_SPM);
    assert_int_equal(qn_vocab_size(v), 12);
    assert_int_equal(qn_vocab_special(v, QN_ROLE_NEWLINE), 8);
    assert_int_equal(qn_vocab_special(v, QN_ROLE_EOS), 2);
    assert_int_equal(qn_vocab_special(v, QN_ROLE_SEP), -1);
    assert_true(qn_vocab_is_end(v, 2));
    assert_true(qn_vocab_is_control(v, 1));
    assert_true(qn_vocab_add_bos(v));
    assert_false(qn_vocab_add_eos(v));
    assert_true(qn_vocab_score(v, 7) == -2.0F);
    assert_int_equal(qn_vocab_find(v, "ab", 2), 7);
    assert_int_equal(qn_vocab_find(v, "abc", 3), -1);
    SHOWS(v, 0, "ab", 6, 5);
    SHOWS(v, QN_DETOKENIZE_REMOVE_SPECIAL, " ab", 1, 6, 5); /* the space stays behind a BOS */
    SHOWS(v, QN_DETOKENIZE_UNPARSE_SPECIAL, "<s> ab", 1, 6, 5);
    SHOWS(v, 0, "\xC3\n[X]", 9, 8, 10);
    qn_vocab_free(v);
}

static void bpe(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"ab ab\n", 0, IDS(4, 5, 7)},
        {"bc", 0, IDS(1, 2)},  /* merged to "bc", which is no token: its bytes */
        {"axb", 0, IDS(0, 1)}, /* bytes without a token vanish */
        {"ab<|endoftext|>", PARSE, IDS(4, 6)},
        {"abcab", 0, IDS(0, 9)}, /* "bcab" is longer than "abc", though it starts later */
        {"abcabc", 0, IDS(0, 9, 2)},
        {"abcaabc", 0, IDS(8, 0, 8)},
    };
    qn_vocab *v = load("bpe");
    CHECK(v, samples);
    assert_int_equal(qn_vocab_special(v, QN_ROLE_NEWLINE), 7);
    assert_int_equal(qn_vocab_special(v, QN_ROLE_EOT), 6); /* by its text */
    assert_int_equal(qn_vocab_special(v, QN_ROLE_BOS), -1);
    assert_true(qn_vocab_is_end(v, 6));
    SHOWS(v, 0, "ab ab\n", 4, 5, 7, 6);
    SHOWS(v, 0, "ab.", 4, 3, 10); /* the space before a mark goes */
    qn_vocab_free(v);
}

static void raw_bpe(void **state)
{
    (void)state;
    static const sample samples[] = {
        {" ab\n\n", 0, IDS(4, 3, 8)},
        {"\n\n\n", 0, IDS(7, 7, 7)},
        {"\xC3\xA9", 0, IDS(5, 6)},
        {"a", AROUND, IDS(0, 2)}, /* BOS is forced for this model */
    };
    qn_vocab *v = load("raw");
    CHECK(v, samples);
    SHOWS(v, 0, " a\n\xC3\xA9", 4, 7, 5, 6);
    qn_vocab_free(v);
}

static void wpm(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"Hello, CAF\xC3\x89", AROUND, IDS(1, 4, 5, 7, 8, 9, 2)},
        {"hex", 0, IDS(0)}, /* a word that is not covered is unknown as a whole */
        {"he\xE4\xB8\xADhe", 0, IDS(6, 10, 6)},
        {" [MASK] he", PARSE, IDS(3, 6)},
    };
    qn_vocab *v = load("wpm");
    CHECK(v, samples);
    SHOWS(v, 0, " hello, cafe", 4, 5, 7, 8, 9);
    qn_vocab_free(v);
}

static void ugm(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"ab", AROUND, IDS(3, 7, 1)},                       /* -2 - 4 is more than -3.5 - 3 */
        {" a  b ", 0, IDS(6, 3, 5)},  {"qq", 0, IDS(3, 2)}, /* unknown text in a row is one token */
        {"A-b", 0, IDS(3, 7)},                              /* by the charsmap */
        {"axyb", 0, IDS(6, 8, 3, 5)}, {" ", 0, {0}, 0},
    };
    qn_vocab *v = load("ugm");
    CHECK(v, samples);
    SHOWS(v, QN_DETOKENIZE_REMOVE_SPECIAL, "ab", 3, 7, 1);
    qn_vocab_free(v);
}

static void rwkv(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"abcd", AROUND, IDS(6)},
        {"abc\n\xC3\xA9\\", 0, IDS(2, 0, 3, 4, 5)},
    };
    qn_vocab *v = load("rwkv");
    CHECK(v, samples);
    assert_int_equal(qn_vocab_special(v, QN_ROLE_NEWLINE), 3);
    SHOWS(v, 0, "ab\n\xC3\xA9\\", 2, 3, 4, 5);
    qn_vocab_free(v);
}

static void plamo2(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"abb", 0, IDS(6, 5)},
        {"bab", 0, IDS(5, 6)}, /* 10000 + 15000 is less than 90000 */
        {"\xEF\xBB\xBF"
         "ab",
         0, IDS(6)},
        {"\xC3\xA9", 0, IDS(8 + 0xC3, 8 + 0xA9)},
    };
    qn_vocab *v = load("plamo2");
    CHECK(v, samples);
    SHOWS(v, 0, "ab\xC3\xA9", 6, 8 + 0xC3, 8 + 0xA9);
    qn_vocab_free(v);
}

static void hybriddna(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"ab<dna>acgtacgg</dna>b", 0, IDS(2, 4, 6, 7, 5, 1)},
        {"<dna>NNNNNN", 0, IDS(4, 3)},
        {"<dna></dna><dna>", 0, IDS(4, 5, 4)},
    };
    qn_vocab *v = load("hybriddna");
    CHECK(v, samples);
    assert_string_equal(qn_vocab_text(v, 6, NULL), "ACGTAC");
    SHOWS(v, 0, "<dna>ACGTAC", 4, 6);
    qn_vocab_free(v);
}

static void whitespace(void **state)
{
    (void)state;
    static const sample samples[] = {
        {"AB\tb ", 0, IDS(2, 1)}, {"\xC3\x80", 0, IDS(3)}, /* small: C3 A0; A0 has no token */
    };
    qn_vocab *v = load("whitespace");
    CHECK(v, samples);
    qn_vocab_free(v);
}

static void test_and_none(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = load("test");
    uint64_t first = 0;
    for (const char *c = "abcde"; *c; c++) {
        first = first * 31 + (uint8_t)*c;
    }
    sample samples[] = {{"abcdef", 0, {(int32_t)(first % 3), 'f' % 3}, 2}};
    CHECK(v, samples);
    SHOWS(v, 0, "120", 1, 2, 0);
    qn_vocab_free(v);
    v = load("none");
    assert_int_equal(qn_vocab_size(v), 5);
    qn_tokens got = {0};
    assert_int_equal(qn_vocab_tokenize(v, "a", 1, 0, &got, &err), QN_ERR_UNSUPPORTED);
    SHOWS(v, 0, "", 1, 4);
    assert_int_equal(qn_vocab_find(v, "a", 1), -1);
    qn_vocab_free(v);
}

/* ---- Special tokens -------------------------------------------------------------------------- */

static void whitespace_is_stripped(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = NULL;
    qn_gguf_writer *w = small_vocab_writer("spm");
    qn_gguf_writer_set_str(w, "general.name", "My Phi-3");
    qn_test_ok(small_vocab_load(w, &v, &err), err);
    static const sample right[] = {
        {"a[X] \n b", 0, IDS(6, 10, 3, 5)}, /* [X] swallows what follows */
        {"a<s> b", PARSE, IDS(6, 1, 3, 3, 5)},
    };
    CHECK(v, right);
    qn_vocab_free(v);
    w = small_vocab_writer("wpm");
    qn_gguf_writer_set_str(w, "general.name", "modern-bert");
    qn_test_ok(small_vocab_load(w, &v, &err), err);
    assert_true(qn_vocab_attributes(v, 3) & QN_TOKEN_LSTRIP);
    qn_vocab_free(v);
}

static void markers_and_ends(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = NULL;
    qn_gguf_writer *w = small_vocab_writer("test");
    static const char *const texts[] = {"<|end|>", "<|return|>", "<|call|>", "<|channel|>",
                                        "</s>",    "<tool>",     "x"};
    qn_gguf_text tokens[7];
    int32_t types[7] = {3, 3, 3, 3, 1, 3, 1};
    for (int i = 0; i < 7; i++) {
        tokens[i] = (qn_gguf_text){texts[i], strlen(texts[i])};
    }
    qn_gguf_writer_set_texts(w, "tokenizer.ggml.tokens", tokens, 7);
    qn_gguf_writer_set_array(w, "tokenizer.ggml.token_type", QN_GGUF_I32, types, 7);
    qn_gguf_writer_remove(w, "tokenizer.ggml.scores");
    qn_gguf_writer_set_u32(w, "tokenizer.ggml.eos_token_id", 5);
    qn_gguf_writer_set_u32(w, "tokenizer.ggml.padding_token_id", 99); /* too large: ignored */
    int32_t suppressed[3] = {6, -1, 99};
    qn_gguf_writer_set_array(w, "tokenizer.ggml.suppress_tokens", QN_GGUF_I32, suppressed, 3);
    qn_test_ok(small_vocab_load(w, &v, &err), err);
    assert_false(qn_vocab_is_end(v, 0)); /* not with <|return|> and <|call|> */
    assert_int_equal(qn_vocab_attributes(v, 0), QN_TOKEN_USER_DEFINED);
    assert_true(qn_vocab_is_end(v, 1) && qn_vocab_is_end(v, 2) && qn_vocab_is_end(v, 5));
    assert_int_equal(qn_vocab_attributes(v, 3), QN_TOKEN_USER_DEFINED);
    assert_true(qn_vocab_is_control(v, 4)); /* looks like one */
    assert_int_equal(qn_vocab_special(v, QN_ROLE_PAD), -1);
    size_t count = 0;
    const int32_t *ids = qn_vocab_suppressed(v, &count);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], 6);
    qn_vocab_free(v);
}

/* ---- The interface --------------------------------------------------------------------------- */

static void streams_whole_characters(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = load("plamo2");
    qn_detokenizer *d = NULL;
    qn_test_ok(qn_detokenizer_make(v, false, &d, &err), err);
    size_t n;
    assert_memory_equal(qn_detokenizer_add(d, 4, &n), "a", 1);
    assert_int_equal(n, 1);
    qn_detokenizer_add(d, 8 + 0xF0, &n);
    assert_int_equal(n, 0);
    qn_detokenizer_add(d, 8 + 0x9F, &n);
    assert_int_equal(n, 0);
    qn_detokenizer_add(d, 8 + 0x99, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(qn_detokenizer_add(d, 8 + 0x82, &n), "\xF0\x9F\x99\x82", 4);
    assert_int_equal(n, 4);
    qn_detokenizer_add(d, 8 + 0xC3, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(qn_detokenizer_add(d, 5, &n),
                        "\xC3"
                        "b",
                        2); /* can never become valid */
    assert_int_equal(n, 2);
    qn_detokenizer_add(d, 1, &n); /* control: not shown */
    assert_int_equal(n, 0);
    qn_detokenizer_add(d, 8 + 0xE4, &n);
    qn_detokenizer_add(d, -7, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(qn_detokenizer_finish(d, &n), "\xE4", 1);
    assert_int_equal(n, 1);
    qn_detokenizer_finish(d, &n);
    assert_int_equal(n, 0);
    qn_detokenizer_free(d);
    qn_vocab_free(v);
}

static void buffers_of_the_caller(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = load("spm");
    int32_t ids[2] = {-5, -5};
    size_t count = 0;
    qn_test_ok(qn_vocab_tokenize_into(v, "ab", 2, AROUND, NULL, 0, &count, &err), err);
    assert_int_equal(count, 3);
    qn_test_ok(qn_vocab_tokenize_into(v, "ab", 2, AROUND, ids, 2, &count, &err), err);
    assert_int_equal(count, 3);
    assert_int_equal(ids[1], 6);
    char text[1];
    size_t size = 0;
    qn_test_ok(qn_vocab_detokenize(v, ids, 2, 0, text, 1, &size, &err), err);
    assert_int_equal(size, 2); /* " a": nothing is stripped behind the hidden BOS */
    assert_int_equal(text[0], ' ');
    int32_t wrong = 99;
    assert_int_equal(qn_vocab_detokenize(v, &wrong, 1, 0, text, 1, &size, &err), QN_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "99"));
    assert_null(qn_vocab_piece(v, 12, true, &size));
    assert_null(qn_vocab_text(v, -1, &size));
    assert_false(qn_vocab_is_end(v, 1000));
    qn_tokens tokens = {0};
    qn_test_ok(qn_tokens_add(&tokens, ids, 2, &err), err);
    qn_test_ok(qn_vocab_tokenize(v, "a\0b", 3, 0, &tokens, &err), err); /* NUL is text */
    assert_int_equal(tokens.count, 5);
    qn_tokens_free(&tokens);
    qn_vocab_free(v);
}

#define THREADS 4
#define TURNS   200

typedef struct worker {
    const qn_vocab *vocab;
    uint64_t sum; /* of all ids of all turns */
    bool failed;
} worker;

static void *tokenize_often(void *user)
{
    worker *w = user;
    static const char text[] = "ab[X]ab Hello, caf\xC3\xA9\n</s><dna>acgt</dna> ab";
    for (int turn = 0; turn < TURNS; turn++) {
        qn_tokens got = {0};
        size_t size = 1 + (size_t)turn % (sizeof text - 1);
        w->failed |= qn_vocab_tokenize(w->vocab, text, size, PARSE, &got, NULL) != QN_OK;
        for (size_t i = 0; i < got.count; i++) {
            w->sum = w->sum * 31 + (uint64_t)got.ids[i];
        }
        qn_tokens_free(&got);
    }
    return NULL;
}

/* One vocabulary, several threads: the same ids for all. */
static void threads_share(void **state)
{
    (void)state;
    static const char *const names[] = {"spm", "bpe", "raw", "wpm", "ugm", "plamo2", "hybriddna"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        qn_vocab *v = load(names[i]);
        worker workers[THREADS] = {{0}};
        pthread_t threads[THREADS];
        for (int t = 0; t < THREADS; t++) {
            workers[t].vocab = v;
            assert_int_equal(pthread_create(&threads[t], NULL, tokenize_often, &workers[t]), 0);
        }
        for (int t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
            assert_false(workers[t].failed);
            assert_true(workers[t].sum == workers[0].sum);
        }
        qn_vocab_free(v);
    }
}

static void missing_tokens_are_errors(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = NULL;
    qn_gguf_writer *w = small_vocab_writer("bpe");
    qn_gguf_writer_set_bool(w, "tokenizer.ggml.add_bos_token", true);
    qn_test_ok(small_vocab_load(w, &v, &err), err);
    qn_tokens got = {0};
    assert_int_equal(qn_vocab_tokenize(v, "ab", 2, AROUND, &got, &err), QN_ERR_NOT_FOUND);
    assert_int_equal(got.count, 0);
    qn_test_ok(qn_vocab_tokenize(v, "ab", 2, 0, &got, &err), err);
    qn_tokens_free(&got);
    qn_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm),
        cmocka_unit_test(bpe),
        cmocka_unit_test(raw_bpe),
        cmocka_unit_test(wpm),
        cmocka_unit_test(ugm),
        cmocka_unit_test(rwkv),
        cmocka_unit_test(plamo2),
        cmocka_unit_test(hybriddna),
        cmocka_unit_test(whitespace),
        cmocka_unit_test(test_and_none),
        cmocka_unit_test(whitespace_is_stripped),
        cmocka_unit_test(markers_and_ends),
        cmocka_unit_test(streams_whole_characters),
        cmocka_unit_test(buffers_of_the_caller),
        cmocka_unit_test(threads_share),
        cmocka_unit_test(missing_tokens_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
