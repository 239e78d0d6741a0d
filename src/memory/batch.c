/*
 * batch.c: placing batches; see memory.h.
 *
 * A batch is first tried whole on the real bookkeeping, of which a copy is put back afterwards;
 * that is left out where there is more room than it can possibly need. Then each micro-batch is
 * placed when its turn comes, so that copies of shared blocks see what was computed before.
 */
#include "base/error.h"
#include "memory/internal.h"

/* Checks ----------------------------------------------------------------------------------------
 */

static qn_status check_ids(const qn_kv *kv, const qn_kv_token *t, int32_t i, qn_error *err)
{
    if (t->n_seq < 1 || t->n_seq > kv->n_seq || !t->seq) {
        return qn__error(err, QN_ERR_ARGUMENT, "token %d of the batch: %d sequences", i, t->n_seq);
    }
    if (t->pos < 0 || t->pos >= QN_KV_MAX_POS) {
        return qn__error(err, QN_ERR_ARGUMENT, "token %d of the batch: position %d", i, t->pos);
    }
    for (int32_t a = 0; a < t->n_seq; a++) {
        if (!qn__kv_id_ok(kv, t->seq[a])) {
            return qn__error(err, QN_ERR_ARGUMENT, "token %d of the batch: sequence %d of %d", i,
                             t->seq[a], kv->n_seq);
        }
        for (int32_t b = 0; b < a; b++) {
            if (t->seq[a] == t->seq[b]) {
                return qn__error(err, QN_ERR_ARGUMENT,
                                 "token %d of the batch: sequence %d given twice", i, t->seq[a]);
            }
        }
    }
    return QN_OK;
}

/* Sequences that share a token hold the same positions and the same last block. */
static bool may_couple(const qn_kv *kv, int32_t a, int32_t b)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        const table *x = &kv->groups[gi].tables[a], *y = &kv->groups[gi].tables[b];
        if (qn__kv_table_min(x) != qn__kv_table_min(y) ||
            qn__kv_table_max(x) != qn__kv_table_max(y)) {
            return false;
        }
        if (x->count > 0) {
            const entry *p = qn__kv_entry(x, x->count - 1), *q = qn__kv_entry(y, y->count - 1);
            if (p->block != q->block || p->mask != q->mask) {
                return false;
            }
        }
    }
    return true;
}

static bool is_subset(const qn_kv_token *a, const qn_kv_token *b)
{
    for (int32_t i = 0; i < a->n_seq; i++) {
        bool found = false;
        for (int32_t j = 0; j < b->n_seq; j++) {
            found = found || a->seq[i] == b->seq[j];
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* One id of token i: goes on where the sequence ends, with a set of ids that only shrinks.
 * seq_mark: the next position; seq_last: the last token of the batch, NONE before. */
static qn_status check_sequence(qn_kv *kv, const qn_kv_token *tokens, int32_t i, int32_t s,
                                qn_error *err)
{
    const qn_kv_token *t = &tokens[i];
    int32_t last = kv->seq_last[s], max = qn__kv_seq_pos_max(kv, s);
    int32_t next = last != NONE ? kv->seq_mark[s] : max >= 0 ? max + 1 : t->pos;
    if (t->pos != next) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "token %d of the batch: sequence %d goes on at position %d, not at %d", i,
                         s, next, t->pos);
    }
    if (last != NONE ? !is_subset(t, &tokens[last]) : !may_couple(kv, s, t->seq[0])) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "token %d of the batch: sequences %d and %d have diverged and cannot "
                         "share a token",
                         i, s, t->seq[0]);
    }
    return QN_OK;
}

static void clear_marks(qn_kv *kv)
{
    for (int32_t s = 0; s < kv->n_seq; s++) {
        kv->seq_last[s] = NONE;
    }
}

