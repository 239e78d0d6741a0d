/*
 * parse.c: header, metadata and tensor table of one GGUF stream.
 *
 * The bytes are read through a cursor. Where the source lies in memory the cursor stands in it;
 * otherwise it collects what was read in a block that grows with what really arrived, never with
 * what the file claims. Every length is compared with the bytes that are left before anything is
 * reserved for it. Positions, not pointers, are kept while the block may still move.
 */
#include <stdlib.h>

#include "base/error.h"
#include "gguf/reader.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the reader copies little-endian numbers as they are"
#endif

enum {
    MIN_PAIR_BYTES = 14,   /* a key of one byte and a value of one byte */
    MIN_TENSOR_BYTES = 24, /* no name, no dimensions */
    FIRST_READ = 4096,
};

#define SHOWN "%.96s" /* as much of a name as a message shows */

typedef struct cursor {
    qn_gguf *g;
    qn__gguf_shard *shard;
    const uint8_t *data;
    size_t have, pos;
    uint64_t size; /* of the stream; falls where the source turns out to be shorter */
    qn_error *err;
} cursor;

/* Reads on until n bytes from pos are there or the source has ended. */
static qn_status fill(cursor *c, size_t n)
{
    while (c->have - c->pos < n) {
        size_t room = c->have * 2 > FIRST_READ ? c->have * 2 : FIRST_READ;
        room = room < c->size ? room : (size_t)c->size;
        void *block = c->shard->owned;
        if (!qn__realloc(&block, room, 1)) {
            return qn__error_memory(c->err, "the metadata of a model file");
        }
        c->shard->owned = block;
        c->data = block;
        size_t got;
        qn_status status = qn__gguf_source_read(
            &c->shard->source, c->have, c->shard->owned + c->have, room - c->have, &got, c->err);
        if (status != QN_OK) {
            return status;
        }
        c->have += got;
        if (c->have < room) {
            c->size = c->have;
            return QN_OK;
        }
    }
    return QN_OK;
}

/* The next n bytes are there, or an error that says what they were to be. */
static qn_status need(cursor *c, uint64_t n, const char *what)
{
    if (n <= c->size - c->pos) {
        qn_status status = fill(c, (size_t)n);
        if (status != QN_OK) {
            return status;
        }
    }
    uint64_t left = c->size - c->pos;
    if (n > left) {
        return qn__error(c->err, QN_ERR_FORMAT,
                         "cut short: %s at byte %zu needs %llu bytes, %llu are left", what, c->pos,
                         (unsigned long long)n, (unsigned long long)left);
    }
    return QN_OK;
}

static qn_status take(cursor *c, void *out, size_t n, const char *what)
{
    qn_status status = need(c, n, what);
    if (status == QN_OK) {
        memcpy(out, c->data + c->pos, n);
        c->pos += n;
    }
    return status;
}

/* A string: *at gets the position of its bytes, the cursor stands behind them. */
static qn_status take_text(cursor *c, size_t *at, size_t *size, const char *what)
{
    uint64_t n = 0;
    qn_status status = take(c, &n, sizeof n, what);
    if (status != QN_OK) {
        return status;
    }
    if (n > QN__GGUF_MAX_TEXT) {
        return qn__error(c->err, QN_ERR_LIMIT, "%s at byte %zu has %llu bytes; the limit is 2^30",
                         what, c->pos - sizeof n, (unsigned long long)n);
    }
    status = need(c, n, what);
    if (status == QN_OK) {
        *at = c->pos;
        *size = (size_t)n;
        c->pos += (size_t)n;
    }
    return status;
}

static char *keep(cursor *c, size_t at, size_t size)
{
    return qn__arena_strndup(&c->g->arena, (const char *)c->data + at, size);
}

/* Room for one more element in a growing array. */
static bool grow(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room ? *room * 2 : 8;
    if (!qn__realloc(array, more, size)) {
        return false;
    }
    *room = more;
    return true;
}

