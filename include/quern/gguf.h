/*
 * quern/gguf.h: model files. A reader (metadata and tensors of one file or of a whole split set)
 * and a writer (metadata first, then the tensors' bytes as a stream).
 *
 * Source of the format: GGUF versions 2 and 3, little-endian. Version 1 and files of the other byte
 * order are refused.
 *
 * Thread safety: an open qn_gguf does not change; all calls that take it const may run at the same
 * time. A writer belongs to one thread at a time.
 */
#ifndef QUERN_GGUF_H
#define QUERN_GGUF_H

#include <quern/base.h>
#include <quern/type.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_GGUF_MAX_DIMS        4
#define QN_GGUF_MAX_TENSOR_NAME 63 /* bytes, without the NUL */

/* Types of metadata values; the numbers are those of the format. */
typedef enum qn_gguf_type {
    QN_GGUF_U8 = 0,
    QN_GGUF_I8 = 1,
    QN_GGUF_U16 = 2,
    QN_GGUF_I16 = 3,
    QN_GGUF_U32 = 4,
    QN_GGUF_I32 = 5,
    QN_GGUF_F32 = 6,
    QN_GGUF_BOOL = 7,
    QN_GGUF_STR = 8,
    QN_GGUF_ARR = 9,
    QN_GGUF_U64 = 10,
    QN_GGUF_I64 = 11,
    QN_GGUF_F64 = 12,
    QN_GGUF_TYPE_COUNT = 13
} qn_gguf_type;

/* "u32", "str", "arr", …; "?" for a number that is no type. Thread safe. */
QN_API const char *qn_gguf_type_name(qn_gguf_type type);

/* Bytes with a length: may hold any byte, NUL too; nothing promises UTF-8. */
typedef struct qn_gguf_text {
    const char *data;
    size_t size;
} qn_gguf_text;

/* ---- Opening --------------------------------------------------------------------------------- */

typedef struct qn_gguf qn_gguf;

typedef struct qn_gguf_options {
    bool use_mmap;      /* map the files; tensors then have a data pointer. Default true */
    bool single_file;   /* do not follow split.count: read this one shard. Default false */
    bool metadata_only; /* do not ask that the tensors' bytes are all there. Default false */
    uint64_t offset;    /* where in the file the GGUF stream starts (single files). Default 0 */
    qn_log log;
} qn_gguf_options;

QN_API qn_gguf_options qn_gguf_defaults(void);

/*
 * Opens a file, or a whole split set through its first shard (its name ends with
 * "-00001-of-0000N.gguf"; the others are found beside it). `options` may be NULL.
 *
 * Errors name the file and the key or tensor: QN_ERR_IO (open, read, map), QN_ERR_FORMAT (damaged,
 * cut short, not GGUF), QN_ERR_UNSUPPORTED (version or byte order), QN_ERR_LIMIT, QN_ERR_MEMORY.
 * Memory taken while parsing stays within a small multiple of the file's size.
 */
QN_API qn_status qn_gguf_open(qn_gguf **out, const char *path, const qn_gguf_options *options,
                              qn_error *err);

/* The same for a split set whose files the caller lists, in order. */
QN_API qn_status qn_gguf_open_files(qn_gguf **out, const char *const *paths, size_t count,
                                    const qn_gguf_options *options, qn_error *err);

/* From a block of memory, which must outlive the reader. `name` is for messages. */
QN_API qn_status qn_gguf_open_memory(qn_gguf **out, const void *bytes, size_t size,
                                     const char *name, const qn_gguf_options *options,
                                     qn_error *err);

/*
 * Through a callback that copies up to `length` bytes from `offset` on and returns how many it
 * copied; fewer than asked means the end. `size`: the expected total; `max_read`: the most that one
 * call is asked for (0: no limit). The callback is used until the reader is freed.
 */
typedef size_t (*qn_gguf_read_fn)(void *user, void *buffer, uint64_t offset, size_t length);
QN_API qn_status qn_gguf_open_callback(qn_gguf **out, qn_gguf_read_fn read, void *user,
                                       uint64_t size, size_t max_read, const char *name,
                                       const qn_gguf_options *options, qn_error *err);

QN_API void qn_gguf_free(qn_gguf *g);

QN_API uint32_t qn_gguf_version(const qn_gguf *g);   /* 2 or 3, of the first file */
QN_API uint32_t qn_gguf_alignment(const qn_gguf *g); /* of the first file's data section */
QN_API size_t qn_gguf_file_count(const qn_gguf *g);
QN_API const char *qn_gguf_file_name(const qn_gguf *g, size_t file); /* as opened */
QN_API uint64_t qn_gguf_file_size(const qn_gguf *g, size_t file);    /* bytes */
QN_API uint64_t qn_gguf_data_offset(const qn_gguf *g, size_t file);  /* start of tensor data */

/* ---- Metadata (of the first file) ------------------------------------------------------------ */

