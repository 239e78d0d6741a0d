/*
 * ops.c: the operations that compute: the table of operations, their shape rules, their builders.
 *
 * A builder fills in sources and parameters; add_op then walks the table row: sources are checked
 * by their letters, the shape rule checks the shapes against each other and sets the result's
 * shape.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tensor/build.h"
#include "tensor/sample.h"

/*
 * Sources: one letter each; an upper-case one may be absent.
 *  f  F32 with contiguous rows      i  I32, contiguous      w  weight leaf
 *  p  F32, F16, BF16 or I32 of any strides      t  any type, rows contiguous      s  store
 */
typedef struct op_row {
    const char *name;
    const char *sources;
    bool (*shape)(qn_graph *g, qn_node *node); /* false: the error is in the graph */
    bool in_place;                             /* the result may take the storage of src0 */
} op_row;

static const op_row *op_row_of(qn_op op);

/* Text of a shape for messages. */
typedef struct shape_text {
    char s[88];
} shape_text;

static shape_text shape_of(const qn_node *n)
{
    shape_text text;
    snprintf(text.s, sizeof text.s, "[%lld, %lld, %lld, %lld]", (long long)n->ne[0],
             (long long)n->ne[1], (long long)n->ne[2], (long long)n->ne[3]);
    return text;
}

static bool bad(qn_graph *g, const qn_node *node, const char *what)
{
    char text[352] = "";
    size_t used = 0;
    for (int i = 0; i < 3 && node->src[i]; i++) {
        int n = snprintf(text + used, sizeof text - used, "%s%.24s %s", i ? ", " : "",
                         node->src[i]->name, shape_of(node->src[i]).s);
        used += n > 0 ? (size_t)n : 0;
    }
    qn__graph_fail(g, QN_ERR_ARGUMENT, "%s of %s: %s", op_row_of(node->op)->name, text, what);
    return false;
}

static bool set_shape(qn_graph *g, qn_node *node, qn_type type, int64_t ne0, int64_t ne1,
                      int64_t ne2, int64_t ne3)
{
    const int64_t ne[4] = {ne0, ne1, ne2, ne3};
    return qn__node_set_shape(node, type, ne) || bad(g, node, "the result is too large");
}

static bool like(qn_graph *g, qn_node *node, const qn_node *x)
{
    return set_shape(g, node, QN_TYPE_F32, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
}

static bool same_shape(const qn_node *a, const qn_node *b)
{
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

static bool is_shape(const qn_node *x, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)
{
    return x->ne[0] == ne0 && x->ne[1] == ne1 && x->ne[2] == ne2 && x->ne[3] == ne3;
}

/* Shape rules -----------------------------------------------------------------------------------
 */

static bool shape_copy(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0];
    qn_type type = node->type;
    bool floats = type == QN_TYPE_F32 || type == QN_TYPE_F16 || type == QN_TYPE_BF16;
    if (x->type == QN_TYPE_I32 ? type != QN_TYPE_I32 : !floats) {
        return bad(g, node, "cannot be converted to that type");
    }
    return set_shape(g, node, type, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
}

static bool shape_concat(qn_graph *g, qn_node *node)
{
    const qn_node *a = node->src[0], *b = node->src[1];
    int dim = node->params.concat.dim;
    if (dim < 0 || dim >= QN_MAX_DIMS) {
        return bad(g, node, "no such dimension");
    }
    int64_t ne[4];
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        if (i != dim && a->ne[i] != b->ne[i]) {
            return bad(g, node, "shapes do not match");
        }
        ne[i] = i == dim ? a->ne[i] + b->ne[i] : a->ne[i];
    }
    return set_shape(g, node, QN_TYPE_F32, ne[0], ne[1], ne[2], ne[3]);
}

static bool shape_binary(qn_graph *g, qn_node *node)
{
    const qn_node *a = node->src[0], *b = node->src[1];
    for (int i = 0; i < QN_MAX_DIMS; i++) {
        if (b->ne[i] != a->ne[i] && b->ne[i] != 1) {
            return bad(g, node, "shapes do not match");
        }
    }
    return like(g, node, a);
}

static bool shape_same(qn_graph *g, qn_node *node)
{
    return like(g, node, node->src[0]);
}

static bool shape_glu(qn_graph *g, qn_node *node)
{
    if (!same_shape(node->src[0], node->src[1])) {
        return bad(g, node, "gate and up differ");
    }
    return like(g, node, node->src[0]);
}

static bool shape_norm(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0], *w = node->src[1], *b = node->src[2];
    if (w && !is_shape(w, x->ne[0], 1, 1, 1) && !is_shape(w, x->ne[0], x->ne[1], 1, 1)) {
        return bad(g, node, "the weight does not fit");
    }
    if (b && !is_shape(b, x->ne[0], 1, 1, 1)) {
        return bad(g, node, "the bias does not fit");
    }
    return like(g, node, x);
}

