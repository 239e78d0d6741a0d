/* The thread pool: every task once, barriers between jobs, sleeping and waking, many runs, several
 * callers, fewer threads than there are. */
#define _GNU_SOURCE /* usleep */
#include "support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "device/cpu/pool.h"

enum { MAX_TASKS = 257 };

/* Jobs of growing and shrinking size; a task of job j may only run when all of job j - 1 are done.
 */
typedef struct series {
    int32_t n_jobs, job;
    int64_t n_tasks;
    _Atomic int32_t done[MAX_TASKS]; /* of the job: how often each task ran */
    _Atomic int64_t n_done;
    _Atomic int32_t wrong;
    int32_t n_workers;
    int64_t plain_sum; /* written in `next` only: seen by all tasks of the job */
} series;

static int64_t next(void *user, int32_t worker)
{
    series *s = user;
    if (worker < 0 || worker >= s->n_workers || atomic_load(&s->n_done) != s->n_tasks) {
        atomic_fetch_add(&s->wrong, 1);
    }
    for (int64_t i = 0; i < s->n_tasks; i++) {
        if (atomic_exchange(&s->done[i], 0) != 1) {
            atomic_fetch_add(&s->wrong, 1);
        }
    }
    atomic_store(&s->n_done, 0);
    s->n_tasks = s->job == s->n_jobs ? 0 : 1 + (s->job * 37) % MAX_TASKS;
    s->plain_sum += s->n_tasks;
    s->job++;
    return s->n_tasks;
}

static void task(void *user, int64_t index, int32_t worker)
{
    series *s = user;
    if (index < 0 || index >= s->n_tasks || worker >= s->n_workers || s->plain_sum < s->n_tasks) {
        atomic_fetch_add(&s->wrong, 1);
        return;
    }
    atomic_fetch_add(&s->done[index], 1);
    atomic_fetch_add(&s->n_done, 1);
}

static void run_series(qn_pool *pool, int32_t n_threads, int32_t n_jobs)
{
    series *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->n_jobs = n_jobs;
    s->n_workers = n_threads;
    const qn_pool_work work = {.next = next, .task = task, .user = s};
    qn__pool_run(pool, n_threads, &work);
    assert_int_equal(atomic_load(&s->wrong), 0);
    assert_int_equal(s->job, n_jobs + 1);
    free(s);
}

static qn_pool *make_pool(int32_t n_threads, int32_t poll)
{
    qn_error err;
    qn_pool *pool = NULL;
    const qn_thread_options options = {.n_threads = n_threads, .poll = poll};
    qn_test_ok(qn__pool_make(&options, &(qn_log){0}, &pool, &err), err);
    return pool;
}

static void test_jobs(void **state)
{
    static const int32_t threads[] = {1, 2, 3, 7, 2, 1, 7};
    static const int32_t polls[] = {0, 50, 100};
    (void)state;
    for (size_t p = 0; p < sizeof polls / sizeof polls[0]; p++) {
        qn_pool *pool = make_pool(7, polls[p]);
        assert_int_equal(qn__pool_n_threads(pool), 7);
        for (int again = 0; again < 5; again++) {
            for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
                run_series(pool, threads[t], 40);
            }
        }
        qn__pool_free(pool);
    }
}

/* Workers that fell asleep, or were sent to sleep, wake for the next run. */
static void test_sleep(void **state)
{
    qn_pool *pool = make_pool(3, 1);
    (void)state;
    for (int i = 0; i < 10; i++) {
        run_series(pool, 3, 3);
        usleep(2000);
        qn__pool_pause(pool);
        qn__pool_pause(pool);
        run_series(pool, 1 + i % 3, 3);
    }
    qn__pool_free(pool);
}

static void count_task(void *user, int64_t index, int32_t worker)
{
    _Atomic int64_t *sum = user;
    (void)worker;
    atomic_fetch_add(sum, index + 1);
}

static void *caller(void *user)
{
    for (int i = 0; i < 50; i++) {
        _Atomic int64_t sum = 0;
        qn__pool_for(user, 100, count_task, &sum);
        if (atomic_load(&sum) != 5050) {
            return user;
        }
    }
    return NULL;
}

static void test_callers(void **state)
{
    qn_pool *pool = make_pool(3, 50);
    pthread_t threads[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, caller, pool), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    _Atomic int64_t sum = 0;
    qn__pool_for(pool, 0, count_task, &sum);
    assert_int_equal(atomic_load(&sum), 0);
    qn__pool_free(pool);
}

static void log_line(void *user, qn_log_level level, const char *line)
{
    int *n = user;
    (void)level;
    (void)line;
    ++*n;
}

/* Masks, strict placement and priorities are taken or warned about, and change no result. */
static void test_placement(void **state)
{
    qn_error err;
    int n_lines = 0;
    const qn_log log = {.fn = log_line, .user = &n_lines, .max_level = QN_LOG_WARN};
    (void)state;
    for (int32_t priority = -1; priority <= 3; priority++) {
        qn_pool *pool = NULL;
        const qn_thread_options options = {.n_threads = 3,
                                           .affinity = {3},
                                           .priority = priority,
                                           .strict = priority % 2 == 0,
                                           .poll = 10};
        qn_test_ok(qn__pool_make(&options, &log, &pool, &err), err);
        run_series(pool, 3, 20);
        qn__pool_free(pool);
    }
    qn_pool *pool = NULL;
    const qn_thread_options nowhere = {.n_threads = 2,
                                       .affinity = {0, 0, 0, 0, 0, 0, 0, 1ULL << 63}};
    n_lines = 0;
    qn_test_ok(qn__pool_make(&nowhere, &log, &pool, &err), err);
    assert_int_equal(n_lines, 1);
    run_series(pool, 2, 20);
    qn__pool_free(pool);
    const qn_thread_options wrong = {.n_threads = 2, .priority = 4};
    assert_int_equal(qn__pool_make(&wrong, &log, &pool, &err), QN_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_callers),
        cmocka_unit_test(test_placement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
