/*
 * plamo2.c: PLaMo-2 vocabularies ("plamo2"): the cheapest cut into tokens, found from the end of
 * the text to its start.
 *
 * The tokens that begin at a place are found while going left by an Aho-Corasick automaton over the
 * reversed tokens. A state is the longest string that stands at the place and is a token or the end
 * of one. Nodes are bytes (of reversed UTF-8), but states are always whole characters.
 */
#include "vocab/pretok.h"
#include "vocab/unicode.h"

#include "base/error.h"
#include "base/utf8.h"

#include <math.h>

#define SCORE_SCALE   10000.0
#define UNKNOWN_SCORE (-10000000) /* also the mark of padding tokens */
#define LEFT_OUT      (-20000000) /* tokens of this score or less are not in the table */

typedef struct plamo_state {
    qn_trie trie;      /* of reversed texts; values are ids */
    uint32_t *shorter; /* of a state: the longest other state that its string begins with */
    int32_t *costs;    /* by id: the integer score */
    int32_t byte_ids[256];
} plamo_state;

/* ---- Preparing ------------------------------------------------------------------------------- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static qn_status find_byte_tokens(const qn_vocab *v, plamo_state *s, const qn_vocab_source *from,
                                  qn_error *err)
{
    for (int b = 0; b < 256; b++) {
        s->byte_ids[b] = 0;
    }
    for (int32_t id = 0; id < v->n_tokens; id++) {
        const char *t = qn__vocab_text_of(v, id);
        if (v->tokens[id].attributes & QN_TOKEN_BYTE && v->tokens[id].text_size == 6 &&
            memcmp(t, "<0x", 3) == 0 && t[5] == '>' && hex_value(t[3]) >= 0 &&
            hex_value(t[4]) >= 0) {
            s->byte_ids[hex_value(t[3]) * 16 + hex_value(t[4])] = id;
        }
    }
    for (int b = 0; b < 256; b++) {
        if (s->byte_ids[b] == 0) {
            return qn__vocab_error(from, err, QN_ERR_FORMAT, "tokenizer.ggml.tokens",
                                   "the byte token <0x%02X> is missing", (unsigned)b);
        }
    }
    return QN_OK;
}

static int32_t integer_score(float score)
{
    double scaled = round((double)score * SCORE_SCALE);
    if (!(scaled > (double)INT32_MIN)) { /* NaN too */
        return INT32_MIN;
    }
    return scaled < (double)INT32_MAX ? (int32_t)scaled : INT32_MAX;
}

/* The text of a token as characters in reversed order; returns its bytes. */
static size_t reverse_text(const char *text, size_t n, char *out)
{
    size_t size = 0;
    for (size_t i = 0; i < n;) { /* shortest forms, in order */
        uint32_t point;
        i += qn__decode_lenient(text + i, n - i, QN_LAST_LENIENT_POINT, &point);
        size += (size_t)qn__utf8_encode(point, out + size);
    }
    for (size_t i = 0; i < size / 2; i++) {
        char c = out[i];
        out[i] = out[size - 1 - i];
        out[size - 1 - i] = c;
    }
    return size;
}

static qn_status build_trie(const qn_vocab *v, plamo_state *s, qn_error *err)
{
    size_t bytes = 1;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        bytes += v->tokens[id].text_size;
    }
    char *reversed = qn__calloc(bytes, 3); /* an invalid byte becomes three */
    qn_slice *texts = qn__calloc((size_t)v->n_tokens, sizeof *texts);
    char *at = reversed;
    size_t n = 0;
    for (int32_t id = 0; reversed && texts && id < v->n_tokens; id++) {
        bool byte = (v->tokens[id].attributes & QN_TOKEN_BYTE) != 0;
        if (!byte && s->costs[id] > LEFT_OUT) {
            size_t size = reverse_text(qn__vocab_text_of(v, id), v->tokens[id].text_size, at);
            texts[n++] = (qn_slice){at, (uint32_t)size, id};
            at += size;
        }
    }
    bool good = reversed && texts && qn__trie_build(&s->trie, texts, n);
    free(texts);
    free(reversed);
    return good ? QN_OK : qn__error_memory(err, "the vocabulary");
}

/* The state reached from `node` by one character in front, or QN_TRIE_NONE. */
static uint32_t extend(const qn_trie *trie, uint32_t node, const char *utf8, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        node = qn__trie_step(trie, node, (uint8_t)utf8[i]);
        if (node == QN_TRIE_NONE) {
            return QN_TRIE_NONE;
        }
    }
    return node;
}

/*
 * Fills shorter[] for all states, in the order of nodes (breadth first, so shorter strings come
 * first). A node is a state where its byte is a lead byte: a character ends there, read backwards.
 */
