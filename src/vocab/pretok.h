/*
 * pretok.h: pre-tokenization, the first cut of byte-pair vocabularies: a pattern set cuts a text
 * into words that merges never cross.
 */
#ifndef QUERN_VOCAB_PRETOK_H
#define QUERN_VOCAB_PRETOK_H

#include "vocab/internal.h"

/* Code points that one step tells apart from their class: pairs of first and last, ascending. */
typedef struct qn_point_set {
    const uint32_t *pairs;
    size_t count; /* pairs */
} qn_point_set;

typedef enum qn_pretok_kind {
    QN_PRETOK_PATTERN,
    QN_PRETOK_DIGITS3,     /* runs of numbers in threes from the right, no cut before the run */
    QN_PRETOK_SUPERDIGITS, /* runs of ASCII digits in threes from the right */
    QN_PRETOK_SPACE_RUNS   /* runs of spaces in powers of two, at most 512 */
} qn_pretok_kind;

#define QN_PRETOK_MAX_SETS  4
#define QN_PRETOK_MAX_STEPS 6

typedef struct qn_pretok_step {
    qn_pretok_kind kind;
    const char *pattern;                          /* over class text; see pretok_sets.c */
    const qn_point_set *sets[QN_PRETOK_MAX_SETS]; /* set k: bytes E0 + 2k (letters), E1 + 2k */
} qn_pretok_step;

typedef struct qn_pretok_set {
    const char *name;
    qn_pretok_step steps[QN_PRETOK_MAX_STEPS];
    size_t n_steps;
} qn_pretok_set;

/* Flags that go with a name of tokenizer.ggml.pre. */
enum {
    QN_PRE_IGNORE_MERGES = 1,
    QN_PRE_CLEAN = 2,
    QN_PRE_BOS = 4,
    QN_PRE_SEP = 8,
    QN_PRE_ESCAPE = 16, /* spaces become U+2581, words are plain UTF-8 */
    QN_PRE_RAW = 32,    /* words are plain UTF-8 */
    QN_PRE_FORCE_BOS = 64,
    QN_PRE_NEWLINES = 128,   /* words of newlines that are tokens are not merged */
    QN_PRE_NO_BOS_ID = 256,  /* no default BOS id */
    QN_PRE_NO_MERGES = 512,  /* merges may be missing */
    QN_PRE_KEEP_CASE = 1024, /* lowercase is off unless the file says otherwise */
};

typedef struct qn_pre_row {
    const char *name, *set;
    unsigned flags;
} qn_pre_row;

/* NULL for a name that is not known. */
const qn_pre_row *qn__pre_find(const char *name, size_t size);
const qn_pre_row *qn__pre_at(size_t index); /* NULL past the end */
const qn_pretok_set *qn__pretok_set_find(const char *name);

/* A pattern set that is ready to run. */
typedef struct qn_pretok qn_pretok;
qn_status qn__pretok_make(const char *set, qn_pretok **out, qn_error *err);
void qn__pretok_free(qn_pretok *p);

/*
 * Cuts points[0, n) into segments; *ends gets the position behind each, *count of them; both lie in
 * the run's scratch until its next use.
 */
qn_status qn__pretok_run(const qn_pretok *p, qn_run *run, const uint32_t *points, size_t n,
                         const uint32_t **ends, size_t *count);

/* Decodes text into the run's scratch: characters above U+10FFFF become U+FFFD for each byte. */
qn_status qn__pretok_decode(qn_run *run, const char *text, size_t n, uint32_t **points,
                            size_t *count);

struct qn_regex_run;
void qn__regex_run_free(struct qn_regex_run *r);

#endif
