/*
 * quern/vocab.h: the vocabulary of a model: text to token ids and back.
 *
 * A vocabulary comes with a model (qn_model_vocab) or alone, from the metadata of a GGUF file. It
 * does not change after loading: all calls that take it const may run at the same time.
 *
 * Text is bytes with a length; NUL bytes are allowed and nothing has to be valid UTF-8. Token ids
 * are 0 .. qn_vocab_size() - 1; -1 stands for "none".
 */
#ifndef QUERN_VOCAB_H
#define QUERN_VOCAB_H

#include <quern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_vocab qn_vocab;

/* The tokenizer models. */
typedef enum qn_vocab_kind {
    QN_VOCAB_NONE = 0,   /* no texts: ids only */
    QN_VOCAB_SPM = 1,    /* pieces merged by score, byte fallback ("llama") */
    QN_VOCAB_BPE = 2,    /* pairs merged by rank ("gpt2", "gemma4", "hybriddna", "whitespace") */
    QN_VOCAB_WPM = 3,    /* WordPiece ("bert") */
    QN_VOCAB_UGM = 4,    /* unigram ("t5") */
    QN_VOCAB_RWKV = 5,   /* longest match of bytes ("rwkv") */
    QN_VOCAB_PLAMO2 = 6, /* cheapest segmentation from the right ("plamo2") */
    QN_VOCAB_TEST = 7    /* ids by hash, for tests of engines ("test") */
} qn_vocab_kind;

/* Attributes of a token: a set of bits. */
enum {
    QN_TOKEN_UNKNOWN = 1 << 0,
    QN_TOKEN_UNUSED = 1 << 1,
    QN_TOKEN_NORMAL = 1 << 2,
    QN_TOKEN_CONTROL = 1 << 3,      /* BOS, EOS, chat markers: not printed unless asked for */
    QN_TOKEN_USER_DEFINED = 1 << 4, /* always matched in text, always printed as it is */
    QN_TOKEN_BYTE = 1 << 5,         /* stands for one byte */
    QN_TOKEN_LSTRIP = 1 << 7,       /* swallows whitespace before it */
    QN_TOKEN_RSTRIP = 1 << 8        /* swallows whitespace after it */
};

/* Tokens with a role. */
typedef enum qn_vocab_role {
    QN_ROLE_BOS = 0, /* beginning of text; also CLS */
    QN_ROLE_EOS = 1, /* end of text */
    QN_ROLE_EOT = 2, /* end of turn */
    QN_ROLE_EOM = 3, /* end of message (tool call) */
    QN_ROLE_UNK = 4,
    QN_ROLE_SEP = 5,
    QN_ROLE_PAD = 6,
    QN_ROLE_MASK = 7,
    QN_ROLE_NEWLINE = 8,
    QN_ROLE_FIM_PREFIX = 9, /* fill in the middle */
    QN_ROLE_FIM_SUFFIX = 10,
    QN_ROLE_FIM_MIDDLE = 11,
    QN_ROLE_FIM_PAD = 12,
    QN_ROLE_FIM_REPO = 13, /* repository name */
    QN_ROLE_FIM_SEP = 14,  /* file separator */
    QN_ROLE_COUNT = 15
} qn_vocab_role;

/*
 * Loads the vocabulary alone from a model file; no weights are read. `log` may be NULL; it gets
 * warnings about odd metadata. Errors name the file and the key: those of qn_gguf_open, and
 * QN_ERR_FORMAT (a key is missing, has the wrong type or damaged content), QN_ERR_UNSUPPORTED (a
 * tokenizer model or pre-tokenizer that quern does not know), QN_ERR_LIMIT, QN_ERR_MEMORY.
 */
QN_API qn_status qn_vocab_load_file(const char *path, const qn_log *log, qn_vocab **out,
                                    qn_error *err);
/* Frees a vocabulary of qn_vocab_load_file (that of a model dies with the model). */
QN_API void qn_vocab_free(qn_vocab *vocab);

/* ---- What it holds --------------------------------------------------------------------------- */

QN_API qn_vocab_kind qn_vocab_get_kind(const qn_vocab *vocab);
QN_API const char *qn_vocab_kind_name(qn_vocab_kind kind); /* "SPM", …; "?" for no kind */

QN_API int32_t qn_vocab_size(const qn_vocab *vocab); /* number of tokens */

/* The token's entry in the file (not what it prints as), NUL-terminated, valid as long as the
 * vocabulary. *size (may be NULL) gets its bytes. NULL for an id out of range. */
QN_API const char *qn_vocab_text(const qn_vocab *vocab, int32_t id, size_t *size);
QN_API float qn_vocab_score(const qn_vocab *vocab, int32_t id);         /* 0 out of range */
QN_API uint32_t qn_vocab_attributes(const qn_vocab *vocab, int32_t id); /* QN_TOKEN_… */

/* The token whose entry is exactly this text, or -1. */
QN_API int32_t qn_vocab_find(const qn_vocab *vocab, const char *text, size_t size);

