/*
 * trigger.c: what starts a lazy grammar: tokens, words, regular expressions (PCRE2, in the dialect
 * of ECMAScript, over bytes).
 *
 * The text grows token by token and is searched each time, but not from its beginning: a search
 * that finds nothing also tells where the first match may begin that more text could complete, and
 * the next one begins there. So an expression that is to fit the whole text is made into one that
 * is searched for, where it begins and ends with anything.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/internal.h"

/* Bounds of one search, so that no expression can take the process along. */
#define MATCH_STEPS 10000000U
#define MATCH_DEPTH 100000U
#define MATCH_KIB   65536U

typedef struct pattern {
    pcre2_code *code;
    bool whole;  /* fits all of the text, or never will */
    bool prefix; /* anything may come before it, and is part of the match */
    bool again;  /* is always searched for from the beginning */
} pattern;

struct qn_triggers {
    int32_t *tokens;
    size_t n_tokens;
    pattern *patterns;
    size_t n_patterns;
    pcre2_match_context *bounds;
};

/* The next search of the pattern finds nothing, whatever comes. */
#define NEVER SIZE_MAX

/* One more pattern. */
static qn_status add_pattern(qn_triggers *t, const char *text, size_t size, bool whole,
                             qn_error *err)
{
    uint32_t options = PCRE2_ALT_BSUX | PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF |
                       PCRE2_NEVER_BACKSLASH_C | (whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0U);
    int code;
    PCRE2_SIZE at;
    pattern *p = &t->patterns[t->n_patterns++];
    p->code = pcre2_compile((PCRE2_SPTR)text, size, options, &code, &at, NULL);
    p->whole = whole;
    /* not of the dialect, but PCRE2 knows them: they tell where a search began */
    p->again = strstr(text, "\\G") || strstr(text, "(*");
    if (!p->code) {
        PCRE2_UCHAR why[160] = {0};
        pcre2_get_error_message(code, why, sizeof why);
        return qn__error(err, QN_ERR_ARGUMENT, "grammar trigger: %.200s: %s at byte %zu", text,
                         (const char *)why, (size_t)at);
    }
    return QN_OK;
}

static qn_status add_buf(qn_triggers *t, qn_buf *text, bool whole, qn_error *err)
{
    qn__buf_terminate(text);
    return text->failed ? qn__error_memory(err, "grammar trigger")
                        : add_pattern(t, (const char *)text->data, text->size, whole, err);
}

/* The word as an expression in a group. */
static qn_status add_word(qn_triggers *t, const char *word, qn_error *err)
{
    qn_buf text = {0};
    qn__buf_add_byte(&text, '(');
    for (const char *c = word; *c; c++) {
        if (strchr("\\^$.|?*+()[]{}/-", *c)) {
            qn__buf_add_byte(&text, '\\');
        }
        qn__buf_add_byte(&text, (uint8_t)*c);
    }
    qn__buf_add_byte(&text, ')');
    qn_status status = add_buf(t, &text, false, err);
    qn__buf_free(&text);
    return status;
}

/* Whether an expression, in brackets, would be what it is without: whole, and without alternatives.
 * False also for what is too special to judge. */
static bool is_sequence(const char *text, size_t size)
{
    size_t depth = 0, class = 0; /* class: where one begins, counted from 1 */
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '\\') {
            if (++i >= size || text[i] == 'Q' || text[i] == 'E') {
                return false;
            }
        } else if (class > 0) {
            bool first = i == class || (i == class + 1 && text[class] == '^');
            class = c == ']' && !first ? 0 : class;
        } else if (c == '[') {
            class = i + 1;
        } else if (c == '(') {
            char next = i + 1 < size ? text[i + 1] : '\0', kind = i + 2 < size ? text[i + 2] : '\0';
            if (next == '*' || (next == '?' && (kind == '\0' || !strchr(":=!<", kind)))) {
                return false;
            }
            depth++;
        } else if ((c == ')' && depth-- == 0) || (c == '|' && depth == 0)) {
            return false;
        }
    }
    return depth == 0 && class == 0;
}

static bool has_end(const char *text, size_t size, const char *end)
{
    size_t n = strlen(end);
    return size >= n && memcmp(text + size - n, end, n) == 0;
}

/* Takes "anything" from both ends of an expression for whole texts. */
static bool strip(const char **text, size_t *size)
{
    static const char before[] = "[\\s\\S]*?";
    static const char *const behind[] = {"[\\s\\S]*", "[\\s\\S]*?"};
    size_t n_before = sizeof before - 1;
    if (*size < n_before || memcmp(*text, before, n_before) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        size_t n = strlen(behind[i]);
        if (*size > n_before + n && has_end(*text, *size, behind[i]) &&
            is_sequence(*text + n_before, *size - n_before - n)) {
            *text += n_before;
            *size -= n_before + n;
            return true;
        }
    }
    return false;
}

/* An expression that fits the whole text; or, since its ends may belong to two alternatives of it,
 * one with ^ before it and $ behind it that is found anywhere. */
static qn_status add_full(qn_triggers *t, const char *expression, qn_error *err)
{
    size_t size = strlen(expression);
    bool begins = size > 0 && expression[0] == '^';
    bool ends = size > (begins ? 1U : 0U) && expression[size - 1] == '$';
    const char *inner = expression + begins;
    size -= (begins ? 1U : 0U) + (ends ? 1U : 0U);
    bool sequence = is_sequence(inner, size);
    qn_buf text = {0};
    if (strip(&inner, &size)) {
        t->patterns[t->n_patterns].prefix = true;
        qn__buf_add(&text, inner, size);
        qn_status status = add_buf(t, &text, false, err);
        qn__buf_free(&text);
        return status;
    }
    qn__buf_add_text(&text, "^");
    qn__buf_add(&text, inner, size);
    qn__buf_add_text(&text, "$");
    qn_status status = QN_OK;
    for (int whole = 1; whole >= (sequence ? 1 : 0) && status == QN_OK; whole--) {
        status = add_buf(t, &text, whole == 1, err);
    }
    qn__buf_free(&text);
    return status;
}

