/*
 * internal.h: the grammar as its users hold it: rules, the places that texts come to, masks that
 * were made, triggers, and the list of matchers, whose places are what must be carried over when
 * they are begun anew.
 */
#ifndef QUERN_GRAMMAR_INTERNAL_H
#define QUERN_GRAMMAR_INTERNAL_H

#include "grammar/places.h"

#include <pthread.h>

#include "base/mem.h"
#include "vocab/pieces.h"

/* ---- Triggers (trigger.c) ---- */

typedef struct qn_triggers qn_triggers;

qn_status qn__triggers_make(const qn_trigger *list, size_t n, qn_triggers **out, qn_error *err);
void qn__triggers_free(qn_triggers *t);
bool qn__triggers_has_token(const qn_triggers *t, int32_t token);
size_t qn__triggers_count(const qn_triggers *t);
/* Whether one fires on a text; *start: where the grammar's part begins. `from`: as many numbers as
 * the count, 0 for a new text; where nothing fires they say where a search of this text with more
 * behind it begins. */
qn_status qn__triggers_search(const qn_triggers *t, size_t *from, const char *text, size_t size,
                              bool *fires, size_t *start, qn_error *err);

/* ---- Masks (mask.c) ---- */

enum { QN_MASKS_KEPT = 256, QN_MASK_BYTES_MAX = 16 << 20 };

typedef struct qn_mask {
    uint32_t place;
    uint32_t *bits; /* NULL: free */
    uint64_t used;  /* when last; 0: holds nothing */
} qn_mask;

typedef struct qn_masks {
    qn_mask kept[QN_MASKS_KEPT];
    size_t n_kept; /* how many are kept at most, with this vocabulary */
    size_t n_words;
    uint64_t clock;
} qn_masks;

/* Makes the mask of the place where the matcher is. The lock is held; it is let go while the
 * vocabulary is walked through. QN_ERR_LIMIT where that takes too much work. */
qn_status qn__mask_fill(qn_matcher *m, uint32_t *bits, qn_error *err);
void qn__masks_prepare(qn_masks *m, const qn_vocab *vocab);
void qn__masks_forget(qn_masks *m); /* places have new names */
void qn__masks_free(qn_masks *m);

/* ---- Grammar and matcher ---- */

struct qn_grammar {
    pthread_mutex_t lock; /* of everything below that changes */
    pthread_cond_t idle;  /* nobody walks any more */
    size_t users;         /* the maker and the matchers */
    size_t n_walkers;     /* who looks at the places' cells without the lock */
    const qn_vocab *vocab;
    const qn_pieces *pieces; /* of the vocabulary; NULL where there is none */
    qn_rules rules;
    qn_places places;
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
    uint32_t place;
    uint32_t *walk; /* of a mask, by depth: the place after that many bytes of a piece */
    bool waiting;
    qn_buf seen; /* text since the start, while waiting */
    qn_seen_token *tokens;
    size_t n_tokens, tokens_room;
    size_t *from; /* where searches for triggers begin; NULL: not lazy */
};

/* A text further, or a token (whose text it is). False: not allowed or past a bound. */
bool qn__follow_text(qn_places *p, uint32_t *place, const char *text, size_t size);
bool qn__follow_token(qn_places *p, uint32_t *place, int32_t token, const char *text, size_t size);

#endif
