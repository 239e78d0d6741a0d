/*
 * charsmap.h: the normalisation table of unigram vocabularies (precompiled_charsmap): a double
 * array that maps prefixes of a text to replacements. Everything in it comes from the file and is
 * checked where it is used.
 */
#ifndef QUERN_VOCAB_CHARSMAP_H
#define QUERN_VOCAB_CHARSMAP_H

#include "vocab/internal.h"

typedef struct qn_charsmap {
    uint32_t *words; /* NULL: no table, nothing matches */
    size_t n_words;
    char *strings; /* zero-terminated replacements, one behind the other */
    size_t n_bytes;
} qn_charsmap;

/* Reads tokenizer.ggml.precompiled_charsmap; a missing key leaves the table empty. */
qn_status qn__charsmap_load(qn_charsmap *map, const qn_vocab_source *from, qn_error *err);
void qn__charsmap_free(qn_charsmap *map);

/*
 * The longest prefix of text[0, n) in the table: *used bytes (0: none), and its replacement.
 * QN_ERR_FORMAT where the table leads outside itself.
 */
qn_status qn__charsmap_match(const qn_charsmap *map, const char *text, size_t n, size_t *used,
                             const char **replacement, size_t *size, qn_error *err);

#endif
