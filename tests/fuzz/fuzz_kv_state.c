/*
 * fuzz_kv_state.c: the reader of KV states. The first byte says whether the rest is the body of a
 * state of all sequences or of one; a header that fits is put in front, so that the body is
 * reached.
 */
#include <stdlib.h>
#include <string.h>

#include "memory/internal.h"

static qn_kv *make_store(void)
{
    static qn_kv_layout layout = {
        .n_groups = 2,
        .n_layers = 2,
        .groups = {{QN_WINDOW_NONE, 0}, {QN_WINDOW_STANDARD, 16}},
        .layers = {{.group = 0, .n_head_kv = 1, .d_k = 1, .d_v = 1, .rope = -1},
                   {.group = 1, .n_head_kv = 1, .d_k = 1, .d_v = 0, .rope = -1}},
    };
    qn_kv_config config = {.layout = &layout,
                           .n_ctx = 256,
                           .n_seq_max = 3,
                           .n_ubatch = 64,
                           .type_k = QN_TYPE_F16,
                           .type_v = QN_TYPE_F16};
    qn_kv *kv = NULL;
    return qn__kv_make(&kv, &config, NULL) == QN_OK ? kv : NULL;
}

/* A state with the body `data`. */
static bool make_state(qn_kv *kv, int32_t s, const uint8_t *data, size_t size, qn_buf *out)
{
    if (qn__kv_state_write(kv, s, out, NULL) != QN_OK) {
        return false;
    }
    out->size = QN_KV_STATE_HEADER;
    if (!qn__buf_add(out, data, size)) {
        return false;
    }
    uint64_t sum = qn__kv_state_checksum(out->data + QN_KV_STATE_HEADER, size);
    for (size_t i = 0; i < 8; i++) {
        out->data[24 + i] = (uint8_t)((uint64_t)size >> 8 * i);
        out->data[32 + i] = (uint8_t)(sum >> 8 * i);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_kv *kv = size > 0 ? make_store() : NULL;
    if (!kv) {
        return 0;
    }
    int32_t s = data[0] % 2 ? 1 : -1;
    qn_buf state = {0}, again = {0};
    if (make_state(kv, s, data + 1, size - 1, &state)) {
        qn_status status = qn__kv_state_read(kv, s, state.data, state.size, NULL);
        if (!qn__kv_check(kv, NULL)) {
            abort();
        }
        if (status != QN_OK && qn__kv_seq_pos_max(kv, 1) >= 0) {
            abort(); /* refused, but something was taken */
        }
        if (status == QN_OK && (qn__kv_state_write(kv, s, &again, NULL) != QN_OK ||
                                qn__kv_state_read(kv, s, again.data, again.size, NULL) != QN_OK ||
                                !qn__kv_check(kv, NULL))) {
            abort(); /* what was taken must be as good as what was made here */
        }
        int32_t id = 1, max = qn__kv_seq_pos_max(kv, 1);
        qn_kv_token token = {5, max + 1, 1, &id};
        qn_kv_ubatch ub;
        if (qn__kv_batch_begin(kv, &token, 1, 1, NULL) == QN_OK) {
            while (qn__kv_ubatch_next(kv, &ub)) {
                qn__kv_ubatch_done(kv);
            }
        }
        if (!qn__kv_check(kv, NULL)) {
            abort();
        }
    }
    qn__buf_free(&state);
    qn__buf_free(&again);
    qn__kv_free(kv);
    return 0;
}
