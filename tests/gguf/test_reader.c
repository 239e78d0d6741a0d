/* test_reader.c: every recorded case through every kind of source, split sets, cut and damaged
 * files, typed access. */
#include "support/support.h"

#include <unistd.h>

#include <quern/gguf.h>

#include "gguf/pages.h"

/* ---- Sources ---- */

typedef struct block {
    const uint8_t *bytes;
    size_t size;
} block;

static size_t read_block(void *user, void *buffer, uint64_t offset, size_t length)
{
    const block *b = user;
    if (offset >= b->size) {
        return 0;
    }
    size_t n = b->size - (size_t)offset < length ? b->size - (size_t)offset : length;
    memcpy(buffer, b->bytes + offset, n);
    return n;
}

enum { BY_MAP, BY_READ, BY_MEMORY, BY_CALLBACK, BY_LYING_CALLBACK, N_WAYS };

static qn_status open_by(int way, qn_gguf **g, const char *path, block *b, bool metadata_only,
                         qn_error *err)
{
    qn_gguf_options options = qn_gguf_defaults();
    options.use_mmap = way == BY_MAP;
    options.metadata_only = metadata_only;
    switch (way) {
    case BY_MEMORY:
        return qn_gguf_open_memory(g, b->bytes, b->size, path, &options, err);
    case BY_CALLBACK:
        return qn_gguf_open_callback(g, read_block, b, b->size, 7, path, &options, err);
    case BY_LYING_CALLBACK: /* claims far more bytes than there are */
        options.metadata_only = true;
        return qn_gguf_open_callback(g, read_block, b, UINT64_MAX / 2, 0, path, &options, err);
    default:
        return qn_gguf_open(g, path, &options, err);
    }
}

/* Reads all there is, so that the address sanitizer sees a wrong pointer. */
static uint64_t touch(const qn_gguf *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < qn_gguf_pair_count(g); i++) {
        const qn_gguf_pair *pair = qn_gguf_pair_at(g, i);
        sum += pair->key.size + pair->value.u64;
        for (size_t k = 0; pair->type == QN_GGUF_ARR && k < pair->count; k++) {
            qn_gguf_text text = qn_gguf_array_text(g, pair, k);
            for (size_t c = 0; c < text.size; c++) {
                sum += (uint8_t)text.data[c];
            }
        }
    }
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        assert_ptr_equal(qn_gguf_find_tensor(g, t->name), t);
        uint8_t *bytes = malloc(t->bytes + 1);
        if (qn_gguf_read_tensor(g, t, 0, t->bytes, bytes, NULL) == QN_OK) {
            assert_true(!t->data || t->bytes == 0 || memcmp(bytes, t->data, t->bytes) == 0);
            sum += t->bytes ? bytes[t->bytes - 1] : 0;
        }
        free(bytes);
        qn__gguf_will_need(g, t);
        qn__gguf_drop(g, t, 0, t->bytes);
    }
    return sum;
}

static void every_recorded_case(void **state)
{
    (void)state;
    const char *manifest = qn_test_shared("gguf-cases/manifest.tsv");
    if (!manifest) {
        qn_test_skip("gguf-cases are absent");
    }
    FILE *file = fopen(manifest, "r");
    assert_non_null(file);
    char line[512], name[128], expected[32];
    int cases = 0;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || sscanf(line, "%127s %*s %31s", name, expected) != 2) {
            continue;
        }
        char path[256];
        snprintf(path, sizeof path, "gguf-cases/%s", name);
        const char *full = qn_test_shared(path);
        assert_non_null(full);
        block b;
        uint8_t *bytes = qn_test_read(full, &b.size);
        b.bytes = bytes;
        bool parses = strcmp(expected, "reject") != 0;
        bool loads = parses && strcmp(name, "bad-data-cut.gguf") != 0;
        for (int way = 0; way < N_WAYS; way++) {
            for (int only = 0; only < 2; only++) {
                qn_gguf *g;
                qn_error err = {0};
                bool lying = way == BY_LYING_CALLBACK;
                qn_status status = open_by(way, &g, full, &b, only != 0, &err);
                bool good = only || lying ? parses : loads;
                if (lying && strcmp(name, "bad-data-section-missing.gguf") == 0) {
                    good = status == QN_OK; /* cannot be known before the data are read */
                }
                if ((status == QN_OK) != good) {
                    fail_msg("%s, way %d: %s", name, way, status ? err.message : "accepted");
                }
                if (status != QN_OK) {
                    assert_null(g);
                    assert_int_equal(err.code, status);
                    assert_memory_equal(err.message, full, strlen(full));
                } else {
                    touch(g);
                }
                qn_gguf_free(g);
            }
        }
        free(bytes);
        cases++;
    }
    fclose(file);
    assert_int_equal(cases, 89);
}

