/* small_vocab.c: see small_vocab.h. */
#include "support/small_vocab.h"

#include "vocab/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types as in files. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };

typedef struct token {
    const char *text;
    int32_t type;
    float score;
} token;

#define MOST_TOKENS 300
#define MOST_MERGES 8

typedef struct small {
    const char *name, *model, *pre;
    token tokens[16];
    bool all_bytes; /* <0x00> … <0xFF> behind the tokens */
    const char *merges[MOST_MERGES];
    void (*more)(qn_gguf_writer *w);
} small;

static void set_id(qn_gguf_writer *w, const char *role, uint32_t id)
{
    char key[96];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", role);
    qn_gguf_writer_set_u32(w, key, id);
}

static void raw_more(qn_gguf_writer *w)
{
    set_id(w, "bos", 0);
}

static void wpm_more(qn_gguf_writer *w)
{
    set_id(w, "unknown", 0);
    set_id(w, "bos", 1);
    set_id(w, "seperator", 2);
    set_id(w, "mask", 3);
}

/* A charsmap that makes "A" into "a" and drops "-". */
static void ugm_more(qn_gguf_writer *w)
{
    enum { WORDS = 0x400 };
    static const char strings[] = "a\0";
    uint8_t bytes[4 + 4 * WORDS + sizeof strings] = {0};
    uint32_t words[WORDS] = {0};
    words[0] = 0x100U << 10;
    words[0x100 ^ 'A'] = 0x200U << 10 | 0x100U | 'A';
    words[0x100 ^ 'A' ^ 0x200] = 0; /* offset of "a" */
    words[0x100 ^ '-'] = 0x200U << 10 | 0x100U | '-';
    words[0x100 ^ '-' ^ 0x200] = 1; /* offset of "" */
    bytes[0] = (uint8_t)(4 * WORDS);
    bytes[1] = (uint8_t)(4 * WORDS >> 8);
    for (size_t i = 0; i < WORDS; i++) {
        for (size_t b = 0; b < 4; b++) {
            bytes[4 + 4 * i + b] = (uint8_t)(words[i] >> (8 * b));
        }
    }
    memcpy(bytes + 4 + sizeof words, strings, sizeof strings);
    qn_gguf_writer_set_array(w, "tokenizer.ggml.precompiled_charsmap", QN_GGUF_U8, bytes,
                             sizeof bytes);
    qn_gguf_writer_set_bool(w, "tokenizer.ggml.add_space_prefix", true);
    qn_gguf_writer_set_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true);
}

static void rwkv_more(qn_gguf_writer *w)
{
    set_id(w, "unknown", 0);
}

static void whitespace_more(qn_gguf_writer *w)
{
    qn_gguf_writer_set_bool(w, "tokenizer.ggml.normalizer.lowercase", true);
}

static void none_more(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u32(w, "small.vocab_size", 5);
}

#define MARK "\xE2\x96\x81" /* U+2581 */
#define G    "\xC4\xA0"     /* a space in the byte alphabet */
#define N    "\xC4\x8A"     /* a line break in it */
#define DNA  "\xEE\x80\x80" /* U+E000 */

static const small smalls[] = {
    {"spm",
     "llama",
     NULL,
     {{"<unk>", UNKNOWN, 0},
      {"<s>", CONTROL, 0},
      {"</s>", CONTROL, 0},
      {MARK, NORMAL, -3},
      {"a", NORMAL, -4},
      {"b", NORMAL, -5},
      {MARK "a", NORMAL, -1},
      {"ab", NORMAL, -2},
      {"<0x0A>", BYTE, 0},
      {"<0xC3>", BYTE, 0},
      {"[X]", USER, 0},
      {"ba", NORMAL, -2}},
     false,
     {NULL},
     NULL},
    {"bpe",
     "gpt2",
     "gpt-2",
     {{"a", NORMAL, 0},
      {"b", NORMAL, 0},
      {"c", NORMAL, 0},
      {G, NORMAL, 0},
      {"ab", NORMAL, 0},
      {G "ab", NORMAL, 0},
      {"<|endoftext|>", CONTROL, 0},
      {N, NORMAL, 0},
      {"abc", USER, 0},
      {"bcab", USER, 0},
      {".", NORMAL, 0}},
     false,
     {"a b", G " ab", "b c"},
     NULL},
    {"raw",
     "gemma4",
     NULL,
     {{"<bos>", CONTROL, 0},
      {MARK, NORMAL, 0},
      {"a", NORMAL, 0},
      {"b", NORMAL, 0},
      {MARK "a", NORMAL, 0},
      {"<0xC3>", BYTE, 0},
      {"<0xA9>", BYTE, 0},
      {"\n", NORMAL, 0},
      {"\n\n", NORMAL, 0}},
     false,
     {MARK " a"},
     raw_more},
    {"wpm",
     "bert",
     NULL,
     {{"[UNK]", UNKNOWN, 0},
      {"[CLS]", CONTROL, 0},
      {"[SEP]", CONTROL, 0},
      {"[MASK]", CONTROL, 0},
      {MARK "hel", NORMAL, 0},
      {"lo", NORMAL, 0},
      {MARK "he", NORMAL, 0},
      {MARK ",", NORMAL, 0},
      {MARK "caf", NORMAL, 0},
      {"e", NORMAL, 0},
      {MARK "\xE4\xB8\xAD", NORMAL, 0}},
     false,
     {NULL},
     wpm_more},
    {"ugm",
     "t5",
     NULL,
     {{"<pad>", CONTROL, 0},
      {"</s>", CONTROL, 0},
      {"<unk>", UNKNOWN, 0},
      {MARK, NORMAL, -2},
      {"a", NORMAL, -3},
      {"b", NORMAL, -3},
      {MARK "a", NORMAL, -3.5F},
      {"ab", NORMAL, -4},
      {"xy", USER, 0}},
     false,
     {NULL},
     ugm_more},
    {"rwkv",
     "rwkv",
     NULL,
     {{"<unk>", UNKNOWN, 0},
      {"a", NORMAL, 0},
      {"ab", NORMAL, 0},
      {"\\n", NORMAL, 0},
      {"\\xc3\\xa9", NORMAL, 0},
      {"\\\\", NORMAL, 0},
      {"abcd", NORMAL, 0}},
     false,
     {NULL},
     rwkv_more},
    {"plamo2",
     "plamo2",
     NULL,
     {{"<unk>", UNKNOWN, 0},
      {"<s>", CONTROL, 0},
      {"</s>", CONTROL, 0},
      {"<pad>", CONTROL, 0},
      {"a", NORMAL, -1},
      {"b", NORMAL, -1},
      {"ab", NORMAL, -1.5F},
      {"bab", NORMAL, -9}},
     true,
     {NULL},
     NULL},
    {"hybriddna",
     "hybriddna",
     "gpt-2",
     {{"a", NORMAL, 0},
      {"b", NORMAL, 0},
      {"ab", NORMAL, 0},
      {"<oov>", NORMAL, 0},
      {"<dna>", NORMAL, 0},
      {"</dna>", NORMAL, 0},
      {"ACGTAC" DNA, NORMAL, 0},
      {"GGAAAA" DNA, NORMAL, 0}},
     false,
     {"a b"},
     NULL},
    {"whitespace",
     "whitespace",
     "whitespace",
     {{"a", NORMAL, 0}, {"b", NORMAL, 0}, {"ab", NORMAL, 0}, {"<0xC3>", BYTE, 0}},
     false,
     {"a b"},
     whitespace_more},
    {"test",
     "test",
     NULL,
     {{"x", NORMAL, 0}, {"y", NORMAL, 0}, {"z", NORMAL, 0}},
     false,
     {NULL},
     NULL},
    {"none", "none", NULL, {{NULL, 0, 0}}, false, {NULL}, none_more},
};