/* ---- Header ---- */

static qn_status check_version(cursor *c, uint32_t version)
{
    if (version == 0) {
        return qn__error(c->err, QN_ERR_FORMAT, "GGUF version 0 does not exist");
    }
    if ((version & 0xFFFF) == 0) {
        return qn__error(c->err, QN_ERR_UNSUPPORTED,
                         "the file is big-endian (version word 0x%08x); convert it to "
                         "little-endian first",
                         version);
    }
    if (version == 1) {
        return qn__error(c->err, QN_ERR_UNSUPPORTED,
                         "GGUF version 1 is too old; this program reads versions 2 and 3");
    }
    if (version > 3) {
        return qn__error(c->err, QN_ERR_UNSUPPORTED,
                         "GGUF version %u is newer than this program, which reads 2 and 3",
                         version);
    }
    c->shard->version = version;
    return QN_OK;
}

/* A count from the header: not negative, and not more records than the bytes that are left could
 * hold. */
static qn_status check_count(cursor *c, int64_t count, uint64_t min_bytes, const char *what)
{
    if (count < 0) {
        return qn__error(c->err, QN_ERR_FORMAT, "the number of %s is negative: %lld", what,
                         (long long)count);
    }
    if ((uint64_t)count > (c->size - c->pos) / min_bytes) {
        return qn__error(c->err, QN_ERR_FORMAT, "cut short: %lld %s do not fit into %llu bytes",
                         (long long)count, what, (unsigned long long)(c->size - c->pos));
    }
    return QN_OK;
}

static qn_status parse_header(cursor *c, int64_t *n_tensors, int64_t *n_pairs)
{
    char magic[4];
    uint32_t version;
    qn_status status = take(c, magic, sizeof magic, "the magic GGUF");
    if (status != QN_OK) {
        return status;
    }
    if (memcmp(magic, "GGUF", sizeof magic) != 0) {
        for (size_t i = 0; i < sizeof magic; i++) {
            magic[i] = magic[i] >= 0x20 && magic[i] < 0x7F ? magic[i] : '?';
        }
        return qn__error(c->err, QN_ERR_FORMAT, "not a GGUF file: it starts with \"%.4s\"", magic);
    }
    status = take(c, &version, sizeof version, "the version");
    if (status == QN_OK) {
        status = check_version(c, version);
    }
    if (status == QN_OK) {
        status = take(c, n_tensors, sizeof *n_tensors, "the number of tensors");
    }
    if (status == QN_OK) {
        status = take(c, n_pairs, sizeof *n_pairs, "the number of keys");
    }
    if (status == QN_OK) {
        status = check_count(c, *n_tensors, MIN_TENSOR_BYTES, "tensors");
    }
    if (status == QN_OK) {
        status = check_count(c, *n_pairs, MIN_PAIR_BYTES, "keys");
    }
    return status;
}

/* ---- Metadata ---- */

static qn_status parse_texts(cursor *c, qn__gguf_entry *entry)
{
    /* The caller has seen that 8 bytes an element are left, so this is no more than the file. */
    if (entry->pair.count == 0) {
        return QN_OK;
    }
    uint64_t *texts = qn__arena_alloc(&c->g->arena, entry->pair.count, sizeof *texts);
    if (!texts) {
        return qn__error_memory(c->err, "the index of a string array");
    }
    for (size_t i = 0; i < entry->pair.count; i++) {
        size_t at, size;
        texts[i] = c->pos;
        qn_status status = take_text(c, &at, &size, "a string");
        if (status != QN_OK) {
            return status;
        }
    }
    entry->texts = texts;
    return QN_OK;
}

