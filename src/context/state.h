/* state.h: the parts of a state file, for state.c, its tests and its fuzz target. */
#ifndef QUERN_CONTEXT_STATE_H
#define QUERN_CONTEXT_STATE_H

#include "context/context.h"

typedef struct qn_state_file {
    bool one_sequence;
    const uint8_t *tokens; /* n_tokens * 4 bytes, little-endian; all below n_vocab */
    size_t n_tokens;
    const uint8_t *state; /* for qn__kv_state_read */
    size_t n_state;
} qn_state_file;

/* Checks a whole file but for the state inside; `out` points into `data`. */
qn_status qn__state_parse(const uint8_t *data, size_t size, int32_t n_vocab, qn_state_file *out,
                          qn_error *err);
int32_t qn__state_token(const qn_state_file *file, size_t i);
uint64_t qn__state_checksum(const uint8_t *data, size_t n);

#endif
