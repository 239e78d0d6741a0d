/*
 * pool.c: persistent threads that share the jobs of a run.
 *
 * One atomic word, the ticket, tells everything that the workers wait for: the number of the job,
 * how many workers may take part, and how many tasks are left. A worker takes a task by lowering
 * the ticket; who finishes the last task of a job starts the next one. Nobody waits for a worker
 * that has no task: one that was put aside by the system, or overslept, just finds a later ticket.
 *
 * All other fields belong to the job. They are written before its ticket is published, and only
 * read by workers that hold one of its tasks, which keeps the job from ending.
 */
#define _GNU_SOURCE
#include "device/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#define POOL_MAX_THREADS 512

/* The ticket: job (28 bits, only has to differ from those before), workers (10), tasks left (26).
 */
#define TASK_BITS   26
#define WORKER_BITS 10
#define MAX_TASKS   ((INT64_C(1) << TASK_BITS) - 1)

typedef struct worker {
    pthread_t thread; /* not of worker 0, which is the caller */
    qn_pool *pool;
    int32_t index;
    _Atomic bool asleep;
    pthread_cond_t wake; /* with the pool's sleep_lock */
} worker;

struct qn_pool {
    _Atomic uint64_t ticket;
    _Alignas(64) _Atomic int64_t n_done; /* tasks of the job */
    _Atomic bool running;                /* a run is going on */
    _Alignas(64) int64_t first, n_tasks; /* of the job: a part of what `next` gave */
    int64_t rest;                        /* tasks that `next` gave and no job has had yet */
    qn_pool_work work;                   /* of the run */

    int32_t n_threads;
    uint64_t spin_ns;
    _Atomic bool paused, quit;

    pthread_mutex_t sleep_lock;

    pthread_mutex_t run_lock; /* one run at a time */
    bool has_affinity;
    cpu_set_t caller_set; /* where worker 0 runs, if has_affinity */
    worker *workers;      /* n_threads */
    int32_t n_started;    /* threads, of the workers from 1 on */
};

static uint64_t make_ticket(uint64_t job, int32_t n_workers, int64_t n_tasks)
{
    return job << (TASK_BITS + WORKER_BITS) | (uint64_t)n_workers << TASK_BITS | (uint64_t)n_tasks;
}

static uint64_t ticket_job(uint64_t ticket)
{
    return ticket >> (TASK_BITS + WORKER_BITS);
}

static int32_t ticket_workers(uint64_t ticket)
{
    return (int32_t)(ticket >> TASK_BITS & ((1U << WORKER_BITS) - 1));
}

static int64_t ticket_tasks(uint64_t ticket)
{
    return (int64_t)(ticket & (uint64_t)MAX_TASKS);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waiting ---------------------------------------------------------------------------------------
 */

/* Whether the ticket has something for the worker, or the worker's wait is over. */
static bool wanted(qn_pool *pool, int32_t index)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    return (ticket_tasks(ticket) > 0 && index < ticket_workers(ticket)) ||
           (index == 0 ? !atomic_load(&pool->running) : atomic_load(&pool->quit));
}

/* Returns when there is something to do, or to end. Spins first, then sleeps. */
static void wait_for_work(qn_pool *pool, int32_t index)
{
    uint64_t begin = 0;
    for (uint32_t i = 0; !wanted(pool, index); i++) {
        if (index != 0 && atomic_load_explicit(&pool->paused, memory_order_relaxed)) {
            break;
        }
        if (i % 32 == 0) {
            uint64_t now = qn__clock_ns();
            begin = i == 0 ? now : begin;
            if (now - begin >= pool->spin_ns) {
                break;
            }
        }
        relax();
    }
    if (wanted(pool, index)) {
        return;
    }
    worker *me = &pool->workers[index];
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_store(&me->asleep, true);
    while (!wanted(pool, index)) {
        pthread_cond_wait(&me->wake, &pool->sleep_lock);
    }
    atomic_store(&me->asleep, false);
    pthread_mutex_unlock(&pool->sleep_lock);
}

/* Wakes those of the first n workers that sleep. What was changed before this call, the look at
 * `asleep` and their counterparts in wait_for_work are sequentially consistent: one of the two
 * sides sees the other. */
static void wake_workers(qn_pool *pool, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        worker *w = &pool->workers[i];
        if (atomic_load(&w->asleep)) {
            pthread_mutex_lock(&pool->sleep_lock);
            pthread_cond_signal(&w->wake);
            pthread_mutex_unlock(&pool->sleep_lock);
        }
    }
}

/* Working ---------------------------------------------------------------------------------------
 */

/* Publishes the next job, or that the run is over. Only one worker is here at a time: the caller at
 * the start of a run, then whoever did the last task of a job. */
