/*
 * unicode.h: what tokenizers need to know about code points: general class, whitespace, lower case,
 * decomposition, as of Unicode 15.1.0, and the lenient UTF-8 decoder of tokenizers.
 *
 * Classes come from a table of our own, so that they do not change with the version of a library.
 * Case and decomposition come from utf8proc, for the code points that 15.1 assigns: for those they
 * never change again (stability policies of Unicode).
 */
#ifndef QUERN_VOCAB_UNICODE_H
#define QUERN_VOCAB_UNICODE_H

#include <quern/base.h>

typedef enum qn_unicode_class {
    QN_CLASS_UNASSIGNED = 0,
    QN_CLASS_LETTER = 1,
    QN_CLASS_NUMBER = 2,
    QN_CLASS_PUNCTUATION = 3,
    QN_CLASS_SYMBOL = 4,
    QN_CLASS_SEPARATOR = 5,
    QN_CLASS_MARK = 6,
    QN_CLASS_OTHER = 7 /* control, format, surrogate, private use */
} qn_unicode_class;

extern const uint32_t qn__unicode_class_runs[];
extern const size_t qn__unicode_class_run_count;

#define QN_REPLACEMENT_POINT 0xFFFDU
#define QN_LAST_POINT        0x10FFFFU
/* The largest value that four bytes can carry. */
#define QN_LAST_LENIENT_POINT 0x1FFFFFU

qn_unicode_class qn__unicode_class_of(uint32_t point);
bool qn__unicode_is_space(uint32_t point);      /* the White_Space property */
uint32_t qn__unicode_lower(uint32_t point);     /* simple mapping */
uint32_t qn__unicode_nfd_first(uint32_t point); /* first of the canonical decomposition */

/*
 * Decodes one character at text[0, n), n > 0, and returns its length. Overlong forms and surrogates
 * are taken as they are; what is no character, is cut short, or lies above `last` gives U+FFFD for
 * one byte.
 */
size_t qn__decode_lenient(const char *text, size_t n, uint32_t last, uint32_t *out);

/* Length of a character by its lead byte alone, at most n. */
size_t qn__lead_length(uint8_t lead, size_t n);

#endif
