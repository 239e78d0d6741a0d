/*
 * matcher.c: a text's way through the grammar, token by token; a lazy grammar's wait and the
 * replay of what came in it.
 *
 * Every call that looks at places holds the grammar's lock from `enter` to `leave`; only the walk
 * through the vocabulary, for a mask that is new, lets it go meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/internal.h"

/* ---- The places, anew ---- */

/* Begins the places anew with those where matchers are, so that they stay few. Without memory for
 * that the old ones go on up to their bounds. */
static void renew(qn_grammar *g)
{
    qn_places next;
    if (qn__places_make(&next, &g->rules, NULL) != QN_OK) {
        return;
    }
    bool ok = true;
    for (int round = 0; ok && round < 2; round++) { /* first make sure of all, then switch */
        for (qn_matcher *m = g->matchers; ok && m; m = m->next) {
            uint32_t place = qn__places_carry(&next, &g->places, m->place);
            ok = place != QN_PLACE_NONE;
            if (ok && round == 1) {
                m->place = place;
            }
        }
    }
    if (!ok) {
        qn__places_free(&next);
        return;
    }
    qn__places_free(&g->places);
    g->places = next;
    qn__masks_forget(&g->masks);
}

static qn_places *enter(const qn_matcher *m)
{
    qn_grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    while (qn__places_is_large(&g->places) && g->n_walkers > 0) {
        pthread_cond_wait(&g->idle, &g->lock);
    }
    if (qn__places_is_large(&g->places)) {
        renew(g);
    }
    qn__automaton_begin(&g->places.automaton, 0);
    return &g->places;
}

static void leave(const qn_matcher *m)
{
    qn_grammar *g = m->grammar;
    if (g->n_walkers == 0) {
        qn__places_settle(&g->places);
    }
    pthread_mutex_unlock(&g->lock);
}

/* The automaton's error, if the call met one. */
static qn_status error_of(const qn_places *p, qn_error *err)
{
    qn_status status = p->automaton.status;
    return status == QN_OK ? QN_OK : qn__error(err, status, "%s", p->automaton.error.message);
}

/* ---- Following ---- */

bool qn__follow_text(qn_places *p, uint32_t *place, const char *text, size_t size)
{
    uint32_t at = *place;
    for (size_t i = 0; i < size && at != QN_PLACE_NONE; i++) {
        at = qn__place_step(p, at, (uint8_t)text[i]);
    }
    *place = at;
    return at != QN_PLACE_NONE;
}

/*
 * A token goes on where it is expected by id, and where its text fits. Both at once are joined;
 * but where the text ends inside a character the two have no place in common, and the id wins.
 */
bool qn__follow_token(qn_places *p, uint32_t *place, int32_t token, const char *text, size_t size)
{
    qn_automaton *a = &p->automaton;
    qn_place from = *qn__place_at(p, *place);
    uint32_t by_id = from.missing == 0 ? qn__automaton_step_token(a, from.state, (uint32_t)token)
                                       : QN_STATE_NONE;
    bool by_text = qn__follow_text(p, place, text, size) && (size > 0 || by_id == QN_STATE_NONE);
    if (by_id == QN_STATE_NONE || a->status != QN_OK) {
        return by_text && a->status == QN_OK;
    }
    qn_place to = *qn__place_at(p, *place);
    if (by_text && to.missing == 0) {
        by_id = qn__automaton_join(a, by_id, to.state);
    }
    *place = qn__place_of_state(p, by_id);
    return *place != QN_PLACE_NONE;
}

static qn_status refuse(qn_error *err, const char *text, size_t size)
{
    return qn__error(err, QN_ERR_FORMAT,
                     "Unexpected empty grammar stack after accepting piece: %.*s",
                     size > 200 ? 200 : (int)size, text);
}

static qn_status follow_locked(qn_matcher *m, int32_t token, const char *text, size_t size,
                               qn_error *err)
{
    qn_places *p = enter(m);
    uint32_t place = m->place;
    bool ok = token == -1 ? qn__follow_text(p, &place, text, size)
                          : qn__follow_token(p, &place, token, text, size);
    qn_status status = error_of(p, err);
    if (ok && status == QN_OK) {
        m->place = place;
    }
    leave(m);
    return status != QN_OK ? status : ok ? QN_OK : refuse(err, text, size);
}

/* ---- Waiting ---- */

static bool remember(qn_matcher *m, int32_t token, const char *text, size_t size)
{
    if (!qn__buf_add(&m->seen, text, size) ||
        !qn__grow(&m->tokens, &m->tokens_room, m->n_tokens + 1, sizeof *m->tokens)) {
        return false;
    }
    m->tokens[m->n_tokens++] = (qn_seen_token){token, m->seen.size};
    return true;
}

/* Feeds what was seen from byte `start` on: of the first token only its part behind it. */
static qn_status replay(qn_matcher *m, size_t start, qn_error *err)
{
    qn_status status = QN_OK;
    const char *seen = (const char *)m->seen.data;
    size_t begin = 0;
    for (size_t i = 0; i < m->n_tokens && status == QN_OK; i++) {
        size_t end = m->tokens[i].end;
        if (end > start) {
            bool whole = begin >= start;
            size_t from = whole ? begin : start;
            status = follow_locked(m, whole ? m->tokens[i].id : -1, seen + from, end - from, err);
        }
        begin = end;
    }
    return status;
}

