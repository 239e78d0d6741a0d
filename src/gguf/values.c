/* values.c: typed access to metadata; strict, as quern/gguf.h says. */
#include <stdio.h>

#include "base/error.h"
#include "gguf/reader.h"

static const struct {
    const char *name;
    uint8_t bytes;
} types[QN_GGUF_TYPE_COUNT] = {
    [QN_GGUF_U8] = {"u8", 1},   [QN_GGUF_I8] = {"i8", 1},     [QN_GGUF_U16] = {"u16", 2},
    [QN_GGUF_I16] = {"i16", 2}, [QN_GGUF_U32] = {"u32", 4},   [QN_GGUF_I32] = {"i32", 4},
    [QN_GGUF_F32] = {"f32", 4}, [QN_GGUF_BOOL] = {"bool", 1}, [QN_GGUF_STR] = {"str", 0},
    [QN_GGUF_ARR] = {"arr", 0}, [QN_GGUF_U64] = {"u64", 8},   [QN_GGUF_I64] = {"i64", 8},
    [QN_GGUF_F64] = {"f64", 8},
};

const char *qn_gguf_type_name(qn_gguf_type type)
{
    return (unsigned)type < QN_GGUF_TYPE_COUNT ? types[type].name : "?";
}

size_t qn__gguf_type_bytes(qn_gguf_type type)
{
    return (unsigned)type < QN_GGUF_TYPE_COUNT ? types[type].bytes : 0;
}

void qn__gguf_decode(qn_gguf_pair *pair, const uint8_t *bytes)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } v = {.u64 = 0};
    memcpy(&v, bytes, qn__gguf_type_bytes(pair->type));
    switch (pair->type) {
    case QN_GGUF_U8:
        pair->value.u64 = v.u8;
        break;
    case QN_GGUF_U16:
        pair->value.u64 = v.u16;
        break;
    case QN_GGUF_U32:
        pair->value.u64 = v.u32;
        break;
    case QN_GGUF_I8:
        pair->value.i64 = v.i8;
        break;
    case QN_GGUF_I16:
        pair->value.i64 = v.i16;
        break;
    case QN_GGUF_I32:
        pair->value.i64 = v.i32;
        break;
    case QN_GGUF_F32:
        pair->value.f64 = (double)v.f32;
        break;
    case QN_GGUF_F64:
        pair->value.f64 = v.f64;
        break;
    case QN_GGUF_BOOL:
        pair->value.boolean = v.u8 != 0;
        break;
    default:
        pair->value.u64 = v.u64;
        break;
    }
}

const qn__gguf_entry *qn__gguf_shard_find(const qn__gguf_shard *shard, const char *key)
{
    size_t index = qn__names_find(&shard->keys, key, strlen(key));
    return index == QN__NAMES_NONE ? NULL : &shard->entries[index];
}

size_t qn_gguf_pair_count(const qn_gguf *g)
{
    return g->shards[0].n_entries;
}

const qn_gguf_pair *qn_gguf_pair_at(const qn_gguf *g, size_t index)
{
    return index < g->shards[0].n_entries ? &g->shards[0].entries[index].pair : NULL;
}

const qn_gguf_pair *qn_gguf_find(const qn_gguf *g, const char *key)
{
    const qn__gguf_entry *entry = qn__gguf_shard_find(&g->shards[0], key);
    return entry ? &entry->pair : NULL;
}

static const char *file_name(const qn_gguf *g)
{
    return g->shards[0].source.name;
}

static qn_status missing(const qn_gguf *g, const char *key, qn_error *err)
{
    return qn__error(err, QN_ERR_NOT_FOUND, "%s: key %s is missing", file_name(g), key);
}

static qn_status wrong_type(const qn_gguf *g, const char *key, const qn_gguf_pair *pair,
                            const char *expected, qn_error *err)
{
    bool array = pair->type == QN_GGUF_ARR;
    return qn__error(err, QN_ERR_FORMAT, "%s: key %s: is %s%s, must be %s", file_name(g), key,
                     array ? "an array of " : "", qn_gguf_type_name(pair->element_type), expected);
}

/* ---- Scalars ---- */

static qn_status scalar(const qn_gguf *g, const char *key, qn_gguf_type type,
                        const qn_gguf_pair **out, qn_error *err)
{
    *out = qn_gguf_find(g, key);
    if (!*out) {
        return missing(g, key, err);
    }
    return (*out)->type == type ? QN_OK : wrong_type(g, key, *out, qn_gguf_type_name(type), err);
}

