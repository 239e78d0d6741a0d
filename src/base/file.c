/* file.c: POSIX files; see file.h. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"

static qn_status io_error(qn_error *err, const char *path, const char *what)
{
    return qn__error(err, QN_ERR_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

static qn_status read_all(int fd, uint8_t *data, size_t size, const char *path, qn_error *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, data + done, size - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return io_error(err, path, "read");
        }
        if (n == 0) {
            return qn__error(err, QN_ERR_IO, "%s: became shorter while it was read", path);
        }
        done += (size_t)n;
    }
    return QN_OK;
}

/* Opens a regular file for reading; a directory, a device or a pipe is refused. */
static qn_status open_regular(const char *path, int *out, uint64_t *size, qn_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return io_error(err, path, "open");
    }
    qn_status status = QN_OK;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        status = io_error(err, path, "stat");
    } else if (!S_ISREG(st.st_mode)) {
        status = qn__error(err, QN_ERR_IO, "%s: not a regular file", path);
    }
    if (status != QN_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    *size = (uint64_t)st.st_size;
    return QN_OK;
}

qn_status qn__file_open(qn_file *file, const char *path, bool map, qn_error *err)
{
    *file = (qn_file){0};
    uint8_t *block = NULL;
    int fd;
    uint64_t size;
    qn_status status = open_regular(path, &fd, &size, err);
    if (status != QN_OK) {
        return status;
    }
    file->size = (size_t)size;
    if (file->size == 0) {
        goto done;
    }
    if (map) {
        void *p = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            status = io_error(err, path, "map");
            goto done;
        }
        file->data = p;
        file->mapped = true;
        goto done;
    }
    block = qn__block_alloc(file->size);
    if (!block) {
        status = qn__error(err, QN_ERR_MEMORY, "%s: out of memory for %zu bytes", path, file->size);
        goto done;
    }
    status = read_all(fd, block, file->size, path, err);
    if (status == QN_OK) {
        file->data = block;
        block = NULL;
    }
done:
    if (block) {
        qn__block_free(block, file->size);
    }
    if (status != QN_OK) {
        *file = (qn_file){0};
    }
    close(fd);
    return status;
}

void qn__file_close(qn_file *file)
{
    if (file->data && file->mapped) {
        munmap((void *)(uintptr_t)file->data, file->size);
    } else if (file->data) {
        qn__block_free((void *)(uintptr_t)file->data, file->size);
    }
    *file = (qn_file){0};
}

/* The whole pages inside (shrink) or around (grow) a range; false if there are none. */
static bool page_range(const qn_file *file, size_t offset, size_t bytes, bool grow, uint8_t **start,
                       size_t *length)
{
    if (!file->data || offset > file->size || bytes > file->size - offset || bytes == 0) {
        return false;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t low = (size_t)(file->data + offset);
    size_t high = low + bytes;
    low = grow ? low & ~(page - 1) : qn__align_up(low, page);
    high = grow ? qn__align_up(high, page) : high & ~(page - 1);
    if (high <= low) {
        return false;
    }
    *start = (uint8_t *)low; /* NOLINT(performance-no-int-to-ptr): page arithmetic */
    *length = high - low;
    return true;
}

qn_status qn__file_lock(qn_file *file, size_t offset, size_t bytes, qn_error *err)
{
    uint8_t *start;
    size_t length;
    if (!page_range(file, offset, bytes, true, &start, &length)) {
        return QN_OK;
    }
    if (mlock(start, length) != 0) {
        return qn__error(err, QN_ERR_IO, "cannot lock %zu bytes in memory: %s", length,
                         strerror(errno));
    }
    return QN_OK;
}

void qn__file_drop(qn_file *file, size_t offset, size_t bytes)
{
    uint8_t *start;
    size_t length;
    if (file->mapped && page_range(file, offset, bytes, false, &start, &length)) {
        madvise(start, length, MADV_DONTNEED);
    }
}

void qn__file_will_need(qn_file *file, size_t offset, size_t bytes)
{
    uint8_t *start;
    size_t length;
    if (file->mapped && page_range(file, offset, bytes, true, &start, &length)) {
        madvise(start, length, MADV_WILLNEED);
    }
}

struct qn_file_reader {
    int fd;
    uint64_t size;
    char *path;
};

qn_status qn__file_reader_open(qn_file_reader **out, const char *path, qn_error *err)
{
    *out = NULL;
    int fd;
    uint64_t size;
    qn_status status = open_regular(path, &fd, &size, err);
    if (status != QN_OK) {
        return status;
    }
    qn_file_reader *r = qn__calloc(1, sizeof *r);
    char *copy = qn__strndup(path, strlen(path));
    if (!r || !copy) {
        close(fd);
        free(r);
        free(copy);
        return qn__error_memory(err, "a file reader");
    }
    *r = (qn_file_reader){.fd = fd, .size = size, .path = copy};
    *out = r;
    return QN_OK;
}

uint64_t qn__file_reader_size(const qn_file_reader *r)
{
    return r->size;
}

qn_status qn__file_reader_read(const qn_file_reader *r, uint64_t offset, void *out, size_t n,
                               qn_error *err)
{
    uint8_t *to = out;
    if (offset > r->size || n > r->size - offset) {
        return qn__error(err, QN_ERR_IO, "%s: ends before byte %llu", r->path,
                         (unsigned long long)offset + n);
    }
    while (n > 0) {
        ssize_t k = pread(r->fd, to, n, (off_t)offset);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return io_error(err, r->path, "read");
        }
        if (k == 0) {
            return qn__error(err, QN_ERR_IO, "%s: became shorter while it was read", r->path);
        }
        to += k;
        offset += (uint64_t)k;
        n -= (size_t)k;
    }
    return QN_OK;
}