static qn_status add(qn_triggers *t, const qn_trigger *from, qn_error *err)
{
    if (from->kind == QN_TRIGGER_TOKEN) {
        t->tokens[t->n_tokens++] = from->token;
        return QN_OK;
    }
    const char *text = from->text;
    if (!text) {
        return qn__error(err, QN_ERR_ARGUMENT, "grammar trigger: a text is missing");
    }
    size_t size = strlen(text);
    bool anchored = size > 1 && text[0] == '^' && text[size - 1] == '$';
    switch (from->kind) {
    case QN_TRIGGER_WORD:
        return size > 0 ? add_word(t, text, err)
                        : qn__error(err, QN_ERR_ARGUMENT, "grammar trigger: an empty word");
    case QN_TRIGGER_PATTERN_FULL:
        return add_full(t, text, err);
    case QN_TRIGGER_PATTERN:
        return anchored ? add_full(t, text, err) : add_pattern(t, text, size, false, err);
    default:
        return qn__error(err, QN_ERR_ARGUMENT, "grammar trigger: unknown kind %d", (int)from->kind);
    }
}

qn_status qn__triggers_make(const qn_trigger *list, size_t n, qn_triggers **out, qn_error *err)
{
    qn_triggers *t = qn__calloc(1, sizeof *t);
    qn_status status = t ? QN_OK : qn__error_memory(err, "grammar triggers");
    if (status == QN_OK) {
        t->tokens = qn__calloc(n, sizeof *t->tokens);
        t->patterns = qn__calloc(n, 2 * sizeof *t->patterns);
        t->bounds = pcre2_match_context_create(NULL);
        status = t->tokens && t->patterns && t->bounds ? QN_OK
                                                       : qn__error_memory(err, "grammar triggers");
    }
    if (status == QN_OK) {
        pcre2_set_match_limit(t->bounds, MATCH_STEPS);
        pcre2_set_depth_limit(t->bounds, MATCH_DEPTH);
        pcre2_set_heap_limit(t->bounds, MATCH_KIB);
    }
    for (size_t i = 0; i < n && status == QN_OK; i++) {
        status = add(t, &list[i], err);
    }
    if (status != QN_OK) {
        qn__triggers_free(t);
        t = NULL;
    }
    *out = t;
    return status;
}

void qn__triggers_free(qn_triggers *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->n_patterns; i++) {
        pcre2_code_free(t->patterns[i].code);
    }
    pcre2_match_context_free(t->bounds);
    free(t->patterns);
    free(t->tokens);
    free(t);
}

bool qn__triggers_has_token(const qn_triggers *t, int32_t token)
{
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (t->tokens[i] == token) {
            return true;
        }
    }
    return false;
}

size_t qn__triggers_count(const qn_triggers *t)
{
    return t->n_patterns;
}

/* One search; *start is the first group that is not empty, or the match. */
static qn_status search(const qn_triggers *t, const pattern *p, size_t from, const char *text,
                        size_t size, bool *fires, size_t *start, qn_error *err)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (!data) {
        return qn__error_memory(err, "search for a grammar trigger");
    }
    qn_status status = QN_OK;
    int found = pcre2_match(p->code, (PCRE2_SPTR)text, size, from, 0, data, t->bounds);
    *fires = found > 0;
    if (found > 0) {
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(data);
        *start = p->prefix ? 0 : span[0];
        for (int g = found - 1; g > 0; g--) {
            *start =
                span[2 * g + 1] > span[2 * g] && span[2 * g] != PCRE2_UNSET ? span[2 * g] : *start;
        }
    } else if (found != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR why[160] = {0};
        pcre2_get_error_message(found, why, sizeof why);
        status = qn__error(err, QN_ERR_LIMIT, "grammar trigger: %s", (const char *)why);
    }
    pcre2_match_data_free(data);
    return status;
}

/* Where the next search begins: at the first place where this one met the end of the text, since
 * everywhere before it, it failed by what is there. */
static size_t next_from(const qn_triggers *t, const pattern *p, size_t from, const char *text,
                        size_t size)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (!data) {
        return from;
    }
    int found =
        pcre2_match(p->code, (PCRE2_SPTR)text, size, from, PCRE2_PARTIAL_HARD, data, t->bounds);
    if (found == PCRE2_ERROR_NOMATCH) {
        from = p->whole ? NEVER : size;
    } else if (found == PCRE2_ERROR_PARTIAL && !p->whole) {
        from = pcre2_get_startchar(data);
    }
    pcre2_match_data_free(data);
    return from;
}

qn_status qn__triggers_search(const qn_triggers *t, size_t *from, const char *text, size_t size,
                              bool *fires, size_t *start, qn_error *err)
{
    qn_status status = QN_OK;
    *fires = false;
    text = text ? text : "";
    for (size_t i = 0; i < t->n_patterns && status == QN_OK && !*fires; i++) {
        if (from[i] != NEVER) {
            status = search(t, &t->patterns[i], from[i], text, size, fires, start, err);
        }
    }
    for (size_t i = 0; i < t->n_patterns && status == QN_OK && !*fires; i++) {
        if (from[i] != NEVER && !t->patterns[i].again) {
            from[i] = next_from(t, &t->patterns[i], from[i], text, size);
        }
    }
    return status;
}
