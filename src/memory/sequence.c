/* sequence.c: removing, copying and keeping sequences; known prefixes; see memory.h. */
#include "base/error.h"
#include "memory/internal.h"

bool qn__kv_id_ok(const qn_kv *kv, int32_t s)
{
    return s >= 0 && s < kv->n_seq;
}

void qn__kv_tokens_cut(sequence *s, int32_t p)
{
    s->n_tokens = p < s->n_tokens ? p : s->n_tokens;
    s->n_chain = s->n_chain * SIDE > s->n_tokens ? s->n_tokens / SIDE : s->n_chain;
}

int32_t qn__kv_seq_pos_min(const qn_kv *kv, int32_t s)
{
    int32_t largest = -1;
    for (int32_t gi = 0; qn__kv_id_ok(kv, s) && gi < kv->n_groups; gi++) {
        int32_t p = qn__kv_table_min(&kv->groups[gi].tables[s]);
        largest = p > largest ? p : largest;
    }
    return largest;
}

int32_t qn__kv_seq_pos_max(const qn_kv *kv, int32_t s)
{
    int32_t largest = -1;
    for (int32_t gi = 0; qn__kv_id_ok(kv, s) && gi < kv->n_groups; gi++) {
        int32_t p = qn__kv_table_max(&kv->groups[gi].tables[s]);
        largest = p > largest ? p : largest;
    }
    return largest;
}

void qn__kv_sequence_reset_if_empty(qn_kv *kv, int32_t s)
{
    if (qn__kv_seq_pos_max(kv, s) >= 0) {
        return;
    }
    kv->sequences[s].n_tokens = kv->sequences[s].n_chain = 0;
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        kv->groups[gi].tables[s].dropped = 0;
    }
}

/* Whether the windows are complete for a token at p. */
static bool windows_complete(const qn_kv *kv, int32_t s, int32_t p)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        const group *g = &kv->groups[gi];
        if (g->tables[s].dropped > qn__kv_window_start(kv, g, p)) {
            return false;
        }
    }
    return true;
}

/* The highest position below p that a group holds, -1: none. */
static int32_t highest_below(const qn_kv *kv, int32_t s, int32_t p)
{
    int32_t highest = -1;
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        int32_t at = qn__kv_table_below(&kv->groups[gi].tables[s], p);
        highest = at > highest ? at : highest;
    }
    return highest;
}

bool qn__kv_can_resume(const qn_kv *kv, int32_t s, int32_t p)
{
    if (!qn__kv_id_ok(kv, s) || p < 0) {
        return false;
    }
    int32_t last = highest_below(kv, s, p);
    return last < 0 || windows_complete(kv, s, p);
}

/* Removing --------------------------------------------------------------------------------------
 */

typedef struct range {
    int64_t p0, p1;
} range;

static range range_of(int32_t p0, int32_t p1)
{
    return (range){p0 < 0 ? 0 : p0, p1 < 0 ? INT32_MAX : p1};
}

static bool may_remove(const qn_kv *kv, int32_t s, range r)
{
    int32_t max = qn__kv_seq_pos_max(kv, s);
    if (r.p0 > max || r.p1 <= max || r.p0 >= r.p1) {
        return true; /* no tail */
    }
    int32_t last = highest_below(kv, s, (int32_t)r.p0);
    return last < 0 || windows_complete(kv, s, last + 1);
}

static void remove_range(qn_kv *kv, int32_t s, range r)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        qn__kv_table_remove(kv, gi, &kv->groups[gi].tables[s], r.p0, r.p1);
    }
    if (r.p0 < r.p1) {
        qn__kv_tokens_cut(&kv->sequences[s], (int32_t)r.p0);
    }
    qn__kv_sequence_reset_if_empty(kv, s);
}

bool qn__kv_seq_rm(qn_kv *kv, int32_t s, int32_t p0, int32_t p1)
{
    if (s >= kv->n_seq || kv->batch.open) {
        return false;
    }
    range r = range_of(p0, p1);
    int32_t from = s < 0 ? 0 : s, to = s < 0 ? kv->n_seq : s + 1;
    for (int32_t i = from; i < to; i++) {
        if (!may_remove(kv, i, r)) {
            return false;
        }
    }
    for (int32_t i = from; i < to; i++) {
        remove_range(kv, i, r);
    }
    return true;
}

void qn__kv_seq_keep(qn_kv *kv, int32_t s)
{
    if (!qn__kv_id_ok(kv, s) || kv->batch.open) {
        return;
    }
    for (int32_t i = 0; i < kv->n_seq; i++) {
        if (i != s) {
            remove_range(kv, i, (range){0, INT32_MAX});
        }
    }
}

