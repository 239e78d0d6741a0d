/* error.c: status names, error values, log lines. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const char *const status_names[] = {
    [QN_OK] = "QN_OK",
    [QN_ERR_ARGUMENT] = "QN_ERR_ARGUMENT",
    [QN_ERR_MEMORY] = "QN_ERR_MEMORY",
    [QN_ERR_IO] = "QN_ERR_IO",
    [QN_ERR_FORMAT] = "QN_ERR_FORMAT",
    [QN_ERR_UNSUPPORTED] = "QN_ERR_UNSUPPORTED",
    [QN_ERR_LIMIT] = "QN_ERR_LIMIT",
    [QN_ERR_NOT_FOUND] = "QN_ERR_NOT_FOUND",
    [QN_ERR_FULL] = "QN_ERR_FULL",
    [QN_ERR_ABORTED] = "QN_ERR_ABORTED",
    [QN_ERR_COMPUTE] = "QN_ERR_COMPUTE",
};

const char *qn_status_name(qn_status status)
{
    size_t i = (size_t)status;
    return i < sizeof status_names / sizeof status_names[0] ? status_names[i] : "QN_ERR_?";
}

const char *qn_version(void)
{
    return QUERN_VERSION;
}

/* Messages quote names and texts from files: what could break a line, command a terminal or is not
 * UTF-8 becomes '?', byte by byte. */
static void make_line(char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int length = qn__utf8_decode(text + i, n - i, &cp);
        if (length == 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            memset(text + i, '?', length > 0 ? (size_t)length : 1);
        }
        i += length > 0 ? (size_t)length : 1;
    }
}

qn_status qn__error(qn_error *err, qn_status code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        make_line(err->message);
    }
    return code;
}

void qn__error_prefix(qn_error *err, const char *format, ...)
{
    if (!err) {
        return;
    }
    char text[QN_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text - 3) {
        return;
    }
    size_t used = (size_t)n;
    text[used++] = ':';
    text[used++] = ' ';
    size_t rest = strlen(err->message);
    if (rest > sizeof text - 1 - used) {
        rest = sizeof text - 1 - used;
    }
    memcpy(text + used, err->message, rest);
    text[used + rest] = '\0';
    memcpy(err->message, text, used + rest + 1);
    make_line(err->message);
}

qn_status qn__error_memory(qn_error *err, const char *what)
{
    return qn__error(err, QN_ERR_MEMORY, "out of memory for %s", what);
}

void qn__log_line(const qn_log *log, qn_log_level level, const char *format, ...)
{
    if (!log || !log->fn || level > log->max_level) {
        return;
    }
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    make_line(line);
    log->fn(log->user, level, line);
}
