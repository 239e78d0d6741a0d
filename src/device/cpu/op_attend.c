/*
 * op_attend.c: attention over a paged store; the arithmetic is stated in attend.h.
 *
 * A tile is a range of tokens and one KV head: all query heads of these tokens that read it. A tile
 * walks the blocks of its tokens' sequence; a block of K and one of V are brought to F32 once for
 * all its queries. Two ways to share the work, chosen by the number of tokens alone, with the same
 * result: with many tokens a task is a tile, which keeps the triples of finished segments on a
 * stack; with few, a task is one segment of a tile (phase 0 leaves the triples in the step's shared
 * memory) and phase 1 merges them, unless no token has more than one.
 */
#include "device/cpu/attend.h"

#include <math.h>

#include "base/fmath.h"
#include "base/mem.h"
#include "device/cpu/rows.h"
#include "device/kv_layout.h"

#define LANES          QN_KV_BLOCK
#define SEGMENT_BLOCKS (QN_ATTEND_SEGMENT / QN_KV_BLOCK)
#define CHUNK          256 /* of the head dimension: the dot rule */
#define MAX_CHUNKS     8
#define TILE_QUERIES   48 /* wanted in a tile */
#define FEW_TOKENS     16 /* up to here segments are shared out */
#define MAX_SHARED     ((int64_t)64 << 20)
#define DIRECT_QUERIES 6 /* up to here plain half floats are widened in the registers */

/* The node's operands and sizes. */
typedef struct view {
    const qn_attend_params *params;
    const qn_cpu_attend_fns *fns;
    const qn_cpu_row_fns *rows_fns;
    const qn_node *node, *q, *k, *v;
    const int32_t *tables, *masks, *rows;
    const float *sinks; /* or NULL */
    int64_t d, dv, n_heads, n_kv, ratio, n_tokens, n_table;
    int64_t tile_tokens, n_tiles, tile_queries; /* queries: tokens * ratio */
    int64_t chunks, depth;                      /* of the head dimension; of the stack */
    size_t k_bytes, v_bytes;                    /* of one head of a block */
} view;

static view view_of(const qn_cpu_step *step)
{
    const qn_node *node = step->node, *q = node->src[0], *k = node->src[1], *v = node->src[2];
    view w = {.params = &node->params.attend,
              .fns = step->isa->attend,
              .rows_fns = step->isa->rows,
              .node = node,
              .q = q,
              .k = k,
              .v = v,
              .tables = node->src[3]->data,
              .masks = node->src[4]->data,
              .rows = node->src[5]->data,
              .sinks = node->src[6] ? node->src[6]->data : NULL,
              .d = q->ne[0],
              .dv = v->ne[0],
              .n_heads = q->ne[1],
              .n_kv = node->params.attend.n_kv_heads,
              .n_tokens = q->ne[2],
              .n_table = node->src[3]->ne[0]};
    w.ratio = w.n_heads / w.n_kv;
    w.tile_tokens = qn__max_i64(1, TILE_QUERIES / w.ratio);
    w.tile_tokens = qn__max_i64(1, qn__min_i64(w.tile_tokens, w.n_tokens));
    w.n_tiles = qn__div_up(w.n_tokens, w.tile_tokens);
    w.tile_queries = w.tile_tokens * w.ratio;
    w.chunks = qn__div_up(w.d, CHUNK);
    w.depth = 4;
    for (int64_t n = w.n_table / SEGMENT_BLOCKS + 2; n > 0; n >>= 1) {
        w.depth += 2;
    }
    w.k_bytes = qn__kv_block_bytes(k->type, w.d);
    w.v_bytes = qn__kv_block_bytes(v->type, w.dv);
    return w;
}

/* a[i] *= factor, over the elements of a V head. */
static void multiply(const view *w, float *a, float factor)
{
    w->rows_fns->binary_one[QN_OP_MUL - QN_OP_ADD](a, a, factor, w->dv);
}

/* A finished segment, or a merged range of them, of one query; the vector lies beside it. */
typedef struct triple {
    float m, l;
    int64_t segment; /* any one of those merged; -1: no key was present */
} triple;

