/*
 * test_determinism.c: same seed, same text, as equality of bits. Small models of three
 * architectures with six types of weights; the hash of every logit of one text must be the one that
 * stands in `golden`, on every machine, for every instruction set, thread count, micro-batch and
 * history.
 */
#include "support/support.h"

#include <quern/quern.h>
#include <unistd.h>

#include "support/tiny_model.h"

#define N_TOKENS 70
#define N_TYPES  6

static const qn_type types[N_TYPES] = {QN_TYPE_F32,  QN_TYPE_BF16, QN_TYPE_Q4_0,
                                       QN_TYPE_Q4_1, QN_TYPE_Q4_K, QN_TYPE_Q8_0};

/* Rows: llama, gemma3, qwen3moe. */
static const uint64_t golden[QN_TEST_TINY_COUNT][N_TYPES] = {
    {0x7d134a995c9446f8, 0x331193d8ab11398c, 0x7ad9b29a5fc5af2b, 0x41656fe1b2bd22e0,
     0x974983f7098cabf7, 0x565c38c8fb50f223},
    {0xa449f6bcb4db612e, 0x7a36fc230f345b8b, 0x4913822da02f3826, 0xe08d3e75d5aac174,
     0x5b9c5b7aa542e071, 0xe2a186d39851aadb},
    {0x0575c284fa809f61, 0x773392548f0a0f05, 0xc18d5ab3445ae5c9, 0x70b357f01cb0734c,
     0xc723893ca31dde8a, 0x95ffdc507c03aa6e},
};

/* Under the sanitizers each kind of model is made with two of the types, all of them in turn. */
static bool is_tested(int kind, int t)
{
    return !QN_TEST_LIGHT || t % QN_TEST_TINY_COUNT == kind;
}

static const char *paths[QN_TEST_TINY_COUNT][N_TYPES];
static int32_t text[4][N_TOKENS]; /* of four sequences; the first one is looked at */

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001b3U; /* FNV-1a */
    }
    return h;
}

static int make_models(void **state)
{
    (void)state;
    static char names[QN_TEST_TINY_COUNT][N_TYPES][256];
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        for (int t = 0; t < N_TYPES; t++) {
            if (!is_tested(kind, t)) {
                continue;
            }
            char *name = names[kind][t];
            snprintf(name, sizeof names[0][0], "%s", qn_test_temporary(".gguf"));
            qn_test_tiny_write(name, (qn_test_tiny_kind)kind, types[t], 0);
            paths[kind][t] = name;
        }
    }
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < N_TOKENS; i++) {
            text[s][i] =
                (int32_t)((37U * (unsigned)i + 11U + 101U * (unsigned)s) % QN_TEST_TINY_VOCAB);
        }
    }
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        for (int t = 0; t < N_TYPES; t++) {
            if (is_tested(kind, t)) {
                unlink(paths[kind][t]);
            }
        }
    }
    return 0;
}

static qn_model *load(int kind, int t)
{
    qn_error err = {0};
    qn_model *model;
    qn_test_ok(qn_model_load(&model, paths[kind][t], NULL, &err), err);
    return model;
}

/* isa NULL: the best one. Returns NULL where this machine lacks the instruction set. */
static qn_context *make_context(const qn_model *model, const char *isa, int n_threads, int n_ubatch)
{
    qn_error err = {0};
    qn_context *ctx;
    qn_context_options options = qn_context_defaults();
    options.n_ctx = 512;
    options.n_seq_max = 4;
    options.n_batch = 512;
    options.n_ubatch = n_ubatch;
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads;
    options.isa = isa;
    qn_status status = qn_context_make(model, &options, &ctx, &err);
    if (isa && status == QN_ERR_UNSUPPORTED) {
        return NULL;
    }
    qn_test_ok(status, err);
    return ctx;
}

/* Decodes tokens [first, first + n) of sequence 0's text as `seq`, each with a row; rows[i] gets
 * the hash of token i's logits. */
