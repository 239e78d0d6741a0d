/* names.c: open addressing with linear probing; see names.h. */
#include "gguf/names.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

/* FNV-1a over the bytes from a random start, then a finishing mix so that the low bits depend on
 * all of them. */
static uint64_t hash(uint64_t seed, const char *name, size_t size)
{
    uint64_t h = seed ^ 0xcbf29ce484222325U;
    for (size_t i = 0; i < size; i++) {
        h = (h ^ (uint8_t)name[i]) * 0x100000001b3U;
        h ^= h >> 29;
    }
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93U;
    return h ^ (h >> 32);
}

/* The slot of a name, or the free one where it belongs. The table has free slots. */
static qn__names_slot *locate(const qn__names *names, const char *name, size_t size)
{
    size_t mask = names->capacity - 1;
    size_t at = (size_t)hash(names->seed, name, size) & mask;
    while (names->slots[at].name &&
           (names->slots[at].size != size || memcmp(names->slots[at].name, name, size) != 0)) {
        at = (at + 1) & mask;
    }
    return &names->slots[at];
}

size_t qn__names_find(const qn__names *names, const char *name, size_t size)
{
    if (names->capacity == 0) {
        return QN__NAMES_NONE;
    }
    const qn__names_slot *slot = locate(names, name, size);
    return slot->name ? slot->index : QN__NAMES_NONE;
}

static bool grow(qn__names *names)
{
    qn__names bigger = {.capacity = names->capacity ? names->capacity * 2 : 16,
                        .seed = names->seed};
    if (names->capacity == 0) {
        bigger.seed = ((uint64_t)qn__rng_entropy() << 32) | qn__rng_entropy();
    }
    bigger.slots = qn__calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots) {
        return false;
    }
    for (size_t i = 0; i < names->capacity; i++) {
        const qn__names_slot *slot = &names->slots[i];
        if (slot->name) {
            *locate(&bigger, slot->name, slot->size) = *slot;
        }
    }
    bigger.count = names->count;
    free(names->slots);
    *names = bigger;
    return true;
}

bool qn__names_put(qn__names *names, const char *name, size_t size, size_t index)
{
    if (size > UINT32_MAX || index > UINT32_MAX ||
        (names->count * 2 >= names->capacity && !grow(names))) {
        return false;
    }
    qn__names_slot *slot = locate(names, name, size);
    names->count += !slot->name;
    *slot = (qn__names_slot){.name = name, .size = (uint32_t)size, .index = (uint32_t)index};
    return true;
}

void qn__names_free(qn__names *names)
{
    free(names->slots);
    *names = (qn__names){0};
}
