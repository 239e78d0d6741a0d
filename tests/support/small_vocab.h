/* small_vocab.h: one small vocabulary for each tokenizer model, made with the writer of GGUF files,
 * so that tests and fuzz targets need no other files. */
#ifndef QUERN_TESTS_SMALL_VOCAB_H
#define QUERN_TESTS_SMALL_VOCAB_H

#include <quern/gguf.h>
#include <quern/vocab.h>

/* Name of vocabulary `i` ("spm", "bpe", "raw", …); NULL past the end. */
const char *small_vocab_name(size_t i);

/* Its metadata, to be changed or loaded; NULL for an unknown name or without memory. */
qn_gguf_writer *small_vocab_writer(const char *name);

/* The bytes of a file with the writer's metadata; free() them. NULL on failure. */
uint8_t *small_vocab_bytes(qn_gguf_writer *w, size_t *size);

/* Loads from the writer's metadata and frees the writer. The file is called "small.gguf". */
qn_status small_vocab_load(qn_gguf_writer *w, qn_vocab **out, qn_error *err);

#endif