static bool shape_sum_rows(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0];
    return set_shape(g, node, QN_TYPE_F32, 1, x->ne[1], x->ne[2], x->ne[3]);
}

static bool shape_argmax(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0];
    if (x->ne[0] < 1) {
        return bad(g, node, "empty rows");
    }
    return set_shape(g, node, QN_TYPE_I32, 1, x->ne[1], x->ne[2], x->ne[3]);
}

static bool shape_rope_table(qn_graph *g, qn_node *node)
{
    const qn_node *pos = node->src[0], *factors = node->src[1];
    const qn_rope_params *p = &node->params.rope_table;
    bool four = p->mode == QN_ROPE_MROPE || p->mode == QN_ROPE_IMROPE;
    if (!is_shape(pos, pos->ne[0], four ? 4 : 1, 1, 1)) {
        return bad(g, node, "positions are [T], or [T, 4] with sections");
    }
    if (p->n_rot < 2 || p->n_rot % 2 != 0 || !(p->freq_base > 0.0F)) {
        return bad(g, node, "rotates an even number of dimensions with a base above 0");
    }
    if (factors && !is_shape(factors, p->n_rot / 2, 1, 1, 1)) {
        return bad(g, node, "one frequency factor a pair");
    }
    int64_t sections = 0;
    for (int i = 0; i < 4; i++) {
        sections += p->sections[i];
        if (four && p->sections[i] < 0) {
            return bad(g, node, "a section is negative");
        }
    }
    if (four && sections < 1) {
        return bad(g, node, "no sections");
    }
    return set_shape(g, node, QN_TYPE_F32, p->n_rot, pos->ne[0], 1, 1);
}

static bool shape_rope(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0], *table = node->src[1];
    int32_t n_rot = node->params.rope.n_rot, first = node->params.rope.first;
    if (n_rot < 2 || n_rot % 2 != 0 || first < 0 || first > x->ne[0] - n_rot) {
        return bad(g, node, "the rotated dimensions are not inside the head");
    }
    if (x->ne[3] != 1 || !is_shape(table, n_rot, x->ne[2], 1, 1)) {
        return bad(g, node, "the table does not fit");
    }
    return like(g, node, x);
}

static bool shape_get_rows(qn_graph *g, qn_node *node)
{
    const qn_node *table = node->src[0], *ids = node->src[1];
    if (table->ne[2] != 1 || table->ne[3] != 1 || ids->ne[3] != 1 || table->type == QN_TYPE_I32) {
        return bad(g, node, "takes a table of rows of numbers");
    }
    return set_shape(g, node, QN_TYPE_F32, table->ne[0], ids->ne[0], ids->ne[1], ids->ne[2]);
}

static bool shape_set_rows(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0], *rows = node->src[1], *ids = node->src[2];
    if (x->ne[2] != 1 || x->ne[3] != 1 || !is_shape(rows, x->ne[0], ids->ne[0], 1, 1) ||
        !is_shape(ids, ids->ne[0], 1, 1, 1)) {
        return bad(g, node, "shapes do not match");
    }
    return like(g, node, x);
}