/* Checks all tokens. *easy: there is more room than they can possibly need. */
static qn_status check_batch(qn_kv *kv, const qn_kv_token *tokens, int32_t n, bool *easy,
                             qn_error *err)
{
    clear_marks(kv);
    int64_t need = 0;
    *easy = true;
    for (int32_t i = 0; i < n; i++) {
        const qn_kv_token *t = &tokens[i];
        qn_status status = check_ids(kv, t, i, err);
        for (int32_t a = 0; status == QN_OK && a < t->n_seq; a++) {
            status = check_sequence(kv, tokens, i, t->seq[a], err);
        }
        if (status != QN_OK) {
            return status;
        }
        int32_t last = kv->seq_last[t->seq[0]];
        need += t->pos % SIDE == 0 || last == NONE || tokens[last].n_seq != t->n_seq;
        for (int32_t a = 0; a < t->n_seq; a++) {
            int32_t s = t->seq[a];
            for (int32_t gi = 0; gi < kv->n_groups; gi++) {
                const table *x = &kv->groups[gi].tables[s];
                int32_t first = x->count > 0 ? x->first : last == NONE ? t->pos / SIDE : 0;
                *easy = *easy && t->pos / SIDE - first < kv->groups[gi].capacity;
            }
            kv->seq_mark[s] = t->pos + 1;
            kv->seq_last[s] = i;
        }
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        *easy = *easy && need <= qn__kv_blocks_free(&kv->groups[gi]);
    }
    return QN_OK;
}

/* Placing ---------------------------------------------------------------------------------------
 */

/* A token's place in one group: false where there is no room. */
static bool place_token(qn_kv *kv, int32_t gi, const qn_kv_token *t, bool dry)
{
    group *g = &kv->groups[gi];
    int32_t index = t->pos / SIDE;
    for (int32_t a = 0; a < t->n_seq; a++) {
        if (!qn__kv_table_extend(g, &g->tables[t->seq[a]], index)) {
            return false;
        }
    }
    const entry *old = qn__kv_table_find(&g->tables[t->seq[0]], index);
    int32_t from = old->block, to = from;
    if (from == NONE || g->blocks[from].refs != t->n_seq) {
        if (qn__kv_blocks_free(g) == 0) {
            return false;
        }
        to = qn__kv_block_take(kv, gi, t->n_seq, dry);
        if (from != NONE) {
            if (!dry) {
                qn__kv_block_copy(kv, gi, to, from);
            }
            qn__kv_block_release(kv, gi, from, t->n_seq);
        }
    } else if (!dry) {
        qn__kv_block_forget(kv, gi, to);
    }
    for (int32_t a = 0; a < t->n_seq; a++) {
        entry *e = qn__kv_table_find(&g->tables[t->seq[a]], index);
        e->block = to;
        e->mask |= UINT32_C(1) << (t->pos % SIDE);
    }
    return true;
}

/* Length of the micro-batch that begins at `first`: a token with other ids than an earlier one of
 * the same sequence waits, since it may need a copy of what that one stores. */
static int32_t cut(qn_kv *kv, int32_t first)
{
    const batch *b = &kv->batch;
    int32_t most = b->n - first < b->n_ubatch ? b->n - first : b->n_ubatch;
    clear_marks(kv);
    for (int32_t i = 0; i < most; i++) {
        const qn_kv_token *t = &b->tokens[first + i];
        for (int32_t a = 0; a < t->n_seq; a++) {
            int32_t last = kv->seq_last[t->seq[a]];
            if (last != NONE && b->tokens[last].n_seq != t->n_seq) {
                return i;
            }
            kv->seq_last[t->seq[a]] = first + i;
        }
    }
    return most;
}

static bool place(qn_kv *kv, int32_t first, int32_t count, bool dry)
{
    for (int32_t i = first; i < first + count; i++) {
        for (int32_t gi = 0; gi < kv->n_groups; gi++) {
            if (!place_token(kv, gi, &kv->batch.tokens[i], dry)) {
                return false;
            }
        }
    }
    return true;
}

/* Gives back the blocks of a sequence that lie wholly behind the window of its next token and the
 * slack. The last one stays. */
static void drop_behind_window(qn_kv *kv, int32_t gi, int32_t s)
{
    group *g = &kv->groups[gi];
    table *t = &g->tables[s];
    int64_t keep =
        (int64_t)qn__kv_window_start(kv, g, qn__kv_table_max(t) + 1) - kv->config.window_slack;
    while (t->count > 1 && (int64_t)(t->first + 1) * SIDE <= keep) {
        entry *e = qn__kv_entry(t, 0);
        if (e->mask) {
            qn__kv_block_release(kv, gi, e->block, 1);
            *e = (entry){NONE, 0};
        }
        int32_t end = (t->first + 1) * SIDE;
        t->dropped = end > t->dropped ? end : t->dropped;
        t->head++;
        t->first++;
        t->count--;
    }
    qn__kv_table_trim(t);
}

