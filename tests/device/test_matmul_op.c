/* MUL_MAT and MUL_MAT_ID as nodes: however the work is cut and grouped, each column is what the
 * definition gives for it alone. */
#include "support/support.h"

#include "device/matmul_case.h"

#include "device/plan.h"
#include "tensor/graph.h"

static qn_cpu_step make_step(const qn_cpu_kernel *kernel, const qn_node *node,
                             const qn_cpu_isa *isa, int32_t n_threads)
{
    qn_cpu_step step = {
        .node = node, .kernel = kernel, .isa = isa, .n_threads = n_threads, .n_phases = 1};
    assert_true(!kernel->supports || kernel->supports(node));
    kernel->prepare(&step);
    assert_true(step.n_phases >= 1 && step.n_phases <= QN_CPU_MAX_PHASES);
    return step;
}

/* Memory that may hold anything. */
static void *make_workspace(size_t bytes)
{
    void *block = qn__block_alloc(bytes + 1);
    assert_non_null(block);
    memset(block, 0xa5, bytes);
    return block;
}

/* Runs a step as a pool would with its number of workers, tasks in an odd order. */
static void run_step(qn_cpu_step *step)
{
    void *scratch = make_workspace(step->scratch_bytes);
    step->shared = make_workspace(step->shared_bytes);
    for (int phase = 0; phase < step->n_phases; phase++) {
        const int64_t n = step->kernel->count(step, phase);
        for (int64_t i = 0; i < n; i++) {
            step->kernel->run(step, phase, step->n_threads % 2 ? i : n - 1 - i, scratch);
        }
    }
    qn__block_free(step->shared, step->shared_bytes + 1);
    qn__block_free(scratch, step->scratch_bytes + 1);
}

static void run_node(const qn_cpu_kernel *kernel, qn_node *node, const qn_cpu_matmul_fns *fns,
                     int32_t n_threads)
{
    const qn_cpu_isa isa = {.name = "test", .matmul = fns};
    qn_cpu_step step = make_step(kernel, node, &isa, n_threads);
    step.kept = make_workspace(step.kept_bytes);
    run_step(&step);
    qn__block_free(step.kept, step.kept_bytes + 1);
}

/* One column of one plane by the definition. */
static void multiply_alone(const matmul_matrix *m, int64_t plane, const float *x, const float *bias,
                           float *y)
{
    const qn_weight *w = &m->weight;
    const int64_t n_chunks = qn__div_up(w->ne[0], QN_PACK_CHUNK);
    qn_act_chunk *chunks = calloc((size_t)n_chunks, sizeof *chunks);
    assert_non_null(chunks);
    const bool quantized = qn_type_get_info(w->type)->quantized;
    if (quantized) {
        qn__matmul_scalar.quantize(x, w->ne[0], qn__act_form(w->type), chunks, sizeof *chunks);
    }
    const void *column = quantized ? (const void *)chunks : (const void *)x;
    const qn_matmul_tile t = {
        .weights = (const uint8_t *)w->packed + (size_t)(plane * qn__div_up(w->ne[1], 16)) *
                                                    qn__pack_group_bytes(w->type, w->ne[0]),
        .k = w->ne[0],
        .n_rows = w->ne[1],
        .n_cols = 1,
        .x = &column,
        .x_stride = quantized ? sizeof *chunks : QN_PACK_CHUNK * sizeof(float),
        .y = &y,
        .bias = bias};
    qn__matmul_scalar.mul[w->type](&t);
    free(chunks);
}

/* Gives the leaves and the result their bytes. */
static float *make_result(const qn_node *node)
{
    const size_t n = (size_t)(node->ne[0] * node->ne[1] * node->ne[2]);
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        out[i] = -55.0F;
    }
    return out;
}

static const qn_cpu_matmul_fns *best_fns(void)
{
    return qn__cpu_isa_find(NULL)->matmul;
}

