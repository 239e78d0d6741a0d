/*
 * keys.h: reading hyper-parameters. A key is written without its prefix ("attention.head_count");
 * the value of general.architecture and a dot are put before it. Integers may be stored as any
 * integer type. Every number is checked against a range. The first error is kept, later calls
 * return the default, and the reader checks once at its end.
 */
#ifndef QUERN_MODEL_KEYS_H
#define QUERN_MODEL_KEYS_H

#include <quern/gguf.h>

typedef struct qn_keys {
    const qn_gguf *gguf;
    const char *prefix; /* the architecture */
    qn_status status;   /* of the first error */
    qn_error error;
} qn_keys;

/* The stored pair, or NULL. */
const qn_gguf_pair *qn__keys_find(qn_keys *k, const char *key);

/* Keeps an error that names the file and the key; the first one stays. */
void qn__keys_fail(qn_keys *k, qn_status code, const char *key, const char *format, ...)
    QN_PRINTF(4, 5);

/* Values that the file must have. */
int32_t qn__keys_need_i32(qn_keys *k, const char *key, int32_t low, int32_t high);
float qn__keys_need_f32(qn_keys *k, const char *key);

/* Values with a default. A float must be finite. */
int32_t qn__keys_i32(qn_keys *k, const char *key, int32_t fallback, int32_t low, int32_t high);
float qn__keys_f32(qn_keys *k, const char *key, float fallback);
bool qn__keys_bool(qn_keys *k, const char *key, bool fallback);
/* data NULL where the key is absent. */
qn_gguf_text qn__keys_text(qn_keys *k, const char *key);

/* A number fills all n values, an array must have exactly n; absent: `fallback` fills them. */
void qn__keys_i32_each(qn_keys *k, const char *key, int32_t fallback, int32_t low, int32_t high,
                       size_t n, int32_t *out);

/* Up to n elements of an array; returns its length (0 where the key is absent or a number). */
size_t qn__keys_i32_array(qn_keys *k, const char *key, size_t n, int32_t *out);

#endif
