/*
 * op_matmul.c: MUL_MAT and MUL_MAT_ID on the CPU: workspaces, the cut into tasks, columns.
 *
 * Phase 0 brings the activations into the kept workspace, chunk by chunk, [plane][chunk][column],
 * so that a tile reads the columns of a chunk one behind the other: quantized (qn_act_chunk) for
 * block formats, as they are for float formats with many columns, which otherwise read them in
 * place. The last phase multiplies: a task is some groups of 16 rows with some columns. Products of
 * the same activations (query, key and value; gate and up) bring them once: steps that find them in
 * the kept workspace, in a form that suits their weights, leave them as they are, and run beside
 * the step before them.
 *
 * MUL_MAT_ID: phase 0 also sorts the pairs (token, rank) by expert; the last phase takes them as
 * *lots*, up to TILE_COLS pairs of one expert. Results do not depend on the grouping, because the
 * columns of a tile do not.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/matmul.h"

enum {
    TILE_COLS = 128,  /* columns of a task: their activations stay in the cache */
    BRING_CHUNKS = 8, /* chunks of activations that a task of phase 0 brings */
    MANY_COLS = 32,
    /* Weights of a task. Few columns are bound by reading, where each start of a stream costs: 128
     * KiB a task read a tenth less. Many want groups enough to come to their activations for. */
    TASK_BYTES_FEW = 1 << 20,
    TASK_BYTES_MANY = 128 << 10,
    TASK_GROUPS_MANY = 8,
    /* At least so many tasks a thread, so that a late worker costs little. */
    TASKS_PER_THREAD_FEW = 3,
    TASKS_PER_THREAD_MANY = 6,
    SMALLER = 4 /* share of them that the last tasks take: all workers end together */
};

/* tile[] of the step. */
enum {
    TASK_GROUPS, /* groups of a task */
    LARGE_TASKS, /* so many tasks take them; the others take a part of that */
    ACT_TYPE,    /* the weight type whose form the activations have */
    ACT_FOUND    /* another step brings them */
};

/* Shapes -----------------------------------------------------------------------------------------
 */

static const qn_weight *weight_of(const qn_cpu_step *step)
{
    return step->node->src[0]->weight;
}

static int64_t n_chunks_of(const qn_cpu_step *step)
{
    return qn__div_up(weight_of(step)->ne[0], QN_PACK_CHUNK);
}

static int64_t n_groups_of(const qn_cpu_step *step)
{
    return qn__div_up(weight_of(step)->ne[1], QN_PACK_ROWS);
}

static bool is_quantized(const qn_cpu_step *step)
{
    return qn_type_get_info(weight_of(step)->type)->quantized;
}

/* Rows of activations: all of dimensions 1 and 2. */
static int64_t n_act_rows(const qn_cpu_step *step)
{
    const qn_node *x = step->node->src[1];
    return x->ne[1] * x->ne[2];
}

static const float *act_row(const qn_node *x, int64_t i1, int64_t i2)
{
    return (const float *)((const uint8_t *)x->data + (size_t)i1 * x->nb[1] +
                           (size_t)i2 * x->nb[2]);
}

/* Bytes of a chunk in the kept workspace; 0 where activations stay in place. Rows of floats lie at
 * distances that are often powers of two: the columns of a tile would share a few sets of the L1
 * cache. */
static size_t kept_chunk_bytes(const qn_cpu_step *step)
{
    if (is_quantized(step)) {
        return sizeof(qn_act_chunk);
    }
    const bool many = step->node->op == QN_OP_MUL_MAT && step->node->ne[1] >= MANY_COLS;
    return many ? QN_PACK_CHUNK * sizeof(float) : 0;
}

static size_t act_bytes(const qn_cpu_step *step)
{
    return (size_t)(n_chunks_of(step) * n_act_rows(step)) * kept_chunk_bytes(step);
}

static bool supports(const qn_node *node)
{
    const qn_weight *w = node->src[0]->weight;
    return w && qn__cpu_pack_bytes(w->type, w->ne) != 0;
}

/* Cuts the groups into tasks, where all of them with all columns are `n_tiles` times n_groups, in
 * tiles of n_cols. */
