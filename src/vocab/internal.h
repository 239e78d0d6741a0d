/*
 * internal.h: what the files of the vocabulary room share.
 *
 * Loading (load.c) reads the metadata into a qn_vocab, lets the tokenizer model prepare its own
 * tables (spm.c, bpe.c, …), finds the special tokens (special.c) and caches what every token prints
 * as (piece.c). Tokenizing (tokenize.c) cuts a text at special tokens (split.c) and gives the raw
 * stretches between to the tokenizer model.
 */
#ifndef QUERN_VOCAB_INTERNAL_H
#define QUERN_VOCAB_INTERNAL_H

#include "vocab/pieces.h"
#include "vocab/text_map.h"
#include "vocab/trie.h"
#include "vocab/vocab.h"

#include "base/mem.h"

#include <stdlib.h>

#define QN_VOCAB_MAX_TOKENS     (1 << 24)
#define QN_VOCAB_MAX_TEXT_BYTES ((size_t)1 << 30) /* of all tokens, or of all merges */
/* Of one text; inside, a byte can become three, and positions are 31 bits. */
#define QN_TOKENIZE_MAX_BYTES ((size_t)1 << 29)

/* U+2581, the space inside many vocabularies. */
#define QN_SPACE_MARK      "\xE2\x96\x81"
#define QN_SPACE_MARK_SIZE 3

/* ---- The vocabulary -------------------------------------------------------------------------- */

typedef struct qn_vocab_token {
    uint32_t text, text_size;   /* in texts */
    uint32_t piece, piece_size; /* in pieces */
    float score;
    uint32_t attributes;
} qn_vocab_token;

typedef struct qn_run qn_run;

/* Where a vocabulary is read from. */
typedef struct qn_vocab_source {
    const qn_gguf *gguf;
    const char *file; /* for messages */
    const qn_log *log;
} qn_vocab_source;

/* A tokenizer model. */
typedef struct qn_tokenizer {
    /* Builds what it needs in vocab->state; the tokens are there, special ids are not. */
    qn_status (*prepare)(qn_vocab *vocab, const qn_vocab_source *from, qn_error *err);
    /* Puts out the tokens of a raw stretch of text, n > 0. */
    qn_status (*fragment)(qn_run *run, const char *text, size_t n);
    void (*release)(void *state); /* NULL state is fine */
} qn_tokenizer;

extern const qn_tokenizer qn__tokenizer_spm, qn__tokenizer_bpe, qn__tokenizer_wpm,
    qn__tokenizer_ugm, qn__tokenizer_rwkv, qn__tokenizer_plamo2, qn__tokenizer_hybriddna,
    qn__tokenizer_whitespace, qn__tokenizer_test;

/* Special tokens in the order of section 5: longest text first, then by id. */
typedef struct qn_special_list {
    int32_t *ids;
    uint32_t *sizes;
    size_t count;
    qn_trie all;   /* values: places in the list */
    qn_trie plain; /* only those that are matched without parse_special */
    bool strips;   /* some token has LSTRIP or RSTRIP */
} qn_special_list;

struct qn_vocab {
    qn_vocab_kind kind;
    const qn_tokenizer *tokenizer;
    const struct qn_pre_row *pre; /* BPE only */
    int32_t n_tokens;
    uint32_t longest; /* bytes of the longest token text */
    qn_vocab_token *tokens;
    char *texts, *pieces; /* each text and piece has a NUL behind it */
    qn_arena arena;       /* texts in the map that are not in texts */
    qn_text_map map;      /* indices below n_tokens are ids; the tokenizer model may add more */
    void *state;          /* of the tokenizer model */
    qn_pieces_slot *pieces_slot;

    int32_t roles[QN_ROLE_COUNT];
    bool *ends; /* by id: ends generation */
    int32_t *suppressed;
    size_t n_suppressed;
    qn_special_list special;

    bool add_space_prefix, escape_whitespace, clean_spaces, remove_extra_whitespaces;
    bool add_bos, add_eos, add_sep;
    bool ignore_merges, byte_alphabet, newline_rule;
    bool lowercase, strip_accents;
};

