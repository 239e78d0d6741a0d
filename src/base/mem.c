/* mem.c: allocation helpers, arena, byte buffer. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define CHUNK_BYTES ((size_t)64 * 1024)
#define BLOCK_ALIGN ((size_t)64)
#define HUGE_PAGE   ((size_t)2 * 1024 * 1024)
#define PAGES_FROM  ((size_t)128 * 1024)
#define HUGE_FROM   (2 * HUGE_PAGE)

void *qn__calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!qn__mul_size(count, size, &bytes)) { /* calloc checks too, but sanitizers end there */
        return NULL;
    }
    return calloc(1, bytes ? bytes : 1);
}

bool qn__realloc(void **block, size_t count, size_t size)
{
    size_t bytes;
    if (!qn__mul_size(count, size, &bytes)) {
        return false;
    }
    void *p = realloc(*block, bytes ? bytes : 1);
    if (!p) {
        return false;
    }
    *block = p;
    return true;
}

char *qn__strndup(const char *text, size_t n)
{
    size_t bytes;
    char *copy = qn__add_size(n, 1, &bytes) ? malloc(bytes) : NULL;
    if (copy) {
        if (n > 0) { /* an empty text may have no address */
            memcpy(copy, text, n);
        }
        copy[n] = '\0';
    }
    return copy;
}

/* Where a block of `bytes` comes from. Larger ones come from the kernel directly: they are zero,
 * and pages that are not touched cost nothing. */
typedef enum block_source { FROM_HEAP, FROM_PAGES, FROM_HUGE_PAGES } block_source;

static block_source source_of(size_t bytes)
{
    return bytes < PAGES_FROM ? FROM_HEAP : bytes < HUGE_FROM ? FROM_PAGES : FROM_HUGE_PAGES;
}

static void *map_pages(size_t length)
{
    void *p = mmap(NULL, length, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* `length`, a multiple of the huge page, aligned to it. */
static void *map_huge_pages(size_t length)
{
    uint8_t *p = map_pages(length + HUGE_PAGE);
    if (!p) {
        return NULL;
    }
    uint8_t *aligned = (uint8_t *)qn__align_up((size_t)p, HUGE_PAGE);
    if (aligned > p) {
        munmap(p, (size_t)(aligned - p));
    }
    size_t tail = HUGE_PAGE - (size_t)(aligned - p);
    if (tail > 0) {
        munmap(aligned + length, tail);
    }
    madvise(aligned, length, MADV_HUGEPAGE); /* a wish: failing it changes only speed */
    return aligned;
}

void *qn__block_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * HUGE_PAGE) {
        return NULL;
    }
    switch (source_of(bytes)) {
    case FROM_PAGES:
        return map_pages(bytes);
    case FROM_HUGE_PAGES:
        return map_huge_pages(qn__align_up(bytes, HUGE_PAGE));
    default:
        break;
    }
    size_t rounded = qn__align_up(bytes ? bytes : 1, BLOCK_ALIGN);
    void *p = aligned_alloc(BLOCK_ALIGN, rounded);
    if (p) {
        memset(p, 0, rounded);
    }
    return p;
}

void qn__block_free(void *block, size_t bytes)
{
    if (!block) {
        return;
    }
    switch (source_of(bytes)) {
    case FROM_PAGES:
        munmap(block, bytes);
        break;
    case FROM_HUGE_PAGES:
        munmap(block, qn__align_up(bytes, HUGE_PAGE));
        break;
    default:
        free(block);
    }
}

struct qn_arena_chunk {
    qn_arena_chunk *next;
    size_t used, capacity;
    _Alignas(16) uint8_t bytes[];
};

void *qn__arena_alloc(qn_arena *arena, size_t count, size_t size)
{
    size_t need;
    if (!qn__mul_size(count, size, &need) || need > SIZE_MAX / 2) {
        arena->failed = true;
        return NULL;
    }
    need = qn__align_up(need ? need : 1, 16);
    qn_arena_chunk *chunk = arena->head;
    if (!chunk || chunk->capacity - chunk->used < need) {
        size_t capacity = arena->chunk_bytes ? arena->chunk_bytes : CHUNK_BYTES;
        if (capacity < need) {
            capacity = need;
        }
        chunk = calloc(1, sizeof *chunk + capacity);
        if (!chunk) {
            arena->failed = true;
            return NULL;
        }
        chunk->capacity = capacity;
        chunk->next = arena->head;
        arena->head = chunk;
    }
    void *p = chunk->bytes + chunk->used;
    chunk->used += need;
    return p;
}

char *qn__arena_strndup(qn_arena *arena, const char *text, size_t n)
{
    size_t bytes;
    if (!qn__add_size(n, 1, &bytes)) {
        arena->failed = true;
        return NULL;
    }
    char *copy = qn__arena_alloc(arena, bytes, 1);
    if (copy && n > 0) {
        memcpy(copy, text, n);
    }
    return copy;
}

void qn__arena_free(qn_arena *arena)
{
    qn_arena_chunk *chunk = arena->head;
    while (chunk) {
        qn_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    arena->head = NULL;
    arena->failed = false;
}

bool qn__buf_reserve(qn_buf *buf, size_t extra)
{
    size_t need;
    if (buf->failed || !qn__add_size(buf->size, extra, &need)) {
        buf->failed = true;
        return false;
    }
    if (need <= buf->capacity && buf->data) {
        return true;
    }
    size_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity < need) {
        capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    }
    uint8_t *data = realloc(buf->data, capacity);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

bool qn__buf_add(qn_buf *buf, const void *bytes, size_t n)
{
    if (!qn__buf_reserve(buf, n)) {
        return false;
    }
    if (n > 0) {
        memcpy(buf->data + buf->size, bytes, n);
        buf->size += n;
    }
    return true;
}

bool qn__buf_add_byte(qn_buf *buf, uint8_t byte)
{
    return qn__buf_add(buf, &byte, 1);
}

bool qn__buf_add_text(qn_buf *buf, const char *text)
{
    return qn__buf_add(buf, text, strlen(text));
}

bool qn__buf_printf(qn_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && qn__buf_reserve(buf, (size_t)n + 1);
    if (ok) {
        vsnprintf((char *)buf->data + buf->size, (size_t)n + 1, format, again);
        buf->size += (size_t)n;
    }
    va_end(again);
    return ok;
}

bool qn__buf_terminate(qn_buf *buf)
{
    if (!qn__buf_reserve(buf, 1)) {
        return false;
    }
    buf->data[buf->size] = 0;
    return true;
}

void qn__buf_free(qn_buf *buf)
{
    free(buf->data);
    *buf = (qn_buf){0};
}