static void cut_rows(qn_cpu_step *step, int64_t n_tiles, int64_t n_cols)
{
    const qn_weight *w = weight_of(step);
    const int64_t n_groups = n_groups_of(step), threads = qn__max_i64(1, step->n_threads);
    const int64_t group_bytes = (int64_t)qn__pack_group_bytes(w->type, w->ne[0]);
    const bool many = n_cols >= MANY_COLS;
    const int64_t wanted =
        many ? qn__max_i64(qn__div_up(TASK_BYTES_MANY, group_bytes), TASK_GROUPS_MANY)
             : qn__div_up(TASK_BYTES_FEW, group_bytes);
    const int64_t tasks = threads * (many ? TASKS_PER_THREAD_MANY : TASKS_PER_THREAD_FEW);
    const int64_t fair = qn__max_i64(1, n_groups * n_tiles / tasks);
    const int64_t groups = qn__min_i64(wanted, fair);
    const int64_t last = qn__min_i64(n_groups / SMALLER, 2 * threads * groups);
    step->tile[TASK_GROUPS] = groups;
    step->tile[LARGE_TASKS] = (n_groups - last) / groups;
}

static int64_t small_task_groups(const qn_cpu_step *step)
{
    return qn__max_i64(1, step->tile[TASK_GROUPS] / SMALLER);
}

static int64_t n_row_tasks(const qn_cpu_step *step)
{
    const int64_t large = step->tile[LARGE_TASKS];
    return large +
           qn__div_up(n_groups_of(step) - large * step->tile[TASK_GROUPS], small_task_groups(step));
}

/* Groups first .. first + count of a row task. */
typedef struct group_range {
    int64_t first, count;
} group_range;

static group_range groups_of_task(const qn_cpu_step *step, int64_t row_task)
{
    const int64_t large = step->tile[LARGE_TASKS], groups = step->tile[TASK_GROUPS];
    if (row_task < large) {
        return (group_range){row_task * groups, groups};
    }
    const int64_t small = small_task_groups(step);
    const int64_t first = large * groups + (row_task - large) * small;
    return (group_range){first, qn__min_i64(small, n_groups_of(step) - first)};
}

/* Activations ------------------------------------------------------------------------------------
 */

static int64_t count_bring(const qn_cpu_step *step)
{
    return kept_chunk_bytes(step) != 0 && !step->tile[ACT_FOUND]
               ? qn__div_up(n_chunks_of(step) * n_act_rows(step), BRING_CHUNKS)
               : 0;
}

/* For the same activations, but if they lie in a store, which may be written between the steps. A
 * form with factor 0 asks for nothing, so any other does for its weights. */
static bool reuse(qn_cpu_step *step, qn_cpu_step *before)
{
    const qn_node *x = step->node->src[1], *owner = x->view_of ? x->view_of : x;
    if (x != before->node->src[1] || owner->flags & QN_NODE_STORE ||
        kept_chunk_bytes(step) != kept_chunk_bytes(before)) {
        return false;
    }
    const qn_act_form wanted = qn__act_form(weight_of(step)->type);
    const qn_act_form given = qn__act_form((qn_type)before->tile[ACT_TYPE]);
    if (given.factor == 0) {
        before->tile[ACT_TYPE] = step->tile[ACT_TYPE];
    } else if (wanted.factor != 0 && (wanted.factor != given.factor || wanted.sub != given.sub)) {
        return false;
    }
    step->tile[ACT_FOUND] = true;
    return true;
}

static bool beside(const qn_cpu_step *step)
{
    return kept_chunk_bytes(step) == 0 || step->tile[ACT_FOUND];
}

/* Chunk `chunk` of row (i1, i2) in the kept workspace. */
static void *kept_chunk(const qn_cpu_step *step, int64_t i1, int64_t i2, int64_t chunk)
{
    const int64_t n1 = step->node->src[1]->ne[1];
    return (uint8_t *)step->kept +
           (size_t)((i2 * n_chunks_of(step) + chunk) * n1 + i1) * kept_chunk_bytes(step);
}

/* The chunks of all rows are numbered row by row; a task takes BRING_CHUNKS of them. */
static void run_bring(const qn_cpu_step *step, int64_t task)
{
    const qn_node *x = step->node->src[1];
    const qn_act_form form = qn__act_form((qn_type)step->tile[ACT_TYPE]);
    const int64_t n_chunks = n_chunks_of(step);
    const int64_t end = qn__min_i64((task + 1) * BRING_CHUNKS, n_chunks * n_act_rows(step));
    for (int64_t i = task * BRING_CHUNKS; i < end; i++) {
        const int64_t row = i / n_chunks, chunk = i % n_chunks;
        const int64_t i1 = row % x->ne[1], i2 = row / x->ne[1];
        const int64_t at = chunk * QN_PACK_CHUNK;
        const int64_t n = qn__min_i64(weight_of(step)->ne[0] - at, QN_PACK_CHUNK);
        void *out = kept_chunk(step, i1, i2, chunk);
        if (is_quantized(step)) {
            step->isa->matmul->quantize(act_row(x, i1, i2) + at, n, form, out,
                                        sizeof(qn_act_chunk));
        } else {
            memcpy(out, act_row(x, i1, i2) + at, (size_t)n * sizeof(float));
        }
    }
}

