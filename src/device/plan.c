/*
 * plan.c: which nodes are computed, where their results lie, and running them.
 *
 * Storage by lifetime: the nodes are walked in order with a list of free ranges. A node gets the
 * smallest range that fits, or takes over the storage of its first source where nobody reads that
 * afterwards; when the last reader of a node has been passed, its range becomes free. Views live in
 * the storage of their owner and lengthen its life. Offsets are fixed when the plan is made; `data`
 * follows the memory when that grows.
 */
#include "device/plan.h"

#include <stdlib.h>

#include "base/error.h"

#define NODE_ALIGN 64
#define NO_PLACE   SIZE_MAX
#define FOREVER    INT32_MAX

struct qn_plan_memory {
    qn_device *device;
    void *base;
    size_t bytes;
    uint64_t version; /* counts the moves of base */
};

struct qn_plan {
    qn_graph *graph;
    qn_device *device;
    qn_plan_memory *memory;
    bool owns_memory;
    uint64_t bound_version; /* of the memory that the nodes point into */
    size_t *place;          /* of each node: offset in the memory, or NO_PLACE */
    size_t result_bytes, workspace_bytes;
    void *inputs;
    size_t input_bytes;
    qn_program *program;
    int32_t n_steps;
};

/* Memory ----------------------------------------------------------------------------------------
 */

qn_plan_memory *qn__plan_memory_make(qn_device *device, qn_error *err)
{
    qn_plan_memory *memory = qn__calloc(1, sizeof *memory);
    if (!memory) {
        qn__error_memory(err, "plan memory");
        return NULL;
    }
    memory->device = device;
    return memory;
}

void qn__plan_memory_free(qn_plan_memory *memory)
{
    if (!memory) {
        return;
    }
    qn__device_memory_free(memory->device, memory->base, memory->bytes);
    free(memory);
}

size_t qn__plan_memory_bytes(const qn_plan_memory *memory)
{
    return memory->bytes;
}

static qn_status memory_grow(qn_plan_memory *memory, size_t bytes, qn_error *err)
{
    if (bytes <= memory->bytes) {
        return QN_OK;
    }
    void *base = qn__device_memory_alloc(memory->device, bytes);
    if (!base) {
        return qn__error(err, QN_ERR_MEMORY, "out of memory: %zu bytes of workspace", bytes);
    }
    qn__device_memory_free(memory->device, memory->base, memory->bytes);
    memory->base = base;
    memory->bytes = bytes;
    memory->version++;
    return QN_OK;
}

/* Free ranges -----------------------------------------------------------------------------------
 */

typedef struct range {
    size_t start, bytes;
} range;

typedef struct range_list {
    range *ranges; /* by start; neighbours are joined */
    int32_t count;
    size_t top; /* everything from here on is free */
} range_list;

static void range_remove(range_list *list, int32_t i)
{
    list->count--;
    memmove(&list->ranges[i], &list->ranges[i + 1],
            (size_t)(list->count - i) * sizeof *list->ranges);
}

static size_t range_take(range_list *list, size_t bytes)
{
    int32_t best = -1;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->ranges[i].bytes >= bytes &&
            (best < 0 || list->ranges[i].bytes < list->ranges[best].bytes)) {
            best = i;
        }
    }
    if (best >= 0) {
        range *r = &list->ranges[best];
        size_t start = r->start;
        r->start += bytes;
        r->bytes -= bytes;
        if (r->bytes == 0) {
            range_remove(list, best);
        }
        return start;
    }
    size_t start = list->top;
    list->top += bytes;
    return start;
}

/* The list has room: one range for each node at most. */
static void range_give(range_list *list, size_t start, size_t bytes)
{
    int32_t i = 0;
    while (i < list->count && list->ranges[i].start < start) {
        i++;
    }
    memmove(&list->ranges[i + 1], &list->ranges[i],
            (size_t)(list->count - i) * sizeof *list->ranges);
    list->ranges[i] = (range){start, bytes};
    list->count++;
    if (i + 1 < list->count && start + bytes == list->ranges[i + 1].start) {
        list->ranges[i].bytes += list->ranges[i + 1].bytes;
        range_remove(list, i + 1);
    }
    if (i > 0 && list->ranges[i - 1].start + list->ranges[i - 1].bytes == start) {
        list->ranges[i - 1].bytes += list->ranges[i].bytes;
        range_remove(list, i);
    }
}

/* Lifetimes -------------------------------------------------------------------------------------
 */

/* What is known of a node while the plan is made. */
typedef struct life {
    bool needed;
    int32_t last; /* index of the last reader of its storage; FOREVER for outputs */
    size_t bytes; /* of its storage, aligned */
} life;

