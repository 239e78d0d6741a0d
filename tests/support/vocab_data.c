/* vocab_data.c: see vocab_data.h. */
#define _GNU_SOURCE
#include "support/vocab_data.h"

#include <unistd.h>

/* gzip -dc from -> to; the shell is not asked. */
static void unpack(const char *from, const char *to)
{
    char command[2200];
    snprintf(command, sizeof command, "gzip -dc '%s' > '%s'", from, to);
    if (system(command) != 0) {
        fail_msg("cannot unpack %s", from);
    }
}

qn_vocab *qn_test_vocab(const char *name)
{
    char file[256];
    bool synthetic = strncmp(name, "syn-", 4) == 0;
    snprintf(file, sizeof file, synthetic ? "vocab-synthetic/%s.gguf" : "vocab/ggml-vocab-%s.gguf",
             name);
    const char *path = qn_test_shared(file);
    bool unpacked = false;
    if (!path) {
        strcat(file, ".gz");
        const char *packed = qn_test_shared(file);
        if (!packed) {
            return NULL;
        }
        path = qn_test_temporary(".gguf");
        unpack(packed, path);
        unpacked = true;
    }
    qn_error err = {0};
    qn_vocab *vocab = NULL;
    qn_status status = qn_vocab_load_file(path, NULL, &vocab, &err);
    if (unpacked) {
        unlink(path);
    }
    qn_test_ok(status, err);
    return vocab;
}

void qn_test_json_lines(const char *path, void (*fn)(json_t *line, size_t number, void *user),
                        void *user)
{
    size_t size;
    char *text = (char *)qn_test_read(path, &size);
    size_t number = 0;
    for (char *at = text; *at;) {
        char *end = strchr(at, '\n');
        size_t n = end ? (size_t)(end - at) : strlen(at);
        number++;
        json_error_t why;
        json_t *line = json_loadb(at, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
        if (!line) {
            fail_msg("%s:%zu: %s", path, number, why.text);
        }
        fn(line, number, user);
        json_decref(line);
        at += n + (end != NULL);
    }
    free(text);
}

char *qn_test_json_bytes(const json_t *text, const json_t *hex, size_t *size)
{
    char *bytes;
    if (json_is_string(text)) {
        *size = json_string_length(text);
        bytes = malloc(*size + 1);
        memcpy(bytes, json_string_value(text), *size);
        return bytes;
    }
    const char *digits = json_string_value(hex);
    *size = strlen(digits) / 2;
    bytes = malloc(*size + 1);
    for (size_t i = 0; i < *size; i++) {
        char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
        bytes[i] = (char)strtol(pair, NULL, 16);
    }
    return bytes;
}

/* ---- SHA-256 --------------------------------------------------------------------------------- */

static uint32_t rotate(uint32_t x, unsigned by)
{
    return x >> by | x << (32 - by);
}

static void sha256_block(uint32_t state[8], const uint8_t *block)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    uint32_t s[8];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += s[i];
    }
}

void qn_test_sha256(const void *bytes, size_t n, char out[65])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *data = bytes;
    size_t at = 0;
    for (; n - at >= 64; at += 64) {
        sha256_block(state, data + at);
    }
    uint8_t last[128] = {0};
    size_t rest = n - at;
    if (rest > 0) {
        memcpy(last, data + at, rest);
    }
    last[rest] = 0x80;
    size_t total = rest < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++) {
        last[total - 1 - (size_t)i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    }
    for (at = 0; at < total; at += 64) {
        sha256_block(state, last + at);
    }
    for (int i = 0; i < 8; i++) {
        snprintf(out + 8 * i, 9, "%08x", (unsigned)state[i]);
    }
}
