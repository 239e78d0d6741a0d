/*
 * reader.c: opens one file or a split set, joins the tensors of all shards, finds tensors and hands
 * out their bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "gguf/pages.h"
#include "gguf/reader.h"

#define KERNEL_ALIGNMENT 32 /* what kernels assume of a weight's address */
#define MAX_SHARDS       65535

qn_gguf_options qn_gguf_defaults(void)
{
    return (qn_gguf_options){.use_mmap = true};
}

void qn_gguf_free(qn_gguf *g)
{
    if (!g) {
        return;
    }
    for (size_t i = 0; i < g->n_shards; i++) {
        qn__gguf_shard *s = &g->shards[i];
        qn__gguf_source_close(&s->source);
        qn__names_free(&s->keys);
        free(s->entries);
        free(s->owned);
    }
    qn__names_free(&g->tensor_names);
    qn__arena_free(&g->arena);
    free(g->tensors);
    free(g->shards);
    free(g);
}

static qn_gguf *make(const qn_gguf_options *options)
{
    qn_gguf *g = qn__calloc(1, sizeof *g);
    if (!g) {
        return NULL;
    }
    g->options = options ? *options : qn_gguf_defaults();
    g->arena.chunk_bytes = 4096;
    g->shards = qn__calloc(1, sizeof *g->shards);
    g->n_shards = g->shards ? 1 : 0;
    if (!g->shards) {
        qn_gguf_free(g);
        return NULL;
    }
    return g;
}

/* Moves tensor offsets to positions in their file, checks that their bytes are there (unless only
 * metadata was asked for) and lets the data pointers point. */
static qn_status place_tensors(qn_gguf *g, size_t first, qn_error *err)
{
    for (size_t i = first; i < g->n_tensors; i++) {
        qn_gguf_tensor *t = &g->tensors[i];
        const qn__gguf_shard *s = &g->shards[t->file];
        uint64_t start, end;
        bool there = !__builtin_add_overflow(s->data_start, t->offset, &start) &&
                     !__builtin_add_overflow(start, t->bytes, &end) && end <= s->source.size;
        if (!there && !g->options.metadata_only) {
            return qn__error(err, QN_ERR_FORMAT,
                             "%s: cut short: tensor %s needs %zu bytes at %llu, the file has %llu",
                             s->source.name, t->name, t->bytes, (unsigned long long)start,
                             (unsigned long long)s->source.size);
        }
        t->offset = s->source.base + start;
        if (there && s->source.bytes &&
            (uintptr_t)(s->source.bytes + start) % KERNEL_ALIGNMENT == 0) {
            t->data = s->source.bytes + start;
        }
    }
    return QN_OK;
}

static qn_status parse_shard(qn_gguf *g, size_t index, qn_error *err)
{
    size_t first = g->n_tensors;
    qn_status status = qn__gguf_parse(g, index, err);
    return status == QN_OK ? place_tensors(g, first, err) : status;
}

/* ---- Split sets ---- */

/* A u16 key of one shard; QN_ERR_NOT_FOUND without a message where it is absent. */
static qn_status split_key(const qn__gguf_shard *s, const char *key, uint16_t *out, qn_error *err)
{
    const qn__gguf_entry *entry = qn__gguf_shard_find(s, key);
    if (!entry) {
        return QN_ERR_NOT_FOUND;
    }
    if (entry->pair.type != QN_GGUF_U16) {
        return qn__error(err, QN_ERR_FORMAT, "%s: key %s: is %s, must be u16", s->source.name, key,
                         qn_gguf_type_name(entry->pair.type));
    }
    *out = (uint16_t)entry->pair.value.u64;
    return QN_OK;
}

static qn_status check_shard_number(const qn__gguf_shard *s, size_t index, qn_error *err)
{
    uint16_t number = 0;
    qn_status status = split_key(s, "split.no", &number, err);
    if (status == QN_ERR_NOT_FOUND) {
        return qn__error(err, QN_ERR_FORMAT, "%s: key split.no is missing", s->source.name);
    }
    if (status == QN_OK && number != index) {
        return qn__error(err, QN_ERR_FORMAT, "%s: split.no is %u, must be %zu%s", s->source.name,
                         number, index,
                         index == 0 ? "; open a split model through its first file" : "");
    }
    return status;
}