static bool shape_mul_mat(qn_graph *g, qn_node *node)
{
    const qn_node *w = node->src[0], *x = node->src[1], *bias = node->src[2];
    if (w->ne[0] != x->ne[0] || w->ne[2] != x->ne[2] || w->ne[3] != 1 || x->ne[3] != 1) {
        return bad(g, node, "shapes do not match");
    }
    if (bias && !is_shape(bias, w->ne[1], 1, 1, 1)) {
        return bad(g, node, "the bias does not fit");
    }
    return set_shape(g, node, QN_TYPE_F32, w->ne[1], x->ne[1], x->ne[2], 1);
}

static bool shape_mul_mat_id(qn_graph *g, qn_node *node)
{
    const qn_node *w = node->src[0], *x = node->src[1], *ids = node->src[2];
    if (w->ne[0] != x->ne[0] || w->ne[3] != 1 || x->ne[3] != 1 ||
        (x->ne[1] != 1 && x->ne[1] != ids->ne[0]) || !is_shape(ids, ids->ne[0], x->ne[2], 1, 1)) {
        return bad(g, node, "shapes do not match");
    }
    return set_shape(g, node, QN_TYPE_F32, w->ne[1], ids->ne[0], ids->ne[1], 1);
}

static bool shape_add_id(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0], *rows = node->src[1], *ids = node->src[2];
    if (rows->ne[0] != x->ne[0] || rows->ne[2] != 1 || rows->ne[3] != 1 || x->ne[3] != 1 ||
        !is_shape(ids, x->ne[1], x->ne[2], 1, 1)) {
        return bad(g, node, "shapes do not match");
    }
    return like(g, node, x);
}

/* A gate, K of X, groups: what both MOE nodes need. */
static bool check_moe(qn_graph *g, qn_node *node)
{
    const qn_moe_params *p = &node->params.moe;
    const qn_node *x = node->src[0];
    if (x->ne[2] != 1 || x->ne[3] != 1) {
        return bad(g, node, "logits are [X, T]");
    }
    if (p->n_used < 1 || p->n_used > x->ne[0]) {
        return bad(g, node, "chooses more experts than there are, or none");
    }
    if (p->gate < QN_MOE_SOFT_MAX || p->gate > QN_MOE_SQRT_SOFTPLUS) {
        return bad(g, node, "unknown gate");
    }
    if (p->n_groups > 1 &&
        (x->ne[0] % p->n_groups != 0 || p->n_groups_used < 1 || p->n_groups_used > p->n_groups ||
         p->n_used > x->ne[0] / p->n_groups * p->n_groups_used)) {
        return bad(g, node, "groups do not divide the experts");
    }
    return true;
}

static bool shape_moe_select(qn_graph *g, qn_node *node)
{
    const qn_node *logits = node->src[0], *bias = node->src[1];
    if (!check_moe(g, node)) {
        return false;
    }
    if (bias && !is_shape(bias, logits->ne[0], 1, 1, 1)) {
        return bad(g, node, "the bias does not fit");
    }
    return set_shape(g, node, QN_TYPE_I32, node->params.moe.n_used, logits->ne[1], 1, 1);
}

static bool shape_moe_weights(qn_graph *g, qn_node *node)
{
    const qn_node *logits = node->src[0], *ids = node->src[1];
    if (!check_moe(g, node)) {
        return false;
    }
    if (!is_shape(ids, node->params.moe.n_used, logits->ne[1], 1, 1)) {
        return bad(g, node, "the ids do not fit");
    }
    return set_shape(g, node, QN_TYPE_F32, ids->ne[0], ids->ne[1], 1, 1);
}

static bool shape_moe_sum(qn_graph *g, qn_node *node)
{
    const qn_node *x = node->src[0], *w = node->src[1];
    if (x->ne[3] != 1 || (w && !is_shape(w, x->ne[1], x->ne[2], 1, 1))) {
        return bad(g, node, "shapes do not match");
    }
    return set_shape(g, node, QN_TYPE_F32, x->ne[0], x->ne[2], 1, 1);
}