/* A worker's memory, for the queries of one tile. */
typedef struct work {
    float *q;        /* [queries][d] */
    float *s;        /* [chunks][queries][32] */
    float *m, *l;    /* [queries], [queries][32] */
    float *factors;  /* [queries]: what the block multiplies the sums with */
    float *a;        /* [queries][dv] */
    float *k, *v;    /* a block as F32 */
    float *stack_a;  /* [queries][depth][dv] */
    triple *stack;   /* [queries][depth] */
    triple *now;     /* [queries]: the segment being computed */
    int64_t *height; /* [queries]: entries on the stack */
    uint32_t *masks; /* [tile tokens]: present keys of the block */
    bool *seen;      /* [queries]: whether a block had keys */
    float *slopes;   /* [ratio] */
} work;

/* The next `count` things from `base` (NULL: only counts) at *used. */
static void *take(uint8_t *base, size_t *used, int64_t count, size_t size)
{
    void *p = base ? base + *used : NULL;
    *used += qn__align_up((size_t)count * size, 64);
    return p;
}

/* Lays the worker's memory out from `base`; returns the bytes it takes. */
static size_t lay_out(const view *w, uint8_t *base, work *out)
{
    size_t used = 0;
    int64_t n = w->tile_queries;
    out->q = take(base, &used, n * w->d, sizeof(float));
    out->s = take(base, &used, w->chunks * n * LANES, sizeof(float));
    out->m = take(base, &used, n, sizeof(float));
    out->l = take(base, &used, n * LANES, sizeof(float));
    out->factors = take(base, &used, n, sizeof(float));
    out->a = take(base, &used, n * w->dv, sizeof(float));
    out->k = take(base, &used, w->d * LANES, sizeof(float));
    out->v = take(base, &used, w->dv * LANES, sizeof(float));
    out->stack_a = take(base, &used, n * w->depth * w->dv, sizeof(float));
    out->stack = take(base, &used, n * w->depth, sizeof(triple));
    out->now = take(base, &used, n, sizeof(triple));
    out->height = take(base, &used, n, sizeof(int64_t));
    out->masks = take(base, &used, w->tile_tokens, sizeof(uint32_t));
    out->seen = take(base, &used, n, sizeof(bool));
    out->slopes = take(base, &used, w->ratio, sizeof(float));
    return used;
}

/* Present keys ----------------------------------------------------------------------------------
 */

/* First and last position that a query at `p` may see, keys existing or not. */
static void reach(const qn_attend_params *params, int64_t p, int64_t *low, int64_t *high)
{
    int64_t n = params->window_size;
    *low = 0;
    *high = params->causal ? p : INT32_MAX;
    switch (params->window) {
    case QN_WINDOW_STANDARD:
        *low = p - n + 1;
        break;
    case QN_WINDOW_CHUNKED:
        *low = p - p % n;
        break;
    case QN_WINDOW_SYMMETRIC:
        *low = p - n / 2;
        *high = qn__min_i64(*high, p + n / 2);
        break;
    case QN_WINDOW_NONE:
        break;
    }
    *low = qn__max_i64(*low, 0);
}

/* The bits of a block's mask that a query at `p` sees; `first` is the position of lane 0. */
static uint32_t visible(const qn_attend_params *params, int64_t p, int64_t first, uint32_t mask)
{
    int64_t low, high;
    reach(params, p, &low, &high);
    low -= first;
    high -= first;
    if (low >= LANES || high < 0) {
        return 0;
    }
    if (low > 0) {
        mask &= UINT32_MAX << low;
    }
    if (high < LANES - 1) {
        mask &= UINT32_MAX >> (LANES - 1 - high);
    }
    return mask;
}

/* Tokens of one sequence that lie together in a tile: entries of the tables, blocks to visit. */
typedef struct run {
    int64_t t0, t1;      /* tokens */
    const int32_t *rows; /* of the first token */
    int64_t first, last; /* blocks that one of them may see; last < first: none */
} run;

