/*
 * quantize.c: the quantization run: reader → plan (quantize_plan.c) → for each tensor slabs of rows
 * → converter (quantize_convert.c) → writer. One slab of output is in memory at a time, and the
 * pages of a mapped input are given back tensor by tensor.
 */
#if defined(__linux__)
#define _GNU_SOURCE
#include <sched.h>
#endif
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "gguf/pages.h"
#include "model/quantize_convert.h"
#include "model/quantize_mix.h"
#include "model/quantize_plan.h"
#include "quant/quant.h"

/* Version of the block layouts, general.quantization_version. */
enum { LAYOUT_VERSION = 2 };

enum { DEFAULT_BUFFER = 64 << 20, MAX_THREADS = 512, MAX_NOTE = 127 };

typedef struct quantizer {
    const qn_quantize_options *options;
    qn_gguf *model;
    qn_importance *importance;
    qn_quantize_plan plan;
    qn_gguf_writer *writer;
    qn_converter *converter;
    void *tables[QN_TYPE_COUNT]; /* of encoders, made when first needed */
    uint8_t *in, *out;           /* slab buffers; `in` only where the input is not mapped */
    size_t in_bytes, out_bytes;
    uint64_t total, done; /* source bytes, for the progress */
    uint64_t piece;       /* source bytes of the slab being converted */
} quantizer;

qn_quantize_options qn_quantize_defaults(void)
{
    return (qn_quantize_options){.mix = QN_MIX_Q4_K_M,
                                 .output_type = -1,
                                 .embedding_type = -1,
                                 .buffer_bytes = DEFAULT_BUFFER};
}

/* Processors that this process may use. */
static int processor_count(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return CPU_COUNT(&set);
    }
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)qn__min_i64(count, MAX_THREADS) : 1;
}

/* ---- Progress -------------------------------------------------------------------------------- */

static bool report(const quantizer *q, double share_of_piece)
{
    if (!q->options->progress) {
        return true;
    }
    double done = (double)q->done + share_of_piece * (double)q->piece;
    return q->options->progress(q->options->user,
                                q->total > 0 ? (float)(done / (double)q->total) : 1.0F);
}

static bool report_piece(void *user, float fraction)
{
    return report(user, (double)fraction);
}

