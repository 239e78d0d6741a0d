/*
 * writer.c: builds metadata and tensor table in memory and streams the tensors' bytes behind them.
 *
 * A pair is kept as the bytes that go into the file (type word and value). Setting a key again
 * marks the old pair as removed and appends a new one, so that the order of the others stays.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "gguf/reader.h"

#define DEFAULT_ALIGNMENT 32
#define ALIGNMENT_KEY     "general.alignment"

typedef struct writer_pair {
    char *key; /* NULL once it is removed */
    size_t key_size;
    qn_buf value; /* type word and value */
} writer_pair;

typedef struct writer_tensor {
    char name[QN_GGUF_MAX_TENSOR_NAME + 1];
    qn_type type;
    uint32_t n_dims;
    int64_t ne[QN_GGUF_MAX_DIMS];
    size_t bytes;
} writer_tensor;

struct qn_gguf_writer {
    qn_error error; /* the first one; code QN_OK: none */
    uint32_t alignment;
    writer_pair *pairs;
    size_t n_pairs, pair_room;
    qn__names keys; /* key -> the pair that holds it now, or that held it last */
    writer_tensor *tensors;
    size_t n_tensors, tensor_room;
    qn__names tensor_names;
    qn_arena arena; /* key and tensor names for the tables */
    qn_file_writer *file;
    size_t current; /* the tensor whose bytes are being written */
    size_t written; /* of its bytes */
};

qn_status qn_gguf_writer_new(qn_gguf_writer **out, qn_error *err)
{
    *out = qn__calloc(1, sizeof **out);
    if (!*out) {
        return qn__error_memory(err, "a model file's writer");
    }
    (*out)->alignment = DEFAULT_ALIGNMENT;
    (*out)->arena.chunk_bytes = 4096;
    return QN_OK;
}

void qn_gguf_writer_free(qn_gguf_writer *w)
{
    if (!w) {
        return;
    }
    for (size_t i = 0; i < w->n_pairs; i++) {
        qn__buf_free(&w->pairs[i].value);
    }
    free(w->pairs);
    free(w->tensors);
    qn__names_free(&w->keys);
    qn__names_free(&w->tensor_names);
    qn__arena_free(&w->arena);
    qn__file_writer_close(w->file);
    free(w);
}

/* Whether things may still be set; false after an error and (an error itself) after open. */
static bool building(qn_gguf_writer *w)
{
    if (w->error.code == QN_OK && w->file) {
        qn__error(&w->error, QN_ERR_ARGUMENT, "the metadata of the file are written already");
    }
    return w->error.code == QN_OK;
}

static bool grow(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room ? *room * 2 : 16;
    if (!qn__realloc(array, more, size)) {
        return false;
    }
    *room = more;
    return true;
}

/* ---- Keys ---- */

static void remove_key(qn_gguf_writer *w, const char *key, size_t size)
{
    size_t index = qn__names_find(&w->keys, key, size);
    if (index != QN__NAMES_NONE && w->pairs[index].key) {
        w->pairs[index].key = NULL;
        qn__buf_free(&w->pairs[index].value);
    }
}

/* Appends a pair with its type word and returns the buffer for the value; NULL after an error. */
static qn_buf *append(qn_gguf_writer *w, qn_gguf_text key, qn_gguf_type type)
{
    if (!building(w)) {
        return NULL;
    }
    if (key.size == 0 || key.size > QN__GGUF_MAX_TEXT) {
        qn__error(&w->error, QN_ERR_ARGUMENT, "a key of %zu bytes cannot be written", key.size);
        return NULL;
    }
    remove_key(w, key.data, key.size);
    void *pairs = w->pairs;
    char *name = qn__arena_strndup(&w->arena, key.data, key.size);
    if (!name || !grow(&pairs, w->n_pairs, &w->pair_room, sizeof *w->pairs)) {
        qn__error_memory(&w->error, "metadata");
        return NULL;
    }
    w->pairs = pairs;
    if (!qn__names_put(&w->keys, name, key.size, w->n_pairs)) {
        qn__error_memory(&w->error, "metadata");
        return NULL;
    }
    writer_pair *pair = &w->pairs[w->n_pairs++];
    *pair = (writer_pair){.key = name, .key_size = key.size};
    int32_t word = (int32_t)type;
    qn__buf_add(&pair->value, &word, sizeof word);
    return &pair->value;
}

