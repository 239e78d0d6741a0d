/*
 * pool.h: the thread pool of the CPU device.
 *
 * A run is a series of jobs; a job is a number of tasks that the workers take one by one. Who
 * finishes the last task of a job asks for the next job, alone: so `next` needs no lock, and may do
 * small work itself. Workers without a task spin for a moment and then sleep; a job never waits for
 * them.
 */
#ifndef QUERN_DEVICE_CPU_POOL_H
#define QUERN_DEVICE_CPU_POOL_H

#include <quern/device.h>

typedef struct qn_pool qn_pool;

typedef struct qn_pool_work {
    /* Starts the next job: its number of tasks (> 0), or 0 when the run is over. Called by one
     * worker at a time (`worker` is its number), when all tasks of the job before are done. */
    int64_t (*next)(void *user, int32_t worker);
    /* Does one task of the job. */
    void (*task)(void *user, int64_t task, int32_t worker);
    void *user;
} qn_pool_work;

qn_status qn__pool_make(const qn_thread_options *options, const qn_log *log, qn_pool **out,
                        qn_error *err);
void qn__pool_free(qn_pool *pool);
int32_t qn__pool_n_threads(const qn_pool *pool);

/* Does the work with `n_threads` workers (1 .. n_threads of the pool); the caller is worker 0.
 * Callers on several threads take turns. */
void qn__pool_run(qn_pool *pool, int32_t n_threads, const qn_pool_work *work);

/* One job of n_tasks with all threads; fn(user, task, worker). */
void qn__pool_for(qn_pool *pool, int64_t n_tasks,
                  void (*fn)(void *user, int64_t task, int32_t worker), void *user);

/* Sends the workers to sleep until the next run. */
void qn__pool_pause(qn_pool *pool);

/* Physical cores that this process may run on, at least 1. */
int32_t qn__cpu_n_cores(void);

#endif