/* Counts a finished piece. */
static qn_status advance(quantizer *q, size_t bytes, qn_error *err)
{
    q->done += bytes;
    q->piece = 0;
    if (!report(q, 0.0)) {
        return qn__error(err, QN_ERR_ABORTED, "quantization was stopped");
    }
    return QN_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static qn_status reserve(uint8_t **buffer, size_t *room, size_t bytes, qn_error *err)
{
    if (bytes > *room) {
        void *block = *buffer;
        if (!qn__realloc(&block, bytes, 1)) {
            return qn__error_memory(err, "rows to convert");
        }
        *buffer = block;
        *room = bytes;
    }
    return QN_OK;
}

/* Bytes [offset, offset + n) of a tensor: in the mapping, or read to the buffer. */
static qn_status source_bytes(quantizer *q, const qn_gguf_tensor *t, size_t offset, size_t n,
                              const uint8_t **bytes, qn_error *err)
{
    if (t->data) {
        *bytes = (const uint8_t *)t->data + offset;
        return QN_OK;
    }
    qn_status status = reserve(&q->in, &q->in_bytes, n, err);
    if (status == QN_OK) {
        status = qn_gguf_read_tensor(q->model, t, offset, n, q->in, err);
        *bytes = q->in;
    }
    return status;
}

static qn_status copy_tensor(quantizer *q, const qn_gguf_tensor *t, qn_error *err)
{
    qn_status status = QN_OK;
    for (size_t offset = 0; offset < t->bytes && status == QN_OK;) {
        size_t n = t->bytes - offset;
        n = n < q->options->buffer_bytes ? n : q->options->buffer_bytes;
        const uint8_t *bytes;
        status = source_bytes(q, t, offset, n, &bytes, err);
        if (status == QN_OK) {
            status = qn_gguf_writer_write(q->writer, bytes, n, err);
        }
        if (status == QN_OK) {
            status = advance(q, n, err);
        }
        offset += n;
    }
    return status;
}

static qn_status encoder_tables(quantizer *q, qn_type type, const void **tables, qn_error *err)
{
    const qn_quant *format = qn__quant_get(type);
    if (format->make_tables && !q->tables[type]) {
        q->tables[type] = format->make_tables();
        if (!q->tables[type]) {
            return qn__error_memory(err, "encoder tables");
        }
    }
    *tables = q->tables[type];
    return QN_OK;
}

static qn_status convert_tensor(quantizer *q, const qn_quantize_item *item, qn_error *err)
{
    const qn_gguf_tensor *t = item->tensor;
    qn_convert job = {.name = t->name,
                      .from = t->type,
                      .to = item->target,
                      .row_values = t->ne[0],
                      .matrix_rows = t->ne[1],
                      .importance = item->importance,
                      .importance_sets = item->importance_sets};
    int64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
    if (rows == 0 || t->ne[0] == 0) {
        return QN_OK;
    }
    size_t in_row = t->bytes / (size_t)rows;
    size_t out_row = item->target_bytes / (size_t)rows;
    size_t slab_rows = q->options->buffer_bytes / (out_row + (t->data ? 0 : in_row));
    slab_rows = (size_t)qn__min_i64((int64_t)(slab_rows > 0 ? slab_rows : 1), rows);
    qn_status status = encoder_tables(q, item->target, &job.tables, err);
    if (status == QN_OK) {
        status = reserve(&q->out, &q->out_bytes, slab_rows * out_row, err);
    }
    job.out = q->out;
    while (job.first_row < rows && status == QN_OK) {
        job.rows = qn__min_i64((int64_t)slab_rows, rows - job.first_row);
        size_t in_bytes = (size_t)job.rows * in_row;
        q->piece = in_bytes;
        status = source_bytes(q, t, (size_t)job.first_row * in_row, in_bytes, &job.in, err);
        if (status == QN_OK) {
            status = qn__converter_run(q->converter, &job, report_piece, q, err);
        }
        if (status == QN_OK) {
            status = qn_gguf_writer_write(q->writer, q->out, (size_t)job.rows * out_row, err);
        }
        if (status == QN_OK) {
            status = advance(q, in_bytes, err);
        }
        job.first_row += job.rows;
    }
    return status;
}

static void tell(const quantizer *q, size_t index)
{
    const qn_quantize_item *item = &q->plan.items[index];
    if (!q->options->on_tensor) {
        return;
    }
    const qn_quantize_tensor tensor = {.index = index,
                                       .count = q->plan.count,
                                       .name = item->tensor->name,
                                       .n_dims = (int)item->tensor->n_dims,
                                       .ne = item->tensor->ne,
                                       .source = item->tensor->type,
                                       .target = item->target,
                                       .source_bytes = item->tensor->bytes,
                                       .target_bytes = item->target_bytes,
                                       .shape_fallback = item->shape_fallback,
                                       .lacks_importance = item->lacks_importance};
    q->options->on_tensor(q->options->user, &tensor);
}

/* ---- The file -------------------------------------------------------------------------------- */

/* A note of the metadata, cut to the length that readers of it expect. */
static void set_note(qn_gguf_writer *w, const char *key, const char *text)
{
    size_t size = strlen(text);
    qn_gguf_writer_set_text(w, key, (qn_gguf_text){text, size < MAX_NOTE ? size : MAX_NOTE});
}

static void set_metadata(quantizer *q)
{
    qn_gguf_writer *w = q->writer;
    qn_gguf_writer_copy(w, q->model);
    if (q->options->mix != QN_MIX_COPY) {
        qn_gguf_writer_set_u32(w, "general.quantization_version", LAYOUT_VERSION);
        qn_gguf_writer_set_u32(w, "general.file_type", (uint32_t)q->options->mix);
    }
    if (q->importance) {
        const qn_importance *imp = q->importance;
        set_note(w, "quantize.imatrix.file", q->options->importance_file);
        if (qn__importance_dataset(imp)[0]) {
            set_note(w, "quantize.imatrix.dataset", qn__importance_dataset(imp));
        }
        qn_gguf_writer_set_u32(w, "quantize.imatrix.entries_count",
                               (uint32_t)qn__importance_entries(imp));
        if (qn__importance_chunks(imp) > 0) {
            qn_gguf_writer_set_u32(w, "quantize.imatrix.chunks_count", qn__importance_chunks(imp));
        }
    }
}

static qn_status write_file(quantizer *q, const char *output, int threads, qn_error *err)
{
    qn_status status = qn_gguf_writer_new(&q->writer, err);
    if (status != QN_OK) {
        return status;
    }
    set_metadata(q);
    for (size_t i = 0; i < q->plan.count; i++) {
        const qn_quantize_item *item = &q->plan.items[i];
        const qn_gguf_tensor *t = item->tensor;
        qn_gguf_writer_add_tensor(q->writer, t->name, item->target,
                                  t->n_dims > 0 ? (int)t->n_dims : 1, t->ne);
        q->total += t->bytes;
    }
    status = qn_gguf_writer_check(q->writer, err);
    if (status == QN_OK) {
        status = qn__converter_make(&q->converter, threads, err);
    }
    if (status == QN_OK) {
        status = qn_gguf_writer_open(q->writer, output, err);
    }
    for (size_t i = 0; i < q->plan.count && status == QN_OK; i++) {
        const qn_quantize_item *item = &q->plan.items[i];
        tell(q, i);
        status = item->target == item->tensor->type ? copy_tensor(q, item->tensor, err)
                                                    : convert_tensor(q, item, err);
        if (status == QN_ERR_FORMAT) {
            qn__error_prefix(err, "%s", qn_gguf_file_name(q->model, item->tensor->file));
        }
        qn__gguf_drop(q->model, item->tensor, 0, item->tensor->bytes);
    }
    return status == QN_OK ? qn_gguf_writer_finish(q->writer, err) : status;
}

/* The output must not be one of the files that are read. */
static qn_status check_output(const qn_gguf *model, const char *output, qn_error *err)
{
    struct stat target;
    struct stat source;
    if (!output) {
        return qn__error(err, QN_ERR_ARGUMENT, "no name for the output file");
    }
    if (stat(output, &target) != 0) {
        return QN_OK;
    }
    for (size_t i = 0; i < qn_gguf_file_count(model); i++) {
        if (stat(qn_gguf_file_name(model, i), &source) == 0 && source.st_dev == target.st_dev &&
            source.st_ino == target.st_ino) {
            return qn__error(err, QN_ERR_ARGUMENT, "%s is the input; give the output another name",
                             output);
        }
    }
    return QN_OK;
}

static void sum_up(const quantizer *q, qn_quantize_result *result)
{
    *result = (qn_quantize_result){.tensors = q->plan.count};
    for (size_t i = 0; i < q->plan.count; i++) {
        const qn_quantize_item *item = &q->plan.items[i];
        const int64_t *ne = item->tensor->ne;
        result->converted += item->target != item->tensor->type;
        result->shape_fallbacks += item->shape_fallback;
        result->lacking_importance += item->lacks_importance;
        result->values += (uint64_t)(ne[0] * ne[1] * ne[2] * ne[3]);
        result->source_bytes += item->tensor->bytes;
        result->target_bytes += item->target_bytes;
    }
}

static void close_all(quantizer *q)
{
    for (int i = 0; i < QN_TYPE_COUNT; i++) {
        free(q->tables[i]);
    }
    free(q->in);
    free(q->out);
    qn__converter_free(q->converter);
    qn_gguf_writer_free(q->writer);
    qn__quantize_plan_free(&q->plan);
    qn__importance_free(q->importance);
    qn_gguf_free(q->model);
}

qn_status qn_quantize_file(const char *input, const char *output,
                           const qn_quantize_options *options, qn_quantize_result *result,
                           qn_error *err)
{
    quantizer q = {.options = options};
    int threads = options->threads > 0 ? options->threads : processor_count();
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    if (options->buffer_bytes == 0) {
        return qn__error(err, QN_ERR_ARGUMENT, "a buffer of 0 bytes");
    }
    qn_gguf_options reading = qn_gguf_defaults();
    reading.log = options->log;
    qn_status status = qn_gguf_open(&q.model, input, &reading, err);
    if (status == QN_OK && !options->dry_run) {
        status = check_output(q.model, output, err);
    }
    if (status == QN_OK && options->importance_file) {
        status = qn__importance_open(&q.importance, options->importance_file, err);
    }
    if (status == QN_OK) {
        status = qn__quantize_plan_make(&q.plan, q.model, options, q.importance, err);
        if (status != QN_OK) {
            qn__error_prefix(err, "%s", input);
        }
    }
    if (status == QN_OK && options->dry_run) {
        for (size_t i = 0; i < q.plan.count; i++) {
            tell(&q, i);
        }
    } else if (status == QN_OK) {
        status = write_file(&q, output, threads, err);
    }
    if (status == QN_OK && result) {
        sum_up(&q, result);
    }
    close_all(&q);
    return status;
}
