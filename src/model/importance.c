/*
 * importance.c: see importance.h. Both forms end as one sorted list of names with their numbers:
 * - GGUF: per weight two F32 tensors, <name>.in_sum2 [columns, matrices] and <name>.counts
 *   [1, matrices]; a column's number is sum / count, 1 where the count is 0.
 * - older: i32 entries; per entry i32 length, name, i32 calls, i32 values, that many f32, to be
 *   divided by the calls; then maybe i32 chunks, i32 length, data set.
 */
#include "model/importance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <quern/gguf.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

#define SUMS_SUFFIX   ".in_sum2"
#define COUNTS_SUFFIX ".counts"

enum { MAX_NAME = 255 };

typedef struct entry {
    const char *name;
    float *values;
    size_t count;
} entry;

struct qn_importance {
    qn_arena arena; /* names and values */
    entry *entries; /* sorted by name */
    size_t count;
    uint32_t chunks;
    const char *dataset;
};

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

/* Appends an entry with room for its values; `room` is the length of the entry list. */
static entry *add_entry(qn_importance *imp, size_t room, const char *name, size_t name_size,
                        size_t values)
{
    if (imp->count == room) {
        return NULL;
    }
    entry *e = &imp->entries[imp->count];
    e->name = qn__arena_strndup(&imp->arena, name, name_size);
    e->values = qn__arena_alloc(&imp->arena, values, sizeof *e->values);
    e->count = values;
    if (!e->name || !e->values) {
        return NULL;
    }
    imp->count++;
    return e;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static bool is_sums(const char *name)
{
    size_t length = strlen(name);
    size_t suffix = strlen(SUMS_SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SUMS_SUFFIX) == 0;
}

/* One weight: its sums over its counts. */
static qn_status read_pair(qn_importance *imp, size_t room, const qn_gguf *g,
                           const qn_gguf_tensor *sums, qn_error *err)
{
    char partner[QN_GGUF_MAX_TENSOR_NAME + sizeof COUNTS_SUFFIX];
    int stem = (int)(strlen(sums->name) - strlen(SUMS_SUFFIX));
    snprintf(partner, sizeof partner, "%.*s" COUNTS_SUFFIX, stem, sums->name);
    const qn_gguf_tensor *counts = qn_gguf_find_tensor(g, partner);
    int64_t columns = sums->ne[0];
    int64_t matrices = sums->ne[1];
    if (!counts || counts->type != QN_TYPE_F32 || sums->type != QN_TYPE_F32 || counts->ne[0] != 1 ||
        counts->ne[1] != matrices || counts->ne[2] != 1 || counts->ne[3] != 1 || sums->ne[2] != 1 ||
        sums->ne[3] != 1 || sums->bytes == 0) {
        return qn__error(err, QN_ERR_FORMAT, "%s: tensor %s has no fitting F32 partner %s",
                         qn_gguf_file_name(g, 0), sums->name, partner);
    }
    entry *e = add_entry(imp, room, sums->name, (size_t)stem, sums->bytes / sizeof(float));
    if (!e) {
        return qn__error_memory(err, "importance weights");
    }
    qn_status status = qn_gguf_read_tensor(g, sums, 0, sums->bytes, e->values, err);
    for (int64_t m = 0; m < matrices && status == QN_OK; m++) {
        float count;
        status =
            qn_gguf_read_tensor(g, counts, (size_t)m * sizeof count, sizeof count, &count, err);
        for (int64_t c = 0; c < columns && status == QN_OK; c++) {
            float *value = &e->values[m * columns + c];
            *value = count > 0.0F ? *value / count : 1.0F;
        }
    }
    return status;
}

static qn_status read_gguf(qn_importance *imp, const char *path, qn_error *err)
{
    qn_gguf *g = NULL;
    qn_gguf_text type = {"", 0};
    size_t n_datasets;
    uint32_t chunk_size;
    qn_status status = qn_gguf_open(&g, path, NULL, err);
    if (status != QN_OK) {
        return status;
    }
    size_t tensors = qn_gguf_tensor_count(g);
    status = qn_gguf_get_str(g, "general.type", &type, err);
    if (status == QN_OK && strcmp(type.data, "imatrix") != 0) {
        status = qn__error(err, QN_ERR_FORMAT, "%s: not an importance file (general.type is %s)",
                           path, type.data);
    }
    if (status == QN_OK) {
        status = qn_gguf_get_u32(g, "imatrix.chunk_count", &imp->chunks, err);
    }
    if (status == QN_OK) {
        status = qn_gguf_get_u32(g, "imatrix.chunk_size", &chunk_size, err);
    }
    if (status == QN_OK) {
        status = qn_gguf_get_array(g, "imatrix.datasets", QN_GGUF_STR, &n_datasets, err);
    }
    if (status != QN_OK) {
        goto done;
    }
    qn_gguf_text first = qn_gguf_array_text(g, qn_gguf_find(g, "imatrix.datasets"), 0);
    imp->dataset = qn__arena_strndup(&imp->arena, first.data ? first.data : "", first.size);
    imp->entries = qn__calloc(tensors + 1, sizeof *imp->entries);
    if (!imp->dataset || !imp->entries) {
        status = qn__error_memory(err, "importance weights");
        goto done;
    }
    for (size_t i = 0; i < tensors && status == QN_OK; i++) {
        const qn_gguf_tensor *tensor = qn_gguf_tensor_at(g, i);
        if (is_sums(tensor->name)) {
            status = read_pair(imp, tensors, g, tensor, err);
        }
    }
done:
    qn_gguf_free(g);
    return status;
}

/* ---- The older form -------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *at;
    size_t left;
    bool failed;
} cursor;

static const uint8_t *take(cursor *c, size_t n)
{
    if (n > c->left) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *bytes = c->at;
    c->at += n;
    c->left -= n;
    return bytes;
}

/* An i32 in [low, high]; anything else fails. */
static int32_t take_i32(cursor *c, int32_t low, int32_t high)
{
    int32_t value = low;
    const uint8_t *bytes = take(c, sizeof value);
    if (bytes) {
        memcpy(&value, bytes, sizeof value);
        c->failed = c->failed || value < low || value > high;
    }
    return value;
}

static qn_status read_entry(qn_importance *imp, size_t room, cursor *c, qn_error *err)
{
    int32_t name_size = take_i32(c, 1, MAX_NAME);
    const uint8_t *name = c->failed ? NULL : take(c, (size_t)name_size);
    int32_t calls = take_i32(c, 0, INT32_MAX);
    int32_t count = take_i32(c, 1, INT32_MAX);
    const uint8_t *values = c->failed ? NULL : take(c, (size_t)count * sizeof(float));
    if (c->failed) {
        return QN_OK; /* told by the caller */
    }
    entry *e = add_entry(imp, room, (const char *)name, (size_t)name_size, (size_t)count);
    if (!e) {
        return qn__error_memory(err, "importance weights");
    }
    memcpy(e->values, values, (size_t)count * sizeof(float));
    for (int32_t i = 0; i < count && calls > 0; i++) {
        e->values[i] /= (float)calls;
    }
    return QN_OK;
}

static qn_status read_old(qn_importance *imp, const qn_file *file, const char *path, qn_error *err)
{
    enum { LEAST_ENTRY_BYTES = 17 };
    cursor c = {.at = file->data, .left = file->size};
    int32_t count = take_i32(&c, 1, INT32_MAX);
    if (c.failed || (size_t)count > file->size / LEAST_ENTRY_BYTES) {
        return qn__error(err, QN_ERR_FORMAT, "%s: not an importance file", path);
    }
    imp->entries = qn__calloc((size_t)count, sizeof *imp->entries);
    if (!imp->entries) {
        return qn__error_memory(err, "importance weights");
    }
    for (int32_t i = 0; i < count; i++) {
        qn_status status = read_entry(imp, (size_t)count, &c, err);
        if (status != QN_OK) {
            return status;
        }
        if (c.failed) {
            return qn__error(err, QN_ERR_FORMAT, "%s: entry %d is damaged or cut short", path, i);
        }
    }
    if (c.left > 0) { /* optional tail; where it is damaged nothing is known of the run */
        int32_t chunks = take_i32(&c, 0, INT32_MAX);
        int32_t size = take_i32(&c, 0, INT32_MAX);
        const uint8_t *text = c.failed ? NULL : take(&c, (size_t)size);
        if (text) {
            imp->chunks = (uint32_t)chunks;
            imp->dataset = qn__arena_strndup(&imp->arena, (const char *)text, (size_t)size);
        }
    }
    return QN_OK;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static qn_status check_values(const qn_importance *imp, const char *path, qn_error *err)
{
    for (size_t i = 0; i < imp->count; i++) {
        const entry *e = &imp->entries[i];
        for (size_t k = 0; k < e->count; k++) {
            if (!isfinite(e->values[k]) || e->values[k] < 0.0F) {
                return qn__error(err, QN_ERR_FORMAT,
                                 "%s: entry %s: value %zu is negative or not finite", path, e->name,
                                 k);
            }
        }
    }
    return QN_OK;
}

qn_status qn__importance_open(qn_importance **out, const char *path, qn_error *err)
{
    qn_file file = {0};
    qn_importance *imp = qn__calloc(1, sizeof *imp);
    if (!imp) {
        return qn__error_memory(err, "importance weights");
    }
    qn_status status = qn__file_open(&file, path, true, err);
    if (status != QN_OK) {
        goto done;
    }
    bool is_gguf = file.size >= 4 && memcmp(file.data, "GGUF", 4) == 0;
    status = is_gguf ? read_gguf(imp, path, err) : read_old(imp, &file, path, err);
    if (status == QN_OK && imp->count == 0) {
        status = qn__error(err, QN_ERR_FORMAT, "%s: holds no importance weights", path);
    }
    if (status == QN_OK) {
        status = check_values(imp, path, err);
    }
    if (status == QN_OK) {
        qsort(imp->entries, imp->count, sizeof *imp->entries, compare_entries);
        *out = imp;
        imp = NULL;
    }
done:
    qn__file_close(&file);
    qn__importance_free(imp);
    return status;
}

void qn__importance_free(qn_importance *imp)
{
    if (imp) {
        qn__arena_free(&imp->arena);
        free(imp->entries);
        free(imp);
    }
}

const float *qn__importance_find(const qn_importance *imp, const char *weight, size_t *count)
{
    const entry key = {.name = weight};
    const entry *e = bsearch(&key, imp->entries, imp->count, sizeof key, compare_entries);
    if (!e) {
        return NULL;
    }
    *count = e->count;
    return e->values;
}

size_t qn__importance_entries(const qn_importance *imp)
{
    return imp->count;
}

uint32_t qn__importance_chunks(const qn_importance *imp)
{
    return imp->chunks;
}

const char *qn__importance_dataset(const qn_importance *imp)
{
    return imp->dataset ? imp->dataset : "";
}