/* w [k, rows, planes] with a view of x: columns `gap` floats further apart than they are long. */
static void check_mul_mat(const matmul_type *t, int64_t k, int64_t rows, int64_t planes,
                          int64_t cols, bool with_bias)
{
    qn_test_random r = {(uint64_t)(k + rows + cols)};
    const int64_t gap = 5, width = k + gap;
    matmul_matrix m = matmul_make(&r, t, k, rows, planes);
    float *acts = matmul_random_acts(&r, (size_t)(width * cols * planes));
    float *bias = matmul_random_acts(&r, (size_t)rows), *want = malloc((size_t)rows * sizeof *want);
    qn_error err;
    qn_graph *g = qn__graph_make(&err);
    assert_true(g && want);
    qn_node *wide = qn__graph_input(g, QN_TYPE_F32, 3, (int64_t[]){width, cols, planes}, "x");
    wide->data = acts;
    qn_node *x = qn__graph_slice(g, wide, 3, k);
    x->data = acts + 3; /* as a plan does */
    qn_node *b = qn__graph_input(g, QN_TYPE_F32, 1, &rows, "b");
    b->data = bias;
    qn_node *node =
        qn__graph_mul_mat(g, qn__graph_weight(g, &m.weight, "w"), x, with_bias ? b : NULL);
    qn_test_ok(qn__graph_finish(g, &err), err);
    for (int32_t threads = 1; threads <= 64; threads = threads * 2 + 1) {
        float *out = make_result(node);
        node->data = out;
        run_node(&qn__cpu_mul_mat, node, threads == 3 ? &qn__matmul_scalar : best_fns(), threads);
        for (int64_t i = 0; i < cols * planes; i++) {
            multiply_alone(&m, i / cols, acts + 3 + i * width, with_bias ? bias : NULL, want);
            if (memcmp(want, out + i * rows, (size_t)rows * sizeof *want) != 0) {
                fail_msg("%s: column %d differs with %d threads", qn_type_get_info(t->type)->name,
                         (int)i, (int)threads);
            }
        }
        free(out);
    }
    qn__graph_free(g);
    free(want);
    free(bias);
    free(acts);
    matmul_free(&m);
}

static void test_mul_mat(void **state)
{
    (void)state;
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        check_mul_mat(&matmul_types[i], 256, 37, 1, 3, true);
    }
    check_mul_mat(&matmul_types[0], 71, 33, 3, 5, false);       /* F32, planes */
    check_mul_mat(&matmul_types[3], 32 * 19, 200, 2, 9, false); /* Q4_0 */
    check_mul_mat(&matmul_types[3], 512, 48, 1, 131, true);     /* more than a task's columns */
    check_mul_mat(&matmul_types[0], 71, 33, 3, 40, false);      /* F32: activations are copied */
    check_mul_mat(&matmul_types[2], 300, 90, 2, 150, true);     /* BF16 */
    check_mul_mat(&matmul_types[3], 5120, 640, 1, 1, false);
}

/* ids choose a matrix for each (token, rank); shared_x: one activation row a token. */
static void check_mul_mat_id(const matmul_type *t, int64_t n_experts, int64_t n_used,
                             int64_t tokens, bool shared_x)
{
    const int64_t k = 256, rows = 37, per_token = shared_x ? 1 : n_used;
    qn_test_random r = {(uint64_t)(n_experts * 3 + tokens)};
    matmul_matrix m = matmul_make(&r, t, k, rows, n_experts);
    float *acts = matmul_random_acts(&r, (size_t)(k * per_token * tokens));
    int32_t *ids = malloc((size_t)(n_used * tokens) * sizeof *ids);
    float want[37];
    qn_error err;
    qn_graph *g = qn__graph_make(&err);
    assert_true(g && ids);
    for (int64_t i = 0; i < n_used * tokens; i++) {
        ids[i] = (int32_t)(qn_test_bits(&r) % (uint32_t)n_experts);
    }
    const int64_t odd = n_used * tokens / 2; /* no expert at all: a row of zeros */
    ids[odd] = tokens % 2 ? -1 : (int32_t)n_experts;
    qn_node *x = qn__graph_input(g, QN_TYPE_F32, 3, (int64_t[]){k, per_token, tokens}, "x");
    qn_node *id = qn__graph_input(g, QN_TYPE_I32, 2, (int64_t[]){n_used, tokens}, "ids");
    x->data = acts;
    id->data = ids;
    qn_node *node = qn__graph_mul_mat_id(g, qn__graph_weight(g, &m.weight, "w"), x, id);
    qn_test_ok(qn__graph_finish(g, &err), err);
    for (int32_t threads = 1; threads <= 7; threads += 3) {
        float *out = make_result(node);
        node->data = out;
        run_node(&qn__cpu_mul_mat_id, node, best_fns(), threads);
        for (int64_t i = 0; i < n_used * tokens; i++) {
            const float *column = acts + (shared_x ? i / n_used : i) * k;
            memset(want, 0, sizeof want);
            if (i != odd) {
                multiply_alone(&m, ids[i], column, NULL, want);
            }
            if (memcmp(want, out + i * rows, sizeof want) != 0) {
                fail_msg("%s: pair %d differs", qn_type_get_info(t->type)->name, (int)i);
            }
        }
        free(out);
    }
    qn__graph_free(g);
    free(ids);
    free(acts);
    matmul_free(&m);
}

