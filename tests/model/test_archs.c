/*
 * Recorded logits of tiny models of many architectures: every file of archs/index.tsv whose
 * architecture this build knows must give the recorded numbers.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* strtok_r */
#endif
#include "support/support.h"

#include <quern/device.h>
#include <quern/model.h>

#include "support/run_model.h"

#define N_TOKENS 48

/* The recording looks GELU up in a table with 16-bit input and output, we compute it. */
#define LIMIT            1e-10
#define LIMIT_GELU       2e-7
#define LIMIT_GELU_LOOSE 1e-6

typedef struct exception {
    const char *architecture;
    double limit;
    int32_t n_rows; /* compared; 0: all */
} exception;

static const exception exceptions[] = {
    {"bloom", LIMIT_GELU, 0},         {"codeshell", LIMIT_GELU, 0},
    {"falcon", LIMIT_GELU, 0},        {"gemma", LIMIT_GELU_LOOSE, 0},
    {"gemma2", LIMIT_GELU_LOOSE, 0},  {"gemma3", LIMIT_GELU_LOOSE, 0},
    {"gemma4", LIMIT_GELU_LOOSE, 0},  {"gpt2", LIMIT_GELU, 0},
    {"gptneox", LIMIT_GELU_LOOSE, 0}, /* one entry of the table moves a row by 3e-6 */
    {"mpt", LIMIT_GELU, 0},           {"phi2", LIMIT_GELU, 0},
    {"smallthinker", LIMIT, 37}, /* two experts of row 37 tie, later rows look at it */
    {"starcoder", LIMIT_GELU, 0},     {"starcoder2", LIMIT_GELU, 0},
};

static const exception *find_exception(const char *architecture)
{
    static const exception plain = {"", LIMIT, 0};
    for (size_t i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++) {
        if (strcmp(exceptions[i].architecture, architecture) == 0) {
            return &exceptions[i];
        }
    }
    return &plain;
}

static bool known(const char *architecture)
{
    for (int32_t i = 0; qn_model_architecture_at(i); i++) {
        if (strcmp(qn_model_architecture_at(i), architecture) == 0) {
            return true;
        }
    }
    return false;
}

/* Compares one file; false where it is not near enough. */
static bool check_file(qn_device *device, const char *name, const char *architecture,
                       int32_t first_position, int64_t n_ctx)
{
    char path[160];
    qn_error err = {0};
    qn_model *model = NULL;
    snprintf(path, sizeof(path), "archs/%s.gguf", name);
    qn_test_ok(qn_model_load(&model, qn_test_shared(path), NULL, &err), err);
    snprintf(path, sizeof(path), "archs/%s.logits", name);
    size_t size = 0;
    uint8_t *file = qn_test_read(qn_test_shared(path), &size);
    int32_t shape[2];
    assert_true(size >= sizeof(shape));
    memcpy(shape, file, sizeof(shape));
    assert_int_equal(size, sizeof(shape) + (size_t)shape[0] * (size_t)shape[1] * sizeof(float));
    assert_int_equal(shape[0], N_TOKENS);

    int32_t tokens[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (37 * i + 11) % 128;
    }
    qn_test_batch batch = {
        .tokens = tokens, .n_tokens = N_TOKENS, .first_position = first_position, .n_ctx = n_ctx};
    int64_t columns = 0;
    float *rows = qn_test_run_model(model, device, &batch, &columns);
    assert_int_equal(columns, shape[1]);

    const float *expected = (const float *)(const void *)(file + sizeof(shape));
    const exception *e = find_exception(architecture);
    int32_t n_rows = e->n_rows ? e->n_rows : N_TOKENS;
    double nmse = qn_test_nmse(rows, expected, (size_t)n_rows * (size_t)columns), worst = 0;
    for (int32_t i = 0; i < n_rows; i++) {
        size_t at = (size_t)i * (size_t)columns;
        double row = qn_test_nmse(rows + at, expected + at, (size_t)columns);
        worst = row > worst ? row : worst;
    }
    bool good = nmse <= e->limit && worst <= 20 * e->limit; /* a NaN is not */
    printf("%-20s nmse %.1e, worst row %.1e%s\n", name, nmse, worst, good ? "" : "  TOO FAR");
    free(rows);
    free(file);
    qn_model_free(model);
    return good;
}

static void recorded_logits(void **state)
{
    (void)state;
    const char *index = qn_test_shared("archs/index.tsv");
    if (!index) {
        qn_test_skip("the recorded models (archs/) are not here");
    }
    qn_error err = {0};
    qn_device *device = NULL;
    qn_test_ok(qn_device_open(0, NULL, &device, &err), err);
    size_t size = 0;
    char *text = (char *)qn_test_read(index, &size);
    int n_files = 0, n_bad = 0;
    char *save = NULL;
    strtok_r(text, "\n", &save); /* the head line */
    for (char *line = strtok_r(NULL, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], architecture[64], kind[32];
        int n_ctx = 0, first = 0;
        int got = sscanf(line, "%63[^\t]\t%63[^\t]\t%d\t%d\t%31[^\t]", name, architecture, &n_ctx,
                         &first, kind);
        assert_int_equal(got, 5);
        if (strcmp(kind, "logits") == 0 && known(architecture)) {
            n_files++;
            n_bad += !check_file(device, name, architecture, first, n_ctx);
        }
    }
    printf("%d files, %d too far\n", n_files, n_bad);
    free(text);
    qn_device_free(device);
    assert_true(n_files >= 88);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
