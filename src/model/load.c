/*
 * load.c: a file becomes a model: metadata, vocabulary, hyper-parameters, tensors; then each weight
 * in file order is looked at, copied or packed by all threads, some rows at a time, and the file's
 * pages are given back, so that the process never holds much more than the packed form.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mlock */
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/fmath.h"
#include "gguf/pages.h"
#include "model/hparams.h"
#include "model/loader.h"
#include "quant/quant.h"
#include "vocab/vocab.h"

qn_model_options qn_model_defaults(void)
{
    return (qn_model_options){.use_mmap = true, .check_tensors = true};
}

/* Weights ------------------------------------------------------------------------------------ */

/* A small operand of other nodes: always F32 and always copied. */
static qn_status load_plain(qn_loader *l, int32_t i, qn_error *err)
{
    qn_weight *w = &l->model->weights[i];
    const qn_gguf_tensor *tensor = l->sources[i];
    if (w->type != QN_TYPE_F32 && w->type != QN_TYPE_F16 && w->type != QN_TYPE_BF16) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "type %s for a tensor of this kind",
                         qn_type_get_info(w->type)->name);
    }
    size_t n = (size_t)(w->ne[0] * w->ne[1] * w->ne[2]), bytes = 0;
    if (!qn__mul_size(n, sizeof(float), &bytes)) {
        return qn__error(err, QN_ERR_LIMIT, "too large");
    }
    float *values = qn__calloc(n, sizeof(float));
    void *raw = w->type == QN_TYPE_F32 ? values : qn__calloc(1, tensor->bytes);
    qn_status status = values && raw ? QN_OK : qn__error_memory(err, "a tensor");
    if (status == QN_OK) {
        status = qn_gguf_read_tensor(l->model->gguf, tensor, 0, tensor->bytes, raw, err);
    }
    if (status == QN_OK && raw != values) {
        qn__quant_get(w->type)->decode(raw, values, (int64_t)n);
    }
    if (raw != values) {
        free(raw);
    }
    l->model->owned[i] = (qn_owned){.block = values, .small = true};
    w->type = QN_TYPE_F32;
    w->data = values;
    w->bytes = bytes;
    return status;
}

static void free_owned(qn_owned *owned)
{
    if (owned->small) {
        free(owned->block);
    } else if (owned->block) {
        qn__block_free(owned->block, owned->bytes);
    }
    *owned = (qn_owned){0};
}

static qn_status lock_weight(qn_loader *l, int32_t i, qn_error *err)
{
    const qn_weight *w = &l->model->weights[i];
    const qn_owned *owned = &l->model->owned[i];
    if (w->packed && mlock(w->packed, w->packed_bytes) != 0) {
        return qn__error(err, QN_ERR_IO, "cannot lock %zu bytes in memory (ulimit -l)",
                         w->packed_bytes);
    }
    if (!w->data || owned->small) {
        return QN_OK;
    }
    if (!owned->block) {
        return qn__gguf_lock(l->model->gguf, l->sources[i], err);
    }
    return mlock(owned->block, owned->bytes) == 0
               ? QN_OK
               : qn__error(err, QN_ERR_IO, "cannot lock %zu bytes in memory (ulimit -l)",
                           owned->bytes);
}

/* Loading is a feed of weights to the device, in file order (device/device.h). */
typedef struct feeding {
    qn_loader *loader;
    const int32_t *order; /* weight of each tensor of the file, or -1 */
    size_t at, end;       /* tensors: the next one, and where this round ends */
    uint64_t done_bytes;
    qn_buf *buffers; /* [threads], for rows of a file that is not mapped */

    pthread_mutex_t lock; /* for the error: the one that comes first in the file is kept */
    const qn_gguf_tensor *culprit;
    int64_t culprit_row;
    qn_status status;
    qn_error error;
} feeding;

static void fail(feeding *f, const qn_gguf_tensor *tensor, int64_t row, qn_status status,
                 const qn_error *err)
{
    pthread_mutex_lock(&f->lock);
    if (f->status == QN_OK || row < f->culprit_row) {
        f->status = status;
        f->error = *err;
        f->culprit = tensor;
        f->culprit_row = row;
    }
    pthread_mutex_unlock(&f->lock);
}

/* Whether the type is one of weights; loads what is small, prepares what the device will ask for.
 */
