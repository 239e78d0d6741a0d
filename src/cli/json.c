/* json.c: see json.h. */
#include "cli/json.h"

#include <math.h>
#include <string.h>

static void line(cli_json *j)
{
    if (j->compact) {
        return;
    }
    fputc('\n', j->out);
    for (int i = 0; i < j->depth; i++) {
        fputs("  ", j->out);
    }
}

/* What stands between the last thing and the next one. */
static void separate(cli_json *j)
{
    if (j->keyed) {
        j->keyed = false;
        return;
    }
    if (j->depth == 0) {
        return;
    }
    if (j->started[j->depth - 1]) {
        fputs(j->compact ? ", " : ",", j->out);
    }
    j->started[j->depth - 1] = true;
    line(j);
}

void cli_json_open(cli_json *j, char bracket)
{
    separate(j);
    fputc(bracket, j->out);
    if (j->depth < CLI_JSON_MAX_DEPTH) {
        j->started[j->depth++] = false;
    }
}

void cli_json_close(cli_json *j, char bracket)
{
    bool empty = j->depth > 0 && !j->started[j->depth - 1];
    j->depth -= j->depth > 0;
    if (!empty) {
        line(j);
    }
    fputc(bracket, j->out);
    if (j->depth == 0) {
        fputc('\n', j->out);
    }
}

size_t cli_utf8_length(const unsigned char *text, size_t n)
{
    static const struct {
        unsigned char low, high; /* of the first byte */
        unsigned char low2, high2;
        size_t length;
    } rows[] = {
        {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (text[0] < rows[r].low || text[0] > rows[r].high) {
            continue;
        }
        if (rows[r].length > n ||
            (rows[r].length > 1 && (text[1] < rows[r].low2 || text[1] > rows[r].high2))) {
            return 0;
        }
        for (size_t i = 2; i < rows[r].length; i++) {
            if (text[i] < 0x80 || text[i] > 0xBF) {
                return 0;
            }
        }
        return rows[r].length;
    }
    return 0;
}

static void quote(cli_json *j, const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    fputc('"', j->out);
    while (size > 0) {
        size_t n = cli_utf8_length(at, size);
        if (n == 0) {
            fputs("\\ufffd", j->out);
            n = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(j->out, "\\%c", *at);
        } else if (*at == '\n') {
            fputs("\\n", j->out);
        } else if (*at < 0x20 || *at == 0x7F) {
            fprintf(j->out, "\\u%04x", *at);
        } else {
            fwrite(at, 1, n, j->out);
        }
        at += n;
        size -= n;
    }
    fputc('"', j->out);
}

void cli_json_key_n(cli_json *j, const char *key, size_t size)
{
    separate(j);
    quote(j, key, size);
    fputs(": ", j->out);
    j->keyed = true;
}

void cli_json_key(cli_json *j, const char *key)
{
    cli_json_key_n(j, key, strlen(key));
}

void cli_json_text_n(cli_json *j, const char *text, size_t size)
{
    separate(j);
    quote(j, text, size);
}

void cli_json_text(cli_json *j, const char *text)
{
    cli_json_text_n(j, text, strlen(text));
}

void cli_json_i64(cli_json *j, int64_t v)
{
    separate(j);
    fprintf(j->out, "%lld", (long long)v);
}

void cli_json_u64(cli_json *j, uint64_t v)
{
    separate(j);
    fprintf(j->out, "%llu", (unsigned long long)v);
}

void cli_json_bool(cli_json *j, bool v)
{
    separate(j);
    fputs(v ? "true" : "false", j->out);
}

void cli_json_number(cli_json *j, double v, int digits)
{
    separate(j);
    if (isfinite(v)) {
        fprintf(j->out, "%.*g", digits, v);
    } else {
        fprintf(j->out, "\"%s\"", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    }
}
