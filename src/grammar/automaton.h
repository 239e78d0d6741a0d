/*
 * automaton.h: the states of matching and the steps between them, found as they are needed.
 *
 * A stack says what is expected: its top is a position at a character or token, below are the
 * positions to come back to. A state is a set of stacks. Stacks share their tails: a node is
 * (position, node below), and equal nodes are one, so that a set of stacks is a set of node
 * numbers. Node 0 is the empty stack: a sentence is complete. States with equal sets are one, and
 * steps are remembered: (state, class of code points) -> state. A class holds the code points that
 * no part of the grammar tells apart.
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
    uint32_t ascii[128]; /* their classes */

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
    uint64_t work; /* nodes looked at since qn__automaton_begin */

    qn_status status;
    qn_error error;
} qn_automaton;

/* A place in a text: a state, and the character that is not finished. */
typedef struct qn_place {
    uint32_t state;
    uint32_t value;  /* its bits so far */
    uint8_t missing; /* bytes that it lacks; 0: no such character */
    uint8_t length;  /* bytes that it will have */
} qn_place;

/* `rules` must outlive it. */
qn_status qn__automaton_make(qn_automaton *a, const qn_rules *rules, qn_error *err);
void qn__automaton_free(qn_automaton *a);

/* Before a call: the error and the count of work are forgotten. */
void qn__automaton_begin(qn_automaton *a);
/* Whether it holds so much that it should be begun anew. */
bool qn__automaton_is_large(const qn_automaton *a);
/* The same state in another automaton of the same rules; QN_STATE_NONE on failure. */
uint32_t qn__automaton_carry(qn_automaton *to, const qn_automaton *from, uint32_t state);

uint32_t qn__automaton_step(qn_automaton *a, uint32_t state, uint32_t code_point);
uint32_t qn__automaton_step_token(qn_automaton *a, uint32_t state, uint32_t token);
/* All stacks of both. */
uint32_t qn__automaton_join(qn_automaton *a, uint32_t x, uint32_t y);

/* One byte further. False: not allowed (or past a bound); the place is then worthless. */
bool qn__place_step(qn_automaton *a, qn_place *place, uint8_t byte);
/* Whether the unfinished character of a place can become one that is expected. */
bool qn__place_can_finish(const qn_automaton *a, const qn_place *place);
bool qn__place_is_complete(const qn_automaton *a, const qn_place *place);

#endif