static void decode(qn_context *ctx, int seq, int first, int n, uint64_t rows[N_TOKENS])
{
    qn_error err = {0};
    int32_t ones[N_TOKENS];
    int32_t ids[N_TOKENS];
    int8_t output[N_TOKENS];
    for (int i = 0; i < n; i++) {
        ones[i] = 1;
        ids[i] = seq;
        output[i] = 1;
    }
    qn_batch batch = {.n_tokens = n,
                      .tokens = text[0] + first,
                      .n_seq_id = ones,
                      .seq_id = ids,
                      .output = output};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    for (int i = 0; i < n; i++) {
        const float *row = qn_context_logits(ctx, i, &err);
        assert_non_null(row);
        rows[first + i] = hash_bytes(0xcbf29ce484222325U, row, sizeof(float) * QN_TEST_TINY_VOCAB);
    }
}

static void assert_golden(int kind, int t, const uint64_t rows[N_TOKENS], const char *what)
{
    uint64_t h = hash_bytes(0xcbf29ce484222325U, rows, sizeof(uint64_t) * N_TOKENS);
    if (h != golden[kind][t]) {
        fail_msg("%s %s, %s: hash 0x%016llx, not 0x%016llx",
                 qn_test_tiny_name((qn_test_tiny_kind)kind), qn_type_get_info(types[t])->name, what,
                 (unsigned long long)h, (unsigned long long)golden[kind][t]);
    }
}

typedef void (*property)(const qn_model *model, int kind, int t);

static void for_each_model(property check)
{
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        for (int t = 0; t < N_TYPES; t++) {
            if (is_tested(kind, t)) {
                qn_model *model = load(kind, t);
                check(model, kind, t);
                qn_model_free(model);
            }
        }
    }
}

static void instruction_set_does_not_matter(const qn_model *model, int kind, int t)
{
#ifdef QN_TEST_EMULATED /* the kernels for AVX-512, by emulation: only these, they are slow */
    static const char *const sets[] = {"avx512"};
#else
    static const char *const sets[] = {"scalar", "avx2", "avx512", "neon", "neon-dotprod"};
#endif
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        qn_context *ctx = make_context(model, sets[i], 2, 512);
        if (ctx) {
            uint64_t rows[N_TOKENS];
            decode(ctx, 0, 0, N_TOKENS, rows);
            assert_golden(kind, t, rows, sets[i]);
        }
        qn_context_free(ctx);
    }
}

static void threads_do_not_matter(const qn_model *model, int kind, int t)
{
    static const int counts[] = {1, 2, 3, 7};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint64_t rows[N_TOKENS];
        qn_context *ctx = make_context(model, NULL, counts[i], 512);
        decode(ctx, 0, 0, N_TOKENS, rows);
        assert_golden(kind, t, rows, "threads");
        qn_context_free(ctx);
    }
}

static void micro_batches_do_not_matter(const qn_model *model, int kind, int t)
{
    static const int sizes[] = {1, 2, 7, 64, 512};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t rows[N_TOKENS];
        qn_context *ctx = make_context(model, NULL, 2, sizes[i]);
        decode(ctx, 0, 0, N_TOKENS, rows);
        assert_golden(kind, t, rows, "micro-batches");
        qn_context_free(ctx);
    }
}

/* Sequence 2 carries the text; 0, 1 and 3 run beside it, a few tokens of each in turn. */
static void neighbours_do_not_matter(const qn_model *model, int kind, int t)
{
    qn_error err = {0};
    uint64_t rows[N_TOKENS];
    int32_t tokens[4 * N_TOKENS];
    int32_t ones[4 * N_TOKENS];
    int32_t ids[4 * N_TOKENS];
    int8_t output[4 * N_TOKENS];
    int place[N_TOKENS];
    int done[4] = {0};
    int n = 0;
    for (int turn = 0; n < 4 * N_TOKENS; turn++) {
        int seq = (turn * 3) % 4;
        for (int k = 0; k <= turn % 3 && done[seq] < N_TOKENS; k++) {
            int i = done[seq]++;
            tokens[n] = text[seq == 2 ? 0 : seq + 1 > 3 ? 3 : seq + 1][i];
            ones[n] = 1;
            ids[n] = seq;
            output[n] = seq == 2;
            if (seq == 2) {
                place[i] = n;
            }
            n++;
        }
    }
    qn_context *ctx = make_context(model, NULL, 2, 64);
    qn_batch batch = {
        .n_tokens = n, .tokens = tokens, .n_seq_id = ones, .seq_id = ids, .output = output};
    qn_test_ok(qn_context_decode(ctx, &batch, &err), err);
    for (int i = 0; i < N_TOKENS; i++) {
        const float *row = qn_context_logits(ctx, place[i], &err);
        assert_non_null(row);
        rows[i] = hash_bytes(0xcbf29ce484222325U, row, sizeof(float) * QN_TEST_TINY_VOCAB);
    }
    assert_golden(kind, t, rows, "beside other sequences");
    qn_context_free(ctx);
}

