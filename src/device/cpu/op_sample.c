/*
 * op_sample.c: SAMPLE: a task takes one row through its whole program, with the candidates in
 * memory of its own, which stays in the core's cache from stage to stage. Only what the result
 * needs is written. Linked rows are one task, that of the first of them.
 */
#include <string.h>

#include "device/cpu/op.h"
#include "tensor/sample.h"

/* Candidates of a row: ids, logits, weights, two words of work each. */
static size_t row_bytes(int64_t n)
{
    return 3 * qn__align_up((size_t)n * 4, 64) + qn__align_up((size_t)n * 2 * sizeof(uint64_t), 64);
}

/* Few rows: a place for each row, else one for each worker. */
static void prepare_sample(qn_cpu_step *step)
{
    size_t bytes = row_bytes(step->node->src[0]->ne[0]);
    int64_t n_rows = step->node->ne[1];
    if (n_rows < step->n_threads) {
        step->shared_bytes = (size_t)n_rows * bytes;
    } else {
        step->scratch_bytes = bytes;
    }
}

static int64_t count_sample(const qn_cpu_step *step, int phase)
{
    (void)phase;
    return step->node->ne[1];
}

static qn_candidates place_row(uint8_t *memory, size_t n)
{
    size_t array = qn__align_up(n * 4, 64);
    return (qn_candidates){.ids = (void *)memory,
                           .logits = (void *)(memory + array),
                           .weights = (void *)(memory + 2 * array),
                           .work = (void *)(memory + 3 * array),
                           .n_max = n,
                           .selected = -1};
}

static void write_result(int32_t *out, const qn_candidates *c, size_t n_keep, size_t n_back)
{
    bool picked = c->selected >= 0 && (size_t)c->selected < c->size;
    size_t n = c->size < n_back ? c->size : n_back;
    n = n < n_keep ? n : n_keep;
    out[QN_SAMPLE_TOKEN] = picked ? c->ids[c->selected] : QN_TOKEN_NONE;
    out[QN_SAMPLE_SIZE] = (int32_t)c->size;
    out[QN_SAMPLE_SELECTED] = picked ? (int32_t)c->selected : -1;
    out[QN_SAMPLE_FLAGS] =
        (c->sorted ? QN_SAMPLE_SORTED : 0) | (c->has_weights ? QN_SAMPLE_HAS_WEIGHTS : 0);
    out[QN_SAMPLE_TOTAL_LOW] = (int32_t)(uint32_t)c->total;
    out[QN_SAMPLE_TOTAL_HIGH] = (int32_t)(uint32_t)(c->total >> 32);
    int32_t *arrays = out + QN_SAMPLE_RESULT_HEAD;
    memcpy(arrays, c->ids, n * 4);
    memcpy(arrays + n_keep, c->logits, n * 4);
    if (c->has_weights) {
        memcpy(arrays + 2 * n_keep, c->weights, n * 4);
    }
}

static int32_t *program_of(const qn_node *node, int64_t row)
{
    return (int32_t *)node->src[1]->data + row * node->src[1]->ne[0];
}

/* All stages, in order. previous: the carry of the row before, NULL for none. */
static void run_stages(const qn_sample_table *table, int32_t *program, const int32_t *previous,
                       int32_t *carry, qn_candidates *c)
{
    int32_t *word = program + QN_SAMPLE_PROGRAM_HEAD;
    memset(carry, 0, QN_SAMPLE_CARRY_WORDS * sizeof *carry);
    for (int32_t i = 0; i < program[QN_SAMPLE_N_STAGES]; i++) {
        const qn_sample_stage *stage = table->stages[word[0]];
        int32_t *params = word + 2;
        if (stage->carried) {
            memcpy(carry, previous ? previous : params, QN_SAMPLE_CARRY_WORDS * sizeof *carry);
            stage->carried(params, carry, c);
        } else {
            stage->row(params, c);
        }
        word = params + word[1];
    }
}

static void run_row(const qn_node *node, int64_t row, uint8_t *memory)
{
    const qn_node *logits = node->src[0];
    const qn_sample_table *table = node->params.sample.table;
    int32_t *program = program_of(node, row), *results = node->data;
    int32_t *result = results + row * node->ne[0], *carry = result + QN_SAMPLE_CARRY;
    const int32_t *previous = NULL;
    if (program[QN_SAMPLE_PREVIOUS] > 0) {
        previous = results + (program[QN_SAMPLE_PREVIOUS] - 1) * node->ne[0] + QN_SAMPLE_CARRY;
    }
    qn_candidates c = place_row(memory, (size_t)logits->ne[0]);
    const qn_row_at at = {program[QN_SAMPLE_COLUMN], 0, 0};
    const float *column = qn__row(logits, at);
    table->begin(&c, column, c.n_max, program);
    run_stages(table, program, previous, carry, &c);
    int32_t *check = program[QN_SAMPLE_CHECK] > 0 ? program + program[QN_SAMPLE_CHECK] : NULL;
    if (check && table->stages[check[0]]->refuses(check + 2, &c)) {
        table->fill(&c, column, c.n_max);
        table->stages[check[0]]->row(check + 2, &c);
        run_stages(table, program, previous, carry, &c);
    }
    write_result(result, &c, (size_t)node->params.sample.n_keep, (size_t)program[QN_SAMPLE_N_BACK]);
}

static void run_sample(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    (void)phase;
    if (program_of(node, task)[QN_SAMPLE_PREVIOUS] > 0) {
        return; /* part of another task */
    }
    uint8_t *memory = step->scratch_bytes
                          ? scratch
                          : (uint8_t *)step->shared + (size_t)task * row_bytes(node->src[0]->ne[0]);
    int64_t row = task;
    do {
        run_row(node, row, memory);
        row = program_of(node, row)[QN_SAMPLE_NEXT];
    } while (row > 0);
}

const qn_cpu_kernel qn__kernel_sample = {
    .prepare = prepare_sample,
    .count = count_sample,
    .run = run_sample,
};