static void add_text(qn_buf *buf, qn_gguf_text text)
{
    uint64_t size = text.size;
    qn__buf_add(buf, &size, sizeof size);
    if (text.size > 0) {
        qn__buf_add(buf, text.data, text.size);
    }
}

static void settle(qn_gguf_writer *w, const qn_buf *buf)
{
    if (buf->failed) {
        qn__error_memory(&w->error, "metadata");
    }
}

static qn_gguf_text text_of(const char *text)
{
    return (qn_gguf_text){text, strlen(text)};
}

static void set_scalar(qn_gguf_writer *w, qn_gguf_text key, qn_gguf_type type, const void *value)
{
    if (strcmp(key.data, ALIGNMENT_KEY) == 0) {
        uint32_t alignment = 0;
        if (type == QN_GGUF_U32) {
            memcpy(&alignment, value, sizeof alignment);
        }
        if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
            qn__error(w->error.code == QN_OK ? &w->error : NULL, QN_ERR_ARGUMENT,
                      "key " ALIGNMENT_KEY ": must be a u32 and a power of two");
            return;
        }
        w->alignment = alignment;
    }
    qn_buf *buf = append(w, key, type);
    if (buf) {
        qn__buf_add(buf, value, qn__gguf_type_bytes(type));
        settle(w, buf);
    }
}

#define SETTER(suffix, c_type, gguf_type)                                                          \
    void qn_gguf_writer_set_##suffix(qn_gguf_writer *w, const char *key, c_type value)             \
    {                                                                                              \
        set_scalar(w, text_of(key), gguf_type, &value);                                            \
    }

SETTER(u8, uint8_t, QN_GGUF_U8)
SETTER(u16, uint16_t, QN_GGUF_U16)
SETTER(u32, uint32_t, QN_GGUF_U32)
SETTER(i32, int32_t, QN_GGUF_I32)
SETTER(u64, uint64_t, QN_GGUF_U64)
SETTER(i64, int64_t, QN_GGUF_I64)
SETTER(f32, float, QN_GGUF_F32)
SETTER(f64, double, QN_GGUF_F64)

static void set_bool(qn_gguf_writer *w, qn_gguf_text key, bool value)
{
    uint8_t byte = value ? 1 : 0;
    set_scalar(w, key, QN_GGUF_BOOL, &byte);
}

void qn_gguf_writer_set_bool(qn_gguf_writer *w, const char *key, bool value)
{
    set_bool(w, text_of(key), value);
}

static void set_text(qn_gguf_writer *w, qn_gguf_text key, qn_gguf_text text)
{
    if (strcmp(key.data, ALIGNMENT_KEY) == 0 || text.size > QN__GGUF_MAX_TEXT) {
        qn__error(w->error.code == QN_OK ? &w->error : NULL, QN_ERR_ARGUMENT,
                  "key %s: no string can be set here", key.data);
        return;
    }
    qn_buf *buf = append(w, key, QN_GGUF_STR);
    if (buf) {
        add_text(buf, text);
        settle(w, buf);
    }
}

void qn_gguf_writer_set_text(qn_gguf_writer *w, const char *key, qn_gguf_text text)
{
    set_text(w, text_of(key), text);
}

void qn_gguf_writer_set_str(qn_gguf_writer *w, const char *key, const char *text)
{
    set_text(w, text_of(key), text_of(text));
}

