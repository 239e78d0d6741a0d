/* test_tokens.c: tokens followed through grammars: masks against single checks, tokens by id,
 * lazy grammars, clones, many states, and grammars that ask for too much. */
#include "support/support.h"

#include <quern/grammar.h>

#include "support/small_vocab.h"

static qn_vocab *load(const char *name)
{
    qn_vocab *vocab = NULL;
    qn_error err;
    qn_test_ok(small_vocab_load(small_vocab_writer(name), &vocab, &err), err);
    return vocab;
}

static qn_grammar *parse(const char *text, const qn_vocab *vocab, const qn_grammar_options *o)
{
    qn_grammar *g = NULL;
    qn_error err;
    qn_test_ok(qn_grammar_parse(text, strlen(text), vocab, o, &g, &err), err);
    return g;
}

static qn_matcher *matcher(qn_grammar *g)
{
    qn_matcher *m = NULL;
    qn_error err;
    qn_test_ok(qn_matcher_make(g, &m, &err), err);
    return m;
}

static const char json[] =
    "root ::= value\n"
    "value ::= \"{\" ws (str \":\" ws value (\",\" ws str \":\" ws value)*)? "
    "\"}\" | \"[\" ws (value (\",\" ws value)*)? \"]\" | str | num | "
    "\"true\" | \"null\"\n"
    "str ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nt])* \"\\\"\" ws\n"
    "num ::= \"-\"? [0-9]+ (\".\" [0-9]+)? ws\n"
    "ws ::= [ \\t\\n]*\n";

/* The mask says what asking for each token says. */
static void compare_mask(qn_matcher *m, const qn_vocab *vocab)
{
    size_t words = ((size_t)qn_vocab_size(vocab) + 31) / 32;
    uint32_t *bits = calloc(words, sizeof *bits);
    qn_error err;
    qn_test_ok(qn_matcher_mask(m, bits, words, &err), err);
    for (int32_t id = 0; id < qn_vocab_size(vocab); id++) {
        bool allowed;
        qn_test_ok(qn_matcher_allows(m, id, &allowed, &err), err);
        if (allowed != ((bits[id / 32] >> id % 32 & 1) != 0)) {
            fail_msg("token %d '%s': alone %s, in the mask %s", id,
                     qn_vocab_piece(vocab, id, true, NULL), allowed ? "allowed" : "refused",
                     allowed ? "refused" : "allowed");
        }
    }
    free(bits);
}

/* Random ways through a grammar: at each place the mask is compared, then an allowed token taken.
 */
static void walk(const char *gbnf, const qn_vocab *vocab, int steps, uint64_t seed)
{
    qn_test_random r = {seed};
    qn_grammar *g = parse(gbnf, vocab, NULL);
    qn_matcher *m = matcher(g);
    qn_error err;
    for (int i = 0; i < steps; i++) {
        compare_mask(m, vocab);
        int32_t n = qn_vocab_size(vocab), id = (int32_t)(qn_test_bits(&r) % (uint32_t)n);
        bool allowed = false;
        for (int32_t k = 0; k < n && !allowed; k++) {
            id = (id + 1) % n;
            qn_test_ok(qn_matcher_allows(m, id, &allowed, &err), err);
            allowed &= !qn_vocab_is_end(vocab, id);
        }
        if (!allowed) {
            qn_matcher_reset(m);
            continue;
        }
        qn_test_ok(qn_matcher_accept_token(m, id, &err), err);
    }
    qn_matcher_free(m);
    qn_grammar_free(g);
}

static void test_masks(void **state)
{
    (void)state;
    const char *name;
    for (size_t i = 0; (name = small_vocab_name(i)) != NULL; i++) {
        qn_vocab *vocab = load(name);
        walk(json, vocab, 40, 11 + i);
        walk("root ::= [^a]* | \"a\" .{2,5} <[3]> !<[4]>", vocab, 40, 23 + i);
        walk("root ::= [\\u00e0-\\u00ff\\u4e00-\\u9fff]+ [\\U0001F600-\\U0001F64F]", vocab, 40, 5);
        qn_vocab_free(vocab);
    }
}

