/*
 * grammar.c: the time to find which tokens may come next, over a whole vocabulary, as texts are
 * followed token by token.
 *
 *   bench_grammar VOCAB.gguf [GRAMMAR.gbnf TEXT-FILE]
 *
 * Without a grammar: grammars/json.gbnf, and the schema of a tool call, with texts of their own.
 * Three passes over each text: at the first every state is new, at the second the masks are there,
 * the third checks single tokens. The vocabulary's index is made with its first grammar.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/grammar.h>

#include "base/clock.h"

/* What a chat with tools asks for: one of three calls, with arguments of all kinds. */
static const char tools[] =
    "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"get_weather\"},"
    "\"arguments\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"maxLength\":80},"
    "\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":14}},\"required\":[\"city\"]}},\"required\":[\"name\",\"arguments\"]},"
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"create_event\"},\"arguments\":"
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\"},\"start\":{\"type\":"
    "\"string\","
    "\"format\":\"date-time\"},\"guests\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
    "\"properties\":{\"name\":{\"type\":\"string\"},\"mail\":{\"type\":\"string\",\"pattern\":"
    "\"^[a-z0-9.]+@[a-z0-9.]+$\"}},\"required\":[\"name\",\"mail\"]},\"maxItems\":20},\"note\":"
    "{\"type\":\"string\",\"maxLength\":400}},\"required\":[\"title\",\"start\"]}},\"required\":"
    "[\"name\",\"arguments\"]},{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"search\"}"
    ","
    "\"arguments\":{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\"},\"limit\":"
    "{\"type\":\"integer\"}},\"required\":[\"query\"],\"additionalProperties\":true}},\"required\":"
    "[\"name\",\"arguments\"]}]}";
static const char tools_text[] =
    "{\"name\": \"create_event\", \"arguments\": {\"title\": \"Review of the third chapter\", "
    "\"start\": \"2026-10-05T12:30:00Z\", \"guests\": [{\"name\": \"Ada Lovelace\", \"mail\": "
    "\"ada.l@example.org\"}, {\"name\": \"Gr\xC3\xA9goire\", \"mail\": "
    "\"greg@mail.example.org\"}], "
    "\"note\": \"Please bring the printed pages with your remarks; we begin on time and end at "
    "two, "
    "so that \\\"everybody\\\" catches the train. \xE4\xB8\x96\xE7\x95\x8C\"}}";
static const char json_text[] =
    "{\"title\": \"A long way\", \"parts\": [{\"id\": 1, \"text\": \"It was late when they came, "
    "and \\\"nobody\\\" spoke.\\n\", \"done\": true, \"next\": null}, {\"id\": 22, \"text\": "
    "\"\xE4\xB8\x96\xE7\x95\x8C caf\xC3\xA9 \\u00e9\", \"values\": [0.25, -13, 6.02e23, [[], [{}]]"
    "]}], \"last\": {\"a\": {\"b\": {\"c\": {\"d\": [1, 2, 3]}}}}}";

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, uint64_t *times, size_t n)
{
    qsort(times, n, sizeof *times, by_time);
    printf("  %-24s median %7.1f us   p90 %7.1f us   p99 %7.1f us   most %7.1f us\n", what,
           (double)times[n / 2] / 1e3, (double)times[n * 9 / 10] / 1e3,
           (double)times[n * 99 / 100] / 1e3, (double)times[n - 1] / 1e3);
}

