/*
 * sample.h: the SAMPLE operation: rows of logits pass through chains of samplers inside the graph.
 *
 * A row brings its own program, an input: which samplers, in which order, with which settings and
 * random numbers. So rows of any chains are one node, and a plan does not depend on what is sampled
 * how: attaching another chain makes no new plan. What a sampler does to a row is a row function in
 * a table that the graph's builder hands in; this room and the devices know only its shape. The
 * definition is the function that also runs outside of graphs, so both give the same token.
 *
 * A program, I32 words at places that are multiples of 8 bytes:
 *   column of the row in the logits; number of stages; how many candidates are handed back; the row
 *   before it in its sequence, counted from 1, and the row behind it, 0 for none; where in the
 *   program the check stands, 0 for none;
 *   then for each stage: its index in the table; words of its parameters, an even number; they.
 * A result, I32 words: the picked token, -1 for none; candidates left; index of the picked one, -1;
 *   flags; low and high word of the sum of weights; the carry; then n_keep ids, n_keep logits (F32
 *   bits) and n_keep weights, of which those handed back are filled in: the first min(left, the
 *   program's number) of each.
 *
 * The check is one more stage, behind the others: if it refuses what they picked, the row begins
 * anew: with a clean copy of the logits, which the check's row function changes first, and the same
 * parameters and carry. The second pick is final.
 *
 * One stage of a program may carry: it learns from what it picks, and the next row of its sequence
 * begins with what it knows then. Such rows are linked with each other (only they are) and run in
 * order, the first with the carry that its parameters begin with, any other with the one that the
 * row before it left. Programs without a stage that carries leave a carry of zeroes.
 */
#ifndef QUERN_TENSOR_SAMPLE_H
#define QUERN_TENSOR_SAMPLE_H

#include <quern/sampler.h>

enum {
    QN_SAMPLE_COLUMN,
    QN_SAMPLE_N_STAGES,
    QN_SAMPLE_N_BACK,
    QN_SAMPLE_PREVIOUS, /* counted from 1 */
    QN_SAMPLE_NEXT,
    QN_SAMPLE_CHECK,
    QN_SAMPLE_PROGRAM_HEAD
};

#define QN_SAMPLE_CARRY_WORDS 6

enum {
    QN_SAMPLE_TOKEN,
    QN_SAMPLE_SIZE,
    QN_SAMPLE_SELECTED,
    QN_SAMPLE_FLAGS,
    QN_SAMPLE_TOTAL_LOW,
    QN_SAMPLE_TOTAL_HIGH,
    QN_SAMPLE_CARRY,
    QN_SAMPLE_RESULT_HEAD = QN_SAMPLE_CARRY + QN_SAMPLE_CARRY_WORDS
};

enum { QN_SAMPLE_SORTED = 1, QN_SAMPLE_HAS_WEIGHTS = 2 };

/* One kind of sampler: transforms a row of candidates, or picks. The same function as outside of
 * graphs; may use c->work, allocates nothing, depends on nothing but its arguments, and leaves the
 * parameters as they are. They may hold addresses of what lives as long as the chain is attached
 * and is at rest, or this row's alone, while the graph runs. */
typedef struct qn_sample_stage {
    const char *name;
    void (*row)(void *params, qn_candidates *c);
    /* Instead of `row`, for one that carries; `carry` is aligned to 4. */
    void (*carried)(void *params, int32_t *carry, qn_candidates *c);
    /* Of one that can be a check: whether the pick is refused, or there is none. */
    bool (*refuses)(void *params, const qn_candidates *c);
    /* What is known of its work beforehand, so that not all of a row has to be copied. One of these
     * or none: it changes the logits of no others than these n ids, which ascend; it keeps the best
     * so many, and what it gives depends on no others. */
    const int32_t *(*names)(const void *params, size_t *n);
    size_t (*keeps)(const void *params);
} qn_sample_stage;

typedef struct qn_sample_table {
    /* Candidates 0..n-1 with a clean copy of their logits. */
    void (*fill)(qn_candidates *c, const float *logits, size_t n);
    /* For a program that runs next: the same, or only those that its first stages cannot drop. */
    void (*begin)(qn_candidates *c, const float *logits, size_t n, const int32_t *program);
    const qn_sample_stage *const *stages;
    int32_t n_stages;
} qn_sample_table;

#endif