/* The run that begins at token t0, at most up to token `end`. */
static run find_run(const view *w, int64_t t0, int64_t end)
{
    const int32_t *rows = w->rows + 4 * t0;
    run r = {.t0 = t0, .t1 = t0, .rows = rows, .first = INT64_MAX, .last = -1};
    int64_t from = rows[2], to = from + rows[1] - 1;
    for (; r.t1 < end; r.t1++) {
        const int32_t *own = w->rows + 4 * r.t1;
        if (own[0] != rows[0] || own[1] != rows[1] || own[2] != rows[2]) {
            break;
        }
        int64_t low, high;
        reach(w->params, own[3], &low, &high);
        r.first = qn__min_i64(r.first, low / LANES);
        r.last = qn__max_i64(r.last, high / LANES);
    }
    r.first = qn__max_i64(r.first, from);
    r.last = qn__min_i64(r.last, to);
    return r;
}

/* One segment -----------------------------------------------------------------------------------
 */

/* Copies the queries of a run: heads g * ratio … of each token. */
static void load_queries(const view *w, const run *r, int64_t g, work *k)
{
    float *to = k->q;
    for (int64_t t = r->t0; t < r->t1; t++) {
        for (int64_t h = g * w->ratio; h < (g + 1) * w->ratio; h++) {
            const uint8_t *from =
                (const uint8_t *)w->q->data + (size_t)h * w->q->nb[1] + (size_t)t * w->q->nb[2];
            memcpy(to, from, (size_t)w->d * sizeof(float));
            to += w->d;
        }
    }
}

/* log2 of a slope is -B (h + 1) / n2 for the first n2 heads, n2 the largest power of two in H. */
static void load_slopes(const view *w, int64_t g, work *k)
{
    double bias = (double)w->params->alibi_bias;
    int64_t n2 = 1;
    while (n2 * 2 <= w->n_heads) {
        n2 *= 2;
    }
    for (int64_t i = 0; i < w->ratio; i++) {
        int64_t h = g * w->ratio + i;
        double power = h < n2 ? -bias * (double)(h + 1) / (double)n2
                              : -bias * (double)(2 * (h - n2) + 1) / (double)(2 * n2);
        k->slopes[i] = bias > 0.0 ? (float)qn__pow(2.0, power) : 0.0F;
    }
}

/* A block of K or V of one head, as the products take it: as it lies, or brought to F32. */
typedef struct block {
    qn_type type;
    const uint8_t *data;
    const uint16_t *scales; /* Q8_0 */
    const uint8_t *next;    /* the block that comes next, in the store; where there is none: this */
    bool is_v;
} block;

static block load_block(const view *w, bool is_v, const run *r, int64_t g, int64_t b,
                        int64_t n_queries, float *tile)
{
    const qn_node *store = is_v ? w->v : w->k;
    int64_t d = is_v ? w->dv : w->d, entry = r->rows[0] + (b - r->rows[2]);
    size_t bytes = is_v ? w->v_bytes : w->k_bytes;
    const uint8_t *data = store->data;
    const int32_t *at = w->tables + entry;
    block out = {.type = store->type, .is_v = is_v};
    out.data = data + ((size_t)at[0] * (size_t)w->n_kv + (size_t)g) * bytes;
    out.next =
        b < r->last ? data + ((size_t)at[1] * (size_t)w->n_kv + (size_t)g) * bytes : out.data;
    if (store->type == QN_TYPE_F32) {
        return out;
    }
    if (n_queries <= DIRECT_QUERIES) {
        out.scales = (const uint16_t *)(const void *)(out.data + d * LANES);
        return out;
    }
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(out.next + i);
    }
    if (store->type == QN_TYPE_Q8_0) {
        w->fns->widen_q8_0(out.data, d, is_v, tile);
    } else {
        (store->type == QN_TYPE_F16 ? w->rows_fns->from_f16 : w->rows_fns->from_bf16)(
            tile, (const uint16_t *)(const void *)out.data, d * LANES);
    }
    out.type = QN_TYPE_F32;
    out.data = (const uint8_t *)tile;
    out.next = NULL;
    return out;
}