/* Tokens with long common beginnings: all words of up to four of six letters, and others. */
static qn_vocab *many_words(void)
{
    enum { N = 2400, FIRST = 3 };
    static const char *const letters[] = {"a", "b", "f", "g", "z", "0"};
    static const char *const others[] = {"a", "\"", "\\",  "\xC3\xA9", "\xE4\xB8\x96",
                                         "n", ",",  "\xE4"};
    static char texts[N][24];
    static qn_gguf_text list[N];
    static float scores[N];
    static int32_t types[N];
    for (size_t i = 0; i < N; i++) {
        bool word = i < 6 + 36 + 216 + 1296;
        size_t number = word ? i : i - (6 + 36 + 216 + 1296), base = word ? 6 : 8;
        if (i < FIRST) { /* as small_vocab's: unknown, begin and end of text */
            snprintf(texts[i], sizeof texts[i], "<%zu>", i);
        } else {
            char reversed[8];
            size_t n = 0;
            for (number++; number > 0; number = (number - 1) / base) {
                reversed[n++] = (char)((number - 1) % base);
            }
            texts[i][0] = '\0';
            while (n > 0) {
                const char *const *from = word ? letters : others;
                strcat(texts[i], from[(size_t)reversed[--n]]);
            }
            if (!word) { /* apart from the words */
                strcat(texts[i], ":");
            }
        }
        list[i] = (qn_gguf_text){texts[i], strlen(texts[i])};
        types[i] = i == 0 ? 2 : i < FIRST ? 3 : 1;
    }
    qn_gguf_writer *w = small_vocab_writer("spm");
    qn_gguf_writer_set_texts(w, "tokenizer.ggml.tokens", list, N);
    qn_gguf_writer_set_array(w, "tokenizer.ggml.scores", QN_GGUF_F32, scores, N);
    qn_gguf_writer_set_array(w, "tokenizer.ggml.token_type", QN_GGUF_I32, types, N);
    qn_vocab *vocab = NULL;
    qn_error err;
    qn_test_ok(small_vocab_load(w, &vocab, &err), err);
    return vocab;
}

/* Whole branches of the vocabulary are taken or refused at once. */
static void test_branches(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        json,
        "root ::= [a-g]{0,9} \"z\"",
        "root ::= ([^\"\\\\] | \"\\\\\" .){3,12} \"\\\"\"",
        "root ::= [^z]*",
        "root ::= [ab0]* [f-z]{2} [ag]{0,3} .{0,2}",
        "root ::= (\"a\" | [a-z] [0-9b])* [\\u00e9:]+",
        "root ::= \"a\" root \"x\" | [ab]{0,40} | (\"a\" \"b\"?)* \"z\"",
        "root ::= ([a-g] [a-z])* \"0\"",
    };
    qn_vocab *vocab = many_words();
    for (size_t i = 0; i < sizeof grammars / sizeof grammars[0]; i++) {
        walk(grammars[i], vocab, 25, 31 + i);
    }
    qn_vocab_free(vocab);
}

static void test_large_vocabulary(void **state)
{
    (void)state;
    const char *path = qn_test_shared("vocab/ggml-vocab-llama-bpe.gguf");
    if (!path) {
        qn_test_skip("no vocabulary of 128k tokens");
        return;
    }
    qn_vocab *vocab = NULL;
    qn_error err;
    qn_test_ok(qn_vocab_load_file(path, NULL, &vocab, &err), err);
    walk(json, vocab, 12, 3);
    walk("root ::= [\\u00e0-\\u00ff\\u4e00-\\u9fff]+", vocab, 8, 4);
    qn_vocab_free(vocab);
}

