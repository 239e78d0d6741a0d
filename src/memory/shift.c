/*
 * shift.c: moving positions.
 *
 * Cells are moved at once, bit for bit, to the places that their new positions ask for; by how much
 * K is to be rotated is added up for each place and done once, before the cells are next used
 * (qn__kv_apply_moves). A moved block is written anew, so that sequences which share the old one
 * keep it; old blocks are given back as soon as all their cells have been taken, so that a full
 * pool suffices (with the spare blocks) where nothing is shared.
 */
#include "base/error.h"
#include "device/kv_layout.h"
#include "device/rope.h"
#include "memory/internal.h"

/* One move in one group. */
typedef struct move {
    qn_kv *kv;
    int32_t gi, s;
    int64_t p0, p1, delta;
    bool dry;              /* only counts */
    table old;             /* copy of the table; its entries are consumed */
    table fresh;           /* what comes out */
    int32_t balance, peak; /* blocks taken less blocks given back, and the most of it */
} move;

static entry *old_entry(move *m, int64_t index)
{
    return index < 0 || index > INT32_MAX ? NULL : qn__kv_table_find(&m->old, (int32_t)index);
}

/* The cells `mask` of an old entry are taken; gives its block back with the last ones. */
static void consume(move *m, entry *e, uint32_t mask)
{
    if (!e || !(e->mask & mask)) {
        return;
    }
    e->mask &= ~mask;
    if (e->mask == 0) {
        m->balance -= m->kv->groups[m->gi].blocks[e->block].refs == 1;
        if (!m->dry) {
            qn__kv_block_release(m->kv, m->gi, e->block, 1);
        }
        e->block = NONE;
    }
}

/* Bits of the old entry of `index` that move. */
static uint32_t moving(move *m, int64_t index)
{
    const entry *e = old_entry(m, index);
    return e ? e->mask & qn__kv_range_mask((int32_t)index, m->p0, m->p1) : 0;
}

/* Copies cells into a new block; `moved` says whether they are to be rotated. */
static void copy_cells(move *m, int32_t to, const entry *from, uint32_t mask, int shift, bool moved)
{
    group *g = &m->kv->groups[m->gi];
    for (int place = 0; place < SIDE; place++) {
        if (!(mask >> place & 1U)) {
            continue;
        }
        qn__kv_place_copy(m->kv, m->gi, to, place + shift, from->block, place);
        if (moved) {
            g->moved[(size_t)to * SIDE + (size_t)(place + shift)] += (int32_t)m->delta;
            g->any_moved = true;
        }
    }
}

/* A block that moves whole, by a multiple of 32, and is nobody else's: it only changes its index.
 */
static bool relink(move *m, entry *to, entry *from, uint32_t mask)
{
    group *g = &m->kv->groups[m->gi];
    if (m->delta % SIDE != 0 || from->mask != mask || g->blocks[from->block].refs != 1) {
        return false;
    }
    *to = *from;
    if (!m->dry) {
        qn__kv_block_forget(m->kv, m->gi, to->block);
        for (int place = 0; place < SIDE; place++) {
            bool held = mask >> place & 1U;
            g->moved[(size_t)to->block * SIDE + (size_t)place] += held ? (int32_t)m->delta : 0;
        }
        g->any_moved = true;
    }
    *from = (entry){NONE, 0};
    return true;
}

/* Makes the new entry of a block index. */
static void make_entry(move *m, int32_t index)
{
    entry *to = qn__kv_table_find(&m->fresh, index), *own = old_entry(m, index);
    int64_t source = (int64_t)index * SIDE - m->delta;
    int64_t first = source >= 0 ? source / SIDE : -((-source + SIDE - 1) / SIDE);
    int offset = (int)(source - first * SIDE);
    uint32_t low = moving(m, first) & (UINT32_MAX << offset);
    uint32_t high = offset ? moving(m, first + 1) & ~(UINT32_MAX << offset) : 0;
    uint32_t stay = own ? own->mask & ~qn__kv_range_mask(index, m->p0, m->p1) : 0;
    *to = (entry){NONE, 0};
    if (!low && !high) {
        if (stay) { /* its other cells have been taken or will be: they lie in a later entry */
            *to = (entry){own->block, stay};
            own->mask &= ~stay;
        }
        return;
    }
    if (!stay && !high && relink(m, to, old_entry(m, first), low)) {
        return;
    }
    m->balance++;
    m->peak = m->balance > m->peak ? m->balance : m->peak;
    to->mask = stay | low >> offset | (offset ? high << (SIDE - offset) : 0);
    if (!m->dry) {
        to->block = qn__kv_block_take(m->kv, m->gi, 1, false);
        if (stay) {
            copy_cells(m, to->block, own, stay, 0, false);
        }
        if (low) {
            copy_cells(m, to->block, old_entry(m, first), low, -offset, true);
        }
        if (high) {
            copy_cells(m, to->block, old_entry(m, first + 1), high, SIDE - offset, true);
        }
    }
    consume(m, own, stay);
    consume(m, old_entry(m, first), low);
    consume(m, old_entry(m, first + 1), high);
}

