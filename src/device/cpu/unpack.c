/*
 * unpack.c: single rows of the packed form, as the file has them: for embeddings that are also the
 * output matrix, so that there is no second copy of them.
 */
#include "device/cpu/pack.h"
#include "quant/blocks.h"

enum { QUADS = 8 }; /* of a block of 32 */

/* Formats whose levels lie as words: a block of the file is its scales, then its levels. */
static bool has_words(qn_type type)
{
    return type == QN_TYPE_Q4_0 || type == QN_TYPE_Q4_1 || type == QN_TYPE_Q8_0 ||
           type == QN_TYPE_IQ4_NL || type == QN_TYPE_MXFP4;
}

bool qn__cpu_unpack_supports(qn_type type)
{
    return type == QN_TYPE_F32 || type == QN_TYPE_F16 || type == QN_TYPE_BF16 ||
           type == QN_TYPE_Q6_K || has_words(type);
}

/* A chunk of n blocks. */
static void take_words(qn_type type, const uint8_t *chunk, int64_t n, int row, uint8_t *out)
{
    const size_t low_bytes = qn__pack_layout(type).low;
    const size_t block_bytes = qn_type_get_info(type)->block_bytes;
    const size_t header = block_bytes - low_bytes / QN_PACK_ROWS;
    const size_t size = header < 2 ? header : 2; /* of a scale */
    for (int64_t b = 0; b < n; b++, out += block_bytes) {
        const qn_pack_place at = qn__pack_place(type, b);
        for (size_t i = 0; i < header; i += size) {
            memcpy(out + i, chunk + at.scale + QN_PACK_ROWS * i + size * (size_t)row, size);
        }
        for (size_t v = 0; v < low_bytes / 64; v++) {
            memcpy(out + header + 4 * v, chunk + at.low + 64 * v + 4 * (size_t)row, 4);
        }
    }
}

static void take_q6_k(const uint8_t *chunk, int row, qn_block_q6_k *out)
{
    memset(out, 0, sizeof *out);
    for (int b = 0; b < 8; b++) {
        const qn_pack_place at = qn__pack_place(QN_TYPE_Q6_K, b);
        const uint8_t *low = chunk + at.low, *high = chunk + at.high, *sub = chunk + at.sub;
        for (int k = 0; k < QN_PACK_BLOCK; k++) {
            const int quad = k / 4, byte = 4 * row + k % 4;
            const int four = low[64 * (quad % 4) + byte] >> (quad / 4 * 4) & 15;
            const int two = high[64 * (quad % 2) + byte] >> (quad / 2 * 2) & 3;
            out->ql[64 * (b / 4) + 32 * (b % 2) + k] |= (uint8_t)(four << (b % 4 / 2 * 4));
            out->qh[32 * (b / 4) + k] |= (uint8_t)(two << (b % 4 * 2));
        }
        for (int i = 0; i < 2; i++) {
            out->scales[2 * b + i] = (int8_t)sub[QN_PACK_ROWS * i + row];
        }
    }
    memcpy(&out->d, chunk + 2 * row, sizeof out->d);
}

/* Floats, `step` bytes (one value, or a pair of them) at a time. */
static void take_floats(qn_type type, const uint8_t *chunk, int64_t n, int row, uint8_t *out)
{
    const size_t step = type == QN_TYPE_F16 ? 2 : 4;
    const size_t bytes = (size_t)n * (type == QN_TYPE_F32 ? 4 : 2);
    for (size_t at = 0; at < bytes; at += step) {
        const size_t rest = bytes - at < step ? bytes - at : step;
        memcpy(out + at, chunk + at * QN_PACK_ROWS + (size_t)row * step, rest);
    }
}

void qn__cpu_unpack_row(qn_type type, const int64_t ne[4], const void *packed, int64_t row,
                        void *out)
{
    const qn_type_info *info = qn_type_get_info(type);
    const int64_t groups = qn__div_up(ne[1], QN_PACK_ROWS), in_plane = row % ne[1];
    const int64_t group = row / ne[1] * groups + in_plane / QN_PACK_ROWS;
    const int lane = (int)(in_plane % QN_PACK_ROWS);
    const uint8_t *chunk =
        (const uint8_t *)packed + (size_t)group * qn__pack_group_bytes(type, ne[0]);
    uint8_t *to = out;
    for (int64_t k = 0; k < ne[0]; k += QN_PACK_CHUNK) {
        const int64_t n = qn__min_i64(ne[0] - k, QN_PACK_CHUNK);
        if (has_words(type)) {
            take_words(type, chunk, n / QN_PACK_BLOCK, lane, to);
        } else if (type == QN_TYPE_Q6_K) {
            take_q6_k(chunk, lane, (qn_block_q6_k *)(void *)to);
        } else {
            take_floats(type, chunk, n, lane, to);
        }
        chunk += qn__pack_chunk_bytes(type, n);
        to += (size_t)(n / info->block_values) * info->block_bytes;
    }
}
