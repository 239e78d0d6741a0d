/* utf8.h: the one UTF-8 decoder and encoder of the house (strict: no surrogates, no overlong
 * forms). */
#ifndef QUERN_BASE_UTF8_H
#define QUERN_BASE_UTF8_H

#include <quern/base.h>

/*
 * Decodes the code point at text[0..n). Returns its length 1..4 and stores it; returns 0 where the
 * bytes are not valid UTF-8 (also when n cuts a sequence short, and for n = 0).
 */
int qn__utf8_decode(const char *text, size_t n, uint32_t *out);

/* Writes `cp` (<= 0x10FFFF) to out[0..4), returns the number of bytes. */
int qn__utf8_encode(uint32_t cp, char out[4]);

/* Length of the longest prefix of text[0..n) that does not end inside a sequence which could still
 * become valid: what a stream may print now. Invalid bytes count as complete. */
size_t qn__utf8_complete(const char *text, size_t n);

/* Whether the whole text is valid UTF-8. */
bool qn__utf8_valid(const char *text, size_t n);

#endif
