/*
 * file.h: files as the house uses them: mapped or read whole, and written so that a half-written
 * file never stands under the final name.
 */
#ifndef QUERN_BASE_FILE_H
#define QUERN_BASE_FILE_H

#include <quern/base.h>

/* A file's bytes in memory. Zero-initialise; qn__file_close is safe on a zeroed one. */
typedef struct qn_file {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
    bool mapped; /* data is a private read-only mapping; else an owned block */
} qn_file;

/*
 * Opens a regular file. `map`: map it; otherwise read it whole into a block. Errors name the path.
 * A directory, a device or a pipe is refused.
 */
qn_status qn__file_open(qn_file *file, const char *path, bool map, qn_error *err);
void qn__file_close(qn_file *file);

/* Keeps the pages of data[offset, offset + bytes) in memory (mlock). */
qn_status qn__file_lock(qn_file *file, size_t offset, size_t bytes, qn_error *err);

/* Tells the kernel that a range is no longer needed (mapped files); its pages leave the process and
 * come back from the file if they are touched again. Never fails. */
void qn__file_drop(qn_file *file, size_t offset, size_t bytes);

/* Tells the kernel that a range will be read soon. Never fails. */
void qn__file_will_need(qn_file *file, size_t offset, size_t bytes);

/*
 * A regular file open for reading at any position, for those who want pieces of it. Reads may run
 * on several threads at once.
 */
typedef struct qn_file_reader qn_file_reader;
qn_status qn__file_reader_open(qn_file_reader **out, const char *path, qn_error *err);
uint64_t qn__file_reader_size(const qn_file_reader *r); /* when it was opened */
/* Exactly n bytes from `offset` on; a file that ends before is QN_ERR_IO. */
qn_status qn__file_reader_read(const qn_file_reader *r, uint64_t offset, void *out, size_t n,
                               qn_error *err);
void qn__file_reader_close(qn_file_reader *r);

/*
 * Writer: writes PATH.tmp-<pid>, renamed to PATH by commit after an fsync. Without commit, close
 * removes it. The first error is kept; commit reports it.
 */
typedef struct qn_file_writer qn_file_writer;
qn_status qn__file_writer_open(qn_file_writer **out, const char *path, qn_error *err);
qn_status qn__file_writer_write(qn_file_writer *w, const void *bytes, size_t n, qn_error *err);
qn_status qn__file_writer_commit(qn_file_writer *w, qn_error *err); /* then still close */
void qn__file_writer_close(qn_file_writer *w);

#endif