/* First and last position after the move; false where there is none. */
static bool new_ends(const table *t, const move *m, int64_t *min, int64_t *max)
{
    *min = INT64_MAX;
    *max = -1;
    for (int32_t i = 0; i < t->count; i++) {
        uint32_t mask = qn__kv_entry(t, i)->mask;
        int64_t base = (int64_t)(t->first + i) * SIDE;
        for (int place = 0; place < SIDE; place++) {
            int64_t p = base + place;
            if (!(mask >> place & 1U)) {
                continue;
            }
            p += p >= m->p0 && p < m->p1 ? m->delta : 0;
            if (p >= 0) {
                *min = qn__min_i64(*min, p);
                *max = qn__max_i64(*max, p);
            }
        }
    }
    return *max >= 0;
}

/* Takes the cells away that would fall below 0. */
static void drop_negative(move *m)
{
    for (int32_t i = 0; i < m->old.count; i++) {
        int32_t index = m->old.first + i;
        int64_t end = qn__min_i64(m->p1, -m->delta);
        entry *e = qn__kv_entry(&m->old, i);
        consume(m, e, qn__kv_range_mask(index, m->p0, end));
    }
}

/*
 * Moves one group. Lower block indices come first where positions fall, and last where they rise,
 * so that a cell is never in the way of another.
 */
static void move_group(move *m, int64_t min, int64_t max)
{
    group *g = &m->kv->groups[m->gi];
    table *t = &g->tables[m->s];
    m->old = *t;
    m->old.entries = g->scratch;
    m->old.head = 0;
    memcpy(g->scratch, qn__kv_entry(t, 0), (size_t)t->count * sizeof *g->scratch);
    m->fresh = (table){.entries = g->saved_tables[m->s].entries};
    m->balance = m->peak = 0;
    drop_negative(m);
    if (max >= 0) {
        m->fresh.first = (int32_t)(min / SIDE);
        m->fresh.count = (int32_t)(max / SIDE) - m->fresh.first + 1;
        for (int32_t i = 0; i < m->fresh.count; i++) {
            make_entry(m, m->fresh.first + (m->delta < 0 ? i : m->fresh.count - 1 - i));
        }
    }
    if (!m->dry) {
        t->head = 0;
        t->first = m->fresh.first;
        t->count = m->fresh.count;
        memcpy(t->entries, m->fresh.entries, (size_t)t->count * sizeof *t->entries);
    }
}