/* One key with its value as it is stored. Pointers live as long as the reader. */
typedef struct qn_gguf_pair {
    qn_gguf_text key; /* NUL-terminated too */
    qn_gguf_type type;
    qn_gguf_type element_type; /* of an array; else the same as type */
    size_t count;              /* elements of an array; else 1 */
    union {
        uint64_t u64; /* u8 u16 u32 u64 */
        int64_t i64;  /* i8 i16 i32 i64 */
        double f64;   /* f32 (widened) f64 */
        bool boolean;
    } value;           /* of a plain number */
    qn_gguf_text text; /* of a string; NUL-terminated too */
} qn_gguf_pair;

QN_API size_t qn_gguf_pair_count(const qn_gguf *g);
/* In file order; NULL past the end. */
QN_API const qn_gguf_pair *qn_gguf_pair_at(const qn_gguf *g, size_t index);
/* By the exact bytes of the key; NULL where it is absent. */
QN_API const qn_gguf_pair *qn_gguf_find(const qn_gguf *g, const char *key);

/*
 * Typed access. Strict: a key that should be u32 and is stored as i32 is an error
 * (QN_ERR_FORMAT, names file, key and both types). A missing key is QN_ERR_NOT_FOUND. *out is
 * untouched on failure. The `opt` forms return QN_OK for a missing key and leave *out as it was.
 */
