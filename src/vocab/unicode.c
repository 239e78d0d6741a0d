/* unicode.c: see unicode.h. */
#include "vocab/unicode.h"

#include <utf8proc.h>

qn_unicode_class qn__unicode_class_of(uint32_t point)
{
    size_t low = 0; /* the last run that starts at or before the point lies in [low, high) */
    size_t high = qn__unicode_class_run_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (qn__unicode_class_runs[middle] >> 3 <= point) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (qn_unicode_class)(qn__unicode_class_runs[low] & 7U);
}

bool qn__unicode_is_space(uint32_t point)
{
    if (point < 0x80) {
        return point == ' ' || (point >= 0x09 && point <= 0x0D);
    }
    return point == 0x85 || point == 0xA0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
           point == 0x202F || point == 0x205F || point == 0x3000;
}

uint32_t qn__unicode_lower(uint32_t point)
{
    if (point < 0x80) {
        return point >= 'A' && point <= 'Z' ? point + 32 : point;
    }
    if (point > QN_LAST_POINT || qn__unicode_class_of(point) == QN_CLASS_UNASSIGNED) {
        return point;
    }
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
}

uint32_t qn__unicode_nfd_first(uint32_t point)
{
    if (point < 0xC0 || point > QN_LAST_POINT ||
        qn__unicode_class_of(point) == QN_CLASS_UNASSIGNED) {
        return point;
    }
    utf8proc_int32_t parts[8];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)point, parts, 8, UTF8PROC_DECOMPOSE, &boundary);
    return n > 0 ? (uint32_t)parts[0] : point;
}

size_t qn__decode_lenient(const char *text, size_t n, uint32_t last, uint32_t *out)
{
    const uint8_t *s = (const uint8_t *)text;
    uint8_t lead = s[0];
    *out = lead;
    if (lead < 0x80) {
        return 1;
    }
    size_t length = lead >= 0xF8 ? 0 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
    *out = QN_REPLACEMENT_POINT;
    if (length == 0 || length > n) {
        return 1;
    }
    uint32_t point = lead & (0xFFU >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 1;
        }
        point = point << 6 | (s[i] & 0x3FU);
    }
    if (point > last) {
        return 1;
    }
    *out = point;
    return length;
}

size_t qn__lead_length(uint8_t lead, size_t n)
{
    size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return length < n ? length : n;
}
