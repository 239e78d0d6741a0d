/* keys.c: see keys.h. */
#include "model/keys.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"

#define MAX_KEY 192

void qn__keys_fail(qn_keys *k, qn_status code, const char *key, const char *format, ...)
{
    if (k->status != QN_OK) {
        return;
    }
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    k->status = qn__error(&k->error, code, "%s: key %s.%s: %s", qn_gguf_file_name(k->gguf, 0),
                          k->prefix, key, text);
}

const qn_gguf_pair *qn__keys_find(qn_keys *k, const char *key)
{
    char name[MAX_KEY];
    int n = snprintf(name, sizeof(name), "%s.%s", k->prefix, key);
    if (n < 0 || (size_t)n >= sizeof(name)) {
        return NULL;
    }
    return qn_gguf_find(k->gguf, name);
}

/* An integer of any stored type inside [low, high]. */
static bool pair_integer(const qn_gguf_pair *pair, int64_t *out)
{
    switch (pair->type) {
    case QN_GGUF_U8:
    case QN_GGUF_U16:
    case QN_GGUF_U32:
    case QN_GGUF_U64:
        *out = pair->value.u64 > INT64_MAX ? INT64_MAX : (int64_t)pair->value.u64;
        return true;
    case QN_GGUF_I8:
    case QN_GGUF_I16:
    case QN_GGUF_I32:
    case QN_GGUF_I64:
        *out = pair->value.i64;
        return true;
    default:
        return false;
    }
}

static int32_t checked(qn_keys *k, const char *key, const qn_gguf_pair *pair, int32_t fallback,
                       int32_t low, int32_t high)
{
    int64_t value = 0;
    if (!pair_integer(pair, &value)) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "is %s, not an integer",
                      qn_gguf_type_name(pair->type));
        return fallback;
    }
    if (value < low || value > high) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "value %lld is not between %d and %d",
                      (long long)value, (int)low, (int)high);
        return fallback;
    }
    return (int32_t)value;
}

int32_t qn__keys_i32(qn_keys *k, const char *key, int32_t fallback, int32_t low, int32_t high)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    return pair ? checked(k, key, pair, fallback, low, high) : fallback;
}

int32_t qn__keys_need_i32(qn_keys *k, const char *key, int32_t low, int32_t high)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    if (!pair) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "missing");
        return low;
    }
    return checked(k, key, pair, low, low, high);
}

float qn__keys_f32(qn_keys *k, const char *key, float fallback)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    if (!pair) {
        return fallback;
    }
    if (pair->type != QN_GGUF_F32 && pair->type != QN_GGUF_F64) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "is %s, not a float", qn_gguf_type_name(pair->type));
        return fallback;
    }
    float value = (float)pair->value.f64;
    if (!isfinite(value)) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "is not a finite number");
        return fallback;
    }
    return value;
}

float qn__keys_need_f32(qn_keys *k, const char *key)
{
    if (!qn__keys_find(k, key)) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "missing");
        return 0.0f;
    }
    return qn__keys_f32(k, key, 0.0f);
}

bool qn__keys_bool(qn_keys *k, const char *key, bool fallback)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    if (!pair) {
        return fallback;
    }
    if (pair->type != QN_GGUF_BOOL) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "is %s, not bool", qn_gguf_type_name(pair->type));
        return fallback;
    }
    return pair->value.boolean;
}

qn_gguf_text qn__keys_text(qn_keys *k, const char *key)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    if (!pair) {
        return (qn_gguf_text){0};
    }
    if (pair->type != QN_GGUF_STR) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "is %s, not str", qn_gguf_type_name(pair->type));
        return (qn_gguf_text){0};
    }
    return pair->text;
}

size_t qn__keys_i32_array(qn_keys *k, const char *key, size_t n, int32_t *out)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    if (!pair || pair->type != QN_GGUF_ARR) {
        return 0;
    }
    size_t take = pair->count < n ? pair->count : n;
    const char *full = pair->key.data; /* the reader's name of the key, prefix included */
    qn_error error;
    if (qn_gguf_get_i32s(k->gguf, full, 0, take, out, &error) != QN_OK) {
        qn__keys_fail(k, error.code, key, "not an array of integers");
        return 0;
    }
    return pair->count;
}

void qn__keys_i32_each(qn_keys *k, const char *key, int32_t fallback, int32_t low, int32_t high,
                       size_t n, int32_t *out)
{
    const qn_gguf_pair *pair = qn__keys_find(k, key);
    if (!pair || pair->type != QN_GGUF_ARR) {
        int32_t value = pair ? checked(k, key, pair, fallback, low, high) : fallback;
        for (size_t i = 0; i < n; i++) {
            out[i] = value;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = fallback;
    }
    if (pair->count != n) {
        qn__keys_fail(k, QN_ERR_FORMAT, key, "array of %zu values, not of %zu", pair->count, n);
        return;
    }
    qn__keys_i32_array(k, key, n, out);
    for (size_t i = 0; i < n && k->status == QN_OK; i++) {
        if (out[i] < low || out[i] > high) {
            qn__keys_fail(k, QN_ERR_FORMAT, key, "value %d of element %zu is not between %d and %d",
                          (int)out[i], i, (int)low, (int)high);
        }
    }
}