static qn_node *owner_of(qn_node *node)
{
    return node->view_of ? node->view_of : node;
}

static bool computes(const qn_node *node)
{
    return node->op != QN_OP_NONE && !qn__op_is_view(node->op);
}

/* A result that gets storage from the memory. */
static bool has_place(const qn_node *node)
{
    return computes(node) && !node->view_of;
}

/* From the last node to the first: who is needed, and how long. */
static void find_lives(const qn_graph *g, life *lives)
{
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        qn_node *node = g->nodes[i];
        if (node->flags & QN_NODE_OUTPUT) {
            lives[i].needed = true;
            lives[owner_of(node)->id].last = FOREVER;
        }
        if (computes(node) && owner_of(node)->flags & QN_NODE_STORE) {
            lives[i].needed = true;
        }
        if (!lives[i].needed) {
            continue;
        }
        for (int s = 0; s < QN_MAX_SRC; s++) {
            if (node->src[s]) {
                life *source = &lives[owner_of(node->src[s])->id];
                lives[node->src[s]->id].needed = true;
                if (computes(node) && source->last < i) {
                    source->last = i;
                }
            }
        }
        if (node->view_of) {
            lives[node->view_of->id].needed = true;
        }
    }
}

/* Whether the result of `node` may lie where its first source lies. */
static bool may_take_over(const qn_node *node, const life *lives)
{
    if (!qn__op_in_place(node->op) || !node->src[0]) {
        return false;
    }
    qn_node *x = node->src[0], *owner = owner_of(x);
    if (!has_place(owner) || lives[owner->id].last != node->id || x->view_offset != 0 ||
        !qn__node_is_contiguous(x) || qn__node_bytes(x) != qn__node_bytes(owner) ||
        qn__node_bytes(x) != qn__node_bytes(node)) {
        return false;
    }
    for (int s = 1; s < QN_MAX_SRC; s++) {
        if (node->src[s] && owner_of(node->src[s]) == owner) {
            return false;
        }
    }
    return true;
}

static void place_nodes(qn_plan *plan, life *lives, range_list *list)
{
    const qn_graph *g = plan->graph;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        qn_node *node = g->nodes[i];
        qn_node *given = NULL;
        if (!lives[i].needed || !computes(node)) {
            continue;
        }
        if (has_place(node)) {
            size_t bytes = qn__align_up(qn__node_bytes(node), NODE_ALIGN);
            lives[i].bytes = bytes > 0 ? bytes : NODE_ALIGN;
            if (may_take_over(node, lives)) {
                given = owner_of(node->src[0]);
                plan->place[i] = plan->place[given->id];
            } else {
                plan->place[i] = range_take(list, lives[i].bytes);
            }
        }
        for (int s = 0; s < QN_MAX_SRC; s++) {
            qn_node *owner = node->src[s] ? owner_of(node->src[s]) : NULL;
            if (owner && has_place(owner) && lives[owner->id].last == i) {
                lives[owner->id].last = -1; /* once, though it may be a source twice */
                if (owner != given) {
                    range_give(list, plan->place[owner->id], lives[owner->id].bytes);
                }
            }
        }
    }
    plan->result_bytes = list->top;
}

/* Making ----------------------------------------------------------------------------------------
 */

/* Inputs without data get memory of the plan, one behind the other. */
static qn_status place_inputs(qn_plan *plan, qn_error *err)
{
    const qn_graph *g = plan->graph;
    size_t total = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        qn_node *node = g->nodes[i];
        if (node->op != QN_OP_NONE) {
            continue;
        }
        if (node->flags & QN_NODE_WEIGHT) {
            node->data = (void *)(uintptr_t)node->weight->data; /* never written through */
        } else if (node->flags & QN_NODE_STORE && !node->data) {
            return qn__error(err, QN_ERR_ARGUMENT, "store %s has no memory", node->name);
        } else if (node->flags & QN_NODE_INPUT && !node->data) {
            total += qn__align_up(qn__node_bytes(node), NODE_ALIGN);
        }
    }
    plan->input_bytes = total > 0 ? total : NODE_ALIGN;
    plan->inputs = qn__device_memory_alloc(plan->device, plan->input_bytes);
    if (!plan->inputs) {
        return qn__error(err, QN_ERR_MEMORY, "out of memory: %zu bytes of inputs", total);
    }
    uint8_t *next = plan->inputs;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        qn_node *node = g->nodes[i];
        if (node->op == QN_OP_NONE && node->flags & QN_NODE_INPUT && !node->data) {
            node->data = next;
            next += qn__align_up(qn__node_bytes(node), NODE_ALIGN);
        }
    }
    return QN_OK;
}

