/* blocks.c: the loops over columns, panels, groups and chunks, and the end of a tile. */
#include "device/cpu/blocks.h"

#include "device/cpu/join.h"

enum {
    PANEL_ACTS = 256,       /* columns x chunks of a panel: 112 KiB of activations */
    LAST_COLS = 16,         /* columns whose results are written together */
    STACK_FLOATS = 48 << 10 /* of all groups that walk together */
};

/* What lies in the scratch of a tile. */
typedef struct room {
    /* [group][level][column][16 rows] */
    _Alignas(64) float stack[STACK_FLOATS];
    /* [chunk of the panel][column]: activations, and what the kernel makes of them */
    const qn_act_chunk *x[PANEL_ACTS];
    _Alignas(64) uint8_t acts[PANEL_ACTS][QN_BLOCKS_ACT_BYTES];
    _Alignas(64) uint8_t open[QN_BLOCKS_OPEN_BYTES];
} room;

_Static_assert(sizeof(room) <= QN_MATMUL_SCRATCH, "the room of a tile");
_Static_assert(QN_BLOCKS_COLS *QN_PACK_ROWS *QN_JOIN_LEVELS <= STACK_FLOATS, "a group's stacks");

/* The columns first .. first + n_cols of a tile with groups that share a stack. */
typedef struct walkers {
    const qn_blocks_kernel *kernel;
    const qn_matmul_tile *tile;
    int64_t first, n_cols, panel; /* panel: its chunks */
    int64_t row, n_groups;        /* first row of the groups */
    int64_t n_chunks, n_levels;
    size_t chunk_bytes, group_bytes;
    int64_t fetch_bytes; /* of qn_blocks_chunk */
    room *room;
} walkers;

static size_t level_of(const walkers *w)
{
    return (size_t)w->n_cols * QN_PACK_ROWS;
}

static float *stack_of(const walkers *w, int64_t group)
{
    return w->room->stack + (size_t)(group * w->n_levels) * level_of(w);
}

static const uint8_t *chunk_at(const walkers *w, int64_t group, int64_t index)
{
    return (const uint8_t *)w->tile->weights +
           (size_t)(w->row / QN_PACK_ROWS + group) * w->group_bytes +
           (size_t)index * w->chunk_bytes;
}

static int64_t values_of(const walkers *w, int64_t index)
{
    return qn__min_i64(w->tile->k - index * QN_PACK_CHUNK, QN_PACK_CHUNK);
}

/* The place of a column's chunk in the panel. */
static int64_t place_of(const walkers *w, int64_t column, int64_t index)
{
    return index % w->panel * w->n_cols + column;
}

/* Joins what waits of a column, adds the bias and writes n_rows <= 16 results. */
static void finish(const walkers *w, const float *stack, int64_t n_rows, const float *bias,
                   float *y)
{
    const unsigned long long n_chunks = (unsigned long long)w->n_chunks;
    float sum[QN_PACK_ROWS];
    int level = __builtin_ctzll(n_chunks);
    memcpy(sum, stack + (size_t)level * level_of(w), sizeof sum);
    for (level++; n_chunks >> level != 0; level++) {
        const float *left = stack + (size_t)level * level_of(w);
        for (int r = 0; n_chunks >> level & 1 && r < QN_PACK_ROWS; r++) {
            sum[r] = left[r] + sum[r];
        }
    }
    if (n_rows == QN_PACK_ROWS) {
        for (int r = 0; bias && r < QN_PACK_ROWS; r++) {
            sum[r] += bias[r];
        }
        memcpy(y, sum, sizeof sum);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++) {
        y[r] = bias ? sum[r] + bias[r] : sum[r];
    }
}

/* The last chunk of a group: results are written while the sums are at hand, and their lines are
 * asked for before. */
static void walk_last(const walkers *w, qn_blocks_chunk *chunk, int64_t group)
{
    const qn_matmul_tile *t = w->tile;
    const int64_t row = w->row + group * QN_PACK_ROWS;
    const int64_t n_rows = qn__min_i64(t->n_rows - row, QN_PACK_ROWS);
    for (int64_t c = 0; c < w->n_cols; c += LAST_COLS) {
        const int64_t n_cols = qn__min_i64(w->n_cols - c, LAST_COLS);
        float *stack = stack_of(w, group) + c * QN_PACK_ROWS;
        float *const *y = t->y + w->first + c;
        for (int64_t j = 0; j < n_cols; j++) {
            __builtin_prefetch(y[j] + row, 1);
            __builtin_prefetch(y[j] + row + n_rows - 1, 1);
        }
        const int64_t place = place_of(w, c, chunk->index);
        chunk->acts = w->room->acts[place];
        w->kernel->walk(chunk, w->room->x + place, n_cols, stack);
        for (int64_t j = 0; j < n_cols; j++) {
            finish(w, stack + j * QN_PACK_ROWS, n_rows, t->bias ? t->bias + row : NULL, y[j] + row);
        }
        chunk->fetch += chunk->fetch_bytes * chunk->n_blocks * (LAST_COLS / w->kernel->widest);
    }
}

