/*
 * support.h: what the commands share: messages, prompts, loading a model with progress on the
 * terminal, Ctrl-C, the clock.
 */
#ifndef QUERN_CLI_SUPPORT_H
#define QUERN_CLI_SUPPORT_H

#include <stdio.h>

#include <quern/context.h>
#include <quern/device.h>
#include <quern/model.h>

#include "cli/args.h"

/* "error: …" on stderr; returns 1, the exit code. */
int cli_error(const char *format, ...) QN_PRINTF(1, 2);

/* ---- Log ---- */

/* Where the library's messages go. Zero-initialise. */
typedef struct cli_log {
    FILE *file; /* --log-file, or NULL */
    bool prefix, timestamps;
    double start_ms;
} cli_log;

/* Opens the log as the flags say. False after a message. */
bool cli_log_open(cli_log *log, const cli_common *common, qn_log *out);
void cli_log_close(cli_log *log);

/* ---- Time ---- */

double cli_now_ms(void); /* of a clock that only goes forward */

/* ---- Ctrl-C ---- */

/* From here on the first Ctrl-C sets a mark, the second ends the program with 130. */
void cli_catch_interrupt(void);
bool cli_interrupted(void);

/* ---- Prompts ---- */

typedef struct cli_text {
    char *data; /* NUL-terminated; free() */
    size_t size;
} cli_text;

/* Reads a whole file or, for "-", standard input. False after a message. */
bool cli_read_file(const char *path, cli_text *out);

/* The prompt that -p, -f or -bf give, escapes done; without any of them standard input, if it is no
 * terminal. False after a message. */
bool cli_read_prompt(const cli_common *common, cli_text *out);

/* Escapes \n \r \t \' \" \\ \xHH in place; anything else stays. */
void cli_unescape(cli_text *text);

/* Ids of a text as the model reads prompts: BOS as the vocabulary wants it, special tokens
 * recognised. False after a message. */
struct qn_tokens;
bool cli_tokenize(const qn_model *model, const char *text, size_t size, struct qn_tokens *out);

/* ---- Models ---- */

/* Loads the model that -m names; a terminal sees progress. False after a message. */
bool cli_load_model(const cli_common *common, const qn_log *log, qn_model **out);

/* Opens the CPU with the threads and the instruction set that the flags ask for. It must outlive
 * the context. False after a message. */
bool cli_open_device(const cli_common *common, const qn_log *log, qn_device **out);

/* Context options as the flags say, one sequence, one output row; abort on Ctrl-C. */
qn_context_options cli_context_options(const cli_common *common, const qn_log *log);

#endif
