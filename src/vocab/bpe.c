/*
 * bpe.c: byte-pair vocabularies ("gpt2", "gemma4"): a text is cut into words by the pre-tokenizer;
 * in each word the pair with the lowest rank is merged first.
 *
 * Two alphabets. Most vocabularies write each byte of UTF-8 as one code point of the byte alphabet;
 * here words stay plain bytes, one symbol a byte, and only texts of the file are in the alphabet.
 * Raw vocabularies write UTF-8 as it is, one symbol a character, with tokens "<0xXX>" for bytes.
 */
#include "vocab/merge.h"
#include "vocab/pair_table.h"
#include "vocab/pretok.h"
#include "vocab/unicode.h"

#include "base/error.h"
#include "base/utf8.h"

typedef struct bpe_state {
    qn_pair_table pairs;
    qn_pretok *pretok;
    int32_t symbols[256]; /* text-map index of the byte as one character (raw: ASCII only), or -1 */
    int32_t byte_ids[256]; /* raw: ids of "<0xXX>"; else of the one-byte texts; -1: none */
} bpe_state;

/* ---- The byte alphabet ----------------------------------------------------------------------- */

/* Bytes that stand for themselves; the others, in order, are U+0100, U+0101, …. */
static bool is_plain(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static uint32_t byte_to_point(uint8_t byte)
{
    if (is_plain(byte)) {
        return byte;
    }
    /* 00-20 are the first 33, 7F-A0 the next 34, AD is the last. */
    return 0x100U + (byte <= 0x20 ? byte : byte == 0xAD ? 67U : byte - 0x7FU + 33U);
}

int qn__point_to_byte(uint32_t point)
{
    if (point < 0x100) {
        return is_plain(point) ? (int)point : -1;
    }
    uint32_t n = point - 0x100;
    return n <= 0x20 ? (int)n : n < 67 ? (int)(n - 33 + 0x7F) : n == 67 ? 0xAD : -1;
}

/* ---- Preparing ------------------------------------------------------------------------------- */

static void find_symbols(const qn_vocab *v, bpe_state *s)
{
    for (int b = 0; b < 256; b++) {
        char text[4] = {(char)b};
        int size = v->byte_alphabet ? qn__utf8_encode(byte_to_point((uint8_t)b), text) : 1;
        bool known = v->byte_alphabet || b < 0x80;
        s->symbols[b] = known ? qn__text_map_find(&v->map, text, (size_t)size) : -1;
    }
    if (!v->byte_alphabet) {
        qn__vocab_byte_tokens(v, s->byte_ids);
        return;
    }
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        s->byte_ids[b] = qn__vocab_id_of(v, &byte, 1);
    }
}

static qn_status bpe_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    bpe_state *s = qn__calloc(1, sizeof *s);
    if (!s) {
        return qn__error_memory(err, "the vocabulary");
    }
    v->state = s;
    qn_status status = qn__pretok_make(v->pre->set, &s->pretok, err);
    if (status == QN_OK) {
        bool optional = (v->pre->flags & QN_PRE_NO_MERGES) != 0;
        status = qn__pair_table_load(&s->pairs, v, from, optional, err);
    }
    if (status == QN_OK) {
        find_symbols(v, s);
    }
    return status;
}

static void bpe_release(void *state)
{
    bpe_state *s = state;
    if (s) {
        qn__pair_table_free(&s->pairs);
        qn__pretok_free(s->pretok);
        free(s);
    }
}

/* ---- A word ---------------------------------------------------------------------------------- */

static bool ranked(const void *context, qn_symbol *left, const qn_symbol *right)
{
    if (left->id < 0 || right->id < 0) {
        return false;
    }
    const qn_pair *pair = qn__pair_find(context, left->id, right->id);
    if (!pair) {
        return false;
    }
    left->rank = pair->rank_1 - 1;
    left->joined = pair->result;
    return true;
}

