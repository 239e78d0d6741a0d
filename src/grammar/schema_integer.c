/* schema_integer.c: the digits of a range of integers. */
#include <stdio.h>

#include "grammar/schema.h"

enum { DIGITS = 16, MOST_DIGITS = 20 }; /* of an open range; of a uint64_t */

/* "[a-b]", or the digit. */
static void add_digits(qn_buf *out, char low, char high)
{
    if (low == high) {
        qn__buf_printf(out, "\"%c\"", low);
    } else {
        qn__buf_printf(out, "[%c-%c]", low, high);
    }
}

static void add_any(qn_buf *out, size_t n)
{
    if (n > 0) {
        qn__buf_printf(out, " [0-9]{%zu}", n);
    }
}

static void begin(qn_buf *out, bool *first)
{
    qn__buf_add_text(out, *first ? "" : " | ");
    *first = false;
}

/* The alternative: the first `shared` digits of text, then one of [low-high], then any. */
static void add_branch(qn_buf *out, bool *first, const char *text, size_t shared, char low,
                       char high, size_t n)
{
    if (low > high) {
        return;
    }
    begin(out, first);
    if (shared > 0) {
        qn__buf_printf(out, "\"%.*s\" ", (int)shared, text);
    }
    add_digits(out, low, high);
    add_any(out, n - shared - 1);
}

/* Numbers of exactly n digits from low to high (texts of that length). */
static void add_same_length(qn_buf *out, bool *first, const char *low, const char *high, size_t n)
{
    size_t same = 0;
    while (same < n && low[same] == high[same]) {
        same++;
    }
    if (same == n) {
        begin(out, first);
        qn__buf_printf(out, "\"%s\"", low);
        return;
    }
    /* up from low: low itself, and larger at a later digit */
    for (size_t i = n - 1; i > same; i--) {
        char from = (char)(low[i] + (i < n - 1));
        add_branch(out, first, low, i, from, '9', n);
    }
    bool low_whole = same == n - 1, high_whole = same == n - 1;
    add_branch(out, first, low, same, (char)(low[same] + !low_whole),
               (char)(high[same] - !high_whole), n);
    for (size_t i = same + 1; i < n; i++) {
        char to = (char)(high[i] - (i < n - 1));
        add_branch(out, first, high, i, '0', to, n);
    }
}

static void repeat(char *text, char c, size_t n)
{
    memset(text, c, n);
    text[n] = '\0';
}

/* Magnitudes from low to high, as alternatives, each behind `sign`. */
static void add_magnitudes(qn_buf *out, bool *first, const char *sign, uint64_t low, uint64_t high)
{
    char from[MOST_DIGITS + 1], to[MOST_DIGITS + 1], edge[MOST_DIGITS + 1];
    size_t a = (size_t)snprintf(from, sizeof from, "%llu", (unsigned long long)low);
    size_t b = (size_t)snprintf(to, sizeof to, "%llu", (unsigned long long)high);
    bool inner = true;
    begin(out, first);
    qn__buf_printf(out, "%s( ", sign);
    if (a == b) {
        add_same_length(out, &inner, from, to, a);
    } else {
        repeat(edge, '9', a);
        add_same_length(out, &inner, from, edge, a);
        if (b - a > 1) { /* all numbers of the lengths between */
            begin(out, &inner);
            qn__buf_printf(out, "[1-9] [0-9]{%zu,%zu}", a, b - 2);
        }
        repeat(edge, '0', b);
        edge[0] = '1';
        add_same_length(out, &inner, edge, to, b);
    }
    qn__buf_add_text(out, " )");
}

/* 9 times as many as the digits of an open range, or as the bound has. */
static uint64_t open_end(uint64_t bound)
{
    uint64_t end = 9999999999999999U; /* DIGITS nines */
    while (end < bound && end < UINT64_MAX / 10) {
        end = end * 10 + 9;
    }
    return end < bound ? bound : end;
}

static uint64_t magnitude(int64_t value)
{
    return value < 0 ? 0U - (uint64_t)value : (uint64_t)value;
}

void qn__schema_integers(qn_buf *out, const int64_t *low, const int64_t *high)
{
    bool first = true;
    if (!low || *low < 0) { /* below zero; "-0" where the range spans it */
        uint64_t least = high && *high < 0 ? magnitude(*high) : 0;
        uint64_t most = low ? magnitude(*low) : open_end(least);
        add_magnitudes(out, &first, "\"-\" ", least, most);
    }
    if (!high || *high >= 0) {
        uint64_t least = low && *low > 0 ? (uint64_t)*low : 0;
        add_magnitudes(out, &first, "", least, high ? (uint64_t)*high : open_end(least));
    }
}