static bool shape_kv_store(qn_graph *g, qn_node *node)
{
    qn_node *store = node->src[0];
    const qn_node *rows = node->src[1], *slots = node->src[2];
    int place = node->params.kv.is_v ? 1 : 0;
    if (store->ne[place] != QN_KV_BLOCK || store->ne[1 - place] != rows->ne[0] ||
        store->ne[2] != rows->ne[1] || rows->ne[3] != 1 || !is_shape(slots, rows->ne[2], 1, 1, 1)) {
        return bad(g, node, "shapes do not match");
    }
    bool ok = qn__node_set_shape(node, store->type, store->ne);
    node->view_of = store->view_of ? store->view_of : store;
    node->view_offset = store->view_offset;
    return ok;
}

static bool shape_attend(qn_graph *g, qn_node *node)
{
    const qn_node *q = node->src[0], *k = node->src[1], *v = node->src[2];
    const qn_node *tables = node->src[3], *masks = node->src[4], *rows = node->src[5];
    const qn_node *sinks = node->src[6];
    int64_t heads = node->params.attend.n_kv_heads;
    if (heads < 1 || q->ne[1] % heads != 0 || q->ne[3] != 1) {
        return bad(g, node, "query heads are not a multiple of the heads of the store");
    }
    if (!is_shape(k, QN_KV_BLOCK, q->ne[0], heads, k->ne[3]) ||
        !is_shape(v, v->ne[0], QN_KV_BLOCK, heads, k->ne[3])) {
        return bad(g, node, "the stores do not fit");
    }
    if (!is_shape(tables, tables->ne[0], 1, 1, 1) || !same_shape(tables, masks) ||
        !is_shape(rows, 4, q->ne[2], 1, 1)) {
        return bad(g, node, "tables, masks or rows do not fit");
    }
    if (sinks && !is_shape(sinks, q->ne[1], 1, 1, 1)) {
        return bad(g, node, "one sink a head");
    }
    return set_shape(g, node, QN_TYPE_F32, v->ne[0], q->ne[1], q->ne[2], 1);
}

static bool shape_sample(qn_graph *g, qn_node *node)
{
    const qn_node *logits = node->src[0], *programs = node->src[1];
    int64_t n_keep = node->params.sample.n_keep;
    if (logits->ne[0] < 1 || logits->ne[2] != 1 || logits->ne[3] != 1 ||
        !is_shape(programs, programs->ne[0], programs->ne[1], 1, 1) ||
        programs->ne[0] < QN_SAMPLE_PROGRAM_HEAD || programs->ne[0] % 2 != 0) {
        return bad(g, node, "logits are [V, T], programs [W, R] with an even W");
    }
    if (n_keep < 0 || n_keep > logits->ne[0]) {
        return bad(g, node, "keeps more candidates than there are");
    }
    return set_shape(g, node, QN_TYPE_I32, QN_SAMPLE_RESULT_HEAD + 3 * n_keep, programs->ne[1], 1,
                     1);
}

/* The table -------------------------------------------------------------------------------------
 */

