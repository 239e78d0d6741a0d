/* test_writer.c: what is written is read back the same; wrong use is refused and leaves no file. */
#include "support/support.h"

#include <unistd.h>

#include <quern/gguf.h>

static const qn_type tensor_types[] = {QN_TYPE_F32,  QN_TYPE_F16,    QN_TYPE_Q4_0, QN_TYPE_Q6_K,
                                       QN_TYPE_BF16, QN_TYPE_IQ4_NL, QN_TYPE_I8,   QN_TYPE_MXFP4};

static void random_key(qn_test_random *r, int i, char out[32])
{
    snprintf(out, 32, "key.%d.%x", i, qn_test_bits(r) & 0xFFF);
}

static void add_random_pairs(qn_gguf_writer *w, qn_test_random *r)
{
    uint8_t raw[256];
    for (size_t i = 0; i < sizeof raw; i++) {
        raw[i] = (uint8_t)qn_test_bits(r);
    }
    for (int i = 0; i < 40; i++) {
        char key[32];
        random_key(r, i, key);
        qn_gguf_type type = (qn_gguf_type)(qn_test_bits(r) % QN_GGUF_TYPE_COUNT);
        size_t n = qn_test_bits(r) % 20;
        if (type == QN_GGUF_STR) {
            qn_gguf_writer_set_text(w, key, (qn_gguf_text){(const char *)raw, n});
        } else if (type == QN_GGUF_ARR) {
            qn_gguf_text texts[20];
            for (size_t t = 0; t < n; t++) {
                texts[t] = (qn_gguf_text){(const char *)raw + t, t};
            }
            qn_gguf_writer_set_texts(w, key, texts, n);
        } else if (i % 3 == 0 && type != QN_GGUF_BOOL) {
            qn_gguf_writer_set_array(w, key, type, raw, n);
        } else if (type == QN_GGUF_BOOL) {
            qn_gguf_writer_set_bool(w, key, n % 2 != 0);
        } else {
            qn_gguf_writer_set_i64(w, key, (int64_t)qn_test_bits(r) - 77);
        }
    }
    qn_gguf_writer_set_u32(w, "general.alignment", 1U << (qn_test_bits(r) % 8));
}

/* Writes a random file; the same seed writes the same one. */
static void write_random(const char *path, uint64_t seed)
{
    qn_test_random r = {seed};
    qn_error err = {0};
    qn_gguf_writer *w;
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    add_random_pairs(w, &r);
    size_t total = 0;
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor.%d", i);
        qn_type type = tensor_types[qn_test_bits(&r) % 8];
        int64_t ne[4] = {(int64_t)qn_type_get_info(type)->block_values * (1 + qn_test_bits(&r) % 3),
                         qn_test_bits(&r) % 4, 1, 1 + qn_test_bits(&r) % 2};
        size_t row;
        qn_test_ok(qn_type_row_bytes(type, ne[0], &row, &err), err);
        total += row * (size_t)(ne[1] * ne[3]);
        qn_gguf_writer_add_tensor(w, name, type, 4, ne);
    }
    qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
    while (total > 0) {
        uint8_t bytes[300];
        size_t n = 1 + qn_test_bits(&r) % sizeof bytes;
        n = n < total ? n : total;
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)qn_test_bits(&r);
        }
        qn_test_ok(qn_gguf_writer_write(w, bytes, n, &err), err);
        total -= n;
    }
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
}

/* A copy made of nothing but what the reader gave out. */
static void copy_file(const char *from, const char *to, bool twice)
{
    qn_error err = {0};
    qn_gguf *g;
    qn_gguf_writer *w;
    qn_test_ok(qn_gguf_open(&g, from, NULL, &err), err);
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_copy(w, g);
    if (twice) {
        qn_gguf_writer_copy(w, g);
    }
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        qn_gguf_writer_add_tensor(w, t->name, t->type, 4, t->ne);
    }
    qn_test_ok(qn_gguf_writer_open(w, to, &err), err);
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        uint8_t *bytes = malloc(t->bytes + 1);
        qn_test_ok(qn_gguf_read_tensor(g, t, 0, t->bytes, bytes, &err), err);
        qn_test_ok(qn_gguf_writer_write(w, bytes, t->bytes, &err), err);
        free(bytes);
    }
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
    qn_gguf_free(g);
}

static void assert_same_files(const char *a, const char *b)
{
    size_t size_a, size_b;
    uint8_t *bytes_a = qn_test_read(a, &size_a), *bytes_b = qn_test_read(b, &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(bytes_a, bytes_b, size_a);
    free(bytes_a);
    free(bytes_b);
}

static void written_and_copied_files_are_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const char *a = qn_test_temporary(".gguf"), *b = qn_test_temporary(".gguf");
        write_random(a, seed);
        write_random(b, seed);
        assert_same_files(a, b);
        for (int twice = 0; twice < 2; twice++) {
            unlink(b);
            copy_file(a, b, twice != 0);
            assert_same_files(a, b);
        }
        unlink(a);
        unlink(b);
    }
}

