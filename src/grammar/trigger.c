/* trigger.c: what starts a lazy grammar: tokens, words, regular expressions (PCRE2, in the dialect
 * of ECMAScript, over bytes). */
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
    pcre2_code *whole; /* anchored at both ends; NULL: only searched for */
} pattern;

struct qn_triggers {
    int32_t *tokens;
    size_t n_tokens;
    pattern *patterns;
    size_t n_patterns;
    pcre2_match_context *bounds;
};

static qn_status compile(const char *text, size_t size, bool whole, pcre2_code **out, qn_error *err)
{
    uint32_t options = PCRE2_ALT_BSUX | PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF |
                       PCRE2_NEVER_BACKSLASH_C | (whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0U);
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)text, size, options, &code, &at, NULL);
    if (!*out) {
        PCRE2_UCHAR why[160] = {0};
        pcre2_get_error_message(code, why, sizeof why);
        return qn__error(err, QN_ERR_ARGUMENT, "grammar trigger: %.200s: %s at byte %zu", text,
                         (const char *)why, (size_t)at);
    }
    return QN_OK;
}

/* The word as an expression in a group. */
static qn_status compile_word(const char *word, pcre2_code **out, qn_error *err)
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
    qn__buf_terminate(&text);
    qn_status status = text.failed ? qn__error_memory(err, "grammar trigger")
                                   : compile((const char *)text.data, text.size, false, out, err);
    qn__buf_free(&text);
    return status;
}

/* The expression with ^ before it and $ behind it, where it has not got them. */
static qn_status compile_full(const char *expression, pattern *p, qn_error *err)
{
    size_t size = strlen(expression);
    bool begins = size > 0 && expression[0] == '^';
    bool ends = size > (begins ? 1U : 0U) && expression[size - 1] == '$';
    qn_buf text = {0};
    qn__buf_add_text(&text, begins ? "" : "^");
    qn__buf_add(&text, expression, size);
    qn__buf_add_text(&text, ends ? "" : "$");
    qn__buf_terminate(&text);
    qn_status status = text.failed ? qn__error_memory(err, "grammar trigger") : QN_OK;
    for (int whole = 0; whole < 2 && status == QN_OK; whole++) {
        status = compile((const char *)text.data, text.size, whole == 1,
                         whole == 1 ? &p->whole : &p->code, err);
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
    pattern *p = &t->patterns[t->n_patterns++];
    size_t size = strlen(text);
    bool anchored = size > 1 && text[0] == '^' && text[size - 1] == '$';
    switch (from->kind) {
    case QN_TRIGGER_WORD:
        return size > 0 ? compile_word(text, &p->code, err)
                        : qn__error(err, QN_ERR_ARGUMENT, "grammar trigger: an empty word");
    case QN_TRIGGER_PATTERN_FULL:
        return compile_full(text, p, err);
    case QN_TRIGGER_PATTERN:
        return anchored ? compile_full(text, p, err) : compile(text, size, false, &p->code, err);
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
        t->patterns = qn__calloc(n, sizeof *t->patterns);
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
        pcre2_code_free(t->patterns[i].whole);
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

/* One search; *start is the first group that is not empty, or the match. */
static qn_status search(const qn_triggers *t, const pcre2_code *code, const char *text, size_t size,
                        bool *fires, size_t *start, qn_error *err)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    if (!data) {
        return qn__error_memory(err, "search for a grammar trigger");
    }
    int found = pcre2_match(code, (PCRE2_SPTR)text, size, 0, 0, data, t->bounds);
    qn_status status = QN_OK;
    *fires = found > 0;
    if (found > 0) {
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(data);
        *start = span[0];
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

qn_status qn__triggers_search(const qn_triggers *t, const char *text, size_t size, bool *fires,
                              size_t *start, qn_error *err)
{
    qn_status status = QN_OK;
    *fires = false;
    text = text ? text : "";
    for (size_t i = 0; i < t->n_patterns && status == QN_OK && !*fires; i++) {
        const pattern *p = &t->patterns[i];
        if (p->whole) {
            status = search(t, p->whole, text, size, fires, start, err);
        }
        if (status == QN_OK && !*fires) {
            status = search(t, p->code, text, size, fires, start, err);
        }
    }
    return status;
}
