/* places.c: see places.h. */
#include "grammar/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "vocab/pieces.h"

/* Rows that there is room for at first; nodes that are looked at to look ahead. */
enum { ROWS_MIN = 16, LOOK_WORK = 1 << 16 };

/* ---- Columns ---- */

/* The bytes at which the grammar begins to treat code points from `first` on in another way. */
static void split_at(bool *begins, uint32_t first)
{
    if (first < 0x80) {
        begins[first] = true;
        return;
    }
    uint8_t bytes[4];
    size_t n = first < 0x800 ? 2 : first < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; first >>= 6) {
        bytes[i] = (uint8_t)(0x80 | (first & 0x3F));
    }
    bytes[0] = (uint8_t)((0xF00U >> n & 0xFF) | first);
    while (n > 1 && bytes[n - 1] == 0x80) {
        n--; /* what begins with the bytes before is not split */
    }
    for (size_t i = 0; i < n; i++) {
        begins[bytes[i]] = true;
        begins[bytes[i] + (i + 1 < n)] = true;
    }
}

static void find_columns(qn_places *p)
{
    /* Where UTF-8 itself makes a difference: what may begin a character, how many bytes it has,
     * and which second bytes would make it overlong, a surrogate or too large. */
    static const uint8_t always[] = {0x00, 0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0,
                                     0xE1, 0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5};
    bool begins[257] = {false};
    for (size_t i = 0; i < sizeof always; i++) {
        begins[always[i]] = true;
    }
    for (uint32_t i = 0; i < p->automaton.n_classes; i++) {
        split_at(begins, p->automaton.classes[i]);
    }
    for (uint32_t b = 0; b < 256; b++) {
        if (begins[b]) {
            p->byte[p->n_columns++] = (uint8_t)b;
        }
        p->column[b] = (uint16_t)(QN_CELL_COLUMNS + p->n_columns - 1);
    }
    p->stride = QN_CELL_COLUMNS + p->n_columns;
}

/* ---- Characters ---- */

/* The smallest code point that needs this many bytes. */
static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};

static bool is_surrogate(uint32_t cp)
{
    return cp >= 0xD800 && cp <= 0xDFFF;
}

/* One byte of a character further. False: not allowed, or past a bound. */
static bool take_byte(qn_automaton *a, qn_place *place, uint8_t byte)
{
    if (place->missing > 0) {
        if ((byte & 0xC0) != 0x80) {
            return false;
        }
        place->value = place->value << 6 | (byte & 0x3FU);
        if (--place->missing > 0) {
            return true;
        }
        uint32_t cp = place->value;
        if (cp < smallest[place->length] || cp >= QN_POINTS_END || is_surrogate(cp)) {
            return false;
        }
        *place = (qn_place){.state = qn__automaton_step(a, place->state, cp)};
        return place->state != QN_STATE_NONE;
    }
    if (byte < 0x80) {
        place->state = qn__automaton_step(a, place->state, byte);
        return place->state != QN_STATE_NONE;
    }
    if (byte < 0xC2 || byte > 0xF4) {
        return false;
    }
    place->length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    place->missing = (uint8_t)(place->length - 1);
    place->value = byte & (0x7FU >> place->length);
    return true;
}

/* Whether the character of a place, if one is begun, can become one that is expected. */
static bool can_finish(const qn_automaton *a, const qn_place *place)
{
    if (place->missing == 0) {
        return true;
    }
    uint32_t shift = 6U * place->missing;
    uint32_t low = place->value << shift;
    uint32_t high = low | ((1U << shift) - 1);
    low = low < smallest[place->length] ? smallest[place->length] : low;
    high = high >= QN_POINTS_END ? QN_POINTS_END - 1 : high;
    high = is_surrogate(high) ? 0xD7FF : high;
    return low <= high && qn__automaton_expects(a, place->state, low, high);
}

/* ---- Rows ---- */

static qn_cells *cells_of(const qn_places *p)
{
    return atomic_load_explicit(&p->cells, memory_order_relaxed); /* the lock is held */
}

static void set_cell(const qn_places *p, uint32_t at, uint32_t value)
{
    atomic_store_explicit(&cells_of(p)->cell[at], value, memory_order_release);
}

