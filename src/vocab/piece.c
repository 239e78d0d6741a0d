/* piece.c: ids to text: what each token prints as (made once, at loading), whole texts, and text as
 * it is generated. */
#include "vocab/internal.h"
#include "vocab/unicode.h"

#include "base/error.h"
#include "base/utf8.h"

/* ---- Pieces ---------------------------------------------------------------------------------- */

static void add_spaces_shown(qn_buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= QN_SPACE_MARK_SIZE &&
            memcmp(text + i, QN_SPACE_MARK, QN_SPACE_MARK_SIZE) == 0) {
            qn__buf_add_byte(out, ' ');
            i += QN_SPACE_MARK_SIZE;
        } else {
            qn__buf_add_byte(out, (uint8_t)text[i++]);
        }
    }
}

/* Byte alphabet to bytes; what is outside it is named. */
static void add_bytes_decoded(qn_buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t point;
        i += qn__decode_lenient(text + i, n - i, QN_LAST_POINT, &point);
        int byte = qn__point_to_byte(point);
        if (byte >= 0) {
            qn__buf_add_byte(out, (uint8_t)byte);
            continue;
        }
        char utf8[4];
        int size = qn__utf8_encode(point, utf8);
        qn__buf_add_text(out, "[UNK_BYTE_0x");
        for (int k = 0; k < size; k++) {
            qn__buf_printf(out, "%02x", (unsigned)(uint8_t)utf8[k]);
        }
        qn__buf_add(out, text, n);
        qn__buf_add_byte(out, ']');
    }
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 0;
}

/* The byte of a token "<0xXX>", nothing for another text. */
static void add_byte_token(qn_buf *out, const char *text, size_t n)
{
    if (n >= 5) {
        qn__buf_add_byte(out, (uint8_t)(hex_value(text[3]) * 16 + hex_value(text[4])));
    }
}

static bool add_unescaped(qn_buf *out, const char *text, size_t n)
{
    if (!qn__buf_reserve(out, n)) {
        return false;
    }
    out->size += qn__rwkv_unescape(text, n, (char *)out->data + out->size);
    return true;
}

static void add_piece(const qn_vocab *v, int32_t id, qn_buf *out)
{
    const uint32_t verbatim = QN_TOKEN_UNKNOWN | QN_TOKEN_CONTROL | QN_TOKEN_USER_DEFINED;
    const char *text = qn__vocab_text_of(v, id);
    size_t n = v->tokens[id].text_size;
    uint32_t attributes = v->tokens[id].attributes;
    if (v->kind == QN_VOCAB_RWKV) {
        add_unescaped(out, text, n);
    } else if (v->kind == QN_VOCAB_TEST) {
        qn__buf_printf(out, "%x", (unsigned)id);
    } else if (v->kind == QN_VOCAB_PLAMO2 && !(attributes & QN_TOKEN_BYTE)) {
        qn__buf_add(out, text, n);
    } else if (v->kind != QN_VOCAB_PLAMO2 && attributes & verbatim) {
        qn__buf_add(out, text, n);
    } else if (v->kind != QN_VOCAB_PLAMO2 && attributes & QN_TOKEN_NORMAL) {
        if (v->kind == QN_VOCAB_BPE && !v->escape_whitespace) {
            add_bytes_decoded(out, text, n);
        } else {
            add_spaces_shown(out, text, n);
        }
    } else if (attributes & QN_TOKEN_BYTE) {
        add_byte_token(out, text, n);
    }
}

qn_status qn__vocab_make_pieces(qn_vocab *v, qn_error *err)
{
    qn_buf pieces = {0};
    for (int32_t id = 0; id < v->n_tokens && !pieces.failed; id++) {
        size_t start = pieces.size;
        add_piece(v, id, &pieces);
        /* Texts outside the byte alphabet grow with the square of their length. */
        if (pieces.size > QN_VOCAB_MAX_TEXT_BYTES) {
            qn__buf_free(&pieces);
            return qn__error(err, QN_ERR_LIMIT, "the printed texts of the tokens are too long");
        }
        v->tokens[id].piece = (uint32_t)start;
        v->tokens[id].piece_size = (uint32_t)(pieces.size - start);
        qn__buf_add_byte(&pieces, 0);
    }
    v->pieces = (char *)pieces.data;
    return pieces.failed ? qn__error_memory(err, "the tokens") : QN_OK;
}

const char *qn_vocab_piece(const qn_vocab *v, int32_t id, bool special, size_t *size)
{
    size_t ignored;
    size_t *n = size ? size : &ignored;
    *n = 0;
    if (id < 0 || id >= v->n_tokens) {
        return NULL;
    }
    if (!special && v->tokens[id].attributes & (QN_TOKEN_UNKNOWN | QN_TOKEN_CONTROL)) {
        return "";
    }
    *n = v->tokens[id].piece_size;
    return v->pieces + v->tokens[id].piece;
}

/* ---- Whole texts ----------------------------------------------------------------------------- */

/* text[0, n) without the bytes for which `drop` says how many to leave out; returns the new size.
 * `drop` looks at the text as it was: it gets the byte before, which may be overwritten. */