static void the_example_of_the_format(void **state)
{
    (void)state;
    static const uint8_t expected[96] =
        "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
        "\1\0\0\0\0\0\0\0k\4\0\0\0\7\0\0\0"
        "\1\0\0\0\0\0\0\0t\1\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    qn_error err = {0};
    qn_gguf_writer *w;
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_set_str(w, "k", "to be replaced");
    qn_gguf_writer_set_u32(w, "k", 7);
    qn_gguf_writer_set_u32(w, "gone", 1);
    qn_gguf_writer_remove(w, "gone");
    qn_gguf_writer_add_tensor(w, "t", QN_TYPE_F32, 3, (const int64_t[]){3, 1, 1});
    uint8_t *bytes;
    size_t size;
    qn_test_ok(qn_gguf_writer_metadata(w, &bytes, &size, &err), err);
    assert_int_equal(size, 96);
    assert_memory_equal(bytes, expected, 96);
    free(bytes);
    qn_gguf_writer_free(w);
}

typedef void (*misuse)(qn_gguf_writer *w);

static void empty_key(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u32(w, "", 1);
}
static void odd_alignment(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u32(w, "general.alignment", 24);
}
static void text_alignment(qn_gguf_writer *w)
{
    qn_gguf_writer_set_str(w, "general.alignment", "32");
}
static void short_alignment(qn_gguf_writer *w)
{
    qn_gguf_writer_set_u16(w, "general.alignment", 32);
}
static void array_of_strings_as_numbers(qn_gguf_writer *w)
{
    qn_gguf_writer_set_array(w, "k", QN_GGUF_STR, "x", 1);
}
static void same_tensor_twice(qn_gguf_writer *w)
{
    qn_gguf_writer_add_tensor(w, "t", QN_TYPE_F32, 1, (const int64_t[]){1});
    qn_gguf_writer_add_tensor(w, "t", QN_TYPE_F32, 1, (const int64_t[]){1});
}
static void long_tensor_name(qn_gguf_writer *w)
{
    char name[65];
    memset(name, 'n', 64);
    name[64] = '\0';
    qn_gguf_writer_add_tensor(w, name, QN_TYPE_F32, 1, (const int64_t[]){1});
}
static void half_a_block(qn_gguf_writer *w)
{
    qn_gguf_writer_add_tensor(w, "t", QN_TYPE_Q4_0, 1, (const int64_t[]){16});
}
static void absurd_size(qn_gguf_writer *w)
{
    qn_gguf_writer_add_tensor(w, "t", QN_TYPE_F32, 2, (const int64_t[]){INT64_MAX / 4, 16});
}

static void misuse_is_refused(void **state)
{
    (void)state;
    static const misuse cases[] = {empty_key,       odd_alignment,     text_alignment,
                                   short_alignment, same_tensor_twice, long_tensor_name,
                                   half_a_block,    absurd_size,       array_of_strings_as_numbers};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qn_error err = {0};
        qn_gguf_writer *w;
        qn_test_ok(qn_gguf_writer_new(&w, &err), err);
        cases[i](w);
        qn_gguf_writer_set_u32(w, "after", 1); /* the first error stays */
        const char *path = qn_test_temporary(".gguf");
        assert_int_not_equal(qn_gguf_writer_open(w, path, &err), QN_OK);
        assert_true(err.message[0] != '\0');
        qn_gguf_writer_free(w);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void missing_and_surplus_bytes_are_refused(void **state)
{
    (void)state;
    qn_error err = {0};
    qn_gguf_writer *w;
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_add_tensor(w, "t", QN_TYPE_F32, 1, (const int64_t[]){2});
    assert_int_equal(qn_gguf_writer_write(w, "1234", 4, &err), QN_ERR_ARGUMENT);
    const char *path = qn_test_temporary(".gguf");
    qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
    qn_test_ok(qn_gguf_writer_write(w, "1234", 4, &err), err);
    assert_int_equal(qn_gguf_writer_finish(w, &err), QN_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "tensor t"));
    assert_int_equal(qn_gguf_writer_write(w, "12345", 5, &err), QN_ERR_ARGUMENT);
    qn_gguf_writer_free(w);
    assert_int_not_equal(access(path, F_OK), 0);
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    assert_int_equal(qn_gguf_writer_open(w, "/no/such/folder/x.gguf", &err), QN_ERR_IO);
    qn_gguf_writer_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_copied_files_are_equal),
        cmocka_unit_test(the_example_of_the_format),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(missing_and_surplus_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