/* A token (-1: a text) while a lazy grammar waits. */
static qn_status wait_on(qn_matcher *m, int32_t token, const char *text, size_t size, qn_error *err)
{
    const qn_triggers *t = m->grammar->triggers;
    size_t seen = m->seen.size;
    bool by_token = token >= 0 && qn__triggers_has_token(t, token), fires = by_token;
    size_t start = seen;
    if (!remember(m, token, text, size)) {
        return qn__error_memory(err, "text before a grammar's trigger");
    }
    qn_status status = QN_OK;
    if (!by_token) {
        status = qn__triggers_search(t, m->from, (const char *)m->seen.data, m->seen.size, &fires,
                                     &start, err);
    }
    if (status == QN_OK && by_token) {
        status = follow_locked(m, token, text, size, err);
    } else if (status == QN_OK && fires) {
        status = replay(m, start, err);
        if (status != QN_OK) { /* back to waiting at the start; numbers of states may be new */
            pthread_mutex_lock(&m->grammar->lock);
            m->place = m->grammar->places.start;
            pthread_mutex_unlock(&m->grammar->lock);
        }
    }
    if (status != QN_OK) {
        m->seen.size = seen;
        m->n_tokens--;
    } else if (fires) {
        m->waiting = false;
        m->seen.size = 0;
        m->n_tokens = 0;
    }
    return status;
}

/* ---- Public ---- */

qn_status qn_matcher_accept_text(qn_matcher *m, const char *text, size_t size, qn_error *err)
{
    return m->waiting ? wait_on(m, -1, text, size, err) : follow_locked(m, -1, text, size, err);
}

/* The text of a token; NULL (with an error) where there is none. */
static const char *piece_of(const qn_matcher *m, int32_t token, size_t *size, qn_error *err)
{
    const qn_vocab *vocab = m->grammar->vocab;
    const char *text = vocab ? qn_vocab_piece(vocab, token, true, size) : NULL;
    if (!text) {
        qn__error(err, QN_ERR_ARGUMENT, "the grammar's vocabulary has no token %d", token);
    }
    return text;
}

qn_status qn_matcher_accept_token(qn_matcher *m, int32_t token, qn_error *err)
{
    size_t size;
    const char *text = piece_of(m, token, &size, err);
    if (!text) {
        return QN_ERR_ARGUMENT;
    }
    if (qn_vocab_is_end(m->grammar->vocab, token) &&
        !(m->waiting && qn__triggers_has_token(m->grammar->triggers, token))) {
        return m->waiting || qn_matcher_is_complete(m) ? QN_OK : refuse(err, text, size);
    }
    return m->waiting ? wait_on(m, token, text, size, err)
                      : follow_locked(m, token, text, size, err);
}

bool qn_matcher_is_waiting(const qn_matcher *m)
{
    return m->waiting;
}

bool qn_matcher_is_complete(const qn_matcher *m)
{
    pthread_mutex_lock(&m->grammar->lock);
    bool complete = m->waiting || qn__place_is_complete(&m->grammar->places, m->place);
    pthread_mutex_unlock(&m->grammar->lock);
    return complete;
}

static qn_status allows(qn_matcher *m, int32_t token, const char *text, size_t size, bool *allowed,
                        qn_error *err)
{
    qn_places *p = enter(m);
    uint32_t place = m->place;
    bool fits = size > 0 && text[0] != '\0' &&
                (token < 0 ? qn__follow_text(p, &place, text, size)
                           : qn__follow_token(p, &place, token, text, size));
    qn_status status = error_of(p, err);
    *allowed = fits && status == QN_OK && qn__place_may_end(p, place);
    leave(m);
    return status;
}

qn_status qn_matcher_allows_text(qn_matcher *m, const char *text, size_t size, bool *allowed,
                                 qn_error *err)
{
    *allowed = true;
    return m->waiting ? QN_OK : allows(m, -1, text, size, allowed, err);
}

qn_status qn_matcher_allows(qn_matcher *m, int32_t token, bool *allowed, qn_error *err)
{
    size_t size;
    const char *text = piece_of(m, token, &size, err);
    *allowed = m->waiting;
    if (!text) {
        return QN_ERR_ARGUMENT;
    }
    if (m->waiting) {
        return QN_OK;
    }
    if (qn_vocab_is_end(m->grammar->vocab, token)) {
        *allowed = qn_matcher_is_complete(m);
        return QN_OK;
    }
    return allows(m, token, text, size, allowed, err);
}

qn_status qn_matcher_mask(qn_matcher *m, uint32_t *bits, size_t words, qn_error *err)
{
    if (!m->grammar->vocab) {
        return qn__error(err, QN_ERR_ARGUMENT, "a grammar without a vocabulary has no mask");
    }
    size_t n = ((size_t)qn_vocab_size(m->grammar->vocab) + 31) / 32;
    if (words < n) {
        return qn__error(err, QN_ERR_ARGUMENT, "a mask needs %zu words, %zu are given", n, words);
    }
    if (m->waiting) {
        memset(bits, 0xFF, n * sizeof *bits);
        return QN_OK;
    }
    enter(m);
    qn_status status = qn__mask_fill(m, bits, err);
    leave(m);
    return status;
}
