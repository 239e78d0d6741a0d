/*
 * quern/grammar.h: text that obeys a grammar.
 *
 * A grammar is written in GBNF, or made from a JSON schema. It is compiled once and shared; a
 * matcher follows one text through it, character by character or token by token, and tells which
 * tokens may come next. The sampler form is qn_sampler_grammar in quern/sampler.h.
 *
 * What matching learns (states, steps between them, masks of the vocabulary) is kept with the
 * grammar, within limits, and serves all its matchers: clones cost a few bytes, and a state that
 * was seen before costs a look-up. Matchers of one grammar may be used by different threads; calls
 * then wait for each other, but not while a mask that is new is made. One matcher is used by one
 * thread at a time.
 */
#ifndef QUERN_GRAMMAR_H
#define QUERN_GRAMMAR_H

#include <quern/vocab.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled grammar. */
typedef struct qn_grammar qn_grammar;

/* What starts a lazy grammar. */
typedef enum qn_trigger_kind {
    QN_TRIGGER_TOKEN = 0,       /* this token */
    QN_TRIGGER_WORD = 1,        /* this text, anywhere */
    QN_TRIGGER_PATTERN = 2,     /* a regular expression (ECMAScript), found anywhere */
    QN_TRIGGER_PATTERN_FULL = 3 /* one that fits all the text so far */
} qn_trigger_kind;

typedef struct qn_trigger {
    qn_trigger_kind kind;
    const char *text; /* word or expression, NUL-terminated */
    int32_t token;    /* QN_TRIGGER_TOKEN */
} qn_trigger;

typedef struct qn_grammar_options {
    const char *root; /* the start rule: "root" */
    bool lazy;        /* let everything pass until a trigger fires */
    const qn_trigger *triggers;
    size_t n_triggers;
} qn_grammar_options;

QN_API qn_grammar_options qn_grammar_defaults(void);

/*
 * Compiles GBNF text. `vocab` (may be NULL: no token elements, no tokens to match) must outlive the
 * grammar; with its first grammar its pieces are sorted, once. NULL options: the defaults. Errors:
 * QN_ERR_FORMAT (the message says what was expected, then the rest of the text from there;
 * undefined rules; left recursion), QN_ERR_LIMIT (repetitions that blow up, nesting, size),
 * QN_ERR_ARGUMENT (lazy without triggers, a trigger that is no regular expression), QN_ERR_MEMORY.
 * Source: spec of GBNF as llama.cpp reads it.
 */
QN_API qn_status qn_grammar_parse(const char *text, size_t size, const qn_vocab *vocab,
                                  const qn_grammar_options *options, qn_grammar **out,
                                  qn_error *err);
/* Gives the grammar back; it lives on while it has matchers. */
QN_API void qn_grammar_free(qn_grammar *grammar);

/* The vocabulary that it was made with, or NULL. */
QN_API const qn_vocab *qn_grammar_vocab(const qn_grammar *grammar);

/*
 * GBNF text for the JSON values that fit a JSON schema, start rule "root". *text: NUL-terminated,
 * the caller's, given back with qn_grammar_text_free. *warnings (may be NULL) gets what of the
 * schema could not be honoured, one line, or NULL; given back in the same way. Errors:
 * QN_ERR_FORMAT with "JSON schema conversion failed:", a newline, and the place in the schema.
 */
QN_API qn_status qn_grammar_from_schema(const char *json, size_t size, char **text, char **warnings,
                                        qn_error *err);
QN_API void qn_grammar_text_free(char *text);

/* ---- Matching -------------------------------------------------------------------------------- */

typedef struct qn_matcher qn_matcher;

/* At the start of the grammar (of a lazy one: waiting). The grammar lives as long as its matchers.
 */
QN_API qn_status qn_matcher_make(qn_grammar *grammar, qn_matcher **out, qn_error *err);
QN_API void qn_matcher_free(qn_matcher *m);
QN_API qn_status qn_matcher_clone(const qn_matcher *m, qn_matcher **out, qn_error *err);
/* State of `from` into `to`; QN_ERR_ARGUMENT where they are of different grammars. */
QN_API qn_status qn_matcher_copy(qn_matcher *to, const qn_matcher *from, qn_error *err);
QN_API void qn_matcher_reset(qn_matcher *m);

/*
 * Goes on by a piece of text (bytes, may end inside a character), or by a token. QN_ERR_FORMAT
 * where the grammar does not allow it, QN_ERR_LIMIT where the grammar is too ambiguous to follow;
 * the matcher is then unchanged. A token that ends generation is allowed where a text is complete,
 * and changes nothing. While a lazy grammar waits, everything is allowed.
 */
QN_API qn_status qn_matcher_accept_text(qn_matcher *m, const char *text, size_t size,
                                        qn_error *err);
QN_API qn_status qn_matcher_accept_token(qn_matcher *m, int32_t token, qn_error *err);

/* Whether the text so far is a whole sentence of the grammar (also while waiting). */
QN_API bool qn_matcher_is_complete(const qn_matcher *m);
/* Whether a lazy grammar still waits for a trigger. */
QN_API bool qn_matcher_is_waiting(const qn_matcher *m);

/* Whether a token, or a token that prints as this text, may come next. */
QN_API qn_status qn_matcher_allows(qn_matcher *m, int32_t token, bool *allowed, qn_error *err);
QN_API qn_status qn_matcher_allows_text(qn_matcher *m, const char *text, size_t size, bool *allowed,
                                        qn_error *err);

/*
 * Which tokens may come next: bit i % 32 of bits[i / 32] is 1 where token i may. `words`: room,
 * at least ceil(vocabulary size / 32). QN_ERR_LIMIT where finding out takes too much work.
 */
QN_API qn_status qn_matcher_mask(qn_matcher *m, uint32_t *bits, size_t words, qn_error *err);

#ifdef __cplusplus
}
#endif
#endif
