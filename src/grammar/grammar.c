/* grammar.c: making grammars and matchers, and giving them back. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/internal.h"

qn_grammar_options qn_grammar_defaults(void)
{
    return (qn_grammar_options){.root = "root"};
}

static void destroy(qn_grammar *g)
{
    qn__masks_free(&g->masks);
    qn__triggers_free(g->triggers);
    qn__places_free(&g->places);
    qn__rules_free(&g->rules);
    pthread_cond_destroy(&g->idle);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static qn_grammar *begin(const qn_vocab *vocab, qn_error *err)
{
    qn_grammar *g = qn__calloc(1, sizeof *g);
    if (!g || pthread_mutex_init(&g->lock, NULL) != 0) {
        free(g);
        qn__error_memory(err, "grammar");
        return NULL;
    }
    if (pthread_cond_init(&g->idle, NULL) != 0) {
        pthread_mutex_destroy(&g->lock);
        free(g);
        qn__error_memory(err, "grammar");
        return NULL;
    }
    g->users = 1;
    g->vocab = vocab;
    if (vocab) {
        qn__masks_prepare(&g->masks, vocab);
    }
    return g;
}

qn_status qn_grammar_parse(const char *text, size_t size, const qn_vocab *vocab,
                           const qn_grammar_options *options, qn_grammar **out, qn_error *err)
{
    qn_grammar_options o = options ? *options : qn_grammar_defaults();
    *out = NULL;
    if (o.lazy && o.n_triggers == 0) {
        return qn__error(err, QN_ERR_ARGUMENT, "no triggers set for lazy grammar!");
    }
    qn_grammar *g = begin(vocab, err);
    if (!g) {
        return QN_ERR_MEMORY;
    }
    qn_status status = qn__rules_parse(&g->rules, text, size, o.root ? o.root : "root", vocab, err);
    if (status == QN_OK) {
        status = qn__places_make(&g->places, &g->rules, err);
    }
    if (status == QN_OK && vocab) {
        g->pieces = qn__vocab_pieces(vocab, err);
        status = g->pieces ? QN_OK : QN_ERR_MEMORY;
    }
    if (status == QN_OK && o.lazy) {
        status = qn__triggers_make(o.triggers, o.n_triggers, &g->triggers, err);
    }
    if (status != QN_OK) {
        destroy(g);
        return status;
    }
    *out = g;
    return QN_OK;
}

void qn_grammar_free(qn_grammar *grammar)
{
    if (!grammar) {
        return;
    }
    pthread_mutex_lock(&grammar->lock);
    bool last = --grammar->users == 0;
    pthread_mutex_unlock(&grammar->lock);
    if (last) {
        destroy(grammar);
    }
}

const qn_vocab *qn_grammar_vocab(const qn_grammar *grammar)
{
    return grammar->vocab;
}

qn_status qn_matcher_make(qn_grammar *grammar, qn_matcher **out, qn_error *err)
{
    qn_matcher *m = qn__calloc(1, sizeof *m);
    size_t depth = grammar->pieces ? grammar->pieces->longest : 0;
    bool lazy = grammar->triggers != NULL;
    *out = m;
    if (!m || !(m->walk = qn__calloc(depth + 1, sizeof *m->walk)) ||
        (lazy &&
         !(m->from = qn__calloc(qn__triggers_count(grammar->triggers) + 1, sizeof *m->from)))) {
        free(m ? m->walk : NULL);
        free(m);
        *out = NULL;
        return qn__error_memory(err, "matcher of a grammar");
    }
    m->grammar = grammar;
    pthread_mutex_lock(&grammar->lock);
    grammar->users++;
    m->next = grammar->matchers;
    m->link = &grammar->matchers;
    if (m->next) {
        m->next->link = &m->next;
    }
    grammar->matchers = m;
    m->place = grammar->places.start;
    pthread_mutex_unlock(&grammar->lock);
    m->waiting = lazy;
    return QN_OK;
}

void qn_matcher_free(qn_matcher *m)
{
    if (!m) {
        return;
    }
    qn_grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    *m->link = m->next;
    if (m->next) {
        m->next->link = m->link;
    }
    pthread_mutex_unlock(&g->lock);
    qn__buf_free(&m->seen);
    free(m->tokens);
    free(m->from);
    free(m->walk);
    free(m);
    qn_grammar_free(g);
}

qn_status qn_matcher_copy(qn_matcher *to, const qn_matcher *from, qn_error *err)
{
    if (to == from) {
        return QN_OK;
    }
    if (to->grammar != from->grammar) {
        return qn__error(err, QN_ERR_ARGUMENT, "cannot copy the state of one grammar to another");
    }
    if (from->waiting) {
        size_t n = from->n_tokens;
        to->seen.size = 0;
        if (!qn__buf_add(&to->seen, from->seen.data, from->seen.size) ||
            !qn__grow(&to->tokens, &to->tokens_room, n, sizeof *to->tokens)) {
            return qn__error_memory(err, "copy of a matcher");
        }
        if (n > 0) {
            memcpy(to->tokens, from->tokens, n * sizeof *to->tokens);
        }
        to->n_tokens = n;
        memcpy(to->from, from->from,
               qn__triggers_count(from->grammar->triggers) * sizeof *to->from);
    }
    to->waiting = from->waiting;
    pthread_mutex_lock(&to->grammar->lock);
    to->place = from->place;
    pthread_mutex_unlock(&to->grammar->lock);
    return QN_OK;
}

qn_status qn_matcher_clone(const qn_matcher *m, qn_matcher **out, qn_error *err)
{
    qn_status status = qn_matcher_make(m->grammar, out, err);
    if (status == QN_OK) {
        status = qn_matcher_copy(*out, m, err);
        if (status != QN_OK) {
            qn_matcher_free(*out);
            *out = NULL;
        }
    }
    return status;
}

void qn_matcher_reset(qn_matcher *m)
{
    pthread_mutex_lock(&m->grammar->lock);
    m->place = m->grammar->places.start;
    pthread_mutex_unlock(&m->grammar->lock);
    m->waiting = m->grammar->triggers != NULL;
    m->seen.size = 0;
    m->n_tokens = 0;
    if (m->from) {
        memset(m->from, 0, qn__triggers_count(m->grammar->triggers) * sizeof *m->from);
    }
}