/* Appends an array pair with element type and count; NULL after an error. */
static qn_buf *append_array(qn_gguf_writer *w, qn_gguf_text key, qn_gguf_type type, size_t n)
{
    if (strcmp(key.data, ALIGNMENT_KEY) == 0 || n > QN__GGUF_MAX_ARRAY) {
        qn__error(w->error.code == QN_OK ? &w->error : NULL, QN_ERR_ARGUMENT,
                  "key %s: no array of %zu elements can be set here", key.data, n);
        return NULL;
    }
    qn_buf *buf = append(w, key, QN_GGUF_ARR);
    if (buf) {
        int32_t word = (int32_t)type;
        uint64_t count = n;
        qn__buf_add(buf, &word, sizeof word);
        qn__buf_add(buf, &count, sizeof count);
    }
    return buf;
}

static void set_array(qn_gguf_writer *w, qn_gguf_text key, qn_gguf_type type, const void *values,
                      size_t n)
{
    size_t bytes = qn__gguf_type_bytes(type);
    if (bytes == 0) {
        qn__error(w->error.code == QN_OK ? &w->error : NULL, QN_ERR_ARGUMENT,
                  "key %s: %s is no element type of a number array", key.data,
                  qn_gguf_type_name(type));
        return;
    }
    qn_buf *buf = append_array(w, key, type, n);
    if (buf && n > 0) {
        qn__buf_add(buf, values, n * bytes);
    }
    if (buf) {
        settle(w, buf);
    }
}

void qn_gguf_writer_set_array(qn_gguf_writer *w, const char *key, qn_gguf_type element_type,
                              const void *values, size_t n)
{
    set_array(w, text_of(key), element_type, values, n);
}

void qn_gguf_writer_set_texts(qn_gguf_writer *w, const char *key, const qn_gguf_text *texts,
                              size_t n)
{
    qn_buf *buf = append_array(w, text_of(key), QN_GGUF_STR, n);
    for (size_t i = 0; buf && i < n; i++) {
        add_text(buf, texts[i]);
    }
    if (buf) {
        settle(w, buf);
    }
}

void qn_gguf_writer_remove(qn_gguf_writer *w, const char *key)
{
    if (building(w)) {
        remove_key(w, key, strlen(key));
        w->alignment = strcmp(key, ALIGNMENT_KEY) == 0 ? DEFAULT_ALIGNMENT : w->alignment;
    }
}

void qn_gguf_writer_copy(qn_gguf_writer *w, const qn_gguf *from)
{
    static const char *const split_keys[] = {"split.no", "split.count", "split.tensors.count"};
    const qn__gguf_shard *s = &from->shards[0];
    for (size_t i = 0; i < s->n_entries; i++) {
        const qn__gguf_entry *entry = &s->entries[i];
        const qn_gguf_pair *pair = &entry->pair;
        bool skip = false;
        for (size_t k = 0; k < sizeof split_keys / sizeof split_keys[0]; k++) {
            skip = skip || strcmp(pair->key.data, split_keys[k]) == 0;
        }
        if (skip) {
            continue;
        }
        if (pair->type == QN_GGUF_STR) {
            set_text(w, pair->key, pair->text);
        } else if (pair->type == QN_GGUF_BOOL) {
            set_bool(w, pair->key, pair->value.boolean); /* the file may hold any byte for true */
        } else if (pair->type != QN_GGUF_ARR) {
            set_scalar(w, pair->key, pair->type, s->meta + entry->data);
        } else if (pair->element_type != QN_GGUF_STR) {
            set_array(w, pair->key, pair->element_type, s->meta + entry->data, pair->count);
        } else {
            qn_buf *buf = append_array(w, pair->key, QN_GGUF_STR, pair->count);
            for (size_t t = 0; buf && t < pair->count; t++) {
                add_text(buf, qn_gguf_array_text(from, pair, t));
            }
            if (buf) {
                settle(w, buf);
            }
        }
    }
}

/* ---- Tensors ---- */

static qn_status tensor_size(writer_tensor *t, qn_error *err)
{
    qn_status status = qn_type_row_bytes(t->type, t->ne[0], &t->bytes, err);
    for (int d = 1; d < QN_GGUF_MAX_DIMS && status == QN_OK; d++) {
        if (!qn__mul_size(t->bytes, (size_t)t->ne[d], &t->bytes)) {
            status = qn__error(err, QN_ERR_LIMIT, "its size in bytes overflows");
        }
    }
    return status;
}

