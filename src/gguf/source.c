/* source.c: the four kinds of byte sources; see source.h. */
#include "gguf/source.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"

/* Name and position of a source whose outer size is known. */
static qn_status place(qn__gguf_source *s, const char *name, uint64_t outer_size, uint64_t offset,
                       qn_error *err)
{
    if (offset > outer_size) {
        return qn__error(err, QN_ERR_ARGUMENT, "%s: has no byte %llu to start at", name,
                         (unsigned long long)offset);
    }
    s->name = qn__strndup(name, strlen(name));
    if (!s->name) {
        return qn__error_memory(err, "a file name");
    }
    s->base = offset;
    s->size = outer_size - offset;
    return QN_OK;
}

qn_status qn__gguf_source_file(qn__gguf_source *s, const char *path, bool map, uint64_t offset,
                               qn_error *err)
{
    qn_status status = map ? qn__file_open(&s->file, path, true, err)
                           : qn__file_reader_open(&s->reader, path, err);
    if (status != QN_OK) {
        return status;
    }
    uint64_t size = map ? s->file.size : qn__file_reader_size(s->reader);
    status = place(s, path, size, offset, err);
    if (status == QN_OK && map && s->size > 0) {
        s->bytes = s->file.data + offset;
    }
    return status;
}

qn_status qn__gguf_source_memory(qn__gguf_source *s, const void *bytes, size_t size,
                                 const char *name, uint64_t offset, qn_error *err)
{
    qn_status status = place(s, name, size, offset, err);
    if (status == QN_OK && s->size > 0) {
        s->bytes = (const uint8_t *)bytes + offset;
    }
    return status;
}

qn_status qn__gguf_source_callback(qn__gguf_source *s, qn_gguf_read_fn read, void *user,
                                   uint64_t size, size_t max_read, const char *name,
                                   uint64_t offset, qn_error *err)
{
    s->read = read;
    s->user = user;
    s->max_read = max_read;
    return place(s, name, size, offset, err);
}

void qn__gguf_source_close(qn__gguf_source *s)
{
    qn__file_close(&s->file);
    qn__file_reader_close(s->reader);
    free(s->name);
    *s = (qn__gguf_source){0};
}

qn_status qn__gguf_source_read(const qn__gguf_source *s, uint64_t at, void *out, size_t n,
                               size_t *got, qn_error *err)
{
    *got = 0;
    if (at >= s->size) {
        return QN_OK;
    }
    if (n > s->size - at) {
        n = (size_t)(s->size - at);
    }
    if (s->bytes) {
        memcpy(out, s->bytes + at, n);
        *got = n;
        return QN_OK;
    }
    if (s->reader) {
        *got = n;
        return qn__file_reader_read(s->reader, s->base + at, out, n, err);
    }
    while (s->read && *got < n) {
        size_t ask = n - *got;
        if (s->max_read > 0 && ask > s->max_read) {
            ask = s->max_read;
        }
        size_t k = s->read(s->user, (uint8_t *)out + *got, s->base + at + *got, ask);
        if (k > ask) {
            return qn__error(err, QN_ERR_IO, "%s: the callback returned %zu of %zu bytes", s->name,
                             k, ask);
        }
        *got += k;
        if (k < ask) {
            break;
        }
    }
    return QN_OK;
}
