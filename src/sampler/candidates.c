/* candidates.c: the set of candidates: its memory, filling it from logits, putting it in order. */
#include <stdlib.h>

#include "base/error.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "sampler/sampler.h"
#include "sampler/scan.h"

/* Up to this many keys are sorted by insertion. */
#define INSERTION_MAX 96

/* Digits of half a key for the radix sort: 11, 11 and 10 bits. */
#define DIGIT_BITS 11
#define N_DIGITS   3
#define DIGIT_SIZE (1U << DIGIT_BITS)

qn_candidates *qn_candidates_make(size_t n_max, qn_error *err)
{
    qn_candidates *c = qn__calloc(1, sizeof *c);
    size_t words;
    if (!c || n_max > INT32_MAX || !qn__mul_size(n_max, 2, &words)) {
        free(c);
        qn__error_memory(err, "candidates");
        return NULL;
    }
    size_t room = n_max ? n_max : 1; /* so that no array is NULL */
    c->ids = qn__calloc(room, sizeof *c->ids);
    c->logits = qn__calloc(room, sizeof *c->logits);
    c->weights = qn__calloc(room, sizeof *c->weights);
    c->work = qn__calloc(words ? words : 1, sizeof *c->work);
    c->n_max = n_max;
    c->selected = -1;
    if (!c->ids || !c->logits || !c->weights || !c->work) {
        qn_candidates_free(c);
        qn__error_memory(err, "candidates");
        return NULL;
    }
    return c;
}

void qn_candidates_free(qn_candidates *c)
{
    if (!c) {
        return;
    }
    free(c->ids);
    free(c->logits);
    free(c->weights);
    free(c->work);
    free(c);
}

void qn_candidates_fill(qn_candidates *c, const float *logits, size_t n)
{
    c->size = n < c->n_max ? n : c->n_max;
    qn__scan()->clean(logits, c->size, c->logits, c->ids);
    c->selected = -1;
    c->total = 0;
    c->sorted = c->has_weights = false;
    c->row = logits;
    c->n_row = n;
}

uint64_t qn__candidate_key(float logit, int32_t id)
{
    uint32_t bits = qn__float_bits(logit + 0.0F); /* -0 becomes +0 */
    /* ascending bits for descending logits: negative ones keep theirs, others are turned over */
    uint32_t down = (bits & 0x80000000U) ? bits : ~bits & 0x7fffffffU;
    return (uint64_t)down << 32 | (uint32_t)id;
}

float qn__key_logit(uint64_t key)
{
    uint32_t down = (uint32_t)(key >> 32);
    return qn__bits_float((down & 0x80000000U) ? down : ~down & 0x7fffffffU);
}

static void insertion_sort(uint64_t *keys, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j > 0 && keys[j - 1] > key; j--) {
            keys[j] = keys[j - 1];
        }
        keys[j] = key;
    }
}

/* Moves keys by the digit above `shift`, of which place[] tells where each value begins. */
static void move_keys(const uint64_t *from, size_t n, unsigned shift, uint32_t *place, uint64_t *to)
{
    for (size_t i = 0; i < n; i++) {
        to[place[from[i] >> shift & (DIGIT_SIZE - 1)]++] = from[i];
    }
}

/* Sorts by the 32 bits above `shift`, keeping the order of equal ones. */
static void sort_half(uint64_t *keys, size_t n, uint64_t *spare, unsigned shift)
{
    uint32_t places[N_DIGITS][DIGIT_SIZE] = {{0}}, sums[N_DIGITS] = {0};
    for (size_t i = 0; i < n; i++) {
        uint32_t half = (uint32_t)(keys[i] >> shift);
        places[0][half & (DIGIT_SIZE - 1)]++;
        places[1][half >> DIGIT_BITS & (DIGIT_SIZE - 1)]++;
        places[2][half >> 2 * DIGIT_BITS]++;
    }
    for (size_t b = 0; b < DIGIT_SIZE; b++) {
        for (int digit = 0; digit < N_DIGITS; digit++) {
            uint32_t count = places[digit][b];
            places[digit][b] = sums[digit];
            sums[digit] += count;
        }
    }
    move_keys(keys, n, shift, places[0], spare);
    move_keys(spare, n, shift + DIGIT_BITS, places[1], keys);
    for (size_t i = 0; i < n; i++) { /* the last digit ends with the half */
        uint32_t half = (uint32_t)(keys[i] >> shift);
        spare[places[2][half >> 2 * DIGIT_BITS]++] = keys[i];
    }
    memcpy(keys, spare, n * sizeof *keys);
}

void qn__sort_keys(uint64_t *keys, size_t n, uint64_t *spare)
{
    if (n <= INSERTION_MAX) {
        insertion_sort(keys, n);
        return;
    }
    bool ids_ascend = true;
    for (size_t i = 1; i < n && ids_ascend; i++) {
        ids_ascend = (uint32_t)keys[i - 1] < (uint32_t)keys[i];
    }
    if (!ids_ascend) {
        sort_half(keys, n, spare, 0);
    }
    sort_half(keys, n, spare, 32);
}

void qn__row_take_keys(qn_candidates *c, const uint64_t *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c->logits[i] = qn__key_logit(keys[i]);
        c->ids[i] = (int32_t)(uint32_t)keys[i];
    }
    c->size = n;
    c->sorted = true;
    c->has_weights = false;
}

void qn_candidates_sort(qn_candidates *c)
{
    if (c->sorted) {
        return;
    }
    qn__row_best_keys(c, c->size);
    qn__row_take_keys(c, c->work, c->size);
}