const char *small_vocab_name(size_t i)
{
    return i < sizeof smalls / sizeof smalls[0] ? smalls[i].name : NULL;
}

static void set_tokens(qn_gguf_writer *w, const small *s)
{
    qn_gguf_text texts[MOST_TOKENS];
    float scores[MOST_TOKENS] = {0};
    int32_t types[MOST_TOKENS];
    char bytes[256][8];
    size_t n = 0;
    for (; n < 16 && s->tokens[n].text; n++) {
        texts[n] = (qn_gguf_text){s->tokens[n].text, strlen(s->tokens[n].text)};
        scores[n] = s->tokens[n].score;
        types[n] = s->tokens[n].type;
    }
    for (unsigned b = 0; s->all_bytes && b < 256; b++, n++) {
        snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", b);
        texts[n] = (qn_gguf_text){bytes[b], 6};
        types[n] = BYTE;
    }
    if (n > 0) {
        qn_gguf_writer_set_texts(w, "tokenizer.ggml.tokens", texts, n);
        qn_gguf_writer_set_array(w, "tokenizer.ggml.scores", QN_GGUF_F32, scores, n);
        qn_gguf_writer_set_array(w, "tokenizer.ggml.token_type", QN_GGUF_I32, types, n);
    }
}

qn_gguf_writer *small_vocab_writer(const char *name)
{
    const small *s = NULL;
    for (size_t i = 0; !s && i < sizeof smalls / sizeof smalls[0]; i++) {
        s = strcmp(smalls[i].name, name) == 0 ? &smalls[i] : NULL;
    }
    qn_gguf_writer *w = NULL;
    if (!s || qn_gguf_writer_new(&w, NULL) != QN_OK) {
        return NULL;
    }
    qn_gguf_writer_set_str(w, "general.architecture", "small");
    qn_gguf_writer_set_str(w, "tokenizer.ggml.model", s->model);
    if (s->pre) {
        qn_gguf_writer_set_str(w, "tokenizer.ggml.pre", s->pre);
    }
    set_tokens(w, s);
    qn_gguf_text merges[MOST_MERGES];
    size_t n = 0;
    for (; n < MOST_MERGES && s->merges[n]; n++) {
        merges[n] = (qn_gguf_text){s->merges[n], strlen(s->merges[n])};
    }
    if (n > 0) {
        qn_gguf_writer_set_texts(w, "tokenizer.ggml.merges", merges, n);
    }
    if (s->more) {
        s->more(w);
    }
    return w;
}

uint8_t *small_vocab_bytes(qn_gguf_writer *w, size_t *size)
{
    uint8_t *bytes = NULL;
    return w && qn_gguf_writer_metadata(w, &bytes, size, NULL) == QN_OK ? bytes : NULL;
}

qn_status small_vocab_load(qn_gguf_writer *w, qn_vocab **out, qn_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    qn_gguf *gguf = NULL;
    qn_status status = w ? qn_gguf_writer_metadata(w, &bytes, &size, err) : QN_ERR_MEMORY;
    qn_gguf_writer_free(w);
    if (status == QN_OK) {
        status = qn_gguf_open_memory(&gguf, bytes, size, "small.gguf", NULL, err);
    }
    if (status == QN_OK) {
        status = qn__vocab_load(gguf, NULL, out, err);
    }
    qn_gguf_free(gguf);
    free(bytes);
    return status;
}