static qn_status prepare_weight(qn_loader *l, int32_t i, qn_error *err)
{
    qn_weight *w = &l->model->weights[i];
    const qn_gguf_tensor *tensor = l->sources[i];
    const qn_quant *format = qn__quant_get(w->type);
    if (!format || format->activation_only) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "type %s is not known as a type of weights",
                         qn_type_get_info(w->type)->name);
    }
    if (!(w->uses & (QN_WEIGHT_MATRIX | QN_WEIGHT_ROWS))) {
        qn_status status = load_plain(l, i, err);
        return status != QN_OK
                   ? status
                   : qn__quant_check(w->type, w->data, 0, w->ne[1] * w->ne[2], w->ne[0], err);
    }
    if (tensor->data) {
        qn__gguf_will_need(l->model->gguf, tensor);
        w->data = tensor->data;
    } else if (!(w->uses & QN_WEIGHT_MATRIX) ||
               ((w->uses & QN_WEIGHT_ROWS) && !qn__device_packs_rows(l->model->device, w->type))) {
        void *block = qn__block_alloc(tensor->bytes);
        if (!block) {
            return qn__error_memory(err, "a tensor");
        }
        l->model->owned[i] = (qn_owned){.block = block, .bytes = tensor->bytes};
        w->data = block;
    }
    return QN_OK;
}

/* What is left to do when the device has the weight. */
static qn_status finish_weight(qn_loader *l, int32_t i, qn_error *err)
{
    const qn_gguf_tensor *tensor = l->sources[i];
    l->model->n_packed_bytes += l->model->weights[i].packed_bytes;
    qn__gguf_drop(l->model->gguf, tensor, 0, tensor->bytes);
    return l->options->use_mlock ? lock_weight(l, i, err) : QN_OK;
}

static qn_weight *next_weight(void *user)
{
    feeding *f = user;
    qn_loader *l = f->loader;
    while (f->at < f->end && f->status == QN_OK) {
        const int32_t i = f->order[f->at];
        const qn_gguf_tensor *tensor = qn_gguf_tensor_at(l->model->gguf, f->at);
        qn_error err;
        f->at++;
        f->done_bytes += tensor->bytes;
        if (i < 0) {
            continue;
        }
        qn_weight *w = &l->model->weights[i];
        const bool small = !(w->uses & (QN_WEIGHT_MATRIX | QN_WEIGHT_ROWS));
        qn_status status = prepare_weight(l, i, &err);
        if (status == QN_OK && small) {
            status = finish_weight(l, i, &err);
        }
        if (status != QN_OK) {
            fail(f, tensor, 0, status, &err);
        } else if (!small) {
            return w;
        }
    }
    return NULL;
}

/* Where rows are or can be read, checked if that is wanted. */
static const void *weight_rows(void *user, const qn_weight *w, int64_t row, int64_t n_rows,
                               int32_t worker)
{
    feeding *f = user;
    qn_loader *l = f->loader;
    const int32_t i = (int32_t)(w - l->model->weights);
    const qn_gguf_tensor *tensor = l->sources[i];
    qn_error err;
    size_t row_bytes = 0;
    qn_status status = qn_type_row_bytes(w->type, w->ne[0], &row_bytes, &err);
    const size_t offset = (size_t)row * row_bytes, bytes = (size_t)n_rows * row_bytes;
    const void *rows = tensor->data ? (const uint8_t *)tensor->data + offset : NULL;
    if (status == QN_OK && !rows) {
        uint8_t *to = l->model->owned[i].block;
        qn_buf *buffer = &f->buffers[worker];
        to = to ? to + offset : qn__buf_reserve(buffer, bytes) ? buffer->data : NULL;
        status = to ? qn_gguf_read_tensor(l->model->gguf, tensor, offset, bytes, to, &err)
                    : qn__error_memory(&err, "a part of a tensor");
        rows = to;
    }
    if (status == QN_OK && l->options->check_tensors) {
        status = qn__quant_check(w->type, rows, row, n_rows, w->ne[0], &err);
    }
    if (status != QN_OK) {
        fail(f, tensor, row, status, &err);
        return NULL;
    }
    return rows;
}

static void weight_used(void *user, const qn_weight *w, int64_t row, int64_t n_rows)
{
    feeding *f = user;
    const qn_loader *l = f->loader;
    size_t row_bytes = 0;
    if (qn_type_row_bytes(w->type, w->ne[0], &row_bytes, NULL) == QN_OK) {
        qn__gguf_drop(l->model->gguf, l->sources[w - l->model->weights], (size_t)row * row_bytes,
                      (size_t)n_rows * row_bytes);
    }
}

