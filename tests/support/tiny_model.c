/* tiny_model.c: see tiny_model.h. */
#include "support/tiny_model.h"

#include <quern/gguf.h>

#include "quant/quant.h"
#include "support/support.h"

#define WIDTH      256
#define HEADS      4
#define KV_HEADS   2
#define HEAD_WIDTH 64
#define EXPERTS    8
#define CONTEXT    512

/* How a tensor's numbers are drawn. */
typedef enum fill {
    FILL_MATRIX, /* gain * N(0, 1) / sqrt(inputs), in the model's type */
    FILL_ROUTER, /* the same, always F32 */
    FILL_EMBEDDING,
    FILL_NORM /* 1 + 0.3 N(0, 1) */
} fill;

typedef struct tensor_row {
    const char *name; /* %d: the layer */
    fill kind;
    float gain;
    int64_t ne[3];
    unsigned kinds; /* bit k: tensor of kind k */
} tensor_row;

enum { L = 1 << QN_TEST_TINY_LLAMA, G = 1 << QN_TEST_TINY_GEMMA3, Q = 1 << QN_TEST_TINY_QWEN3MOE };

static const tensor_row global_rows[] = {
    {"token_embd.weight", FILL_EMBEDDING, 1.0F, {WIDTH, QN_TEST_TINY_VOCAB, 1}, L | G | Q},
    {"output_norm.weight", FILL_NORM, 0.3F, {WIDTH, 1, 1}, L | G | Q},
    {"output.weight", FILL_MATRIX, 1.5F, {WIDTH, QN_TEST_TINY_VOCAB, 1}, Q},
};

static const tensor_row layer_rows[] = {
    {"blk.%d.attn_norm.weight", FILL_NORM, 0.3F, {WIDTH, 1, 1}, L | G | Q},
    {"blk.%d.attn_q.weight", FILL_MATRIX, 2.0F, {WIDTH, HEADS *HEAD_WIDTH, 1}, L | G | Q},
    {"blk.%d.attn_k.weight", FILL_MATRIX, 2.0F, {WIDTH, KV_HEADS *HEAD_WIDTH, 1}, L | G | Q},
    {"blk.%d.attn_v.weight", FILL_MATRIX, 1.5F, {WIDTH, KV_HEADS *HEAD_WIDTH, 1}, L | G | Q},
    {"blk.%d.attn_output.weight", FILL_MATRIX, 1.5F, {HEADS * HEAD_WIDTH, WIDTH, 1}, L | G | Q},
    {"blk.%d.attn_q_norm.weight", FILL_NORM, 0.3F, {HEAD_WIDTH, 1, 1}, G | Q},
    {"blk.%d.attn_k_norm.weight", FILL_NORM, 0.3F, {HEAD_WIDTH, 1, 1}, G | Q},
    {"blk.%d.post_attention_norm.weight", FILL_NORM, 0.3F, {WIDTH, 1, 1}, G},
    {"blk.%d.ffn_norm.weight", FILL_NORM, 0.3F, {WIDTH, 1, 1}, L | G | Q},
    {"blk.%d.ffn_gate.weight", FILL_MATRIX, 1.5F, {WIDTH, 512, 1}, L},
    {"blk.%d.ffn_up.weight", FILL_MATRIX, 1.5F, {WIDTH, 512, 1}, L},
    {"blk.%d.ffn_down.weight", FILL_MATRIX, 1.5F, {512, WIDTH, 1}, L},
    {"blk.%d.ffn_gate.weight", FILL_MATRIX, 1.5F, {WIDTH, 256, 1}, G},
    {"blk.%d.ffn_up.weight", FILL_MATRIX, 1.5F, {WIDTH, 256, 1}, G},
    {"blk.%d.ffn_down.weight", FILL_MATRIX, 1.5F, {256, WIDTH, 1}, G},
    {"blk.%d.post_ffw_norm.weight", FILL_NORM, 0.3F, {WIDTH, 1, 1}, G},
    {"blk.%d.ffn_gate_inp.weight", FILL_ROUTER, 3.0F, {WIDTH, EXPERTS, 1}, Q},
    {"blk.%d.ffn_gate_exps.weight", FILL_MATRIX, 1.5F, {WIDTH, 256, EXPERTS}, Q},
    {"blk.%d.ffn_up_exps.weight", FILL_MATRIX, 1.5F, {WIDTH, 256, EXPERTS}, Q},
    {"blk.%d.ffn_down_exps.weight", FILL_MATRIX, 1.5F, {256, WIDTH, EXPERTS}, Q},
};

