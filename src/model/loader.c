/* loader.c: finds the tensors that an architecture asks for and checks their shapes. */
#include "model/loader.h"

#include <stdio.h>

#include "base/error.h"

void qn__loader_fail(qn_loader *l, qn_status code, const char *format, ...)
{
    if (l->status != QN_OK) {
        return;
    }
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    l->status = qn__error(&l->error, code, "%s: %s", qn_gguf_file_name(l->model->gguf, 0), text);
}

/* "[64, 128]", `dims` dimensions. */
static void shape_text(char *out, size_t size, const int64_t *ne, int dims)
{
    int at = snprintf(out, size, "[%lld", (long long)ne[0]);
    for (int i = 1; i < dims && at > 0 && (size_t)at < size; i++) {
        at += snprintf(out + at, size - (size_t)at, ", %lld", (long long)ne[i]);
    }
    if (at > 0 && (size_t)at + 1 < size) {
        snprintf(out + at, size - (size_t)at, "]");
    }
}

static int significant_dims(const int64_t ne[4])
{
    int dims = 4;
    while (dims > 1 && ne[dims - 1] == 1) {
        dims--;
    }
    return dims;
}

static bool check_shape(qn_loader *l, const qn_gguf_tensor *tensor, const int64_t expected[4])
{
    if (memcmp(tensor->ne, expected, sizeof(tensor->ne)) == 0) {
        return true;
    }
    char has[96], needs[96];
    int has_dims = significant_dims(tensor->ne), needs_dims = significant_dims(expected);
    int dims = has_dims > needs_dims ? has_dims : needs_dims;
    shape_text(has, sizeof(has), tensor->ne, dims);
    shape_text(needs, sizeof(needs), expected, dims);
    qn__loader_fail(l, QN_ERR_FORMAT, "tensor %s: shape %s where the model needs %s", tensor->name,
                    has, needs);
    return false;
}

static size_t tensor_index(const qn_loader *l, const qn_gguf_tensor *tensor)
{
    return (size_t)(tensor - qn_gguf_tensor_at(l->model->gguf, 0));
}

bool qn__loader_has(const qn_loader *l, int32_t il, qn_tensor_id id, qn_tensor_part part)
{
    char name[64];
    qn__tensor_name(name, id, part, il);
    return qn_gguf_find_tensor(l->model->gguf, name) != NULL;
}

/* The weight of a tensor of the file: a new one, or the one that was made before. */
static qn_weight *weight_of(qn_loader *l, const qn_gguf_tensor *tensor, const int64_t ne[4],
                            uint32_t uses)
{
    qn_model *m = l->model;
    for (int32_t i = 0; l->wanted[tensor_index(l, tensor)] && i < m->n_weights; i++) {
        if (l->sources[i] == tensor) {
            m->weights[i].uses |= uses;
            return &m->weights[i];
        }
    }
    qn_weight *w = &m->weights[m->n_weights];
    l->sources[m->n_weights] = tensor;
    m->n_weights++;
    snprintf(w->name, sizeof(w->name), "%s", tensor->name);
    w->type = tensor->type;
    memcpy(w->ne, ne, sizeof(w->ne));
    w->uses = uses;
    w->bytes = tensor->bytes;
    return w;
}

static void put(qn_loader *l, int32_t il, const qn_want *want, const qn_weight *w)
{
    qn_tensor *t = qn__model_tensor(l->model, il, want->id);
    const qn_weight **place[QN_PART_COUNT] = {&t->weight, &t->bias, &t->scale};
    *place[want->part] = w;
}

const qn_weight *qn__loader_want(qn_loader *l, int32_t il, const qn_want *want)
{
    if (l->status != QN_OK || want->need == QN_NEED_NO) {
        return NULL;
    }
    char name[64];
    qn__tensor_name(name, want->id, want->part, il);
    const qn_gguf_tensor *tensor = qn_gguf_find_tensor(l->model->gguf, name);
    if (!tensor) {
        if (want->need == QN_NEED_REQ) {
            qn__loader_fail(l, QN_ERR_FORMAT, "tensor %s is missing", name);
        }
        return NULL;
    }
    if (want->need == QN_NEED_IGN) {
        l->wanted[tensor_index(l, tensor)] = true;
        return NULL;
    }
    int64_t ne[4] = {want->ne[0], qn__max_i64(want->ne[1], 1), qn__max_i64(want->ne[2], 1), 1};
    if (!check_shape(l, tensor, ne)) {
        return NULL;
    }
    const qn_weight *w = weight_of(l, tensor, ne, want->uses);
    l->wanted[tensor_index(l, tensor)] = true;
    put(l, il, want, w);
    return w;
}

static void plain(qn_loader *l, int32_t il, qn_tensor_id id, qn_tensor_part part, qn_need need,
                  int64_t n, int64_t rows)
{
    qn__loader_want(
        l, il,
        &(qn_want){.id = id, .part = part, .need = need, .uses = QN_WEIGHT_PLAIN, .ne = {n, rows}});
}

void qn__loader_matrix(qn_loader *l, int32_t il, qn_tensor_id id, qn_need need, qn_need bias,
                       bool scale, int64_t in, int64_t out, int64_t planes)
{
    qn__loader_want(
        l, il,
        &(qn_want){.id = id, .need = need, .uses = QN_WEIGHT_MATRIX, .ne = {in, out, planes}});
    if (need == QN_NEED_IGN) {
        scale = false;
        bias = bias == QN_NEED_NO ? QN_NEED_NO : QN_NEED_IGN;
    } else if (!qn__model_tensor(l->model, il, id)->weight) {
        return;
    }
    plain(l, il, id, QN_PART_BIAS, bias, out, planes);
    if (scale) {
        plain(l, il, id, QN_PART_SCALE, QN_NEED_OPT, qn__max_i64(planes, 1), 1);
    }
}

void qn__loader_norm(qn_loader *l, int32_t il, qn_tensor_id id, qn_arch_norm norm, qn_need need,
                     int64_t n, int64_t rows)
{
    static const struct {
        bool weight;
        qn_need bias;
    } parts[] = {
        [QN_ARCH_RMS] = {true, QN_NEED_NO},     [QN_ARCH_RMS_BIAS] = {true, QN_NEED_REQ},
        [QN_ARCH_LAYER] = {true, QN_NEED_REQ},  [QN_ARCH_LAYER_OPT] = {true, QN_NEED_OPT},
        [QN_ARCH_LAYER_W] = {true, QN_NEED_NO}, [QN_ARCH_LAYER_0] = {false, QN_NEED_NO},
    };
    if (!parts[norm].weight) {
        return;
    }
    plain(l, il, id, QN_PART_WEIGHT, need, n, rows);
    if (qn__model_tensor(l->model, il, id)->weight) {
        plain(l, il, id, QN_PART_BIAS, parts[norm].bias, n, rows);
    }
}
