/* memory.c: making and freeing the store, its size, its invariants; see memory.h. */
#include "base/error.h"
#include "device/device.h"
#include "device/kv_layout.h"
#include "memory/internal.h"

#include <stdlib.h>

#define MAX_CELLS (INT64_C(1) << 28)

/* Making ----------------------------------------------------------------------------------------
 */

static qn_status check_layout(const qn_kv_config *c, qn_error *err)
{
    const qn_kv_layout *layout = c->layout;
    if (layout->n_groups < 1 || layout->n_groups > QN_MAX_KV_GROUPS || layout->n_layers < 1 ||
        layout->n_layers > QN_MAX_LAYERS || c->n_ropes < 0 || c->n_ropes > QN_MAX_ROPE_KINDS) {
        return qn__error(err, QN_ERR_ARGUMENT, "KV layout: bad number of groups or layers");
    }
    for (int32_t i = 0; i < layout->n_groups; i++) {
        if (layout->groups[i].window != QN_WINDOW_NONE && layout->groups[i].window_size < 1) {
            return qn__error(err, QN_ERR_ARGUMENT, "KV layout: a window of %d positions",
                             layout->groups[i].window_size);
        }
    }
    for (int32_t i = 0; i < layout->n_layers; i++) {
        const qn_kv_layer *l = &layout->layers[i];
        if (l->group < 0 || l->group >= layout->n_groups || l->n_head_kv < 1 || l->d_k < 1 ||
            l->d_v < 0 || l->rope >= c->n_ropes) {
            return qn__error(err, QN_ERR_ARGUMENT, "KV layout: bad sizes of layer %d", i);
        }
        if (l->rope >= 0) {
            const qn_rope_params *p = &c->ropes[l->rope].params;
            if (p->n_rot < 0 || p->n_rot % 2 != 0 || l->rot_first < 0 ||
                p->n_rot > l->d_k - l->rot_first) {
                return qn__error(err, QN_ERR_ARGUMENT, "KV layout: bad rotation of layer %d", i);
            }
        }
        if (!qn__kv_type_supported(c->type_k, l->d_k) ||
            (l->d_v > 0 && !qn__kv_type_supported(c->type_v, l->d_v))) {
            const qn_type_info *k = qn_type_get_info(c->type_k), *v = qn_type_get_info(c->type_v);
            return qn__error(
                err, QN_ERR_ARGUMENT,
                "a KV cache of types %s and %s does not suit heads of %d and %d values",
                k ? k->name : "?", v ? v->name : "?", l->d_k, l->d_v);
        }
    }
    return QN_OK;
}

static qn_status check_config(const qn_kv_config *c, qn_error *err)
{
    if (c->n_ctx < 1 || c->n_ctx > MAX_CELLS) {
        return qn__error(err, QN_ERR_ARGUMENT, "a context of %lld positions", (long long)c->n_ctx);
    }
    if (c->n_seq_max < 1 || c->n_seq_max > QN_KV_MAX_SEQ) {
        return qn__error(err, QN_ERR_ARGUMENT, "%d sequences: 1 to %d are possible", c->n_seq_max,
                         QN_KV_MAX_SEQ);
    }
    if (c->n_ubatch < 1 || c->window_slack < 0 || c->window_slack >= QN_KV_MAX_POS) {
        return qn__error(err, QN_ERR_ARGUMENT, "bad micro-batch size or window slack");
    }
    return check_layout(c, err);
}

static bool is_windowed(const qn_kv *kv, const group *g)
{
    return g->window != QN_WINDOW_NONE && !kv->config.full_windows;
}

/* Every sequence can have a partly used block; a window group needs its windows and what a
 * micro-batch adds. */
static int32_t blocks_wanted(const qn_kv *kv, const group *g)
{
    int64_t n_seq = kv->n_seq, full = qn__div_up(kv->config.n_ctx, SIDE) + n_seq - 1;
    if (is_windowed(kv, g)) {
        int64_t kept = ((int64_t)g->window_size + kv->config.window_slack) / SIDE + 3;
        full = qn__min_i64(full, n_seq * kept + kv->config.n_ubatch / SIDE + 1);
    }
    return (int32_t)full + SPARE;
}

static bool make_tables(qn_kv *kv, group *g, table **out)
{
    table *tables = qn__calloc((size_t)kv->n_seq, sizeof *tables);
    entry *entries = NULL;
    size_t n;
    *out = tables;
    if (!tables || !qn__mul_size((size_t)kv->n_seq, (size_t)g->capacity, &n) ||
        !(entries = qn__calloc(n, sizeof *entries))) {
        return false;
    }
    for (int32_t s = 0; s < kv->n_seq; s++) {
        tables[s].entries = entries + (size_t)s * (size_t)g->capacity;
    }
    return true;
}