/* Name of shard `index` of `count`, made from the name of the first: PREFIX-00001-of-0000N.gguf. */
static qn_status sibling_name(const char *first, size_t index, size_t count, char **out,
                              qn_error *err)
{
    char tail[64];
    snprintf(tail, sizeof tail, "-00001-of-%05zu.gguf", count);
    size_t length = strlen(first), tail_length = strlen(tail);
    if (length <= tail_length || strcmp(first + length - tail_length, tail) != 0 ||
        first[length - tail_length - 1] == '/') {
        return qn__error(err, QN_ERR_FORMAT,
                         "%s: the first of %zu files of a split model; its name must end with "
                         "NAME%s, so that the others can be found",
                         first, count, tail);
    }
    *out = qn__strndup(first, length);
    if (!*out) {
        return qn__error_memory(err, "a file name");
    }
    snprintf(*out + length - tail_length, tail_length + 1, "-%05zu-of-%05zu.gguf", index + 1,
             count);
    return QN_OK;
}

static qn_status open_shard(qn_gguf *g, size_t index, const char *path, qn_error *err)
{
    qn_status status =
        qn__gguf_source_file(&g->shards[index].source, path, g->options.use_mmap, 0, err);
    if (status == QN_OK) {
        status = parse_shard(g, index, err);
    }
    return status == QN_OK ? check_shard_number(&g->shards[index], index, err) : status;
}

static qn_status check_total(const qn_gguf *g, qn_error *err)
{
    int32_t total;
    qn_status status = qn_gguf_get_i32(g, "split.tensors.count", &total, err);
    if (status == QN_OK && (total < 0 || (size_t)total != g->n_tensors)) {
        status = qn__error(err, QN_ERR_FORMAT, "%s: split.tensors.count is %d, the files hold %zu",
                           g->shards[0].source.name, total, g->n_tensors);
    }
    return status;
}

/* The first file is parsed; opens the others of its set. `paths`: their names, or NULL: beside the
 * first. `listed`: how many the caller named (0: he did not). */
static qn_status open_set(qn_gguf *g, const char *const *paths, size_t listed, qn_error *err)
{
    uint16_t count = 0;
    qn_status status = split_key(&g->shards[0], "split.count", &count, err);
    if (status != QN_OK && status != QN_ERR_NOT_FOUND) {
        return status;
    }
    count = count == 0 ? 1 : count;
    if (listed > 0 && listed != count) {
        return qn__error(err, QN_ERR_FORMAT, "%s: belongs to a set of %u files, %zu are given",
                         g->shards[0].source.name, count, listed);
    }
    if (count == 1) {
        return QN_OK;
    }
    status = check_shard_number(&g->shards[0], 0, err);
    void *shards = g->shards;
    if (status == QN_OK && !qn__realloc(&shards, count, sizeof *g->shards)) {
        status = qn__error_memory(err, "the files of a split model");
    }
    g->shards = shards;
    for (size_t i = 1; i < count && status == QN_OK; i++) {
        char *name = NULL;
        g->shards[i] = (qn__gguf_shard){0};
        g->n_shards = i + 1;
        status = paths ? QN_OK : sibling_name(g->shards[0].source.name, i, count, &name, err);
        if (status == QN_OK) {
            status = open_shard(g, i, paths ? paths[i] : name, err);
        }
        free(name);
    }
    return status == QN_OK ? check_total(g, err) : status;
}

/* ---- Opening ---- */

/* The end of every opening: hands the reader out, or frees it. */
static qn_status conclude(qn_gguf **out, qn_gguf *g, qn_status status)
{
    if (status != QN_OK) {
        qn_gguf_free(g);
        return status;
    }
    *out = g;
    return QN_OK;
}

qn_status qn_gguf_open(qn_gguf **out, const char *path, const qn_gguf_options *options,
                       qn_error *err)
{
    *out = NULL;
    qn_gguf *g = make(options);
    if (!g) {
        return qn__error_memory(err, "a model file's reader");
    }
    qn_status status = qn__gguf_source_file(&g->shards[0].source, path, g->options.use_mmap,
                                            g->options.offset, err);
    if (status == QN_OK) {
        status = parse_shard(g, 0, err);
    }
    if (status == QN_OK && !g->options.single_file && g->options.offset == 0) {
        status = open_set(g, NULL, 0, err);
    }
    return conclude(out, g, status);
}

qn_status qn_gguf_open_files(qn_gguf **out, const char *const *paths, size_t count,
                             const qn_gguf_options *options, qn_error *err)
{
    *out = NULL;
    if (count == 0 || count > MAX_SHARDS) {
        return qn__error(err, QN_ERR_ARGUMENT, "%zu files are no split model", count);
    }
    qn_gguf *g = make(options);
    if (!g) {
        return qn__error_memory(err, "a model file's reader");
    }
    qn_status status =
        qn__gguf_source_file(&g->shards[0].source, paths[0], g->options.use_mmap, 0, err);
    if (status == QN_OK) {
        status = parse_shard(g, 0, err);
    }
    if (status == QN_OK) {
        status = open_set(g, paths, count, err);
    }
    return conclude(out, g, status);
}