/* Room for twice the rows. The old cells do not change any more. */
static bool more_cells(qn_places *p)
{
    size_t rows = p->cells_room ? 2 * p->cells_room : ROWS_MIN;
    size_t most = QN_CELLS_MAX / p->stride;
    rows = rows < most ? rows : most;
    if (p->n_places >= rows) {
        return qn__automaton_too_much(&p->automaton);
    }
    qn_cells *old = cells_of(p);
    qn_cells *cells = qn__calloc(1, sizeof *cells + rows * p->stride * sizeof(qn_cell));
    if (!cells) {
        return qn__automaton_no_memory(&p->automaton);
    }
    for (size_t i = 0; i < (size_t)p->n_places * p->stride; i++) {
        atomic_init(&cells->cell[i], qn__cell(old, (uint32_t)i));
    }
    cells->older = old;
    p->cells_room = rows;
    atomic_store_explicit(&p->cells, cells, memory_order_release);
    return true;
}

void qn__places_settle(qn_places *p)
{
    qn_cells *cells = cells_of(p);
    for (qn_cells *old = cells->older, *next; old; old = next) {
        next = old->older;
        free(old);
    }
    cells->older = NULL;
}

/* The row of a place, made if it is new. QN_PLACE_NONE past a bound. */
static uint32_t row_of(qn_places *p, const qn_place *place)
{
    qn_automaton *a = &p->automaton;
    uint64_t key = (uint64_t)place->state << 32 | (uint64_t)place->value << 8 |
                   (uint64_t)place->length << 4 | place->missing; /* a value has 15 bits at most */
    if (!qn__table_reserve(&p->table) ||
        !qn__grow(&p->list, &p->list_room, (size_t)p->n_places + 1, sizeof *p->list)) {
        qn__automaton_no_memory(a);
        return QN_PLACE_NONE;
    }
    size_t slot = qn__table_slot(&p->table, key);
    if (p->table.keys[slot] == key) {
        return p->table.values[slot];
    }
    if (p->n_places >= p->cells_room && !more_cells(p)) {
        return QN_PLACE_NONE;
    }
    uint32_t row = p->n_places * p->stride;
    p->list[p->n_places++] = *place;
    for (uint32_t i = QN_CELL_COLUMNS; i < p->stride; i++) {
        set_cell(p, row + i, QN_PLACE_UNKNOWN);
    }
    set_cell(p, row + QN_CELL_ENDS, can_finish(a, place));
    qn__table_set(&p->table, slot, key, row);
    return row;
}

uint32_t qn__place_of_state(qn_places *p, uint32_t state)
{
    const qn_place place = {.state = state};
    return state == QN_STATE_NONE ? QN_PLACE_NONE : row_of(p, &place);
}

static uint32_t step_column(qn_places *p, uint32_t place, uint32_t column)
{
    uint32_t next = qn__cell(cells_of(p), place + column);
    if (next != QN_PLACE_UNKNOWN) {
        return next;
    }
    qn_place to = *qn__place_at(p, place);
    bool allowed = take_byte(&p->automaton, &to, p->byte[column - QN_CELL_COLUMNS]);
    next = allowed ? row_of(p, &to) : QN_PLACE_NONE;
    if (p->automaton.status != QN_OK) {
        return QN_PLACE_NONE;
    }
    set_cell(p, place + column, next);
    return next;
}

uint32_t qn__place_step(qn_places *p, uint32_t place, uint8_t byte)
{
    return step_column(p, place, p->column[byte]);
}

static void set_alike(const qn_places *p, uint32_t place, uint64_t alike)
{
    set_cell(p, place + QN_CELL_ALIKE, (uint32_t)alike);
    set_cell(p, place + QN_CELL_ALIKE_UP, (uint32_t)(alike >> 32));
}

/* To which place most groups of bytes lead, each as a whole. */
static void find_alike(qn_places *p, uint32_t place)
{
    uint32_t to[QN_BYTE_GROUP_OTHER] = {0}; /* by group */
    uint64_t met = 0, best = 0;
    uint32_t ahead = QN_PLACE_NONE;
    for (uint32_t byte = 0; byte < 0x80; byte++) {
        uint32_t group = qn__byte_group((uint8_t)byte);
        uint32_t next = qn__place_step(p, place, (uint8_t)byte);
        bool first = (met >> group & 1) == 0;
        to[group] = first || to[group] == next ? next : QN_PLACE_NONE;
        met |= UINT64_C(1) << group;
    }
    for (uint32_t i = 0; i < QN_BYTE_GROUP_OTHER; i++) {
        uint64_t alike = 0;
        for (uint32_t k = i; k < QN_BYTE_GROUP_OTHER && to[i] != QN_PLACE_NONE; k++) {
            alike |= to[k] == to[i] ? UINT64_C(1) << k : 0;
        }
        if (__builtin_popcountll(alike) > __builtin_popcountll(best)) {
            best = alike;
            ahead = to[i];
        }
    }
    if (p->automaton.status == QN_OK) {
        set_cell(p, place + QN_CELL_AHEAD, ahead);
        set_alike(p, place, best | QN_ALIKE_KNOWN);
    }
}