static void shared_prefix_does_not_matter(const qn_model *model, int kind, int t)
{
    qn_error err = {0};
    uint64_t rows[N_TOKENS];
    qn_context *ctx = make_context(model, NULL, 2, 512);
    decode(ctx, 1, 0, 41, rows);
    qn_test_ok(qn_context_seq_cp(ctx, 1, 3, -1, -1, &err), err);
    decode(ctx, 3, 41, N_TOKENS - 41, rows);
    assert_golden(kind, t, rows, "after a shared prefix");
    decode(ctx, 1, 41, N_TOKENS - 41, rows); /* and the other branch */
    assert_golden(kind, t, rows, "on a shared prefix");
    qn_context_free(ctx);
}

static void removed_tail_does_not_matter(const qn_model *model, int kind, int t)
{
    qn_error err = {0};
    uint64_t rows[N_TOKENS];
    uint64_t other[N_TOKENS];
    qn_context *ctx = make_context(model, NULL, 2, 512);
    decode(ctx, 0, 0, 50, rows);
    decode(ctx, 0, 3, 6, other); /* other tokens at 50 .. 55 */
    qn_test_ok(qn_context_seq_rm(ctx, 0, 50, -1, &err), err);
    decode(ctx, 0, 50, N_TOKENS - 50, rows);
    assert_golden(kind, t, rows, "after removing a tail");
    qn_context_free(ctx);
}

static void restored_state_does_not_matter(const qn_model *model, int kind, int t)
{
    qn_error err = {0};
    uint64_t rows[N_TOKENS];
    qn_context *ctx = make_context(model, NULL, 2, 512);
    decode(ctx, 2, 0, 37, rows);
    size_t size = qn_context_state_size(ctx, 2);
    uint8_t *state = malloc(size);
    size_t written;
    qn_test_ok(qn_context_state_get(ctx, 2, state, size, &written, &err), err);
    qn_context_free(ctx);
    ctx = make_context(model, NULL, 1, 7);
    qn_test_ok(qn_context_state_set(ctx, 1, state, written, &err), err);
    decode(ctx, 1, 37, N_TOKENS - 37, rows);
    assert_golden(kind, t, rows, "after saving and restoring");
    qn_context_free(ctx);
    free(state);
}

#define PROPERTY(name)                                                                             \
    static void name##_test(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        for_each_model(name);                                                                      \
    }

PROPERTY(instruction_set_does_not_matter)
PROPERTY(threads_do_not_matter)
PROPERTY(micro_batches_do_not_matter)
PROPERTY(neighbours_do_not_matter)
PROPERTY(shared_prefix_does_not_matter)
PROPERTY(removed_tail_does_not_matter)
PROPERTY(restored_state_does_not_matter)

/* An argument names the tests to run, as "instruction_set*". */
int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
#ifdef QN_TEST_EMULATED
    const struct CMUnitTest emulated[] = {cmocka_unit_test(instruction_set_does_not_matter_test)};
    return cmocka_run_group_tests(emulated, make_models, remove_models);
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_set_does_not_matter_test),
        cmocka_unit_test(threads_do_not_matter_test),
        cmocka_unit_test(micro_batches_do_not_matter_test),
        cmocka_unit_test(neighbours_do_not_matter_test),
        cmocka_unit_test(shared_prefix_does_not_matter_test),
        cmocka_unit_test(removed_tail_does_not_matter_test),
        cmocka_unit_test(restored_state_does_not_matter_test),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