static const op_row rows[QN_OP_COUNT] = {
    [QN_OP_NONE] = {"leaf", "", NULL, false},
    [QN_OP_VIEW] = {"view", "", NULL, false},
    [QN_OP_RESHAPE] = {"reshape", "", NULL, false},
    [QN_OP_PERMUTE] = {"permute", "", NULL, false},
    [QN_OP_COPY] = {"copy", "p", shape_copy, false},
    [QN_OP_CONCAT] = {"concat", "ff", shape_concat, false},
    [QN_OP_ADD] = {"add", "ff", shape_binary, true},
    [QN_OP_SUB] = {"sub", "ff", shape_binary, true},
    [QN_OP_MUL] = {"mul", "ff", shape_binary, true},
    [QN_OP_DIV] = {"div", "ff", shape_binary, true},
    [QN_OP_SCALE_BIAS] = {"scale_bias", "f", shape_same, true},
    [QN_OP_UNARY] = {"unary", "f", shape_same, true},
    [QN_OP_CLAMP] = {"clamp", "f", shape_same, true},
    [QN_OP_GLU] = {"glu", "ff", shape_glu, true},
    [QN_OP_NORM] = {"norm", "fFF", shape_norm, true},
    [QN_OP_SOFT_MAX] = {"soft_max", "f", shape_same, true},
    [QN_OP_SUM_ROWS] = {"sum_rows", "f", shape_sum_rows, false},
    [QN_OP_ARGMAX] = {"argmax", "f", shape_argmax, false},
    [QN_OP_ROPE_TABLE] = {"rope_table", "iF", shape_rope_table, false},
    [QN_OP_ROPE] = {"rope", "ff", shape_rope, true},
    [QN_OP_GET_ROWS] = {"get_rows", "ti", shape_get_rows, false},
    [QN_OP_SET_ROWS] = {"set_rows", "ffi", shape_set_rows, true},
    [QN_OP_MUL_MAT] = {"mul_mat", "wfF", shape_mul_mat, false},
    [QN_OP_MUL_MAT_ID] = {"mul_mat_id", "wfi", shape_mul_mat_id, false},
    [QN_OP_ADD_ID] = {"add_id", "ffi", shape_add_id, true},
    [QN_OP_MOE_SELECT] = {"moe_select", "fF", shape_moe_select, false},
    [QN_OP_MOE_WEIGHTS] = {"moe_weights", "fi", shape_moe_weights, false},
    [QN_OP_MOE_SUM] = {"moe_sum", "fF", shape_moe_sum, false},
    [QN_OP_KV_STORE] = {"kv_store", "sfi", shape_kv_store, false},
    [QN_OP_ATTEND] = {"attend", "fssiiiF", shape_attend, false},
    [QN_OP_SAMPLE] = {"sample", "fi", shape_sample, false},
};

static const op_row *op_row_of(qn_op op)
{
    return &rows[op];
}

const char *qn__op_name(qn_op op)
{
    return op >= 0 && op < QN_OP_COUNT ? rows[op].name : "?";
}

bool qn__op_is_view(qn_op op)
{
    return op == QN_OP_VIEW || op == QN_OP_RESHAPE || op == QN_OP_PERMUTE;
}

bool qn__op_in_place(qn_op op)
{
    return rows[op].in_place;
}

/* Whether a source is what its letter says. */
static bool check_source(char letter, const qn_node *x)
{
    const qn_type_info *info = qn_type_get_info(x->type);
    bool store = x->flags & QN_NODE_STORE || (x->view_of && x->view_of->flags & QN_NODE_STORE);
    switch (letter) {
    case 'f':
        return x->type == QN_TYPE_F32 && (x->nb[0] == sizeof(float) || x->ne[0] <= 1);
    case 'i':
        return x->type == QN_TYPE_I32 && qn__node_is_contiguous(x);
    case 'w':
        return x->weight != NULL;
    case 'p':
        return x->type == QN_TYPE_F32 || x->type == QN_TYPE_F16 || x->type == QN_TYPE_BF16 ||
               x->type == QN_TYPE_I32;
    case 't':
        return x->nb[0] == info->block_bytes;
    default:
        return store && qn__node_is_contiguous(x);
    }
}

static qn_node *add_op(qn_graph *g, qn_node *node)
{
    static const char *const wanted[] = {
        ['f'] = "F32 with contiguous rows", ['i'] = "contiguous I32",           ['w'] = "a weight",
        ['p'] = "F32, F16, BF16 or I32",    ['t'] = "rows that are contiguous", ['s'] = "a store"};
    if (g->status != QN_OK) {
        return &g->dummy;
    }
    const op_row *row = &rows[node->op];
    for (int i = 0; row->sources[i]; i++) {
        char letter = row->sources[i];
        bool optional = letter >= 'A' && letter <= 'Z';
        letter = (char)(optional ? letter - 'A' + 'a' : letter);
        const qn_node *x = node->src[i];
        if ((!x && !optional) || (x && !check_source(letter, x))) {
            return qn__graph_fail(g, QN_ERR_ARGUMENT, "%s: source %d (%s %s): must be %s",
                                  row->name, i, x ? x->name : "absent", x ? shape_of(x).s : "",
                                  wanted[(int)letter]);
        }
    }
    return row->shape(g, node) ? qn__graph_add_node(g, node) : &g->dummy;
}