static void test_token_by_id(void **state)
{
    (void)state;
    qn_vocab *vocab = load("bpe");
    qn_tokens tokens = {0};
    qn_error err;
    qn_test_ok(qn_vocab_tokenize(vocab, "ab", 2, 0, &tokens, &err), err);
    int32_t wanted = tokens.ids[0], other = wanted == 0 ? 1 : wanted - 1;
    char text[64];
    snprintf(text, sizeof text, "root ::= \"<\" <[%d]> \">\"", wanted);
    qn_grammar *g = parse(text, vocab, NULL);
    qn_matcher *m = matcher(g);
    bool allowed;
    qn_test_ok(qn_matcher_accept_text(m, "<", 1, &err), err);
    qn_test_ok(qn_matcher_allows(m, wanted, &allowed, &err), err);
    assert_true(allowed);
    qn_test_ok(qn_matcher_allows(m, other, &allowed, &err), err);
    assert_false(allowed);
    size_t size;
    const char *piece = qn_vocab_piece(vocab, wanted, true, &size);
    assert_int_equal(qn_matcher_accept_text(m, piece, size, &err), QN_ERR_FORMAT);
    qn_test_ok(qn_matcher_accept_token(m, wanted, &err), err);
    qn_test_ok(qn_matcher_accept_text(m, ">", 1, &err), err);
    assert_true(qn_matcher_is_complete(m));
    qn_matcher_free(m);
    qn_grammar_free(g);
    qn_tokens_free(&tokens);
    qn_vocab_free(vocab);
}

static void test_clone_copy_reset(void **state)
{
    (void)state;
    qn_grammar *g = parse("root ::= \"ab\" | \"ac\"", NULL, NULL);
    qn_matcher *m = matcher(g), *copy = NULL;
    qn_error err;
    qn_grammar_free(g); /* matchers keep it */
    qn_test_ok(qn_matcher_accept_text(m, "a", 1, &err), err);
    qn_test_ok(qn_matcher_clone(m, &copy, &err), err);
    qn_test_ok(qn_matcher_accept_text(m, "b", 1, &err), err);
    assert_true(qn_matcher_is_complete(m));
    assert_false(qn_matcher_is_complete(copy));
    assert_int_equal(qn_matcher_accept_text(copy, "x", 1, &err), QN_ERR_FORMAT);
    qn_test_ok(qn_matcher_accept_text(copy, "c", 1, &err), err);
    qn_matcher_reset(copy);
    qn_test_ok(qn_matcher_copy(m, copy, &err), err);
    qn_test_ok(qn_matcher_accept_text(m, "ac", 2, &err), err);
    qn_matcher_free(m);
    qn_matcher_free(copy);
}

static void check_lazy(const qn_trigger *trigger, const char *before, const char *after,
                       const char *bad)
{
    qn_grammar_options o = qn_grammar_defaults();
    o.lazy = true;
    o.triggers = trigger;
    o.n_triggers = 1;
    qn_grammar *g = parse("root ::= \"<t>\" [a-z]+ \"</t>\"", NULL, &o);
    qn_matcher *m = matcher(g);
    qn_error err;
    for (const char *c = before; *c; c++) {
        assert_true(qn_matcher_is_waiting(m));
        qn_test_ok(qn_matcher_accept_text(m, c, 1, &err), err);
    }
    assert_false(qn_matcher_is_waiting(m));
    assert_int_equal(qn_matcher_accept_text(m, bad, strlen(bad), &err), QN_ERR_FORMAT);
    qn_test_ok(qn_matcher_accept_text(m, after, strlen(after), &err), err);
    assert_true(qn_matcher_is_complete(m));
    qn_matcher_reset(m);
    assert_true(qn_matcher_is_waiting(m));
    qn_matcher_free(m);
    qn_grammar_free(g);
}

static void test_lazy(void **state)
{
    (void)state;
    const qn_trigger word = {.kind = QN_TRIGGER_WORD, .text = "<t>"};
    const qn_trigger pattern = {.kind = QN_TRIGGER_PATTERN, .text = "say[\\s\\S]*?(<t>)"};
    const qn_trigger full = {.kind = QN_TRIGGER_PATTERN_FULL, .text = "x*(<t>)"};
    check_lazy(&word, "I say <t>", "abc</t>", "1");
    check_lazy(&pattern, "<t> I say <t>", "abc</t>", "1");
    check_lazy(&full, "xxx<t>", "abc</t>", "1");
}

static void expect_refused(const char *text, qn_status status, const char *part)
{
    qn_grammar *g = NULL;
    qn_error err = {0};
    assert_int_equal(qn_grammar_parse(text, strlen(text), NULL, NULL, &g, &err), status);
    assert_null(g);
    if (!strstr(err.message, part)) {
        fail_msg("the message '%s' should have '%s'", err.message, part);
    }
}

