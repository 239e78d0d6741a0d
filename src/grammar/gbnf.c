/*
 * gbnf.c: GBNF text to rules.
 *
 * One pass, without recursion: a group opens a frame with a rule of its own, whose elements lie on
 * top of `work` until the group closes and they move to the end of the rules. A repetition is
 * rewritten at once into copies of its item and right-recursive rules.
 */
#include "grammar/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "vocab/text_map.h"

#define MOST_POINT 0x10FFFFU

/* A rule (or group) that is being read. */
typedef struct frame {
    uint32_t rule;
    uint32_t n_rules_before;
    size_t base;   /* its elements: work[base ..] */
    size_t item;   /* where the last item begins; SIZE_MAX: there is none to repeat */
    uint64_t span; /* rules that the last item brought with it, at least 1 */
} frame;

typedef struct parser {
    const char *at, *end;
    const qn_vocab *vocab;
    qn_rules *rules;
    size_t elements_room, rules_room, sets_room, ranges_room;
    qn_element *work;
    size_t n_work, work_room;
    frame frames[QN_GRAMMAR_NESTING_MAX + 1];
    size_t n_frames;
    qn_text_map names;
    uint32_t *name_rules; /* by index of the name: its rule */
    size_t n_names, names_room;
    qn_error *err;
    qn_status status;
} parser;

bool qn__grow(void *block, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) {
        return true;
    }
    size_t room = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    room = room < need ? need : room;
    void *old;
    memcpy(&old, block, sizeof old);
    if (!qn__realloc(&old, room, size)) {
        return false;
    }
    memcpy(block, &old, sizeof old);
    *capacity = room;
    return true;
}

/* ---- Errors ---- */

static bool out_of_memory(parser *p)
{
    p->status = qn__error_memory(p->err, "grammar");
    return false;
}

/* "WHAT at REST OF THE TEXT" */
static bool expecting(parser *p, const char *what, const char *at)
{
    if (at >= p->end) {
        p->status = qn__error(p->err, QN_ERR_FORMAT, "grammar: %s at the end of the text", what);
    } else {
        size_t rest = (size_t)(p->end - at);
        p->status = qn__error(p->err, QN_ERR_FORMAT, "grammar: %s at %.*s", what,
                              rest > 200 ? 200 : (int)rest, at);
    }
    return false;
}

static bool too_much(parser *p, const char *what)
{
    p->status = qn__error(p->err, QN_ERR_LIMIT, "grammar: %s", what);
    return false;
}

static bool cut_short(parser *p)
{
    p->status = qn__error(p->err, QN_ERR_FORMAT, "grammar: unexpected end of input");
    return false;
}

/* ---- Building ---- */

static bool push(parser *p, qn_element_kind kind, uint32_t value)
{
    if (p->n_work + p->rules->n_elements >= QN_GRAMMAR_ELEMENTS_MAX) {
        return too_much(p, "more than 1000000 elements");
    }
    if (!qn__grow(&p->work, &p->work_room, p->n_work + 1, sizeof *p->work)) {
        return out_of_memory(p);
    }
    p->work[p->n_work++] = (qn_element){kind, value};
    return true;
}

static bool new_rule(parser *p, uint32_t *id)
{
    qn_rules *r = p->rules;
    if (!qn__grow(&r->rules, &p->rules_room, (size_t)r->n_rules + 1, sizeof *r->rules)) {
        return out_of_memory(p);
    }
    *id = r->n_rules++;
    r->rules[*id] = (qn_rule){0};
    return true;
}

/* The rule of a name, made on first mention. */
static bool rule_of_name(parser *p, const char *name, size_t size, uint32_t *id)
{
    int32_t index = qn__text_map_add(&p->names, name, size);
    if (index < 0) {
        return out_of_memory(p);
    }
    if ((size_t)index == p->n_names) {
        if (!qn__grow(&p->name_rules, &p->names_room, p->n_names + 1, sizeof(uint32_t))) {
            return out_of_memory(p);
        }
        if (!new_rule(p, &p->name_rules[index])) {
            return false;
        }
        p->n_names++;
    }
    *id = p->name_rules[index];
    return true;
}

/* work[from ..] and an END become the rule's definition, and leave `work`. */
static bool define(parser *p, uint32_t rule, size_t from)
{
    if (!push(p, QN_ELEMENT_END, 0)) {
        return false;
    }
    qn_rules *r = p->rules;
    size_t n = p->n_work - from;
    if (!qn__grow(&r->elements, &p->elements_room, r->n_elements + n, sizeof *r->elements)) {
        return out_of_memory(p);
    }
    memcpy(r->elements + r->n_elements, p->work + from, n * sizeof *r->elements);
    r->rules[rule].first = r->n_elements;
    r->n_elements += (uint32_t)n;
    p->n_work = from;
    return true;
}

