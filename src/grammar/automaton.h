/*
 * automaton.h: the states of matching and the steps between them, found as they are needed.
 *
 * A stack says what is expected: its top is a position at a character or token, below are the
 * positions to come back to. A state is a set of stacks. Stacks share their tails: a node is
 * (position, node below), and equal nodes are one, so that a set of stacks is a set of node
 * numbers. Node 0 is the empty stack: a sentence is complete. States with equal sets are one, and
 * steps are remembered: (state, class of code points) -> state. A class holds the code points that
 * no part of the grammar tells apart. Bytes and unfinished characters are the matter of places.h.
 *
 * Everything here is bounded; past a bound `status` holds the error, and steps give QN_STATE_NONE.
 */
#ifndef QUERN_GRAMMAR_AUTOMATON_H
#define QUERN_GRAMMAR_AUTOMATON_H

#include "grammar/rules.h"

enum {
    QN_STACKS_MAX = 1 << 16,   /* of a state */
    QN_NODES_MAX = 1 << 20,    /* of an automaton */
    QN_MEMBERS_MAX = 1 << 22,  /* of all its states together */
    QN_STEP_WORK_MAX = 1 << 25 /* nodes that one call may look at */
};

#define QN_STATE_NONE 0U /* no stack is left */

typedef struct qn_node {
    uint32_t at;   /* element */
    uint32_t next; /* node below */
} qn_node;

typedef struct qn_state {
    uint32_t first, count; /* nodes: members[first ..], ascending */
    bool complete;         /* has the empty stack */
    bool tokens;           /* expects a token somewhere */
} qn_state;

/* An open-addressed table from a key (0: free slot) to a number. */
typedef struct qn_table {
    uint64_t *keys;
    uint32_t *values;
    size_t mask, count;
} qn_table;

typedef struct qn_automaton {
    const qn_rules *rules;
    uint32_t *classes; /* class i: code points classes[i] .. classes[i + 1] - 1 */
    uint32_t n_classes;

    qn_node *nodes;
    uint32_t *stamps; /* by node: the last expansion that saw it */
    uint32_t n_nodes, stamp;
    size_t nodes_room, stamps_room;
    qn_table node_table;

    qn_state *states; /* 0 is QN_STATE_NONE */
    uint32_t *members;
    uint32_t n_states, n_members, start;
    size_t states_room, members_room;
    qn_table state_table; /* by hash of the members */

    qn_table steps;

    uint32_t *open, *found; /* of an expansion: nodes to look at; nodes of the new state */
    uint32_t n_open, n_found;
    size_t open_room, found_room;
    uint64_t work; /* nodes that the call has looked at */

    qn_status status;
    qn_error error;
} qn_automaton;

/* The end of the code points. */
#define QN_POINTS_END 0x110000U

/* `rules` must outlive it. */
qn_status qn__automaton_make(qn_automaton *a, const qn_rules *rules, qn_error *err);
void qn__automaton_free(qn_automaton *a);

/* Before a call, or its next part: the error is forgotten; so much work was done already. */
void qn__automaton_begin(qn_automaton *a, uint64_t work);
/* Whether it holds so much that it should be begun anew. */
bool qn__automaton_is_large(const qn_automaton *a);
/* The same state in another automaton of the same rules; QN_STATE_NONE on failure. */
uint32_t qn__automaton_carry(qn_automaton *to, const qn_automaton *from, uint32_t state);

uint32_t qn__automaton_step(qn_automaton *a, uint32_t state, uint32_t code_point);
uint32_t qn__automaton_step_token(qn_automaton *a, uint32_t state, uint32_t token);
/* All stacks of both. */
uint32_t qn__automaton_join(qn_automaton *a, uint32_t x, uint32_t y);

/* Whether a code point of low .. high may be expected. A negated set that names one of them is
 * taken to refuse them all: careful, not exact. */
bool qn__automaton_expects(const qn_automaton *a, uint32_t state, uint32_t low, uint32_t high);

/* ---- Tables ---- */

bool qn__table_reserve(qn_table *t); /* room for one more */
void qn__table_free(qn_table *t);
/* The slot of a key, or the free one where it belongs. */
size_t qn__table_slot(const qn_table *t, uint64_t key);
void qn__table_set(qn_table *t, size_t slot, uint64_t key, uint32_t value); /* of a free slot */

/* Put the error into the automaton's status; false. */
bool qn__automaton_no_memory(qn_automaton *a);
bool qn__automaton_too_much(qn_automaton *a);

#endif
