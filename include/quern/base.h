/*
 * quern/base.h: what every other public header builds on: status codes, the error value, the log
 * callback, the version.
 *
 * Conventions of the whole interface:
 * - A call that can fail returns a qn_status and takes a `qn_error *` last, which may be NULL;
 *   where it is not, it is written only when the call fails.
 * - Who makes a thing frees it; every qn_x_free accepts NULL.
 * - Options are plain structs, filled by qn_x_defaults() and then changed by the caller.
 * - The library never exits, never aborts on input and never prints: messages go to a qn_log.
 */
#ifndef QUERN_BASE_H
#define QUERN_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QN_API                             __attribute__((visibility("default")))
#define QN_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define QN_API
#define QN_PRINTF(format_index, first_arg)
#endif

/* What a call came to. The names are stable; new codes are added at the end. */
typedef enum qn_status {
    QN_OK = 0,
    QN_ERR_ARGUMENT,    /* the caller passed something that the call does not take */
    QN_ERR_MEMORY,      /* an allocation failed */
    QN_ERR_IO,          /* the operating system refused: open, read, write, map */
    QN_ERR_FORMAT,      /* a file or a text is damaged or not what it claims to be */
    QN_ERR_UNSUPPORTED, /* well formed, but this build cannot compute it */
    QN_ERR_LIMIT,       /* a hard limit of quern was exceeded */
    QN_ERR_NOT_FOUND,   /* a named thing does not exist */
    QN_ERR_FULL,        /* no room left in the context's memory; nothing was changed */
    QN_ERR_ABORTED,     /* the abort callback said stop */
    QN_ERR_COMPUTE      /* a device failed while computing */
} qn_status;

/* Name of a code, as "QN_ERR_IO"; never NULL. Thread safe. */
QN_API const char *qn_status_name(qn_status status);

#define QN_ERROR_MESSAGE_SIZE 512

/* The error value: a code and one line of text (NUL-terminated, UTF-8, cut to fit). */
typedef struct qn_error {
    qn_status code;
    char message[QN_ERROR_MESSAGE_SIZE];
} qn_error;

typedef enum qn_log_level {
    QN_LOG_ERROR = 1,
    QN_LOG_WARN = 2,
    QN_LOG_INFO = 3,
    QN_LOG_TRACE = 4,
    QN_LOG_DEBUG = 5
} qn_log_level;

/*
 * Where messages go. `fn` gets one line without a newline; it may be called from any thread that is
 * inside a call of the library, so it locks for itself. A zeroed struct is silent. Things that take
 * a log copy the struct; `user` must outlive them.
 */
typedef struct qn_log {
    void (*fn)(void *user, qn_log_level level, const char *line);
    void *user;
    qn_log_level max_level; /* lines above it are not made */
} qn_log;

/*
 * Told about long work (loading, quantizing): `fraction` rises from 0 to 1. Returning false asks
 * the work to stop with QN_ERR_ABORTED. Called from the thread that made the call.
 */
typedef bool (*qn_progress_fn)(void *user, float fraction);

/* The version, as "0.1.0". */
QN_API const char *qn_version(void);

#ifdef __cplusplus
}
#endif
#endif
