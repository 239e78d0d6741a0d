/*
 * pretok.c: runs a pattern set over code points. See pretok.h, and pretok_sets.c for class texts.
 *
 * Each step cuts every segment of the step before: matches become segments, and so does each
 * stretch between them. A segment is matched alone, its ends are the ends of the input.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "vocab/pretok.h"
#include "vocab/unicode.h"

#define JIT_STACK_FIRST (32U << 10)
#define JIT_STACK_MOST  (16U << 20)
#define LONGEST_SPACES  512U

struct qn_pretok {
    const qn_pretok_set *set;
    pcre2_code *code[QN_PRETOK_MAX_STEPS]; /* NULL for steps without a pattern */
};

struct qn_regex_run {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- Making ---------------------------------------------------------------------------------- */

static qn_status compile_step(const qn_pretok_step *step, pcre2_code **out, qn_error *err)
{
    int code = 0;
    PCRE2_SIZE offset = 0;
    *out = pcre2_compile((PCRE2_SPTR)step->pattern, PCRE2_ZERO_TERMINATED, 0, &code, &offset, NULL);
    if (!*out) {
        return code == PCRE2_ERROR_HEAP_FAILED
                   ? qn__error_memory(err, "a pre-tokenizer pattern")
                   : qn__error(err, QN_ERR_UNSUPPORTED,
                               "the PCRE2 library refuses a pre-tokenizer pattern (error %d)",
                               code);
    }
    /* Without a JIT on this machine matching is slower and gives the same. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return QN_OK;
}

qn_status qn__pretok_make(const char *set, qn_pretok **out, qn_error *err)
{
    qn_pretok *p = qn__calloc(1, sizeof *p);
    qn_status status = QN_OK;
    if (!p) {
        return qn__error_memory(err, "the pre-tokenizer");
    }
    p->set = qn__pretok_set_find(set);
    if (!p->set) {
        status = qn__error(err, QN_ERR_ARGUMENT, "no pre-tokenizer set is called '%s'", set);
    }
    for (size_t i = 0; status == QN_OK && i < p->set->n_steps; i++) {
        if (p->set->steps[i].kind == QN_PRETOK_PATTERN) {
            status = compile_step(&p->set->steps[i], &p->code[i], err);
        }
    }
    if (status != QN_OK) {
        qn__pretok_free(p);
        return status;
    }
    *out = p;
    return QN_OK;
}

void qn__pretok_free(qn_pretok *p)
{
    if (!p) {
        return;
    }
    for (size_t i = 0; i < QN_PRETOK_MAX_STEPS; i++) {
        pcre2_code_free(p->code[i]);
    }
    free(p);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

qn_status qn__pretok_decode(qn_run *run, const char *text, size_t n, uint32_t **points,
                            size_t *count)
{
    uint32_t *out = qn__run_need(run, QN_SCRATCH_POINTS, n, sizeof *out);
    if (!out) {
        return qn__run_no_memory(run);
    }
    size_t length = 0;
    for (size_t i = 0; i < n;) {
        i += qn__decode_lenient(text + i, n - i, QN_LAST_POINT, &out[length++]);
    }
    *points = out;
    *count = length;
    return QN_OK;
}

static uint8_t class_byte(uint32_t point)
{
    static const uint8_t bytes[8] = {0xD0, 0xD2, 0xD1, 0xD3, 0xD5, 0xD0, 0xD4, 0xD0};
    if (point < 0x80) {
        return (uint8_t)point;
    }
    return qn__unicode_is_space(point) ? 0x0B : bytes[qn__unicode_class_of(point)];
}

static bool in_set(const qn_point_set *set, uint32_t point)
{
    size_t low = 0;
    size_t high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->pairs[2 * middle + 1] < point) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < set->count && set->pairs[2 * low] <= point;
}

/* The class text of one step: `classes`, with the step's sets marked. */
static const uint8_t *step_text(qn_run *run, const qn_pretok_step *step, const uint32_t *points,
                                const uint8_t *classes, size_t n)
{
    if (!step->sets[0]) {
        return classes;
    }
    uint8_t *text = qn__run_need(run, QN_SCRATCH_STEP, n, 1);
    if (!text) {
        return NULL;
    }
    memcpy(text, classes, n);
    for (size_t i = 0; i < n; i++) {
        if (classes[i] < 0x80) {
            continue; /* ASCII stands in the patterns; whitespace is in no set */
        }
        for (unsigned k = 0; k < QN_PRETOK_MAX_SETS && step->sets[k]; k++) {
            if (in_set(step->sets[k], points[i])) {
                text[i] = (uint8_t)(0xE0 + 2 * k + (classes[i] == 0xD2 ? 0 : 1));
                break;
            }
        }
    }
    return text;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The ends of segments, growing; `at` is the position behind the last one. */
typedef struct cuts {
    qn_run *run;
    int scratch;
    uint32_t *ends;
    size_t count, capacity;
    bool failed;
} cuts;

static void cut_at(cuts *c, size_t end)
{
    if (c->failed || (c->count > 0 && c->ends[c->count - 1] == end) || end == 0) {
        return; /* no empty segments */
    }
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? c->capacity * 2 : 64;
        uint32_t *ends = qn__run_need(c->run, c->scratch, capacity, sizeof *ends);
        if (!ends) {
            c->failed = true;
            return;
        }
        c->ends = ends;
        c->capacity = capacity;
    }
    c->ends[c->count++] = (uint32_t)end;
}

static bool regex_ready(qn_run *run)
{
    if (run->regex) {
        return true;
    }
    struct qn_regex_run *r = qn__calloc(1, sizeof *r);
    if (!r) {
        return false;
    }
    run->regex = r;
    r->data = pcre2_match_data_create(1, NULL);
    r->context = pcre2_match_context_create(NULL);
    if (!r->data || !r->context) {
        return false;
    }
    r->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MOST, NULL);
    if (r->stack) {
        pcre2_jit_stack_assign(r->context, NULL, r->stack);
    }
    /* Our patterns end by themselves; long texts must not run into limits. */
    pcre2_set_match_limit(r->context, UINT32_MAX);
    pcre2_set_depth_limit(r->context, UINT32_MAX);
    return true;
}

void qn__regex_run_free(struct qn_regex_run *r)
{
    if (r) {
        pcre2_match_data_free(r->data);
        pcre2_match_context_free(r->context);
        pcre2_jit_stack_free(r->stack);
        free(r);
    }
}

static qn_status match_segment(qn_run *run, const pcre2_code *code, const uint8_t *text,
                               size_t begin, size_t end, cuts *out)
{
    struct qn_regex_run *r = run->regex;
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(r->data);
    size_t length = end - begin;
    for (size_t at = 0; at < length;) {
        int rc = pcre2_match(code, text + begin, length, at, PCRE2_NOTEMPTY, r->data, r->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
            rc = pcre2_match(code, text + begin, length, at, PCRE2_NOTEMPTY | PCRE2_NO_JIT, r->data,
                             r->context);
        }
        if (rc == PCRE2_ERROR_NOMATCH) {
            break;
        }
        if (rc < 0) {
            return qn__error(run->err, QN_ERR_LIMIT,
                             "the pre-tokenizer failed on a text (PCRE2 error %d)", rc);
        }
        cut_at(out, begin + span[0]);
        cut_at(out, begin + span[1]);
        at = span[1];
    }
    cut_at(out, end);
    return QN_OK;
}

static bool is_number(uint8_t class_text)
{
    return (class_text >= '0' && class_text <= '9') || class_text == 0xD1;
}

static void cut_digits(const uint8_t *text, size_t begin, size_t end, bool classes, cuts *out)
{
    for (size_t at = begin; at < end;) {
        size_t stop = at;
        while (stop < end && (classes ? is_number(text[stop]) : (uint8_t)(text[stop] - '0') < 10)) {
            stop++;
        }
        size_t first = (stop - at) % 3; /* digits before the first whole group */
        for (size_t cut = at + first; cut <= stop && stop > at; cut += 3) {
            /* digits3 never cuts in front of a run, superdigits never behind one. */
            if (classes ? cut > at : cut < stop && cut > begin) {
                cut_at(out, cut);
            }
        }
        at = stop + 1;
    }
    cut_at(out, end);
}

static void cut_spaces(const uint8_t *text, size_t begin, size_t end, cuts *out)
{
    bool spaces = true; /* whitespace without a line break */
    for (size_t i = begin; spaces && i < end; i++) {
        uint8_t c = text[i];
        spaces = c == ' ' || c == '\t' || c == 0x0B || c == 0x0C;
    }
    size_t left = spaces ? end - begin : 0;
    for (size_t piece = LONGEST_SPACES; left > 0; left -= piece) {
        while (piece > left) {
            piece /= 2;
        }
        cut_at(out, end - left + piece);
    }
    cut_at(out, end);
}

static qn_status run_step(const qn_pretok *p, size_t index, qn_run *run, const uint8_t *text,
                          const cuts *in, cuts *out)
{
    qn_status status = QN_OK;
    size_t begin = 0;
    for (size_t i = 0; status == QN_OK && i < in->count; i++) {
        size_t end = in->ends[i];
        switch (p->set->steps[index].kind) {
        case QN_PRETOK_PATTERN:
            status = match_segment(run, p->code[index], text, begin, end, out);
            break;
        case QN_PRETOK_DIGITS3:
            cut_digits(text, begin, end, true, out);
            break;
        case QN_PRETOK_SUPERDIGITS:
            cut_digits(text, begin, end, false, out);
            break;
        case QN_PRETOK_SPACE_RUNS:
            cut_spaces(text, begin, end, out);
            break;
        }
        begin = end;
    }
    return out->failed ? qn__run_no_memory(run) : status;
}

qn_status qn__pretok_run(const qn_pretok *p, qn_run *run, const uint32_t *points, size_t n,
                         const uint32_t **ends, size_t *count)
{
    uint8_t *classes = qn__run_need(run, QN_SCRATCH_CLASSES, n, 1);
    if (!classes || !regex_ready(run)) {
        return qn__run_no_memory(run);
    }
    for (size_t i = 0; i < n; i++) {
        classes[i] = class_byte(points[i]);
    }
    cuts in = {.run = run, .scratch = QN_SCRATCH_CUTS};
    cut_at(&in, n);
    if (in.failed) {
        return qn__run_no_memory(run);
    }
    for (size_t s = 0; s < p->set->n_steps; s++) {
        cuts out = {.run = run,
                    .scratch = in.scratch == QN_SCRATCH_CUTS ? QN_SCRATCH_CUTS_2 : QN_SCRATCH_CUTS};
        const uint8_t *text = step_text(run, &p->set->steps[s], points, classes, n);
        if (!text) {
            return qn__run_no_memory(run);
        }
        qn_status status = run_step(p, s, run, text, &in, &out);
        if (status != QN_OK) {
            return status;
        }
        in = out;
    }
    *ends = in.ends;
    *count = in.count;
    return QN_OK;
}
