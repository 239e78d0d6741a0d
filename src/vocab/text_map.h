/*
 * text_map.h: byte strings to small integers: the first added text gets 0, the next new one 1, ….
 * The map keeps pointers: the bytes must outlive it. Hashed with a seed of its own, so that a
 * hostile file cannot choose texts that collide; the order of adding alone decides the integers.
 */
#ifndef QUERN_VOCAB_TEXT_MAP_H
#define QUERN_VOCAB_TEXT_MAP_H

#include <quern/base.h>

typedef struct qn_slice {
    const char *data;
    uint32_t size;
    int32_t value; /* what a trie stores for the text; free in a map */
} qn_slice;

typedef struct qn_text_map {
    uint64_t *slots; /* high half: part of the hash; low half: index + 1, 0 = empty */
    size_t mask;
    qn_slice *entries;
    uint32_t count, capacity;
    uint64_t seed;
} qn_text_map;

#define QN_TEXT_MAP_MAX 0x7FFFFFFFU

/* Room for `expected` texts; grows as needed. */
bool qn__text_map_init(qn_text_map *map, size_t expected);
void qn__text_map_free(qn_text_map *map);

/* Index of the text, or -1. */
int32_t qn__text_map_find(const qn_text_map *map, const char *data, size_t size);

/* In two halves, for many texts at once: the hash (the slot is then on its way into the cache), and
 * the index that belongs to it. */
uint64_t qn__text_map_hash(const qn_text_map *map, const char *data, size_t size);
int32_t qn__text_map_find_hashed(const qn_text_map *map, uint64_t hash, const char *data,
                                 size_t size);

/* Index of the text, added if it is new (map->count then grows); -1 without memory. */
int32_t qn__text_map_add(qn_text_map *map, const char *data, size_t size);

/* A hash of `key` for tables of other files; `seed` as that of a map. */
uint64_t qn__hash_key(uint64_t seed, uint64_t key);

#endif
