/*
 * weights.c: weights on their way to the packed form: the driver's weights_load and weight_free.
 *
 * A load is one run of the pool: a job is a weight, a task some rows of it. So the threads go from
 * weight to weight without falling asleep, and rows are read, checked, packed and given back while
 * they are in the cache.
 */
#include <stdatomic.h>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/pack.h"

enum {
    TASK_BYTES = 1 << 20, /* rows that a task takes, as they are in the file */
    TASKS_PER_THREAD = 4  /* at least, where there are enough rows */
};

typedef struct loading {
    const qn_weight_feed *feed;
    int64_t n_threads;
    qn_error *err;
    qn_status status; /* of preparing a weight */
    _Atomic bool stopped;

    /* Of the weight that is being loaded. */
    qn_weight *w;
    int64_t n_groups, task_groups;
} loading;

static bool is_matrix(const qn_weight *w)
{
    return (w->uses & QN_WEIGHT_MATRIX) && !w->packed;
}

/* Memory for the packed form. */
static qn_status make_packed(qn_weight *w, qn_error *err)
{
    const qn_type_info *info = qn_type_get_info(w->type);
    if (!info || !qn__cpu_pack_supports(w->type)) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "%s: type %s cannot be multiplied yet", w->name,
                         info ? info->name : "?");
    }
    size_t bytes = qn__cpu_pack_bytes(w->type, w->ne);
    if (bytes == 0) {
        return qn__error(err, QN_ERR_UNSUPPORTED,
                         "%s: [%lld, %lld, %lld, %lld] is no shape of a %s matrix", w->name,
                         (long long)w->ne[0], (long long)w->ne[1], (long long)w->ne[2],
                         (long long)w->ne[3], info->name);
    }
    w->packed = qn__block_alloc(bytes);
    if (!w->packed) {
        return qn__error(err, QN_ERR_MEMORY, "%s: out of memory: %zu bytes", w->name, bytes);
    }
    w->packed_bytes = bytes;
    return QN_OK;
}

/* Gives a weight that is finished back; false: the load is over. */
static bool finish_weight(loading *l)
{
    qn_weight *w = l->w;
    l->w = NULL;
    if (w->packed && (!(w->uses & QN_WEIGHT_ROWS) || qn__cpu_unpack_supports(w->type))) {
        w->data = NULL;
    }
    return !l->feed->done || l->feed->done(l->feed->user, w);
}

/* The next weight that has rows to load, as a job of the pool. */
static int64_t next_weight(void *user, int32_t worker)
{
    loading *l = user;
    (void)worker;
    for (;;) {
        if (atomic_load(&l->stopped) || (l->w && !finish_weight(l)) ||
            !(l->w = l->feed->next(l->feed->user))) {
            return 0;
        }
        if (is_matrix(l->w) && (l->status = make_packed(l->w, l->err)) != QN_OK) {
            return 0;
        }
        l->n_groups = qn__cpu_pack_groups(l->w->ne);
        if (l->n_groups > 0) {
            int64_t wanted = qn__max_i64(
                1, (int64_t)(TASK_BYTES / qn__max_i64(1, (int64_t)l->w->bytes / l->n_groups)));
            int64_t fair = qn__max_i64(1, l->n_groups / (l->n_threads * TASKS_PER_THREAD));
            l->task_groups = qn__min_i64(wanted, fair);
            return qn__div_up(l->n_groups, l->task_groups);
        }
    }
}

static void load_rows(void *user, int64_t task, int32_t worker)
{
    loading *l = user;
    const qn_weight_feed *feed = l->feed;
    const qn_weight *w = l->w;
    int64_t first = task * l->task_groups;
    int64_t n_groups = qn__min_i64(l->task_groups, l->n_groups - first);
    int64_t row = qn__cpu_pack_first_row(w->ne, first);
    int64_t n_rows = qn__cpu_pack_first_row(w->ne, first + n_groups) - row;
    const void *rows =
        atomic_load(&l->stopped) ? NULL : feed->rows(feed->user, w, row, n_rows, worker);
    if (!rows) {
        atomic_store(&l->stopped, true);
        return;
    }
    if (w->uses & QN_WEIGHT_MATRIX) {
        qn__cpu_pack_rows(w->type, w->ne, rows, first, n_groups, w->packed);
    }
    if (feed->used) {
        feed->used(feed->user, w, row, n_rows);
    }
}

qn_status qn__cpu_weights_load(qn_device *device, const qn_weight_feed *feed, qn_error *err)
{
    qn_pool *pool = ((qn_cpu_device *)device)->pool;
    loading l = {.feed = feed, .n_threads = qn__pool_n_threads(pool), .err = err};
    const qn_pool_work work = {.next = next_weight, .task = load_rows, .user = &l};
    qn__pool_run(pool, (int32_t)l.n_threads, &work);
    return l.status;
}

bool qn__cpu_packs_rows(const qn_device *device, qn_type type)
{
    (void)device;
    return qn__cpu_unpack_supports(type);
}

void qn__cpu_weight_free(qn_device *device, qn_weight *w)
{
    (void)device;
    if (w->packed) {
        qn__block_free(w->packed, w->packed_bytes);
        w->packed = NULL;
        w->packed_bytes = 0;
    }
}