static bool weight_done(void *user, qn_weight *w)
{
    feeding *f = user;
    const int32_t i = (int32_t)(w - f->loader->model->weights);
    qn_error err;
    qn_status status = finish_weight(f->loader, i, &err);
    if (status != QN_OK) {
        fail(f, f->loader->sources[i], 0, status, &err);
    }
    return status == QN_OK;
}

/* Number of the weight that was made of each tensor of the file; -1 for none. */
static int32_t *weights_in_file_order(const qn_loader *l)
{
    int32_t *order = qn__calloc(l->n_tensors + 1, sizeof(int32_t));
    for (size_t i = 0; order && i < l->n_tensors; i++) {
        order[i] = -1;
    }
    for (int32_t i = 0; order && i < l->model->n_weights; i++) {
        order[l->sources[i] - qn_gguf_tensor_at(l->model->gguf, 0)] = i;
    }
    return order;
}

/* All weights; with a progress function one tensor at a time, so that it is asked between them. */
static qn_status feed_weights(feeding *f, qn_error *err)
{
    qn_loader *l = f->loader;
    const qn_model_options *o = l->options;
    qn_model *m = l->model;
    const qn_weight_feed feed = {.next = next_weight,
                                 .rows = weight_rows,
                                 .used = weight_used,
                                 .done = weight_done,
                                 .user = f};
    while (f->at < l->n_tensors) {
        if (o->progress &&
            !o->progress(o->progress_user, (float)f->done_bytes / (float)(m->n_bytes + 1))) {
            return qn__error(err, QN_ERR_ABORTED, "%s: loading was stopped",
                             qn_gguf_file_name(m->gguf, 0));
        }
        f->end = o->progress ? f->at + 1 : l->n_tensors;
        qn_error device_error;
        qn_status status = qn__device_weights_load(m->device, &feed, &device_error);
        if (status != QN_OK) {
            fail(f, qn_gguf_tensor_at(m->gguf, f->at - 1), 0, status, &device_error);
        }
        if (f->status != QN_OK) {
            *err = f->error;
            qn__error_prefix(err, "%s: tensor %s", qn_gguf_file_name(m->gguf, f->culprit->file),
                             f->culprit->name);
            return f->status;
        }
    }
    if (o->progress) {
        o->progress(o->progress_user, 1.0f);
    }
    return QN_OK;
}

static qn_status load_weights(qn_loader *l, qn_error *err)
{
    const qn_model_options *o = l->options;
    qn_model *m = l->model;
    qn_device_options device = qn_device_defaults();
    device.threads.n_threads = o->n_threads;
    device.log = o->log;
    qn_status status = qn_device_open(0, &device, &m->device, err);
    if (status != QN_OK) {
        return status;
    }
    const size_t n_threads = (size_t)qn_device_n_threads(m->device);
    int32_t *order = weights_in_file_order(l);
    feeding f = {.loader = l,
                 .order = order,
                 .buffers = qn__calloc(n_threads, sizeof(qn_buf)),
                 .lock = PTHREAD_MUTEX_INITIALIZER};
    status =
        order && f.buffers ? feed_weights(&f, err) : qn__error_memory(err, "the list of weights");
    for (size_t i = 0; f.buffers && i < n_threads; i++) {
        qn__buf_free(&f.buffers[i]);
    }
    free(f.buffers);
    free(order);
    qn_device_pause(m->device);
    return status;
}

/* The model ---------------------------------------------------------------------------------- */

static void count_tensors(qn_model *m)
{
    for (size_t i = 0; i < qn_gguf_tensor_count(m->gguf); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(m->gguf, i);
        m->n_params += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        m->n_bytes += t->bytes;
    }
}

/* The type that holds most bytes. */
static const char *main_type(const qn_model *m)
{
    uint64_t bytes[QN_TYPE_COUNT] = {0};
    int best = -1;
    for (size_t i = 0; i < qn_gguf_tensor_count(m->gguf); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(m->gguf, i);
        bytes[t->type] += t->bytes;
        best = best < 0 || bytes[t->type] > bytes[best] ? (int)t->type : best;
    }
    return best < 0 ? "no tensors" : qn_type_get_info(best)->name;
}

