/*
 * Plans on the CPU: storage by lifetime gives what separate storage would, any number of threads
 * and any instruction set gives the same bits, aborting, sharing memory, refusing.
 * QN_TEST_EMULATED: also with emulated AVX-512.
 */
#include "support/support.h"

#include <math.h>
#include <stdatomic.h>

#include "device/cpu/cpu.h"
#include "device/plan.h"

static qn_device *open_device(const char *isa, int32_t n_threads)
{
    qn_error err;
    qn_device *device = NULL;
    qn_device_options options = qn_device_defaults();
    options.isa = isa;
    options.threads.n_threads = n_threads;
    qn_test_ok(qn_device_open(0, &options, &device, &err), err);
    return device;
}

static void fill(qn_node *node, uint64_t seed)
{
    qn_test_random r = {seed};
    float *x = node->data;
    for (int64_t i = 0; i < node->ne[0] * qn__node_n_rows(node); i++) {
        x[i] = qn_test_normal(&r);
    }
}

/* A graph in which results are used late, twice, through views and in place. */
typedef struct net {
    qn_graph *g;
    qn_node *x, *ids, *positions, *logits, *out[6];
} net;

enum { WIDTH = 66, TOKENS = 37, EXPERTS = 9, USED = 3 };

static net make_net(void)
{
    net n = {.g = qn__graph_make(NULL)};
    qn_graph *g = n.g;
    assert_non_null(g);
    n.x = qn__graph_input(g, QN_TYPE_F32, 2, (int64_t[]){WIDTH, TOKENS}, "x");
    n.ids = qn__graph_input(g, QN_TYPE_I32, 1, (int64_t[]){TOKENS}, "ids");
    n.positions = qn__graph_input(g, QN_TYPE_I32, 1, (int64_t[]){TOKENS}, "positions");
    n.logits = qn__graph_input(g, QN_TYPE_F32, 2, (int64_t[]){EXPERTS, TOKENS}, "logits");
    qn_node *a = qn__graph_norm(g, n.x, QN_NORM_RMS, 1e-6F, NULL, NULL);
    qn_node *b = qn__graph_unary(g, a, QN_UNARY_GELU);
    qn_node *c = qn__graph_add(g, b, a);
    qn_node *low = qn__graph_slice(g, c, 0, WIDTH / 2);
    qn_node *high = qn__graph_slice(g, c, WIDTH / 2, WIDTH / 2);
    qn_node *glu = qn__graph_glu(g, low, high, QN_GLU_SWIGLU, 0.0F);
    qn_node *heads = qn__graph_reshape(g, c, WIDTH / 3, 3, TOKENS, 1);
    const qn_rope_params rope = {.mode = QN_ROPE_NEOX,
                                 .n_rot = 20,
                                 .freq_base = 10000.0F,
                                 .freq_scale = 1.0F,
                                 .attn_factor = 1.0F};
    qn_node *table = qn__graph_rope_table(g, n.positions, NULL, &rope);
    qn_node *turned = qn__graph_rope(g, heads, table, QN_ROPE_NEOX, 20, 1);
    qn_node *flat = qn__graph_reshape(g, turned, WIDTH, TOKENS, 1, 1);
    qn_node *shuffled = qn__graph_get_rows(g, flat, n.ids);
    qn_node *joined = qn__graph_concat(g, shuffled, glu, 0);
    const qn_moe_params moe = {.gate = QN_MOE_SOFT_MAX, .n_used = USED, .normalize = true};
    qn_node *chosen = qn__graph_moe_select(g, n.logits, NULL, &moe);
    qn_node *weights = qn__graph_moe_weights(g, n.logits, chosen, &moe);
    qn_node *three = qn__graph_reshape(g, shuffled, WIDTH / 3, 3, TOKENS, 1);
    qn_node *mixed = qn__graph_moe_sum(g, three, weights);
    qn_node *crossed = qn__graph_copy(g, qn__graph_permute(g, joined, 1, 0, 2, 3), QN_TYPE_F16);
    qn_node *unused = qn__graph_unary(g, joined, QN_UNARY_EXP);
    n.out[0] = qn__graph_output(g, qn__graph_soft_max(g, joined), "soft_max");
    n.out[1] = qn__graph_output(g, mixed, "mixed");
    n.out[2] = qn__graph_output(g, qn__graph_argmax(g, c), "argmax");
    n.out[3] = qn__graph_output(g, crossed, "crossed");
    n.out[4] = qn__graph_output(
        g, qn__graph_set_rows(g, qn__graph_scale_bias(g, c, 2.0F, 1.0F), shuffled, n.ids), "set");
    n.out[5] = qn__graph_output(g, low, "view");
    assert_non_null(unused);
    return n;
}

