/*
 * program.c: the steps of a plan on the CPU, and the walk over them.
 *
 * The pool asks for one job after the other: a job is a phase of a step, or the last phases of some
 * steps that have nothing to do with each other (query, key and value; gate and up), so that the
 * workers meet less often. Jobs of one task are done on the spot by the worker that asks, so that
 * the others do not wait twice for something small.
 */
#include <stdlib.h>

#include "base/error.h"
#include "device/cpu/cpu_device.h"

enum { MAX_BESIDE = 4 }; /* steps of a job */

struct qn_program {
    qn_cpu_device *device;
    qn_cpu_step *steps;
    int32_t n_steps;
    size_t kept_bytes;    /* of the workspace, these come first */
    size_t shared_bytes;  /* of the largest step */
    size_t scratch_bytes; /* of the hungriest step, each worker */

    /* Of the run that is going on. */
    const qn_abort *abort;
    uint8_t *workspace;
    int32_t step, phase;         /* of the job, or of its first step */
    int64_t n_tasks[MAX_BESIDE]; /* of its steps */
    bool aborted;

    int32_t *n_beside; /* [n_steps]: how many steps from this one on run as one job; 0: not known */
};

/* Each part of the workspace is as large as the hungriest step asks for. */
static void count_workspace(qn_program *p, const qn_cpu_step *step)
{
    const size_t kept = qn__align_up(step->kept_bytes, 64);
    const size_t shared = qn__align_up(step->shared_bytes, 64);
    const size_t scratch = qn__align_up(step->scratch_bytes, 64);
    p->kept_bytes = kept > p->kept_bytes ? kept : p->kept_bytes;
    p->shared_bytes = shared > p->shared_bytes ? shared : p->shared_bytes;
    p->scratch_bytes = scratch > p->scratch_bytes ? scratch : p->scratch_bytes;
}

qn_status qn__cpu_compile(qn_device *device, qn_node *const *nodes, int32_t n_nodes,
                          qn_program **out, size_t *workspace, qn_error *err)
{
    qn_cpu_device *cpu = (qn_cpu_device *)device;
    qn_program *p = qn__calloc(1, sizeof *p);
    if (!p || !(p->steps = qn__calloc((size_t)n_nodes + 1, sizeof *p->steps)) ||
        !(p->n_beside = qn__calloc((size_t)n_nodes + 1, sizeof *p->n_beside))) {
        qn__cpu_program_free(p);
        return qn__error_memory(err, "program");
    }
    int32_t n_threads = qn__pool_n_threads(cpu->pool);
    qn_cpu_step *keeper = NULL; /* the last step that writes the kept workspace */
    p->device = cpu;
    p->n_steps = n_nodes;
    for (int32_t i = 0; i < n_nodes; i++) {
        qn_cpu_step *step = &p->steps[i];
        *step = (qn_cpu_step){.node = nodes[i],
                              .kernel = qn__cpu_kernels[nodes[i]->op],
                              .isa = cpu->isa,
                              .n_threads = n_threads,
                              .n_phases = 1};
        if (step->kernel->prepare) {
            step->kernel->prepare(step);
        }
        if (step->kept_bytes != 0 &&
            !(keeper && step->kernel->reuse && step->kernel->reuse(step, keeper))) {
            keeper = step;
        }
        count_workspace(p, step);
    }
    *workspace = p->kept_bytes + p->shared_bytes + p->scratch_bytes * (size_t)n_threads;
    *out = p;
    return QN_OK;
}

void qn__cpu_program_free(qn_program *program)
{
    if (program) {
        free(program->steps);
        free(program->n_beside);
        free(program);
    }
}

/* Steps beside each other -----------------------------------------------------------------------
 */

/* Whether the storage of two nodes has bytes in common. */
static bool overlap(const qn_node *x, const qn_node *y)
{
    x = x->view_of ? x->view_of : x;
    y = y->view_of ? y->view_of : y;
    const uintptr_t a = (uintptr_t)x->data, b = (uintptr_t)y->data;
    return a && b && a < b + qn__node_bytes(y) && b < a + qn__node_bytes(x);
}