/* The block from row `from` on, of rows of n values: the operand b of a product. */
static qn_attend_product product_with(const block *x, int64_t from, int64_t n)
{
    size_t size = x->type == QN_TYPE_F32 ? 4 : x->type == QN_TYPE_Q8_0 ? 1 : 2;
    size_t skip = (size_t)(from * n) * size;
    /* K has a scale for 32 rows of a column, V for 32 columns of a row */
    int64_t scale = x->is_v ? from * (n / 32) : from / 32 * LANES;
    return (qn_attend_product){
        .b_type = x->type,
        .b = x->data + skip,
        .ldb = (size_t)n,
        .scales = x->type == QN_TYPE_Q8_0 ? x->scales + scale : NULL,
        .is_v = x->is_v,
        .next = x->next ? x->next + skip : NULL,
        .n = n,
        .ldc = (size_t)n,
    };
}

/* Dot products of the queries q0 … with the 32 keys of a block, into k->s. */
static void scores(const view *w, const block *keys, int64_t q0, int64_t n_q, work *k)
{
    size_t plane = (size_t)(w->tile_queries * LANES);
    for (int64_t c = 0; c < w->chunks; c++) {
        int64_t from = c * CHUNK;
        qn_attend_product p = product_with(keys, from, LANES);
        p.a = k->q + q0 * w->d + from;
        p.lda = (size_t)w->d;
        p.c = k->s + (size_t)c * plane + q0 * LANES;
        p.n_q = n_q;
        p.n_k = qn__min_i64(CHUNK, w->d - from);
        p.fresh = true;
        w->fns->accumulate(&p);
    }
    for (int64_t step = 1; step < w->chunks; step *= 2) {
        for (int64_t c = 0; c + step < w->chunks; c += 2 * step) {
            float *left = k->s + (size_t)c * plane, *right = left + (size_t)step * plane;
            for (int64_t i = q0 * LANES; i < (q0 + n_q) * LANES; i++) {
                left[i] += right[i];
            }
        }
    }
}

/* Weighted sum of the values of a block for queries with the same mask: a chain over the runs of
 * ones. */
static void add_values(const view *w, const block *values, uint32_t mask, int64_t q0, int64_t n_q,
                       bool fresh, work *k)
{
    const float *factors = fresh ? NULL : k->factors + q0;
    while (mask) {
        int from = __builtin_ctz(mask);
        uint32_t rest = ~(mask >> from);
        int count = rest ? __builtin_ctz(rest) : LANES;
        qn_attend_product p = product_with(values, from, w->dv);
        p.a = k->s + q0 * LANES + from;
        p.lda = LANES;
        p.c = k->a + q0 * w->dv;
        p.factors = factors;
        p.n_q = n_q;
        p.n_k = count;
        p.fresh = fresh;
        w->fns->accumulate(&p);
        fresh = false;
        factors = NULL;
        mask = from + count < LANES ? mask & (UINT32_MAX << (from + count)) : 0;
    }
}

/* The online soft-max of the queries of tokens [ta, tb): scores become weights. Without slopes a
 * token's place is of no account, and tokens with one mask go together. */
static void soften(const view *w, const run *r, int64_t ta, int64_t tb, int64_t first, work *k)
{
    const bool sloped = w->params->alibi_bias > 0.0F;
    qn_attend_soft soft = {.scale = w->params->scale,
                           .soft_cap = w->params->soft_cap,
                           .slopes = sloped ? k->slopes : NULL};
    for (int64_t t = ta, end; t < tb; t = end) {
        for (end = t + 1; end < tb && !sloped && k->masks[end] == k->masks[t]; end++) {
        }
        int64_t q = t * w->ratio;
        soft.mask = k->masks[t];
        soft.distance = w->rows[4 * (r->t0 + t) + 3] - first;
        if (soft.mask) {
            w->fns->soften(&soft, (end - t) * w->ratio, k->s + q * LANES, k->m + q,
                           k->l + q * LANES, k->factors + q);
        }
    }
}

