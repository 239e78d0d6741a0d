/*
 * Loading: what a good file gives, and that bad ones are refused with one clear line that names
 * file and tensor or key. Models are made by the test; each bad one is a good one with one change.
 */
#include "support/support.h"

#include <quern/device.h>
#include <quern/gguf.h>
#include <quern/model.h>
#include <quern/vocab.h>

#include <math.h>
#include <unistd.h>

#include "model/model.h"
#include "support/run_model.h"
#include "support/tiny_model.h"

/* One change on the way from a good file to a bad one. Unset members change nothing. */
typedef struct change {
    qn_test_tiny_kind kind;
    const char *drop;   /* tensor that is left out */
    const char *resize; /* tensor whose rows become one fewer (a vector: one value shorter) */
    const char *rename, *to;
    const char *poison; /* tensor with a NaN as its last value */
    const char *retype; /* F32 tensor declared I32 */
    const char *key;    /* key that is set to … */
    const char *text;
    const char *remove; /* key that is left out */
    uint32_t number;
    float real; /* used where not 0 */
    qn_status status;
    const char *says, *and_says; /* parts of the message */
} change;

static bool is(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static void add_changed_tensor(qn_gguf_writer *w, const qn_gguf_tensor *t, const change *c)
{
    int64_t ne[4] = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
    if (is(t->name, c->resize)) {
        ne[t->n_dims - 1]--;
    }
    qn_gguf_writer_add_tensor(w, is(t->name, c->rename) ? c->to : t->name,
                              is(t->name, c->retype) ? QN_TYPE_I32 : t->type, (int)t->n_dims, ne);
}

static void write_changed_tensor(qn_gguf_writer *w, const qn_gguf *g, const qn_gguf_tensor *t,
                                 const change *c)
{
    qn_error err = {0};
    uint8_t *bytes = malloc(t->bytes);
    assert_non_null(bytes);
    qn_test_ok(qn_gguf_read_tensor(g, t, 0, t->bytes, bytes, &err), err);
    if (is(t->name, c->poison)) {
        float bad = NAN;
        memcpy(bytes + t->bytes - sizeof(bad), &bad, sizeof(bad));
    }
    size_t cut = is(t->name, c->resize) ? t->bytes / (size_t)t->ne[t->n_dims - 1] : 0;
    qn_test_ok(qn_gguf_writer_write(w, bytes, t->bytes - cut, &err), err);
    free(bytes);
}

/* Writes `from` to `to` with the change. */
static void rewrite(const char *from, const char *to, const change *c)
{
    qn_error err = {0};
    qn_gguf *g = NULL;
    qn_gguf_writer *w = NULL;
    qn_test_ok(qn_gguf_open(&g, from, NULL, &err), err);
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    qn_gguf_writer_copy(w, g);
    if (c->remove) {
        qn_gguf_writer_remove(w, c->remove);
    }
    if (c->key && c->text) {
        qn_gguf_writer_set_str(w, c->key, c->text);
    } else if (c->key && c->real != 0) {
        qn_gguf_writer_set_f32(w, c->key, c->real);
    } else if (c->key) {
        qn_gguf_writer_set_u32(w, c->key, c->number);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
            const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
            if (is(t->name, c->drop)) {
                continue;
            }
            if (pass == 0) {
                add_changed_tensor(w, t, c);
            } else {
                write_changed_tensor(w, g, t, c);
            }
        }
        if (pass == 0) {
            qn_test_ok(qn_gguf_writer_open(w, to, &err), err);
        }
    }
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
    qn_gguf_free(g);
}

