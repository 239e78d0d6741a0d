/* json_text.c: JSON values and texts as a grammar spells them. */
#include <stdio.h>
#include <stdlib.h>

#include "grammar/rules.h"
#include "grammar/schema.h"

void qn__json_escape(qn_buf *out, const char *text, size_t size)
{
    static const char short_of[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    for (size_t i = 0; i < size; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c == '"' || c == '\\') {
            qn__buf_add_byte(out, '\\');
            qn__buf_add_byte(out, c);
        } else if (c >= 32) {
            qn__buf_add_byte(out, c);
        } else if (short_of[c]) {
            qn__buf_printf(out, "\\%c", short_of[c]);
        } else {
            qn__buf_printf(out, "\\u%04x", c);
        }
    }
}

void qn__gbnf_quote(qn_buf *out, const char *bytes, size_t size)
{
    qn__buf_add_byte(out, '"');
    for (size_t i = 0; i < size; i++) {
        uint8_t c = (uint8_t)bytes[i];
        if (c == '"' || c == '\\') {
            qn__buf_add_byte(out, '\\');
            qn__buf_add_byte(out, c);
        } else if (c < 32 || c == 127) {
            qn__buf_printf(out, "\\x%02X", c);
        } else {
            qn__buf_add_byte(out, c);
        }
    }
    qn__buf_add_byte(out, '"');
}

static void add_string(qn_buf *out, const char *text, size_t size)
{
    qn__buf_add_byte(out, '"');
    qn__json_escape(out, text, size);
    qn__buf_add_byte(out, '"');
}

/* The fewest digits that give the same number back; always with a point or an exponent. */
static void add_real(qn_buf *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    bool is_real = false;
    for (char *c = text; *c; c++) {
        if (*c == ',') { /* the point of some locales */
            *c = '.';
        }
        is_real |= *c == '.' || *c == 'e';
    }
    qn__buf_printf(out, "%s%s", text, is_real ? "" : ".0");
}

/* An array or object that is being written. */
typedef struct level {
    json_t *value;
    void *iter;   /* of an object */
    size_t index; /* of an array, and count of members written */
} level;

static void add_scalar(qn_buf *out, json_t *v)
{
    if (json_is_string(v)) {
        add_string(out, json_string_value(v), json_string_length(v));
    } else if (json_is_integer(v)) {
        qn__buf_printf(out, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        add_real(out, json_real_value(v));
    } else {
        qn__buf_add_text(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}

/* The next member of the level, its comma and key written; NULL at the end. */
static json_t *next_member(qn_buf *out, level *l)
{
    json_t *next;
    bool is_object = json_is_object(l->value);
    if (is_object) {
        next = l->iter ? json_object_iter_value(l->iter) : NULL;
    } else {
        next = json_array_get(l->value, l->index);
    }
    if (!next) {
        qn__buf_add_byte(out, is_object ? '}' : ']');
        return NULL;
    }
    if (l->index++ > 0) {
        qn__buf_add_byte(out, ',');
    }
    if (is_object) {
        add_string(out, json_object_iter_key(l->iter), json_object_iter_key_len(l->iter));
        qn__buf_add_byte(out, ':');
        l->iter = json_object_iter_next(l->value, l->iter);
    }
    return next;
}

bool qn__json_compact(qn_buf *out, json_t *value)
{
    level *levels = NULL;
    size_t n = 0, room = 0;
    bool ok = true;
    for (json_t *v = value; v || n > 0; v = next_member(out, &levels[n - 1])) {
        if (!v) {
            if (--n == 0) {
                break;
            }
        } else if (json_is_object(v) || json_is_array(v)) {
            if (!qn__grow(&levels, &room, n + 1, sizeof *levels)) {
                ok = false;
                break;
            }
            levels[n++] = (level){v, json_is_object(v) ? json_object_iter(v) : NULL, 0};
            qn__buf_add_byte(out, json_is_object(v) ? '{' : '[');
        } else {
            add_scalar(out, v);
            if (n == 0) {
                break;
            }
        }
    }
    free(levels);
    return ok && !out->failed;
}