/* One getter is one line of what it reads; the two forms differ in a missing key. */
#define SCALAR_GETTER(suffix, c_type, gguf_type, member)                                           \
    qn_status qn_gguf_get_##suffix(const qn_gguf *g, const char *key, c_type *out, qn_error *err)  \
    {                                                                                              \
        const qn_gguf_pair *pair;                                                                  \
        qn_status status = scalar(g, key, gguf_type, &pair, err);                                  \
        if (status == QN_OK) {                                                                     \
            *out = (c_type)pair->member;                                                           \
        }                                                                                          \
        return status;                                                                             \
    }
#define OPTIONAL_GETTER(suffix, c_type)                                                            \
    qn_status qn_gguf_opt_##suffix(const qn_gguf *g, const char *key, c_type *out, qn_error *err)  \
    {                                                                                              \
        return qn_gguf_find(g, key) ? qn_gguf_get_##suffix(g, key, out, err) : QN_OK;              \
    }

SCALAR_GETTER(u16, uint16_t, QN_GGUF_U16, value.u64)
SCALAR_GETTER(u32, uint32_t, QN_GGUF_U32, value.u64)
SCALAR_GETTER(i32, int32_t, QN_GGUF_I32, value.i64)
SCALAR_GETTER(u64, uint64_t, QN_GGUF_U64, value.u64)
SCALAR_GETTER(i64, int64_t, QN_GGUF_I64, value.i64)
SCALAR_GETTER(f32, float, QN_GGUF_F32, value.f64)
SCALAR_GETTER(bool, bool, QN_GGUF_BOOL, value.boolean)
SCALAR_GETTER(str, qn_gguf_text, QN_GGUF_STR, text)
OPTIONAL_GETTER(u32, uint32_t)
OPTIONAL_GETTER(i32, int32_t)
OPTIONAL_GETTER(f32, float)
OPTIONAL_GETTER(bool, bool)
OPTIONAL_GETTER(str, qn_gguf_text)

/* ---- Arrays ---- */

static bool is_int32(qn_gguf_type type)
{
    return type == QN_GGUF_I32 || type == QN_GGUF_U32;
}

qn_status qn_gguf_get_array(const qn_gguf *g, const char *key, qn_gguf_type element_type,
                            size_t *count, qn_error *err)
{
    const qn_gguf_pair *pair = qn_gguf_find(g, key);
    if (!pair) {
        return missing(g, key, err);
    }
    bool same = pair->element_type == element_type ||
                (is_int32(pair->element_type) && is_int32(element_type));
    if (pair->type != QN_GGUF_ARR || !same) {
        char expected[32];
        snprintf(expected, sizeof expected, "an array of %s", qn_gguf_type_name(element_type));
        return wrong_type(g, key, pair, expected, err);
    }
    *count = pair->count;
    return QN_OK;
}

#define BIT(type) (1U << (type))

/* The bytes of elements [first, first + n) of an array whose element type is in `accepted`. */
static qn_status elements(const qn_gguf *g, const char *key, unsigned accepted,
                          const char *expected, size_t first, size_t n, const uint8_t **out,
                          qn_gguf_type *type, qn_error *err)
{
    const qn__gguf_entry *entry = qn__gguf_shard_find(&g->shards[0], key);
    if (!entry) {
        return missing(g, key, err);
    }
    const qn_gguf_pair *pair = &entry->pair;
    if (pair->type != QN_GGUF_ARR || !(accepted & BIT(pair->element_type))) {
        return wrong_type(g, key, pair, expected, err);
    }
    if (first > pair->count || n > pair->count - first) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "%s: key %s: has %zu elements, %zu from %zu on asked", file_name(g), key,
                         pair->count, n, first);
    }
    *type = pair->element_type;
    *out = g->shards[0].meta + entry->data + first * qn__gguf_type_bytes(*type);
    return QN_OK;
}

qn_status qn_gguf_get_i32s(const qn_gguf *g, const char *key, size_t first, size_t n, int32_t *out,
                           qn_error *err)
{
    const uint8_t *from = NULL;
    qn_gguf_type type = QN_GGUF_U8;
    qn_status status = elements(g, key, BIT(QN_GGUF_I32) | BIT(QN_GGUF_U32) | BIT(QN_GGUF_BOOL),
                                "an array of i32, u32 or bool", first, n, &from, &type, err);
    if (status != QN_OK) {
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t v = 0;
        if (type == QN_GGUF_BOOL) {
            v = from[i] != 0;
        } else {
            memcpy(&v, from + i * sizeof v, sizeof v);
        }
        if (type == QN_GGUF_U32 && v < 0) {
            return qn__error(err, QN_ERR_FORMAT, "%s: key %s: element %zu is %u, above 2^31 - 1",
                             file_name(g), key, first + i, (unsigned)v);
        }
        out[i] = v;
    }
    return QN_OK;
}