static void test_hostile_grammars(void **state)
{
    (void)state;
    qn_grammar *g = NULL;
    qn_error err;
    const qn_trigger bad = {.kind = QN_TRIGGER_PATTERN, .text = "("};
    qn_grammar_options o = {.root = "root", .lazy = true};
    assert_int_equal(qn_grammar_parse("root ::= \"a\"", 12, NULL, &o, &g, &err), QN_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no triggers set for lazy grammar!"));
    o.triggers = &bad;
    o.n_triggers = 1;
    assert_int_equal(qn_grammar_parse("root ::= \"a\"", 12, NULL, &o, &g, &err), QN_ERR_ARGUMENT);
    /* groups nested deep; bounded repetitions nested; a literal repeated until it is too large */
    char *deep = calloc(1, 4000);
    strcpy(deep, "root ::= ");
    memset(deep + 9, '(', 1000);
    expect_refused(deep, QN_ERR_LIMIT, "nested");
    strcpy(deep, "root ::= ");
    for (int i = 0; i < 20; i++) {
        strcat(deep, "(");
    }
    strcat(deep, "\"a\"");
    for (int i = 0; i < 20; i++) {
        strcat(deep, "{0,20})");
    }
    expect_refused(deep, QN_ERR_LIMIT, "repetition limit");
    strcpy(deep, "root ::= \"");
    memset(deep + 10, 'x', 1000);
    strcpy(deep + 1010, "\"{2000}");
    expect_refused(deep, QN_ERR_LIMIT, "elements");
    free(deep);
    expect_refused("root ::= <think>", QN_ERR_FORMAT, "no vocab to parse token");
    expect_refused("root ::= a\na ::= b? a \"x\"\nb ::= \"c\"", QN_ERR_FORMAT, "left recursion");
    expect_refused("root ::= \"\\U00110000\"", QN_ERR_FORMAT, "10FFFF");
}

/* Two ways to read each character, remembered on the stack: bounded, with an error. */
static void test_ambiguity_is_bounded(void **state)
{
    (void)state;
    qn_grammar *g = parse("root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"z\"", NULL, NULL);
    qn_matcher *m = matcher(g);
    qn_error err;
    qn_status status = QN_OK;
    int n = 0;
    for (; n < 40 && status == QN_OK; n++) {
        status = qn_matcher_accept_text(m, "a", 1, &err);
    }
    assert_int_equal(status, QN_ERR_LIMIT);
    assert_true(n > 10);
    assert_non_null(strstr(err.message, "too ambiguous"));
    qn_test_ok(qn_matcher_accept_text(m, "z", 1, &err), err); /* it stands where it stood */
    qn_matcher_free(m);
    qn_grammar_free(g);
}

/* Long nesting makes more stacks than are kept at once: the automaton begins anew on the way. */
static void test_many_states(void **state)
{
    (void)state;
    qn_grammar *g = parse("root ::= \"(\" root \")\" | \"[\" root \"]\" | \"\"", NULL, NULL);
    qn_matcher *m = matcher(g), *shallow = matcher(g);
    qn_test_random r = {99};
    qn_error err;
    enum { DEPTH = 400, ROUNDS = 900 };
    static char open[DEPTH], close[DEPTH];
    qn_test_ok(qn_matcher_accept_text(shallow, "(", 1, &err), err);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < DEPTH; i++) {
            bool square = qn_test_bits(&r) & 1;
            open[i] = square ? '[' : '(';
            close[DEPTH - 1 - i] = square ? ']' : ')';
        }
        qn_matcher_reset(m);
        qn_test_ok(qn_matcher_accept_text(m, open, DEPTH, &err), err);
        qn_test_ok(qn_matcher_accept_text(m, close, DEPTH, &err), err);
        assert_true(qn_matcher_is_complete(m));
    }
    qn_test_ok(qn_matcher_accept_text(shallow, ")", 1, &err), err);
    assert_true(qn_matcher_is_complete(shallow));
    qn_matcher_free(m);
    qn_matcher_free(shallow);
    qn_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_token_by_id),
        cmocka_unit_test(test_clone_copy_reset),
        cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_hostile_grammars),
        cmocka_unit_test(test_ambiguity_is_bounded),
        cmocka_unit_test(test_many_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
