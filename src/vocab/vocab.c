/* vocab.c: what a vocabulary tells about itself. */
#include "vocab/internal.h"

#include <stdio.h>

#include "base/error.h"

static bool has(const qn_vocab *v, int32_t id)
{
    return id >= 0 && id < v->n_tokens;
}

qn_vocab_kind qn_vocab_get_kind(const qn_vocab *v)
{
    return v->kind;
}

const char *qn_vocab_kind_name(qn_vocab_kind kind)
{
    static const char *const kinds[] = {"none", "SPM",  "BPE",     "WPM",
                                        "UGM",  "RWKV", "PLaMo-2", "test"};
    size_t i = (size_t)kind;
    return i < sizeof kinds / sizeof kinds[0] ? kinds[i] : "?";
}

int32_t qn_vocab_size(const qn_vocab *v)
{
    return v->n_tokens;
}

const char *qn_vocab_text(const qn_vocab *v, int32_t id, size_t *size)
{
    if (size) {
        *size = has(v, id) ? v->tokens[id].text_size : 0;
    }
    return has(v, id) ? qn__vocab_text_of(v, id) : NULL;
}

float qn_vocab_score(const qn_vocab *v, int32_t id)
{
    return has(v, id) ? v->tokens[id].score : 0.0F;
}

uint32_t qn_vocab_attributes(const qn_vocab *v, int32_t id)
{
    return has(v, id) ? v->tokens[id].attributes : 0;
}

int32_t qn_vocab_find(const qn_vocab *v, const char *text, size_t size)
{
    return qn__vocab_id_of(v, text, size);
}

int32_t qn_vocab_special(const qn_vocab *v, qn_vocab_role role)
{
    return (size_t)role < QN_ROLE_COUNT ? v->roles[role] : -1;
}

bool qn_vocab_is_control(const qn_vocab *v, int32_t id)
{
    return (qn_vocab_attributes(v, id) & QN_TOKEN_CONTROL) != 0;
}

bool qn_vocab_is_end(const qn_vocab *v, int32_t id)
{
    return has(v, id) && v->ends[id];
}

bool qn_vocab_add_bos(const qn_vocab *v)
{
    return v->add_bos;
}

bool qn_vocab_add_eos(const qn_vocab *v)
{
    return v->add_eos;
}

bool qn_vocab_add_sep(const qn_vocab *v)
{
    return v->add_sep;
}

const int32_t *qn_vocab_suppressed(const qn_vocab *v, size_t *count)
{
    *count = v->n_suppressed;
    return v->suppressed;
}

void qn__vocab_byte_tokens(const qn_vocab *v, int32_t ids[256])
{
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        ids[b] = qn__vocab_id_of(v, text, 6);
    }
}

qn_status qn__vocab_error(const qn_vocab_source *from, qn_error *err, qn_status code,
                          const char *key, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return qn__error(err, code, "%s: %s: %s", from->file, key, what);
}

void qn__vocab_warn(const qn_vocab_source *from, const char *format, ...)
{
    if (!from->log) {
        return;
    }
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    qn__log_line(from->log, QN_LOG_WARN, "%s: %s", from->file, what);
}