static qn_status parse_array(cursor *c, qn__gguf_entry *entry)
{
    int32_t type;
    uint64_t count = 0, bytes = 0;
    qn_status status = take(c, &type, sizeof type, "the type of an array");
    if (status != QN_OK) {
        return status;
    }
    if (type < 0 || type >= QN_GGUF_TYPE_COUNT || type == QN_GGUF_ARR) {
        return qn__error(c->err, QN_ERR_FORMAT, "%d is no type for the elements of an array", type);
    }
    status = take(c, &count, sizeof count, "the length of an array");
    if (status != QN_OK) {
        return status;
    }
    if (count > QN__GGUF_MAX_ARRAY) {
        return qn__error(c->err, QN_ERR_LIMIT, "an array has %llu elements; the limit is 2^30",
                         (unsigned long long)count);
    }
    entry->pair.element_type = (qn_gguf_type)type;
    entry->pair.count = (size_t)count;
    entry->data = c->pos;
    bytes = count * (type == QN_GGUF_STR ? 8 : qn__gguf_type_bytes((qn_gguf_type)type));
    status = need(c, bytes, "an array");
    if (status != QN_OK) {
        return status;
    }
    if (type == QN_GGUF_STR) {
        return parse_texts(c, entry);
    }
    c->pos += (size_t)bytes;
    return QN_OK;
}

static qn_status parse_value(cursor *c, qn__gguf_entry *entry)
{
    int32_t type;
    qn_status status = take(c, &type, sizeof type, "the type of a value");
    if (status != QN_OK) {
        return status;
    }
    if (type < 0 || type >= QN_GGUF_TYPE_COUNT) {
        return qn__error(c->err, QN_ERR_FORMAT, "%d is no type of a value", type);
    }
    qn_gguf_pair *pair = &entry->pair;
    pair->type = pair->element_type = (qn_gguf_type)type;
    pair->count = 1;
    if (type == QN_GGUF_ARR) {
        return parse_array(c, entry);
    }
    if (type == QN_GGUF_STR) {
        size_t at, size;
        status = take_text(c, &at, &size, "a string");
        if (status == QN_OK) {
            pair->text = (qn_gguf_text){keep(c, at, size), size};
        }
        return status == QN_OK && !pair->text.data ? qn__error_memory(c->err, "a string") : status;
    }
    uint8_t bytes[8];
    entry->data = c->pos;
    status = take(c, bytes, qn__gguf_type_bytes(pair->type), "a value");
    if (status == QN_OK) {
        qn__gguf_decode(pair, bytes);
    }
    return status;
}

static qn_status parse_pair(cursor *c)
{
    qn__gguf_shard *s = c->shard;
    size_t at, size;
    qn_status status = take_text(c, &at, &size, "a key");
    if (status != QN_OK) {
        return status;
    }
    if (size == 0) {
        return qn__error(c->err, QN_ERR_FORMAT, "key %zu is empty", s->n_entries);
    }
    char *key = keep(c, at, size);
    void *entries = s->entries;
    if (!key || !grow(&entries, s->n_entries, &s->entry_room, sizeof *s->entries)) {
        return qn__error_memory(c->err, "metadata");
    }
    s->entries = entries;
    if (qn__names_find(&s->keys, key, size) != QN__NAMES_NONE) {
        return qn__error(c->err, QN_ERR_FORMAT, "key " SHOWN ": occurs twice", key);
    }
    if (!qn__names_put(&s->keys, key, size, s->n_entries)) {
        return qn__error_memory(c->err, "metadata");
    }
    qn__gguf_entry *entry = &s->entries[s->n_entries++];
    *entry = (qn__gguf_entry){.pair.key = {key, size}};
    status = parse_value(c, entry);
    if (status != QN_OK) {
        qn__error_prefix(c->err, "key " SHOWN, key);
    }
    return status;
}