qn_status qn_gguf_open_memory(qn_gguf **out, const void *bytes, size_t size, const char *name,
                              const qn_gguf_options *options, qn_error *err)
{
    *out = NULL;
    qn_gguf *g = make(options);
    if (!g) {
        return qn__error_memory(err, "a model file's reader");
    }
    qn_status status =
        qn__gguf_source_memory(&g->shards[0].source, bytes, size, name, g->options.offset, err);
    if (status == QN_OK) {
        status = parse_shard(g, 0, err);
    }
    return conclude(out, g, status);
}

qn_status qn_gguf_open_callback(qn_gguf **out, qn_gguf_read_fn read, void *user, uint64_t size,
                                size_t max_read, const char *name, const qn_gguf_options *options,
                                qn_error *err)
{
    *out = NULL;
    qn_gguf *g = make(options);
    if (!g) {
        return qn__error_memory(err, "a model file's reader");
    }
    qn_status status = qn__gguf_source_callback(&g->shards[0].source, read, user, size, max_read,
                                                name, g->options.offset, err);
    if (status == QN_OK) {
        status = parse_shard(g, 0, err);
    }
    return conclude(out, g, status);
}

/* ---- What was opened ---- */

uint32_t qn_gguf_version(const qn_gguf *g)
{
    return g->shards[0].version;
}

uint32_t qn_gguf_alignment(const qn_gguf *g)
{
    return g->shards[0].alignment;
}

size_t qn_gguf_file_count(const qn_gguf *g)
{
    return g->n_shards;
}

const char *qn_gguf_file_name(const qn_gguf *g, size_t file)
{
    return file < g->n_shards ? g->shards[file].source.name : NULL;
}

uint64_t qn_gguf_file_size(const qn_gguf *g, size_t file)
{
    return file < g->n_shards ? g->shards[file].source.base + g->shards[file].source.size : 0;
}

uint64_t qn_gguf_data_offset(const qn_gguf *g, size_t file)
{
    return file < g->n_shards ? g->shards[file].source.base + g->shards[file].data_start : 0;
}

size_t qn_gguf_tensor_count(const qn_gguf *g)
{
    return g->n_tensors;
}

const qn_gguf_tensor *qn_gguf_tensor_at(const qn_gguf *g, size_t index)
{
    return index < g->n_tensors ? &g->tensors[index] : NULL;
}

const qn_gguf_tensor *qn_gguf_find_tensor(const qn_gguf *g, const char *name)
{
    size_t index = qn__names_find(&g->tensor_names, name, strlen(name));
    return index == QN__NAMES_NONE ? NULL : &g->tensors[index];
}

qn_status qn_gguf_read_tensor(const qn_gguf *g, const qn_gguf_tensor *tensor, size_t offset,
                              size_t n, void *out, qn_error *err)
{
    const qn__gguf_source *source = &g->shards[tensor->file].source;
    if (offset > tensor->bytes || n > tensor->bytes - offset) {
        return qn__error(err, QN_ERR_ARGUMENT, "%s: tensor %s has no %zu bytes at %zu",
                         source->name, tensor->name, n, offset);
    }
    size_t got;
    qn_status status =
        qn__gguf_source_read(source, tensor->offset - source->base + offset, out, n, &got, err);
    if (status == QN_OK && got < n) {
        status = qn__error(err, QN_ERR_FORMAT, "%s: cut short inside tensor %s", source->name,
                           tensor->name);
    }
    return status;
}

/* ---- Pages ---- */

/* The mapping that holds a tensor, or NULL. The pages' state is the kernel's, so a const reader
 * may change it. */
static qn_file *mapping_of(const qn_gguf *g, const qn_gguf_tensor *tensor)
{
    qn_file *file = &g->shards[tensor->file].source.file;
    return file->mapped ? file : NULL;
}

void qn__gguf_will_need(const qn_gguf *g, const qn_gguf_tensor *tensor)
{
    qn_file *file = mapping_of(g, tensor);
    if (file) {
        qn__file_will_need(file, (size_t)tensor->offset, tensor->bytes);
    }
}

void qn__gguf_drop(const qn_gguf *g, const qn_gguf_tensor *tensor, size_t offset, size_t bytes)
{
    qn_file *file = mapping_of(g, tensor);
    if (file && offset <= tensor->bytes && bytes <= tensor->bytes - offset) {
        qn__file_drop(file, (size_t)tensor->offset + offset, bytes);
    }
}

qn_status qn__gguf_lock(const qn_gguf *g, const qn_gguf_tensor *tensor, qn_error *err)
{
    qn_file *file = mapping_of(g, tensor);
    return file ? qn__file_lock(file, (size_t)tensor->offset, tensor->bytes, err) : QN_OK;
}