static void test_mul_mat_id(void **state)
{
    (void)state;
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        check_mul_mat_id(&matmul_types[i], 5, 2, 4, i % 2 == 0);
    }
    check_mul_mat_id(&matmul_types[3], 2, 2, 201, false); /* lots of more than 128 pairs */
    check_mul_mat_id(&matmul_types[0], 64, 8, 1, true);
    check_mul_mat_id(&matmul_types[3], 1, 1, 1, true);
}

/* A layer of experts behind a projection, through a plan: the same bits with any instruction set
 * and any number of threads of a real pool. */
static void test_threads(void **state)
{
    static const int32_t threads[] = {1, 2, 3, 7};
    enum { K = 512, ROWS = 264, TOKENS = 37, USED = 3, EXPERTS = 6 };
    qn_test_random r = {5};
    float *acts = matmul_random_acts(&r, (size_t)K * TOKENS), *want = NULL;
    const size_t n = (size_t)ROWS * USED * TOKENS;
    int32_t ids[USED * TOKENS];
    (void)state;
    for (int i = 0; i < USED * TOKENS; i++) {
        ids[i] = (int32_t)(qn_test_bits(&r) % EXPERTS);
    }
    matmul_matrix first = matmul_make(&r, &matmul_types[4], K, K, 1);
    matmul_matrix stack = matmul_make(&r, &matmul_types[10], K, ROWS, EXPERTS);
    for (int32_t i = 0; qn__cpu_isa_at(i); i++) {
        qn_error err;
        qn_device *device = NULL;
        qn_plan *plan = NULL;
        qn_device_options options = qn_device_defaults();
        qn_graph *g = qn__graph_make(&err);
        options.isa = qn__cpu_isa_at(i)->name;
        options.threads.n_threads = 7;
        qn_test_ok(qn_device_open(0, &options, &device, &err), err);
        qn_node *x = qn__graph_input(g, QN_TYPE_F32, 2, (int64_t[]){K, TOKENS}, "x");
        qn_node *id = qn__graph_input(g, QN_TYPE_I32, 2, (int64_t[]){USED, TOKENS}, "ids");
        qn_node *h = qn__graph_mul_mat(g, qn__graph_weight(g, &first.weight, "w1"), x, NULL);
        h = qn__graph_reshape(g, h, K, 1, TOKENS, 1);
        h = qn__graph_mul_mat_id(g, qn__graph_weight(g, &stack.weight, "w2"), h, id);
        qn__graph_output(g, h, "out");
        qn_test_ok(qn__plan_make(g, device, NULL, &plan, &err), err);
        memcpy(x->data, acts, (size_t)K * TOKENS * sizeof *acts);
        memcpy(id->data, ids, sizeof ids);
        for (int t = 0; t < 4; t++) {
            qn_test_ok(qn__plan_run(plan, threads[t], NULL, &err), err);
            if (!want) {
                want = malloc(n * sizeof *want);
                assert_non_null(want);
                memcpy(want, h->data, n * sizeof *want);
            }
            assert_memory_equal(want, h->data, n * sizeof *want);
        }
        qn__plan_free(plan);
        qn__graph_free(g);
        qn_device_free(device);
    }
    free(want);
    free(acts);
    matmul_free(&first);
    matmul_free(&stack);
}

/* Two products of the same activations, the second with what the first has quantized, or copied for
 * float weights, where `suits`. */
