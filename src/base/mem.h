/*
 * mem.h: checked size arithmetic, aligned blocks, the arena and the growable byte buffer.
 *
 * Numbers that come from outside the process are only ever combined through the checked functions.
 */
#ifndef QUERN_BASE_MEM_H
#define QUERN_BASE_MEM_H

#include <quern/base.h>

#include <string.h>

/* *out = a * b or a + b; false on overflow, *out is then untouched. */
static inline bool qn__mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool qn__add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool qn__mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* n rounded up to a multiple of `align` (a power of two); the caller knows that it fits. */
static inline size_t qn__align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static inline int64_t qn__min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t qn__max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ceil(a / b) for a >= 0, b > 0. */
static inline int64_t qn__div_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* count * size zeroed bytes, checked; NULL on overflow or lack of memory. Freed with free(). */
void *qn__calloc(size_t count, size_t size);

/* *block grown or shrunk to count * size bytes, checked; false and *block unchanged on failure. */
bool qn__realloc(void **block, size_t count, size_t size);

/* A copy of `n` bytes with a NUL behind them; NULL without memory. Freed with free(). `text` may be
 * NULL where n is 0. */
char *qn__strndup(const char *text, size_t n);

/*
 * Large blocks, aligned to 64 bytes (2 MiB and advised for huge pages from 4 MiB on), contents
 * zero. Freed with qn__block_free and the same size. NULL on failure.
 */
void *qn__block_alloc(size_t bytes);
void qn__block_free(void *block, size_t bytes);

/*
 * Arena: many small things that die together. Blocks are zeroed and aligned to 16 bytes. A failed
 * allocation returns NULL and sets `failed`, which stays set, so a builder may check once at its
 * end.
 */
typedef struct qn_arena_chunk qn_arena_chunk;
typedef struct qn_arena {
    qn_arena_chunk *head;
    size_t chunk_bytes; /* size of the next chunk; 0 means the default of 64 KiB */
    bool failed;
} qn_arena;

void *qn__arena_alloc(qn_arena *arena, size_t count, size_t size);
char *qn__arena_strndup(qn_arena *arena, const char *text, size_t n);
void qn__arena_free(qn_arena *arena); /* frees everything; the arena may be used again */

/* Growable byte buffer. Zero-initialise; `failed` is sticky and checked once at the end. */
typedef struct qn_buf {
    uint8_t *data; /* NULL while nothing was added */
    size_t size, capacity;
    bool failed;
} qn_buf;

bool qn__buf_reserve(qn_buf *buf, size_t extra);
bool qn__buf_add(qn_buf *buf, const void *bytes, size_t n);
bool qn__buf_add_byte(qn_buf *buf, uint8_t byte);
bool qn__buf_add_text(qn_buf *buf, const char *text);
bool qn__buf_printf(qn_buf *buf, const char *format, ...) QN_PRINTF(2, 3);
bool qn__buf_terminate(qn_buf *buf); /* puts a NUL behind the content; size does not count it */
void qn__buf_free(qn_buf *buf);

#endif