void qn_gguf_writer_add_tensor(qn_gguf_writer *w, const char *name, qn_type type, int n_dims,
                               const int64_t *ne)
{
    if (!building(w)) {
        return;
    }
    size_t length = strlen(name);
    if (length > QN_GGUF_MAX_TENSOR_NAME || n_dims < 1 || n_dims > QN_GGUF_MAX_DIMS) {
        qn__error(&w->error, QN_ERR_ARGUMENT,
                  "tensor %s: a name of %zu bytes and %d dimensions cannot be written", name,
                  length, n_dims);
        return;
    }
    if (qn__names_find(&w->tensor_names, name, length) != QN__NAMES_NONE) {
        qn__error(&w->error, QN_ERR_ARGUMENT, "tensor %s: occurs twice", name);
        return;
    }
    writer_tensor t = {.type = type, .n_dims = 1};
    memcpy(t.name, name, length);
    for (int d = 0; d < QN_GGUF_MAX_DIMS; d++) {
        t.ne[d] = d < n_dims ? ne[d] : 1;
        t.n_dims = t.ne[d] != 1 ? (uint32_t)d + 1 : t.n_dims;
        if (t.ne[d] < 0) {
            qn__error(&w->error, QN_ERR_ARGUMENT, "tensor %s: dimension %d is negative", name, d);
            return;
        }
    }
    if (tensor_size(&t, &w->error) != QN_OK) {
        qn__error_prefix(&w->error, "tensor %s", name);
        return;
    }
    void *tensors = w->tensors;
    char *kept = qn__arena_strndup(&w->arena, name, length);
    if (!kept || !grow(&tensors, w->n_tensors, &w->tensor_room, sizeof *w->tensors)) {
        qn__error_memory(&w->error, "the tensor table");
        return;
    }
    w->tensors = tensors;
    if (!qn__names_put(&w->tensor_names, kept, length, w->n_tensors)) {
        qn__error_memory(&w->error, "the tensor table");
        return;
    }
    w->tensors[w->n_tensors++] = t;
}

/* ---- Writing ---- */

qn_status qn_gguf_writer_check(const qn_gguf_writer *w, qn_error *err)
{
    if (w->error.code != QN_OK && err) {
        *err = w->error;
    }
    return w->error.code;
}

static bool pad_buffer(qn_buf *buf, size_t alignment)
{
    while (buf->size % alignment != 0) {
        static const uint8_t zeros[64];
        size_t n = alignment - buf->size % alignment;
        if (!qn__buf_add(buf, zeros, n < sizeof zeros ? n : sizeof zeros)) {
            return false;
        }
    }
    return true;
}

static qn_status put_tensors(const qn_gguf_writer *w, qn_buf *buf, qn_error *err)
{
    size_t offset = 0, mask = w->alignment - 1;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const writer_tensor *t = &w->tensors[i];
        int32_t type = (int32_t)t->type;
        uint64_t at = offset;
        add_text(buf, text_of(t->name));
        qn__buf_add(buf, &t->n_dims, sizeof t->n_dims);
        qn__buf_add(buf, t->ne, t->n_dims * sizeof t->ne[0]);
        qn__buf_add(buf, &type, sizeof type);
        qn__buf_add(buf, &at, sizeof at);
        if (!qn__add_size(offset, t->bytes, &offset) || !qn__add_size(offset, mask, &offset)) {
            return qn__error(err, QN_ERR_LIMIT, "the sum of the tensors' sizes overflows");
        }
        offset &= ~mask;
    }
    return QN_OK;
}

