/*
 * graph.c: the arena of nodes: making and freeing a graph, leaves, views, facts about nodes.
 * The operations that compute are in ops.c; both make nodes through qn__graph_add_node.
 */
#include "tensor/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "tensor/build.h"
#include "tensor/weight.h"

qn_graph *qn__graph_make(qn_error *err)
{
    qn_graph *g = qn__calloc(1, sizeof *g);
    if (!g) {
        qn__error_memory(err, "graph");
        return NULL;
    }
    g->dummy = (qn_node){
        .op = QN_OP_NONE, .type = QN_TYPE_F32, .ne = {1, 1, 1, 1}, .nb = {4, 4, 4, 4}, .id = -1};
    return g;
}

void qn__graph_free(qn_graph *g)
{
    if (!g) {
        return;
    }
    free(g->nodes);
    qn__arena_free(&g->arena);
    free(g);
}

qn_status qn__graph_finish(qn_graph *g, qn_error *err)
{
    if (g->status != QN_OK && err) {
        *err = g->error;
    }
    return g->status;
}

/* Making nodes ----------------------------------------------------------------------------------
 */

qn_node *qn__graph_fail(qn_graph *g, qn_status status, const char *format, ...)
{
    if (g->status == QN_OK) {
        va_list args;
        va_start(args, format);
        g->status = status;
        g->error.code = status;
        vsnprintf(g->error.message, sizeof g->error.message, format, args);
        va_end(args);
    }
    return &g->dummy;
}

bool qn__node_set_shape(qn_node *node, qn_type type, const int64_t ne[QN_MAX_DIMS])
{
    size_t bytes = 0;
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        if (ne[i] < 0) {
            return false;
        }
        node->ne[i] = ne[i];
    }
    const qn_type_info *info = qn_type_get_info(type);
    if (!info || qn_type_row_bytes(type, ne[0], &bytes, NULL) != QN_OK) {
        return false;
    }
    node->type = type;
    node->nb[0] = info->block_bytes;
    for (int i = 1; i < QN_MAX_DIMS; i++) {
        node->nb[i] = bytes;
        if (!qn__mul_size(bytes, (size_t)ne[i], &bytes) || bytes > QN_MAX_NODE_BYTES) {
            return false;
        }
    }
    return true;
}

qn_node *qn__graph_add_node(qn_graph *g, const qn_node *model)
{
    if (g->status != QN_OK) {
        return &g->dummy;
    }
    if (g->n_nodes == QN_MAX_NODES) {
        return qn__graph_fail(g, QN_ERR_LIMIT, "graph: more than %d nodes", QN_MAX_NODES);
    }
    if (g->n_nodes == g->capacity) {
        int32_t capacity = g->capacity ? g->capacity * 2 : 256;
        void *nodes = g->nodes;
        if (!qn__realloc(&nodes, (size_t)capacity, sizeof *g->nodes)) {
            return qn__graph_fail(g, QN_ERR_MEMORY, "graph: out of memory");
        }
        g->nodes = nodes;
        g->capacity = capacity;
    }
    qn_node *node = qn__arena_alloc(&g->arena, 1, sizeof *node);
    if (!node) {
        return qn__graph_fail(g, QN_ERR_MEMORY, "graph: out of memory");
    }
    *node = *model;
    node->id = g->n_nodes;
    g->nodes[g->n_nodes++] = node;
    return node;
}

/* Leaves ----------------------------------------------------------------------------------------
 */

static qn_node *add_leaf(qn_graph *g, qn_type type, const int64_t ne[4], const qn_node *model,
                         const char *name)
{
    qn_node leaf = *model;
    if (!qn__node_set_shape(&leaf, type, ne)) {
        return qn__graph_fail(
            g, QN_ERR_ARGUMENT, "leaf %s: not a shape of its type: [%lld, %lld, %lld, %lld]", name,
            (long long)ne[0], (long long)ne[1], (long long)ne[2], (long long)ne[3]);
    }
    snprintf(leaf.name, sizeof leaf.name, "%s", name);
    return qn__graph_add_node(g, &leaf);
}

qn_node *qn__graph_input(qn_graph *g, qn_type type, int dims, const int64_t *ne, const char *name)
{
    int64_t shape[QN_MAX_DIMS] = {1, 1, 1, 1};
    if (dims < 0 || dims > QN_MAX_DIMS) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "leaf %s: %d dimensions", name, dims);
    }
    for (int i = 0; i < dims; i++) {
        shape[i] = ne[i];
    }
    return add_leaf(g, type, shape, &(qn_node){.flags = QN_NODE_INPUT}, name);
}

qn_node *qn__graph_weight(qn_graph *g, const qn_weight *w, const char *name)
{
    /* A device never writes through the data of a weight. */
    qn_node leaf = {.flags = QN_NODE_WEIGHT, .weight = w, .data = (void *)(uintptr_t)w->data};
    return add_leaf(g, w->type, w->ne, &leaf, name);
}

qn_node *qn__graph_store(qn_graph *g, qn_type type, const int64_t ne[4], void *data,
                         const char *name)
{
    return add_leaf(g, type, ne, &(qn_node){.flags = QN_NODE_STORE, .data = data}, name);
}

/* Views -----------------------------------------------------------------------------------------
 */

/* Bytes from the first to behind the last element; false on overflow. 0 for an empty node. */
static bool extent(const qn_node *node, size_t *out)
{
    size_t total = 0;
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        if (node->ne[i] == 0) {
            *out = 0;
            return true;
        }
    }
    const qn_type_info *info = qn_type_get_info(node->type);
    size_t blocks = (size_t)node->ne[0] / info->block_values;
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        size_t count = i == 0 ? blocks : (size_t)node->ne[i], part = 0;
        if (!qn__mul_size(count - 1, node->nb[i], &part) || !qn__add_size(total, part, &total)) {
            return false;
        }
    }
    return qn__add_size(total, info->block_bytes, out);
}

