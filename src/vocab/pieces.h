/*
 * pieces.h: what the tokens print as, in the order of their bytes: a trie of the vocabulary,
 * written as the walk through it. Entry i shares its first `shared` bytes with the entry before it
 * and adds `added` bytes of the stream; who walks keeps a state for each depth.
 */
#ifndef QUERN_VOCAB_PIECES_H
#define QUERN_VOCAB_PIECES_H

#include <quern/vocab.h>

typedef struct qn_piece {
    int32_t id;
    uint32_t shared, added;
    uint32_t at; /* the added bytes: stream[at ..] */
} qn_piece;

/* Control tokens print as their text. Left out: tokens that end generation, print as nothing or
 * begin with NUL. */
typedef struct qn_pieces {
    qn_piece *entries;
    uint8_t *stream;
    uint32_t count;
    uint32_t longest;    /* bytes of the longest piece */
    uint32_t first[257]; /* entries that begin with byte b: first[b] .. first[b + 1] - 1 */
    int32_t *ends;       /* tokens that end generation */
    uint32_t n_ends;
} qn_pieces;

/* Where a vocabulary keeps its pieces, which are made when first asked for. */
typedef struct qn_pieces_slot qn_pieces_slot;
qn_pieces_slot *qn__pieces_slot_make(void);
void qn__pieces_slot_free(qn_pieces_slot *slot);

/* The pieces of a vocabulary, valid as long as it is; NULL on failure. Thread safe. */
const qn_pieces *qn__vocab_pieces(const qn_vocab *vocab, qn_error *err);

#endif
