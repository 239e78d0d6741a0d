/*
 * mask.c: which tokens may come next, for a whole vocabulary at once.
 *
 * The pieces lie in the order of their bytes (vocab/pieces.h): the walk keeps the place after each
 * byte of the current piece, goes back to where the next one branches off, and passes over a branch
 * whose first byte is refused. Where all bytes of a branch lead to one place, and all of them from
 * there to the next, or back to it, as inside strings, the branch is taken whole. Masks are kept by
 * place, the least recently used one gives way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/internal.h"

/* A branch of so many pieces is worth looking ahead, if none is too long. */
enum { LARGE_BRANCH = 64, LOOKS_MAX = 256 /* of a walk */ };

static void set_bit(uint32_t *bits, int32_t id)
{
    bits[(uint32_t)id / 32] |= 1U << ((uint32_t)id % 32);
}

static void set_bits(uint32_t *bits, const int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        set_bit(bits, ids[i]);
    }
}

/* ---- Tokens by id ---- */

/* Whether a token has a piece, so that it can be expected by id. */
static bool has_piece(const qn_vocab *vocab, int32_t id)
{
    size_t size = 0;
    const char *text = qn_vocab_piece(vocab, id, true, &size);
    return text && size > 0 && text[0] != '\0' && !qn_vocab_is_end(vocab, id);
}

static void allow_ids(const qn_grammar *g, uint32_t state, uint32_t *bits)
{
    const qn_automaton *a = &g->places.automaton;
    const qn_state *s = &a->states[state];
    bool negated = false;
    int32_t left_out = 0; /* by the first negated one */
    for (uint32_t i = s->complete; i < s->count; i++) {
        const qn_element *e = &g->rules.elements[a->nodes[a->members[s->first + i]].at];
        int32_t id = (int32_t)e->value;
        if (e->kind == QN_ELEMENT_TOKEN && has_piece(g->vocab, id)) {
            set_bit(bits, id);
        } else if (e->kind == QN_ELEMENT_NOT_TOKEN && !negated) {
            uint32_t *word = has_piece(g->vocab, id) ? &bits[(uint32_t)id / 32] : NULL;
            uint32_t bit = 1U << ((uint32_t)id % 32), before = word ? *word & bit : 0;
            set_bits(bits, g->pieces->ids, g->pieces->count);
            if (word) {
                *word = (*word & ~bit) | before;
            }
            negated = true;
            left_out = id;
        } else if (e->kind == QN_ELEMENT_NOT_TOKEN && id != left_out &&
                   has_piece(g->vocab, left_out)) {
            set_bit(bits, left_out);
        }
    }
}

/* ---- The walk ---- */

typedef struct walk {
    qn_grammar *grammar;
    const qn_cells *cells;
    uint32_t *at; /* by depth: the place after that many bytes */
    uint64_t work;
    uint32_t looks;
    qn_error *err;
    qn_status status;
} walk;

/* What the cells do not say is found out with the lock. */
static qn_places *learn_begin(walk *w)
{
    qn_places *places = &w->grammar->places;
    pthread_mutex_lock(&w->grammar->lock);
    qn__automaton_begin(&places->automaton, w->work);
    return places;
}

static void learn_end(walk *w)
{
    qn_places *places = &w->grammar->places;
    const qn_automaton *a = &places->automaton;
    if (a->status != QN_OK) {
        w->status = qn__error(w->err, a->status, "%s", a->error.message);
    }
    w->work = a->work;
    w->cells = atomic_load_explicit(&places->cells, memory_order_relaxed);
    pthread_mutex_unlock(&w->grammar->lock);
}

static uint32_t step(walk *w, uint32_t place, uint8_t byte)
{
    uint32_t next = qn__cell(w->cells, place + w->grammar->places.column[byte]);
    if (next == QN_PLACE_UNKNOWN) {
        next = qn__place_step(learn_begin(w), place, byte);
        learn_end(w);
    }
    return next;
}

/* Whether all pieces of a branch fit, as far as known, or as can be found out for a large one. */
static bool takes_all(walk *w, const qn_piece *branch, uint32_t size, uint32_t place)
{
    uint64_t alike = qn__place_alike(w->cells, place);
    if ((alike & QN_ALIKE_LOOKED) == 0 && size >= LARGE_BRANCH && branch->reach <= QN_LOOK_AHEAD &&
        w->looks++ < LOOKS_MAX) {
        qn__place_look_ahead(learn_begin(w), place);
        learn_end(w);
        alike = qn__place_alike(w->cells, place);
    }
    return (branch->groups & ~alike) == 0 &&
           branch->reach <= qn__cell(w->cells, place + QN_CELL_REACH);
}