static qn_node *add_view(qn_graph *g, qn_node *x, qn_node *view, size_t offset)
{
    qn_node *owner = x->view_of ? x->view_of : x;
    size_t bytes = 0, end = 0, start = 0;
    view->src[0] = x;
    view->view_of = owner;
    if (!qn__add_size(x->view_offset, offset, &start) || !extent(view, &bytes) ||
        !qn__add_size(start, bytes, &end) || end > qn__node_bytes(owner)) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "%s of %s: reaches outside of the storage",
                              qn__op_name(view->op), x->name);
    }
    view->view_offset = start;
    return qn__graph_add_node(g, view);
}

qn_node *qn__graph_view(qn_graph *g, qn_node *x, const int64_t ne[4], const size_t nb[4],
                        size_t offset)
{
    if (g->status != QN_OK) {
        return &g->dummy;
    }
    qn_node view = {.op = QN_OP_VIEW};
    view.params.view.offset = offset;
    if (!qn__node_set_shape(&view, x->type, ne)) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "view of %s: not a shape of its type", x->name);
    }
    for (int i = 1; i < QN_MAX_DIMS; i++) {
        view.nb[i] = nb[i];
    }
    if (x->nb[0] != view.nb[0] || offset % view.nb[0] != 0) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "view of %s: not at whole elements", x->name);
    }
    return add_view(g, x, &view, offset);
}

qn_node *qn__graph_reshape(qn_graph *g, qn_node *x, int64_t ne0, int64_t ne1, int64_t ne2,
                           int64_t ne3)
{
    if (g->status != QN_OK) {
        return &g->dummy;
    }
    qn_node view = {.op = QN_OP_RESHAPE};
    const int64_t ne[4] = {ne0, ne1, ne2, ne3};
    if (!qn__node_is_contiguous(x)) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "reshape of %s: not contiguous; copy it first",
                              x->name);
    }
    if (!qn__node_set_shape(&view, x->type, ne) || qn__node_bytes(&view) != qn__node_bytes(x)) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT,
                              "reshape of %s: [%lld, %lld, %lld, %lld] is not its size", x->name,
                              (long long)ne0, (long long)ne1, (long long)ne2, (long long)ne3);
    }
    return add_view(g, x, &view, 0);
}

qn_node *qn__graph_permute(qn_graph *g, qn_node *x, int d0, int d1, int d2, int d3)
{
    if (g->status != QN_OK) {
        return &g->dummy;
    }
    const int order[QN_MAX_DIMS] = {d0, d1, d2, d3};
    qn_node view = {.op = QN_OP_PERMUTE, .type = x->type};
    unsigned seen = 0;
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        if (order[i] < 0 || order[i] >= QN_MAX_DIMS) {
            break;
        }
        seen |= 1U << order[i];
        view.ne[i] = x->ne[order[i]];
        view.nb[i] = x->nb[order[i]];
    }
    if (seen != 15U || (d0 != 0 && qn_type_get_info(x->type)->block_values != 1)) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "permute of %s: %d, %d, %d, %d is not an order",
                              x->name, d0, d1, d2, d3);
    }
    return add_view(g, x, &view, 0);
}

qn_node *qn__graph_slice(qn_graph *g, qn_node *x, int64_t first, int64_t count)
{
    if (g->status != QN_OK) {
        return &g->dummy;
    }
    const qn_type_info *info = qn_type_get_info(x->type);
    if (first < 0 || count < 0 || first > x->ne[0] || count > x->ne[0] - first ||
        first % info->block_values != 0) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "slice of %s: %lld + %lld of %lld", x->name,
                              (long long)first, (long long)count, (long long)x->ne[0]);
    }
    const int64_t ne[4] = {count, x->ne[1], x->ne[2], x->ne[3]};
    size_t offset = (size_t)first / info->block_values * info->block_bytes;
    return qn__graph_view(g, x, ne, x->nb, offset);
}

/* Facts -----------------------------------------------------------------------------------------
 */

qn_node *qn__graph_output(qn_graph *g, qn_node *x, const char *name)
{
    if (x != &g->dummy) {
        x->flags |= QN_NODE_OUTPUT;
        snprintf(x->name, sizeof x->name, "%s", name);
    }
    return x;
}

void qn__node_set_name(qn_node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(node->name, sizeof node->name, format, args);
    va_end(args);
}

bool qn__node_is_contiguous(const qn_node *node)
{
    const qn_type_info *info = qn_type_get_info(node->type);
    size_t bytes = info->block_bytes;
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        if (node->ne[i] == 0) {
            return true;
        }
        if (node->ne[i] != 1 && node->nb[i] != bytes) {
            return false;
        }
        bytes *= (size_t)(i == 0 ? node->ne[0] / info->block_values : node->ne[i]);
    }
    return true;
}

int64_t qn__node_n_rows(const qn_node *node)
{
    return node->ne[1] * node->ne[2] * node->ne[3];
}

size_t qn__node_bytes(const qn_node *node)
{
    size_t bytes = 0;
    if (qn_type_row_bytes(node->type, node->ne[0], &bytes, NULL) != QN_OK) {
        return 0;
    }
    for (int i = 1; i < QN_MAX_DIMS; i++) {
        if (!qn__mul_size(bytes, (size_t)node->ne[i], &bytes)) {
            return 0;
        }
    }
    return bytes;
}
