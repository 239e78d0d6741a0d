/* Building graphs: shapes of results, views, errors that are kept and named, hostile sizes. */
#include "support/support.h"

#include "tensor/graph.h"
#include "tensor/weight.h"

typedef struct fixture {
    qn_graph *g;
    qn_node *x, *row, *ids; /* [6, 4, 3], [6], I32 [2, 3] */
} fixture;

static fixture make(void)
{
    fixture f = {.g = qn__graph_make(NULL)};
    assert_non_null(f.g);
    f.x = qn__graph_input(f.g, QN_TYPE_F32, 3, (int64_t[]){6, 4, 3}, "x");
    f.row = qn__graph_input(f.g, QN_TYPE_F32, 1, (int64_t[]){6}, "row");
    f.ids = qn__graph_input(f.g, QN_TYPE_I32, 2, (int64_t[]){2, 3}, "ids");
    return f;
}

static void assert_shape(const qn_node *n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    assert_int_equal(n->ne[0], a);
    assert_int_equal(n->ne[1], b);
    assert_int_equal(n->ne[2], c);
    assert_int_equal(n->ne[3], d);
}

/* The graph holds this error, and building goes on harmlessly. */
static void assert_error(fixture *f, qn_status status, const char *word)
{
    qn_error err = {0};
    assert_int_equal(qn__graph_finish(f->g, &err), status);
    if (!strstr(err.message, word)) {
        fail_msg("'%s' does not say '%s'", err.message, word);
    }
    int32_t n = f->g->n_nodes;
    qn_node *y = qn__graph_unary(f->g, qn__graph_add(f->g, f->x, f->x), QN_UNARY_EXP);
    assert_non_null(y);
    assert_int_equal(f->g->n_nodes, n);
    assert_ptr_equal(qn__graph_output(f->g, y, "y"), y);
    qn__graph_free(f->g);
    *f = make();
}

static void test_shapes(void **state)
{
    fixture f = make();
    qn_graph *g = f.g;
    (void)state;
    assert_shape(f.x, 6, 4, 3, 1);
    assert_int_equal(f.x->nb[1], 24);
    assert_int_equal(f.x->nb[2], 96);
    assert_int_equal(qn__node_bytes(f.x), 288);
    assert_int_equal(qn__node_n_rows(f.x), 12);
    assert_shape(qn__graph_add(g, f.x, f.row), 6, 4, 3, 1);
    assert_shape(qn__graph_norm(g, f.x, QN_NORM_RMS, 1e-5F, f.row, f.row), 6, 4, 3, 1);
    assert_shape(qn__graph_sum_rows(g, f.x), 1, 4, 3, 1);
    qn_node *best = qn__graph_argmax(g, f.x);
    assert_int_equal(best->type, QN_TYPE_I32);
    assert_shape(qn__graph_concat(g, f.x, f.x, 1), 6, 8, 3, 1);
    qn_node *flat = qn__graph_reshape(g, f.x, 6, 12, 1, 1);
    assert_shape(qn__graph_get_rows(g, flat, f.ids), 6, 2, 3, 1);
    qn_node *half = qn__graph_copy(g, f.x, QN_TYPE_F16);
    assert_int_equal(qn__node_bytes(half), 144);
    const qn_moe_params moe = {.gate = QN_MOE_SIGMOID, .n_used = 2};
    qn_node *logits = qn__graph_reshape(g, f.x, 24, 3, 1, 1);
    qn_node *chosen = qn__graph_moe_select(g, logits, NULL, &moe);
    assert_shape(chosen, 2, 3, 1, 1);
    assert_shape(qn__graph_moe_weights(g, logits, chosen, &moe), 2, 3, 1, 1);
    assert_int_equal(qn__graph_finish(g, NULL), QN_OK);
    qn__graph_free(g);
}

static void test_weights(void **state)
{
    fixture f = make();
    const qn_weight w = {.type = QN_TYPE_F16, .ne = {6, 10, 1, 1}};
    const qn_weight stack = {.type = QN_TYPE_F32, .ne = {6, 10, 5, 1}};
    qn_node *matrix = qn__graph_weight(f.g, &w, "w");
    qn_node *two = qn__graph_reshape(f.g, f.x, 6, 12, 1, 1);
    (void)state;
    assert_shape(qn__graph_mul_mat(f.g, matrix, two, NULL), 10, 12, 1, 1);
    qn_node *experts = qn__graph_weight(f.g, &stack, "stack");
    qn_node *one = qn__graph_reshape(f.g, qn__graph_slice(f.g, f.row, 0, 6), 6, 1, 1, 1);
    qn_node *id = qn__graph_reshape(f.g, f.ids, 6, 1, 1, 1);
    assert_shape(qn__graph_mul_mat_id(f.g, experts, one, id), 10, 6, 1, 1);
    assert_int_equal(qn__graph_finish(f.g, NULL), QN_OK);
    qn__graph_mul_mat(f.g, f.x, f.x, NULL);
    assert_error(&f, QN_ERR_ARGUMENT, "a weight");
    matrix = qn__graph_weight(f.g, &w, "w");
    qn__graph_mul_mat(f.g, matrix, f.x, NULL);
    assert_error(&f, QN_ERR_ARGUMENT, "shapes do not match");
    qn__graph_free(f.g);
}