/* Whether `node` reads or writes what `other` writes. */
static bool touches(const qn_node *node, const qn_node *other)
{
    bool found = overlap(node, other);
    for (int s = 0; s < QN_MAX_SRC; s++) {
        found = found || (node->src[s] && overlap(node->src[s], other));
    }
    return found;
}

/* How many steps from step i on may run as one job. Their storage must be known; it may move from
 * run to run, but as a whole. */
static int32_t count_beside(const qn_program *p, int32_t i)
{
    int32_t n = 1;
    for (; n < MAX_BESIDE && i + n < p->n_steps; n++) {
        const qn_cpu_step *step = &p->steps[i + n];
        if (step->kernel != p->steps[i].kernel || !step->kernel->beside ||
            !step->kernel->beside(step)) {
            break;
        }
        for (int32_t j = i; j < i + n; j++) {
            if (touches(step->node, p->steps[j].node) || touches(p->steps[j].node, step->node)) {
                return n;
            }
        }
    }
    return n;
}

/* Running ---------------------------------------------------------------------------------------
 */

static void run_task(void *user, int64_t task, int32_t worker)
{
    qn_program *p = user;
    int32_t beside = 0, phase = p->phase;
    while (task >= p->n_tasks[beside]) {
        task -= p->n_tasks[beside++];
    }
    const qn_cpu_step *step = &p->steps[p->step + beside];
    if (beside > 0) {
        phase = step->n_phases - 1;
    }
    uint8_t *scratch =
        p->workspace + p->kept_bytes + p->shared_bytes + (size_t)worker * p->scratch_bytes;
    step->kernel->run(step, phase, task, scratch);
}

/* Counts the tasks of the phase, and of the steps that run beside it. */
static int64_t count_tasks(qn_program *p)
{
    const qn_cpu_step *step = &p->steps[p->step];
    int64_t sum = p->n_tasks[0] = step->kernel->count(step, p->phase);
    if (p->phase + 1 == step->n_phases) {
        for (int32_t i = 1; i < p->n_beside[p->step]; i++) {
            p->n_tasks[i] = step[i].kernel->count(&step[i], step[i].n_phases - 1);
            sum += p->n_tasks[i];
        }
    }
    return sum;
}

static int64_t next_job(void *user, int32_t worker)
{
    qn_program *p = user;
    for (;;) {
        p->phase++;
        if (p->step < 0 || p->phase >= p->steps[p->step].n_phases) {
            p->phase = 0;
            p->step += p->step < 0 ? 1 : p->n_beside[p->step];
            if (p->step >= p->n_steps) {
                return 0;
            }
            if (p->n_beside[p->step] == 0) {
                p->n_beside[p->step] = count_beside(p, p->step);
            }
            if (p->abort && p->abort->fn && p->abort->fn(p->abort->user)) {
                p->aborted = true;
                return 0;
            }
        }
        int64_t n_tasks = count_tasks(p);
        if (n_tasks > 1) {
            return n_tasks;
        }
        if (n_tasks == 1) {
            run_task(p, 0, worker);
        }
    }
}

qn_status qn__cpu_run(qn_program *program, void *workspace, int32_t n_threads,
                      const qn_abort *abort, qn_error *err)
{
    qn_program *p = program;
    p->abort = abort;
    p->workspace = workspace;
    p->step = -1;
    p->phase = 0;
    p->aborted = false;
    for (int32_t i = 0; i < p->n_steps; i++) {
        p->steps[i].kept = workspace;
        p->steps[i].shared = p->workspace + p->kept_bytes;
        p->steps[i].n_threads = n_threads;
    }
    const qn_pool_work work = {.next = next_job, .task = run_task, .user = p};
    qn__pool_run(p->device->pool, n_threads, &work);
    p->abort = NULL;
    return p->aborted ? qn__error(err, QN_ERR_ABORTED, "computation aborted") : QN_OK;
}