static void every_recorded_split_set(void **state)
{
    (void)state;
    const char *manifest = qn_test_shared("gguf-cases/splits/manifest.tsv");
    if (!manifest) {
        qn_test_skip("gguf-cases are absent");
    }
    FILE *file = fopen(manifest, "r");
    assert_non_null(file);
    char line[512], name[128], expected[32];
    int count, sets = 0;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || sscanf(line, "%127s %d %31s", name, &count, expected) != 3) {
            continue;
        }
        char path[256];
        snprintf(path, sizeof path, "gguf-cases/splits/%s-00001-of-%05d.gguf", name, count);
        const char *full = qn_test_shared(path);
        for (int map = 0; map < 2; map++) {
            qn_gguf *g;
            qn_error err = {0};
            qn_gguf_options options = qn_gguf_defaults();
            options.use_mmap = map != 0;
            qn_status status = qn_gguf_open(&g, full, &options, &err);
            bool good = strcmp(expected, "accept") == 0;
            if ((status == QN_OK) != good) {
                fail_msg("%s: %s", name, status ? err.message : "accepted");
            }
            if (good) {
                assert_int_equal(qn_gguf_file_count(g), count);
                touch(g);
            } else {
                assert_non_null(strstr(err.message, name));
            }
            qn_gguf_free(g);
            options.single_file = true;
            qn_test_ok(qn_gguf_open(&g, full, &options, &err), err);
            assert_int_equal(qn_gguf_file_count(g), 1);
            qn_gguf_free(g);
        }
        sets++;
    }
    fclose(file);
    assert_int_equal(sets, 9);
}

static void a_list_of_files_opens_a_set(void **state)
{
    (void)state;
    const char *first = qn_test_shared("gguf-cases/splits/ok-three-00001-of-00003.gguf");
    if (!first) {
        qn_test_skip("gguf-cases are absent");
    }
    const char *paths[3] = {first, qn_test_shared("gguf-cases/splits/ok-three-00002-of-00003.gguf"),
                            qn_test_shared("gguf-cases/splits/ok-three-00003-of-00003.gguf")};
    qn_gguf *g;
    qn_error err = {0};
    qn_test_ok(qn_gguf_open_files(&g, paths, 3, NULL, &err), err);
    assert_int_equal(qn_gguf_tensor_count(g), 3);
    assert_int_equal(qn_gguf_tensor_at(g, 2)->file, 2);
    qn_gguf_free(g);
    assert_int_equal(qn_gguf_open_files(&g, paths, 2, NULL, &err), QN_ERR_FORMAT);
    const char *swapped[3] = {paths[0], paths[2], paths[1]};
    assert_int_equal(qn_gguf_open_files(&g, swapped, 3, NULL, &err), QN_ERR_FORMAT);
    assert_non_null(strstr(err.message, "split.no"));
    assert_int_equal(qn_gguf_open(&g, paths[1], NULL, &err), QN_ERR_FORMAT);
}

/* ---- Cut and damaged files, made here ---- */

