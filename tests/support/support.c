/* support.c: see support.h. */
#define _GNU_SOURCE
#include "support/support.h"

#include <unistd.h>

static char *next_path(void)
{
    static char paths[16][1024];
    static unsigned turn;
    return paths[turn++ % 16];
}

const char *qn_test_shared(const char *name)
{
    if (QN_TEST_SHARED_DATA[0] == '\0') {
        return NULL;
    }
    char *path = next_path();
    snprintf(path, 1024, "%s/%s", QN_TEST_SHARED_DATA, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *qn_test_own(const char *name)
{
    char *path = next_path();
    snprintf(path, 1024, "%s/%s", QN_TEST_OWN_DATA, name);
    if (access(path, R_OK) != 0) {
        fail_msg("%s is missing", path);
    }
    return path;
}

const char *qn_test_real_model(const char *name)
{
    static const char *const files[][2] = {
        {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"gemma3", "gemma-3-270m-q4_k_m.gguf"},
    };
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(files[i][0], name) != 0) {
            continue;
        }
        char *path = next_path();
        if (cache && cache[0]) {
            snprintf(path, 1024, "%s/quern/%s", cache, files[i][1]);
        } else {
            snprintf(path, 1024, "%s/.cache/quern/%s", home ? home : "", files[i][1]);
        }
        return access(path, R_OK) == 0 ? path : NULL;
    }
    return NULL;
}

const char *qn_test_temporary(const char *suffix)
{
    static unsigned count;
    const char *folder = getenv("TMPDIR");
    char *path = next_path();
    snprintf(path, 1024, "%s/quern-test-%ld-%u%s", folder ? folder : "/tmp", (long)getpid(),
             count++, suffix);
    return path;
}

uint8_t *qn_test_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fail_msg("cannot open %s", path);
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    uint8_t *data = malloc((size_t)n + 1);
    if (!data || fread(data, 1, (size_t)n, f) != (size_t)n) {
        fail_msg("cannot read %s", path);
    }
    fclose(f);
    data[n] = 0;
    *size = (size_t)n;
    return data;
}

uint32_t qn_test_bits(qn_test_random *r)
{
    if (r->state == 0) {
        r->state = 0x9e3779b97f4a7c15U;
    }
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (uint32_t)(r->state >> 32);
}

float qn_test_uniform(qn_test_random *r, float low, float high)
{
    return low + (high - low) * ((float)(qn_test_bits(r) >> 8) / 16777216.0F);
}

float qn_test_normal(qn_test_random *r)
{
    float sum = 0.0F;
    for (int i = 0; i < 12; i++) {
        sum += qn_test_uniform(r, -0.5F, 0.5F);
    }
    return sum;
}

double qn_test_nmse(const float *a, const float *b, size_t n)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0.0 ? difference / norm : difference;
}