typedef size_t (*drop_fn)(const char *at, size_t left, size_t *keep);

static size_t drop_before_mark(const char *at, size_t left, size_t *keep)
{
    (void)keep;
    return at[0] == ' ' && left > 1 && memchr("?!.,", at[1], 4) ? 1 : 0;
}

static size_t drop_around_quote(const char *at, size_t left, size_t *keep)
{
    if (left >= 3 && memcmp(at, " ' ", 3) == 0) {
        *keep = 1; /* the quote, between the two spaces */
        return 3;
    }
    return 0;
}

static size_t drop_before_contraction(const char *at, size_t left, size_t *keep)
{
    static const char *const tails[] = {"'s", "'m", "'re", "'ve"};
    (void)keep;
    for (int i = 0; i < 4 && at[0] == ' '; i++) {
        size_t size = strlen(tails[i]);
        if (left > size && memcmp(at + 1, tails[i], size) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Three passes, each over what the one before left. */
static size_t clean_spaces(char *text, size_t n)
{
    static const drop_fn passes[] = {drop_before_mark, drop_around_quote, drop_before_contraction};
    for (int pass = 0; pass < 3; pass++) {
        size_t out = 0;
        for (size_t i = 0; i < n;) {
            size_t keep = 0;
            size_t drop = passes[pass](text + i, n - i, &keep);
            if (drop == 0) {
                text[out++] = text[i++];
            } else {
                if (keep > 0) {
                    text[out++] = text[i + keep];
                }
                i += drop;
            }
        }
        n = out;
    }
    return n;
}

qn_status qn_vocab_detokenize(const qn_vocab *v, const int32_t *ids, size_t count, unsigned flags,
                              char *text, size_t capacity, size_t *size, qn_error *err)
{
    bool strip = v->add_space_prefix;
    bool special = (flags & QN_DETOKENIZE_UNPARSE_SPECIAL) != 0;
    if (flags & QN_DETOKENIZE_REMOVE_SPECIAL) {
        if (v->add_bos && count > 0 && ids[0] >= 0 && ids[0] == v->roles[QN_ROLE_BOS]) {
            ids++;
            count--;
            strip = false;
        }
        if (v->add_eos && count > 0 && ids[count - 1] >= 0 &&
            ids[count - 1] == v->roles[QN_ROLE_EOS]) {
            count--;
        }
    }
    qn_buf joined = {0};
    for (size_t i = 0; i < count; i++) {
        size_t n;
        const char *piece = qn_vocab_piece(v, ids[i], special, &n);
        if (!piece) {
            qn__buf_free(&joined);
            return qn__error(err, QN_ERR_ARGUMENT, "there is no token %d in the vocabulary",
                             (int)ids[i]);
        }
        bool cut = i == 0 && strip && n > 0 && piece[0] == ' ';
        qn__buf_add(&joined, piece + cut, n - cut);
    }
    if (joined.failed) {
        qn__buf_free(&joined);
        return qn__error_memory(err, "a text");
    }
    if (v->clean_spaces) {
        joined.size = clean_spaces((char *)joined.data, joined.size);
    }
    size_t fits = joined.size < capacity ? joined.size : capacity;
    if (fits > 0) {
        memcpy(text, joined.data, fits);
    }
    *size = joined.size;
    qn__buf_free(&joined);
    return QN_OK;
}

/* ---- Streaming ------------------------------------------------------------------------------- */

#define HELD_MOST 3 /* bytes of an unfinished character */

struct qn_detokenizer {
    const qn_vocab *vocab;
    bool special;
    size_t shown; /* bytes that the last call handed out, at its start */
    size_t size;
    char text[]; /* room for what is held and the longest piece */
};

qn_status qn_detokenizer_make(const qn_vocab *v, bool special, qn_detokenizer **out, qn_error *err)
{
    size_t longest = 0;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        longest = v->tokens[id].piece_size > longest ? v->tokens[id].piece_size : longest;
    }
    qn_detokenizer *d = qn__calloc(1, sizeof *d + HELD_MOST + longest + 1);
    if (!d) {
        return qn__error_memory(err, "a detokenizer");
    }
    d->vocab = v;
    d->special = special;
    *out = d;
    return QN_OK;
}

void qn_detokenizer_free(qn_detokenizer *d)
{
    free(d);
}

const char *qn_detokenizer_add(qn_detokenizer *d, int32_t id, size_t *size)
{
    size_t n;
    const char *piece = qn_vocab_piece(d->vocab, id, d->special, &n);
    d->size -= d->shown;
    memmove(d->text, d->text + d->shown, d->size);
    if (n > 0) {
        memcpy(d->text + d->size, piece, n);
        d->size += n;
    }
    d->shown = qn__utf8_complete(d->text, d->size);
    *size = d->shown;
    return d->text;
}

const char *qn_detokenizer_finish(qn_detokenizer *d, size_t *size)
{
    const char *rest = d->text + d->shown;
    *size = d->size - d->shown;
    d->shown = 0;
    d->size = 0;
    return rest;
}