/* The places to which bytes that are alike lead, one behind the other, as far as that costs little;
 * what goes wrong on the way is perhaps never needed. Returns how many; *loops: the last leads to
 * itself. */
static uint32_t find_path(qn_places *p, uint32_t place, uint32_t *path, bool *loops)
{
    qn_automaton *a = &p->automaton;
    uint64_t work = a->work;
    uint32_t n = 0;
    *loops = false;
    qn__automaton_begin(a, QN_STEP_WORK_MAX - LOOK_WORK);
    while (n < QN_LOOK_AHEAD && place != QN_PLACE_NONE && !*loops && !qn__places_is_large(p)) {
        if (qn__place_alike(cells_of(p), place) == 0) {
            find_alike(p, place);
        }
        if (a->status != QN_OK) {
            break;
        }
        path[n++] = place;
        uint32_t ahead = qn__cell(cells_of(p), place + QN_CELL_AHEAD);
        *loops = ahead == place;
        place = ahead;
    }
    qn__automaton_begin(a, work);
    return n;
}

void qn__place_look_ahead(qn_places *p, uint32_t place)
{
    uint32_t path[QN_LOOK_AHEAD], reach = 0;
    uint64_t behind = 0;
    bool loops;
    uint32_t n = find_path(p, place, path, &loops);
    for (uint32_t i = n; i-- > 0;) {
        uint64_t alike = qn__place_alike(cells_of(p), path[i]) & ~QN_ALIKE_LOOKED;
        if (i == n - 1) {
            reach = loops ? UINT32_MAX : 1;
        } else if ((alike & ~behind) != 0) {
            reach = 1; /* what comes next may be something else */
        } else {
            reach += reach < UINT32_MAX;
        }
        behind = alike;
        if (reach > qn__cell(cells_of(p), path[i] + QN_CELL_REACH)) {
            set_cell(p, path[i] + QN_CELL_REACH, reach);
        }
    }
    set_alike(p, place, qn__place_alike(cells_of(p), place) | QN_ALIKE_LOOKED);
}

bool qn__place_is_complete(const qn_places *p, uint32_t place)
{
    const qn_place *at = qn__place_at(p, place);
    return at->missing == 0 && p->automaton.states[at->state].complete;
}

/* ---- Making ---- */

bool qn__places_is_large(const qn_places *p)
{
    return qn__automaton_is_large(&p->automaton) ||
           (size_t)p->n_places * p->stride > QN_CELLS_MAX / 2;
}

uint32_t qn__places_carry(qn_places *to, const qn_places *from, uint32_t place)
{
    qn_place at = *qn__place_at(from, place);
    at.state = qn__automaton_carry(&to->automaton, &from->automaton, at.state);
    return at.state == QN_STATE_NONE ? QN_PLACE_NONE : row_of(to, &at);
}

qn_status qn__places_make(qn_places *p, const qn_rules *rules, qn_error *err)
{
    *p = (qn_places){0};
    qn_status status = qn__automaton_make(&p->automaton, rules, err);
    if (status != QN_OK) {
        return status;
    }
    find_columns(p);
    if (!qn__grow(&p->list, &p->list_room, 1, sizeof *p->list) || !more_cells(p)) {
        qn__places_free(p);
        return qn__error_memory(err, "states of a grammar");
    }
    p->list[p->n_places++] = (qn_place){QN_STATE_NONE, 0, 0, 0}; /* a row of zeros */
    p->start = qn__place_of_state(p, p->automaton.start);
    if (p->automaton.status != QN_OK) {
        status = qn__error(err, p->automaton.status, "%s", p->automaton.error.message);
        qn__places_free(p);
    }
    return status;
}

void qn__places_free(qn_places *p)
{
    if (cells_of(p)) {
        qn__places_settle(p);
    }
    free(cells_of(p));
    free(p->list);
    qn__table_free(&p->table);
    qn__automaton_free(&p->automaton);
    *p = (qn_places){0};
}