/* One block for all queries of a run. */
static void one_block(const view *w, const run *r, int64_t g, int64_t b, work *k)
{
    int64_t n = r->t1 - r->t0, first = b * LANES;
    uint32_t mask = (uint32_t)w->masks[r->rows[0] + (b - r->rows[2])];
    int64_t ta = n, tb = 0; /* tokens that see something */
    for (int64_t t = 0; t < n; t++) {
        k->masks[t] = visible(w->params, w->rows[4 * (r->t0 + t) + 3], first, mask);
        if (k->masks[t]) {
            ta = qn__min_i64(ta, t);
            tb = t + 1;
        }
    }
    if (tb == 0) {
        return;
    }
    int64_t n_queries = (tb - ta) * w->ratio;
    block keys = load_block(w, false, r, g, b, n_queries, k->k);
    scores(w, &keys, ta * w->ratio, n_queries, k);
    soften(w, r, ta, tb, first, k);
    block values = load_block(w, true, r, g, b, n_queries, k->v);
    for (int64_t t = ta; t < tb;) {
        int64_t end = t + 1;
        bool seen = k->seen[t * w->ratio];
        while (end < tb && k->masks[end] == k->masks[t] && k->seen[end * w->ratio] == seen) {
            end++;
        }
        if (k->masks[t]) {
            add_values(w, &values, k->masks[t], t * w->ratio, (end - t) * w->ratio, !seen, k);
            memset(k->seen + t * w->ratio, 1, (size_t)((end - t) * w->ratio));
        }
        t = end;
    }
}

/* The blocks of one segment: leaves its triples in k->now and k->a. */
static void one_segment(const view *w, const run *r, int64_t g, int64_t segment, work *k)
{
    int64_t n = (r->t1 - r->t0) * w->ratio;
    memset(k->seen, 0, (size_t)n);
    memset(k->l, 0, (size_t)(n * LANES) * sizeof(float));
    for (int64_t q = 0; q < n; q++) {
        k->m[q] = -INFINITY;
        k->now[q].segment = -1;
    }
    int64_t from = qn__max_i64(segment * SEGMENT_BLOCKS, r->first);
    int64_t to = qn__min_i64(segment * SEGMENT_BLOCKS + SEGMENT_BLOCKS - 1, r->last);
    for (int64_t b = from; b <= to; b++) {
        one_block(w, r, g, b, k);
    }
    for (int64_t q = 0; q < n; q++) {
        if (!k->seen[q]) {
            continue;
        }
        float *l = k->l + q * LANES;
        for (int step = LANES / 2; step > 0; step /= 2) {
            for (int j = 0; j < step; j++) {
                l[j] += l[j + step];
            }
        }
        k->now[q] = (triple){.m = k->m[q], .l = l[0], .segment = segment};
    }
}

/* Merging ---------------------------------------------------------------------------------------
 */

static void merge(const view *w, triple *left, float *a, const triple *right, const float *a2)
{
    float m = right->m > left->m ? right->m : left->m;
    float e = qn__expf(left->m - m), e2 = qn__expf(right->m - m);
    left->m = m;
    left->l = fmaf(left->l, e, right->l * e2);
    w->fns->merge(a, e, a2, e2, w->dv);
}

/* A stack of triples of one query, in order of segments, each with its vector. */
typedef struct pile {
    triple *item;
    float *a; /* [depth][dv] */
    int64_t height;
} pile;

/*
 * Merges from the top what no later segment can come between: two neighbours whose common subtree
 * of the binary tree over segment indices has its right half complete when `next` is to come.
 */
static void settle(const view *w, pile *p, int64_t next)
{
    while (p->height >= 2) {
        triple *left = &p->item[p->height - 2], *right = left + 1;
        int level = 63 - __builtin_clzll((unsigned long long)(left->segment ^ right->segment));
        if (next >> level == right->segment >> level) {
            break;
        }
        float *a = p->a + (p->height - 2) * w->dv;
        merge(w, left, a, right, a + w->dv);
        p->height--;
    }
}

static void push(const view *w, pile *p, const triple *item, const float *a)
{
    settle(w, p, item->segment);
    p->item[p->height] = *item;
    memcpy(p->a + p->height * w->dv, a, (size_t)w->dv * sizeof(float));
    p->height++;
}

/* Merges the rest, lets the sink join and writes the result of head h of token t. */
static void finish(const view *w, pile *p, int64_t h, int64_t t)
{
    float *out = (float *)(void *)((uint8_t *)w->node->data + (size_t)h * w->node->nb[1] +
                                   (size_t)t * w->node->nb[2]);
    if (p->height == 0) {
        memset(out, 0, (size_t)w->dv * sizeof(float));
        return;
    }
    settle(w, p, INT64_MAX);
    float l = p->item->l, e = 1.0F;
    if (w->sinks) {
        float sink = w->sinks[h], m = sink > p->item->m ? sink : p->item->m;
        e = qn__expf(p->item->m - m);
        l = fmaf(l, e, qn__expf(sink - m));
    }
    memcpy(out, p->a, (size_t)w->dv * sizeof(float));
    multiply(w, out, e / l);
}