static const change bad_models[] = {
    {.drop = "blk.1.ffn_up.weight",
     .status = QN_ERR_FORMAT,
     .says = "tensor blk.1.ffn_up.weight is missing"},
    {.drop = "token_embd.weight", .status = QN_ERR_FORMAT, .says = "token_embd.weight is missing"},
    {.resize = "blk.0.attn_k.weight",
     .status = QN_ERR_FORMAT,
     .says = "blk.0.attn_k.weight: shape [256, 127] where the model needs [256, 128]"},
    {.resize = "output_norm.weight", .status = QN_ERR_FORMAT, .says = "shape [255]"},
    {.kind = QN_TEST_TINY_QWEN3MOE,
     .resize = "blk.1.ffn_down_exps.weight",
     .status = QN_ERR_FORMAT,
     .says = "shape [256, 256, 7] where the model needs [256, 256, 8]"},
    {.rename = "blk.0.attn_norm.weight",
     .to = "blk.0.attn_q_norm.weight",
     .status = QN_ERR_FORMAT,
     .says = "attn_norm.weight is missing"},
    {.kind = QN_TEST_TINY_GEMMA3,
     .key = "general.architecture",
     .text = "gemma2",
     .status = QN_ERR_FORMAT,
     .says = "gemma2.context_length: missing"},
    {.key = "general.architecture",
     .text = "no-such-thing",
     .status = QN_ERR_UNSUPPORTED,
     .says = "architecture \"no-such-thing\""},
    {.remove = "general.architecture", .status = QN_ERR_NOT_FOUND, .says = "general.architecture"},
    {.poison = "blk.1.attn_norm.weight",
     .status = QN_ERR_FORMAT,
     .says = "tensor blk.1.attn_norm.weight"},
    {.poison = "blk.0.ffn_down.weight",
     .status = QN_ERR_FORMAT,
     .says = "tensor blk.0.ffn_down.weight"},
    {.retype = "blk.0.ffn_down.weight",
     .status = QN_ERR_UNSUPPORTED,
     .says = "tensor blk.0.ffn_down.weight",
     .and_says = "i32"},
    {.remove = "llama.block_count",
     .status = QN_ERR_FORMAT,
     .says = "key llama.block_count: missing"},
    {.key = "llama.block_count",
     .number = 100000,
     .status = QN_ERR_FORMAT,
     .says = "key llama.block_count: value 100000"},
    {.key = "llama.block_count",
     .number = 3,
     .status = QN_ERR_FORMAT,
     .says = "blk.2.attn_norm.weight is missing"},
    {.key = "llama.block_count",
     .text = "two",
     .status = QN_ERR_FORMAT,
     .says = "key llama.block_count: is str, not an integer"},
    {.key = "llama.embedding_length",
     .number = 0x7fffffff,
     .status = QN_ERR_FORMAT,
     .says = "key llama.embedding_length"},
    {.key = "llama.attention.head_count",
     .number = 0,
     .status = QN_ERR_FORMAT,
     .says = "key llama.attention.head_count"},
    {.key = "llama.attention.head_count_kv",
     .number = 3,
     .status = QN_ERR_FORMAT,
     .says = "4 query heads over 3 key heads"},
    {.key = "llama.attention.key_length",
     .number = 4096,
     .status = QN_ERR_FORMAT,
     .says = "llama.rope.dimension_count"},
    {.key = "llama.rope.dimension_count",
     .number = 62,
     .status = QN_ERR_FORMAT,
     .says = "rotates all 64"},
    {.key = "llama.rope.freq_base",
     .real = -1.0f,
     .status = QN_ERR_FORMAT,
     .says = "llama.rope.freq_base"},
    {.key = "llama.rope.scaling.type",
     .text = "magic",
     .status = QN_ERR_UNSUPPORTED,
     .says = "llama.rope.scaling.type"},
    {.key = "llama.attention.layer_norm_rms_epsilon",
     .real = INFINITY,
     .status = QN_ERR_FORMAT,
     .says = "layer_norm_rms_epsilon"},
    {.kind = QN_TEST_TINY_QWEN3MOE,
     .key = "qwen3moe.expert_used_count",
     .number = 9,
     .status = QN_ERR_FORMAT,
     .says = "9 of 8 experts"},
    {.kind = QN_TEST_TINY_QWEN3MOE,
     .key = "qwen3moe.expert_count",
     .number = 0,
     .status = QN_ERR_FORMAT,
     .says = "key qwen3moe.expert_count: missing"},
    {.kind = QN_TEST_TINY_QWEN3MOE,
     .key = "qwen3moe.expert_group_count",
     .number = 3,
     .status = QN_ERR_FORMAT,
     .says = "expert_group_count"},
};

/* The good models that changes start from. */
static char good[QN_TEST_TINY_COUNT][256];

static int write_good(void **state)
{
    (void)state;
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        snprintf(good[kind], sizeof(good[kind]), "%s", qn_test_temporary(".gguf"));
        qn_test_tiny_write(good[kind], (qn_test_tiny_kind)kind, QN_TYPE_F32, 0);
    }
    return 0;
}

