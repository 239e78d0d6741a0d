/* test_damage.c: broken metadata gives one error that names file and key; odd texts do no harm. */
#include "support/support.h"

#include "support/small_vocab.h"

#define KEY(name) "tokenizer.ggml." name

static void no_model(qn_gguf_writer *w)
{
    qn_gguf_writer_remove(w, KEY("model"));
}

static void odd_model(qn_gguf_writer *w)
{
    qn_gguf_writer_set_str(w, KEY("model"), "abacus");
}

static void number_model(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u32(w, KEY("model"), 1);
}

static void odd_pre(qn_gguf_writer *w)
{
    qn_gguf_writer_set_str(w, KEY("pre"), "GPT-2");
}

static void no_tokens(qn_gguf_writer *w)
{
    qn_gguf_writer_remove(w, KEY("tokens"));
}

static void empty_tokens(qn_gguf_writer *w)
{
    qn_gguf_writer_set_texts(w, KEY("tokens"), NULL, 0);
}

static void number_tokens(qn_gguf_writer *w)
{
    int32_t numbers[2] = {1, 2};
    qn_gguf_writer_set_array(w, KEY("tokens"), QN_GGUF_I32, numbers, 2);
}

static void same_tokens(qn_gguf_writer *w)
{
    /* equal up to the zero byte, where a text ends */
    qn_gguf_text texts[3] = {{"a", 1}, {"b\0c", 3}, {"b", 1}};
    qn_gguf_writer_set_texts(w, KEY("tokens"), texts, 3);
    qn_gguf_writer_remove(w, KEY("scores"));
    qn_gguf_writer_remove(w, KEY("token_type"));
}

static void few_scores(qn_gguf_writer *w)
{
    float scores[2] = {0, 0};
    qn_gguf_writer_set_array(w, KEY("scores"), QN_GGUF_F32, scores, 2);
}

static void text_scores(qn_gguf_writer *w)
{
    qn_gguf_writer_set_str(w, KEY("scores"), "high");
}

static void few_types(qn_gguf_writer *w)
{
    int32_t types[2] = {1, 1};
    qn_gguf_writer_set_array(w, KEY("token_type"), QN_GGUF_I32, types, 2);
}

static void no_merges(qn_gguf_writer *w)
{
    qn_gguf_writer_remove(w, KEY("merges"));
}

static void text_bos(qn_gguf_writer *w)
{
    qn_gguf_writer_set_str(w, KEY("bos_token_id"), "one");
}

static void number_flag(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u32(w, KEY("add_bos_token"), 1);
}

static void text_suppressed(qn_gguf_writer *w)
{
    qn_gguf_writer_set_str(w, KEY("suppress_tokens"), "all");
}

static void short_charsmap(qn_gguf_writer *w)
{
    qn_gguf_writer_set_array(w, KEY("precompiled_charsmap"), QN_GGUF_U8, "\4\0\0", 3);
}

static void long_trie(qn_gguf_writer *w)
{
    qn_gguf_writer_set_array(w, KEY("precompiled_charsmap"), QN_GGUF_U8, "\xFF\xFF\xFF\xFF    a",
                             9);
}

static void float_charsmap(qn_gguf_writer *w)
{
    float x[4] = {0};
    qn_gguf_writer_set_array(w, KEY("precompiled_charsmap"), QN_GGUF_F32, x, 4);
}

static void no_byte_tokens(qn_gguf_writer *w)
{
    qn_gguf_text texts[2] = {{"a", 1}, {"<0x00>", 6}};
    int32_t types[2] = {1, 6};
    qn_gguf_writer_set_texts(w, KEY("tokens"), texts, 2);
    qn_gguf_writer_set_array(w, KEY("token_type"), QN_GGUF_I32, types, 2);
}

static void no_newline(qn_gguf_writer *w)
{
    qn_gguf_text texts[2] = {{"a", 1}, {"b", 1}};
    qn_gguf_writer_set_texts(w, KEY("tokens"), texts, 2);
    qn_gguf_writer_remove(w, KEY("unknown_token_id"));
}

static void many_nameless(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u32(w, "small.vocab_size", 0xFFFFFFFF);
}

typedef struct damage {
    const char *vocab;
    void (*change)(qn_gguf_writer *w);
    qn_status status;
    const char *names; /* what the message has in it, beside the file */
} damage;

