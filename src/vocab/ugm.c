/*
 * ugm.c: unigram vocabularies ("t5"). A text is normalised (charsmap, spaces), then cut into the
 * tokens whose scores have the greatest sum.
 */
#include "vocab/charsmap.h"
#include "vocab/unicode.h"

#include "base/error.h"

#include <float.h>

#define UNKNOWN_PENALTY 10.0F
/* Normalised text may be this much longer than the text: more is a hostile charsmap. */
#define MAX_GROWTH 64
#define SMALL_TEXT 65536

typedef struct ugm_state {
    qn_charsmap charsmap;
    qn_trie tokens; /* NORMAL, USER_DEFINED and UNUSED ones */
    qn_trie user;   /* USER_DEFINED ones */
    double *scores; /* by id; 0 for user-defined tokens */
    double unknown_score;
} ugm_state;

/* ---- Preparing ------------------------------------------------------------------------------- */

/* A trie of the tokens that have one of these attributes. */
static bool build_trie(const qn_vocab *v, uint32_t attributes, qn_trie *trie)
{
    qn_slice *texts = qn__calloc((size_t)v->n_tokens, sizeof *texts);
    size_t n = 0;
    for (int32_t id = 0; texts && id < v->n_tokens; id++) {
        if (v->tokens[id].attributes & attributes) {
            texts[n++] = (qn_slice){qn__vocab_text_of(v, id), v->tokens[id].text_size, id};
        }
    }
    bool good = texts && qn__trie_build(trie, texts, n);
    free(texts);
    return good;
}

static qn_status ugm_prepare(qn_vocab *v, const qn_vocab_source *from, qn_error *err)
{
    ugm_state *s = qn__calloc(1, sizeof *s);
    if (!s) {
        return qn__error_memory(err, "the vocabulary");
    }
    v->state = s;
    qn_status status = qn__charsmap_load(&s->charsmap, from, err);
    if (status != QN_OK) {
        return status;
    }
    s->scores = qn__calloc((size_t)v->n_tokens, sizeof *s->scores);
    if (!s->scores ||
        !build_trie(v, QN_TOKEN_NORMAL | QN_TOKEN_USER_DEFINED | QN_TOKEN_UNUSED, &s->tokens) ||
        !build_trie(v, QN_TOKEN_USER_DEFINED, &s->user)) {
        return qn__error_memory(err, "the vocabulary");
    }
    float lowest = FLT_MAX;
    for (int32_t id = 0; id < v->n_tokens; id++) {
        const qn_vocab_token *t = &v->tokens[id];
        s->scores[id] = t->attributes & QN_TOKEN_USER_DEFINED ? 0.0 : (double)t->score;
        if (t->attributes & QN_TOKEN_NORMAL && t->score < lowest) {
            lowest = t->score;
        }
    }
    s->unknown_score = (double)(lowest - UNKNOWN_PENALTY);
    return QN_OK;
}

static void ugm_release(void *state)
{
    ugm_state *s = state;
    if (s) {
        qn__charsmap_free(&s->charsmap);
        qn__trie_free(&s->tokens);
        qn__trie_free(&s->user);
        free(s->scores);
        free(s);
    }
}

/* ---- Normalising ----------------------------------------------------------------------------- */

typedef struct normalizer {
    qn_run *run;
    size_t limit;
    size_t size;
    bool in_word, prefixed;
} normalizer;

/* What stands for text[0, n)'s beginning: *size bytes at *out for *used bytes of text. */
static qn_status replace_prefix(const ugm_state *s, const char *text, size_t n, const char **out,
                                size_t *size, size_t *used, qn_error *err)
{
    /* As far as the bytes of any user-defined token go, text is kept, even into a token's middle.
     */
    size_t kept = 0;
    for (uint32_t node = 0; kept < n; kept++) {
        node = qn__trie_step(&s->user, node, (uint8_t)text[kept]);
        if (node == QN_TRIE_NONE) {
            break;
        }
    }
    *out = text;
    *size = kept;
    *used = kept;
    if (kept > 0) {
        return QN_OK;
    }
    qn_status status = qn__charsmap_match(&s->charsmap, text, n, used, out, size, err);
    if (status != QN_OK || *used > 0) {
        return status;
    }
    uint32_t point;
    *used = qn__decode_lenient(text, n, QN_LAST_LENIENT_POINT, &point);
    *out = text;
    *size = *used;
    if (*used == 1 && (uint8_t)text[0] >= 0x80) {
        *out = "\xEF\xBF\xBD";
        *size = 3;
    }
    return QN_OK;
}

static char *room_for(normalizer *m, size_t extra)
{
    char *out = qn__run_need(m->run, QN_SCRATCH_BYTES, m->size + extra, 1);
    return out ? out + m->size : NULL;
}