#define N_ROWS(table) (sizeof(table) / sizeof(table)[0])

const char *qn_test_tiny_name(qn_test_tiny_kind kind)
{
    static const char *const names[QN_TEST_TINY_COUNT] = {"llama", "gemma3", "qwen3moe"};
    return names[kind];
}

static int layer_count(qn_test_tiny_kind kind)
{
    return kind == QN_TEST_TINY_GEMMA3 ? 6 : 2;
}

static void set_u32(qn_gguf_writer *w, const char *arch, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    qn_gguf_writer_set_u32(w, full, value);
}

static void set_f32(qn_gguf_writer *w, const char *arch, const char *key, float value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    qn_gguf_writer_set_f32(w, full, value);
}

/* SPM: <unk>, <s>, </s>, the 256 bytes, then some pieces with scores. */
static void set_vocabulary(qn_gguf_writer *w)
{
    static const char *const pieces[QN_TEST_TINY_VOCAB - 259] = {"\xE2\x96\x81",
                                                                 "e",
                                                                 "t",
                                                                 "a",
                                                                 "o",
                                                                 "i",
                                                                 "n",
                                                                 "s",
                                                                 "h",
                                                                 "r",
                                                                 "d",
                                                                 "l",
                                                                 "u",
                                                                 "c",
                                                                 "m",
                                                                 "th",
                                                                 "he",
                                                                 "in",
                                                                 "er",
                                                                 "an",
                                                                 "\xE2\x96\x81t",
                                                                 "\xE2\x96\x81th",
                                                                 "\xE2\x96\x81the",
                                                                 "re",
                                                                 "on",
                                                                 "at",
                                                                 "en",
                                                                 "nd",
                                                                 "ed"};
    qn_gguf_text texts[QN_TEST_TINY_VOCAB];
    static char bytes[256][8];
    float scores[QN_TEST_TINY_VOCAB];
    int32_t types[QN_TEST_TINY_VOCAB];
    static const char *const specials[3] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < QN_TEST_TINY_VOCAB; i++) {
        const char *text;
        scores[i] = 0.0F;
        if (i < 3) {
            text = specials[i];
            types[i] = i == 0 ? 2 : 3;
        } else if (i < 259) {
            snprintf(bytes[i - 3], sizeof bytes[0], "<0x%02X>", (unsigned)(i - 3) & 0xFFU);
            text = bytes[i - 3];
            types[i] = 6;
        } else {
            text = pieces[i - 259];
            types[i] = 1;
            scores[i] = (float)(259 - i);
        }
        texts[i] = (qn_gguf_text){text, strlen(text)};
    }
    qn_gguf_writer_set_str(w, "tokenizer.ggml.model", "llama");
    qn_gguf_writer_set_texts(w, "tokenizer.ggml.tokens", texts, QN_TEST_TINY_VOCAB);
    qn_gguf_writer_set_array(w, "tokenizer.ggml.scores", QN_GGUF_F32, scores, QN_TEST_TINY_VOCAB);
    qn_gguf_writer_set_array(w, "tokenizer.ggml.token_type", QN_GGUF_I32, types,
                             QN_TEST_TINY_VOCAB);
    qn_gguf_writer_set_u32(w, "tokenizer.ggml.bos_token_id", 1);
    qn_gguf_writer_set_u32(w, "tokenizer.ggml.eos_token_id", 2);
    qn_gguf_writer_set_u32(w, "tokenizer.ggml.unknown_token_id", 0);
}