/* One pass; false where the text does not fit. */
static bool pass(qn_matcher *m, const qn_tokens *tokens, uint32_t *bits, size_t words, bool check,
                 uint64_t *times, uint64_t *accepts)
{
    qn_error err = {0};
    qn_matcher_reset(m);
    for (size_t i = 0; i < tokens->count; i++) {
        uint32_t id = (uint32_t)tokens->ids[i];
        bool allowed = false;
        uint64_t start = qn__clock_ns();
        qn_status status = check ? qn_matcher_allows(m, tokens->ids[i], &allowed, &err)
                                 : qn_matcher_mask(m, bits, words, &err);
        times[i] = qn__clock_ns() - start;
        allowed = check ? allowed : (bits[id / 32] >> id % 32 & 1) != 0;
        start = qn__clock_ns();
        if (status != QN_OK || !allowed ||
            qn_matcher_accept_token(m, tokens->ids[i], &err) != QN_OK) {
            fprintf(stderr, "token %zu of the text does not fit: %s\n", i, err.message);
            return false;
        }
        accepts[i] = qn__clock_ns() - start;
    }
    return true;
}

static bool follow(const char *name, const qn_vocab *vocab, const char *gbnf, const char *text)
{
    qn_error err = {0};
    qn_grammar *g = NULL;
    qn_matcher *m = NULL;
    qn_tokens tokens = {0};
    size_t words = ((size_t)qn_vocab_size(vocab) + 31) / 32;
    uint32_t *bits = calloc(words, sizeof *bits);
    uint64_t *times = NULL, *accepts = NULL;
    uint64_t start = qn__clock_ns();
    bool ok = bits && qn_grammar_parse(gbnf, strlen(gbnf), vocab, NULL, &g, &err) == QN_OK &&
              qn_matcher_make(g, &m, &err) == QN_OK;
    double made = (double)(qn__clock_ns() - start) / 1e3;
    ok = ok && qn_vocab_tokenize(vocab, text, strlen(text), 0, &tokens, &err) == QN_OK;
    if (ok) {
        times = calloc(tokens.count + 1, sizeof *times);
        accepts = calloc(tokens.count + 1, sizeof *accepts);
        printf("%s: %zu tokens, compiled in %.0f us\n", name, tokens.count, made);
        static const char *const names[] = {"first use of the states", "masks known",
                                            "single tokens"};
        for (int i = 0; ok && i < 3; i++) {
            ok = times && accepts && pass(m, &tokens, bits, words, i == 2, times, accepts);
            if (ok) {
                report(names[i], times, tokens.count);
            }
        }
        if (ok) {
            report("accept", accepts, tokens.count);
        }
    } else {
        fprintf(stderr, "%s: %s\n", name, err.message);
    }
    free(times);
    free(accepts);
    free(bits);
    qn_tokens_free(&tokens);
    qn_matcher_free(m);
    qn_grammar_free(g);
    return ok;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1 << 20, 1);
    size_t n = file && text ? fread(text, 1, (1 << 20) - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    if (n == 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        free(text);
        return NULL;
    }
    return text;
}

static bool run_own(const qn_vocab *vocab)
{
    qn_error err = {0};
    char *json = read_text(QN_BENCH_GRAMMARS "/json.gbnf"), *call = NULL;
    bool ok = json && follow("json.gbnf", vocab, json, json_text);
    if (ok && qn_grammar_from_schema(tools, strlen(tools), &call, NULL, &err) != QN_OK) {
        fprintf(stderr, "%s\n", err.message);
        ok = false;
    }
    ok = ok && follow("tool call", vocab, call, tools_text);
    free(json);
    qn_grammar_text_free(call);
    return ok;
}

int main(int argc, char **argv)
{
    qn_error err = {0};
    qn_vocab *vocab = NULL;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: bench_grammar VOCAB.gguf [GRAMMAR.gbnf TEXT-FILE]\n");
        return 2;
    }
    if (qn_vocab_load_file(argv[1], NULL, &vocab, &err) != QN_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    bool ok;
    if (argc == 2) {
        ok = run_own(vocab);
    } else {
        char *gbnf = read_text(argv[2]), *text = read_text(argv[3]);
        ok = gbnf && text && follow(argv[2], vocab, gbnf, text);
        free(gbnf);
        free(text);
    }
    qn_vocab_free(vocab);
    return ok ? 0 : 1;
}