/* ---- Characters ---- */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static bool at_char(const parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

/* Skips blanks and comments, and line breaks where they are free. */
static void skip_blanks(parser *p, bool breaks)
{
    while (p->at < p->end) {
        char c = *p->at;
        if (c == '#') {
            while (p->at < p->end && *p->at != '\n' && *p->at != '\r') {
                p->at++;
            }
        } else if (c == ' ' || c == '\t' || (breaks && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            break;
        }
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool read_hex(parser *p, int n, uint32_t *cp)
{
    const char *start = p->at;
    uint32_t value = 0;
    for (int i = 0; i < n; i++, p->at++) {
        int digit = p->at < p->end ? hex_digit(*p->at) : -1;
        if (digit < 0) {
            return expecting(p,
                             n == 2   ? "expecting 2 hex chars"
                             : n == 4 ? "expecting 4 hex chars"
                                      : "expecting 8 hex chars",
                             start);
        }
        value = value << 4 | (uint32_t)digit;
    }
    if (value > MOST_POINT) {
        return expecting(p, "expecting a code point up to 10FFFF", start);
    }
    *cp = value;
    return true;
}

/* One character of a literal or a set, escapes done. */
static bool read_char(parser *p, uint32_t *cp)
{
    const char *start = p->at;
    if (p->at >= p->end) {
        return cut_short(p);
    }
    if (*p->at != '\\') {
        int n = qn__utf8_decode(p->at, (size_t)(p->end - p->at), cp);
        p->at += n;
        return n > 0 || expecting(p, "expecting UTF-8", start);
    }
    if (p->end - p->at < 2) {
        return cut_short(p);
    }
    char c = p->at[1];
    p->at += 2;
    switch (c) {
    case 'x':
        return read_hex(p, 2, cp);
    case 'u':
        return read_hex(p, 4, cp);
    case 'U':
        return read_hex(p, 8, cp);
    case 't':
        *cp = '\t';
        return true;
    case 'r':
        *cp = '\r';
        return true;
    case 'n':
        *cp = '\n';
        return true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
        *cp = (uint8_t)c;
        return true;
    default:
        return expecting(p, "unknown escape", start);
    }
}

/* ---- Elements ---- */

static void begin_item(parser *p)
{
    frame *f = &p->frames[p->n_frames - 1];
    f->item = p->n_work;
    f->span = 1;
}

static bool read_literal(parser *p)
{
    begin_item(p);
    p->at++;
    while (!at_char(p, '"')) {
        uint32_t cp;
        if (!read_char(p, &cp) || !push(p, QN_ELEMENT_CHAR, cp)) {
            return false;
        }
    }
    p->at++;
    return true;
}

static int by_low(const void *a, const void *b)
{
    uint32_t x = ((const qn_range *)a)->low, y = ((const qn_range *)b)->low;
    return (x > y) - (x < y);
}

/* A set of the ranges from `first` on, which are put in order and joined where they touch. */
static bool add_set(parser *p, uint32_t first, bool negated)
{
    qn_rules *r = p->rules;
    if (!qn__grow(&r->sets, &p->sets_room, (size_t)r->n_sets + 1, sizeof *r->sets)) {
        return out_of_memory(p);
    }
    qn_range *ranges = r->ranges ? r->ranges + first : NULL;
    uint32_t n = r->n_ranges - first, kept = 0;
    if (n > 1) {
        qsort(ranges, n, sizeof *ranges, by_low);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && ranges[i].low <= ranges[kept - 1].high + 1) {
            if (ranges[i].high > ranges[kept - 1].high) {
                ranges[kept - 1].high = ranges[i].high;
            }
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    r->n_ranges = first + kept;
    r->sets[r->n_sets] = (qn_set){first, kept, negated};
    return push(p, QN_ELEMENT_SET, r->n_sets++);
}

static bool read_set(parser *p)
{
    qn_rules *r = p->rules;
    uint32_t first = r->n_ranges;
    begin_item(p);
    p->at++;
    bool negated = at_char(p, '^');
    p->at += negated;
    while (!at_char(p, ']')) {
        qn_range range;
        if (!read_char(p, &range.low)) {
            return false;
        }
        range.high = range.low;
        if (p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (!read_char(p, &range.high)) {
                return false;
            }
        }
        if (r->n_ranges >= QN_GRAMMAR_ELEMENTS_MAX) {
            return too_much(p, "more than 1000000 ranges of characters");
        }
        if (!qn__grow(&r->ranges, &p->ranges_room, (size_t)r->n_ranges + 1, sizeof *r->ranges)) {
            return out_of_memory(p);
        }
        if (range.low <= range.high) {
            r->ranges[r->n_ranges++] = range;
        }
    }
    p->at++;
    return add_set(p, first, negated);
}

static bool read_number(parser *p, uint32_t *out)
{
    const char *start = p->at;
    uint64_t value = 0;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        value = value * 10 + (uint64_t)(*p->at - '0');
        value = value > INT32_MAX ? INT32_MAX : value;
    }
    *out = (uint32_t)value;
    return p->at > start || expecting(p, "expecting an int", start);
}

/* The one token that "<text>" tokenizes to. */
static bool token_of_text(parser *p, const char *text, size_t size, uint32_t *id)
{
    int32_t ids[2];
    size_t n = 0;
    if (!p->vocab) {
        return expecting(p, "no vocab to parse token", text);
    }
    p->status =
        qn_vocab_tokenize_into(p->vocab, text, size, QN_TOKENIZE_PARSE_SPECIAL, ids, 2, &n, p->err);
    if (p->status != QN_OK) {
        return false;
    }
    *id = (uint32_t)ids[0];
    return n == 1 || expecting(p, "expecting the text of one token", text);
}

/* <[N]>, <text>, and both with ! before them. */
static bool read_token(parser *p)
{
    bool negated = *p->at == '!';
    const char *start = p->at + negated;
    uint32_t id;
    begin_item(p);
    p->at = start;
    if (!at_char(p, '<')) {
        return expecting(p, "expecting <", start);
    }
    const char *close = memchr(start, '>', (size_t)(p->end - start));
    if (!close) {
        return cut_short(p);
    }
    if (start[1] == '[') {
        p->at = start + 2;
        if (!read_number(p, &id)) {
            return false;
        }
        if (p->end - p->at < 2 || p->at[0] != ']' || p->at[1] != '>') {
            return expecting(p, "expecting ]>", p->at);
        }
        p->at += 2;
    } else {
        if (!token_of_text(p, start, (size_t)(close + 1 - start), &id)) {
            return false;
        }
        p->at = close + 1;
    }
    return push(p, negated ? QN_ELEMENT_NOT_TOKEN : QN_ELEMENT_TOKEN, id);
}

static bool read_reference(parser *p)
{
    const char *name = p->at;
    uint32_t rule;
    while (p->at < p->end && is_name_char(*p->at)) {
        p->at++;
    }
    begin_item(p);
    return rule_of_name(p, name, (size_t)(p->at - name), &rule) && push(p, QN_ELEMENT_RULE, rule);
}

/* ---- Repetition ---- */

#define UNBOUNDED UINT32_MAX

/* *, +, ? or {m,n}: how often. */
static bool read_counts(parser *p, uint32_t *low, uint32_t *high)
{
    const char *start = p->at;
    char c = *p->at++;
    *low = c == '+';
    *high = c == '?' ? 1 : UNBOUNDED;
    if (c != '{') {
        return true;
    }
    skip_blanks(p, true);
    if (!read_number(p, low)) {
        return false;
    }
    *high = *low;
    skip_blanks(p, true);
    if (at_char(p, ',')) {
        p->at++;
        skip_blanks(p, true);
        *high = UNBOUNDED;
        if (p->at < p->end && *p->at >= '0' && *p->at <= '9' && !read_number(p, high)) {
            return false;
        }
        skip_blanks(p, true);
    }
    if (!at_char(p, '}')) {
        return expecting(p, "expecting }", p->at);
    }
    p->at++;
    if (*low > QN_GRAMMAR_REPEAT_MAX) {
        p->status = qn__error(p->err, QN_ERR_LIMIT,
                              "grammar: repetition limit: at least %u times, %d are allowed", *low,
                              QN_GRAMMAR_REPEAT_MAX);
        return false;
    }
    if (*high < *low) {
        return expecting(p, "expecting a maximum that is not below the minimum", start);
    }
    if (*high > QN_GRAMMAR_REPEAT_MAX) {
        *high = UNBOUNDED;
    }
    return true;
}

/* Appends a copy of work[from, from + n). */
static bool push_copy(parser *p, size_t from, size_t n)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = push(p, (qn_element_kind)p->work[from + i].kind, p->work[from + i].value);
    }
    return ok;
}

/*
 * The item S (the n elements at `item`, which stay) as an optional tail: R ::= S R | where there is
 * no end, else a chain of `count` rules R1 ::= S |, R2 ::= S R1 |, … *rule gets the last one.
 */
static bool make_tail(parser *p, size_t item, size_t n, uint32_t count, uint32_t *rule)
{
    bool endless = count == UNBOUNDED;
    uint32_t last = 0;
    for (uint32_t i = 0; i < (endless ? 1 : count); i++) {
        size_t from = p->n_work;
        uint32_t id;
        if (!new_rule(p, &id) || !push_copy(p, item, n)) {
            return false;
        }
        if ((endless || i > 0) && !push(p, QN_ELEMENT_RULE, endless ? id : last)) {
            return false;
        }
        if (!push(p, QN_ELEMENT_OR, 0) || !define(p, id, from)) {
            return false;
        }
        last = id;
    }
    *rule = last;
    return true;
}

static bool repeat(parser *p)
{
    frame *f = &p->frames[p->n_frames - 1];
    const char *start = p->at;
    uint32_t low, high, tail = 0;
    if (f->item == SIZE_MAX || f->item == p->n_work) {
        return expecting(p, "expecting preceding item to */+/?/{", start);
    }
    if (!read_counts(p, &low, &high)) {
        return false;
    }
    uint64_t count = high != UNBOUNDED ? high : low > 1 ? low : 1;
    if (f->span * count > QN_GRAMMAR_REPEAT_MAX) {
        p->status = qn__error(p->err, QN_ERR_LIMIT,
                              "grammar: repetition limit: a repetition would make %llu rules, %d "
                              "are allowed",
                              (unsigned long long)(f->span * count), QN_GRAMMAR_REPEAT_MAX);
        return false;
    }
    size_t n = p->n_work - f->item;
    bool has_tail = high > low;
    if (has_tail && !make_tail(p, f->item, n, high == UNBOUNDED ? UNBOUNDED : high - low, &tail)) {
        return false;
    }
    for (uint32_t i = 1; i < low; i++) {
        if (!push_copy(p, f->item, n)) {
            return false;
        }
    }
    p->n_work = low == 0 ? f->item : p->n_work;
    f->span = count > 0 ? f->span * count : 1;
    return !has_tail || push(p, QN_ELEMENT_RULE, tail);
}

/* ---- Rules ---- */

static bool open_frame(parser *p, uint32_t rule)
{
    if (p->n_frames > QN_GRAMMAR_NESTING_MAX) {
        return too_much(p, "groups nested more than 256 deep");
    }
    p->frames[p->n_frames++] = (frame){.rule = rule,
                                       .n_rules_before = p->rules->n_rules,
                                       .base = p->n_work,
                                       .item = SIZE_MAX,
                                       .span = 1};
    return true;
}

static bool open_group(parser *p)
{
    uint32_t rule;
    uint32_t before = p->rules->n_rules;
    p->at++;
    if (!new_rule(p, &rule) || !open_frame(p, rule)) {
        return false;
    }
    p->frames[p->n_frames - 1].n_rules_before = before;
    return true;
}

static bool close_group(parser *p)
{
    frame inner = p->frames[--p->n_frames];
    uint64_t span = p->rules->n_rules - inner.n_rules_before;
    p->at++;
    if (!define(p, inner.rule, inner.base)) {
        return false;
    }
    begin_item(p);
    p->frames[p->n_frames - 1].span = span;
    return push(p, QN_ELEMENT_RULE, inner.rule);
}

static bool next_alternative(parser *p)
{
    p->at++;
    skip_blanks(p, true);
    p->frames[p->n_frames - 1].item = SIZE_MAX;
    return push(p, QN_ELEMENT_OR, 0);
}

/* The alternatives of a rule, up to the end of its line. */
static bool read_alternatives(parser *p, uint32_t rule)
{
    bool ok = open_frame(p, rule), more = true;
    while (ok && more) {
        skip_blanks(p, p->n_frames > 1);
        char c = p->at < p->end ? *p->at : '\0';
        if (c == '"') {
            ok = read_literal(p);
        } else if (c == '[') {
            ok = read_set(p);
        } else if (c == '(') {
            ok = open_group(p);
        } else if (c == ')' && p->n_frames > 1) {
            ok = close_group(p);
        } else if (c == '|') {
            ok = next_alternative(p);
        } else if (c == '*' || c == '+' || c == '?' || c == '{') {
            ok = repeat(p);
        } else if (c == '.') {
            begin_item(p);
            p->at++;
            ok = add_set(p, p->rules->n_ranges, true);
        } else if (c == '<' || c == '!') {
            ok = read_token(p);
        } else if (is_name_char(c)) {
            ok = read_reference(p);
        } else {
            more = false;
        }
    }
    if (ok && p->n_frames > 1) {
        return expecting(p, "expecting ')'", p->at);
    }
    p->n_frames = 0;
    return ok && define(p, rule, 0);
}

static bool read_rule(parser *p)
{
    const char *name = p->at;
    uint32_t rule;
    while (p->at < p->end && is_name_char(*p->at)) {
        p->at++;
    }
    if (p->at == name) {
        return expecting(p, "expecting name", name);
    }
    size_t size = (size_t)(p->at - name);
    skip_blanks(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0) {
        return expecting(p, "expecting ::=", p->at);
    }
    p->at += 3;
    skip_blanks(p, true);
    if (!rule_of_name(p, name, size, &rule) || !read_alternatives(p, rule)) {
        return false;
    }
    if (p->at < p->end && *p->at != '\n' && *p->at != '\r') {
        return expecting(p, "expecting newline or end", p->at);
    }
    skip_blanks(p, true);
    return true;
}

/* ---- After the text ---- */

static bool check_names(parser *p, const char *root)
{
    qn_rules *r = p->rules;
    for (size_t i = 0; i < p->n_names; i++) {
        const qn_slice *name = &p->names.entries[i];
        if (r->rules[p->name_rules[i]].first == 0) {
            p->status =
                qn__error(p->err, QN_ERR_FORMAT, "grammar: Undefined rule identifier '%.*s'",
                          name->size > 200 ? 200 : (int)name->size, name->data);
            return false;
        }
    }
    int32_t found = qn__text_map_find(&p->names, root, strlen(root));
    if (found < 0) {
        p->status = qn__error(p->err, QN_ERR_FORMAT,
                              "grammar: grammar does not contain a '%.200s' symbol", root);
        return false;
    }
    r->root = p->name_rules[found];
    return true;
}

/* Where each alternative of each rule begins. */
static bool list_starts(parser *p)
{
    qn_rules *r = p->rules;
    size_t room = 0;
    for (uint32_t i = 0; i < r->n_rules; i++) {
        r->rules[i].first_start = r->n_starts;
        bool start = true;
        for (uint32_t e = r->rules[i].first;; e++) {
            if (start) {
                if (!qn__grow(&r->starts, &room, (size_t)r->n_starts + 1, sizeof(uint32_t))) {
                    return out_of_memory(p);
                }
                r->starts[r->n_starts++] = e;
            }
            if (r->elements[e].kind == QN_ELEMENT_END) {
                break;
            }
            start = r->elements[e].kind == QN_ELEMENT_OR;
        }
        r->rules[i].n_starts = r->n_starts - r->rules[i].first_start;
    }
    return true;
}

static bool parse_all(parser *p, const char *root)
{
    qn_rules *r = p->rules;
    if (!qn__grow(&r->elements, &p->elements_room, 1, sizeof *r->elements)) {
        return out_of_memory(p);
    }
    r->elements[r->n_elements++] = (qn_element){QN_ELEMENT_END, 0};
    skip_blanks(p, true);
    if (p->at == p->end) {
        p->status = qn__error(p->err, QN_ERR_FORMAT, "grammar: the text has no rules");
        return false;
    }
    while (p->at < p->end) {
        if (!read_rule(p)) {
            return false;
        }
    }
    return check_names(p, root) && list_starts(p);
}

qn_status qn__rules_parse(qn_rules *rules, const char *text, size_t size, const char *root,
                          const qn_vocab *vocab, qn_error *err)
{
    *rules = (qn_rules){0};
    if (size > QN_GRAMMAR_TEXT_MAX) {
        return qn__error(err, QN_ERR_LIMIT, "grammar: %zu bytes of text, %d are allowed", size,
                         QN_GRAMMAR_TEXT_MAX);
    }
    parser *p = qn__calloc(1, sizeof *p);
    if (!p || !qn__text_map_init(&p->names, 16)) {
        free(p);
        return qn__error_memory(err, "grammar");
    }
    p->at = text;
    p->end = text + size;
    p->vocab = vocab;
    p->rules = rules;
    p->err = err;
    if (parse_all(p, root)) {
        p->status = qn__rules_check_recursion(rules, err);
    }
    qn_status status = p->status;
    qn__text_map_free(&p->names);
    free(p->name_rules);
    free(p->work);
    free(p);
    if (status != QN_OK) {
        qn__rules_free(rules);
    }
    return status;
}

void qn__rules_free(qn_rules *rules)
{
    free(rules->elements);
    free(rules->rules);
    free(rules->starts);
    free(rules->sets);
    free(rules->ranges);
    *rules = (qn_rules){0};
}