QN_API qn_status qn_gguf_get_u16(const qn_gguf *g, const char *key, uint16_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_u32(const qn_gguf *g, const char *key, uint32_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_i32(const qn_gguf *g, const char *key, int32_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_u64(const qn_gguf *g, const char *key, uint64_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_i64(const qn_gguf *g, const char *key, int64_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_f32(const qn_gguf *g, const char *key, float *out, qn_error *err);
QN_API qn_status qn_gguf_get_bool(const qn_gguf *g, const char *key, bool *out, qn_error *err);
QN_API qn_status qn_gguf_get_str(const qn_gguf *g, const char *key, qn_gguf_text *out,
                                 qn_error *err);

QN_API qn_status qn_gguf_opt_u32(const qn_gguf *g, const char *key, uint32_t *out, qn_error *err);
QN_API qn_status qn_gguf_opt_i32(const qn_gguf *g, const char *key, int32_t *out, qn_error *err);
QN_API qn_status qn_gguf_opt_f32(const qn_gguf *g, const char *key, float *out, qn_error *err);
QN_API qn_status qn_gguf_opt_bool(const qn_gguf *g, const char *key, bool *out, qn_error *err);
QN_API qn_status qn_gguf_opt_str(const qn_gguf *g, const char *key, qn_gguf_text *out,
                                 qn_error *err);

/* The array under `key`, of that element type (i32 and u32 stand for each other). *count gets its
 * length. */
QN_API qn_status qn_gguf_get_array(const qn_gguf *g, const char *key, qn_gguf_type element_type,
                                   size_t *count, qn_error *err);

/*
 * Copies elements [first, first + n) of an array. A range that is not inside the array is
 * QN_ERR_ARGUMENT. i32s takes i32, u32 (below 2^31), bool (0 or 1); bytes takes u8, i8, bool.
 */
QN_API qn_status qn_gguf_get_i32s(const qn_gguf *g, const char *key, size_t first, size_t n,
                                  int32_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_u64s(const qn_gguf *g, const char *key, size_t first, size_t n,
                                  uint64_t *out, qn_error *err);
QN_API qn_status qn_gguf_get_f32s(const qn_gguf *g, const char *key, size_t first, size_t n,
                                  float *out, qn_error *err);
QN_API qn_status qn_gguf_get_bytes(const qn_gguf *g, const char *key, size_t first, size_t n,
                                   uint8_t *out, qn_error *err);

/* Element `index` of a string array: bytes inside the file, not NUL-terminated, valid as long as
 * the reader. An empty text where the pair is no string array or the index is past its end. */
QN_API qn_gguf_text qn_gguf_array_text(const qn_gguf *g, const qn_gguf_pair *pair, size_t index);

/* Element `index` of any array, as if it were a pair of its own (a text as above). False where the
 * pair is no array or the index is past its end. */
QN_API bool qn_gguf_array_value(const qn_gguf *g, const qn_gguf_pair *pair, size_t index,
                                qn_gguf_pair *out);

/*
 * "Scalar or array" keys: a scalar fills all n values, an array must have exactly n elements. The
 * u32 form takes arrays of u32, i32 (not negative) and bool, and scalars of u32.
 */
QN_API qn_status qn_gguf_get_u32_each(const qn_gguf *g, const char *key, size_t n, uint32_t *out,
                                      qn_error *err);
QN_API qn_status qn_gguf_get_f32_each(const qn_gguf *g, const char *key, size_t n, float *out,
                                      qn_error *err);

/* ---- Tensors (of all files) ------------------------------------------------------------------ */

typedef struct qn_gguf_tensor {
    const char *name;
    qn_type type;
    uint32_t n_dims;              /* as stored, 0 .. 4 */
    int64_t ne[QN_GGUF_MAX_DIMS]; /* elements; 1 behind n_dims. ne[0] is the row length. Products
                                     of them do not overflow */
    size_t bytes;                 /* without padding */
    size_t file;                  /* which file of the set */
    uint64_t offset;              /* of its first byte in that file */
    const void *data; /* its bytes in a mapping, aligned to 32; NULL where the file is not mapped,
                         the address is not aligned or the bytes are not there: then read it */
} qn_gguf_tensor;

QN_API size_t qn_gguf_tensor_count(const qn_gguf *g);
/* In file order; NULL past the end. Valid as long as the reader. */
QN_API const qn_gguf_tensor *qn_gguf_tensor_at(const qn_gguf *g, size_t index);
QN_API const qn_gguf_tensor *qn_gguf_find_tensor(const qn_gguf *g, const char *name);

/* Copies bytes [offset, offset + n) of a tensor's data to `out`, mapped or not. */
QN_API qn_status qn_gguf_read_tensor(const qn_gguf *g, const qn_gguf_tensor *tensor, size_t offset,
                                     size_t n, void *out, qn_error *err);

/* ---- Writer ---------------------------------------------------------------------------------- */

/*
 * Use: new, set keys, add tensors, open, write all tensors' bytes in the order they were added
 * (in pieces of any size), finish, free. Errors of the set and add calls are kept; the first one
 * is reported by open. The file stands under its name only after finish; free without finish
 * leaves nothing.
 */
typedef struct qn_gguf_writer qn_gguf_writer;

QN_API qn_status qn_gguf_writer_new(qn_gguf_writer **out, qn_error *err);
QN_API void qn_gguf_writer_free(qn_gguf_writer *w);

/* An existing key is removed and the new pair stands at the end. "general.alignment" can only be
 * set as u32 and changes the padding. Texts and arrays are copied. */
QN_API void qn_gguf_writer_set_u8(qn_gguf_writer *w, const char *key, uint8_t value);
QN_API void qn_gguf_writer_set_u16(qn_gguf_writer *w, const char *key, uint16_t value);
QN_API void qn_gguf_writer_set_u32(qn_gguf_writer *w, const char *key, uint32_t value);
QN_API void qn_gguf_writer_set_i32(qn_gguf_writer *w, const char *key, int32_t value);
QN_API void qn_gguf_writer_set_u64(qn_gguf_writer *w, const char *key, uint64_t value);
QN_API void qn_gguf_writer_set_i64(qn_gguf_writer *w, const char *key, int64_t value);
QN_API void qn_gguf_writer_set_f32(qn_gguf_writer *w, const char *key, float value);
QN_API void qn_gguf_writer_set_f64(qn_gguf_writer *w, const char *key, double value);
QN_API void qn_gguf_writer_set_bool(qn_gguf_writer *w, const char *key, bool value);
QN_API void qn_gguf_writer_set_str(qn_gguf_writer *w, const char *key, const char *text);
QN_API void qn_gguf_writer_set_text(qn_gguf_writer *w, const char *key, qn_gguf_text text);
/* `values`: n elements of a number type (native layout; bool: one byte each), no strings. */
QN_API void qn_gguf_writer_set_array(qn_gguf_writer *w, const char *key, qn_gguf_type element_type,
                                     const void *values, size_t n);
QN_API void qn_gguf_writer_set_texts(qn_gguf_writer *w, const char *key, const qn_gguf_text *texts,
                                     size_t n);
QN_API void qn_gguf_writer_remove(qn_gguf_writer *w, const char *key);
/* Sets every pair of the reader's metadata but split.no, split.count and split.tensors.count. */
QN_API void qn_gguf_writer_copy(qn_gguf_writer *w, const qn_gguf *from);

/* `n_dims` 1 .. 4; trailing dimensions of 1 are not stored. Names are unique. */
QN_API void qn_gguf_writer_add_tensor(qn_gguf_writer *w, const char *name, qn_type type, int n_dims,
                                      const int64_t *ne);

/* The first kept error, or QN_OK. */
QN_API qn_status qn_gguf_writer_check(const qn_gguf_writer *w, qn_error *err);

/* Bytes of header, metadata, tensor table and padding, in a block that the caller frees with
 * free(). */
QN_API qn_status qn_gguf_writer_metadata(const qn_gguf_writer *w, uint8_t **out, size_t *size,
                                         qn_error *err);

/* Creates the file (under a temporary name beside `path`) and writes all that stands before the
 * data. After it no key or tensor can be set. */
QN_API qn_status qn_gguf_writer_open(qn_gguf_writer *w, const char *path, qn_error *err);

/* The next bytes of the tensors' data; padding is put in by the writer. */
QN_API qn_status qn_gguf_writer_write(qn_gguf_writer *w, const void *bytes, size_t n,
                                      qn_error *err);

/* All bytes must be there. Flushes and renames. */
QN_API qn_status qn_gguf_writer_finish(qn_gguf_writer *w, qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
