/*
 * pool.c: persistent threads that walk the jobs of a run together.
 *
 * One atomic word tells everything that the workers wait for: the number of the run, how many
 * workers take part in it and the number of the job. All other fields belong to the run: they are
 * written by one worker while all others of the run wait for the word to change, and read by them
 * after it has changed. A worker that is late (it overslept the end of a run) sees the word of a
 * later run and goes by that alone.
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

/* The word: run (24 bits), workers of the run (10 bits), job (30 bits; all ones: the run is over).
 */
#define JOB_BITS    30
#define WORKER_BITS 10
#define JOB_OVER    ((UINT64_C(1) << JOB_BITS) - 1)

typedef struct worker {
    pthread_t thread;
    qn_pool *pool;
    int32_t index;
} worker;

struct qn_pool {
    _Atomic uint64_t word;
    _Alignas(64) _Atomic int64_t task; /* next task of the job */
    _Alignas(64) _Atomic int32_t arrived;
    _Alignas(64) int64_t n_tasks; /* of the job */
    qn_pool_work work;            /* of the run */

    int32_t n_threads;
    uint64_t spin_ns;
    _Atomic bool paused, quit;

    pthread_mutex_t sleep_lock;
    pthread_cond_t sleep_cond;
    _Atomic int32_t n_sleepers;

    pthread_mutex_t run_lock; /* one run at a time */
    bool has_affinity;
    cpu_set_t caller_set; /* where worker 0 runs, if has_affinity */
    worker *workers;      /* n_started of them, for the indices 1 .. */
    int32_t n_started;
};

static uint64_t make_word(uint64_t run, int32_t n_workers, uint64_t job)
{
    return run << (JOB_BITS + WORKER_BITS) | (uint64_t)n_workers << JOB_BITS | job;
}

static uint64_t word_run(uint64_t word)
{
    return word >> (JOB_BITS + WORKER_BITS);
}

static int32_t word_workers(uint64_t word)
{
    return (int32_t)(word >> JOB_BITS & ((1U << WORKER_BITS) - 1));
}

static uint64_t word_job(uint64_t word)
{
    return word & JOB_OVER;
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

/* Returns the word when it is no longer `old` (or the pool ends). Spins first, unless idle and
 * paused. */
static uint64_t wait_change(qn_pool *pool, uint64_t old, bool idle)
{
    uint64_t word, begin = 0;
    for (uint32_t i = 0;; i++) {
        word = atomic_load_explicit(&pool->word, memory_order_acquire);
        if (word != old || atomic_load_explicit(&pool->quit, memory_order_relaxed)) {
            return word;
        }
        if (idle && atomic_load_explicit(&pool->paused, memory_order_relaxed)) {
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
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_fetch_add(&pool->n_sleepers, 1);
    while ((word = atomic_load(&pool->word)) == old && !atomic_load(&pool->quit)) {
        pthread_cond_wait(&pool->sleep_cond, &pool->sleep_lock);
    }
    atomic_fetch_sub(&pool->n_sleepers, 1);
    pthread_mutex_unlock(&pool->sleep_lock);
    return word;
}

static void wake_sleepers(qn_pool *pool)
{
    if (atomic_load(&pool->n_sleepers) > 0) {
        pthread_mutex_lock(&pool->sleep_lock);
        pthread_cond_broadcast(&pool->sleep_cond);
        pthread_mutex_unlock(&pool->sleep_lock);
    }
}

/* Hands the job that the fields describe to the workers. The store and the look at n_sleepers are
 * sequentially consistent, as are their counterparts in wait_change: one of the two sees the other.
 */
static void publish(qn_pool *pool, uint64_t word)
{
    atomic_store(&pool->word, word);
    wake_sleepers(pool);
}

/* Working ---------------------------------------------------------------------------------------
 */

static void take_part(qn_pool *pool, int32_t index, uint64_t word)
{
    const uint64_t run = word_run(word);
    const int32_t n_workers = word_workers(word);
    while (word_run(word) == run && word_job(word) != JOB_OVER) {
        int64_t n_tasks = pool->n_tasks;
        for (;;) {
            int64_t task = atomic_fetch_add_explicit(&pool->task, 1, memory_order_relaxed);
            if (task >= n_tasks) {
                break;
            }
            pool->work.task(pool->work.user, task, index);
        }
        if (atomic_fetch_add(&pool->arrived, 1) != n_workers - 1) {
            word = wait_change(pool, word, false);
            continue;
        }
        pool->n_tasks = pool->work.next(pool->work.user, index);
        atomic_store_explicit(&pool->task, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        /* Job numbers only have to differ from the one before. */
        uint64_t job = pool->n_tasks > 0 ? (word_job(word) + 1) % JOB_OVER : JOB_OVER;
        word = make_word(run, n_workers, job);
        publish(pool, word);
    }
}

static void *worker_main(void *user)
{
    worker *me = user;
    qn_pool *pool = me->pool;
    uint64_t word = make_word(0, 0, JOB_OVER);
    for (;;) {
        uint64_t seen = word;
        word = atomic_load(&pool->word);
        if (word_run(word) == word_run(seen)) {
            word = wait_change(pool, word, true);
        }
        if (atomic_load(&pool->quit)) {
            return NULL;
        }
        if (word_run(word) != word_run(seen) && me->index < word_workers(word)) {
            take_part(pool, me->index, word);
        }
    }
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
    int64_t n_tasks = work->next(work->user, 0);
    if (n_tasks <= 0) {
        return;
    }
    pool->work = *work;
    pool->n_tasks = n_tasks;
    atomic_store_explicit(&pool->task, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->paused, false, memory_order_relaxed);
    uint64_t run = word_run(atomic_load(&pool->word)) + 1;
    uint64_t word = make_word(run, n_threads, 0);
    publish(pool, word);
    /* The number of the run lost its high bits in the word. */
    take_part(pool, 0, word);
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
        worker *w = &pool->workers[i - 1];
        *w = (worker){.pool = pool, .index = i};
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
    atomic_init(&pool->word, make_word(0, 0, JOB_OVER));
    pool->n_threads = n;
    pool->spin_ns = (uint64_t)options->poll * 1000; /* a microsecond a level */
    pool->has_affinity = worker_set(options, 0, &pool->caller_set);
    pthread_mutex_init(&pool->sleep_lock, NULL);
    pthread_cond_init(&pool->sleep_cond, NULL);
    pthread_mutex_init(&pool->run_lock, NULL);
    pool->workers = qn__calloc((size_t)n, sizeof *pool->workers);
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
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_store(&pool->quit, true);
    pthread_cond_broadcast(&pool->sleep_cond);
    pthread_mutex_unlock(&pool->sleep_lock);
    for (int32_t i = 0; i < pool->n_started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    free(pool->workers);
    pthread_mutex_destroy(&pool->run_lock);
    pthread_cond_destroy(&pool->sleep_cond);
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