/* Builders --------------------------------------------------------------------------------------
 */

qn_node *qn__graph_copy(qn_graph *g, qn_node *x, qn_type type)
{
    return add_op(g, &(qn_node){.op = QN_OP_COPY, .type = type, .src = {x}});
}

qn_node *qn__graph_concat(qn_graph *g, qn_node *a, qn_node *b, int dim)
{
    return add_op(g, &(qn_node){.op = QN_OP_CONCAT, .src = {a, b}, .params.concat = {.dim = dim}});
}

qn_node *qn__graph_add(qn_graph *g, qn_node *a, qn_node *b)
{
    return add_op(g, &(qn_node){.op = QN_OP_ADD, .src = {a, b}});
}

qn_node *qn__graph_sub(qn_graph *g, qn_node *a, qn_node *b)
{
    return add_op(g, &(qn_node){.op = QN_OP_SUB, .src = {a, b}});
}

qn_node *qn__graph_mul(qn_graph *g, qn_node *a, qn_node *b)
{
    return add_op(g, &(qn_node){.op = QN_OP_MUL, .src = {a, b}});
}

qn_node *qn__graph_div(qn_graph *g, qn_node *a, qn_node *b)
{
    return add_op(g, &(qn_node){.op = QN_OP_DIV, .src = {a, b}});
}

qn_node *qn__graph_scale_bias(qn_graph *g, qn_node *x, float scale, float bias)
{
    return add_op(g, &(qn_node){.op = QN_OP_SCALE_BIAS,
                                .src = {x},
                                .params.scalar = {.value = scale, .value2 = bias}});
}

qn_node *qn__graph_unary(qn_graph *g, qn_node *x, qn_unary kind)
{
    if (kind < 0 || kind >= QN_UNARY_COUNT || kind == QN_UNARY_SOFT_CAP) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "unary of %s: unknown kind %d", x->name, kind);
    }
    return add_op(
        g, &(qn_node){.op = QN_OP_UNARY, .src = {x}, .params.scalar = {.kind = (int32_t)kind}});
}

qn_node *qn__graph_soft_cap(qn_graph *g, qn_node *x, float cap)
{
    if (!(cap > 0.0F)) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "soft_cap of %s: cap %g", x->name, (double)cap);
    }
    return add_op(g, &(qn_node){.op = QN_OP_UNARY,
                                .src = {x},
                                .params.scalar = {.value = cap, .kind = QN_UNARY_SOFT_CAP}});
}

qn_node *qn__graph_clamp(qn_graph *g, qn_node *x, float low, float high)
{
    return add_op(
        g,
        &(qn_node){.op = QN_OP_CLAMP, .src = {x}, .params.scalar = {.value = low, .value2 = high}});
}

qn_node *qn__graph_glu(qn_graph *g, qn_node *gate, qn_node *up, qn_glu kind, float limit)
{
    if (kind < 0 || kind >= QN_GLU_COUNT) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "glu of %s: unknown kind %d", gate->name, kind);
    }
    return add_op(g, &(qn_node){.op = QN_OP_GLU,
                                .src = {gate, up},
                                .params.scalar = {.value = limit, .kind = (int32_t)kind}});
}

qn_node *qn__graph_norm(qn_graph *g, qn_node *x, qn_norm kind, float eps, qn_node *weight,
                        qn_node *bias)
{
    if (kind < 0 || kind >= QN_NORM_COUNT) {
        return qn__graph_fail(g, QN_ERR_ARGUMENT, "norm of %s: unknown kind %d", x->name, kind);
    }
    return add_op(g, &(qn_node){.op = QN_OP_NORM,
                                .src = {x, weight, bias},
                                .params.norm = {.kind = kind, .eps = eps}});
}

qn_node *qn__graph_soft_max(qn_graph *g, qn_node *x)
{
    return add_op(g, &(qn_node){.op = QN_OP_SOFT_MAX, .src = {x}});
}

qn_node *qn__graph_sum_rows(qn_graph *g, qn_node *x)
{
    return add_op(g, &(qn_node){.op = QN_OP_SUM_ROWS, .src = {x}});
}