/* The token with that role, or -1 where the vocabulary has none. */
QN_API int32_t qn_vocab_special(const qn_vocab *vocab, qn_vocab_role role);

QN_API bool qn_vocab_is_control(const qn_vocab *vocab, int32_t id);
/* Whether generation ends with this token: EOS, EOT, and their like. */
QN_API bool qn_vocab_is_end(const qn_vocab *vocab, int32_t id);

QN_API bool qn_vocab_add_bos(const qn_vocab *vocab); /* a text begins with BOS */
QN_API bool qn_vocab_add_eos(const qn_vocab *vocab); /* a text ends with EOS */
QN_API bool qn_vocab_add_sep(const qn_vocab *vocab); /* SEP between query and document */

/* Ids that a sampler must never choose; *count of them. Valid as long as the vocabulary. */
QN_API const int32_t *qn_vocab_suppressed(const qn_vocab *vocab, size_t *count);

/* ---- Text to tokens -------------------------------------------------------------------------- */

enum {
    QN_TOKENIZE_ADD_SPECIAL = 1,  /* put BOS, EOS, … around the text as the vocabulary wants it */
    QN_TOKENIZE_PARSE_SPECIAL = 2 /* control tokens written in the text are recognised */
};

/* Token ids that grow. Zero-initialise; qn_tokens_free takes what is inside. */
typedef struct qn_tokens {
    int32_t *ids;
    size_t count, capacity;
} qn_tokens;

QN_API void qn_tokens_free(qn_tokens *tokens);
/* Appends `count` ids. */
QN_API qn_status qn_tokens_add(qn_tokens *tokens, const int32_t *ids, size_t count, qn_error *err);

/*
 * Appends the tokens of text[0, size) to `out`, which is unchanged on failure. `flags`:
 * QN_TOKENIZE_…. Time and memory grow with size (times log size), whatever the text.
 * Errors: QN_ERR_UNSUPPORTED (a vocabulary without texts), QN_ERR_NOT_FOUND (a token is needed that
 * the vocabulary lacks: BOS, or one for a byte), QN_ERR_LIMIT (more than 512 MiB of text),
 * QN_ERR_MEMORY.
 */
QN_API qn_status qn_vocab_tokenize(const qn_vocab *vocab, const char *text, size_t size,
                                   unsigned flags, qn_tokens *out, qn_error *err);

/*
 * The same into an array of the caller: *count gets the number of tokens that the text has; where
 * that is more than `capacity`, only the first `capacity` ids are stored (ids may be NULL with a
 * capacity of 0).
 */
QN_API qn_status qn_vocab_tokenize_into(const qn_vocab *vocab, const char *text, size_t size,
                                        unsigned flags, int32_t *ids, size_t capacity,
                                        size_t *count, qn_error *err);

/* ---- Tokens to text -------------------------------------------------------------------------- */

/*
 * The bytes that a token prints as (maybe a part of a character), NUL-terminated, valid as long as
 * the vocabulary; *size (may be NULL) gets their number. `special`: control and unknown tokens
 * print as their text, otherwise as nothing. NULL for an id out of range.
 */
QN_API const char *qn_vocab_piece(const qn_vocab *vocab, int32_t id, bool special, size_t *size);

enum {
    QN_DETOKENIZE_REMOVE_SPECIAL = 1, /* leave out the BOS and EOS that tokenizing added */
    QN_DETOKENIZE_UNPARSE_SPECIAL = 2 /* print control tokens */
};

/*
 * The text of a whole sequence: the reverse of tokenizing as far as the vocabulary allows (it may
 * drop the space that tokenizing put in front, and clean up spaces before punctuation). *size gets
 * the bytes of the text; where that is more than `capacity` only the first `capacity` bytes are
 * stored (text may be NULL with a capacity of 0). No NUL is added. `flags`: QN_DETOKENIZE_….
 * Errors: QN_ERR_ARGUMENT (an id out of range), QN_ERR_MEMORY.
 */
QN_API qn_status qn_vocab_detokenize(const qn_vocab *vocab, const int32_t *ids, size_t count,
                                     unsigned flags, char *text, size_t capacity, size_t *size,
                                     qn_error *err);

/*
 * Streaming: text as tokens come, never ending inside a UTF-8 character. Bytes that can never
 * become valid are handed on as they are. Belongs to one thread; allocates nothing after make.
 */
typedef struct qn_detokenizer qn_detokenizer;

/* `special`: print control tokens. The vocabulary must outlive it. */
QN_API qn_status qn_detokenizer_make(const qn_vocab *vocab, bool special, qn_detokenizer **out,
                                     qn_error *err);
QN_API void qn_detokenizer_free(qn_detokenizer *d);

/* Takes the next token; returns the bytes that can be shown now (maybe none), *size of them, valid
 * until the next call. An id out of range prints as nothing. */
QN_API const char *qn_detokenizer_add(qn_detokenizer *d, int32_t id, size_t *size);

/* The bytes still held back (an unfinished character) at the end of a text; starts anew. */
QN_API const char *qn_detokenizer_finish(qn_detokenizer *d, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