static bool make_group(qn_kv *kv, int32_t gi)
{
    group *g = &kv->groups[gi];
    g->window = kv->layout.groups[gi].window;
    g->window_size = kv->layout.groups[gi].window_size;
    g->n_blocks = blocks_wanted(kv, g);
    g->capacity = 2 * g->n_blocks + 8;
    g->blocks = qn__calloc((size_t)g->n_blocks, sizeof *g->blocks);
    g->saved_blocks = qn__calloc((size_t)g->n_blocks, sizeof *g->blocks);
    if (!g->blocks || !g->saved_blocks || !make_tables(kv, g, &g->tables) ||
        !make_tables(kv, g, &g->saved_tables)) {
        return false;
    }
    if (qn__kv_can_shift(kv)) {
        g->moved = qn__calloc((size_t)g->n_blocks, SIDE * sizeof *g->moved);
        g->scratch = qn__calloc((size_t)g->capacity, sizeof *g->scratch);
        if (!g->moved || !g->scratch) {
            return false;
        }
    }
    for (int32_t b = 0; b < g->n_blocks; b++) {
        g->blocks[b] = (block){0, NONE, b - 1, b + 1 < g->n_blocks ? b + 1 : NONE};
    }
    g->free_head = 0;
    g->free_tail = g->n_blocks - 1;
    g->n_free = g->n_blocks;
    return true;
}

static void *take_memory(const qn_kv *kv, size_t bytes)
{
    qn_device *device = kv->config.device;
    return device ? qn__device_memory_alloc(device, bytes) : qn__block_alloc(bytes);
}

static void give_memory(const qn_kv *kv, void *memory, size_t bytes)
{
    if (kv->config.device) {
        qn__device_memory_free(kv->config.device, memory, bytes);
    } else {
        qn__block_free(memory, bytes);
    }
}

static bool make_store(qn_kv *kv, int32_t i)
{
    const qn_kv_layer *l = &kv->layout.layers[i];
    store *s = &kv->stores[i];
    size_t n = (size_t)kv->groups[l->group].n_blocks, heads = (size_t)l->n_head_kv;
    if (!qn__mul_size(qn__kv_block_bytes(kv->config.type_k, l->d_k), heads, &s->k_block) ||
        !qn__mul_size(s->k_block, n, &s->k_bytes) || !(s->k = take_memory(kv, s->k_bytes))) {
        return false;
    }
    if (l->d_v == 0) {
        return true;
    }
    return qn__mul_size(qn__kv_block_bytes(kv->config.type_v, l->d_v), heads, &s->v_block) &&
           qn__mul_size(s->v_block, n, &s->v_bytes) && (s->v = take_memory(kv, s->v_bytes));
}

static bool make_sequences(qn_kv *kv)
{
    size_t n = (size_t)kv->n_seq, blocks = (size_t)qn__div_up(kv->config.n_ctx, SIDE), total;
    kv->token_capacity = (int32_t)(blocks * SIDE);
    kv->sequences = qn__calloc(n, sizeof *kv->sequences);
    kv->seq_mark = qn__calloc(n, sizeof *kv->seq_mark);
    kv->seq_last = qn__calloc(n, sizeof *kv->seq_last);
    if (!kv->sequences || !kv->seq_mark || !kv->seq_last || !qn__mul_size(n, blocks, &total)) {
        return false;
    }
    kv->token_block = qn__calloc(total, SIDE * sizeof *kv->token_block);
    kv->chain_block = qn__calloc(total, sizeof *kv->chain_block);
    if (!kv->token_block || !kv->chain_block) {
        return false;
    }
    for (size_t s = 0; s < n; s++) {
        kv->sequences[s].tokens = kv->token_block + s * blocks * SIDE;
        kv->sequences[s].chain = kv->chain_block + s * blocks;
    }
    return true;
}

static bool make_contents(qn_kv *kv)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        kv->n_contents += kv->groups[gi].n_blocks;
    }
    kv->n_buckets = 1;
    while (kv->n_buckets < kv->n_contents) {
        kv->n_buckets *= 2;
    }
    kv->contents = qn__calloc((size_t)kv->n_contents, sizeof *kv->contents);
    kv->buckets = qn__calloc((size_t)kv->n_buckets, sizeof *kv->buckets);
    if (!kv->contents || !kv->buckets) {
        return false;
    }
    for (int32_t i = 0; i < kv->n_contents; i++) {
        kv->contents[i].next = i + 1 < kv->n_contents ? i + 1 : NONE;
    }
    for (int32_t i = 0; i < kv->n_buckets; i++) {
        kv->buckets[i] = NONE;
    }
    return true;
}