static bool describe(qn_model *m)
{
    char text[192];
    double n = (double)m->n_params;
    const char *unit = n >= 1e9 ? "B" : n >= 1e6 ? "M" : "K";
    double size = n >= 1e9 ? n / 1e9 : n >= 1e6 ? n / 1e6 : n / 1e3;
    int digits = size < 10 ? 2 : size < 100 ? 1 : 0;
    int written = snprintf(text, sizeof(text), "%.120s %.*f%s %s", m->architecture, digits, size,
                           unit, main_type(m));
    m->description = qn__arena_strndup(&m->arena, text, written > 0 ? strlen(text) : 0);
    return m->description != NULL;
}

static qn_status open_file(qn_model *m, const char *path, const qn_model_options *o, qn_error *err)
{
    qn_gguf_options options = qn_gguf_defaults();
    options.use_mmap = o->use_mmap;
    options.metadata_only = o->vocab_only;
    options.log = o->log;
    qn_status status = qn_gguf_open(&m->gguf, path, &options, err);
    qn_gguf_text name = {0};
    if (status == QN_OK) {
        status = qn_gguf_get_str(m->gguf, "general.architecture", &name, err);
    }
    if (status != QN_OK) {
        return status;
    }
    m->architecture = name.data;
    m->arch = qn__arch_find(name.data, name.size);
    if (!m->arch && !o->vocab_only) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "%s: architecture \"%.64s\" is not known", path,
                         name.data);
    }
    count_tensors(m);
    return describe(m) ? QN_OK : qn__error_memory(err, "a model");
}

static qn_status load_tensors(qn_model *m, const qn_model_options *o, qn_error *err)
{
    qn_loader l = {.model = m, .options = o, .n_tensors = qn_gguf_tensor_count(m->gguf)};
    m->weights = qn__calloc(l.n_tensors + 1, sizeof(*m->weights));
    m->owned = qn__calloc(l.n_tensors + 1, sizeof(*m->owned));
    m->layers = qn__calloc((size_t)m->hp.n_layer, sizeof(*m->layers));
    l.sources = qn__calloc(l.n_tensors + 1, sizeof(*l.sources));
    l.wanted = qn__calloc(l.n_tensors + 1, sizeof(*l.wanted));
    qn_status status = QN_OK;
    if (!m->weights || !m->owned || !m->layers || !l.sources || !l.wanted) {
        status = qn__error_memory(err, "the list of weights");
    }
    if (status == QN_OK) {
        status = qn__loader_tensors(&l, err);
    }
    if (status == QN_OK) {
        status = load_weights(&l, err);
    }
    free(l.sources);
    free(l.wanted);
    return status;
}

qn_status qn_model_load(qn_model **out, const char *path, const qn_model_options *options,
                        qn_error *err)
{
    qn_model_options defaults = qn_model_defaults();
    const qn_model_options *o = options ? options : &defaults;
    qn_error local;
    err = err ? err : &local;
    *out = NULL;
    qn_model *m = qn__calloc(1, sizeof(*m));
    if (!m) {
        return qn__error_memory(err, "a model");
    }
    m->vocab_only = o->vocab_only;
    qn_status status = open_file(m, path, o, err);
    if (status == QN_OK) {
        status = qn__vocab_load(m->gguf, &o->log, &m->vocab, err);
    }
    if (status == QN_OK && m->arch) {
        bool has_texts = qn_vocab_get_kind(m->vocab) != QN_VOCAB_NONE;
        int32_t n_vocab = has_texts ? qn_vocab_size(m->vocab) : 0;
        status = qn__hparams_read(&m->hp, m->gguf, m->arch, n_vocab, err);
    }
    if (status == QN_OK && m->arch) {
        qn__hparams_kv_layout(&m->hp, m->arch, &m->kv);
    }
    if (status == QN_OK && !o->vocab_only) {
        status = load_tensors(m, o, err);
    }
    if (status != QN_OK) {
        qn_model_free(m);
        return status;
    }
    *out = m;
    return QN_OK;
}

void qn_model_free(qn_model *model)
{
    if (!model) {
        return;
    }
    for (int32_t i = 0; i < model->n_weights; i++) {
        if (model->device) {
            qn__device_weight_free(model->device, &model->weights[i]);
        }
        free_owned(&model->owned[i]);
    }
    free(model->weights);
    free(model->owned);
    free(model->layers);
    qn_device_free(model->device);
    qn_vocab_free(model->vocab);
    qn_gguf_free(model->gguf);
    qn__arena_free(&model->arena);
    free(model);
}