/* Where a column's chunks start. */
static const void *act_column(const qn_cpu_step *step, int64_t i1, int64_t i2)
{
    return kept_chunk_bytes(step) != 0 ? kept_chunk(step, i1, i2, 0)
                                       : (const void *)act_row(step->node->src[1], i1, i2);
}

/* A tile of the groups of row task `row_task` of a plane; columns are still to be filled in. */
static qn_matmul_tile make_tile(const qn_cpu_step *step, int64_t plane, int64_t row_task,
                                void *scratch)
{
    const qn_weight *w = weight_of(step);
    const qn_node *bias = step->node->op == QN_OP_MUL_MAT ? step->node->src[2] : NULL;
    const group_range groups = groups_of_task(step, row_task);
    const int64_t row = groups.first * QN_PACK_ROWS;
    return (qn_matmul_tile){
        .weights = (const uint8_t *)w->packed + (size_t)(plane * n_groups_of(step) + groups.first) *
                                                    qn__pack_group_bytes(w->type, w->ne[0]),
        .k = w->ne[0],
        .n_rows = qn__min_i64(groups.count * QN_PACK_ROWS, w->ne[1] - row),
        .x_stride = kept_chunk_bytes(step) != 0
                        ? (size_t)step->node->src[1]->ne[1] * kept_chunk_bytes(step)
                        : QN_PACK_CHUNK * sizeof(float),
        .bias = bias ? (const float *)bias->data + row : NULL,
        .scratch = scratch,
    };
}

static void run_tile(const qn_cpu_step *step, const qn_matmul_tile *tile)
{
    step->isa->matmul->mul[weight_of(step)->type](tile);
}

/* MUL_MAT ----------------------------------------------------------------------------------------
 */

static int64_t n_col_tasks(const qn_cpu_step *step)
{
    return qn__div_up(step->node->src[1]->ne[1], TILE_COLS);
}

static void prepare_mul_mat(qn_cpu_step *step)
{
    step->n_phases = kept_chunk_bytes(step) != 0 ? 2 : 1;
    step->kept_bytes = act_bytes(step);
    step->scratch_bytes = QN_MATMUL_SCRATCH;
    cut_rows(step, n_col_tasks(step) * weight_of(step)->ne[2], step->node->ne[1]);
    step->tile[ACT_TYPE] = weight_of(step)->type;
}

static int64_t count_mul_mat(const qn_cpu_step *step, int phase)
{
    if (phase + 1 < step->n_phases) {
        return count_bring(step);
    }
    return n_row_tasks(step) * n_col_tasks(step) * weight_of(step)->ne[2];
}

static void run_mul_mat(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    if (phase + 1 < step->n_phases) {
        run_bring(step, task);
        return;
    }
    const qn_node *out = step->node;
    const int64_t row_task = task % n_row_tasks(step), rest = task / n_row_tasks(step);
    const int64_t first = rest % n_col_tasks(step) * TILE_COLS, plane = rest / n_col_tasks(step);
    const void *x[TILE_COLS];
    float *y[TILE_COLS];
    qn_matmul_tile tile = make_tile(step, plane, row_task, scratch);
    tile.n_cols = qn__min_i64(TILE_COLS, out->ne[1] - first);
    tile.x = x;
    tile.y = y;
    for (int64_t c = 0; c < tile.n_cols; c++) {
        x[c] = act_column(step, first + c, plane);
        y[c] = (float *)out->data + (plane * out->ne[1] + first + c) * out->ne[0] +
               groups_of_task(step, row_task).first * QN_PACK_ROWS;
    }
    run_tile(step, &tile);
}

const qn_cpu_kernel qn__cpu_mul_mat = {.supports = supports,
                                       .prepare = prepare_mul_mat,
                                       .reuse = reuse,
                                       .beside = beside,
                                       .count = count_mul_mat,
                                       .run = run_mul_mat};

/* MUL_MAT_ID -------------------------------------------------------------------------------------
 */

/* Up to TILE_COLS pairs of one expert: places first .. first + count of the sorted pairs. */
typedef struct lot {
    int32_t expert, first, count;
} lot;