qn_node *qn__graph_argmax(qn_graph *g, qn_node *x)
{
    return add_op(g, &(qn_node){.op = QN_OP_ARGMAX, .src = {x}});
}

qn_node *qn__graph_rope_table(qn_graph *g, qn_node *positions, qn_node *factors,
                              const qn_rope_params *p)
{
    return add_op(
        g,
        &(qn_node){.op = QN_OP_ROPE_TABLE, .src = {positions, factors}, .params.rope_table = *p});
}

qn_node *qn__graph_rope(qn_graph *g, qn_node *x, qn_node *table, qn_rope_mode mode, int n_rot,
                        int first)
{
    return add_op(g, &(qn_node){.op = QN_OP_ROPE,
                                .src = {x, table},
                                .params.rope = {.mode = mode, .n_rot = n_rot, .first = first}});
}

qn_node *qn__graph_get_rows(qn_graph *g, qn_node *table, qn_node *ids)
{
    return add_op(g, &(qn_node){.op = QN_OP_GET_ROWS, .src = {table, ids}});
}

qn_node *qn__graph_set_rows(qn_graph *g, qn_node *x, qn_node *new_rows, qn_node *ids)
{
    return add_op(g, &(qn_node){.op = QN_OP_SET_ROWS, .src = {x, new_rows, ids}});
}

qn_node *qn__graph_mul_mat(qn_graph *g, qn_node *w, qn_node *x, qn_node *bias)
{
    return add_op(g, &(qn_node){.op = QN_OP_MUL_MAT, .src = {w, x, bias}});
}

qn_node *qn__graph_mul_mat_id(qn_graph *g, qn_node *w, qn_node *x, qn_node *ids)
{
    return add_op(g, &(qn_node){.op = QN_OP_MUL_MAT_ID, .src = {w, x, ids}});
}

qn_node *qn__graph_add_id(qn_graph *g, qn_node *x, qn_node *id_rows, qn_node *ids)
{
    return add_op(g, &(qn_node){.op = QN_OP_ADD_ID, .src = {x, id_rows, ids}});
}

qn_node *qn__graph_moe_select(qn_graph *g, qn_node *logits, qn_node *bias, const qn_moe_params *p)
{
    return add_op(g, &(qn_node){.op = QN_OP_MOE_SELECT, .src = {logits, bias}, .params.moe = *p});
}

qn_node *qn__graph_moe_weights(qn_graph *g, qn_node *logits, qn_node *ids, const qn_moe_params *p)
{
    return add_op(g, &(qn_node){.op = QN_OP_MOE_WEIGHTS, .src = {logits, ids}, .params.moe = *p});
}

qn_node *qn__graph_moe_sum(qn_graph *g, qn_node *x, qn_node *weights)
{
    return add_op(g, &(qn_node){.op = QN_OP_MOE_SUM, .src = {x, weights}});
}

qn_node *qn__graph_kv_store(qn_graph *g, qn_node *store, qn_node *new_rows, qn_node *slots,
                            bool is_v)
{
    return add_op(g, &(qn_node){.op = QN_OP_KV_STORE,
                                .src = {store, new_rows, slots},
                                .params.kv = {.is_v = is_v}});
}

qn_node *qn__graph_attend(qn_graph *g, qn_node *q, const qn_attend_inputs *in,
                          const qn_attend_params *p)
{
    return add_op(g,
                  &(qn_node){.op = QN_OP_ATTEND,
                             .src = {q, in->k, in->v, in->tables, in->masks, in->rows, in->sinks},
                             .params.attend = *p});
}

qn_node *qn__graph_sample(qn_graph *g, qn_node *logits, qn_node *programs,
                          const struct qn_sample_table *table, int64_t n_keep)
{
    return add_op(g, &(qn_node){.op = QN_OP_SAMPLE,
                                .src = {logits, programs},
                                .params.sample = {.table = table,
                                                  .n_keep = n_keep < INT32_MAX ? (int32_t)n_keep
                                                                               : INT32_MAX}});
}
