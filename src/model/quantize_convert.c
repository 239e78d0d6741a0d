/*
 * quantize_convert.c: see quantize_convert.h. Rows are independent, so threads take units of whole
 * rows from a counter. Units are taken in ascending order and a unit that was begun is finished:
 * so the lowest bad row is found by every number of threads.
 */
#include "model/quantize_convert.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "quant/quant.h"

/* Values in a unit of work: enough to make taking it cheap, little enough to balance. */
enum { UNIT_VALUES = 16384 };

struct qn_converter {
    int threads;
    float **rows; /* a decoded row for each thread */
    size_t row_values;
};

/* One run, shared by its threads. */
typedef struct run {
    const qn_convert *job;
    const qn_quant *from, *to;
    size_t in_bytes, out_bytes; /* of a row */
    int64_t unit_rows, units;
    atomic_int_fast64_t next, done; /* units */
    atomic_bool stop;
    pthread_mutex_t lock; /* guards the two below */
    int64_t bad_row;      /* of the job; -1: none */
    bool bad_input;       /* else the encoder's result is bad */
} run;

typedef struct worker {
    run *run;
    float *row;
    qn_progress_fn progress; /* of the calling thread alone */
    void *user;
} worker;

qn_status qn__converter_make(qn_converter **out, int threads, qn_error *err)
{
    qn_converter *c = qn__calloc(1, sizeof *c);
    if (c) {
        c->threads = threads;
        c->rows = qn__calloc((size_t)threads, sizeof *c->rows);
    }
    if (!c || !c->rows) {
        free(c);
        return qn__error_memory(err, "quantizer threads");
    }
    *out = c;
    return QN_OK;
}

void qn__converter_free(qn_converter *c)
{
    if (!c) {
        return;
    }
    for (int i = 0; i < c->threads; i++) {
        free(c->rows[i]);
    }
    free(c->rows);
    free(c);
}

/* Makes the row buffers at least `values` long. */
static bool reserve_rows(qn_converter *c, size_t values)
{
    if (values <= c->row_values) {
        return true;
    }
    for (int i = 0; i < c->threads; i++) {
        void *block = c->rows[i];
        if (!qn__realloc(&block, values, sizeof(float))) {
            return false;
        }
        c->rows[i] = block;
    }
    c->row_values = values;
    return true;
}

static void note_bad_row(run *r, int64_t row, bool input)
{
    pthread_mutex_lock(&r->lock);
    if (r->bad_row < 0 || row < r->bad_row) {
        r->bad_row = row;
        r->bad_input = input;
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stop, true);
}

/* Converts one row; false where its values are not finite. */
static bool convert_row(run *r, float *buffer, int64_t row)
{
    const qn_convert *job = r->job;
    const uint8_t *in = job->in + (size_t)row * r->in_bytes;
    uint8_t *out = job->out + (size_t)row * r->out_bytes;
    const float *x = (const float *)(const void *)in;
    if (job->from != QN_TYPE_F32) {
        r->from->decode(in, buffer, job->row_values);
        x = buffer;
    }
    if (qn__quant_find_invalid(QN_TYPE_F32, x, job->row_values) >= 0) {
        note_bad_row(r, row, true);
        return false;
    }
    const float *weights = NULL;
    if (job->importance) {
        int64_t matrix = (job->first_row + row) / job->matrix_rows;
        weights = job->importance + matrix % job->importance_sets * job->row_values;
    }
    r->to->encode(x, out, job->row_values, weights, job->tables);
    int64_t blocks = job->row_values / qn_type_get_info(job->to)->block_values;
    if (qn__quant_find_invalid(job->to, out, blocks) >= 0) {
        note_bad_row(r, row, false);
        return false;
    }
    return true;
}

static void *work(void *argument)
{
    worker *w = argument;
    run *r = w->run;
    while (!atomic_load(&r->stop)) {
        int64_t unit = atomic_fetch_add(&r->next, 1);
        if (unit >= r->units) {
            break;
        }
        int64_t row = unit * r->unit_rows;
        int64_t end = qn__min_i64(row + r->unit_rows, r->job->rows);
        while (row < end && convert_row(r, w->row, row)) {
            row++;
        }
        int64_t done = atomic_fetch_add(&r->done, 1) + 1;
        if (w->progress && !w->progress(w->user, (float)done / (float)r->units)) {
            atomic_store(&r->stop, true);
            w->progress = NULL; /* tells the caller that it said stop */
            break;
        }
    }
    return NULL;
}

/* Runs the workers: all but the first on threads of their own. Fewer threads than asked for make
 * the work slower, not wrong. */
static void run_workers(worker *workers, int count)
{
    pthread_t *threads = qn__calloc((size_t)count, sizeof *threads);
    int started = 1;
    while (threads && started < count &&
           pthread_create(&threads[started], NULL, work, &workers[started]) == 0) {
        started++;
    }
    work(&workers[0]);
    for (int i = 1; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    free(threads);
}

qn_status qn__converter_run(qn_converter *c, const qn_convert *job, qn_progress_fn progress,
                            void *user, qn_error *err)
{
    run r = {.job = job,
             .from = qn__quant_get(job->from),
             .to = qn__quant_get(job->to),
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .bad_row = -1};
    worker *workers = NULL;
    qn_status status = qn_type_row_bytes(job->from, job->row_values, &r.in_bytes, err);
    if (status == QN_OK) {
        status = qn_type_row_bytes(job->to, job->row_values, &r.out_bytes, err);
    }
    if (status != QN_OK) {
        goto done;
    }
    r.unit_rows = qn__max_i64(1, UNIT_VALUES / qn__max_i64(1, job->row_values));
    r.units = qn__div_up(job->rows, r.unit_rows);
    int count = (int)qn__max_i64(1, qn__min_i64(c->threads, r.units));
    workers = qn__calloc((size_t)count, sizeof *workers);
    if (!workers || !reserve_rows(c, (size_t)job->row_values)) {
        status = qn__error_memory(err, "rows to convert");
        goto done;
    }
    for (int i = 0; i < count; i++) {
        workers[i] = (worker){.run = &r, .row = c->rows[i]};
    }
    workers[0].progress = progress;
    workers[0].user = user;
    run_workers(workers, count);

    if (r.bad_row >= 0) {
        status = qn__error(err, QN_ERR_FORMAT, "tensor %s: row %lld %s", job->name,
                           (long long)(job->first_row + r.bad_row),
                           r.bad_input ? "holds an infinity or a NaN"
                                       : "holds values that are too large for the format");
    } else if (progress && !workers[0].progress) {
        status = qn__error(err, QN_ERR_ABORTED, "quantization was stopped");
    }
done:
    pthread_mutex_destroy(&r.lock);
    free(workers);
    return status;
}