/* The first entry from `i` on that does not share `depth` bytes. */
static uint32_t pass_over(const qn_pieces *p, uint32_t i, uint32_t depth)
{
    while (i < p->count && p->entries[i].shared >= depth) {
        i = p->entries[i].next;
    }
    return i;
}

/* One piece, or its whole branch; returns the entry that comes next. */
static uint32_t walk_piece(walk *w, const qn_pieces *p, uint32_t i, uint32_t *bits)
{
    const qn_piece *entry = &p->entries[i];
    const uint8_t *bytes = p->stream + entry->at;
    uint32_t depth = entry->shared, end = depth + entry->added, place = w->at[depth];
    if (takes_all(w, entry, entry->next - i, place)) {
        set_bits(bits, p->ids + i, entry->next - i);
        return entry->next;
    }
    while (depth < end) {
        place = step(w, place, *bytes++);
        w->at[++depth] = place;
        if (place == QN_PLACE_NONE) {
            return pass_over(p, i + 1, depth);
        }
    }
    if (qn__cell(w->cells, place + QN_CELL_ENDS)) {
        set_bit(bits, p->ids[i]);
    }
    return i + 1;
}

/* Tokens whose text fits. */
static qn_status allow_texts(qn_matcher *m, uint32_t place, uint32_t *bits, uint64_t work,
                             qn_error *err)
{
    const qn_pieces *p = m->grammar->pieces;
    walk w = {.grammar = m->grammar, .at = m->walk, .work = work, .err = err};
    w.cells = atomic_load_explicit(&m->grammar->places.cells, memory_order_acquire);
    w.at[0] = place;
    for (uint32_t i = 0; i < p->count && w.status == QN_OK;) {
        i = walk_piece(&w, p, i, bits);
    }
    return w.status;
}

/* ---- Masks that are kept ---- */

void qn__masks_prepare(qn_masks *m, const qn_vocab *vocab)
{
    m->n_words = ((size_t)qn_vocab_size(vocab) + 31) / 32;
    size_t fit = QN_MASK_BYTES_MAX / (m->n_words * sizeof(uint32_t) + 1);
    m->n_kept = fit < 2 ? 2 : fit > QN_MASKS_KEPT ? QN_MASKS_KEPT : fit;
}

/* The kept mask of the place; NULL: none. */
static qn_mask *find(qn_masks *m, uint32_t place)
{
    for (size_t i = 0; i < m->n_kept; i++) {
        if (m->kept[i].place == place && m->kept[i].used > 0) {
            m->kept[i].used = ++m->clock;
            return &m->kept[i];
        }
    }
    return NULL;
}

static void keep(qn_masks *m, uint32_t place, const uint32_t *bits)
{
    qn_mask *oldest = &m->kept[0];
    if (find(m, place)) {
        return; /* somebody else has been faster */
    }
    for (size_t i = 1; i < m->n_kept; i++) {
        oldest = m->kept[i].used < oldest->used ? &m->kept[i] : oldest;
    }
    if (!oldest->bits) {
        oldest->bits = qn__calloc(m->n_words, sizeof(uint32_t));
    }
    if (oldest->bits) { /* without memory it is made again next time */
        memcpy(oldest->bits, bits, m->n_words * sizeof *bits);
        oldest->place = place;
        oldest->used = ++m->clock;
    }
}

qn_status qn__mask_fill(qn_matcher *m, uint32_t *bits, qn_error *err)
{
    qn_grammar *g = m->grammar;
    qn_masks *masks = &g->masks;
    const qn_mask *kept = find(masks, m->place);
    if (kept) {
        memcpy(bits, kept->bits, masks->n_words * sizeof *bits);
        return QN_OK;
    }
    const qn_place *place = qn__place_at(&g->places, m->place);
    memset(bits, 0, masks->n_words * sizeof *bits);
    if (place->missing == 0) {
        allow_ids(g, place->state, bits);
    }
    if (qn__place_is_complete(&g->places, m->place)) {
        set_bits(bits, g->pieces->ends, g->pieces->n_ends);
    }
    uint64_t work = g->places.automaton.work;
    g->n_walkers++; /* so that no place is given another name */
    pthread_mutex_unlock(&g->lock);
    qn_status status = allow_texts(m, m->place, bits, work, err);
    pthread_mutex_lock(&g->lock);
    if (--g->n_walkers == 0) {
        pthread_cond_broadcast(&g->idle);
    }
    if (status == QN_OK) {
        keep(masks, m->place, bits);
    }
    return status;
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
}
