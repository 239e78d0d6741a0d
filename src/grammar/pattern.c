/*
 * pattern.c: regular expressions of JSON schemas as GBNF. The two notations nest alike, so the
 * expression is written over as it is read; groups are counted, nothing recurses. A character that
 * JSON has to escape is written as its escape, also where a set brings it in.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/rules.h"
#include "grammar/schema.h"

#define MOST_POINT  0x10FFFFU
#define NESTING_MAX 100

typedef struct reader {
    const char *at, *end;
    qn_buf *out;
    qn_range *ranges; /* of the set that is being read */
    size_t n_ranges, room;
    size_t depth; /* open groups */
    bool item;    /* something to repeat came last */
    bool invalid; /* else: it cannot be written */
    const char *why;
} reader;

static bool stop(reader *r, bool invalid, const char *why)
{
    r->invalid = invalid;
    r->why = why;
    return false;
}

static bool add_range(reader *r, uint32_t low, uint32_t high)
{
    if (!qn__grow(&r->ranges, &r->room, r->n_ranges + 1, sizeof *r->ranges)) {
        r->out->failed = true;
        return stop(r, false, "out of memory");
    }
    r->ranges[r->n_ranges++] = (qn_range){low, high};
    return true;
}

/* ---- Sets ---- */

static int by_low(const void *a, const void *b)
{
    uint32_t x = ((const qn_range *)a)->low, y = ((const qn_range *)b)->low;
    return (x > y) - (x < y);
}

/* Puts the ranges in order and joins them. */
static void join_ranges(reader *r)
{
    size_t kept = 0;
    if (r->n_ranges > 1) {
        qsort(r->ranges, r->n_ranges, sizeof *r->ranges, by_low);
    }
    for (size_t i = 0; i < r->n_ranges; i++) {
        qn_range range = r->ranges[i];
        if (kept > 0 && range.low <= r->ranges[kept - 1].high + 1) {
            qn_range *last = &r->ranges[kept - 1];
            last->high = range.high > last->high ? range.high : last->high;
        } else {
            r->ranges[kept++] = range;
        }
    }
    r->n_ranges = kept;
}

/* The set becomes all that is not in it. The ranges are joined. */
static bool complement(reader *r)
{
    size_t n = r->n_ranges;
    uint32_t next = 0;
    if (!add_range(r, 0, 0)) { /* room for one more */
        return false;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        qn_range range = r->ranges[i];
        if (range.low > next) {
            r->ranges[kept++] = (qn_range){next, range.low - 1};
        }
        next = range.high + 1;
    }
    if (next <= MOST_POINT) {
        r->ranges[kept++] = (qn_range){next, MOST_POINT};
    }
    r->n_ranges = kept;
    return true;
}

static bool has(const reader *r, uint32_t cp)
{
    for (size_t i = 0; i < r->n_ranges; i++) {
        if (cp >= r->ranges[i].low && cp <= r->ranges[i].high) {
            return true;
        }
    }
    return false;
}

static bool must_escape(uint32_t cp)
{
    return cp < 0x20 || cp == '"' || cp == '\\' || cp == 0x7F;
}

/* The part of [low, high] that JSON takes as it is. */
static void add_plain(qn_buf *out, uint32_t low, uint32_t high)
{
    while (low <= high) {
        uint32_t end = low;
        if (!must_escape(low)) {
            end = low > 0x7F ? high : low;
            while (end < high && end < 0x7F && !must_escape(end + 1)) {
                end++;
            }
            qn__buf_printf(out, "\\U%08X-\\U%08X", low, end);
        }
        low = end + 1;
    }
}

/* " | " before all alternatives but the first. */
static void add_or(qn_buf *out, bool *first)
{
    qn__buf_add_text(out, *first ? "" : " | ");
    *first = false;
}

/* Control characters of the set that have no short escape: \u00XX. */
static void add_controls(reader *r, bool *first)
{
    static const char rows[] = {'0', '1', '7'};
    for (size_t row = 0; row < sizeof rows; row++) {
        qn_buf digits = {0};
        for (uint32_t low = 0; low < 16; low++) {
            uint32_t cp = (uint32_t)(rows[row] - '0') * 16 + low;
            bool is_short = cp == 8 || cp == 9 || cp == 10 || cp == 12 || cp == 13;
            if ((cp < 32 || cp == 0x7F) && !is_short && has(r, cp)) {
                qn__buf_printf(&digits, "%X", low);
                if (low > 9) {
                    qn__buf_printf(&digits, "%x", low);
                }
            }
        }
        if (digits.size > 0) {
            add_or(r->out, first);
            qn__buf_printf(r->out, "\"\\\\u00%c\" [%.*s]", rows[row], (int)digits.size,
                           (const char *)digits.data);
        }
        r->out->failed |= digits.failed;
        qn__buf_free(&digits);
    }
}