static void drop_windows(qn_kv *kv, int32_t first, int32_t count)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        if (kv->groups[gi].window == QN_WINDOW_NONE || kv->config.full_windows) {
            continue;
        }
        for (int32_t i = first; i < first + count; i++) {
            const qn_kv_token *t = &kv->batch.tokens[i];
            for (int32_t a = 0; a < t->n_seq; a++) {
                drop_behind_window(kv, gi, t->seq[a]);
            }
        }
    }
}

/* Trying ----------------------------------------------------------------------------------------
 */

static void copy_table(table *to, const table *from)
{
    entry *entries = to->entries;
    *to = *from;
    to->entries = entries;
    memcpy(qn__kv_entry(to, 0), from->entries + from->head, (size_t)from->count * sizeof *entries);
}

/* Saves or restores what placing the batch changes: the pools and the tables. */
static void exchange(qn_kv *kv, bool save)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        group *g = &kv->groups[gi];
        block *to = save ? g->saved_blocks : g->blocks;
        memcpy(to, save ? g->blocks : g->saved_blocks, (size_t)g->n_blocks * sizeof *to);
        if (save) {
            g->saved_head = g->free_head;
            g->saved_tail = g->free_tail;
            g->saved_n_free = g->n_free;
        } else {
            g->free_head = g->saved_head;
            g->free_tail = g->saved_tail;
            g->n_free = g->saved_n_free;
        }
        for (int32_t i = 0; i < kv->n_seq; i++) {
            copy_table(save ? &g->saved_tables[i] : &g->tables[i],
                       save ? &g->tables[i] : &g->saved_tables[i]);
        }
    }
}

static bool fits(qn_kv *kv)
{
    bool ok = true;
    exchange(kv, true);
    for (int32_t first = 0; ok && first < kv->batch.n;) {
        int32_t count = cut(kv, first);
        ok = place(kv, first, count, true);
        if (ok) {
            drop_windows(kv, first, count);
        }
        first += count;
    }
    exchange(kv, false);
    return ok;
}

qn_status qn__kv_batch_begin(qn_kv *kv, const qn_kv_token *tokens, int32_t n, int32_t n_ubatch,
                             qn_error *err)
{
    if (kv->batch.open || !tokens || n < 1 || n_ubatch < 1 || n_ubatch > kv->config.n_ubatch) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "a batch of %d tokens in micro-batches of %d cannot begin", n, n_ubatch);
    }
    bool easy;
    qn_status status = check_batch(kv, tokens, n, &easy, err);
    if (status != QN_OK) {
        return status;
    }
    qn__kv_apply_moves(kv);
    kv->batch = (batch){.tokens = tokens, .n = n, .n_ubatch = n_ubatch, .open = true};
    if (!easy && !fits(kv)) {
        kv->batch = (batch){0};
        return qn__error(err, QN_ERR_FULL, "no room in the KV cache for a batch of %d tokens", n);
    }
    return QN_OK;
}

/* Micro-batches ---------------------------------------------------------------------------------
 */

/* Adds up the table lengths of the sequences that tokens of the micro-batch attend as; `offsets`:
 * where each begins. */
static int32_t table_length(const qn_kv *kv, int32_t gi, int32_t *offsets)
{
    const batch *b = &kv->batch;
    int32_t n = 0;
    for (int32_t s = 0; s < kv->n_seq; s++) {
        offsets[s] = NONE;
    }
    for (int32_t i = b->first; i < b->first + b->count; i++) {
        int32_t s = b->tokens[i].seq[0];
        if (offsets[s] == NONE) {
            offsets[s] = n;
            n += kv->groups[gi].tables[s].count;
        }
    }
    return n;
}

bool qn__kv_ubatch_next(qn_kv *kv, qn_kv_ubatch *ub)
{
    batch *b = &kv->batch;
    if (!b->open || b->placed) {
        return false;
    }
    if (b->first == b->n) {
        *b = (batch){0};
        return false;
    }
    b->count = cut(kv, b->first);
    place(kv, b->first, b->count, false);
    b->placed = true;
    *ub = (qn_kv_ubatch){.first = b->first, .n_tokens = b->count};
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        ub->n_table[gi] = table_length(kv, gi, kv->seq_last);
    }
    return true;
}

