/* error.h: how the library fills a qn_error, and the log line. */
#ifndef QUERN_BASE_ERROR_H
#define QUERN_BASE_ERROR_H

#include <quern/base.h>

/*
 * Stores code and formatted message into `err` (may be NULL) and returns `code`, so that a failing
 * function can end with `return qn__error(err, QN_ERR_…, "…")`. A message stays one line of UTF-8
 * whatever it quotes: control characters and invalid bytes become '?'.
 */
qn_status qn__error(qn_error *err, qn_status code, const char *format, ...) QN_PRINTF(3, 4);

/* Puts formatted text and ": " before the message that is there: names the file, tensor or flag. */
void qn__error_prefix(qn_error *err, const char *format, ...) QN_PRINTF(2, 3);

/* The common case; names what was being allocated. */
qn_status qn__error_memory(qn_error *err, const char *what);

/* Sends one line, made like a message, to the log, if it has a callback and wants the level. */
void qn__log_line(const qn_log *log, qn_log_level level, const char *format, ...) QN_PRINTF(3, 4);

#endif