#define ARRAY_GETTER(suffix, c_type, accepted, expected)                                           \
    qn_status qn_gguf_get_##suffix(const qn_gguf *g, const char *key, size_t first, size_t n,      \
                                   c_type *out, qn_error *err)                                     \
    {                                                                                              \
        const uint8_t *from = NULL;                                                                \
        qn_gguf_type type = QN_GGUF_U8;                                                            \
        qn_status status = elements(g, key, accepted, expected, first, n, &from, &type, err);      \
        if (status == QN_OK && n > 0) {                                                            \
            memcpy(out, from, n * sizeof *out);                                                    \
        }                                                                                          \
        return status;                                                                             \
    }

ARRAY_GETTER(u64s, uint64_t, BIT(QN_GGUF_U64), "an array of u64")
ARRAY_GETTER(f32s, float, BIT(QN_GGUF_F32), "an array of f32")
ARRAY_GETTER(bytes, uint8_t, BIT(QN_GGUF_U8) | BIT(QN_GGUF_I8) | BIT(QN_GGUF_BOOL),
             "an array of u8, i8 or bool")

qn_gguf_text qn_gguf_array_text(const qn_gguf *g, const qn_gguf_pair *pair, size_t index)
{
    const qn__gguf_shard *s = &g->shards[0];
    const qn__gguf_entry *entry = (const qn__gguf_entry *)pair; /* its first member */
    if (!pair || pair->type != QN_GGUF_ARR || pair->element_type != QN_GGUF_STR ||
        index >= pair->count) {
        return (qn_gguf_text){"", 0};
    }
    uint64_t size;
    const uint8_t *at = s->meta + entry->texts[index];
    memcpy(&size, at, sizeof size);
    return (qn_gguf_text){(const char *)at + sizeof size, (size_t)size};
}

bool qn_gguf_array_value(const qn_gguf *g, const qn_gguf_pair *pair, size_t index,
                         qn_gguf_pair *out)
{
    const qn__gguf_entry *entry = (const qn__gguf_entry *)pair; /* its first member */
    if (!pair || pair->type != QN_GGUF_ARR || index >= pair->count) {
        return false;
    }
    qn_gguf_type type = pair->element_type;
    *out = (qn_gguf_pair){.key = pair->key, .type = type, .element_type = type, .count = 1};
    if (type == QN_GGUF_STR) {
        out->text = qn_gguf_array_text(g, pair, index);
    } else {
        qn__gguf_decode(out, g->shards[0].meta + entry->data + index * qn__gguf_type_bytes(type));
    }
    return true;
}

/* ---- Scalar or array ---- */

static qn_status check_length(const qn_gguf *g, const char *key, size_t n, qn_error *err)
{
    const qn_gguf_pair *pair = qn_gguf_find(g, key);
    if (pair && pair->type == QN_GGUF_ARR && pair->count != n) {
        return qn__error(err, QN_ERR_FORMAT, "%s: key %s: has %zu elements, must have %zu",
                         file_name(g), key, pair->count, n);
    }
    return QN_OK;
}

static bool is_array(const qn_gguf *g, const char *key)
{
    const qn_gguf_pair *pair = qn_gguf_find(g, key);
    return pair && pair->type == QN_GGUF_ARR;
}

qn_status qn_gguf_get_u32_each(const qn_gguf *g, const char *key, size_t n, uint32_t *out,
                               qn_error *err)
{
    if (!is_array(g, key)) {
        uint32_t one;
        qn_status status = qn_gguf_get_u32(g, key, &one, err);
        for (size_t i = 0; i < n && status == QN_OK; i++) {
            out[i] = one;
        }
        return status;
    }
    qn_status status = check_length(g, key, n, err);
    for (size_t i = 0; i < n && status == QN_OK; i++) {
        int32_t v = 0;
        status = qn_gguf_get_i32s(g, key, i, 1, &v, err);
        if (status == QN_OK && v < 0) {
            return qn__error(err, QN_ERR_FORMAT, "%s: key %s: element %zu is negative: %d",
                             file_name(g), key, i, v);
        }
        out[i] = (uint32_t)v;
    }
    return status;
}

qn_status qn_gguf_get_f32_each(const qn_gguf *g, const char *key, size_t n, float *out,
                               qn_error *err)
{
    if (is_array(g, key)) {
        qn_status status = check_length(g, key, n, err);
        return status == QN_OK ? qn_gguf_get_f32s(g, key, 0, n, out, err) : status;
    }
    float one;
    qn_status status = qn_gguf_get_f32(g, key, &one, err);
    for (size_t i = 0; i < n && status == QN_OK; i++) {
        out[i] = one;
    }
    return status;
}