static bool copy_ropes(qn_kv *kv, const qn_kv_config *config)
{
    for (int32_t i = 0; i < config->n_ropes; i++) {
        kv->ropes[i] = (qn_kv_rope){.params = config->ropes[i].params};
        size_t n = (size_t)config->ropes[i].params.n_rot / 2;
        if (!config->ropes[i].factors) {
            continue;
        }
        float *factors = qn__calloc(n, sizeof *factors);
        if (!factors) {
            return false;
        }
        memcpy(factors, config->ropes[i].factors, n * sizeof *factors);
        kv->ropes[i].factors = factors;
    }
    return true;
}

static bool fill(qn_kv *kv, const qn_kv_config *config)
{
    if (!copy_ropes(kv, config)) {
        return false;
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        if (!make_group(kv, gi)) {
            return false;
        }
    }
    int32_t longest = 0;
    for (int32_t i = 0; i < kv->layout.n_layers; i++) {
        if (!make_store(kv, i)) {
            return false;
        }
        longest = kv->layout.layers[i].d_k > longest ? kv->layout.layers[i].d_k : longest;
    }
    kv->staging = qn__calloc((size_t)longest, sizeof *kv->staging);
    kv->angles = qn__calloc((size_t)longest, sizeof *kv->angles);
    return kv->staging && kv->angles && make_sequences(kv) && make_contents(kv);
}

qn_status qn__kv_make(qn_kv **out, const qn_kv_config *config, qn_error *err)
{
    qn_status status = check_config(config, err);
    if (status != QN_OK) {
        return status;
    }
    qn_kv *kv = qn__calloc(1, sizeof *kv);
    if (!kv) {
        return qn__error_memory(err, "the KV store");
    }
    kv->config = *config;
    kv->layout = *config->layout;
    kv->config.layout = &kv->layout;
    kv->config.ropes = kv->ropes;
    kv->n_groups = config->layout->n_groups;
    kv->n_seq = config->n_seq_max;
    kv->stores = qn__calloc((size_t)kv->layout.n_layers, sizeof *kv->stores);
    if (!kv->stores || !fill(kv, config)) {
        qn__kv_free(kv);
        return qn__error_memory(err, "the KV store");
    }
    *out = kv;
    return QN_OK;
}

static void free_tables(table *tables)
{
    if (tables) {
        free(tables[0].entries);
    }
    free(tables);
}

void qn__kv_free(qn_kv *kv)
{
    if (!kv) {
        return;
    }
    for (int32_t i = 0; kv->stores && i < kv->layout.n_layers; i++) {
        give_memory(kv, kv->stores[i].k, kv->stores[i].k_bytes);
        give_memory(kv, kv->stores[i].v, kv->stores[i].v_bytes);
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        group *g = &kv->groups[gi];
        free(g->blocks);
        free(g->saved_blocks);
        free(g->moved);
        free(g->scratch);
        free_tables(g->tables);
        free_tables(g->saved_tables);
    }
    for (int32_t i = 0; i < QN_MAX_ROPE_KINDS; i++) {
        free((void *)(uintptr_t)kv->ropes[i].factors);
    }
    free(kv->stores);
    free(kv->sequences);
    free(kv->seq_mark);
    free(kv->seq_last);
    free(kv->token_block);
    free(kv->chain_block);
    free(kv->contents);
    free(kv->buckets);
    free(kv->staging);
    free(kv->angles);
    free(kv);
}

/* Facts -----------------------------------------------------------------------------------------
 */

qn_kv_store qn__kv_store_k(const qn_kv *kv, int32_t layer)
{
    const qn_kv_layer *l = &kv->layout.layers[layer];
    const store *s = &kv->stores[layer];
    return (qn_kv_store){.type = kv->config.type_k,
                         .ne = {SIDE, l->d_k, l->n_head_kv, kv->groups[l->group].n_blocks},
                         .data = s->k,
                         .bytes = s->k_bytes};
}

qn_kv_store qn__kv_store_v(const qn_kv *kv, int32_t layer)
{
    const qn_kv_layer *l = &kv->layout.layers[layer];
    const store *s = &kv->stores[layer];
    return (qn_kv_store){.type = kv->config.type_v,
                         .ne = {l->d_v, SIDE, l->n_head_kv, kv->groups[l->group].n_blocks},
                         .data = s->v,
                         .bytes = s->v_bytes};
}

