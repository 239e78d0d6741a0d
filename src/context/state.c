/*
 * state.c: saving and loading what the sequences hold. The memory room writes and reads the state
 * itself; here it is put into a file, with a list of tokens and a checksum over all.
 *
 * File, little-endian: 8 bytes "quernsta", u32 version, u32 scope (0 whole, 1 one sequence), u64
 * number of tokens, u64 bytes of the state; the tokens, i32 each; the state; u64 checksum of all
 * bytes before it.
 */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "context/state.h"

static const char file_magic[8] = "quernsta"; /* without the NUL */

#define FILE_VERSION  1
#define HEADER_BYTES  32
#define CHECKSUM_SIZE 8

static uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t load_u64(const uint8_t *p)
{
    return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

static void store_u64(uint8_t *p, uint64_t x)
{
    for (int i = 0; i < 8; i++) {
        p[i] = (uint8_t)(x >> 8 * i);
    }
}

/* Words of 8 bytes, little-endian, the last one filled up with zeros. Every step is one to one, so
 * that no change of a single word can go unseen. */
uint64_t qn__state_checksum(const uint8_t *data, size_t n)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ n;
    for (size_t i = 0; i < n; i += 8) {
        uint8_t last[8] = {0};
        const uint8_t *p = data + i;
        if (n - i < 8) {
            memcpy(last, p, n - i);
            p = last;
        }
        h = (h ^ load_u64(p)) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h;
}

qn_status qn__state_parse(const uint8_t *data, size_t size, int32_t n_vocab, qn_state_file *out,
                          qn_error *err)
{
    if (size < HEADER_BYTES + CHECKSUM_SIZE || memcmp(data, file_magic, sizeof file_magic) != 0) {
        return qn__error(err, QN_ERR_FORMAT, "not a state file");
    }
    if (load_u32(data + 8) != FILE_VERSION) {
        return qn__error(err, QN_ERR_FORMAT, "state file of version %u, this build reads %d",
                         load_u32(data + 8), FILE_VERSION);
    }
    uint32_t scope = load_u32(data + 12);
    uint64_t n_tokens = load_u64(data + 16), n_state = load_u64(data + 24);
    uint64_t body = size - HEADER_BYTES - CHECKSUM_SIZE;
    if (scope > 1 || n_tokens > body / 4 || n_state != body - 4 * n_tokens) {
        return qn__error(err, QN_ERR_FORMAT, "state file is damaged: its sizes do not fit");
    }
    if (load_u64(data + size - CHECKSUM_SIZE) != qn__state_checksum(data, size - CHECKSUM_SIZE)) {
        return qn__error(err, QN_ERR_FORMAT, "state file is damaged: wrong checksum");
    }
    const uint8_t *tokens = data + HEADER_BYTES;
    for (size_t i = 0; i < n_tokens; i++) {
        if (load_u32(tokens + 4 * i) >= (uint32_t)n_vocab) {
            return qn__error(err, QN_ERR_FORMAT, "token %zu of the state file is %d, not 0 to %d",
                             i, (int32_t)load_u32(tokens + 4 * i), n_vocab - 1);
        }
    }
    *out = (qn_state_file){.one_sequence = scope == 1,
                           .tokens = tokens,
                           .n_tokens = (size_t)n_tokens,
                           .state = tokens + 4 * n_tokens,
                           .n_state = (size_t)n_state};
    return QN_OK;
}

int32_t qn__state_token(const qn_state_file *file, size_t i)
{
    return (int32_t)load_u32(file->tokens + 4 * i);
}

static qn_status check_seq(const qn_context *ctx, int32_t seq, qn_error *err)
{
    if (seq >= ctx->options.n_seq_max) {
        return qn__error(err, QN_ERR_ARGUMENT, "sequence id %d is not below n_seq_max = %d", seq,
                         ctx->options.n_seq_max);
    }
    return QN_OK;
}

size_t qn_context_state_size(const qn_context *ctx, int32_t seq)
{
    return seq < ctx->options.n_seq_max ? qn__kv_state_size(ctx->kv, seq) : 0;
}

qn_status qn_context_state_get(const qn_context *ctx, int32_t seq, void *bytes, size_t capacity,
                               size_t *written, qn_error *err)
{
    qn_buf state = {0};
    *written = 0;
    qn_status status = check_seq(ctx, seq, err);
    if (status == QN_OK) {
        status = qn__kv_state_write(ctx->kv, seq, &state, err);
    }
    if (status == QN_OK && state.size > capacity) {
        status = qn__error(err, QN_ERR_ARGUMENT, "the state has %zu bytes, there is room for %zu",
                           state.size, capacity);
    }
    if (status == QN_OK) {
        memcpy(bytes, state.data, state.size);
        *written = state.size;
    }
    qn__buf_free(&state);
    return status;
}

qn_status qn_context_state_set(qn_context *ctx, int32_t seq, const void *bytes, size_t n,
                               qn_error *err)
{
    qn_status status = check_seq(ctx, seq, err);
    return status == QN_OK ? qn__kv_state_read(ctx->kv, seq, bytes, n, err) : status;
}

/* Header and tokens, with room for what follows. */
static bool add_head(qn_buf *buf, int32_t seq, const int32_t *tokens, size_t n_tokens,
                     size_t state_bytes)
{
    uint8_t head[HEADER_BYTES] = {0};
    memcpy(head, file_magic, sizeof file_magic);
    store_u64(head + 8, FILE_VERSION | (uint64_t)(seq >= 0) << 32);
    store_u64(head + 16, n_tokens);
    store_u64(head + 24, state_bytes);
    qn__buf_add(buf, head, sizeof head);
    for (size_t i = 0; i < n_tokens; i++) {
        uint8_t bytes[8];
        store_u64(bytes, (uint32_t)tokens[i]);
        qn__buf_add(buf, bytes, 4);
    }
    return qn__buf_reserve(buf, state_bytes);
}

static qn_status write_file(const char *path, const qn_buf *content, qn_error *err)
{
    qn_file_writer *w = NULL;
    uint8_t checksum[CHECKSUM_SIZE];
    store_u64(checksum, qn__state_checksum(content->data, content->size));
    qn_status status = qn__file_writer_open(&w, path, err);
    if (status == QN_OK) {
        status = qn__file_writer_write(w, content->data, content->size, err);
    }
    if (status == QN_OK) {
        status = qn__file_writer_write(w, checksum, sizeof checksum, err);
    }
    if (status == QN_OK) {
        status = qn__file_writer_commit(w, err);
    }
    qn__file_writer_close(w);
    return status;
}

qn_status qn_context_state_save(const qn_context *ctx, int32_t seq, const char *path,
                                const int32_t *tokens, size_t n_tokens, qn_error *err)
{
    qn_buf content = {0};
    qn_status status = check_seq(ctx, seq, err);
    for (size_t i = 0; status == QN_OK && i < n_tokens; i++) {
        if (tokens[i] < 0 || tokens[i] >= ctx->hparams->n_vocab) {
            status = qn__error(err, QN_ERR_ARGUMENT, "token %zu to save is %d, not 0 to %d", i,
                               tokens[i], ctx->hparams->n_vocab - 1);
        }
    }
    size_t state_bytes = status == QN_OK ? qn__kv_state_size(ctx->kv, seq) : 0;
    if (status == QN_OK && !add_head(&content, seq, tokens, n_tokens, state_bytes)) {
        status = qn__error_memory(err, "state");
    }
    size_t before = content.size;
    if (status == QN_OK) {
        status = qn__kv_state_write(ctx->kv, seq, &content, err);
    }
    if (status == QN_OK && content.size - before != state_bytes) {
        status = qn__error(err, QN_ERR_COMPUTE, "the state has %zu bytes instead of %zu",
                           content.size - before, state_bytes);
    }
    if (status == QN_OK) {
        status = write_file(path, &content, err);
    }
    qn__buf_free(&content);
    return status;
}

qn_status qn_context_state_load(qn_context *ctx, int32_t seq, const char *path, int32_t *tokens,
                                size_t capacity, size_t *n_tokens, qn_error *err)
{
    qn_file file = {0};
    qn_state_file parsed;
    *n_tokens = 0;
    qn_status status = check_seq(ctx, seq, err);
    if (status != QN_OK) {
        return status;
    }
    status = qn__file_open(&file, path, true, err);
    if (status != QN_OK) {
        return status; /* the message names the path */
    }
    status = qn__state_parse(file.data, file.size, ctx->hparams->n_vocab, &parsed, err);
    if (status == QN_OK && parsed.one_sequence != (seq >= 0)) {
        status = qn__error(err, QN_ERR_FORMAT, "holds %s",
                           parsed.one_sequence ? "one sequence, not a whole context"
                                               : "a whole context, not one sequence");
    }
    if (status == QN_OK && tokens && parsed.n_tokens > capacity) {
        status = qn__error(err, QN_ERR_LIMIT, "holds %zu tokens, there is room for %zu",
                           parsed.n_tokens, capacity);
    }
    if (status == QN_OK) {
        status = qn__kv_state_read(ctx->kv, seq, parsed.state, parsed.n_state, err);
    }
    if (status != QN_OK) {
        qn__error_prefix(err, "%s", path);
        goto done;
    }
    *n_tokens = parsed.n_tokens;
    for (size_t i = 0; tokens && i < parsed.n_tokens; i++) {
        tokens[i] = qn__state_token(&parsed, i);
    }
done:
    qn__file_close(&file);
    return status;
}