void qn__kv_ubatch_fill(const qn_kv *kv, int32_t gi, int32_t n_rows, int32_t *slots,
                        int32_t capacity, int32_t *tables, int32_t *masks, int32_t *rows)
{
    const batch *b = &kv->batch;
    const group *g = &kv->groups[gi];
    int32_t *offsets = kv->seq_last;
    int32_t used = table_length(kv, gi, offsets);
    for (int32_t s = 0; s < kv->n_seq; s++) {
        const table *t = &g->tables[s];
        for (int32_t i = 0; offsets[s] != NONE && i < t->count; i++) {
            const entry *e = qn__kv_entry(t, i);
            tables[offsets[s] + i] = e->mask ? e->block : 0;
            masks[offsets[s] + i] = (int32_t)e->mask;
        }
    }
    for (int32_t i = used; i < capacity; i++) {
        tables[i] = masks[i] = 0;
    }
    for (int32_t i = 0; i < b->count; i++) {
        const qn_kv_token *tk = &b->tokens[b->first + i];
        const table *t = &g->tables[tk->seq[0]];
        const entry *e = qn__kv_table_find(t, tk->pos / SIDE);
        slots[i] = e->block * SIDE + tk->pos % SIDE;
        int32_t *row = rows + 4 * (size_t)i;
        row[0] = offsets[tk->seq[0]];
        row[1] = t->count;
        row[2] = t->first;
        row[3] = tk->pos;
    }
    for (int32_t i = b->count; i < n_rows; i++) {
        slots[i] = -1;
        memset(rows + 4 * (size_t)i, 0, 4 * sizeof *rows);
    }
}

/* Whether two sequences are known to hold the same tokens. */
static bool same_tokens(const sequence *a, const sequence *b)
{
    int32_t n = a->n_chain, tail = n * SIDE;
    return a->n_tokens == b->n_tokens && n == b->n_chain &&
           (n == 0 || a->chain[n - 1] == b->chain[n - 1]) &&
           memcmp(a->tokens + tail, b->tokens + tail,
                  (size_t)(a->n_tokens - tail) * sizeof *a->tokens) == 0;
}

/* Takes note of a computed token of sequence s; a block that it completes becomes findable. */
static void note_token(qn_kv *kv, int32_t s, int32_t pos, int32_t token)
{
    sequence *q = &kv->sequences[s];
    q->tokens[pos] = token;
    q->n_tokens = pos + 1;
    int32_t index = pos / SIDE;
    if (q->n_tokens % SIDE != 0 || q->n_chain != index) {
        return;
    }
    int32_t blocks[QN_MAX_KV_GROUPS];
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        const group *g = &kv->groups[gi];
        const entry *e = qn__kv_table_find(&g->tables[s], index);
        bool whole = e && e->mask == UINT32_MAX && g->blocks[e->block].content == NONE;
        blocks[gi] = whole ? e->block : NONE;
    }
    uint64_t parent = index > 0 ? q->chain[index - 1] : qn__kv_chain_root(kv);
    q->chain[index] = qn__kv_content_add(kv, parent, q->tokens + (size_t)index * SIDE, blocks);
    q->n_chain = index + 1;
}

static void note_tokens(qn_kv *kv)
{
    const batch *b = &kv->batch;
    for (int32_t i = b->first; i < b->first + b->count; i++) {
        const qn_kv_token *t = &b->tokens[i];
        const sequence *q = &kv->sequences[t->seq[0]];
        if (t->token < 0 || t->pos != q->n_tokens || t->pos >= kv->token_capacity) {
            continue;
        }
        /* The first one last: the others must know what it knew. */
        for (int32_t a = t->n_seq - 1; a >= 0; a--) {
            if (a == 0 || same_tokens(&kv->sequences[t->seq[a]], q)) {
                note_token(kv, t->seq[a], t->pos, t->token);
            }
        }
    }
}

void qn__kv_ubatch_done(qn_kv *kv)
{
    batch *b = &kv->batch;
    if (!b->placed) {
        return;
    }
    note_tokens(kv);
    drop_windows(kv, b->first, b->count);
    b->first += b->count;
    b->placed = false;
}

void qn__kv_batch_abort(qn_kv *kv)
{
    batch *b = &kv->batch;
    for (int32_t i = b->first; b->placed && i < b->first + b->count; i++) {
        const qn_kv_token *t = &b->tokens[i];
        for (int32_t a = 0; a < t->n_seq; a++) {
            for (int32_t gi = 0; gi < kv->n_groups; gi++) {
                qn__kv_table_remove(kv, gi, &kv->groups[gi].tables[t->seq[a]], t->pos, INT32_MAX);
            }
            qn__kv_sequence_reset_if_empty(kv, t->seq[a]);
        }
    }
    *b = (batch){0};
}
