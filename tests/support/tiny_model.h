/*
 * tiny_model.h: small models that tests make for themselves: seeded weights, the same bytes on
 * every machine, with a vocabulary in which every byte is a token, so that any text can be read.
 */
#ifndef QUERN_TESTS_TINY_MODEL_H
#define QUERN_TESTS_TINY_MODEL_H

#include <quern/type.h>

typedef enum qn_test_tiny_kind {
    QN_TEST_TINY_LLAMA,    /* 2 layers, tied output */
    QN_TEST_TINY_GEMMA3,   /* 6 layers: five with a window of 16, one full; Q and K norms */
    QN_TEST_TINY_QWEN3MOE, /* 2 layers, 8 experts of which 3 */
    QN_TEST_TINY_COUNT
} qn_test_tiny_kind;

#define QN_TEST_TINY_VOCAB 288

/* Name of a kind: its architecture. */
const char *qn_test_tiny_name(qn_test_tiny_kind kind);

/*
 * Writes the model to `path`. Matrices have the given type, all else is F32. n_layer 0: as above.
 * Fails the running test where it cannot.
 */
void qn_test_tiny_write(const char *path, qn_test_tiny_kind kind, qn_type type, int n_layer);

#endif