static int remove_good(void **state)
{
    (void)state;
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        unlink(good[kind]);
    }
    return 0;
}

static void bad_models_are_refused(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof(path), "%s", qn_test_temporary(".gguf"));
    for (size_t i = 0; i < sizeof(bad_models) / sizeof(bad_models[0]); i++) {
        const change *c = &bad_models[i];
        rewrite(good[c->kind], path, c);
        for (int mapped = 0; mapped < 2; mapped++) {
            qn_model_options options = qn_model_defaults();
            options.use_mmap = mapped;
            options.n_threads = 1;
            qn_model *model = NULL;
            qn_error err = {0};
            qn_status status = qn_model_load(&model, path, &options, &err);
            if (status != c->status || !strstr(err.message, c->says) ||
                (c->and_says && !strstr(err.message, c->and_says)) || !strstr(err.message, path)) {
                fail_msg("case %zu (%s): %s: %s", i, c->says, qn_status_name(status), err.message);
            }
            assert_null(model);
        }
        unlink(path);
    }
}

/* A tensor that changes what a layer computes, where the architecture has none. */
static void foreign_tensors_are_refused(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof(path), "%s", qn_test_temporary(".gguf"));
    qn_gguf *g = NULL;
    qn_error err = {0};
    qn_gguf_writer *w = NULL;
    qn_test_ok(qn_gguf_open(&g, good[QN_TEST_TINY_LLAMA], NULL, &err), err);
    static const char *const extra[] = {"blk.0.attn_sinks.weight", "blk.0.strange.weight"};
    for (int which = 0; which < 2; which++) {
        qn_test_ok(qn_gguf_writer_new(&w, &err), err);
        qn_gguf_writer_copy(w, g);
        const change none = {0};
        for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
            add_changed_tensor(w, qn_gguf_tensor_at(g, i), &none);
        }
        qn_gguf_writer_add_tensor(w, extra[which], QN_TYPE_F32, 1, &(int64_t){4});
        qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
        for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
            write_changed_tensor(w, g, qn_gguf_tensor_at(g, i), &none);
        }
        qn_test_ok(qn_gguf_writer_write(w, (float[4]){1, 2, 3, 4}, sizeof(float[4]), &err), err);
        qn_test_ok(qn_gguf_writer_finish(w, &err), err);
        qn_gguf_writer_free(w);
        qn_model *model = NULL;
        qn_status status = qn_model_load(&model, path, NULL, &err);
        assert_int_equal(status, which == 0 ? QN_ERR_UNSUPPORTED : QN_OK);
        if (which == 0) {
            assert_non_null(strstr(err.message, "attn_sinks"));
        }
        qn_model_free(model);
        unlink(path);
    }
    qn_gguf_free(g);
}

static void facts(void **state)
{
    (void)state;
    qn_model *m = NULL;
    qn_error err = {0};
    qn_test_ok(qn_model_load(&m, good[QN_TEST_TINY_GEMMA3], NULL, &err), err);
    assert_string_equal(qn_model_architecture(m), "gemma3");
    assert_non_null(strstr(qn_model_description(m), "gemma3 "));
    assert_non_null(strstr(qn_model_description(m), " f32"));
    assert_int_equal(qn_model_n_layer(m), 6);
    assert_int_equal(qn_model_n_embd(m), 256);
    assert_int_equal(qn_model_n_head(m), 4);
    assert_int_equal(qn_model_n_head_kv(m), 2);
    assert_int_equal(qn_model_n_ctx_train(m), 512);
    assert_int_equal(qn_model_n_vocab(m), QN_TEST_TINY_VOCAB);
    assert_int_equal(qn_vocab_size(qn_model_vocab(m)), QN_TEST_TINY_VOCAB);
    assert_int_equal(qn_model_n_swa(m), 16);
    assert_int_equal(qn_model_rope_kind(m), QN_MODEL_ROPE_NEOX);
    assert_int_equal(qn_model_n_bytes(m), qn_model_n_params(m) * 4);
    assert_true(qn_model_n_packed_bytes(m) > 0);
    assert_true(qn_model_has_decoder(m) && qn_model_is_causal(m) && !qn_model_has_encoder(m));
    assert_null(qn_model_chat_template(m, NULL));

    /* Five layers with a window of 16, one full. */
    const qn_kv_layout *kv = qn__model_kv_layout(m);
    assert_int_equal(kv->n_groups, 2);
    assert_int_equal(kv->n_layers, 6);
    assert_int_equal(kv->groups[kv->layers[0].group].window, QN_WINDOW_STANDARD);
    assert_int_equal(kv->groups[kv->layers[0].group].window_size, 16);
    assert_int_equal(kv->groups[kv->layers[5].group].window, QN_WINDOW_NONE);
    assert_int_equal(kv->layers[0].rope, 1);
    assert_int_equal(kv->layers[5].rope, 0);
    assert_true(kv->can_shift);
    qn_model_free(m);
}

