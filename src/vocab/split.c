/*
 * split.c: cuts a text at special tokens.
 *
 * The rule: the longest special token takes all its places first, from left to right, then the next
 * one takes what is left, and so on: a longer token wins even where a shorter one starts earlier.
 *
 * The way: each place of the text holds at most one candidate, the longest token that fits there.
 * Candidates are taken in the order of (place in the list of tokens, position in the text); one
 * that runs into bytes that are taken gives way to the longest token that still fits. So memory
 * is linear, and a place costs a few steps, whatever the vocabulary.
 */
#include "vocab/internal.h"

#include "base/error.h"

enum { FREE = 0, TOKEN_START = 1, TOKEN_REST = 2, STRIPPED = 3 };

typedef struct splitter {
    const qn_vocab *vocab;
    const qn_trie *trie;
    const char *text;
    size_t n;
    uint8_t *taken; /* of each byte */
    uint64_t *heap; /* candidates: list place << 32 | position */
    size_t count, capacity;
} splitter;

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Place in the list of the longest token at `at` of at most `most` bytes, or -1. */
static int32_t longest_at(const splitter *s, size_t at, size_t most)
{
    int32_t place = -1;
    qn__trie_longest(s->trie, s->text + at, most, &place);
    return place;
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) {
            child++;
        }
        if (heap[child] >= moving) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static bool add_candidate(splitter *s, int32_t place, size_t at)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? s->capacity * 2 : 64;
        void *heap = s->heap;
        if (!qn__realloc(&heap, capacity, sizeof *s->heap)) {
            return false;
        }
        s->heap = heap;
        s->capacity = capacity;
    }
    s->heap[s->count++] = (uint64_t)(uint32_t)place << 32 | at;
    return true;
}

static void take(splitter *s, int32_t id, size_t at, size_t size)
{
    memset(s->taken + at, TOKEN_REST, size);
    s->taken[at] = TOKEN_START;
    uint32_t attributes = s->vocab->tokens[id].attributes;
    if (attributes & QN_TOKEN_LSTRIP) {
        for (size_t i = at; i > 0 && s->taken[i - 1] == FREE && is_space(s->text[i - 1]); i--) {
            s->taken[i - 1] = STRIPPED;
        }
    }
    if (attributes & QN_TOKEN_RSTRIP) {
        for (size_t i = at + size; i < s->n && s->taken[i] == FREE && is_space(s->text[i]); i++) {
            s->taken[i] = STRIPPED;
        }
    }
}

/* Takes the candidates one by one. */
static void take_all(splitter *s)
{
    const qn_special_list *list = &s->vocab->special;
    for (size_t i = s->count / 2; i-- > 0;) {
        sift_down(s->heap, s->count, i);
    }
    while (s->count > 0) {
        size_t at = (uint32_t)s->heap[0];
        size_t place = s->heap[0] >> 32;
        size_t free_bytes = 0;
        while (free_bytes < list->sizes[place] && s->taken[at + free_bytes] == FREE) {
            free_bytes++;
        }
        int32_t shorter = -1;
        if (free_bytes == list->sizes[place]) {
            take(s, list->ids[place], at, free_bytes);
        } else if (free_bytes > 0) {
            shorter = longest_at(s, at, free_bytes);
        }
        s->heap[0] = shorter >= 0 ? (uint64_t)(uint32_t)shorter << 32 | at : s->heap[--s->count];
        if (s->count > 0) {
            sift_down(s->heap, s->count, 0);
        }
    }
}

/* Reads the fragments off `taken`; the first pass (out NULL) counts them. */
static size_t read_fragments(const splitter *s, qn_fragment *out)
{
    size_t count = 0;
    for (size_t at = 0; at < s->n;) {
        size_t end = at + 1;
        uint8_t kind = s->taken[at];
        uint8_t rest = kind == TOKEN_START ? TOKEN_REST : kind;
        while (end < s->n && s->taken[end] == rest) {
            end++;
        }
        if (kind != STRIPPED) {
            if (out) {
                out[count] = (qn_fragment){-1, (uint32_t)at, (uint32_t)(end - at)};
                if (kind == TOKEN_START) {
                    out[count].id = s->vocab->special.ids[longest_at(s, at, end - at)];
                }
            }
            count++;
        }
        at = end;
    }
    return count;
}

qn_status qn__vocab_split(const qn_vocab *v, const char *text, size_t n, bool parse_special,
                          qn_fragment **fragments, size_t *count, qn_error *err)
{
    splitter s = {.vocab = v, .text = text, .n = n};
    s.trie = parse_special ? &v->special.all : &v->special.plain;
    bool good = true;
    for (size_t at = 0; good && at < n; at++) {
        int32_t place = s.trie->root[(uint8_t)text[at]] ? longest_at(&s, at, n - at) : -1;
        good = place < 0 || add_candidate(&s, place, at);
    }
    *count = n > 0 ? 1 : 0;
    *fragments = NULL;
    if (good && s.count > 0) {
        s.taken = qn__calloc(n, 1);
        good = s.taken != NULL;
        if (good) {
            take_all(&s);
            *count = read_fragments(&s, NULL);
        }
    }
    if (good) {
        *fragments = qn__calloc(*count + 1, sizeof **fragments);
        good = *fragments != NULL;
    }
    if (good && s.taken) {
        read_fragments(&s, *fragments);
    } else if (good) {
        (*fragments)[0] = (qn_fragment){-1, 0, (uint32_t)n};
    }
    free(s.taken);
    free(s.heap);
    return good ? QN_OK : qn__error_memory(err, "the special tokens of a text");
}
