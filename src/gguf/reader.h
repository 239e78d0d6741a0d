/*
 * reader.h: the inside of a qn_gguf. parse.c fills one shard; reader.c opens sets and hands out
 * tensors; values.c gives typed access to the metadata.
 */
#ifndef QUERN_GGUF_READER_H
#define QUERN_GGUF_READER_H

#include <quern/gguf.h>

#include "base/mem.h"
#include "gguf/names.h"
#include "gguf/source.h"

#define QN__GGUF_MAX_TEXT  ((uint64_t)1 << 30) /* bytes of a string */
#define QN__GGUF_MAX_ARRAY ((uint64_t)1 << 30) /* elements */

/* A pair with what only the reader needs: where an array's elements are. */
typedef struct qn__gguf_entry {
    qn_gguf_pair pair;
    size_t data;     /* position of the number or first element in the metadata bytes */
    uint64_t *texts; /* string array: position of each element's length word */
} qn__gguf_entry;

/* One file of a set. */
typedef struct qn__gguf_shard {
    qn__gguf_source source;
    const uint8_t *meta; /* header to tensor table; in the source or owned */
    uint8_t *owned;
    uint32_t version, alignment;
    uint64_t data_start; /* of the tensors' data, from the start of the stream */
    qn__gguf_entry *entries;
    size_t n_entries, entry_room;
    qn__names keys;
} qn__gguf_shard;

struct qn_gguf {
    qn_gguf_options options;
    qn_arena arena; /* keys, names, texts */
    qn__gguf_shard *shards;
    size_t n_shards;
    qn_gguf_tensor *tensors; /* of all shards */
    size_t n_tensors, tensor_room;
    qn__names tensor_names;
};

/* Bytes of one value; 0 for strings, arrays and numbers that are no type. */
size_t qn__gguf_type_bytes(qn_gguf_type type);

/* The value of a number of type pair->type from its bytes in the file. */
void qn__gguf_decode(qn_gguf_pair *pair, const uint8_t *bytes);

/* Reads header, metadata and tensor table of shard `index`, whose source is open; its tensors join
 * g->tensors. */
qn_status qn__gguf_parse(qn_gguf *g, size_t index, qn_error *err);

/* The entry of a key in one shard, or NULL. */
const qn__gguf_entry *qn__gguf_shard_find(const qn__gguf_shard *shard, const char *key);

#endif