static void check_reuse(const matmul_type *a, const matmul_type *b, int64_t tokens, bool by_id,
                        bool suits)
{
    enum { K = 512, ROWS = 37, MOST = 40 };
    qn_test_random r = {7};
    qn_error err;
    qn_graph *g = qn__graph_make(&err);
    const matmul_type *types[2] = {a, b};
    const qn_cpu_kernel *kernel = by_id ? &qn__cpu_mul_mat_id : &qn__cpu_mul_mat;
    const qn_cpu_isa isa = {.name = "test", .matmul = best_fns()};
    float *acts = matmul_random_acts(&r, (size_t)(K * tokens)), want[ROWS];
    int32_t ids[MOST] = {0};
    matmul_matrix m[2];
    qn_cpu_step step[2];
    assert_non_null(g);
    qn_node *x = qn__graph_input(g, QN_TYPE_F32, 3,
                                 (int64_t[]){K, by_id ? 1 : tokens, by_id ? tokens : 1}, "x");
    qn_node *id = qn__graph_input(g, QN_TYPE_I32, 2, (int64_t[]){1, tokens}, "ids");
    x->data = acts;
    id->data = ids;
    for (int i = 0; i < 2; i++) {
        m[i] = matmul_make(&r, types[i], K, ROWS, 1);
        qn_node *w = qn__graph_weight(g, &m[i].weight, "w");
        qn_node *y = by_id ? qn__graph_mul_mat_id(g, w, x, id) : qn__graph_mul_mat(g, w, x, NULL);
        y->data = make_result(y);
        step[i] = make_step(kernel, y, &isa, 2);
    }
    qn_test_ok(qn__graph_finish(g, &err), err);
    assert_int_equal(kernel->reuse(&step[1], &step[0]), suits);
    const int64_t bringing = kernel->count(&step[0], 0);
    assert_true(bringing > by_id);
    assert_int_equal(kernel->count(&step[1], 0), suits ? by_id : bringing);
    assert_true((step[0].kept_bytes == step[1].kept_bytes) ==
                (qn_type_get_info(a->type)->quantized == qn_type_get_info(b->type)->quantized));
    const size_t kept =
        step[0].kept_bytes > step[1].kept_bytes ? step[0].kept_bytes : step[1].kept_bytes;
    step[0].kept = step[1].kept = make_workspace(kept);
    for (int i = 0; i < 2; i++) {
        run_step(&step[i]);
        for (int64_t t = 0; t < tokens; t++) {
            multiply_alone(&m[i], 0, acts + t * K, NULL, want);
            assert_memory_equal(want, (const float *)step[i].node->data + t * ROWS, sizeof want);
        }
    }
    qn__block_free(step[0].kept, kept + 1);
    for (int i = 0; i < 2; i++) {
        free(step[i].node->data);
        matmul_free(&m[i]);
    }
    qn__graph_free(g);
    free(acts);
}

static void test_reuse(void **state)
{
    (void)state;
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        for (int j = 0; j < N_MATMUL_TYPES; j++) {
            const matmul_type *a = &matmul_types[i], *b = &matmul_types[j];
            const bool blocks[2] = {qn_type_get_info(a->type)->quantized,
                                    qn_type_get_info(b->type)->quantized};
            const qn_act_form f[2] = {qn__act_form(a->type), qn__act_form(b->type)};
            if (!blocks[0] || !blocks[1]) {
                check_reuse(a, b, 40, false, blocks[0] == blocks[1]);
                continue;
            }
            const bool suits = f[0].factor == 0 || f[1].factor == 0 ||
                               (f[0].factor == f[1].factor && f[0].sub == f[1].sub);
            check_reuse(a, b, 3, (i + j) % 2 == 0, suits);
        }
    }
}

/* Products of several activations in turn, of mixed types, with other steps between them: the
 * bits that each has in a plan of its own. */