static uint8_t *make_file(size_t *size)
{
    qn_error err = {0};
    qn_gguf_writer *w;
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_set_u8(w, "a.u8", 200);
    qn_gguf_writer_set_u16(w, "a.u16", 60000);
    qn_gguf_writer_set_u32(w, "a.u32", 4000000000U);
    qn_gguf_writer_set_i32(w, "a.i32", -7);
    qn_gguf_writer_set_u64(w, "a.u64", UINT64_MAX);
    qn_gguf_writer_set_i64(w, "a.i64", INT64_MIN);
    qn_gguf_writer_set_f32(w, "a.f32", 0.25F);
    qn_gguf_writer_set_f64(w, "a.f64", 1e300);
    qn_gguf_writer_set_bool(w, "a.bool", true);
    qn_gguf_writer_set_str(w, "a.str", "gr\xC3\xBC\xC3\x9F");
    static const int32_t numbers[] = {1, -2, 3};
    static const uint32_t big[] = {5, 4000000000U};
    static const float floats[] = {0.5F, -1.5F};
    static const uint8_t bools[] = {0, 1, 1};
    static const qn_gguf_text texts[] = {{"one", 3}, {"", 0}, {"t\0o", 3}};
    qn_gguf_writer_set_array(w, "b.i32", QN_GGUF_I32, numbers, 3);
    qn_gguf_writer_set_array(w, "b.u32", QN_GGUF_U32, big, 2);
    qn_gguf_writer_set_array(w, "b.f32", QN_GGUF_F32, floats, 2);
    qn_gguf_writer_set_array(w, "b.bool", QN_GGUF_BOOL, bools, 3);
    qn_gguf_writer_set_array(w, "b.none", QN_GGUF_F64, NULL, 0);
    qn_gguf_writer_set_texts(w, "b.str", texts, 3);
    qn_gguf_writer_add_tensor(w, "t1", QN_TYPE_F32, 2, (const int64_t[]){3, 2});
    qn_gguf_writer_add_tensor(w, "t2", QN_TYPE_Q4_0, 1, (const int64_t[]){64});
    const char *path = qn_test_temporary(".gguf");
    qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
    uint8_t data[24 + 36];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7);
    }
    qn_test_ok(qn_gguf_writer_write(w, data, 10, &err), err);
    qn_test_ok(qn_gguf_writer_write(w, data + 10, sizeof data - 10, &err), err);
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
    uint8_t *bytes = qn_test_read(path, size);
    unlink(path);
    return bytes;
}

static void every_prefix_is_refused_or_complete(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = make_file(&size);
    size_t data_end = size - 64 + 36; /* the last tensor without its padding */
    for (size_t n = 0; n <= size; n++) {
        uint8_t *copy = malloc(n + 1); /* its own block: reading past it is seen */
        memcpy(copy, bytes, n);
        qn_gguf *g;
        qn_error err = {0};
        qn_status status = qn_gguf_open_memory(&g, copy, n, "prefix", NULL, &err);
        assert_int_equal(status == QN_OK, n >= data_end);
        if (status == QN_OK) {
            touch(g);
        } else {
            assert_non_null(strstr(err.message, "cut short"));
        }
        qn_gguf_free(g);
        free(copy);
    }
    free(bytes);
}

static void no_single_damaged_byte_crashes(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = make_file(&size);
    static const uint8_t flips[] = {0x01, 0x80, 0xFF};
    for (size_t at = 0; at < size; at++) {
        for (size_t f = 0; f < sizeof flips; f++) {
            bytes[at] ^= flips[f];
            qn_gguf *g;
            block b = {bytes, size};
            for (int way = BY_MEMORY; way <= BY_CALLBACK; way++) {
                qn_error err = {0};
                if (open_by(way, &g, "damaged", &b, false, &err) == QN_OK) {
                    touch(g);
                } else {
                    assert_true(err.message[0] != '\0');
                }
                qn_gguf_free(g);
            }
            bytes[at] ^= flips[f];
        }
    }
    free(bytes);
}

/* Writes one F32 tensor of this shape without data into `file`; returns its size. */
static size_t file_of_shape(uint8_t file[128], const int64_t ne[3])
{
    static const uint8_t head[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,  0,
                                   0,   0,   0,   0,   0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 't'};
    const uint32_t n_dims = 3, type = QN_TYPE_F32;
    const uint64_t offset = 0;
    memset(file, 0, 128);
    memcpy(file, head, sizeof head);
    uint8_t *to = file + sizeof head;
    memcpy(to, &n_dims, 4);
    memcpy(to + 4, ne, 24);
    memcpy(to + 28, &type, 4);
    memcpy(to + 32, &offset, 8);
    return 128;
}