/* Many tokens: a task is a tile -----------------------------------------------------------------
 */

static void run_tile(const view *w, int64_t task, uint8_t *scratch)
{
    work k;
    lay_out(w, scratch, &k);
    int64_t g = task % w->n_kv, tile = w->n_tiles - 1 - task / w->n_kv; /* long ones first */
    int64_t end = qn__min_i64((tile + 1) * w->tile_tokens, w->n_tokens);
    load_slopes(w, g, &k);
    for (int64_t t = tile * w->tile_tokens; t < end;) {
        run r = find_run(w, t, end);
        int64_t n = (r.t1 - r.t0) * w->ratio;
        load_queries(w, &r, g, &k);
        memset(k.height, 0, (size_t)n * sizeof *k.height);
        for (int64_t s = r.first / SEGMENT_BLOCKS; s <= r.last / SEGMENT_BLOCKS; s++) {
            one_segment(w, &r, g, s, &k);
            for (int64_t q = 0; q < n; q++) {
                if (k.now[q].segment >= 0) {
                    pile p = {k.stack + q * w->depth, k.stack_a + q * w->depth * w->dv,
                              k.height[q]};
                    push(w, &p, &k.now[q], k.a + q * w->dv);
                    k.height[q] = p.height;
                }
            }
        }
        for (int64_t q = 0; q < n; q++) {
            pile p = {k.stack + q * w->depth, k.stack_a + q * w->depth * w->dv, k.height[q]};
            finish(w, &p, g * w->ratio + q % w->ratio, r.t0 + q / w->ratio);
        }
        t = r.t1;
    }
}

/* Few tokens: a task is a segment of a tile -----------------------------------------------------
 */

/* Triples of all segments, [token][head][slots]; slot i is the i-th segment of the token's run. */
typedef struct shared {
    int64_t slots;
    triple *items;
    float *a;
} shared;

static int64_t n_slots(const view *w)
{
    return w->n_table / SEGMENT_BLOCKS + 2;
}

static size_t lay_out_shared(const view *w, uint8_t *base, shared *out)
{
    size_t used = 0;
    out->slots = n_slots(w);
    int64_t n = w->n_tokens * w->n_heads * out->slots;
    out->items = take(base, &used, n, sizeof(triple));
    out->a = take(base, &used, n * w->dv, sizeof(float));
    return used;
}

/* Most segments that a run of these tokens visits. */
static int64_t most_segments(const view *w)
{
    int64_t most = 0;
    for (int64_t tile = 0; tile < w->n_tiles; tile++) {
        int64_t end = qn__min_i64((tile + 1) * w->tile_tokens, w->n_tokens);
        for (int64_t t = tile * w->tile_tokens; t < end;) {
            run r = find_run(w, t, end);
            if (r.last >= r.first) {
                most = qn__max_i64(most, r.last / SEGMENT_BLOCKS - r.first / SEGMENT_BLOCKS + 1);
            }
            t = r.t1;
        }
    }
    return most;
}

/* The results of a run that has no more than one segment. */
static void finish_run(const view *w, const run *r, int64_t g, work *k)
{
    for (int64_t q = 0; q < (r->t1 - r->t0) * w->ratio; q++) {
        pile p = {&k->now[q], k->a + q * w->dv, r->last >= r->first && k->now[q].segment >= 0};
        finish(w, &p, g * w->ratio + q % w->ratio, r->t0 + q / w->ratio);
    }
}