void qn__file_reader_close(qn_file_reader *r)
{
    if (!r) {
        return;
    }
    close(r->fd);
    free(r->path);
    free(r);
}

struct qn_file_writer {
    int fd;
    qn_status status; /* of the first failed write */
    bool committed;
    char *path, *temporary;
};

qn_status qn__file_writer_open(qn_file_writer **out, const char *path, qn_error *err)
{
    *out = NULL;
    qn_file_writer *w = qn__calloc(1, sizeof *w);
    size_t room = strlen(path) + 32;
    if (w) {
        w->fd = -1;
        w->path = qn__strndup(path, strlen(path));
        w->temporary = qn__calloc(room, 1);
    }
    if (!w || !w->path || !w->temporary) {
        qn__file_writer_close(w);
        return qn__error_memory(err, "a file writer");
    }
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* renaming would replace a device */
        w->committed = true;
        qn__file_writer_close(w);
        return qn__error(err, QN_ERR_IO, "%s: exists and is not a regular file", path);
    }
    snprintf(w->temporary, room, "%s.tmp-%ld", path, (long)getpid());
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        qn_status status = io_error(err, w->temporary, "create");
        w->committed = true; /* nothing of ours to remove */
        qn__file_writer_close(w);
        return status;
    }
    *out = w;
    return QN_OK;
}

qn_status qn__file_writer_write(qn_file_writer *w, const void *bytes, size_t n, qn_error *err)
{
    const uint8_t *p = bytes;
    if (w->status != QN_OK) {
        return qn__error(err, w->status, "%s: an earlier write failed", w->path);
    }
    while (n > 0) {
        ssize_t k = write(w->fd, p, n);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            w->status = QN_ERR_IO;
            return io_error(err, w->path, "write");
        }
        p += k;
        n -= (size_t)k;
    }
    return QN_OK;
}

qn_status qn__file_writer_commit(qn_file_writer *w, qn_error *err)
{
    if (w->status != QN_OK) {
        return qn__error(err, w->status, "%s: an earlier write failed", w->path);
    }
    if (fsync(w->fd) != 0 && errno != EINVAL && errno != EROFS) {
        return io_error(err, w->path, "flush");
    }
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) {
        return io_error(err, w->path, "close");
    }
    if (rename(w->temporary, w->path) != 0) {
        return io_error(err, w->path, "rename the finished file to");
    }
    w->committed = true;
    return QN_OK;
}

void qn__file_writer_close(qn_file_writer *w)
{
    if (!w) {
        return;
    }
    if (w->fd >= 0) {
        close(w->fd);
    }
    if (!w->committed && w->temporary && w->temporary[0]) {
        unlink(w->temporary);
    }
    free(w->path);
    free(w->temporary);
    free(w);
}
