/*
 * program.c: the steps of a plan on the CPU, and the walk over them.
 *
 * The pool asks for one job after the other: a job is a phase of a step. Jobs of one task are done
 * on the spot by the worker that asks, so that the others do not wait twice for something small.
 */
#include <stdlib.h>

#include "base/error.h"
#include "device/cpu/cpu_device.h"

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
    int32_t step, phase; /* of the job */
    bool aborted;
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
    if (!p || !(p->steps = qn__calloc((size_t)n_nodes + 1, sizeof *p->steps))) {
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
        free(program);
    }
}

static void run_task(void *user, int64_t task, int32_t worker)
{
    qn_program *p = user;
    const qn_cpu_step *step = &p->steps[p->step];
    uint8_t *scratch =
        p->workspace + p->kept_bytes + p->shared_bytes + (size_t)worker * p->scratch_bytes;
    step->kernel->run(step, p->phase, task, scratch);
}

static int64_t next_job(void *user, int32_t worker)
{
    qn_program *p = user;
    for (;;) {
        p->phase++;
        if (p->step < 0 || p->phase >= p->steps[p->step].n_phases) {
            p->phase = 0;
            if (++p->step >= p->n_steps) {
                return 0;
            }
            if (p->abort && p->abort->fn && p->abort->fn(p->abort->user)) {
                p->aborted = true;
                return 0;
            }
        }
        const qn_cpu_step *step = &p->steps[p->step];
        int64_t n_tasks = step->kernel->count(step, p->phase);
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