/* The token that is the whole word, or -1. */
static int32_t whole_word(const qn_vocab *v, qn_run *run, const char *word, size_t n)
{
    if (n > v->longest) {
        return -1;
    }
    if (!v->byte_alphabet) {
        return qn__vocab_id_of(v, word, n);
    }
    char *text = qn__run_need(run, QN_SCRATCH_BYTES_2, n, 4);
    size_t size = 0;
    for (size_t i = 0; text && i < n; i++) {
        size += (size_t)qn__utf8_encode(byte_to_point((uint8_t)word[i]), text + size);
    }
    return text ? qn__vocab_id_of(v, text, size) : -1;
}

/* A symbol that is no token: its bytes one by one. Those without a token are dropped. */
static qn_status emit_bytes(qn_run *run, const char *bytes, size_t n)
{
    const bpe_state *s = run->vocab->state;
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < n; i++) {
        char text[4] = {bytes[i]};
        int size = 1;
        if (run->vocab->byte_alphabet) {
            size = qn__utf8_encode(byte_to_point((uint8_t)bytes[i]), text);
        }
        for (int k = 0; status == QN_OK && k < size; k++) {
            int32_t id = s->byte_ids[(uint8_t)text[k]];
            status = id >= 0 ? qn__run_emit(run, id) : QN_OK;
        }
    }
    return status;
}

static size_t make_symbols(const qn_vocab *v, const char *word, size_t n, qn_symbol *symbols)
{
    const bpe_state *s = v->state;
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        uint8_t lead = (uint8_t)word[i];
        size_t length = v->byte_alphabet ? 1 : qn__lead_length(lead, n - i);
        int32_t id = length == 1 ? s->symbols[lead] : qn__text_map_find(&v->map, word + i, length);
        symbols[count] = (qn_symbol){.start = (uint32_t)i, .size = (uint32_t)length, .id = id};
        i += length;
    }
    return count;
}

qn_status qn__bpe_word(qn_run *run, const char *word, size_t n)
{
    const qn_vocab *v = run->vocab;
    const bpe_state *s = v->state;
    size_t newlines = 0;
    while (v->newline_rule && newlines < n && word[newlines] == '\n') {
        newlines++;
    }
    if (v->ignore_merges || newlines == n) {
        int32_t id = whole_word(v, run, word, n);
        if (id >= 0) {
            return qn__run_emit(run, id);
        }
    }
    qn_symbol *symbols = qn__run_need(run, QN_SCRATCH_SYMBOLS, n, sizeof *symbols);
    if (!symbols) {
        return qn__run_no_memory(run);
    }
    size_t count = make_symbols(v, word, n, symbols);
    qn_status status = qn__merge(run, symbols, count, ranked, &s->pairs);
    for (int32_t i = 0; status == QN_OK && i >= 0; i = symbols[i].next) {
        if (symbols[i].id >= 0 && symbols[i].id < v->n_tokens) {
            status = qn__run_emit(run, symbols[i].id);
        } else {
            status = emit_bytes(run, word + symbols[i].start, symbols[i].size);
        }
    }
    return status;
}

/* ---- A fragment ------------------------------------------------------------------------------ */

qn_status qn__bpe_fragment(qn_run *run, const char *text, size_t n)
{
    const qn_vocab *v = run->vocab;
    const bpe_state *s = v->state;
    uint32_t *points;
    size_t count;
    qn_status status = qn__pretok_decode(run, text, n, &points, &count);
    if (status != QN_OK) {
        return status;
    }
    for (size_t i = 0; v->escape_whitespace && i < count; i++) {
        points[i] = points[i] == ' ' ? 0x2581 : points[i];
    }
    const uint32_t *ends;
    size_t n_words;
    status = qn__pretok_run(s->pretok, run, points, count, &ends, &n_words);
    size_t begin = 0;
    for (size_t w = 0; status == QN_OK && w < n_words; w++) {
        char *word = qn__run_need(run, QN_SCRATCH_BYTES, ends[w] - begin, 4);
        if (!word) {
            return qn__run_no_memory(run);
        }
        size_t size = 0;
        for (size_t i = begin; i < ends[w]; i++) {
            size += (size_t)qn__utf8_encode(points[i], word + size);
        }
        status = qn__bpe_word(run, word, size);
        begin = ends[w];
    }
    return status;
}

const qn_tokenizer qn__tokenizer_bpe = {bpe_prepare, qn__bpe_fragment, bpe_release};
