/* op.c: cutting nodes into tasks; see op.h. */
#include "device/cpu/op.h"

static void cut(qn_cpu_step *step, const qn_node *node, int64_t task_elements, bool across)
{
    int64_t n = qn__max_i64(node->ne[0], 1);
    int64_t columns = across ? qn__min_i64(n, task_elements) : n;
    step->tile[0] = qn__max_i64(task_elements / columns, 1);
    step->tile[1] = columns;
    step->tile[2] = qn__div_up(n, columns);
}

void qn__cut_elements(qn_cpu_step *step, const qn_node *node, int64_t task_elements)
{
    cut(step, node, task_elements, true);
}

void qn__cut_rows(qn_cpu_step *step, const qn_node *node, int64_t task_elements)
{
    cut(step, node, task_elements, false);
}

int64_t qn__cut_count(const qn_cpu_step *step, int phase)
{
    (void)phase;
    if (step->node->ne[0] == 0) {
        return 0;
    }
    return qn__div_up(qn__node_n_rows(step->node), step->tile[0]) * step->tile[2];
}

qn_block qn__cut_block(const qn_cpu_step *step, const qn_node *node, int64_t task)
{
    int64_t row = task / step->tile[2] * step->tile[0];
    int64_t column = task % step->tile[2] * step->tile[1];
    return (qn_block){
        .row = row,
        .row_end = qn__min_i64(row + step->tile[0], qn__node_n_rows(node)),
        .column = column,
        .n_columns = qn__min_i64(step->tile[1], node->ne[0] - column),
    };
}