static void test_reuse_in_plan(void **state)
{
    enum { K = 512, ROWS = 48, TOKENS = 5, PRODUCTS = 10 };
    static const struct {
        int type, input;
    } products[PRODUCTS] = {{7, 0}, {3, 0}, {3, 0}, {7, 1}, {3, 0},
                            {0, 0}, {3, 0}, {7, 0}, {7, 1}, {12, 1}};
    qn_test_random r = {11};
    float *acts = matmul_random_acts(&r, (size_t)2 * K * TOKENS), want[ROWS];
    matmul_matrix m[PRODUCTS];
    qn_node *y[PRODUCTS];
    qn_error err;
    qn_device *device = NULL;
    qn_plan *plan = NULL;
    qn_device_options options = qn_device_defaults();
    qn_graph *g = qn__graph_make(&err);
    (void)state;
    options.threads.n_threads = 3;
    qn_test_ok(qn_device_open(0, &options, &device, &err), err);
    qn_node *x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = qn__graph_input(g, QN_TYPE_F32, 2, (int64_t[]){K, TOKENS}, "x");
    }
    for (int i = 0; i < PRODUCTS; i++) {
        m[i] = matmul_make(&r, &matmul_types[products[i].type], K, ROWS, 1);
        qn_node *w = qn__graph_weight(g, &m[i].weight, "w");
        y[i] = qn__graph_mul_mat(g, w, x[products[i].input], NULL);
        qn__graph_output(g, y[i], "y");
        qn__graph_output(g, qn__graph_soft_max(g, y[i]), "p");
    }
    qn_test_ok(qn__plan_make(g, device, NULL, &plan, &err), err);
    for (int i = 0; i < 2; i++) {
        memcpy(x[i]->data, acts + i * K * TOKENS, (size_t)K * TOKENS * sizeof *acts);
    }
    for (int run = 0; run < 2; run++) {
        qn_test_ok(qn__plan_run(plan, 3 - run, NULL, &err), err);
        for (int i = 0; i < PRODUCTS; i++) {
            for (int t = 0; t < TOKENS; t++) {
                multiply_alone(&m[i], 0, acts + (products[i].input * TOKENS + t) * K, NULL, want);
                assert_memory_equal(want, (float *)y[i]->data + t * ROWS, sizeof want);
            }
        }
    }
    qn__plan_free(plan);
    qn__graph_free(g);
    qn_device_free(device);
    for (int i = 0; i < PRODUCTS; i++) {
        matmul_free(&m[i]);
    }
    free(acts);
}

static void test_sizes(void **state)
{
    (void)state;
    const struct {
        qn_type type;
        int64_t ne[4];
        size_t bytes;
    } cases[] = {
        {QN_TYPE_Q4_0, {2048, 2048, 1, 1}, 2048 * 2048 / 32 * 18},
        {QN_TYPE_Q4_0, {576, 17, 3, 1}, 3 * 2 * 16 * (576 / 32 * 18)},
        {QN_TYPE_Q6_K, {512, 16, 1, 1}, 2 * (16 * 210 + 32)}, /* chunks of whole cache lines */
        {QN_TYPE_F32, {3, 1, 1, 1}, 3 * 16 * 4},
        {QN_TYPE_BF16, {3, 1, 1, 1}, 4 * 16 * 2},
        {QN_TYPE_Q4_0, {33, 16, 1, 1}, 0},
        {QN_TYPE_Q4_0, {0, 16, 1, 1}, 0},
        {QN_TYPE_Q4_0, {32, 16, 1, 2}, 0},
        {QN_TYPE_Q4_K, {128, 16, 1, 1}, 0},
        {QN_TYPE_IQ2_S, {256, 16, 1, 1}, 0},
        {QN_TYPE_I32, {256, 16, 1, 1}, 0},
        {QN_TYPE_F32, {1 << 30, INT64_MAX / 2, 1, 1}, 0},
        {QN_TYPE_F32, {INT64_MAX / 2, 1, 1, 1}, 0},
        {QN_TYPE_F32, {16, INT64_MAX, INT64_MAX, 1}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(qn__cpu_pack_bytes(cases[i].type, cases[i].ne), cases[i].bytes);
    }
    /* A packed matrix is not much larger than the file's. */
    for (int i = 0; i < N_MATMUL_TYPES; i++) {
        const int64_t ne[4] = {2048, 512, 1, 1};
        const size_t file = matmul_row_bytes(matmul_types[i].type, ne[0]) * 512;
        assert_true(qn__cpu_pack_bytes(matmul_types[i].type, ne) <= file + file / 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_mul_mat),
        cmocka_unit_test(test_mul_mat_id), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_reuse),      cmocka_unit_test(test_reuse_in_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
