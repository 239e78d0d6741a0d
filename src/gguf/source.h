/*
 * source.h: where the bytes of a GGUF stream come from: a mapped file, a file read in pieces, a
 * block of memory or a callback. Positions count from the start of the stream.
 */
#ifndef QUERN_GGUF_SOURCE_H
#define QUERN_GGUF_SOURCE_H

#include <quern/gguf.h>

#include "base/file.h"

/* Zero-initialise. */
typedef struct qn__gguf_source {
    char *name;           /* for messages */
    const uint8_t *bytes; /* the whole stream, where it lies in memory; else NULL */
    uint64_t size;        /* bytes of the stream */
    uint64_t base;        /* where the stream starts in its file */
    qn_file file;         /* a mapping */
    qn_file_reader *reader;
    qn_gguf_read_fn read;
    void *user;
    size_t max_read; /* 0: no limit */
} qn__gguf_source;

qn_status qn__gguf_source_file(qn__gguf_source *s, const char *path, bool map, uint64_t offset,
                               qn_error *err);
qn_status qn__gguf_source_memory(qn__gguf_source *s, const void *bytes, size_t size,
                                 const char *name, uint64_t offset, qn_error *err);
qn_status qn__gguf_source_callback(qn__gguf_source *s, qn_gguf_read_fn read, void *user,
                                   uint64_t size, size_t max_read, const char *name,
                                   uint64_t offset, qn_error *err);
void qn__gguf_source_close(qn__gguf_source *s);

/* Copies up to n bytes; *got is less than n only at the end of the stream. */
qn_status qn__gguf_source_read(const qn__gguf_source *s, uint64_t at, void *out, size_t n,
                               size_t *got, qn_error *err);

#endif
