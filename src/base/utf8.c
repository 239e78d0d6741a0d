/* utf8.c: see utf8.h. Source of the byte ranges: Unicode 15, table 3-7. */
#include "base/utf8.h"

/* Length that a lead byte announces, and the allowed range of the second byte. */
static int lead_length(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        return 2;
    }
    if (lead >= 0xE0 && lead <= 0xEF) {
        *low = lead == 0xE0 ? 0xA0 : 0x80;
        *high = lead == 0xED ? 0x9F : 0xBF;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        *low = lead == 0xF0 ? 0x90 : 0x80;
        *high = lead == 0xF4 ? 0x8F : 0xBF;
        return 4;
    }
    return 0;
}

/* Number of leading bytes of text that fit the sequence begun by text[0]; *length is the announced.
 */
static int valid_bytes(const uint8_t *s, size_t n, int *length)
{
    uint8_t low;
    uint8_t high;
    *length = lead_length(s[0], &low, &high);
    int good = *length > 0 ? 1 : 0;
    while (good > 0 && good < *length && (size_t)good < n && s[good] >= low && s[good] <= high) {
        good++;
        low = 0x80;
        high = 0xBF;
    }
    return good;
}

int qn__utf8_decode(const char *text, size_t n, uint32_t *out)
{
    static const uint8_t lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const uint8_t *s = (const uint8_t *)text;
    if (n == 0) {
        return 0;
    }
    int length;
    int good = valid_bytes(s, n, &length);
    if (good == 0 || good < length) {
        return 0;
    }
    uint32_t cp = s[0] & lead_mask[length];
    for (int i = 1; i < length; i++) {
        cp = cp << 6 | (s[i] & 0x3FU);
    }
    *out = cp;
    return length;
}

int qn__utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    int n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80U | (cp & 0x3FU));
        cp >>= 6;
    }
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[n] | cp);
    return n;
}

size_t qn__utf8_complete(const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t at = n - back;
        if ((s[at] & 0xC0) == 0x80) {
            continue; /* a continuation byte: look further back for its lead */
        }
        int length;
        int good = valid_bytes(s + at, back, &length);
        bool open = good == (int)back && good < length;
        return open ? at : n;
    }
    return n;
}

bool qn__utf8_valid(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        int length = qn__utf8_decode(text + i, n - i, &cp);
        if (length == 0) {
            return false;
        }
        i += (size_t)length;
    }
    return true;
}
