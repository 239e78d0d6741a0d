/* test_base.c: checked sizes, arena, buffer, UTF-8, files, random numbers. */
#include "support/support.h"

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t out = 7;
    assert_false(qn__mul_size(SIZE_MAX / 2, 3, &out));
    assert_false(qn__add_size(SIZE_MAX, 1, &out));
    assert_true(qn__mul_size(6, 7, &out));
    assert_int_equal(out, 42);
    assert_null(qn__calloc(SIZE_MAX, 2));
    qn_arena arena = {0};
    assert_null(qn__arena_alloc(&arena, SIZE_MAX, 2));
    assert_true(arena.failed);
    qn__arena_free(&arena);
}

static void blocks_are_aligned_and_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 131071, 131072, 4194303, 4194304, 9000001};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *p = qn__block_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal(p[0] | p[sizes[i] - 1], 0);
        p[sizes[i] - 1] = 1;
        qn__block_free(p, sizes[i]);
    }
}

static void arena_and_buffer_grow(void **state)
{
    (void)state;
    qn_arena arena = {0};
    for (size_t i = 0; i < 1000; i++) {
        uint8_t *p = qn__arena_alloc(&arena, i, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, 0xAA, i * 3);
    }
    assert_string_equal(qn__arena_strndup(&arena, "quern-stone", 5), "quern");
    assert_string_equal(qn__arena_strndup(&arena, NULL, 0), "");
    char *empty = qn__strndup(NULL, 0);
    assert_string_equal(empty, "");
    free(empty);
    qn__arena_free(&arena);
    qn_buf buf = {0};
    for (int i = 0; i < 1000; i++) {
        assert_true(qn__buf_printf(&buf, "%d,", i));
    }
    assert_int_equal(buf.size, 10 * 2 + 90 * 3 + 900 * 4);
    assert_memory_equal(buf.data, "0,1,2,", 6);
    qn__buf_free(&buf);
}

static void utf8_is_strict(void **state)
{
    (void)state;
    static const uint32_t points[] = {0,      0x7F,   0x80,   0x7FF,   0x800,
                                      0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        char text[4];
        uint32_t cp = 1;
        int n = qn__utf8_encode(points[i], text);
        assert_int_equal(qn__utf8_decode(text, (size_t)n, &cp), n);
        assert_int_equal(cp, points[i]);
        if (n > 1) {
            assert_int_equal(qn__utf8_decode(text, (size_t)n - 1, &cp), 0);
            assert_int_equal(qn__utf8_complete(text, (size_t)n - 1), 0);
        }
        assert_int_equal(qn__utf8_complete(text, (size_t)n), n);
    }
    assert_false(qn__utf8_valid("\xED\xA0\x80", 3)); /* a surrogate */
    assert_false(qn__utf8_valid("\xC0\x80", 2));     /* overlong */
    assert_false(qn__utf8_valid("\xF4\x90\x80\x80", 4));
    assert_true(qn__utf8_valid("gr\xC3\xBC\xC3\x9F", 6));
    assert_int_equal(qn__utf8_complete("a\xFF", 2), 2); /* never becomes valid: hand it out */
    assert_int_equal(qn__utf8_complete("ab\xF0\x9F\x98", 5), 2);
}

static void writer_leaves_no_half_file(void **state)
{
    (void)state;
    qn_error err = {0};
    const char *path = qn_test_temporary(".bin");
    qn_file_writer *w;
    qn_test_ok(qn__file_writer_open(&w, path, &err), err);
    qn_test_ok(qn__file_writer_write(w, "abc", 3, &err), err);
    qn__file_writer_close(w);
    assert_int_not_equal(access(path, F_OK), 0);
    qn_test_ok(qn__file_writer_open(&w, path, &err), err);
    qn_test_ok(qn__file_writer_write(w, "abc", 3, &err), err);
    qn_test_ok(qn__file_writer_commit(w, &err), err);
    qn__file_writer_close(w);
    for (int map = 0; map < 2; map++) {
        qn_file file;
        qn_test_ok(qn__file_open(&file, path, map != 0, &err), err);
        assert_int_equal(file.size, 3);
        assert_memory_equal(file.data, "abc", 3);
        qn__file_close(&file);
    }
    unlink(path);
    qn_file file;
    assert_int_equal(qn__file_open(&file, path, true, &err), QN_ERR_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(qn__file_open(&file, "/", true, &err), QN_ERR_IO);
}

static void errors_are_cut_and_prefixed(void **state)
{
    (void)state;
    qn_error err;
    assert_int_equal(qn__error(&err, QN_ERR_FORMAT, "bad %d", 7), QN_ERR_FORMAT);
    qn__error_prefix(&err, "%s", "file.gguf");
    assert_string_equal(err.message, "file.gguf: bad 7");
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    qn__error(&err, QN_ERR_IO, "%s", big);
    assert_int_equal(strlen(err.message), QN_ERROR_MESSAGE_SIZE - 1);
    qn__error_prefix(&err, "p");
    assert_int_equal(strlen(err.message), QN_ERROR_MESSAGE_SIZE - 1);
    assert_string_equal(qn_status_name((qn_status)999), "QN_ERR_?");
    assert_int_equal(qn__error(NULL, QN_ERR_IO, "x"), QN_ERR_IO);
}

static void keep_line(void *user, qn_log_level level, const char *line)
{
    assert_int_equal(level, QN_LOG_WARN);
    snprintf(user, 64, "%s", line);
}

static void messages_stay_one_line(void **state)
{
    (void)state;
    qn_error err;
    qn__error(&err, QN_ERR_FORMAT, "key %s", "a\n\x1B[2J\x7F\xC2\x9Bm\xFF\xE2\x82");
    assert_string_equal(err.message, "key a??[2J???m???");
    qn__error_prefix(&err, "gr\xC3\xBC\xC3\x9F\te");
    assert_string_equal(err.message, "gr\xC3\xBC\xC3\x9F?e: key a??[2J???m???");
    char line[64];
    const qn_log log = {.fn = keep_line, .user = line, .max_level = QN_LOG_WARN};
    qn__log_line(&log, QN_LOG_WARN, "tensor %s", "x\r\ny");
    assert_string_equal(line, "tensor x??y");
    qn__log_line(&log, QN_LOG_INFO, "not wanted");
    assert_string_equal(line, "tensor x??y");
}

static void rng_is_mt19937(void **state)
{
    (void)state;
    qn_rng rng;
    qn__rng_seed(&rng, 5489);
    uint32_t last = 0;
    for (int i = 0; i < 10000; i++) {
        last = qn__rng_next(&rng);
    }
    assert_int_equal(last, 4123659995U);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),          cmocka_unit_test(blocks_are_aligned_and_zero),
        cmocka_unit_test(arena_and_buffer_grow),      cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(writer_leaves_no_half_file), cmocka_unit_test(errors_are_cut_and_prefixed),
        cmocka_unit_test(messages_stay_one_line),     cmocka_unit_test(rng_is_mt19937),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
