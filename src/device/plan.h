/*
 * plan.h: a graph made ready to run many times on a device.
 *
 * qn__plan_make drops nodes that no output needs, gives every node storage by its lifetime (views
 * share, results take over the storage of a source where the operation allows, outputs are kept)
 * and lets the device compile the rest. qn__plan_run then only walks the device's program: it
 * allocates nothing and its result does not depend on n_threads.
 *
 *     graph = …; plan_make(graph, device, memory, &plan)
 *     for each batch:
 *         plan_bind(plan); fill input->data; plan_run(plan, n_threads, …); read output->data
 *
 * The graph belongs to the caller, serves one plan and must outlive it. Plans of one device and one
 * memory are used by one thread at a time.
 */
#ifndef QUERN_DEVICE_PLAN_H
#define QUERN_DEVICE_PLAN_H

#include "device/device.h"

typedef struct qn_plan qn_plan;

/*
 * Memory for results, which the plans of a context share because only one of them runs at a time.
 * It grows to what the largest plan needs. Results of a run last until the next run, or the next
 * plan, with the same memory.
 */
typedef struct qn_plan_memory qn_plan_memory;
qn_plan_memory *qn__plan_memory_make(qn_device *device, qn_error *err);
void qn__plan_memory_free(qn_plan_memory *memory);
size_t qn__plan_memory_bytes(const qn_plan_memory *memory);

/*
 * Makes a plan. Sets `data` of all nodes but leaves that have theirs: of inputs (QN_NODE_INPUT)
 * whose data is NULL to zeroed memory of the plan, of weights to the bytes of the weight (NULL for
 * one that is only packed). Nodes without a way to an output or a store are not computed, and their
 * data may be NULL. memory NULL: the plan takes its own.
 * Errors: the graph's own; QN_ERR_UNSUPPORTED names a node that the device cannot compute;
 * QN_ERR_ARGUMENT for a store without data.
 */
qn_status qn__plan_make(qn_graph *graph, qn_device *device, qn_plan_memory *memory, qn_plan **out,
                        qn_error *err);
void qn__plan_free(qn_plan *plan);

/* Points the nodes into the memory where it is now: needed before the `data` of a node is looked at
 * when another plan may have been made with the same memory since. Cheap where nothing moved.
 * Inputs never move. */
void qn__plan_bind(qn_plan *plan);

/* Runs. n_threads: cut to the most of the device, 0: all. abort may be NULL. After QN_ERR_ABORTED
 * the outputs are undefined and stores may have been written. */
qn_status qn__plan_run(qn_plan *plan, int32_t n_threads, const qn_abort *abort, qn_error *err);

/* Bytes of results and workspace, in the memory. */
size_t qn__plan_result_bytes(const qn_plan *plan);
/* Nodes that a run computes. */
int32_t qn__plan_n_steps(const qn_plan *plan);

#endif
