/*
 * mask.c: which tokens may come next, for a whole vocabulary at once.
 *
 * The pieces lie in the order of their bytes (vocab/pieces.h): the walk keeps the place after each
 * byte of the current piece, goes back to where the next one branches off, and passes over all that
 * share a refused beginning. Masks are kept by place, the least recently used one gives way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/internal.h"

static void set_bit(uint32_t *bits, int32_t id)
{
    bits[(uint32_t)id / 32] |= 1U << ((uint32_t)id % 32);
}

/* Tokens that are expected by id. */
static void allow_ids(const qn_grammar *g, const qn_place *place, uint32_t *bits)
{
    const qn_automaton *a = &g->automaton;
    const qn_pieces *p = g->masks.pieces;
    const qn_state *s = &a->states[place->state];
    if (!s->tokens || place->missing > 0) {
        return;
    }
    for (uint32_t i = s->complete; i < s->count; i++) {
        const qn_element *e = &g->rules.elements[a->nodes[a->members[s->first + i]].at];
        for (uint32_t k = 0; k < p->count; k++) {
            bool same = (uint32_t)p->entries[k].id == e->value;
            if ((e->kind == QN_ELEMENT_TOKEN && same) ||
                (e->kind == QN_ELEMENT_NOT_TOKEN && !same)) {
                set_bit(bits, p->entries[k].id);
            }
        }
    }
}

/* The first entry from `i` on that does not share `depth` bytes. */
static uint32_t pass_over(const qn_pieces *p, uint32_t i, uint32_t depth, uint8_t first)
{
    if (depth == 1) {
        return p->first[first + 1];
    }
    while (i < p->count && p->entries[i].shared >= depth) {
        i++;
    }
    return i;
}

/* Tokens whose text fits. False past a bound. */
static bool allow_texts(qn_grammar *g, const qn_place *place, uint32_t *bits)
{
    qn_automaton *a = &g->automaton;
    const qn_pieces *p = g->masks.pieces;
    qn_place *walk = g->masks.walk;
    walk[0] = *place;
    for (uint32_t i = 0; i < p->count;) {
        const qn_piece *entry = &p->entries[i];
        const uint8_t *bytes = p->stream + entry->at;
        uint32_t depth = entry->shared, end = depth + entry->added;
        bool alive = true;
        while (alive && depth < end) {
            walk[depth + 1] = walk[depth];
            alive = qn__place_step(a, &walk[depth + 1], bytes[depth - entry->shared]);
            depth++;
        }
        if (!alive) {
            if (a->status != QN_OK) {
                return false;
            }
            i = pass_over(p, i + 1, depth, bytes[0]);
            continue;
        }
        if (walk[end].missing == 0 || qn__place_can_finish(a, &walk[end])) {
            set_bit(bits, entry->id);
        }
        i++;
    }
    return true;
}

static bool prepare(qn_grammar *g, qn_error *err)
{
    qn_masks *m = &g->masks;
    if (m->pieces) {
        return true;
    }
    const qn_pieces *pieces = qn__vocab_pieces(g->vocab, err);
    if (!pieces) {
        return false;
    }
    m->walk = qn__calloc((size_t)pieces->longest + 1, sizeof *m->walk);
    if (!m->walk) {
        qn__error_memory(err, "mask of a grammar");
        return false;
    }
    m->n_words = ((size_t)qn_vocab_size(g->vocab) + 31) / 32;
    size_t fit = QN_MASK_BYTES_MAX / (m->n_words * sizeof(uint32_t) + 1);
    m->n_kept = fit < 2 ? 2 : fit > QN_MASKS_KEPT ? QN_MASKS_KEPT : fit;
    m->pieces = pieces;
    return true;
}

static bool same_place(const qn_place *a, const qn_place *b)
{
    return a->state == b->state && a->value == b->value && a->missing == b->missing &&
           a->length == b->length;
}

/* The kept mask of the place, or the entry that is to hold it (then *known is false). */
static qn_mask *find(qn_masks *m, const qn_place *place, bool *known)
{
    qn_mask *oldest = &m->kept[0];
    for (size_t i = 0; i < m->n_kept; i++) {
        qn_mask *mask = &m->kept[i];
        if (mask->used > 0 && same_place(&mask->place, place)) {
            *known = true;
            return mask;
        }
        oldest = mask->used < oldest->used ? mask : oldest;
    }
    *known = false;
    return oldest;
}

const uint32_t *qn__mask_of(qn_grammar *g, const qn_place *place, qn_error *err)
{
    qn_masks *m = &g->masks;
    if (!prepare(g, err)) {
        return NULL;
    }
    bool known;
    qn_mask *mask = find(m, place, &known);
    if (!known) {
        mask->used = 0; /* holds nothing until it is whole */
        if (!mask->bits) {
            mask->bits = qn__calloc(m->n_words + 1, sizeof(uint32_t));
        }
        if (!mask->bits) {
            qn__error_memory(err, "mask of a grammar");
            return NULL;
        }
        memset(mask->bits, 0, m->n_words * sizeof(uint32_t));
        mask->place = *place;
        allow_ids(g, place, mask->bits);
        for (uint32_t i = 0; qn__place_is_complete(&g->automaton, place) && i < m->pieces->n_ends;
             i++) {
            set_bit(mask->bits, m->pieces->ends[i]);
        }
        if (!allow_texts(g, place, mask->bits)) {
            return NULL;
        }
    }
    mask->used = ++m->clock;
    return mask->bits;
}

void qn__masks_forget(qn_masks *m)
{
    for (size_t i = 0; i < m->n_kept; i++) {
        m->kept[i].used = 0;
    }
}

void qn__masks_free(qn_masks *m)
{
    for (size_t i = 0; i < QN_MASKS_KEPT; i++) {
        free(m->kept[i].bits);
    }
    free(m->walk);
}