size_t qn__kv_bytes(const qn_kv *kv)
{
    size_t total = 0;
    for (int32_t i = 0; i < kv->layout.n_layers; i++) {
        total += kv->stores[i].k_bytes + kv->stores[i].v_bytes;
    }
    return total;
}

static const group *largest_group(const qn_kv *kv)
{
    const group *largest = &kv->groups[0];
    for (int32_t gi = 1; gi < kv->n_groups; gi++) {
        largest = kv->groups[gi].n_blocks > largest->n_blocks ? &kv->groups[gi] : largest;
    }
    return largest;
}

int64_t qn__kv_n_cells(const qn_kv *kv)
{
    return (int64_t)(largest_group(kv)->n_blocks - SPARE) * SIDE;
}

int64_t qn__kv_n_used(const qn_kv *kv)
{
    const group *g = largest_group(kv);
    int64_t used = 0;
    for (int32_t s = 0; s < kv->n_seq; s++) {
        for (int32_t i = 0; i < g->tables[s].count; i++) {
            const entry *e = qn__kv_entry(&g->tables[s], i);
            if (e->mask) { /* shared places count by halves, thirds, …: rounded up */
                used += (__builtin_popcount(e->mask) + g->blocks[e->block].refs - 1) /
                        g->blocks[e->block].refs;
            }
        }
    }
    return used;
}

bool qn__kv_can_shift(const qn_kv *kv)
{
    if (!kv->layout.can_shift) {
        return false;
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        if (is_windowed(kv, &kv->groups[gi])) {
            return false;
        }
    }
    return true;
}

/* Invariants ------------------------------------------------------------------------------------
 */

static qn_status check_group(const qn_kv *kv, const group *g, int32_t *refs, qn_error *err)
{
    for (int32_t s = 0; s < kv->n_seq; s++) {
        const table *t = &g->tables[s];
        for (int32_t i = 0; i < t->count; i++) {
            const entry *e = qn__kv_entry(t, i);
            if ((e->mask == 0) != (e->block == NONE) || e->block >= g->n_blocks) {
                return qn__error(err, QN_ERR_COMPUTE, "an entry without block or mask");
            }
            if ((i == 0 || i == t->count - 1) && e->mask == 0) {
                return qn__error(err, QN_ERR_COMPUTE, "an empty entry at the end of a table");
            }
            if (e->block != NONE) {
                refs[e->block]++;
            }
        }
    }
    int32_t n_free = 0;
    for (int32_t b = g->free_head; b != NONE; b = g->blocks[b].next) {
        n_free++;
        if (g->blocks[b].refs != 0 || n_free > g->n_blocks) {
            return qn__error(err, QN_ERR_COMPUTE, "the list of unused blocks is damaged");
        }
    }
    int32_t unused = 0;
    for (int32_t b = 0; b < g->n_blocks; b++) {
        if (refs[b] != g->blocks[b].refs) {
            return qn__error(err, QN_ERR_COMPUTE, "block %d: %d references counted as %d", b,
                             refs[b], g->blocks[b].refs);
        }
        unused += refs[b] == 0;
        int32_t c = g->blocks[b].content;
        if (c != NONE && kv->contents[c].block[g - kv->groups] != b) {
            return qn__error(err, QN_ERR_COMPUTE, "block %d: its content is elsewhere", b);
        }
    }
    if (unused != n_free || n_free != g->n_free) {
        return qn__error(err, QN_ERR_COMPUTE, "%d blocks unused, %d in the list, counted %d",
                         unused, n_free, g->n_free);
    }
    return QN_OK;
}

bool qn__kv_check(const qn_kv *kv, qn_error *err)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        const group *g = &kv->groups[gi];
        int32_t *refs = qn__calloc((size_t)g->n_blocks, sizeof *refs);
        qn_status status = refs ? check_group(kv, g, refs, err) : qn__error_memory(err, "a check");
        free(refs);
        if (status != QN_OK) {
            return false;
        }
    }
    for (int32_t s = 0; s < kv->n_seq; s++) {
        const sequence *q = &kv->sequences[s];
        if (q->n_chain > q->n_tokens / SIDE || q->n_tokens > qn__kv_seq_pos_max(kv, s) + 1) {
            qn__error(err, QN_ERR_COMPUTE, "sequence %d knows more tokens than it has", s);
            return false;
        }
    }
    return true;
}