static void test_views(void **state)
{
    fixture f = make();
    qn_graph *g = f.g;
    (void)state;
    qn_node *part = qn__graph_slice(g, f.x, 2, 3);
    assert_shape(part, 3, 4, 3, 1);
    assert_ptr_equal(part->view_of, f.x);
    assert_int_equal(part->view_offset, 8);
    assert_false(qn__node_is_contiguous(part));
    qn_node *inner = qn__graph_slice(g, part, 1, 2);
    assert_ptr_equal(inner->view_of, f.x);
    assert_int_equal(inner->view_offset, 12);
    qn_node *turned = qn__graph_permute(g, f.x, 0, 2, 1, 3);
    assert_shape(turned, 6, 3, 4, 1);
    assert_int_equal(turned->nb[1], 96);
    assert_int_equal(turned->nb[2], 24);
    assert_false(qn__node_is_contiguous(turned));
    assert_true(qn__node_is_contiguous(qn__graph_reshape(g, f.x, 72, 1, 1, 1)));
    assert_int_equal(qn__graph_finish(g, NULL), QN_OK);
    qn__graph_reshape(g, turned, 72, 1, 1, 1);
    assert_error(&f, QN_ERR_ARGUMENT, "not contiguous");
    qn__graph_reshape(f.g, f.x, 71, 1, 1, 1);
    assert_error(&f, QN_ERR_ARGUMENT, "reshape of x");
    qn__graph_slice(f.g, f.x, 4, 3);
    assert_error(&f, QN_ERR_ARGUMENT, "slice of x");
    qn__graph_permute(f.g, f.x, 0, 1, 1, 3);
    assert_error(&f, QN_ERR_ARGUMENT, "not an order");
    qn__graph_permute(f.g, f.x, 0, 1, 9, 3);
    assert_error(&f, QN_ERR_ARGUMENT, "not an order");
    const int64_t ne[4] = {6, 4, 3, 1};
    qn__graph_view(f.g, f.x, ne, f.x->nb, 4);
    assert_error(&f, QN_ERR_ARGUMENT, "outside of the storage");
    const size_t huge[4] = {4, SIZE_MAX / 2, 96, 96};
    qn__graph_view(f.g, f.x, ne, huge, 0);
    assert_error(&f, QN_ERR_ARGUMENT, "outside of the storage");
    qn__graph_view(f.g, f.x, ne, f.x->nb, 2);
    assert_error(&f, QN_ERR_ARGUMENT, "whole elements");
    qn__graph_free(f.g);
}

static void test_errors(void **state)
{
    fixture f = make();
    const qn_rope_params odd = {.n_rot = 3, .freq_base = 1e4F};
    const qn_moe_params many = {.gate = QN_MOE_SOFT_MAX, .n_used = 7};
    (void)state;
    qn__graph_add(f.g, f.row, f.x);
    assert_error(&f, QN_ERR_ARGUMENT, "add of row [6, 1, 1, 1], x [6, 4, 3, 1]");
    qn__graph_add(f.g, f.x, f.ids);
    assert_error(&f, QN_ERR_ARGUMENT, "must be F32");
    qn__graph_add(f.g, f.x, NULL);
    assert_error(&f, QN_ERR_ARGUMENT, "absent");
    qn__graph_unary(f.g, f.x, (qn_unary)99);
    assert_error(&f, QN_ERR_ARGUMENT, "unknown kind");
    qn__graph_concat(f.g, f.x, f.row, 0);
    assert_error(&f, QN_ERR_ARGUMENT, "concat");
    qn__graph_copy(f.g, f.x, QN_TYPE_Q4_0);
    assert_error(&f, QN_ERR_ARGUMENT, "converted");
    qn__graph_rope_table(f.g, qn__graph_reshape(f.g, f.ids, 6, 1, 1, 1), NULL, &odd);
    assert_error(&f, QN_ERR_ARGUMENT, "even");
    qn__graph_moe_select(f.g, qn__graph_reshape(f.g, f.x, 6, 12, 1, 1), NULL, &many);
    assert_error(&f, QN_ERR_ARGUMENT, "more experts");
    qn__graph_kv_store(f.g, f.x, f.x, f.ids, false);
    assert_error(&f, QN_ERR_ARGUMENT, "a store");
    qn__graph_input(f.g, QN_TYPE_F32, 4, (int64_t[]){1 << 30, 1 << 30, 1 << 30, 1 << 30}, "big");
    assert_error(&f, QN_ERR_ARGUMENT, "leaf big");
    qn__graph_input(f.g, QN_TYPE_F32, 1, (int64_t[]){-1}, "less");
    assert_error(&f, QN_ERR_ARGUMENT, "leaf less");
    qn__graph_input(f.g, QN_TYPE_Q4_0, 1, (int64_t[]){33}, "block");
    assert_error(&f, QN_ERR_ARGUMENT, "leaf block");
    qn__graph_input(f.g, QN_TYPE_F32, 5, (int64_t[]){1, 1, 1, 1}, "dims");
    assert_error(&f, QN_ERR_ARGUMENT, "5 dimensions");
    qn__graph_free(f.g);
}

/* The first error stays. */
static void test_first_error(void **state)
{
    fixture f = make();
    (void)state;
    qn__graph_slice(f.g, f.x, 5, 5);
    qn__graph_reshape(f.g, f.x, 1, 1, 1, 1);
    assert_error(&f, QN_ERR_ARGUMENT, "slice");
    for (qn_op op = 0; op < QN_OP_COUNT; op++) {
        assert_true(qn__op_name(op) && strlen(qn__op_name(op)) > 0);
    }
    qn__graph_free(f.g);
    qn__graph_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_weights),
        cmocka_unit_test(test_views),       cmocka_unit_test(test_errors),
        cmocka_unit_test(test_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
