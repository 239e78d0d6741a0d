/*
 * cpu.h: how the CPU device runs a node.
 *
 * A plan turns each node into a qn_cpu_step: the row of the kernel table for its operation, the
 * table of leaf functions for the instruction set, and memory for the step. The thread pool then
 * walks the steps; the work of a step is one or more phases (a barrier between them), each cut into
 * tasks that the workers take from a counter. Which worker runs a task, and how many there are,
 * never changes a result: a task owns the outputs it writes, and sums follow docs/determinism.md.
 *
 * Two layers:
 * - kernels (this file's table, one row an operation): shapes, strides, tasks, workspaces;
 * - leaf functions (rows.h, matmul.h, attend.h): the arithmetic on rows and tiles, one table of
 *   function pointers an instruction set; the scalar table is the definition.
 */
#ifndef QUERN_DEVICE_CPU_CPU_H
#define QUERN_DEVICE_CPU_CPU_H

#include "device/weight.h"
#include "tensor/graph.h"

#define QN_CPU_MAX_PHASES 3

struct qn_cpu_row_fns;     /* rows.h */
struct qn_cpu_matmul_fns;  /* matmul.h */
struct qn_cpu_attend_fns;  /* attend.h */
struct qn_cpu_measure_fns; /* measure.h */

/* One instruction set. */
typedef struct qn_cpu_isa {
    const char *name; /* "scalar", "avx2", "avx512", "neon", "neon-dotprod" */
    const struct qn_cpu_row_fns *rows;
    const struct qn_cpu_matmul_fns *matmul;
    const struct qn_cpu_attend_fns *attend;
    const struct qn_cpu_measure_fns *measure;
} qn_cpu_isa;

/*
 * The instruction set of that name, or the best one that this machine has for NULL. NULL where the
 * name is unknown or the machine lacks it.
 */
const qn_cpu_isa *qn__cpu_isa_find(const char *name);

/* Number i of the instruction sets that this machine has, worst (scalar) first; NULL behind the
 * last. */
const qn_cpu_isa *qn__cpu_isa_at(int32_t i);

struct qn_cpu_kernel;

/* One node, ready to run. */
typedef struct qn_cpu_step {
    const qn_node *node;
    const struct qn_cpu_kernel *kernel;
    const qn_cpu_isa *isa;
    int32_t n_threads;    /* of this run (in prepare: the most of any run), to cut work by */
    int32_t n_phases;     /* set by prepare; 1 unless it says otherwise */
    size_t shared_bytes;  /* set by prepare: workspace of the step, shared by all tasks */
    size_t kept_bytes;    /* set by prepare: workspace that later steps may find as it was left */
    size_t scratch_bytes; /* set by prepare: workspace of each worker */
    void *shared, *kept;  /* given by the plan before a run, aligned to 64 */
    int64_t tile[4];      /* the kernel's own numbers, set by prepare */
} qn_cpu_step;

typedef struct qn_cpu_kernel {
    /* Whether this node's types and shapes can be computed. NULL: all that the builder accepts. */
    bool (*supports)(const qn_node *node);
    /* Fills the step's phases, workspace sizes and tile. NULL: one phase, no workspace. */
    void (*prepare)(qn_cpu_step *step);
    /* Whether the step can use what `before` leaves in the kept workspace, instead of writing it;
     * `before` is the last step that does write there. May change both steps. NULL: never. */
    bool (*reuse)(qn_cpu_step *step, qn_cpu_step *before);
    /* Whether all the step's work is in its last phase, so that this may run beside the last phase
     * of the step before it, where neither reads or writes what the other writes. NULL: never. */
    bool (*beside)(const qn_cpu_step *step);
    /* Number of tasks of a phase; called at the start of the phase of every run, so it may look at
     * the contents of input leaves. */
    int64_t (*count)(const qn_cpu_step *step, int phase);
    /* Does one task. `scratch` is the worker's own workspace, aligned to 64. Never fails. */
    void (*run)(const qn_cpu_step *step, int phase, int64_t task, void *scratch);
} qn_cpu_kernel;

/* The table: one row an operation; views have an empty row and are skipped. Rows are defined in the
 * file of their family (op_rows.c, op_matmul.c, op_attend.c …) and listed in kernels.c. */
extern const qn_cpu_kernel *const qn__cpu_kernels[QN_OP_COUNT];

#endif