static void fill_net(net *n)
{
    fill(n->x, 3);
    fill(n->logits, 4);
    for (int32_t i = 0; i < TOKENS; i++) {
        ((int32_t *)n->ids->data)[i] = (i * 5) % TOKENS;
        ((int32_t *)n->positions->data)[i] = i * 100;
    }
}

/* The bytes of an output, row by row. */
static uint8_t *bytes_of(const qn_node *node, size_t *size)
{
    size_t row = qn__node_bytes(node) / (size_t)qn__node_n_rows(node);
    *size = qn__node_bytes(node);
    uint8_t *bytes = malloc(*size);
    assert_non_null(bytes);
    for (int64_t i = 0; i < node->ne[1]; i++) {
        memcpy(bytes + (size_t)i * row, (uint8_t *)node->data + (size_t)i * node->nb[1], row);
    }
    return bytes;
}

static void test_same_bits(void **state)
{
    static const int32_t threads[] = {1, 2, 3, 7};
    uint8_t *want[6] = {NULL};
    size_t sizes[6] = {0};
    (void)state;
    for (int32_t i = 0; qn__cpu_isa_at(i); i++) {
        qn_device *device = open_device(qn__cpu_isa_at(i)->name, 7);
        net n = make_net();
        qn_plan *plan = NULL;
        qn_error err;
        qn_test_ok(qn__plan_make(n.g, device, NULL, &plan, &err), err);
        fill_net(&n);
        for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
            for (int again = 0; again < 20; again++) {
                qn_test_ok(qn__plan_run(plan, threads[t], NULL, &err), err);
                for (int o = 0; o < 6; o++) {
                    size_t size;
                    uint8_t *got = bytes_of(n.out[o], &size);
                    if (!want[o]) {
                        want[o] = got;
                        sizes[o] = size;
                        continue;
                    }
                    assert_int_equal(size, sizes[o]);
                    assert_memory_equal(got, want[o], size);
                    free(got);
                }
            }
        }
        qn__plan_free(plan);
        qn__graph_free(n.g);
        qn_device_free(device);
    }
    for (int o = 0; o < 6; o++) {
        free(want[o]);
    }
}

/* Every intermediate result kept (all are outputs) gives the bits of shared storage. */
static void test_storage(void **state)
{
    qn_device *device = open_device(NULL, 2);
    net shared = make_net(), kept = make_net();
    qn_plan *plan[2] = {NULL};
    qn_error err;
    (void)state;
    for (int32_t i = 0; i < kept.g->n_nodes; i++) {
        if (kept.g->nodes[i]->op != QN_OP_NONE) {
            kept.g->nodes[i]->flags |= QN_NODE_OUTPUT;
        }
    }
    qn_test_ok(qn__plan_make(shared.g, device, NULL, &plan[0], &err), err);
    qn_test_ok(qn__plan_make(kept.g, device, NULL, &plan[1], &err), err);
    fill_net(&shared);
    fill_net(&kept);
    qn_test_ok(qn__plan_run(plan[0], 2, NULL, &err), err);
    qn_test_ok(qn__plan_run(plan[1], 2, NULL, &err), err);
    for (int o = 0; o < 6; o++) {
        size_t size;
        uint8_t *a = bytes_of(shared.out[o], &size), *b = bytes_of(kept.out[o], &size);
        assert_memory_equal(a, b, size);
        free(a);
        free(b);
    }
    assert_true(qn__plan_result_bytes(plan[0]) < qn__plan_result_bytes(plan[1]));
    assert_int_equal(qn__plan_n_steps(plan[0]) + 1, qn__plan_n_steps(plan[1])); /* the unused one */
    for (int i = 0; i < 2; i++) {
        qn__plan_free(plan[i]);
    }
    qn__graph_free(shared.g);
    qn__graph_free(kept.g);
    qn_device_free(device);
}

