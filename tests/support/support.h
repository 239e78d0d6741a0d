/*
 * support.h: what the test programs share. Include it first: it brings cmocka with its needs.
 *
 * Recorded data outside the project are found through qn_test_shared(); a test that needs them and
 * does not find them ends with qn_test_skip("…"), which prints one line and counts as skipped.
 */
#ifndef QUERN_TESTS_SUPPORT_H
#define QUERN_TESTS_SUPPORT_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/base.h>

/* Path of a file in the recorded data ("archs/llama.gguf"), or NULL where that folder or file is
 * absent. The string is valid until 16 further calls. */
const char *qn_test_shared(const char *name);

/* Path of a file in tests/data; must exist. Same lifetime. */
const char *qn_test_own(const char *name);

/* Path of a real model in the user's cache folder as tools/fetch_model.sh leaves it ("smollm2" or
 * "gemma3"), or NULL. Same lifetime. */
const char *qn_test_real_model(const char *name);

/* A fresh path in the temporary folder for a file that the test removes. Same lifetime. */
const char *qn_test_temporary(const char *suffix);

/* Reads a whole file; fails the test where it cannot. The block has a NUL behind it; free() it. */
uint8_t *qn_test_read(const char *path, size_t *size);

/* QN_TEST_LIGHT is 1 under the sanitizers and for another processor, which is emulated, and 0
 * otherwise: a test whose cases would take minutes there goes through fewer of them. */

/* Prints "skipped: <why>" and ends this test as skipped. */
#define qn_test_skip(...)                                                                          \
    do {                                                                                           \
        printf("skipped: " __VA_ARGS__);                                                           \
        printf("\n");                                                                              \
        skip();                                                                                    \
    } while (0)

/* Asserts QN_OK and prints the message of `err` where it is not. */
#define qn_test_ok(call, err)                                                                      \
    do {                                                                                           \
        qn_status qn_test_status_ = (call);                                                        \
        if (qn_test_status_ != QN_OK) {                                                            \
            fail_msg("%s: %s: %s", #call, qn_status_name(qn_test_status_), (err).message);         \
        }                                                                                          \
    } while (0)

/* Deterministic numbers for tests: xorshift, uniform bits; normal by sum of uniforms. */
typedef struct qn_test_random {
    uint64_t state;
} qn_test_random;
uint32_t qn_test_bits(qn_test_random *r);
float qn_test_uniform(qn_test_random *r, float low, float high);
float qn_test_normal(qn_test_random *r);

/* sum((a - b)^2) / sum(b^2). */
double qn_test_nmse(const float *a, const float *b, size_t n);

#endif