static void start_job(qn_pool *pool, int32_t index, int32_t n_workers)
{
    pool->first += pool->n_tasks;
    if (pool->rest == 0) {
        pool->first = 0;
        pool->rest = pool->work.next(pool->work.user, index);
    }
    pool->n_tasks = qn__min_i64(pool->rest, MAX_TASKS);
    pool->rest -= pool->n_tasks;
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    uint64_t job = ticket_job(atomic_load(&pool->ticket)) + 1;
    if (pool->n_tasks == 0) {
        atomic_store(&pool->running, false);
        wake_workers(pool, 1); /* the fields may belong to the next run now */
        return;
    }
    atomic_store(&pool->ticket, make_ticket(job, n_workers, pool->n_tasks));
    wake_workers(pool, n_workers);
}

/* Does one task, if there is one for this worker. */
static bool do_task(qn_pool *pool, int32_t index)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    const int32_t n_workers = ticket_workers(ticket);
    int64_t left = ticket_tasks(ticket);
    if (left == 0 || index >= n_workers) {
        return false;
    }
    if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1)) {
        return true; /* somebody else was faster: look again */
    }
    const int64_t n_tasks = pool->n_tasks;
    pool->work.task(pool->work.user, pool->first + n_tasks - left, index);
    if (atomic_fetch_add(&pool->n_done, 1) == n_tasks - 1) {
        start_job(pool, index, n_workers);
    }
    return true;
}

static void *worker_main(void *user)
{
    worker *me = user;
    qn_pool *pool = me->pool;
    while (!atomic_load(&pool->quit)) {
        if (!do_task(pool, me->index)) {
            wait_for_work(pool, me->index);
        }
    }
    return NULL;
}

static void run_alone(const qn_pool_work *work)
{
    int64_t n_tasks;
    while ((n_tasks = work->next(work->user, 0)) > 0) {
        for (int64_t task = 0; task < n_tasks; task++) {
            work->task(work->user, task, 0);
        }
    }
}

static void run_together(qn_pool *pool, int32_t n_threads, const qn_pool_work *work)
{
    pool->work = *work;
    pool->first = pool->n_tasks = pool->rest = 0;
    atomic_store(&pool->running, true);
    atomic_store(&pool->paused, false);
    start_job(pool, 0, n_threads);
    while (atomic_load(&pool->running)) {
        if (!do_task(pool, 0)) {
            wait_for_work(pool, 0);
        }
    }
}

void qn__pool_run(qn_pool *pool, int32_t n_threads, const qn_pool_work *work)
{
    pthread_mutex_lock(&pool->run_lock);
    cpu_set_t before;
    bool moved = pool->has_affinity &&
                 pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0 &&
                 pthread_setaffinity_np(pthread_self(), sizeof before, &pool->caller_set) == 0;
    if (n_threads > pool->n_threads) {
        n_threads = pool->n_threads;
    }
    if (n_threads <= 1) {
        run_alone(work);
    } else {
        run_together(pool, n_threads, work);
    }
    if (moved) {
        pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    }
    pthread_mutex_unlock(&pool->run_lock);
}

typedef struct single_job {
    void (*fn)(void *user, int64_t task, int32_t worker);
    void *user;
    int64_t n_tasks;
    bool started;
} single_job;

static int64_t single_next(void *user, int32_t index)
{
    single_job *job = user;
    (void)index;
    if (job->started) {
        return 0;
    }
    job->started = true;
    return job->n_tasks;
}

static void single_task(void *user, int64_t task, int32_t index)
{
    single_job *job = user;
    job->fn(job->user, task, index);
}

void qn__pool_for(qn_pool *pool, int64_t n_tasks,
                  void (*fn)(void *user, int64_t task, int32_t worker), void *user)
{
    single_job job = {.fn = fn, .user = user, .n_tasks = n_tasks};
    qn_pool_work work = {.next = single_next, .task = single_task, .user = &job};
    qn__pool_run(pool, (int32_t)qn__min_i64(pool->n_threads, n_tasks), &work);
}

/* Making ----------------------------------------------------------------------------------------
 */

static bool in_mask(const qn_thread_options *o, int cpu)
{
    return cpu < QN_AFFINITY_WORDS * 64 && o->affinity[cpu / 64] >> (cpu % 64) & 1;
}

/* The processors of worker `index`; false where the mask is empty. */
static bool worker_set(const qn_thread_options *o, int32_t index, cpu_set_t *set)
{
    int n = 0, seen = 0;
    CPU_ZERO(set);
    for (int cpu = 0; cpu < QN_AFFINITY_WORDS * 64; cpu++) {
        n += in_mask(o, cpu);
    }
    for (int cpu = 0; cpu < QN_AFFINITY_WORDS * 64 && cpu < CPU_SETSIZE; cpu++) {
        if (in_mask(o, cpu)) {
            if (!o->strict || seen == index % n) {
                CPU_SET((size_t)cpu, set);
            }
            seen++;
        }
    }
    return n > 0;
}

