/* vocab_data.h: the recorded vocabularies and cases of the tokenizers. */
#ifndef QUERN_TESTS_VOCAB_DATA_H
#define QUERN_TESTS_VOCAB_DATA_H

#include "support/support.h"

#include <quern/vocab.h>

#include <jansson.h>

/* The vocabulary called `name` as in data/tokenizer-expected ("gpt-2", "syn-rwkv"), unpacked to a
 * temporary file where it is compressed; NULL where it is absent. Fails the test where it is there
 * and does not load. */
qn_vocab *qn_test_vocab(const char *name);

/* Calls fn for each line of a JSON-lines file, with its number from 1. */
void qn_test_json_lines(const char *path, void (*fn)(json_t *line, size_t number, void *user),
                        void *user);

/* The bytes of {"text": …} or {"hex": …}; malloc'd. `text_key` may be NULL for plain strings. */
char *qn_test_json_bytes(const json_t *text, const json_t *hex, size_t *size);

/* SHA-256 (FIPS 180-4) as 64 hex digits and a NUL. */
void qn_test_sha256(const void *bytes, size_t n, char out[65]);

#endif