qn_status qn_gguf_writer_metadata(const qn_gguf_writer *w, uint8_t **out, size_t *size,
                                  qn_error *err)
{
    *out = NULL;
    qn_status status = qn_gguf_writer_check(w, err);
    if (status != QN_OK) {
        return status;
    }
    const uint32_t version = 3;
    uint64_t n_tensors = w->n_tensors, n_pairs = 0;
    for (size_t i = 0; i < w->n_pairs; i++) {
        n_pairs += w->pairs[i].key != NULL;
    }
    qn_buf buf = {0};
    qn__buf_add(&buf, "GGUF", 4);
    qn__buf_add(&buf, &version, sizeof version);
    qn__buf_add(&buf, &n_tensors, sizeof n_tensors);
    qn__buf_add(&buf, &n_pairs, sizeof n_pairs);
    for (size_t i = 0; i < w->n_pairs; i++) {
        const writer_pair *pair = &w->pairs[i];
        if (pair->key) {
            add_text(&buf, (qn_gguf_text){pair->key, pair->key_size});
            qn__buf_add(&buf, pair->value.data, pair->value.size);
        }
    }
    status = put_tensors(w, &buf, err);
    if (status == QN_OK && (!pad_buffer(&buf, w->alignment) || buf.failed)) {
        status = qn__error_memory(err, "the metadata of a model file");
    }
    if (status != QN_OK) {
        qn__buf_free(&buf);
        return status;
    }
    *out = buf.data;
    *size = buf.size;
    return QN_OK;
}

qn_status qn_gguf_writer_open(qn_gguf_writer *w, const char *path, qn_error *err)
{
    uint8_t *bytes;
    size_t size = 0;
    if (w->file) {
        return qn__error(err, QN_ERR_ARGUMENT, "%s: the writer has a file already", path);
    }
    qn_status status = qn_gguf_writer_metadata(w, &bytes, &size, err);
    if (status == QN_OK) {
        status = qn__file_writer_open(&w->file, path, err);
    }
    if (status == QN_OK) {
        status = qn__file_writer_write(w->file, bytes, size, err);
    }
    free(bytes);
    return status;
}

static qn_status write_padding(qn_gguf_writer *w, size_t n, qn_error *err)
{
    static const uint8_t zeros[4096];
    qn_status status = QN_OK;
    while (n > 0 && status == QN_OK) {
        size_t piece = n < sizeof zeros ? n : sizeof zeros;
        status = qn__file_writer_write(w->file, zeros, piece, err);
        n -= piece;
    }
    return status;
}

qn_status qn_gguf_writer_write(qn_gguf_writer *w, const void *bytes, size_t n, qn_error *err)
{
    const uint8_t *from = bytes;
    if (!w->file) {
        return qn__error(err, QN_ERR_ARGUMENT, "the writer has no file yet");
    }
    while (n > 0) {
        while (w->current < w->n_tensors && w->tensors[w->current].bytes == 0) {
            w->current++;
        }
        if (w->current == w->n_tensors) {
            return qn__error(err, QN_ERR_ARGUMENT, "%zu bytes more than the tensors have", n);
        }
        size_t left = w->tensors[w->current].bytes - w->written;
        size_t piece = n < left ? n : left;
        qn_status status = qn__file_writer_write(w->file, from, piece, err);
        from += piece;
        n -= piece;
        w->written += piece;
        if (status == QN_OK && piece == left) {
            status = write_padding(w, (0 - w->written) & (w->alignment - 1), err);
            w->current++;
            w->written = 0;
        }
        if (status != QN_OK) {
            return status;
        }
    }
    return QN_OK;
}

qn_status qn_gguf_writer_finish(qn_gguf_writer *w, qn_error *err)
{
    if (!w->file) {
        return qn__error(err, QN_ERR_ARGUMENT, "the writer has no file yet");
    }
    for (size_t i = w->current; i < w->n_tensors; i++) {
        if (w->tensors[i].bytes > (i == w->current ? w->written : 0)) {
            return qn__error(err, QN_ERR_ARGUMENT, "tensor %s: its bytes were not all written",
                             w->tensors[i].name);
        }
    }
    return qn__file_writer_commit(w->file, err);
}