static bool set_priority(pthread_t thread, int32_t priority)
{
    static const struct {
        int policy, level;
    } classes[] = {
        {SCHED_BATCH, 0}, {SCHED_OTHER, 0}, {SCHED_FIFO, 40}, {SCHED_FIFO, 80}, {SCHED_FIFO, 90}};
    if (priority == 0) {
        return true;
    }
    struct sched_param param = {.sched_priority = classes[priority + 1].level};
    return pthread_setschedparam(thread, classes[priority + 1].policy, &param) == 0;
}

/* Starts the workers; places them as the options say. */
static qn_status start_workers(qn_pool *pool, const qn_thread_options *o, const qn_log *log,
                               qn_error *err)
{
    bool placed = true, ranked = true;
    for (int32_t i = 1; i < pool->n_threads; i++) {
        worker *w = &pool->workers[i];
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            return qn__error(err, QN_ERR_MEMORY, "cannot start thread %d of %d", (int)i,
                             (int)pool->n_threads);
        }
        pool->n_started++;
        cpu_set_t set;
        if (worker_set(o, i, &set)) {
            placed = pthread_setaffinity_np(w->thread, sizeof set, &set) == 0 && placed;
        }
        ranked = set_priority(w->thread, o->priority) && ranked;
    }
    if (!placed) {
        qn__log_line(log, QN_LOG_WARN, "threads: the system refused the affinity mask");
    }
    if (!ranked) {
        qn__log_line(log, QN_LOG_WARN, "threads: the system refused priority %d", (int)o->priority);
    }
    return QN_OK;
}

qn_status qn__pool_make(const qn_thread_options *options, const qn_log *log, qn_pool **out,
                        qn_error *err)
{
    int32_t n = options->n_threads == 0 ? qn__cpu_n_cores() : options->n_threads;
    if (n < 1 || n > POOL_MAX_THREADS) {
        return qn__error(err, QN_ERR_ARGUMENT, "threads: %d is not in 1 .. %d", (int)n,
                         POOL_MAX_THREADS);
    }
    if (options->priority < -1 || options->priority > 3) {
        return qn__error(err, QN_ERR_ARGUMENT, "threads: priority %d is not in -1 .. 3",
                         (int)options->priority);
    }
    if (options->poll < 0 || options->poll > 100) {
        return qn__error(err, QN_ERR_ARGUMENT, "threads: poll %d is not in 0 .. 100",
                         (int)options->poll);
    }
    qn_pool *pool = aligned_alloc(64, qn__align_up(sizeof *pool, 64));
    if (!pool) {
        return qn__error_memory(err, "thread pool");
    }
    memset(pool, 0, sizeof *pool);
    pool->n_threads = n;
    pool->spin_ns = (uint64_t)options->poll * 1000; /* a microsecond a level */
    pool->has_affinity = worker_set(options, 0, &pool->caller_set);
    pthread_mutex_init(&pool->sleep_lock, NULL);
    pthread_mutex_init(&pool->run_lock, NULL);
    pool->workers = qn__calloc((size_t)n, sizeof *pool->workers);
    for (int32_t i = 0; pool->workers && i < n; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i;
        pthread_cond_init(&w->wake, NULL);
    }
    qn_status status = pool->workers ? start_workers(pool, options, log, err)
                                     : qn__error_memory(err, "thread pool");
    if (status != QN_OK) {
        qn__pool_free(pool);
        return status;
    }
    *out = pool;
    return QN_OK;
}

void qn__pool_free(qn_pool *pool)
{
    if (!pool) {
        return;
    }
    atomic_store(&pool->quit, true);
    for (int32_t i = 1; i <= pool->n_started; i++) {
        pthread_mutex_lock(&pool->sleep_lock);
        pthread_cond_signal(&pool->workers[i].wake);
        pthread_mutex_unlock(&pool->sleep_lock);
        pthread_join(pool->workers[i].thread, NULL);
    }
    for (int32_t i = 0; pool->workers && i < pool->n_threads; i++) {
        pthread_cond_destroy(&pool->workers[i].wake);
    }
    free(pool->workers);
    pthread_mutex_destroy(&pool->run_lock);
    pthread_mutex_destroy(&pool->sleep_lock);
    free(pool);
}

int32_t qn__pool_n_threads(const qn_pool *pool)
{
    return pool->n_threads;
}

void qn__pool_pause(qn_pool *pool)
{
    atomic_store(&pool->paused, true);
}

/* The smallest processor number that shares a core with `cpu`. */
static int first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &first) != 1) {
            first = cpu;
        }
        fclose(file);
    }
    return first;
}

int32_t qn__cpu_n_cores(void)
{
    cpu_set_t set, cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n < 1 ? 1 : n > POOL_MAX_THREADS ? POOL_MAX_THREADS : (int32_t)n;
    }
    CPU_ZERO(&cores);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &set)) {
            int first = first_sibling(cpu);
            CPU_SET((size_t)(first >= 0 && first < CPU_SETSIZE ? first : cpu), &cores);
        }
    }
    int n = CPU_COUNT(&cores);
    return n < 1 ? 1 : n > POOL_MAX_THREADS ? POOL_MAX_THREADS : (int32_t)n;
}