void qn__kv_clear(qn_kv *kv, bool data)
{
    if (kv->batch.open) {
        return;
    }
    for (int32_t i = 0; i < kv->n_seq; i++) {
        remove_range(kv, i, (range){0, INT32_MAX});
    }
    qn__kv_contents_clear(kv);
    for (int32_t i = 0; data && i < kv->layout.n_layers; i++) {
        memset(kv->stores[i].k, 0, kv->stores[i].k_bytes);
        if (kv->stores[i].v) {
            memset(kv->stores[i].v, 0, kv->stores[i].v_bytes);
        }
    }
}

/* Copying ---------------------------------------------------------------------------------------
 */

/* Checks that `to` can take the range of `from` in one group; counts the blocks that it needs. */
static qn_status check_copy(const qn_kv *kv, const group *g, int32_t from, int32_t to, range r,
                            qn_error *err)
{
    const table *a = &g->tables[from], *b = &g->tables[to];
    int32_t need = 0, first = INT32_MAX, last = -1;
    for (int32_t i = 0; i < a->count; i++) {
        int32_t index = a->first + i;
        uint32_t mask = qn__kv_entry(a, i)->mask & qn__kv_range_mask(index, r.p0, r.p1);
        if (!mask) {
            continue;
        }
        first = index < first ? index : first;
        last = index;
        const entry *own = qn__kv_table_find(b, index);
        if (own && own->mask & mask) {
            return qn__error(err, QN_ERR_ARGUMENT,
                             "sequence %d already holds positions that sequence %d would give it",
                             to, from);
        }
        need += own && own->mask && g->blocks[own->block].refs > 1;
    }
    if (last >= 0 && b->count > 0) {
        first = first < b->first ? first : b->first;
        last = last > b->first + b->count - 1 ? last : b->first + b->count - 1;
    }
    if (need > qn__kv_blocks_free(g) || (last >= 0 && last - first + 1 > g->capacity)) {
        return qn__error(err, QN_ERR_FULL, "no room in the KV cache to copy sequence %d", from);
    }
    (void)kv;
    return QN_OK;
}

/* Room for entries before the first one. */
static void extend_front(table *t, int32_t index)
{
    if (t->count == 0 || index >= t->first) {
        return;
    }
    int32_t more = t->first - index;
    memmove(t->entries + more, qn__kv_entry(t, 0), (size_t)t->count * sizeof *t->entries);
    for (int32_t i = 0; i < more; i++) {
        t->entries[i] = (entry){NONE, 0};
    }
    t->head = 0;
    t->first = index;
    t->count += more;
}

/* Adds the places `mask` of block `from` to the entry. */
static void join_entry(qn_kv *kv, int32_t gi, entry *e, int32_t from, uint32_t mask)
{
    group *g = &kv->groups[gi];
    if (e->mask == 0) {
        *e = (entry){from, mask};
        qn__kv_block_share(kv, gi, from);
        return;
    }
    if (e->block != from) {
        if (g->blocks[e->block].refs > 1) {
            int32_t own = qn__kv_block_take(kv, gi, 1, false);
            qn__kv_block_copy(kv, gi, own, e->block);
            qn__kv_block_release(kv, gi, e->block, 1);
            e->block = own;
        }
        qn__kv_block_forget(kv, gi, e->block);
        for (int place = 0; place < SIDE; place++) {
            if (mask >> place & 1U) {
                qn__kv_place_copy(kv, gi, e->block, place, from, place);
            }
        }
    }
    e->mask |= mask;
}

static void copy_group(qn_kv *kv, int32_t gi, int32_t from, int32_t to, range r)
{
    group *g = &kv->groups[gi];
    table *a = &g->tables[from], *b = &g->tables[to];
    for (int32_t i = 0; i < a->count; i++) {
        int32_t index = a->first + i;
        const entry *e = qn__kv_entry(a, i);
        uint32_t mask = e->mask & qn__kv_range_mask(index, r.p0, r.p1);
        if (mask) {
            extend_front(b, index);
            qn__kv_table_extend(g, b,
                                qn__kv_table_find(b, index) ? b->first + b->count - 1 : index);
            join_entry(kv, gi, qn__kv_table_find(b, index), e->block, mask);
        }
    }
    if (a->dropped > r.p0) {
        int32_t dropped = (int32_t)qn__min_i64(a->dropped, r.p1);
        b->dropped = dropped > b->dropped ? dropped : b->dropped;
    }
}

/* Whether the windows of `to` would be complete at its new end. */
static bool end_complete(const qn_kv *kv, int32_t from, int32_t to, range r)
{
    int32_t last = r.p1 > INT32_MAX - 1 ? qn__kv_seq_pos_max(kv, from)
                                        : highest_below(kv, from, (int32_t)r.p1);
    if (last < r.p0) {
        return true; /* nothing to copy */
    }
    int32_t own = qn__kv_seq_pos_max(kv, to);
    int32_t next = (last > own ? last : own) + 1;
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        const group *g = &kv->groups[gi];
        int64_t dropped =
            g->tables[from].dropped > r.p0 ? qn__min_i64(g->tables[from].dropped, r.p1) : 0;
        if (dropped > qn__kv_window_start(kv, g, next)) {
            return false;
        }
    }
    return true;
}