/* Two plans in one memory: the first still works after the second made it grow. */
static void test_shared_memory(void **state)
{
    qn_device *device = open_device(NULL, 1);
    qn_error err;
    qn_plan_memory *memory = qn__plan_memory_make(device, &err);
    qn_graph *g[2];
    qn_node *in[2], *out[2];
    qn_plan *plan[2] = {NULL};
    (void)state;
    assert_non_null(memory);
    for (int i = 0; i < 2; i++) {
        g[i] = qn__graph_make(&err);
        in[i] = qn__graph_input(g[i], QN_TYPE_F32, 1, (int64_t[]){i ? 100000 : 10}, "x");
        out[i] = qn__graph_output(g[i], qn__graph_unary(g[i], in[i], QN_UNARY_SQR), "y");
        qn_test_ok(qn__plan_make(g[i], device, memory, &plan[i], &err), err);
    }
    size_t bytes = qn__plan_memory_bytes(memory);
    for (int i = 0; i < 2; i++) {
        qn__plan_bind(plan[i]);
        ((float *)in[i]->data)[3] = 5.0F;
        qn_test_ok(qn__plan_run(plan[i], 1, NULL, &err), err);
        assert_float_equal(((float *)out[i]->data)[3], 25.0F, 0.0F);
    }
    assert_int_equal(qn__plan_memory_bytes(memory), bytes);
    for (int i = 0; i < 2; i++) {
        qn__plan_free(plan[i]);
        qn__graph_free(g[i]);
    }
    qn__plan_memory_free(memory);
    qn_device_free(device);
}

static bool stop_at_third(void *user)
{
    atomic_int *calls = user;
    return atomic_fetch_add(calls, 1) == 2;
}

static void test_abort(void **state)
{
    qn_device *device = open_device(NULL, 3);
    net n = make_net();
    qn_plan *plan = NULL;
    qn_error err;
    atomic_int calls = 0;
    const qn_abort abort_fn = {stop_at_third, &calls};
    (void)state;
    qn_test_ok(qn__plan_make(n.g, device, NULL, &plan, &err), err);
    fill_net(&n);
    assert_int_equal(qn__plan_run(plan, 3, &abort_fn, &err), QN_ERR_ABORTED);
    assert_int_equal(atomic_load(&calls), 3);
    qn_test_ok(qn__plan_run(plan, 3, NULL, &err), err);
    qn__plan_free(plan);
    qn__graph_free(n.g);
    qn_device_free(device);
}

static void test_refusals(void **state)
{
    qn_error err;
    qn_device *device = NULL;
    qn_device_options options = qn_device_defaults();
    (void)state;
    options.isa = "abacus";
    assert_int_equal(qn_device_open(0, &options, &device, &err), QN_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "abacus"));
    options.isa = NULL;
    options.threads.n_threads = 100000;
    assert_int_equal(qn_device_open(0, &options, &device, &err), QN_ERR_ARGUMENT);
    options.threads.n_threads = 1;
    options.threads.poll = 101;
    assert_int_equal(qn_device_open(0, &options, &device, &err), QN_ERR_ARGUMENT);
    assert_int_equal(qn_device_open(7, NULL, &device, &err), QN_ERR_NOT_FOUND);

    device = open_device(NULL, 1);
    qn_graph *g = qn__graph_make(&err);
    qn_plan *plan = NULL;
    qn_node *table = qn__graph_input(g, QN_TYPE_I64, 2, (int64_t[]){4, 4}, "table");
    qn_node *ids = qn__graph_input(g, QN_TYPE_I32, 1, (int64_t[]){1}, "ids");
    qn__graph_output(g, qn__graph_get_rows(g, table, ids), "rows");
    assert_int_equal(qn__plan_make(g, device, NULL, &plan, &err), QN_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "get_rows"));
    qn__graph_add(g, table, ids); /* the graph's own error comes first */
    assert_int_equal(qn__plan_make(g, device, NULL, &plan, &err), QN_ERR_ARGUMENT);
    qn__graph_free(g);
    qn_device_free(device);
}

static void test_info(void **state)
{
    qn_device_info info;
    qn_error err;
    double rate = 0.0;
    (void)state;
    assert_int_equal(qn_device_count(), 1);
    qn_test_ok(qn_device_get_info(0, &info, &err), err);
    assert_string_equal(info.name, "cpu");
    assert_true(info.n_cores >= 1 && info.memory_total > 0 && info.canonical);
    assert_non_null(strstr(info.isas, "scalar"));
    assert_non_null(strstr(info.isas, info.isa));
    assert_int_equal(qn_device_get_info(1, &info, &err), QN_ERR_NOT_FOUND);
    qn_device *device = open_device("scalar", 1);
    qn_test_ok(qn_device_measure(device, QN_MEASURE_F32, 0, 0.01, &rate, &err), err);
    assert_true(rate > 1e6);
    qn_test_ok(qn_device_measure(device, QN_MEASURE_READ, 0, 0.01, &rate, &err), err);
    assert_true(rate > 1e6);
    assert_int_equal(qn_device_measure(device, QN_MEASURE_INT8, 0, 0.01, &rate, &err),
                     QN_ERR_UNSUPPORTED);
    qn_device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_storage),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_info),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