static qn_status parse_alignment(cursor *c)
{
    c->shard->alignment = 32;
    const qn__gguf_entry *entry = qn__gguf_shard_find(c->shard, "general.alignment");
    if (!entry) {
        return QN_OK;
    }
    if (entry->pair.type != QN_GGUF_U32) {
        return qn__error(c->err, QN_ERR_FORMAT, "key general.alignment: is %s, must be u32",
                         qn_gguf_type_name(entry->pair.type));
    }
    uint64_t value = entry->pair.value.u64;
    if (value == 0 || (value & (value - 1)) != 0) {
        return qn__error(c->err, QN_ERR_FORMAT, "key general.alignment: %llu is not a power of two",
                         (unsigned long long)value);
    }
    c->shard->alignment = (uint32_t)value;
    return QN_OK;
}

/* ---- Tensor table ---- */

/* Dimensions and the number of elements. The product of any of the dimensions fits int64_t, also
 * where another one is 0. */
static qn_status parse_shape(cursor *c, qn_gguf_tensor *t, int64_t *elements)
{
    qn_status status = take(c, &t->n_dims, sizeof t->n_dims, "the number of dimensions");
    if (status != QN_OK) {
        return status;
    }
    if (t->n_dims > QN_GGUF_MAX_DIMS) {
        return qn__error(c->err, QN_ERR_FORMAT, "has %u dimensions; the limit is %d", t->n_dims,
                         QN_GGUF_MAX_DIMS);
    }
    bool empty = false;
    int64_t product = 1;
    for (uint32_t d = 0; d < QN_GGUF_MAX_DIMS; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims) {
            status = take(c, &t->ne[d], sizeof t->ne[d], "a dimension");
        }
        if (status != QN_OK) {
            return status;
        }
        if (t->ne[d] < 0) {
            return qn__error(c->err, QN_ERR_FORMAT, "dimension %u is negative: %lld", d,
                             (long long)t->ne[d]);
        }
        empty = empty || t->ne[d] == 0;
    }
    for (uint32_t d = 0; d < QN_GGUF_MAX_DIMS; d++) {
        int64_t n = t->ne[d] > 0 ? t->ne[d] : 1;
        if (!qn__mul_i64(product, n, &product) || product == INT64_MAX) {
            return qn__error(
                c->err, QN_ERR_FORMAT, "has too many elements: %lld x %lld x %lld x %lld",
                (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3]);
        }
    }
    *elements = empty ? 0 : product;
    return QN_OK;
}

static qn_status parse_type(cursor *c, qn_gguf_tensor *t, int64_t elements)
{
    int32_t type;
    qn_status status = take(c, &type, sizeof type, "a tensor type");
    if (status != QN_OK) {
        return status;
    }
    const qn_type_info *info = qn_type_get_info(type);
    if (!info) {
        return qn__error(c->err, QN_ERR_FORMAT, "%d is no tensor type that this program knows",
                         type);
    }
    t->type = (qn_type)type;
    if (t->ne[0] % info->block_values != 0) {
        return qn__error(c->err, QN_ERR_FORMAT,
                         "a row of %lld values is no multiple of the %s block of %u",
                         (long long)t->ne[0], info->name, info->block_values);
    }
    size_t blocks = (size_t)(elements / info->block_values);
    if (!qn__mul_size(blocks, info->block_bytes, &t->bytes)) {
        return qn__error(c->err, QN_ERR_FORMAT, "its size in bytes overflows");
    }
    return QN_OK;
}

/* Shape, type and offset of a tensor whose name has been read. *next: where it must stand in the
 * data section; moved behind it. */
static qn_status parse_placement(cursor *c, qn_gguf_tensor *t, size_t *next)
{
    int64_t elements = 0;
    qn_status status = parse_shape(c, t, &elements);
    if (status == QN_OK) {
        status = parse_type(c, t, elements);
    }
    if (status == QN_OK) {
        status = take(c, &t->offset, sizeof t->offset, "an offset");
    }
    if (status != QN_OK) {
        return status;
    }
    if (t->offset != *next) {
        return qn__error(c->err, QN_ERR_FORMAT, "stands at offset %llu of the data, must be at %zu",
                         (unsigned long long)t->offset, *next);
    }
    size_t mask = c->shard->alignment - 1, end;
    if (!qn__add_size(*next, t->bytes, &end) || !qn__add_size(end, mask, &end)) {
        return qn__error(c->err, QN_ERR_FORMAT, "the sum of the tensors' sizes overflows");
    }
    *next = end & ~mask;
    return QN_OK;
}