/* What phase 0 leaves in the shared workspace. A pair is numbered token * K + rank. */
typedef struct lots {
    int64_t *count;  /* of lots */
    lot *lot;        /* [n_pairs at most] */
    int32_t *pair;   /* sorted by expert, then ascending */
    int32_t *expert; /* [experts + 1]: pairs of the experts before it */
} lots;

static int64_t n_pairs_of(const qn_cpu_step *step)
{
    return step->node->ne[1] * step->node->ne[2];
}

static lots lots_of(const qn_cpu_step *step)
{
    const size_t pairs = (size_t)n_pairs_of(step);
    lots l;
    l.count = step->shared;
    l.lot = (lot *)(l.count + 1);
    l.pair = (int32_t *)(l.lot + pairs);
    l.expert = l.pair + pairs;
    return l;
}

static void prepare_mul_mat_id(qn_cpu_step *step)
{
    step->n_phases = 2;
    step->kept_bytes = act_bytes(step);
    step->scratch_bytes = QN_MATMUL_SCRATCH;
    step->shared_bytes = sizeof(int64_t) +
                         (size_t)n_pairs_of(step) * (sizeof(lot) + sizeof(int32_t)) +
                         (size_t)(weight_of(step)->ne[2] + 1) * sizeof(int32_t);
    cut_rows(step, qn__min_i64(n_pairs_of(step), weight_of(step)->ne[2]),
             n_pairs_of(step) / weight_of(step)->ne[2]);
    step->tile[ACT_TYPE] = weight_of(step)->type;
}

/* A counting sort. An id that is no expert (there is none in a sound graph) gives a row of 0. */
static void run_sort(const qn_cpu_step *step)
{
    const qn_node *out = step->node;
    const int32_t *ids = out->src[2]->data;
    const int64_t n_pairs = n_pairs_of(step), n_experts = weight_of(step)->ne[2];
    const lots l = lots_of(step);
    memset(l.expert, 0, (size_t)(n_experts + 1) * sizeof(int32_t));
    for (int64_t p = 0; p < n_pairs; p++) {
        if (ids[p] < 0 || ids[p] >= n_experts) {
            memset((float *)out->data + p * out->ne[0], 0, (size_t)out->ne[0] * sizeof(float));
        } else {
            l.expert[ids[p] + 1]++;
        }
    }
    *l.count = 0;
    for (int64_t e = 0; e < n_experts; e++) {
        const int32_t n = l.expert[e + 1];
        l.expert[e + 1] += l.expert[e];
        for (int32_t i = 0; i < n; i += TILE_COLS) {
            l.lot[(*l.count)++] = (lot){.expert = (int32_t)e,
                                        .first = l.expert[e] + i,
                                        .count = n - i < TILE_COLS ? n - i : TILE_COLS};
        }
    }
    for (int64_t p = 0; p < n_pairs; p++) {
        if (ids[p] >= 0 && ids[p] < n_experts) {
            l.pair[l.expert[ids[p]]++] = (int32_t)p;
        }
    }
}

static int64_t count_mul_mat_id(const qn_cpu_step *step, int phase)
{
    if (phase == 0) {
        return 1 + count_bring(step);
    }
    return *lots_of(step).count * n_row_tasks(step);
}

static void run_mul_mat_id(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    if (phase == 0) {
        if (task == 0) {
            run_sort(step);
        } else {
            run_bring(step, task - 1);
        }
        return;
    }
    const qn_node *out = step->node, *act = out->src[1];
    const lots l = lots_of(step);
    const lot part = l.lot[task / n_row_tasks(step)];
    const int64_t row_task = task % n_row_tasks(step);
    const void *x[TILE_COLS];
    float *y[TILE_COLS];
    qn_matmul_tile tile = make_tile(step, part.expert, row_task, scratch);
    tile.n_cols = part.count;
    tile.x = x;
    tile.y = y;
    for (int32_t c = 0; c < part.count; c++) {
        const int64_t pair = l.pair[part.first + c];
        const int64_t token = pair / out->ne[1], rank = pair % out->ne[1];
        x[c] = act_column(step, act->ne[1] == 1 ? 0 : rank, token);
        y[c] = (float *)out->data + pair * out->ne[0] +
               groups_of_task(step, row_task).first * QN_PACK_ROWS;
    }
    run_tile(step, &tile);
}

const qn_cpu_kernel qn__cpu_mul_mat_id = {.supports = supports,
                                          .prepare = prepare_mul_mat_id,
                                          .reuse = reuse,
                                          .count = count_mul_mat_id,
                                          .run = run_mul_mat_id};
