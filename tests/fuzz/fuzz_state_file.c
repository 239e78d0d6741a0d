/* fuzz_state_file.c: the head of state files. The checksum is made to fit, so that the rest is
 * reached. */
#include <stdlib.h>
#include <string.h>

#include "context/state.h"

#define CHECKSUM_SIZE 8
#define N_VOCAB       1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    qn_state_file file;
    if (!copy) {
        return 0;
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    if (size >= CHECKSUM_SIZE) {
        uint64_t sum = qn__state_checksum(copy, size - CHECKSUM_SIZE);
        for (size_t i = 0; i < CHECKSUM_SIZE; i++) {
            copy[size - CHECKSUM_SIZE + i] = (uint8_t)(sum >> 8 * i);
        }
    }
    if (qn__state_parse(copy, size, N_VOCAB, &file, NULL) == QN_OK) {
        for (size_t i = 0; i < file.n_tokens; i++) {
            if (qn__state_token(&file, i) < 0 || qn__state_token(&file, i) >= N_VOCAB) {
                abort();
            }
        }
        if (file.state < copy || file.state + file.n_state + CHECKSUM_SIZE != copy + size) {
            abort();
        }
    }
    free(copy);
    return 0;
}
