/* json.h: writes JSON as a stream; commas and indentation come by themselves. Strings may hold any
 * bytes: what is not UTF-8 becomes U+FFFD. */
#ifndef QUERN_CLI_JSON_H
#define QUERN_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_JSON_MAX_DEPTH = 16 };

typedef struct cli_json {
    FILE *out;
    int depth;
    bool compact;                     /* all on one line */
    bool started[CLI_JSON_MAX_DEPTH]; /* the container has an element already */
    bool keyed;                       /* a key was just written */
} cli_json;

/* bracket: '{' or '['. */
void cli_json_open(cli_json *j, char bracket);
void cli_json_close(cli_json *j, char bracket);
void cli_json_key(cli_json *j, const char *key);
void cli_json_key_n(cli_json *j, const char *key, size_t size);

void cli_json_text(cli_json *j, const char *text);
void cli_json_text_n(cli_json *j, const char *text, size_t size);
void cli_json_i64(cli_json *j, int64_t v);
void cli_json_u64(cli_json *j, uint64_t v);
void cli_json_bool(cli_json *j, bool v);
/* `digits` significant ones; NaN and infinities become strings. */
void cli_json_number(cli_json *j, double v, int digits);

/* Length of the UTF-8 sequence that text[0..n) begins with, 0 where it does not (n > 0). */
size_t cli_utf8_length(const unsigned char *text, size_t n);

#endif