static void vocabulary_only(void **state)
{
    (void)state;
    qn_model_options options = qn_model_defaults();
    options.vocab_only = true;
    qn_model *m = NULL;
    qn_error err = {0};
    qn_test_ok(qn_model_load(&m, good[QN_TEST_TINY_LLAMA], &options, &err), err);
    assert_true(qn_model_is_vocab_only(m));
    assert_int_equal(qn_vocab_size(qn_model_vocab(m)), QN_TEST_TINY_VOCAB);
    assert_int_equal(qn_model_n_packed_bytes(m), 0);
    qn_graph *g = qn__graph_make(&err);
    qn_build_inputs in = {0};
    qn_build_outputs out;
    assert_int_equal(qn__model_build(m, g, &in, &out, &err), QN_ERR_ARGUMENT);
    qn__graph_free(g);
    qn_model_free(m);
}

static bool stop_at_half(void *user, float fraction)
{
    float *last = user;
    assert_true(fraction >= *last && fraction <= 1.0f);
    *last = fraction;
    return fraction < 0.5f;
}

static void progress_can_stop(void **state)
{
    (void)state;
    float last = 0;
    qn_model_options options = qn_model_defaults();
    options.progress = stop_at_half;
    options.progress_user = &last;
    qn_model *m = NULL;
    qn_error err = {0};
    assert_int_equal(qn_model_load(&m, good[QN_TEST_TINY_LLAMA], &options, &err), QN_ERR_ABORTED);
    assert_true(last >= 0.5f && last < 1.0f);
    assert_null(m);
}

/* Mapped or read, one thread or several, all rows or some: the same bits. */
static void same_rows_whatever_the_way(void **state)
{
    (void)state;
    enum { T = 40 };
    qn_error err = {0};
    qn_device *device = NULL;
    qn_test_ok(qn_device_open(0, NULL, &device, &err), err);
    int32_t tokens[T];
    for (int32_t i = 0; i < T; i++) {
        tokens[i] = (31 * i + 7) % QN_TEST_TINY_VOCAB;
    }
    static const int32_t some[] = {3, 17, T - 1};
    for (int kind = 0; kind < QN_TEST_TINY_COUNT; kind++) {
        qn_model_options mapped = qn_model_defaults(), read = qn_model_defaults();
        read.use_mmap = false;
        read.n_threads = 3;
        qn_model *a = NULL, *b = NULL;
        qn_test_ok(qn_model_load(&a, good[kind], &mapped, &err), err);
        qn_test_ok(qn_model_load(&b, good[kind], &read, &err), err);
        qn_test_batch all = {.tokens = tokens, .n_tokens = T, .first_position = 5, .n_ctx = 256};
        qn_test_batch few = all;
        few.out_ids = some;
        few.n_out = 3;
        int64_t v = 0;
        float *rows = qn_test_run_model(a, device, &all, &v);
        float *again = qn_test_run_model(b, device, &all, &v);
        float *cut = qn_test_run_model(a, device, &few, &v);
        assert_int_equal(v, QN_TEST_TINY_VOCAB);
        size_t row = (size_t)v * sizeof(float);
        assert_memory_equal(rows, again, T * row);
        for (size_t i = 0; i < 3; i++) {
            assert_memory_equal(rows + (size_t)some[i] * (size_t)v, cut + i * (size_t)v, row);
        }
        free(rows);
        free(again);
        free(cut);
        qn_model_free(a);
        qn_model_free(b);
    }
    qn_device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_models_are_refused),
        cmocka_unit_test(foreign_tensors_are_refused),
        cmocka_unit_test(facts),
        cmocka_unit_test(vocabulary_only),
        cmocka_unit_test(progress_can_stop),
        cmocka_unit_test(same_rows_whatever_the_way),
    };
    return cmocka_run_group_tests(tests, write_good, remove_good);
}
