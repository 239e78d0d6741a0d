/* measure.c: timing of the loops in measure.h on several threads, and of reading memory. */
#include "device/cpu/measure.h"

#include "base/clock.h"
#include "base/error.h"

#define READ_BYTES ((size_t)256 << 20)
#define RUNS       9

typedef struct measuring {
    const qn_cpu_peak *peak;
    int64_t rounds;
    const uint64_t *words; /* READ */
    size_t n_words;
    int32_t n_threads;
    bool started;
    _Alignas(64) uint64_t sums[512]; /* so that what was read is used */
} measuring;

static uint64_t read_words(const uint64_t *p, size_t n)
{
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            sum[j] |= p[i + j];
        }
    }
    return sum[0] | sum[1] | sum[2] | sum[3] | sum[4] | sum[5] | sum[6] | sum[7];
}

static int64_t next(void *user, int32_t worker)
{
    measuring *m = user;
    (void)worker;
    if (m->started) {
        return 0;
    }
    m->started = true;
    return m->n_threads;
}

static void task(void *user, int64_t index, int32_t worker)
{
    measuring *m = user;
    (void)worker;
    if (m->peak) {
        m->peak->run(m->rounds);
        return;
    }
    size_t part = m->n_words / (size_t)m->n_threads / 8 * 8;
    for (int64_t i = 0; i < m->rounds; i++) {
        m->sums[index] |= read_words(m->words + (size_t)index * part, part);
    }
}

/* Seconds of one run. */
static double run_once(qn_pool *pool, measuring *m)
{
    const qn_pool_work work = {.next = next, .task = task, .user = m};
    m->started = false;
    uint64_t begin = qn__clock_ns();
    qn__pool_run(pool, m->n_threads, &work);
    return (double)(qn__clock_ns() - begin) * 1e-9;
}

/* The median of RUNS runs: what the machine gives, where other guests share it. The best of them
 * would be a moment that no computation of seconds has. */
static double median_run(qn_pool *pool, measuring *m)
{
    double times[RUNS];
    for (int i = 0; i < RUNS; i++) {
        const double time = run_once(pool, m);
        int at = i;
        for (; at > 0 && times[at - 1] > time; at--) {
            times[at] = times[at - 1];
        }
        times[at] = time;
    }
    return times[RUNS / 2];
}

qn_status qn__cpu_measure(qn_pool *pool, const qn_cpu_isa *isa, qn_measure what, int32_t n_threads,
                          double seconds, double *out, qn_error *err)
{
    measuring m = {.n_threads = n_threads, .rounds = 1};
    double amount; /* bytes or operations of a run with one round */
    void *block = NULL;
    if (what == QN_MEASURE_READ) {
        block = qn__block_alloc(READ_BYTES);
        if (!block) {
            return qn__error_memory(err, "memory to read");
        }
        memset(block, 1, READ_BYTES); /* pages of their own, not the one zero page */
        m.words = block;
        m.n_words = READ_BYTES / sizeof *m.words;
        amount = (double)(m.n_words / (size_t)n_threads / 8 * 8 * sizeof *m.words) * n_threads;
    } else {
        m.peak = &isa->measure->peaks[what];
        if (!m.peak->run || (m.peak->usable && !m.peak->usable())) {
            return qn__error(err, QN_ERR_UNSUPPORTED, "%s has no instruction for %s", isa->name,
                             qn_measure_name(what));
        }
        m.rounds = 1000;
        amount = m.peak->operations * n_threads;
    }
    /* The first runs wake threads and clocks up, and tell how many rounds a run may have. */
    double part = seconds / (RUNS + 1), time = run_once(pool, &m);
    while (time < part / 2 && m.rounds < INT64_MAX / 4) {
        m.rounds *= 2;
        time = run_once(pool, &m);
    }
    time = median_run(pool, &m);
    qn__block_free(block, READ_BYTES);
    *out = time > 0.0 ? amount * (double)m.rounds / time : 0.0;
    return QN_OK;
}