/* Chunk `index` of a group with all columns; `next` is opened after it. */
static void walk_chunk(const walkers *w, int64_t group, int64_t index, const uint8_t *next)
{
    qn_blocks_chunk chunk = {.open = w->room->open,
                             .n_blocks = values_of(w, index) / QN_PACK_BLOCK,
                             .index = index,
                             .fetch = next,
                             .fetch_end = next + w->chunk_bytes,
                             .fetch_bytes = w->fetch_bytes,
                             .acts = w->room->acts[place_of(w, 0, index)],
                             .level = level_of(w)};
    w->kernel->open(chunk_at(w, group, index), chunk.n_blocks, w->room->open);
    if (index + 1 == w->n_chunks) {
        walk_last(w, &chunk, group);
    } else {
        w->kernel->walk(&chunk, w->room->x + place_of(w, 0, index), w->n_cols, stack_of(w, group));
    }
}

/* The activations of a panel, and what the kernel makes of them where it wants another form. */
static void prepare(const walkers *w, int64_t panel, int64_t end)
{
    for (int64_t i = panel; i < end; i++) {
        for (int64_t c = 0; c < w->n_cols; c++) {
            const int64_t place = place_of(w, c, i);
            const qn_act_chunk *x =
                (const qn_act_chunk *)((const uint8_t *)w->tile->x[w->first + c] +
                                       (size_t)i * w->tile->x_stride);
            w->room->x[place] = x;
            if (w->kernel->prepare) {
                w->kernel->prepare(x, values_of(w, i) / QN_PACK_BLOCK, w->room->acts[place]);
            }
        }
    }
}

static void mul_groups(const walkers *w)
{
    for (int64_t panel = 0; panel < w->n_chunks; panel += w->panel) {
        const int64_t end = qn__min_i64(panel + w->panel, w->n_chunks);
        prepare(w, panel, end);
        for (int64_t g = 0; g < w->n_groups; g++) {
            for (int64_t i = panel; i < end; i++) {
                const uint8_t *next = i + 1 < end           ? chunk_at(w, g, i + 1)
                                      : g + 1 < w->n_groups ? chunk_at(w, g + 1, panel)
                                      : end < w->n_chunks   ? chunk_at(w, 0, end)
                                                            : chunk_at(w, g + 1, 0);
                walk_chunk(w, g, i, next);
            }
        }
    }
}

void qn__blocks_mul(const qn_blocks_kernel *kernel, const qn_matmul_tile *tile)
{
    walkers w = {.kernel = kernel,
                 .tile = tile,
                 .n_chunks = qn__div_up(tile->k, QN_PACK_CHUNK),
                 .chunk_bytes = qn__pack_chunk_bytes(kernel->type, QN_PACK_CHUNK),
                 .group_bytes = qn__pack_group_bytes(kernel->type, tile->k),
                 .room = tile->scratch};
    w.n_levels = 64 - __builtin_clzll((unsigned long long)w.n_chunks);
    const int64_t n_groups = qn__div_up(tile->n_rows, QN_PACK_ROWS);
    for (w.first = 0; w.first < tile->n_cols; w.first += w.n_cols) {
        w.n_cols = qn__min_i64(tile->n_cols - w.first, QN_BLOCKS_COLS);
        w.panel = PANEL_ACTS / w.n_cols;
        const int64_t visits =
            qn__div_up(w.n_cols, kernel->widest) * (QN_PACK_CHUNK / QN_PACK_BLOCK);
        w.fetch_bytes = qn__div_up((int64_t)w.chunk_bytes / 64, visits) * 64;
        const int64_t most = STACK_FLOATS / ((int64_t)level_of(&w) * w.n_levels);
        for (int64_t g = 0; g < n_groups; g += w.n_groups) {
            w.row = g * QN_PACK_ROWS;
            w.n_groups = qn__min_i64(n_groups - g, most);
            mul_groups(&w);
        }
    }
}