static qn_status link_states(plamo_state *s, qn_error *err)
{
    const qn_trie *t = &s->trie;
    uint32_t *parent = qn__calloc(t->count, sizeof *parent);
    s->shorter = qn__calloc(t->count, sizeof *s->shorter);
    if (!parent || !s->shorter) {
        free(parent);
        return qn__error_memory(err, "the vocabulary");
    }
    for (uint32_t node = 0; node < t->count; node++) {
        for (uint32_t c = t->first[node]; c < t->first[node + 1]; c++) {
            parent[c] = node;
        }
    }
    for (uint32_t node = 1; node < t->count; node++) {
        if ((t->byte[node] & 0xC0) == 0x80) {
            continue;
        }
        char utf8[4];
        int size = 0;
        uint32_t up = node; /* the state with one character less */
        do {
            utf8[size++] = (char)t->byte[up];
            up = parent[up];
        } while (up != 0 && size < 4 && (t->byte[up] & 0xC0) == 0x80);
        for (uint32_t p = up; p != 0 && s->shorter[node] == 0;) {
            p = s->shorter[p];
            s->shorter[node] = extend(t, p, utf8, size);
        }
    }
    free(parent);
    return QN_OK;
}

static qn_status plamo2_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    plamo_state *s = qn__calloc(1, sizeof *s);
    if (!s) {
        return qn__error_memory(err, "the vocabulary");
    }
    v->state = s;
    qn_status status = find_byte_tokens(v, s, from, err);
    s->costs = qn__calloc((size_t)v->n_tokens, sizeof *s->costs);
    if (status == QN_OK && !s->costs) {
        status = qn__error_memory(err, "the vocabulary");
    }
    for (int32_t id = 0; s->costs && id < v->n_tokens; id++) {
        s->costs[id] = integer_score(v->tokens[id].score);
    }
    if (status == QN_OK) {
        status = build_trie(v, s, err);
    }
    return status == QN_OK ? link_states(s, err) : status;
}

static void plamo2_release(void *state)
{
    plamo_state *s = state;
    if (s) {
        qn__trie_free(&s->trie);
        free(s->shorter);
        free(s->costs);
        free(s);
    }
}

/* ---- Tokenizing ------------------------------------------------------------------------------ */

static bool is_padding(const plamo_state *s, uint32_t node)
{
    int32_t id = s->trie.value[node];
    return id >= 0 && s->costs[id] == UNKNOWN_SCORE;
}

/* The state one character further left. A padding token that cannot be extended ends the search. */
static uint32_t go_left(const plamo_state *s, uint32_t state, uint32_t point)
{
    char utf8[4];
    int size = qn__utf8_encode(point, utf8);
    for (;; state = s->shorter[state]) {
        uint32_t next = extend(&s->trie, state, utf8, size);
        if (next != QN_TRIE_NONE || state == 0 || is_padding(s, state)) {
            return next;
        }
    }
}

typedef struct choice {
    int64_t cost;
    uint32_t length; /* characters */
    int32_t id;      /* -1: the bytes of one character */
} choice;

static uint32_t characters_of(const qn_vocab *v, int32_t id)
{
    const char *text = qn__vocab_text_of(v, id);
    size_t n = v->tokens[id].text_size;
    uint32_t count = 0;
    for (size_t i = 0; i < n; count++) {
        uint32_t point;
        i += qn__decode_lenient(text + i, n - i, QN_LAST_LENIENT_POINT, &point);
    }
    return count;
}

static void choose(const qn_vocab *v, const uint32_t *points, size_t n, choice *best)
{
    const plamo_state *s = v->state;
    best[n] = (choice){0, 0, -1};
    uint32_t state = 0;
    for (size_t i = n; i-- > 0;) {
        state = go_left(s, state, points[i]);
        best[i] = (choice){INT64_MAX, 1, -1};
        bool padding = false;
        for (uint32_t at = state; at != 0 && !padding; at = s->shorter[at]) {
            int32_t id = s->trie.value[at];
            if (id < 0) {
                continue;
            }
            uint32_t length = characters_of(v, id);
            int64_t cost = best[i + length].cost - s->costs[id];
            if (cost < best[i].cost) {
                best[i] = (choice){cost, length, id};
            }
            padding = s->costs[id] == UNKNOWN_SCORE;
        }
        if (!padding && best[i + 1].cost - UNKNOWN_SCORE < best[i].cost) {
            best[i] = (choice){best[i + 1].cost - UNKNOWN_SCORE, 1, -1};
        }
    }
}

static qn_status plamo2_fragment(qn_run *run, const char *text, size_t n)
{
    const plamo_state *s = run->vocab->state;
    uint32_t *points = qn__run_need(run, QN_SCRATCH_POINTS, n, sizeof *points);
    choice *best = qn__run_need(run, QN_SCRATCH_SYMBOLS, n + 1, sizeof *best);
    if (!points || !best) {
        return qn__run_no_memory(run);
    }
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        i += qn__decode_lenient(text + i, n - i, QN_LAST_LENIENT_POINT, &points[count++]);
    }
    if (points[0] == 0xFEFF) {
        points++;
        count--;
    }
    choose(run->vocab, points, count, best);
    qn_status status = QN_OK;
    for (size_t i = 0; status == QN_OK && i < count; i += best[i].length) {
        if (best[i].id >= 0) {
            status = qn__run_emit(run, best[i].id);
            continue;
        }
        char utf8[4];
        int size = qn__utf8_encode(points[i], utf8);
        for (int k = 0; status == QN_OK && k < size; k++) {
            status = qn__run_emit(run, s->byte_ids[(uint8_t)utf8[k]]);
        }
    }
    return status;
}

const qn_tokenizer qn__tokenizer_plamo2 = {plamo2_prepare, plamo2_fragment, plamo2_release};