static qn_status parse_tensor(cursor *c, size_t number, size_t *next)
{
    qn_gguf *g = c->g;
    size_t at, size;
    qn_status status = take_text(c, &at, &size, "a tensor's name");
    if (status != QN_OK) {
        return status;
    }
    if (size > QN_GGUF_MAX_TENSOR_NAME) {
        return qn__error(c->err, QN_ERR_FORMAT,
                         "the name of tensor %zu has %zu bytes; the limit is %d", number, size,
                         QN_GGUF_MAX_TENSOR_NAME);
    }
    char *name = keep(c, at, size);
    void *tensors = g->tensors;
    if (!name || !grow(&tensors, g->n_tensors, &g->tensor_room, sizeof *g->tensors)) {
        return qn__error_memory(c->err, "the tensor table");
    }
    g->tensors = tensors;
    size_t length = strlen(name); /* a name ends at its first NUL */
    if (qn__names_find(&g->tensor_names, name, length) != QN__NAMES_NONE) {
        return qn__error(c->err, QN_ERR_FORMAT, "tensor " SHOWN ": occurs twice", name);
    }
    if (!qn__names_put(&g->tensor_names, name, length, g->n_tensors)) {
        return qn__error_memory(c->err, "the tensor table");
    }
    qn_gguf_tensor *t = &g->tensors[g->n_tensors++];
    *t = (qn_gguf_tensor){.name = name, .file = (size_t)(c->shard - g->shards)};
    status = parse_placement(c, t, next);
    if (status != QN_OK) {
        qn__error_prefix(c->err, "tensor " SHOWN, name);
    }
    return status;
}

/* The start of the data section, from a cursor behind the tensor table. */
static qn_status parse_data_start(cursor *c, int64_t n_tensors)
{
    uint64_t mask = c->shard->alignment - 1;
    c->shard->data_start = c->pos;
    if (n_tensors == 0) {
        return QN_OK;
    }
    c->shard->data_start = (c->pos + mask) & ~mask;
    if (c->shard->data_start > c->size) {
        return qn__error(c->err, QN_ERR_FORMAT,
                         "cut short: the tensors' data start at byte %llu of %llu",
                         (unsigned long long)c->shard->data_start, (unsigned long long)c->size);
    }
    return QN_OK;
}

qn_status qn__gguf_parse(qn_gguf *g, size_t index, qn_error *err)
{
    qn__gguf_shard *s = &g->shards[index];
    cursor c = {.g = g, .shard = s, .size = s->source.size, .err = err};
    if (s->source.bytes) {
        c.data = s->source.bytes;
        c.have = (size_t)s->source.size;
    }
    int64_t n_tensors = 0, n_pairs = 0;
    qn_status status = parse_header(&c, &n_tensors, &n_pairs);
    for (int64_t i = 0; i < n_pairs && status == QN_OK; i++) {
        status = parse_pair(&c);
    }
    if (status == QN_OK) {
        status = parse_alignment(&c);
    }
    size_t next = 0;
    for (int64_t i = 0; i < n_tensors && status == QN_OK; i++) {
        status = parse_tensor(&c, (size_t)i, &next);
    }
    if (status == QN_OK) {
        status = parse_data_start(&c, n_tensors);
    }
    s->meta = c.data;
    void *block = s->owned;
    if (block && qn__realloc(&block, c.pos ? c.pos : 1, 1)) { /* give back what was read ahead */
        s->meta = s->owned = block;
    }
    if (status != QN_OK) {
        qn__error_prefix(err, "%s", s->source.name);
    }
    return status;
}