/* Puts out replaced bytes; runs of spaces are handled on the way. */
static qn_status put(normalizer *m, const char *bytes, size_t n)
{
    const qn_vocab *v = m->run->vocab;
    const char *mark = v->escape_whitespace ? QN_SPACE_MARK : " ";
    size_t mark_size = strlen(mark);
    if (n > m->limit - m->size || (n + 1) * QN_SPACE_MARK_SIZE > m->limit - m->size) {
        return qn__error(m->run->err, QN_ERR_LIMIT, "the normalised text is too long");
    }
    char *out = room_for(m, (n + 1) * QN_SPACE_MARK_SIZE);
    if (!out) {
        return qn__run_no_memory(m->run);
    }
    char *begin = out;
    for (size_t i = 0; i < n; i++) {
        bool space = bytes[i] == ' ';
        bool marked = space ? !v->remove_extra_whitespaces
                            : !m->in_word && ((v->add_space_prefix && !m->prefixed) ||
                                              v->remove_extra_whitespaces);
        if (marked) {
            memcpy(out, mark, mark_size);
            out += mark_size;
            m->prefixed = m->prefixed || !space;
        }
        if (!space) {
            *out++ = bytes[i];
        }
        m->in_word = !space;
    }
    m->size += (size_t)(out - begin);
    return QN_OK;
}

/* ---- Best segmentation ----------------------------------------------------------------------- */

typedef struct step {
    double score;
    uint32_t start; /* of the token that ends here */
    int32_t id;     /* -1: unknown */
} step;

static void find_best(const ugm_state *s, const char *text, size_t n, step *best)
{
    for (size_t i = 0; i <= n; i++) {
        best[i] = (step){-DBL_MAX, 0, -1};
    }
    best[0].score = 0.0;
    for (size_t i = 0; i < n;) {
        size_t length = qn__lead_length((uint8_t)text[i], n - i);
        bool covered = false;
        uint32_t node = 0;
        for (size_t end = i; end < n;) {
            node = qn__trie_step(&s->tokens, node, (uint8_t)text[end++]);
            if (node == QN_TRIE_NONE) {
                break;
            }
            int32_t id = s->tokens.value[node];
            if (id < 0) {
                continue;
            }
            covered = covered || end == i + length;
            double score = best[i].score + s->scores[id];
            if (score > best[end].score) {
                best[end] = (step){score, (uint32_t)i, id};
            }
        }
        double score = best[i].score + s->unknown_score;
        if (!covered && score > best[i + length].score) {
            best[i + length] = (step){score, (uint32_t)i, -1};
        }
        i += length;
    }
}

static qn_status emit_best(qn_run *run, const step *best, size_t n, int32_t *path)
{
    size_t count = 0; /* ids from the end; several unknown ones in a row are one */
    for (size_t at = n; at > 0; at = best[at].start) {
        if (best[at].id >= 0 || count == 0 || path[count - 1] >= 0) {
            path[count++] = best[at].id;
        }
    }
    qn_status status = QN_OK;
    while (status == QN_OK && count-- > 0) {
        int32_t id = path[count] >= 0 ? path[count] : run->vocab->roles[QN_ROLE_UNK];
        status = id >= 0 ? qn__run_emit(run, id) : qn__run_no_token(run, "unknown text");
    }
    return status;
}

static qn_status ugm_fragment(qn_run *run, const char *text, size_t n)
{
    const ugm_state *s = run->vocab->state;
    normalizer m = {.run = run, .limit = n * MAX_GROWTH + SMALL_TEXT};
    if (m.limit > INT32_MAX) {
        m.limit = INT32_MAX;
    }
    for (size_t at = 0; at < n;) {
        const char *bytes;
        size_t size;
        size_t used;
        qn_status status = replace_prefix(s, text + at, n - at, &bytes, &size, &used, run->err);
        if (status == QN_OK) {
            status = put(&m, bytes, size);
        }
        if (status != QN_OK) {
            return status;
        }
        at += used;
    }
    const char *normalized = run->scratch[QN_SCRATCH_BYTES].data;
    step *best = qn__run_need(run, QN_SCRATCH_SYMBOLS, m.size + 1, sizeof *best);
    int32_t *path = qn__run_need(run, QN_SCRATCH_PATH, m.size + 1, sizeof *path);
    if (!best || !path) {
        return qn__run_no_memory(run);
    }
    find_best(s, normalized, m.size, best);
    return emit_best(run, best, m.size, path);
}

const qn_tokenizer qn__tokenizer_ugm = {ugm_prepare, ugm_fragment, ugm_release};