qn_status qn__kv_seq_cp(qn_kv *kv, int32_t from, int32_t to, int32_t p0, int32_t p1, qn_error *err)
{
    if (!qn__kv_id_ok(kv, from) || !qn__kv_id_ok(kv, to) || kv->batch.open) {
        return qn__error(err, QN_ERR_ARGUMENT, "no sequences %d and %d to copy between", from, to);
    }
    range r = range_of(p0, p1);
    if (from == to || r.p0 >= r.p1) {
        return QN_OK;
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        qn_status status = check_copy(kv, &kv->groups[gi], from, to, r, err);
        if (status != QN_OK) {
            return status;
        }
    }
    if (!end_complete(kv, from, to, r)) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "sequence %d no longer holds the window that a copy of it needs", from);
    }
    sequence *a = &kv->sequences[from], *b = &kv->sequences[to];
    if (r.p0 == 0 && qn__kv_seq_pos_max(kv, to) < 0) {
        b->n_tokens = a->n_tokens;
        b->n_chain = a->n_chain;
        memcpy(b->tokens, a->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
        memcpy(b->chain, a->chain, (size_t)a->n_chain * sizeof *a->chain);
        qn__kv_tokens_cut(b, (int32_t)r.p1);
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        copy_group(kv, gi, from, to, r);
    }
    qn__kv_sequence_reset_if_empty(kv, to);
    return QN_OK;
}

/* Prefixes --------------------------------------------------------------------------------------
 */

void qn__kv_set_salt(qn_kv *kv, uint64_t salt)
{
    if (salt == kv->salt) {
        return;
    }
    kv->salt = salt;
    for (int32_t s = 0; s < kv->n_seq; s++) { /* what follows old values is not the new kind */
        qn__kv_tokens_cut(&kv->sequences[s], 0);
    }
}

/* First block index that a group needs for a sequence that goes on behind `n` blocks. */
static int32_t first_needed(const qn_kv *kv, const group *g, int32_t n)
{
    return qn__kv_window_start(kv, g, n * SIDE) / SIDE;
}

/* Blocks of the prefix that every group can serve. */
static int32_t known_blocks(const qn_kv *kv, const int32_t *tokens, int32_t n)
{
    int32_t have[QN_MAX_KV_GROUPS] = {0}; /* blocks in a row up to the one looked at */
    int32_t best = 0, limit = (int32_t)qn__min_i64(n, kv->token_capacity) / SIDE;
    uint64_t parent = qn__kv_chain_root(kv);
    for (int32_t i = 0; i < limit; i++) {
        const content *c = qn__kv_content_find(kv, parent, tokens + (size_t)i * SIDE);
        if (!c) {
            break;
        }
        bool all = true;
        for (int32_t gi = 0; gi < kv->n_groups; gi++) {
            have[gi] = c->block[gi] == NONE ? 0 : have[gi] + 1;
            all = all && i + 1 - have[gi] <= first_needed(kv, &kv->groups[gi], i + 1);
        }
        best = all ? i + 1 : best;
        parent = c->id;
    }
    return best;
}

int32_t qn__kv_find_prefix(const qn_kv *kv, const int32_t *tokens, int32_t n)
{
    return known_blocks(kv, tokens, n) * SIDE;
}

int32_t qn__kv_adopt_prefix(qn_kv *kv, int32_t s, const int32_t *tokens, int32_t n)
{
    if (!qn__kv_id_ok(kv, s) || kv->batch.open || qn__kv_seq_pos_max(kv, s) >= 0) {
        return 0;
    }
    int32_t blocks = known_blocks(kv, tokens, n);
    sequence *q = &kv->sequences[s];
    uint64_t parent = qn__kv_chain_root(kv);
    for (int32_t i = 0; i < blocks; i++) {
        const content *c = qn__kv_content_find(kv, parent, tokens + (size_t)i * SIDE);
        for (int32_t gi = 0; gi < kv->n_groups; gi++) {
            group *g = &kv->groups[gi];
            table *t = &g->tables[s];
            if (i < first_needed(kv, g, blocks)) {
                t->dropped = (i + 1) * SIDE;
                continue;
            }
            qn__kv_table_extend(g, t, i);
            *qn__kv_table_find(t, i) = (entry){c->block[gi], UINT32_MAX};
            qn__kv_block_share(kv, gi, c->block[gi]);
        }
        q->chain[i] = parent = c->id;
    }
    q->n_chain = blocks;
    q->n_tokens = blocks * SIDE;
    memcpy(q->tokens, tokens, (size_t)q->n_tokens * sizeof *tokens);
    return q->n_tokens;
}
