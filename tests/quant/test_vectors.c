/* test_vectors.c: decoders, encoders and single numbers against the recorded vectors, bit for bit.
 */
#include "support/support.h"

#include <quern/type.h>

#include "base/fmath.h"
#include "quant/blocks.h"
#include "quant/quant.h"

enum { HEADER_BYTES = 32, DECODED = 1, ENCODED = 2 };

typedef struct vector_file {
    uint8_t *data;
    size_t size;
    uint32_t head[8]; /* magic, version, kind, type, four words */
} vector_file;

/* Opens quant-vectors/<type>.<suffix>; false where it is absent. */
static bool open_vectors(vector_file *file, const char *type, const char *suffix, uint32_t kind)
{
    char name[64];
    snprintf(name, sizeof name, "quant-vectors/%s.%s", type, suffix);
    const char *path = qn_test_shared(name);
    if (!path) {
        return false;
    }
    file->data = qn_test_read(path, &file->size);
    assert_true(file->size >= HEADER_BYTES);
    memcpy(file->head, file->data, HEADER_BYTES);
    assert_memory_equal(file->data, "QVEC", 4);
    assert_int_equal(file->head[1], 1);
    assert_int_equal(file->head[2], kind);
    return true;
}

static size_t padded(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

static void need_vectors(void)
{
    if (!qn_test_shared("quant-vectors/README.md")) {
        qn_test_skip("no recorded quant-vectors");
    }
}

static void decoders_give_recorded_values(void **state)
{
    (void)state;
    need_vectors();
    int seen = 0;
    for (int id = 0; id < QN_TYPE_COUNT; id++) {
        const qn_type_info *info = qn_type_get_info(id);
        const qn_quant *format = info ? qn__quant_get((qn_type)id) : NULL;
        vector_file file;
        if (!format || !open_vectors(&file, info->name, "deq", DECODED)) {
            continue;
        }
        assert_int_equal(file.head[3], id);
        assert_int_equal(file.head[4], info->block_values);
        assert_int_equal(file.head[5], info->block_bytes);
        size_t count = file.head[6];
        size_t values = count * info->block_values;
        float *y = malloc(values * sizeof *y);
        assert_non_null(y);
        format->decode(file.data + HEADER_BYTES, y, (int64_t)values);
        const uint8_t *expected = file.data + HEADER_BYTES + padded(count * info->block_bytes);
        for (size_t i = 0; i < values; i++) {
            uint32_t bits;
            memcpy(&bits, expected + 4 * i, 4);
            if (qn__float_bits(y[i]) != bits) {
                fail_msg("%s: value %zu is %a, recorded %a", info->name, i, (double)y[i],
                         (double)qn__bits_float(bits));
            }
        }
        free(y);
        free(file.data);
        seen++;
    }
    assert_int_equal(seen, 27);
}

/* Encodes `rows` rows and compares with the recorded blocks. */
static void compare_encoded(const qn_type_info *info, const qn_quant *format, const float *x,
                            size_t rows, size_t n, const float *weights, const void *tables,
                            const uint8_t *expected)
{
    size_t row_bytes = n / info->block_values * info->block_bytes;
    uint8_t *blocks = malloc(row_bytes);
    assert_non_null(blocks);
    for (size_t row = 0; row < rows; row++) {
        format->encode(x + row * n, blocks, (int64_t)n, weights, tables);
        for (size_t i = 0; i < row_bytes; i++) {
            if (blocks[i] != expected[row * row_bytes + i]) {
                fail_msg("%s%s: row %zu, block %zu: byte %zu is %02x, recorded %02x", info->name,
                         weights ? " with weights" : "", row, i / info->block_bytes,
                         i % info->block_bytes, blocks[i], expected[row * row_bytes + i]);
            }
        }
    }
    free(blocks);
}

static void encoders_give_recorded_blocks(void **state)
{
    (void)state;
    need_vectors();
    int seen = 0;
    for (int id = 0; id < QN_TYPE_COUNT; id++) {
        const qn_type_info *info = qn_type_get_info(id);
        const qn_quant *format = info ? qn__quant_get((qn_type)id) : NULL;
        vector_file file;
        if (!format || !format->encode || !open_vectors(&file, info->name, "enc", ENCODED)) {
            continue;
        }
        size_t rows = file.head[6];
        size_t n = file.head[7];
        uint32_t flags;
        memcpy(&flags, file.data + HEADER_BYTES, 4);
        const uint8_t *at = file.data + HEADER_BYTES + 16;
        float *x = malloc(rows * n * sizeof *x);
        float *weights = malloc(n * sizeof *weights);
        assert_true(x && weights);
        memcpy(x, at, rows * n * sizeof *x);
        at += rows * n * sizeof *x;
        if (flags & 2) {
            memcpy(weights, at, n * sizeof *weights);
            at += n * sizeof *weights;
        }
        void *tables = format->make_tables ? format->make_tables() : NULL;
        size_t bytes = padded(rows * (n / info->block_values) * info->block_bytes);
        if (flags & 1) {
            assert_false(format->needs_weights);
            compare_encoded(info, format, x, rows, n, NULL, tables, at);
            at += bytes;
        }
        if (flags & 2) {
            compare_encoded(info, format, x, rows, n, weights, tables, at);
        } else {
            /* The type ignores weights. */
            compare_encoded(info, format, x, rows, n, weights, tables,
                            file.data + HEADER_BYTES + 16 + rows * n * sizeof *x);
        }
        free(tables);
        free(weights);
        free(x);
        free(file.data);
        seen++;
    }
    assert_int_equal(seen, 27);
}

static uint32_t convert(const char *name, uint32_t in)
{
    if (strcmp(name, "f16_to_f32") == 0) {
        return qn__float_bits(qn__f16_to_f32((uint16_t)in));
    }
    if (strcmp(name, "bf16_to_f32") == 0) {
        return qn__float_bits(qn__bf16_to_f32((uint16_t)in));
    }
    if (strcmp(name, "f32_to_f16") == 0) {
        return qn__f32_to_f16(qn__bits_float(in));
    }
    if (strcmp(name, "f32_to_bf16") == 0) {
        return qn__f32_to_bf16(qn__bits_float(in));
    }
    if (strcmp(name, "e8m0_half_to_f32") == 0) {
        return qn__float_bits(qn__e8m0_half((uint8_t)in));
    }
    if (strcmp(name, "ue4m3_half_to_f32") == 0) {
        return qn__float_bits(qn__ue4m3_half((uint8_t)in));
    }
    if (strcmp(name, "f32_to_ue4m3") == 0) {
        return qn__ue4m3_from_f32(qn__bits_float(in));
    }
    fail_msg("unknown conversion %s", name);
    return 0;
}

static void single_numbers_convert_as_recorded(void **state)
{
    (void)state;
    need_vectors();
    FILE *f = fopen(qn_test_shared("quant-vectors/scalar-conversions.tsv"), "r");
    assert_non_null(f);
    char line[256];
    int seen = 0;
    while (fgets(line, sizeof line, f)) {
        char name[64];
        unsigned in;
        unsigned expected;
        if (line[0] == '#' || sscanf(line, "%63s %x %x", name, &in, &expected) != 3) {
            continue;
        }
        uint32_t out = convert(name, in);
        if (out != expected) {
            fail_msg("%s of %x is %x, recorded %x", name, in, out, expected);
        }
        seen++;
    }
    fclose(f);
    assert_true(seen > 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders_give_recorded_values),
        cmocka_unit_test(encoders_give_recorded_blocks),
        cmocka_unit_test(single_numbers_convert_as_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
