/* candidates.c: the set of candidates: its memory, filling it from logits, putting it in order. */
#include <stdlib.h>

#include "base/error.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "sampler/sampler.h"
#include "sampler/scan.h"

/* Up to this many keys are sorted by insertion. */
#define INSERTION_MAX 48

/* Digits of a key for the radix sort: 3 of the logit (high half), 3 of the id (low half). */
#define DIGIT_BITS 11
#define N_DIGITS   6
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

static unsigned digit_shift(int digit)
{
    static const unsigned char shifts[N_DIGITS] = {0, 11, 22, 32, 43, 54};
    return shifts[digit];
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
    uint64_t *from = keys, *to = spare;
    for (int digit = ids_ascend ? N_DIGITS / 2 : 0; digit < N_DIGITS; digit++) {
        unsigned shift = digit_shift(digit);
        uint64_t mask = shift == 22 ? 0x3ffU : DIGIT_SIZE - 1; /* the id's last digit has 10 bits */
        uint32_t place[DIGIT_SIZE] = {0};
        for (size_t i = 0; i < n; i++) {
            place[from[i] >> shift & mask]++;
        }
        if (place[from[0] >> shift & mask] == n) {
            continue; /* all alike in this digit */
        }
        uint32_t sum = 0;
        for (size_t b = 0; b < DIGIT_SIZE; b++) {
            uint32_t count = place[b];
            place[b] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) {
            to[place[from[i] >> shift & mask]++] = from[i];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) {
        memcpy(keys, from, n * sizeof *keys);
    }
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
    uint64_t *keys = c->work;
    for (size_t i = 0; i < c->size; i++) {
        keys[i] = qn__candidate_key(c->logits[i], c->ids[i]);
    }
    qn__sort_keys(keys, c->size, keys + c->n_max);
    qn__row_take_keys(c, keys, c->size);
}
