/*
 * places.h: texts byte by byte. A place is a state of the automaton and what is there of a
 * character that is not finished.
 *
 * A place is named by where its row begins in one array of cells. Behind a few cells of its own a
 * row has one for each column: a column holds bytes that nothing tells apart, neither the grammar
 * nor UTF-8, and its cell says which place such a byte leads to. Cells are filled as they are
 * needed, and a step that was made before is one look at a cell.
 *
 * Who changes anything holds the grammar's lock. Who only follows cells that are filled need not:
 * cells are atomic, and when the array has to grow, the old ones stay until qn__places_settle.
 */
#ifndef QUERN_GRAMMAR_PLACES_H
#define QUERN_GRAMMAR_PLACES_H

#include "grammar/automaton.h"

#include <stdatomic.h>

/* Cells of all rows together, at most: 64 MiB. From half of it on they should be begun anew. */
enum { QN_CELLS_MAX = 1 << 24 };

#define QN_PLACE_NONE    0U         /* no text comes here; all its cells lead to itself */
#define QN_PLACE_UNKNOWN UINT32_MAX /* a cell that is not filled */

/* The first cells of a row. */
enum {
    QN_CELL_ENDS,     /* 1: a token may end here */
    QN_CELL_AHEAD,    /* the place to which most groups of bytes (vocab/pieces.h) lead */
    QN_CELL_ALIKE,    /* those groups, low half */
    QN_CELL_ALIKE_UP, /* high half; 0: not known yet */
    QN_CELL_REACH,    /* so many bytes of those groups may follow, as far as known */
    QN_CELL_COLUMNS
};

typedef _Atomic uint32_t qn_cell;

typedef struct qn_cells {
    struct qn_cells *older; /* what it took the place of, as long as somebody may look at it */
    qn_cell cell[];
} qn_cells;

/* What a place is. */
typedef struct qn_place {
    uint32_t state;
    uint32_t value;  /* the bits so far of the character that is not finished */
    uint8_t missing; /* bytes that it lacks; 0: no such character */
    uint8_t length;  /* bytes that it will have */
} qn_place;

typedef struct qn_places {
    qn_automaton automaton;
    uint16_t column[256];       /* by byte: the cell of its column in a row */
    uint8_t byte[257];          /* by column: the first byte that it holds */
    uint32_t n_columns, stride; /* cells of a row */
    qn_place *list;             /* by row; row 0 is QN_PLACE_NONE */
    uint32_t n_places, start;
    size_t list_room, cells_room; /* rows that there is room for */
    qn_table table;               /* place -> its row's first cell */
    _Atomic(qn_cells *) cells;
} qn_places;

/* `rules` must outlive them. */
qn_status qn__places_make(qn_places *p, const qn_rules *rules, qn_error *err);
void qn__places_free(qn_places *p);

/* Whether they hold so much that they should be begun anew. */
bool qn__places_is_large(const qn_places *p);
/* The same place among others of the same rules; QN_PLACE_NONE on failure. */
uint32_t qn__places_carry(qn_places *to, const qn_places *from, uint32_t place);
/* Nobody looks at cells without the lock: older ones are given back. */
void qn__places_settle(qn_places *p);

static inline const qn_place *qn__place_at(const qn_places *p, uint32_t place)
{
    return &p->list[place / p->stride];
}

static inline uint32_t qn__cell(const qn_cells *cells, uint32_t at)
{
    return atomic_load_explicit(&cells->cell[at], memory_order_acquire);
}

/* Set in what is alike beside the groups: that it is known; that reach is known, too, as far as
 * QN_LOOK_AHEAD bytes. */
#define QN_ALIKE_KNOWN  (UINT64_C(1) << 62)
#define QN_ALIKE_LOOKED (UINT64_C(1) << 61)
enum { QN_LOOK_AHEAD = 32 };

/* The groups of bytes that lead to the place in QN_CELL_AHEAD; 0: not known. */
static inline uint64_t qn__place_alike(const qn_cells *cells, uint32_t place)
{
    uint64_t up = qn__cell(cells, place + QN_CELL_ALIKE_UP);
    return up == 0 ? 0 : up << 32 | qn__cell(cells, place + QN_CELL_ALIKE);
}

/* Whether a token may end here. */
static inline bool qn__place_may_end(const qn_places *p, uint32_t place)
{
    return qn__cell(atomic_load_explicit(&p->cells, memory_order_relaxed), place + QN_CELL_ENDS);
}

/* One byte further; QN_PLACE_NONE: not allowed, or past a bound, which the automaton's status then
 * says. */
uint32_t qn__place_step(qn_places *p, uint32_t place, uint8_t byte);
/* The place of a state with no character begun. */
uint32_t qn__place_of_state(qn_places *p, uint32_t state);
/* Finds out which groups of bytes lead to the same place, and there again, and so on. */
void qn__place_look_ahead(qn_places *p, uint32_t place);
bool qn__place_is_complete(const qn_places *p, uint32_t place);

#endif
