/*
 * pieces.h: what the tokens print as, in the order of their bytes: a trie of the vocabulary,
 * written as the walk through it. Entry i shares its first `shared` bytes with the entry before it
 * and adds `added` bytes of the stream; who walks keeps a state for each depth. The entries that
 * share the first added byte with entry i are those before entry `next`: its branch.
 */
#ifndef QUERN_VOCAB_PIECES_H
#define QUERN_VOCAB_PIECES_H

#include <quern/vocab.h>

typedef struct qn_piece {
    uint64_t groups; /* of all bytes that its branch adds: bit qn__byte_group(byte) each */
    uint32_t shared, added;
    uint32_t at; /* the added bytes: stream[at ..] */
    uint32_t next;
    uint32_t reach; /* bytes behind the shared ones of the longest piece of its branch */
} qn_piece;

/* Control tokens print as their text. Left out: tokens that end generation, print as nothing or
 * begin with NUL. */
typedef struct qn_pieces {
    qn_piece *entries;
    int32_t *ids; /* of the entries */
    uint8_t *stream;
    uint32_t count;
    uint32_t longest; /* bytes of the longest piece */
    int32_t *ends;    /* tokens that end generation */
    uint32_t n_ends;
} qn_pieces;

/* Bytes in few groups, so that a set of them is one number: what grammars often treat alike is
 * together. All bytes that are not ASCII are QN_BYTE_GROUP_OTHER; no other group is above 61. */
enum { QN_BYTE_GROUP_OTHER = 63 };
uint32_t qn__byte_group(uint8_t byte);

/* Where a vocabulary keeps its pieces, which are made when first asked for. */
typedef struct qn_pieces_slot qn_pieces_slot;
qn_pieces_slot *qn__pieces_slot_make(void);
void qn__pieces_slot_free(qn_pieces_slot *slot);

/* The pieces of a vocabulary, valid as long as it is; NULL on failure. Thread safe. */
const qn_pieces *qn__vocab_pieces(const qn_vocab *vocab, qn_error *err);

#endif