/* Whether a moved position would fall on one that stays. */
static bool collides(const table *t, const move *m)
{
    for (int32_t i = 0; i < t->count; i++) {
        int64_t index = t->first + i, base = index * SIDE;
        uint32_t mask = qn__kv_entry(t, i)->mask & qn__kv_range_mask((int32_t)index, m->p0, m->p1);
        for (int place = 0; place < SIDE; place++) {
            int64_t p = base + place + m->delta;
            if (!(mask >> place & 1U) || p < 0 || p > INT32_MAX || (p >= m->p0 && p < m->p1)) {
                continue;
            }
            const entry *e = qn__kv_table_find(t, (int32_t)(p / SIDE));
            if (e && e->mask >> (p % SIDE) & 1U) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the move can be made in a group. */
static qn_status check_move(move *m, qn_error *err)
{
    group *g = &m->kv->groups[m->gi];
    const table *t = &g->tables[m->s];
    int64_t min, max;
    if (collides(t, m)) {
        return qn__error(err, QN_ERR_ARGUMENT,
                         "moving positions of sequence %d by %lld: some are taken", m->s,
                         (long long)m->delta);
    }
    if (!new_ends(t, m, &min, &max)) {
        return QN_OK;
    }
    m->dry = true;
    bool fits = max < QN_KV_MAX_POS && max / SIDE - min / SIDE < g->capacity;
    if (fits) {
        move_group(m, min, max);
        fits = m->peak <= g->n_free && (m->balance <= 0 || m->balance <= qn__kv_blocks_free(g));
    }
    return fits ? QN_OK
                : qn__error(err, QN_ERR_FULL, "no room in the KV cache to move sequence %d", m->s);
}

qn_status qn__kv_seq_add(qn_kv *kv, int32_t s, int32_t p0, int32_t p1, int32_t delta, qn_error *err)
{
    if (!qn__kv_id_ok(kv, s) || kv->batch.open) {
        return qn__error(err, QN_ERR_ARGUMENT, "no sequence %d to move", s);
    }
    if (!qn__kv_can_shift(kv)) {
        return qn__error(err, QN_ERR_UNSUPPORTED, "positions cannot be moved: %s",
                         kv->layout.why_fixed ? kv->layout.why_fixed
                                              : "windows have given keys back");
    }
    move m = {.kv = kv,
              .s = s,
              .p0 = p0 < 0 ? 0 : p0,
              .p1 = qn__min_i64(p1 < 0 ? INT32_MAX : p1, qn__kv_seq_pos_max(kv, s) + 1),
              .delta = delta};
    if (delta == 0 || m.p0 >= m.p1) {
        return QN_OK;
    }
    for (m.gi = 0; m.gi < kv->n_groups; m.gi++) {
        qn_status status = check_move(&m, err);
        if (status != QN_OK) {
            return status;
        }
    }
    m.dry = false;
    for (m.gi = 0; m.gi < kv->n_groups; m.gi++) {
        int64_t min, max;
        new_ends(&kv->groups[m.gi].tables[s], &m, &min, &max);
        move_group(&m, min, max);
    }
    qn__kv_tokens_cut(&kv->sequences[s], (int32_t)qn__max_i64(0, m.p0 + (delta < 0 ? delta : 0)));
    qn__kv_sequence_reset_if_empty(kv, s);
    return QN_OK;
}

/* Rotating --------------------------------------------------------------------------------------
 */

/* cos and sin of every pair for a rotation by `delta` positions, magnitude 1. Angles are linear in
 * the position, the part that YaRN mixes too. */
static void fill_angles(const qn_kv_rope *r, int32_t delta, float *out)
{
    qn_rope_turn turn = qn__rope_turn(&r->params);
    turn.magnitude = 1.0F;
    qn__rope_row(&r->params, &turn, r->factors, (const int32_t[4]){delta}, out);
}

static void rotate(const qn_rope_params *p, const float *angles, float *x)
{
    int32_t half = p->n_rot / 2;
    for (int32_t j = 0; j < half; j++) {
        float *a = &x[p->mode == QN_ROPE_NORM ? 2 * j : j];
        float *b = &x[p->mode == QN_ROPE_NORM ? 2 * j + 1 : j + half];
        double c = (double)angles[2 * j], s = (double)angles[2 * j + 1];
        double u = (double)*a, v = (double)*b;
        *a = (float)(u * c - v * s);
        *b = (float)(u * s + v * c);
    }
}

/* One block of one layer. `known` is the shift that kv->angles hold, for this layer's rope. */
static void rotate_block(qn_kv *kv, int32_t layer, int32_t b, const int32_t *moved, int32_t *known)
{
    const qn_kv_layer *l = &kv->layout.layers[layer];
    const store *s = &kv->stores[layer];
    const qn_kv_rope *r = &kv->ropes[l->rope];
    size_t heads = (size_t)l->n_head_kv, bytes = s->k_block / heads;
    for (int place = 0; place < SIDE; place++) {
        if (moved[place] == 0) {
            continue;
        }
        if (moved[place] != *known) {
            fill_angles(r, moved[place], kv->angles);
            *known = moved[place];
        }
        for (size_t h = 0; h < heads; h++) {
            uint8_t *at = s->k + ((size_t)b * heads + h) * bytes;
            qn__kv_get_k(kv->config.type_k, at, l->d_k, place, kv->staging);
            rotate(&r->params, kv->angles, kv->staging + l->rot_first);
            qn__kv_put_k(kv->config.type_k, at, l->d_k, place, kv->staging);
        }
    }
}

void qn__kv_apply_moves(qn_kv *kv)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        group *g = &kv->groups[gi];
        if (!g->any_moved) {
            continue;
        }
        for (int32_t i = 0; i < kv->layout.n_layers; i++) {
            const qn_kv_layer *l = &kv->layout.layers[i];
            int32_t known = 0;
            for (int32_t b = 0; l->group == gi && l->rope >= 0 && b < g->n_blocks; b++) {
                if (g->blocks[b].refs > 0) {
                    rotate_block(kv, i, b, g->moved + (size_t)b * SIDE, &known);
                }
            }
        }
        memset(g->moved, 0, (size_t)g->n_blocks * SIDE * sizeof *g->moved);
        g->any_moved = false;
    }
}