static void products_of_dimensions_never_overflow(void **state)
{
    (void)state;
    const struct {
        int64_t ne[3];
        bool good;
    } cases[] = {
        {{0, 1, 1}, true},
        {{INT64_C(1) << 31, 0, INT64_C(1) << 31}, true},
        {{INT64_C(1) << 40, INT64_C(1) << 40, 0}, false},
        {{0, INT64_C(1) << 32, INT64_C(1) << 31}, false},
        {{INT64_C(1) << 32, 0, INT64_MAX}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t file[128];
        qn_gguf *g;
        qn_error err = {0};
        size_t size = file_of_shape(file, cases[i].ne);
        qn_status status = qn_gguf_open_memory(&g, file, size, "shape", NULL, &err);
        assert_int_equal(status, cases[i].good ? QN_OK : QN_ERR_FORMAT);
        if (cases[i].good) {
            assert_int_equal(qn_gguf_tensor_at(g, 0)->bytes, 0);
        } else {
            assert_non_null(strstr(err.message, "tensor t: has too many elements"));
        }
        qn_gguf_free(g);
    }
}

static void a_stream_inside_a_file(void **state)
{
    (void)state;
    qn_error err = {0};
    size_t size;
    uint8_t *bytes = make_file(&size);
    const char *path = qn_test_temporary(".bin");
    for (size_t before = 0; before <= 64; before += 8) {
        FILE *f = fopen(path, "wb");
        for (size_t i = 0; i < before; i++) {
            fputc('x', f);
        }
        assert_int_equal(fwrite(bytes, 1, size, f), size);
        fclose(f);
        qn_gguf_options options = qn_gguf_defaults();
        options.offset = before;
        qn_gguf *g;
        qn_test_ok(qn_gguf_open(&g, path, &options, &err), err);
        const qn_gguf_tensor *t = qn_gguf_find_tensor(g, "t2");
        assert_int_equal(t->data != NULL, before % 32 == 0);
        assert_int_equal(t->offset, qn_gguf_data_offset(g, 0) + 32);
        uint8_t first;
        qn_test_ok(qn_gguf_read_tensor(g, t, 0, 1, &first, &err), err);
        assert_int_equal(first, 24 * 7 % 256);
        touch(g);
        qn_gguf_free(g);
        options.offset = size + before + 1;
        assert_int_equal(qn_gguf_open(&g, path, &options, &err), QN_ERR_ARGUMENT);
    }
    unlink(path);
    free(bytes);
}

/* ---- Typed access ---- */

static void numbers_are_strictly_typed(void **state)
{
    (void)state;
    qn_error err = {0};
    size_t size;
    uint8_t *bytes = make_file(&size);
    qn_gguf *g;
    qn_test_ok(qn_gguf_open_memory(&g, bytes, size, "made.gguf", NULL, &err), err);
    uint16_t u16 = 0;
    uint32_t u32 = 0;
    int32_t i32 = 0;
    uint64_t u64 = 0;
    int64_t i64 = 0;
    float f32 = 0;
    bool boolean = false;
    qn_gguf_text text;
    qn_test_ok(qn_gguf_get_u16(g, "a.u16", &u16, &err), err);
    qn_test_ok(qn_gguf_get_u32(g, "a.u32", &u32, &err), err);
    qn_test_ok(qn_gguf_get_i32(g, "a.i32", &i32, &err), err);
    qn_test_ok(qn_gguf_get_u64(g, "a.u64", &u64, &err), err);
    qn_test_ok(qn_gguf_get_i64(g, "a.i64", &i64, &err), err);
    qn_test_ok(qn_gguf_get_f32(g, "a.f32", &f32, &err), err);
    qn_test_ok(qn_gguf_get_bool(g, "a.bool", &boolean, &err), err);
    qn_test_ok(qn_gguf_get_str(g, "a.str", &text, &err), err);
    assert_true(u16 == 60000 && u32 == 4000000000U && i32 == -7 && u64 == UINT64_MAX);
    assert_true(i64 == INT64_MIN && f32 == 0.25F && boolean);
    assert_string_equal(text.data, "gr\xC3\xBC\xC3\x9F");
    assert_int_equal(qn_gguf_pair_at(g, 0)->value.u64, 200);
    assert_true(qn_gguf_find(g, "a.f64")->value.f64 == 1e300);
    u32 = 99;
    assert_int_equal(qn_gguf_get_u32(g, "a.i32", &u32, &err), QN_ERR_FORMAT);
    assert_string_equal(err.message, "made.gguf: key a.i32: is i32, must be u32");
    assert_int_equal(qn_gguf_get_u32(g, "no.key", &u32, &err), QN_ERR_NOT_FOUND);
    assert_string_equal(err.message, "made.gguf: key no.key is missing");
    qn_test_ok(qn_gguf_opt_u32(g, "no.key", &u32, &err), err);
    assert_int_equal(qn_gguf_opt_u32(g, "b.i32", &u32, &err), QN_ERR_FORMAT);
    assert_string_equal(err.message, "made.gguf: key b.i32: is an array of i32, must be u32");
    assert_int_equal(u32, 99);
    qn_gguf_free(g);
    free(bytes);
}

static void arrays_are_checked(void **state)
{
    (void)state;
    qn_error err = {0};
    size_t size, count = 0;
    uint8_t *bytes = make_file(&size);
    qn_gguf *g;
    qn_test_ok(qn_gguf_open_memory(&g, bytes, size, "made.gguf", NULL, &err), err);
    qn_test_ok(qn_gguf_get_array(g, "b.i32", QN_GGUF_U32, &count, &err), err);
    assert_int_equal(count, 3);
    assert_int_equal(qn_gguf_get_array(g, "b.i32", QN_GGUF_F32, &count, &err), QN_ERR_FORMAT);
    int32_t i32[3];
    qn_test_ok(qn_gguf_get_i32s(g, "b.i32", 1, 2, i32, &err), err);
    assert_true(i32[0] == -2 && i32[1] == 3);
    assert_int_equal(qn_gguf_get_i32s(g, "b.i32", 2, 2, i32, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_gguf_get_i32s(g, "b.i32", 4, SIZE_MAX, i32, &err), QN_ERR_ARGUMENT);
    qn_test_ok(qn_gguf_get_i32s(g, "b.bool", 0, 3, i32, &err), err);
    assert_true(i32[0] == 0 && i32[1] == 1 && i32[2] == 1);
    assert_int_equal(qn_gguf_get_i32s(g, "b.u32", 0, 2, i32, &err), QN_ERR_FORMAT);
    float f32[2];
    qn_test_ok(qn_gguf_get_f32s(g, "b.f32", 0, 2, f32, &err), err);
    assert_true(f32[0] == 0.5F && f32[1] == -1.5F);
    const qn_gguf_pair *texts = qn_gguf_find(g, "b.str");
    assert_int_equal(qn_gguf_array_text(g, texts, 2).size, 3);
    assert_memory_equal(qn_gguf_array_text(g, texts, 2).data, "t\0o", 3);
    assert_int_equal(qn_gguf_array_text(g, texts, 1).size, 0);
    assert_int_equal(qn_gguf_array_text(g, texts, 3).size, 0);
    assert_int_equal(qn_gguf_array_text(g, qn_gguf_find(g, "b.i32"), 0).size, 0);
    uint32_t each[3];
    qn_test_ok(qn_gguf_get_u32_each(g, "a.u32", 3, each, &err), err);
    assert_true(each[0] == 4000000000U && each[2] == 4000000000U);
    qn_test_ok(qn_gguf_get_u32_each(g, "b.bool", 3, each, &err), err);
    assert_true(each[0] == 0 && each[2] == 1);
    assert_int_equal(qn_gguf_get_u32_each(g, "b.i32", 3, each, &err), QN_ERR_FORMAT);
    assert_int_equal(qn_gguf_get_u32_each(g, "b.u32", 3, each, &err), QN_ERR_FORMAT);
    assert_string_equal(err.message, "made.gguf: key b.u32: has 2 elements, must have 3");
    float each_f[2];
    qn_test_ok(qn_gguf_get_f32_each(g, "b.f32", 2, each_f, &err), err);
    qn_test_ok(qn_gguf_get_f32_each(g, "a.f32", 2, each_f, &err), err);
    assert_true(each_f[1] == 0.25F);
    qn_gguf_free(g);
    free(bytes);
}

static void keys_with_nul_are_not_found_by_their_start(void **state)
{
    (void)state;
    const char *path = qn_test_shared("gguf-cases/ok-key-nul-bytes.gguf");
    if (!path) {
        qn_test_skip("gguf-cases are absent");
    }
    qn_gguf *g;
    qn_error err = {0};
    qn_test_ok(qn_gguf_open(&g, path, NULL, &err), err);
    for (size_t i = 0; i < qn_gguf_pair_count(g); i++) {
        const qn_gguf_pair *pair = qn_gguf_pair_at(g, i);
        if (strlen(pair->key.data) != pair->key.size) {
            const qn_gguf_pair *found = qn_gguf_find(g, pair->key.data);
            assert_true(!found || found->key.size == strlen(pair->key.data));
        }
    }
    qn_gguf_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_case),
        cmocka_unit_test(every_recorded_split_set),
        cmocka_unit_test(a_list_of_files_opens_a_set),
        cmocka_unit_test(every_prefix_is_refused_or_complete),
        cmocka_unit_test(no_single_damaged_byte_crashes),
        cmocka_unit_test(products_of_dimensions_never_overflow),
        cmocka_unit_test(a_stream_inside_a_file),
        cmocka_unit_test(numbers_are_strictly_typed),
        cmocka_unit_test(arrays_are_checked),
        cmocka_unit_test(keys_with_nul_are_not_found_by_their_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