static void every_damage_is_named(void **state)
{
    (void)state;
    static const damage cases[] = {
        {"spm", no_model, QN_ERR_NOT_FOUND, KEY("model")},
        {"spm", odd_model, QN_ERR_UNSUPPORTED, "abacus"},
        {"spm", number_model, QN_ERR_FORMAT, KEY("model")},
        {"bpe", odd_pre, QN_ERR_UNSUPPORTED, "GPT-2"},
        {"spm", no_tokens, QN_ERR_NOT_FOUND, KEY("tokens")},
        {"bpe", empty_tokens, QN_ERR_FORMAT, KEY("tokens")},
        {"wpm", number_tokens, QN_ERR_FORMAT, KEY("tokens")},
        {"spm", same_tokens, QN_ERR_FORMAT, "tokens 1 and 2"},
        {"spm", few_scores, QN_ERR_FORMAT, KEY("scores")},
        {"spm", text_scores, QN_ERR_FORMAT, KEY("scores")},
        {"bpe", few_types, QN_ERR_FORMAT, KEY("token_type")},
        {"bpe", no_merges, QN_ERR_NOT_FOUND, KEY("merges")},
        {"raw", no_merges, QN_ERR_NOT_FOUND, KEY("merges")},
        {"spm", text_bos, QN_ERR_FORMAT, KEY("bos_token_id")},
        {"wpm", number_flag, QN_ERR_FORMAT, KEY("add_bos_token")},
        {"spm", text_suppressed, QN_ERR_FORMAT, KEY("suppress_tokens")},
        {"ugm", short_charsmap, QN_ERR_FORMAT, KEY("precompiled_charsmap")},
        {"ugm", long_trie, QN_ERR_FORMAT, KEY("precompiled_charsmap")},
        {"ugm", float_charsmap, QN_ERR_FORMAT, KEY("precompiled_charsmap")},
        {"plamo2", no_byte_tokens, QN_ERR_FORMAT, "<0x01>"},
        {"rwkv", no_newline, QN_ERR_FORMAT, KEY("tokens")},
        {"none", many_nameless, QN_ERR_LIMIT, "small.vocab_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qn_gguf_writer *w = small_vocab_writer(cases[i].vocab);
        cases[i].change(w);
        qn_error err = {0};
        qn_vocab *vocab = NULL;
        qn_status status = small_vocab_load(w, &vocab, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].names) ||
            !strstr(err.message, "small.gguf")) {
            fail_msg("case %zu: %s: %s", i, qn_status_name(status), err.message);
        }
        assert_null(vocab);
    }
}

/* Metadata that is odd but can be used. */
static void oddities_load(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_vocab *v = NULL;
    qn_gguf_writer *w = small_vocab_writer("bpe");
    qn_gguf_text merges[] = {{"ab", 2},    {"", 0},    {" a b", 4}, {"a ", 2},
                             {"a b c", 5}, {"a b", 3}, {"a b", 3}};
    qn_gguf_writer_set_texts(w, KEY("merges"), merges, 7);
    int32_t scores[11] = {1, 2, 3};
    qn_gguf_writer_set_array(w, KEY("scores"), QN_GGUF_I32, scores, 11);
    qn_test_ok(small_vocab_load(w, &v, &err), err);
    assert_true(qn_vocab_score(v, 2) == 3.0F);
    int32_t id = -1;
    size_t count = 0;
    qn_test_ok(qn_vocab_tokenize_into(v, "ab", 2, 0, &id, 1, &count, &err), err);
    assert_int_equal(count, 1);
    assert_int_equal(id, 4);
    qn_vocab_free(v);

    w = small_vocab_writer("spm");
    qn_gguf_text tokens[] = {{"", 0}, {"\0x", 2}, {"x", 1}};
    float nan_scores[3] = {0};
    uint32_t worst = 0xFFFFFFFF;
    memcpy(&nan_scores[2], &worst, 4);
    qn_gguf_writer_set_texts(w, KEY("tokens"), tokens, 3);
    qn_gguf_writer_set_array(w, KEY("scores"), QN_GGUF_F32, nan_scores, 3);
    qn_test_ok(small_vocab_load(w, &v, &err), err);
    assert_string_equal(qn_vocab_text(v, 0, NULL), "[EMPTY_0]");
    assert_string_equal(qn_vocab_text(v, 1, NULL), "[EMPTY_1]");
    qn_vocab_free(v);

    /* A charsmap that leads out of its table: the text is refused, nothing is read. */
    w = small_vocab_writer("ugm");
    qn_gguf_writer_set_array(w, KEY("precompiled_charsmap"), QN_GGUF_U8,
                             "\4\0\0\0\xFF\xFF\xFF\x7F"
                             "a",
                             9);
    qn_status status = small_vocab_load(w, &v, &err);
    assert_int_equal(status, QN_ERR_FORMAT); /* seen with the first text: a line break */
    assert_non_null(strstr(err.message, "precompiled_charsmap"));
}

static void any_bytes_are_text(void **state)
{
    (void)state;
    qn_test_random r = {11};
    const char *name;
    for (size_t i = 0; (name = small_vocab_name(i)); i++) {
        qn_error err = {0};
        qn_vocab *v = NULL;
        qn_test_ok(small_vocab_load(small_vocab_writer(name), &v, &err), err);
        for (int turn = 0; turn < 300 && qn_vocab_get_kind(v) != QN_VOCAB_NONE; turn++) {
            static const char alphabet[] = "ab \n<x>[X]\xC3\xA9\xE2\x96\x81\xFF\xF4\x90\x80\x80,A";
            char text[64];
            size_t n = qn_test_bits(&r) % sizeof text;
            for (size_t k = 0; k < n; k++) {
                uint32_t bits = qn_test_bits(&r);
                text[k] = bits & 1 ? (char)(bits >> 8) : alphabet[(bits >> 8) % sizeof alphabet];
            }
            qn_tokens got = {0};
            qn_test_ok(qn_vocab_tokenize(v, text, n, (unsigned)turn & 2U, &got, &err), err);
            char back[1024];
            size_t size = 0;
            qn_test_ok(
                qn_vocab_detokenize(v, got.ids, got.count, 2, back, sizeof back, &size, &err), err);
            if (qn_vocab_get_kind(v) == QN_VOCAB_TEST) {
                assert_int_equal(got.count, (n + 4) / 5);
            }
            qn_tokens_free(&got);
        }
        qn_vocab_free(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_named),
        cmocka_unit_test(oddities_load),
        cmocka_unit_test(any_bytes_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