/* Compiles the needed nodes. */
static qn_status compile(qn_plan *plan, const life *lives, qn_error *err)
{
    const qn_graph *g = plan->graph;
    qn_status status = QN_OK;
    qn_node **nodes = qn__calloc((size_t)g->n_nodes + 1, sizeof *nodes);
    if (!nodes) {
        return qn__error_memory(err, "plan");
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        qn_node *node = g->nodes[i];
        if (!lives[i].needed || !computes(node)) {
            continue;
        }
        if (!qn__device_supports(plan->device, node)) {
            const qn_node *x = node->src[0];
            status = qn__error(err, QN_ERR_UNSUPPORTED, "%s cannot compute %s '%s' of %s '%s'",
                               qn_device_isa(plan->device), qn__op_name(node->op), node->name,
                               x ? qn_type_get_info(x->type)->name : "nothing", x ? x->name : "");
            goto done;
        }
        nodes[plan->n_steps++] = node;
    }
    status = plan->device->driver->compile(plan->device, nodes, plan->n_steps, &plan->program,
                                           &plan->workspace_bytes, err);
done:
    free(nodes);
    return status;
}

static void point_nodes(qn_plan *plan)
{
    const qn_graph *g = plan->graph;
    uint8_t *base = plan->memory->base;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        qn_node *node = g->nodes[i];
        if (plan->place[i] != NO_PLACE) {
            node->data = base + plan->place[i];
        } else if (node->view_of) {
            uint8_t *storage = node->view_of->data; /* an owner comes before its views */
            node->data = storage ? storage + node->view_offset : NULL;
        }
    }
    plan->bound_version = plan->memory->version;
}

qn_status qn__plan_make(qn_graph *graph, qn_device *device, qn_plan_memory *memory, qn_plan **out,
                        qn_error *err)
{
    qn_status status = qn__graph_finish(graph, err);
    if (status != QN_OK) {
        return status;
    }
    size_t n = (size_t)graph->n_nodes + 1;
    qn_plan *plan = qn__calloc(1, sizeof *plan);
    life *lives = qn__calloc(n, sizeof *lives);
    range_list list = {.ranges = qn__calloc(n, sizeof *list.ranges)};
    if (!plan || !lives || !list.ranges || !(plan->place = qn__calloc(n, sizeof *plan->place))) {
        status = qn__error_memory(err, "plan");
        goto done;
    }
    plan->graph = graph;
    plan->device = device;
    plan->memory = memory ? memory : qn__plan_memory_make(device, err);
    plan->owns_memory = !memory;
    if (!plan->memory) {
        status = QN_ERR_MEMORY;
        goto done;
    }
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        plan->place[i] = NO_PLACE;
    }
    if ((status = place_inputs(plan, err)) != QN_OK) {
        goto done;
    }
    find_lives(graph, lives);
    place_nodes(plan, lives, &list);
    if ((status = compile(plan, lives, err)) != QN_OK) {
        goto done;
    }
    size_t total = plan->result_bytes + plan->workspace_bytes;
    if ((status = memory_grow(plan->memory, total > 0 ? total : NODE_ALIGN, err)) != QN_OK) {
        goto done;
    }
    point_nodes(plan);
    *out = plan;
    plan = NULL;
done:
    free(list.ranges);
    free(lives);
    qn__plan_free(plan);
    return status;
}

void qn__plan_free(qn_plan *plan)
{
    if (!plan) {
        return;
    }
    if (plan->program) {
        plan->device->driver->program_free(plan->program);
    }
    if (plan->inputs) {
        qn__device_memory_free(plan->device, plan->inputs, plan->input_bytes);
    }
    if (plan->owns_memory) {
        qn__plan_memory_free(plan->memory);
    }
    free(plan->place);
    free(plan);
}

/* Running ---------------------------------------------------------------------------------------
 */

void qn__plan_bind(qn_plan *plan)
{
    if (plan->bound_version != plan->memory->version) {
        point_nodes(plan);
    }
}

qn_status qn__plan_run(qn_plan *plan, int32_t n_threads, const qn_abort *abort, qn_error *err)
{
    qn__plan_bind(plan);
    int32_t most = qn_device_n_threads(plan->device);
    if (n_threads < 1 || n_threads > most) {
        n_threads = most;
    }
    return plan->device->driver->run(
        plan->program, (uint8_t *)plan->memory->base + plan->result_bytes, n_threads, abort, err);
}

size_t qn__plan_result_bytes(const qn_plan *plan)
{
    return plan->result_bytes + plan->workspace_bytes;
}

int32_t qn__plan_n_steps(const qn_plan *plan)
{
    return plan->n_steps;
}
