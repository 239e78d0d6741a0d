/*
 * internal.h: the grammar as its users hold it: rules, the automaton that follows texts through
 * them, masks that were made, triggers, and the list of matchers, whose states are what must be
 * carried over when the automaton is begun anew.
 */
#ifndef QUERN_GRAMMAR_INTERNAL_H
#define QUERN_GRAMMAR_INTERNAL_H

#include "grammar/automaton.h"

#include <pthread.h>

#include "base/mem.h"
#include "vocab/pieces.h"

/* ---- Triggers (trigger.c) ---- */

typedef struct qn_triggers qn_triggers;

qn_status qn__triggers_make(const qn_trigger *list, size_t n, qn_triggers **out, qn_error *err);
void qn__triggers_free(qn_triggers *t);
bool qn__triggers_has_token(const qn_triggers *t, int32_t token);
/* Whether one fires on the text; *start: where the grammar's part begins. */
qn_status qn__triggers_search(const qn_triggers *t, const char *text, size_t size, bool *fires,
                              size_t *start, qn_error *err);

/* ---- Masks (mask.c) ---- */

enum { QN_MASKS_KEPT = 256, QN_MASK_BYTES_MAX = 16 << 20 };

typedef struct qn_mask {
    qn_place place;
    uint32_t *bits; /* NULL: free */
    uint64_t used;  /* when last */
} qn_mask;

typedef struct qn_masks {
    const qn_pieces *pieces; /* NULL until a mask is asked for */
    qn_place *walk;          /* by depth: the place after that many bytes of the piece */
    qn_mask kept[QN_MASKS_KEPT];
    size_t n_kept; /* how many are kept at most, with this vocabulary */
    size_t n_words;
    uint64_t clock;
} qn_masks;

/* The mask of a place, valid until the next call; NULL on failure. The lock is held. */
const uint32_t *qn__mask_of(qn_grammar *g, const qn_place *place, qn_error *err);
void qn__masks_forget(qn_masks *m); /* states have new numbers */
void qn__masks_free(qn_masks *m);

/* ---- Grammar and matcher ---- */

struct qn_grammar {
    pthread_mutex_t lock; /* of everything below that changes */
    size_t users;         /* the maker and the matchers */
    const qn_vocab *vocab;
    qn_rules rules;
    qn_automaton automaton;
    qn_triggers *triggers; /* NULL: not lazy */
    qn_masks masks;
    qn_matcher *matchers; /* a list */
};

/* A token that came while waiting: where its text ends in `seen`. */
typedef struct qn_seen_token {
    int32_t id;
    size_t end;
} qn_seen_token;

struct qn_matcher {
    qn_grammar *grammar;
    qn_matcher *next, **link; /* in the grammar's list; *link is this one */
    qn_place place;
    bool waiting;
    qn_buf seen; /* text since the start, while waiting */
    qn_seen_token *tokens;
    size_t n_tokens, tokens_room;
};

/* A text further, or a token (whose text it is). False: not allowed or past a bound. */
bool qn__follow_text(qn_automaton *a, qn_place *place, const char *text, size_t size);
bool qn__follow_token(qn_automaton *a, qn_place *place, int32_t token, const char *text,
                      size_t size);

#endif