/* Any one character of the ranges, as JSON writes it. */
static void write_set(reader *r)
{
    static const struct {
        uint32_t cp;
        const char *letter;
    } shorts[] = {{'"', "\\\""}, {'\\', "\\\\"}, {8, "b"}, {12, "f"},
                  {10, "n"},     {13, "r"},      {9, "t"}};
    bool first = false, any = false;
    qn__buf_add_text(r->out, "( [");
    for (size_t i = 0; i < r->n_ranges; i++) {
        add_plain(r->out, r->ranges[i].low, r->ranges[i].high);
    }
    qn__buf_add_text(r->out, "]");
    for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++) {
        if (has(r, shorts[i].cp)) {
            qn__buf_printf(r->out, "%s%s", any ? "" : " | \"\\\\\" [", shorts[i].letter);
            any = true;
        }
    }
    qn__buf_add_text(r->out, any ? "]" : "");
    add_controls(r, &first);
    qn__buf_add_text(r->out, " )");
}

/* ---- Characters ---- */

static int hex_value(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 0x20) : NULL;
    return found ? (int)(found - digits) : c >= '0' && c <= '9' ? c - '0' : -1;
}

static bool read_hex(reader *r, int n, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < n; i++, r->at++) {
        int digit = r->at < r->end ? hex_value(*r->at) : -1;
        if (digit < 0) {
            return stop(r, false, "the pattern has a malformed escape");
        }
        *cp = *cp << 4 | (uint32_t)digit;
    }
    return (*cp < 0xD800 || *cp > 0xDFFF) || stop(r, false, "the pattern has a surrogate");
}

/* The character behind a backslash. */
static bool read_escape(reader *r, uint32_t *cp)
{
    r->at++;
    if (r->at >= r->end) {
        return stop(r, true, "trailing backslash");
    }
    char c = *r->at++;
    if (c == 'x' || c == 'u') {
        return read_hex(r, c == 'x' ? 2 : 4, cp);
    }
    if (c == 't' || c == 'r' || c == 'n') {
        *cp = c == 't' ? '\t' : c == 'r' ? '\r' : '\n';
        return true;
    }
    if (c != '\0' && strchr("\\\"[]-^$.|?*+(){}/", c)) {
        *cp = (uint8_t)c;
        return true;
    }
    return stop(r, false, "the pattern has an escape that is not supported");
}

static bool read_point(reader *r, uint32_t *cp)
{
    if (*r->at == '\\') {
        return read_escape(r, cp);
    }
    int n = qn__utf8_decode(r->at, (size_t)(r->end - r->at), cp);
    r->at += n;
    return n > 0 || stop(r, true, "no UTF-8");
}

static bool read_class(reader *r)
{
    r->n_ranges = 0;
    r->at++;
    bool negated = r->at < r->end && *r->at == '^';
    r->at += negated;
    while (r->at < r->end && *r->at != ']') {
        uint32_t low, high;
        if (!read_point(r, &low)) {
            return false;
        }
        high = low;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            if (!read_point(r, &high)) {
                return false;
            }
        }
        if (low > high) {
            return stop(r, true, "range out of order in a character class");
        }
        if (!add_range(r, low, high)) {
            return false;
        }
    }
    if (r->at >= r->end) {
        return stop(r, true, "unterminated character class");
    }
    r->at++;
    join_ranges(r);
    if (negated && !complement(r)) {
        return false;
    }
    write_set(r);
    r->item = true;
    return true;
}

/* "." is anything but a line break. */
static bool read_dot(reader *r)
{
    r->at++;
    r->n_ranges = 0;
    if (!add_range(r, '\n', '\n') || !add_range(r, '\r', '\r') || !complement(r)) {
        return false;
    }
    write_set(r);
    r->item = true;
    return true;
}

static bool read_literal(reader *r)
{
    uint32_t cp;
    char bytes[4];
    qn_buf text = {0};
    if (!read_point(r, &cp)) {
        return false;
    }
    size_t n = (size_t)qn__utf8_encode(cp, bytes);
    if (cp == 0x7F) {
        qn__buf_add_text(&text, "\\u007f");
    } else {
        qn__json_escape(&text, bytes, n);
    }
    qn__gbnf_quote(r->out, (const char *)text.data, text.size);
    r->out->failed |= text.failed;
    qn__buf_free(&text);
    r->item = true;
    return true;
}

