/* names.h: a hash table from names to indices, for keys and tensors. */
#ifndef QUERN_GGUF_NAMES_H
#define QUERN_GGUF_NAMES_H

#include <quern/base.h>

#define QN__NAMES_NONE SIZE_MAX

typedef struct qn__names_slot {
    const char *name; /* NULL: free. Owned by whoever put it in */
    uint32_t size, index;
} qn__names_slot;

/* Zero-initialise. Open addressing, at most half full; a power of two of slots. */
typedef struct qn__names {
    qn__names_slot *slots;
    size_t capacity, count;
    uint64_t seed; /* random, so that no file can be made of names that collide */
} qn__names;

/* The index of a name, or QN__NAMES_NONE. */
size_t qn__names_find(const qn__names *names, const char *name, size_t size);

/* Puts a name in, or gives the one that is there a new index. False without memory, or where size
 * or index do not fit 32 bits. */
bool qn__names_put(qn__names *names, const char *name, size_t size, size_t index);

void qn__names_free(qn__names *names);

#endif
