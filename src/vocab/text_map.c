/* text_map.c: see text_map.h. Open addressing, at most half full, linear probing. */
#include "vocab/text_map.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>

#define SECRET_A 0x9E3779B97F4A7C15ULL /* odd, bits well mixed; 2^64 / golden ratio */
#define SECRET_B 0xD1B54A32D192ED03ULL

__extension__ typedef unsigned __int128 wide;

/* Both halves of a 64 x 64 bit product folded together: every input bit reaches every output bit.
 */
static uint64_t fold(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_text(uint64_t seed, const char *data, size_t size)
{
    uint64_t hash = fold(seed ^ SECRET_A, size ^ SECRET_B);
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        hash = fold(hash ^ word, seed ^ SECRET_B);
        data += 8;
        size -= 8;
    }
    uint64_t tail = 0;
    if (size >= 4) {
        uint32_t low;
        uint32_t high; /* overlaps `low`; with the size in the hash nothing is lost */
        memcpy(&low, data, 4);
        memcpy(&high, data + size - 4, 4);
        tail = (uint64_t)high << 32 | low;
    } else if (size > 0) {
        tail = (uint64_t)(uint8_t)data[0] << 16 | (uint64_t)(uint8_t)data[size / 2] << 8 |
               (uint8_t)data[size - 1];
    }
    return fold(hash ^ tail, seed ^ SECRET_A);
}

uint64_t qn__hash_key(uint64_t seed, uint64_t key)
{
    return fold(key ^ seed, SECRET_A);
}

static bool make_slots(qn_text_map *map, size_t slots)
{
    uint64_t *fresh = qn__calloc(slots, sizeof *fresh);
    if (!fresh) {
        return false;
    }
    for (uint32_t i = 0; i < map->count; i++) {
        uint64_t hash = hash_text(map->seed, map->entries[i].data, map->entries[i].size);
        size_t at = hash & (slots - 1);
        while (fresh[at] != 0) {
            at = (at + 1) & (slots - 1);
        }
        fresh[at] = (hash & 0xFFFFFFFF00000000ULL) | (i + 1);
    }
    free(map->slots);
    map->slots = fresh;
    map->mask = slots - 1;
    return true;
}

bool qn__text_map_init(qn_text_map *map, size_t expected)
{
    *map = (qn_text_map){.seed = (uint64_t)qn__rng_entropy() << 32 | qn__rng_entropy()};
    if (expected > QN_TEXT_MAP_MAX) {
        return false;
    }
    size_t slots = 64;
    while (slots < expected * 2) {
        slots *= 2;
    }
    void *entries = NULL;
    if (!make_slots(map, slots) || !qn__realloc(&entries, expected + 1, sizeof(qn_slice))) {
        qn__text_map_free(map);
        return false;
    }
    map->entries = entries;
    map->capacity = (uint32_t)expected + 1;
    return true;
}

void qn__text_map_free(qn_text_map *map)
{
    free(map->slots);
    free(map->entries);
    *map = (qn_text_map){0};
}

/* Index of the text or -1; *slot is where it is or would go. */
static int32_t look_up(const qn_text_map *map, uint64_t hash, const char *data, size_t size,
                       size_t *slot)
{
    size_t at = hash & map->mask;
    for (; map->slots[at] != 0; at = (at + 1) & map->mask) {
        if ((map->slots[at] ^ hash) >> 32 != 0) {
            continue;
        }
        uint32_t index = (uint32_t)map->slots[at] - 1;
        const qn_slice *e = &map->entries[index];
        if (e->size == size && (size == 0 || memcmp(e->data, data, size) == 0)) {
            *slot = at;
            return (int32_t)index;
        }
    }
    *slot = at;
    return -1;
}

int32_t qn__text_map_find(const qn_text_map *map, const char *data, size_t size)
{
    size_t slot;
    return map->slots ? look_up(map, hash_text(map->seed, data, size), data, size, &slot) : -1;
}

uint64_t qn__text_map_hash(const qn_text_map *map, const char *data, size_t size)
{
    uint64_t hash = hash_text(map->seed, data, size);
    __builtin_prefetch(&map->slots[hash & map->mask]);
    return hash;
}

int32_t qn__text_map_find_hashed(const qn_text_map *map, uint64_t hash, const char *data,
                                 size_t size)
{
    size_t slot;
    return look_up(map, hash, data, size, &slot);
}

int32_t qn__text_map_add(qn_text_map *map, const char *data, size_t size)
{
    uint64_t hash = hash_text(map->seed, data, size);
    size_t slot;
    int32_t found = look_up(map, hash, data, size, &slot);
    if (found >= 0) {
        return found;
    }
    if (map->count >= QN_TEXT_MAP_MAX || size > UINT32_MAX) {
        return -1;
    }
    if (map->count == map->capacity) {
        void *entries = map->entries;
        if (!qn__realloc(&entries, (size_t)map->capacity * 2, sizeof(qn_slice))) {
            return -1;
        }
        map->entries = entries;
        map->capacity *= 2;
    }
    if (((size_t)map->count + 1) * 2 > map->mask + 1) {
        if (!make_slots(map, (map->mask + 1) * 2)) {
            return -1;
        }
        look_up(map, hash, data, size, &slot);
    }
    map->entries[map->count] = (qn_slice){.data = data, .size = (uint32_t)size};
    map->slots[slot] = (hash & 0xFFFFFFFF00000000ULL) | (map->count + 1);
    return (int32_t)map->count++;
}