static inline const char *qn__vocab_text_of(const qn_vocab *v, int32_t id)
{
    return v->texts + v->tokens[id].text;
}

/* Id of the token with that text, or -1. */
static inline int32_t qn__vocab_id_of(const qn_vocab *v, const char *text, size_t size)
{
    int32_t id = qn__text_map_find(&v->map, text, size);
    return id < v->n_tokens ? id : -1;
}

/* Ids of the tokens "<0x00>" … "<0xFF>", -1 where there is none. */
void qn__vocab_byte_tokens(const qn_vocab *v, int32_t ids[256]);

/* "FILE: KEY: what" */
qn_status qn__vocab_error(const qn_vocab_source *from, qn_error *err, qn_status code,
                          const char *key, const char *format, ...) QN_PRINTF(5, 6);
void qn__vocab_warn(const qn_vocab_source *from, const char *format, ...) QN_PRINTF(2, 3);

/* special.c: special ids by text, end-of-generation set, strip attributes, the special list. */
qn_status qn__vocab_find_special(qn_vocab *v, const qn_vocab_source *from, qn_error *err);

/* piece.c: what every token prints as. */
qn_status qn__vocab_make_pieces(qn_vocab *v, qn_error *err);

/* bpe.c: the byte that a code point of the byte alphabet stands for; -1 for a point outside it. */
int qn__point_to_byte(uint32_t point);

/* rwkv.c: the bytes that an escaped token text stands for; `out` has room for n. */
size_t qn__rwkv_unescape(const char *text, size_t n, char *out);

/* ---- A run of the tokenizer ------------------------------------------------------------------ */

/* A block that grows and is used again: contents up to the old capacity are kept. */
typedef struct qn_vec {
    void *data;
    size_t bytes;
} qn_vec;

/* The block with room for `count` elements of `size` bytes; NULL without memory. */
void *qn__vec_need(qn_vec *vec, size_t count, size_t size);

enum {
    QN_SCRATCH_POINTS,  /* code points of a fragment */
    QN_SCRATCH_CLASSES, /* class text */
    QN_SCRATCH_STEP,    /* class text of one step */
    QN_SCRATCH_CUTS,    /* ends of segments */
    QN_SCRATCH_CUTS_2,
    QN_SCRATCH_BYTES,
    QN_SCRATCH_BYTES_2,
    QN_SCRATCH_SYMBOLS,
    QN_SCRATCH_HEAP,
    QN_SCRATCH_PATH,
    QN_SCRATCH_COUNT
};

struct qn_run {
    const qn_vocab *vocab;
    qn_tokens *out;
    bool space_prefix; /* SPM: this fragment gets a space in front, if the vocabulary wants one */
    qn_error *err;
    qn_vec scratch[QN_SCRATCH_COUNT];
    struct qn_regex_run *regex; /* pretok.c */
};

static inline void *qn__run_need(qn_run *run, int which, size_t count, size_t size)
{
    return qn__vec_need(&run->scratch[which], count, size);
}

/* Puts out one id. */
qn_status qn__run_emit(qn_run *run, int32_t id);

/* QN_ERR_MEMORY with the usual message. */
qn_status qn__run_no_memory(qn_run *run);

/* QN_ERR_NOT_FOUND: the vocabulary lacks a token for something. */
qn_status qn__run_no_token(qn_run *run, const char *what);

/* Tokenizes raw text with nothing around it (no special tokens); appends to `out`. */
qn_status qn__vocab_tokenize_raw(const qn_vocab *v, const char *text, size_t size, qn_tokens *out,
                                 qn_error *err);

/* bpe.c: for the models that stand on BPE. */
qn_status qn__bpe_fragment(qn_run *run, const char *text, size_t n);
qn_status qn__bpe_word(qn_run *run, const char *word, size_t n);

/* ---- split.c --------------------------------------------------------------------------------- */

typedef struct qn_fragment {
    int32_t id; /* -1: raw text */
    uint32_t start, size;
} qn_fragment;

/* Cuts text at special tokens into *fragments (to be freed), *count of them. */
qn_status qn__vocab_split(const qn_vocab *v, const char *text, size_t n, bool parse_special,
                          qn_fragment **fragments, size_t *count, qn_error *err);

#endif