static void set_metadata(qn_gguf_writer *w, qn_test_tiny_kind kind, int n_layer)
{
    const char *arch = qn_test_tiny_name(kind);
    uint32_t n_ff = kind == QN_TEST_TINY_LLAMA ? 512 : 256;
    qn_gguf_writer_set_str(w, "general.architecture", arch);
    qn_gguf_writer_set_str(w, "general.name", "tiny");
    set_u32(w, arch, "block_count", (uint32_t)n_layer);
    set_u32(w, arch, "context_length", CONTEXT);
    set_u32(w, arch, "embedding_length", WIDTH);
    set_u32(w, arch, "feed_forward_length", n_ff);
    set_u32(w, arch, "attention.head_count", HEADS);
    set_u32(w, arch, "attention.head_count_kv", KV_HEADS);
    set_u32(w, arch, "attention.key_length", HEAD_WIDTH);
    set_u32(w, arch, "attention.value_length", HEAD_WIDTH);
    set_f32(w, arch, "attention.layer_norm_rms_epsilon", 1e-5F);
    set_f32(w, arch, "rope.freq_base", 10000.0F);
    if (kind == QN_TEST_TINY_LLAMA) {
        set_u32(w, arch, "rope.dimension_count", HEAD_WIDTH);
    }
    if (kind == QN_TEST_TINY_GEMMA3) {
        set_u32(w, arch, "attention.sliding_window", 16);
    }
    if (kind == QN_TEST_TINY_QWEN3MOE) {
        set_u32(w, arch, "expert_count", EXPERTS);
        set_u32(w, arch, "expert_used_count", 3);
        set_u32(w, arch, "expert_feed_forward_length", n_ff);
    }
    set_vocabulary(w);
}

static qn_type row_type(const tensor_row *row, qn_type type)
{
    return row->kind == FILL_MATRIX || row->kind == FILL_EMBEDDING ? type : QN_TYPE_F32;
}

static void add_tensor(qn_gguf_writer *w, const tensor_row *row, int layer, qn_type type)
{
    char name[64];
    snprintf(name, sizeof name, row->name, layer);
    int dims = row->ne[2] > 1 ? 3 : row->ne[1] > 1 ? 2 : 1;
    qn_gguf_writer_add_tensor(w, name, row_type(row, type), dims, row->ne);
}

static void write_tensor(qn_gguf_writer *w, const tensor_row *row, qn_type type, qn_test_random *r)
{
    qn_error err = {0};
    int64_t n = row->ne[0];
    int64_t rows = row->ne[1] * row->ne[2];
    qn_type stored = row_type(row, type);
    size_t bytes;
    qn_test_ok(qn_type_row_bytes(stored, n, &bytes, &err), err);
    float values[512];
    uint8_t blocks[512 * sizeof(float)];
    assert_true(n <= 512);
    const qn_quant *quant = qn__quant_get(stored);
    void *tables = quant->make_tables ? quant->make_tables() : NULL;
    /* 1/16 and 1/32 times sqrt(2): 1/sqrt(inputs) of the two widths without a square root */
    float gain = row->gain * (n == 512 ? 0.044194173F : n == 256 ? 0.0625F : 0.125F);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < n; k++) {
            float z = qn_test_normal(r);
            values[k] = row->kind == FILL_NORM        ? 1.0F + row->gain * z
                        : row->kind == FILL_EMBEDDING ? z
                                                      : gain * z;
        }
        quant->encode(values, blocks, n, NULL, tables);
        qn_test_ok(qn_gguf_writer_write(w, blocks, bytes, &err), err);
    }
    free(tables);
}

void qn_test_tiny_write(const char *path, qn_test_tiny_kind kind, qn_type type, int n_layer)
{
    qn_error err = {0};
    qn_gguf_writer *w;
    qn_test_random r = {0x51a0c3d2e4f5b697U + (uint64_t)kind};
    n_layer = n_layer > 0 ? n_layer : layer_count(kind);
    qn_test_ok(qn_gguf_writer_new(&w, &err), err);
    set_metadata(w, kind, n_layer);
    /* Twice over the same list: names and shapes first, then the numbers. */
    for (int pass = 0; pass < 2; pass++) {
        for (int layer = -1; layer < n_layer; layer++) {
            const tensor_row *rows = layer < 0 ? global_rows : layer_rows;
            size_t count = layer < 0 ? N_ROWS(global_rows) : N_ROWS(layer_rows);
            for (size_t i = 0; i < count; i++) {
                if (!(rows[i].kinds >> kind & 1U)) {
                    continue;
                }
                if (pass == 0) {
                    add_tensor(w, &rows[i], layer, type);
                } else {
                    write_tensor(w, &rows[i], type, &r);
                }
            }
        }
        if (pass == 0) {
            qn_test_ok(qn_gguf_writer_open(w, path, &err), err);
        }
    }
    qn_test_ok(qn_gguf_writer_finish(w, &err), err);
    qn_gguf_writer_free(w);
}