static void run_segment(const view *w, int64_t task, uint8_t *scratch, const shared *out)
{
    work k;
    lay_out(w, scratch, &k);
    const bool alone = most_segments(w) <= 1; /* there is no phase of merging */
    int64_t g = task % w->n_kv, tile = task / w->n_kv % w->n_tiles;
    int64_t slot = task / w->n_kv / w->n_tiles;
    int64_t end = qn__min_i64((tile + 1) * w->tile_tokens, w->n_tokens);
    load_slopes(w, g, &k);
    for (int64_t t = tile * w->tile_tokens; t < end;) {
        run r = find_run(w, t, end);
        int64_t n = (r.t1 - r.t0) * w->ratio, segment = r.first / SEGMENT_BLOCKS + slot;
        const bool empty = r.last < r.first || segment > r.last / SEGMENT_BLOCKS;
        t = r.t1;
        if (!empty) {
            load_queries(w, &r, g, &k);
            one_segment(w, &r, g, segment, &k);
        }
        if (alone) {
            finish_run(w, &r, g, &k);
        }
        for (int64_t q = 0; q < n && !empty && !alone; q++) {
            int64_t h = g * w->ratio + q % w->ratio;
            int64_t at = ((r.t0 + q / w->ratio) * w->n_heads + h) * out->slots + slot;
            out->items[at] = k.now[q];
            memcpy(out->a + at * w->dv, k.a + q * w->dv, (size_t)w->dv * sizeof(float));
        }
    }
}

/* Merges the segments of one token and one KV head. */
static void run_merge(const view *w, int64_t task, uint8_t *scratch, const shared *in)
{
    work k;
    lay_out(w, scratch, &k);
    int64_t t = task / w->n_kv, g = task % w->n_kv;
    int64_t tile = t / w->tile_tokens, end = qn__min_i64((tile + 1) * w->tile_tokens, w->n_tokens);
    run r = find_run(w, tile * w->tile_tokens, end);
    while (r.t1 <= t) {
        r = find_run(w, r.t1, end);
    }
    int64_t n = r.last < r.first ? 0 : r.last / SEGMENT_BLOCKS - r.first / SEGMENT_BLOCKS + 1;
    for (int64_t h = g * w->ratio; h < (g + 1) * w->ratio; h++) {
        pile p = {k.stack, k.stack_a, 0};
        for (int64_t slot = 0; slot < n; slot++) {
            int64_t at = (t * w->n_heads + h) * in->slots + slot;
            if (in->items[at].segment >= 0) {
                push(w, &p, &in->items[at], in->a + at * w->dv);
            }
        }
        finish(w, &p, h, t);
    }
}

/* The rows of the kernel table ------------------------------------------------------------------
 */

static bool attend_supports(const qn_node *node)
{
    const qn_node *q = node->src[0], *k = node->src[1], *v = node->src[2];
    return q->type == QN_TYPE_F32 && q->nb[0] == sizeof(float) &&
           q->ne[0] <= (int64_t)CHUNK * MAX_CHUNKS && qn__kv_type_supported(k->type, q->ne[0]) &&
           qn__kv_type_supported(v->type, v->ne[0]);
}

static void attend_prepare(qn_cpu_step *step)
{
    view w = view_of(step);
    work k;
    shared s;
    step->scratch_bytes = lay_out(&w, NULL, &k);
    size_t bytes = lay_out_shared(&w, NULL, &s);
    if (w.n_tokens <= FEW_TOKENS && bytes <= (size_t)MAX_SHARED) {
        step->n_phases = 2;
        step->shared_bytes = bytes;
    }
}

static int64_t attend_count(const qn_cpu_step *step, int phase)
{
    view w = view_of(step);
    if (step->n_phases == 1) {
        return w.n_tiles * w.n_kv;
    }
    int64_t segments = most_segments(&w);
    if (phase == 0) {
        return qn__max_i64(1, segments) * w.n_tiles * w.n_kv;
    }
    return segments <= 1 ? 0 : w.n_tokens * w.n_kv;
}

static void attend_run(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    view w = view_of(step);
    if (step->n_phases == 1) {
        run_tile(&w, task, scratch);
        return;
    }
    shared s;
    lay_out_shared(&w, step->shared, &s);
    if (phase == 0) {
        run_segment(&w, task, scratch, &s);
    } else {
        run_merge(&w, task, scratch, &s);
    }
}

const qn_cpu_kernel qn__cpu_kernel_attend = {
    .supports = attend_supports,
    .prepare = attend_prepare,
    .count = attend_count,
    .run = attend_run,
};
