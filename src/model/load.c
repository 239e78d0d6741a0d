/*
 * load.c: a file becomes a model: metadata, vocabulary, hyper-parameters, tensors; then each weight
 * in file order is looked at, copied or packed, and the file's pages are given back, so that the
 * process never holds much more than the packed form.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* mlock */
#endif
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

/* Bytes of the file where they can be read: in the mapping, or in a block of our own. */
static qn_status load_bytes(qn_loader *l, int32_t i, qn_error *err)
{
    qn_weight *w = &l->model->weights[i];
    const qn_gguf_tensor *tensor = l->sources[i];
    if (tensor->data) {
        qn__gguf_will_need(l->model->gguf, tensor);
        w->data = tensor->data;
        return QN_OK;
    }
    void *block = qn__block_alloc(tensor->bytes);
    if (!block) {
        return qn__error_memory(err, "a tensor");
    }
    l->model->owned[i] = (qn_owned){.block = block, .bytes = tensor->bytes};
    w->data = block;
    return qn_gguf_read_tensor(l->model->gguf, tensor, 0, tensor->bytes, block, err);
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

static qn_status load_weight(qn_loader *l, int32_t i, qn_error *err)
{
    qn_model *m = l->model;
    qn_weight *w = &m->weights[i];
    bool small = !(w->uses & (QN_WEIGHT_MATRIX | QN_WEIGHT_ROWS));
    const qn_quant *format = qn__quant_get(w->type);
    if (!format || format->activation_only) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "type %s is not known as a type of weights",
                         qn_type_get_info(w->type)->name);
    }
    qn_status status = small ? load_plain(l, i, err) : load_bytes(l, i, err);
    if (status == QN_OK && (small || l->options->check_tensors)) {
        status = qn__quant_check(w->type, w->data, w->ne[1] * w->ne[2], w->ne[0], err);
    }
    if (status == QN_OK) {
        status = qn__device_weight_load(m->device, w, err);
    }
    if (status != QN_OK) {
        return status;
    }
    m->n_packed_bytes += w->packed_bytes;
    if (!m->owned[i].block) {
        qn__gguf_drop(m->gguf, l->sources[i]);
    } else if (!w->data) {
        free_owned(&m->owned[i]);
    }
    return l->options->use_mlock ? lock_weight(l, i, err) : QN_OK;
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

static qn_status load_weights(qn_loader *l, qn_error *err)
{
    const qn_model_options *o = l->options;
    qn_model *m = l->model;
    qn_device_options device = qn_device_defaults();
    device.threads.n_threads = o->n_threads;
    device.log = o->log;
    qn_status status = qn_device_open(0, &device, &m->device, err);
    int32_t *order = NULL;
    if (status != QN_OK) {
        goto done;
    }
    order = weights_in_file_order(l);
    if (!order) {
        status = qn__error_memory(err, "the list of weights");
        goto done;
    }
    uint64_t done_bytes = 0;
    for (size_t i = 0; i < l->n_tensors; i++) {
        const qn_gguf_tensor *tensor = qn_gguf_tensor_at(m->gguf, i);
        if (o->progress &&
            !o->progress(o->progress_user, (float)done_bytes / (float)(m->n_bytes + 1))) {
            status = qn__error(err, QN_ERR_ABORTED, "%s: loading was stopped",
                               qn_gguf_file_name(m->gguf, 0));
            goto done;
        }
        done_bytes += tensor->bytes;
        if (order[i] < 0) {
            continue;
        }
        status = load_weight(l, order[i], err);
        if (status != QN_OK) {
            qn__error_prefix(err, "%s: tensor %s", qn_gguf_file_name(m->gguf, tensor->file),
                             tensor->name);
            goto done;
        }
    }
    if (o->progress) {
        o->progress(o->progress_user, 1.0f);
    }
    qn_device_pause(m->device);
done:
    free(order);
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