/* ---- Groups and repetition ---- */

static bool open_group(reader *r)
{
    r->at++;
    if (r->at < r->end && *r->at == '?') {
        if (r->end - r->at < 2 || r->at[1] != ':') {
            return stop(r, false, "the pattern has a kind of group that is not supported");
        }
        r->at += 2;
    }
    if (++r->depth > NESTING_MAX) {
        return stop(r, false, "the pattern nests too deep");
    }
    qn__buf_add_text(r->out, "( ");
    r->item = false;
    return true;
}

static bool close_group(reader *r)
{
    r->at++;
    if (r->depth == 0) {
        return stop(r, true, "unbalanced parentheses");
    }
    r->depth--;
    qn__buf_add_text(r->out, " )");
    r->item = true;
    return true;
}

/* Whether the decimal number at `a` is above that at `b`; each ends before something else. */
static bool is_above(const char *a, const char *b)
{
    while (*a == '0') {
        a++;
    }
    while (*b == '0') {
        b++;
    }
    size_t n_a = strspn(a, "0123456789"), n_b = strspn(b, "0123456789");
    return n_a != n_b ? n_a > n_b : memcmp(a, b, n_a) > 0;
}

/* {m}, {m,}, {m,n} or {,n}, written over. */
static bool read_braces(reader *r)
{
    const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));
    const char *comma = close ? memchr(r->at, ',', (size_t)(close - r->at)) : NULL;
    bool ok = close && close > r->at + 1 && !(comma && close == r->at + 2);
    for (const char *c = r->at + 1; ok && c < close; c++) {
        ok = c == comma || (*c >= '0' && *c <= '9');
    }
    if (!ok) {
        return stop(r, false, "the pattern has malformed braces");
    }
    if (comma && comma > r->at + 1 && comma + 1 < close && is_above(r->at + 1, comma + 1)) {
        return stop(r, true, "a minimum above the maximum in braces");
    }
    qn__buf_add_text(r->out, comma == r->at + 1 ? "{0" : "{");
    qn__buf_add(r->out, r->at + 1, (size_t)(close - r->at));
    r->at = close + 1;
    return true;
}

static bool read_repeat(reader *r)
{
    if (!r->item) {
        return stop(r, true, "nothing to repeat");
    }
    if (*r->at == '{') {
        if (!read_braces(r)) {
            return false;
        }
    } else {
        qn__buf_add_byte(r->out, (uint8_t)*r->at++);
    }
    if (r->at < r->end && *r->at == '?') {
        r->at++; /* the shortest or the longest match: the same strings fit */
    }
    r->item = false;
    return true;
}

static bool read_next(reader *r)
{
    switch (*r->at) {
    case '(':
        return open_group(r);
    case ')':
        return close_group(r);
    case '[':
        return read_class(r);
    case '.':
        return read_dot(r);
    case '|':
        r->at++;
        r->item = false;
        qn__buf_add_byte(r->out, '|');
        return true;
    case '*':
    case '+':
    case '?':
    case '{':
        return read_repeat(r);
    case '^':
    case '$':
        return stop(r, false, "the pattern has an anchor inside");
    case ']':
    case '}':
        return stop(r, false, "the pattern has a stray bracket");
    default:
        return read_literal(r);
    }
}

/* Whether the text is ^…$ and the $ is not escaped. */
static bool is_anchored(const char *pattern, size_t size)
{
    size_t slashes = 0;
    if (size < 2 || pattern[0] != '^' || pattern[size - 1] != '$') {
        return false;
    }
    while (slashes + 2 < size && pattern[size - 2 - slashes] == '\\') {
        slashes++;
    }
    return slashes % 2 == 0;
}

bool qn__schema_pattern(qn_buf *out, const char *pattern, size_t size, bool *invalid,
                        const char **why)
{
    *invalid = false;
    if (!is_anchored(pattern, size)) {
        *why = "the pattern must begin with ^ and end with $";
        return false;
    }
    reader r = {.at = pattern + 1, .end = pattern + size - 1, .out = out};
    bool ok = true;
    qn__buf_add_text(out, "\"\\\"\" ( ");
    while (ok && r.at < r.end) {
        ok = read_next(&r);
        qn__buf_add_byte(out, ' ');
    }
    if (ok && r.depth > 0) {
        ok = stop(&r, true, "unbalanced parentheses");
    }
    qn__buf_add_text(out, " ) \"\\\"\"");
    free(r.ranges);
    *invalid = r.invalid;
    *why = r.why;
    return ok;
}
