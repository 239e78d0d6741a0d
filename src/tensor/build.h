/* build.h: what graph.c and ops.c share: how a node comes into a graph. */
#ifndef QUERN_TENSOR_BUILD_H
#define QUERN_TENSOR_BUILD_H

#include "tensor/graph.h"

#define QN_MAX_NODES      (1 << 20)
#define QN_MAX_NODE_BYTES ((size_t)1 << 46) /* so that sums of a few sizes never overflow */

/* Keeps the graph's first error; returns the dummy. */
qn_node *qn__graph_fail(qn_graph *g, qn_status status, const char *format, ...) QN_PRINTF(3, 4);

/* Type, shape and contiguous strides; false where they are not a shape of the type, or too large.
 */
bool qn__node_set_shape(qn_node *node, qn_type type, const int64_t ne[QN_MAX_DIMS]);

/* Appends a copy of `model`; the dummy after an error. */
qn_node *qn__graph_add_node(qn_graph *g, const qn_node *model);

#endif
