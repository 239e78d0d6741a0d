/*
 * dry.c: don't repeat yourself. A token that would continue a repetition of earlier text is made
 * less likely the longer the repetition is.
 *
 * How far the end of the text agrees with each earlier place is the Z function of the reversed
 * window, found in one pass. Breakers (texts that separate one thing from the next, as a newline)
 * end the part that is compared.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "sampler/graph.h"

/* ln of the largest float: base^e stays below it. */
#define LOG_FLT_MAX 88.7228391
/* A base nearer to 1 than this grows too slowly to matter. */
#define BASE_MIN 1.000001F

/*
 * room: sort keys and spare (capacity words each); then as int32: ring, drafts, window (newest
 * first), its Z function, ids, penalties, the breakers' tails. The breakers' entries come last.
 */
typedef struct dry_state {
    qn_plain_state plain;
    float multiplier, base;
    uint32_t allowed, longest; /* length without penalty; greatest exponent */
    qn_history history;
    size_t n_entries, n_tails;
    uint64_t room[];
} dry_state;

enum { RING, DRAFTS, WINDOW, MATCH, IDS, VALUES, N_PARTS };

static int32_t *part_of(dry_state *s, int part)
{
    size_t capacity = s->history.capacity;
    return (int32_t *)(s->room + 2 * capacity) + (size_t)part * capacity;
}

static const int32_t *tails_of(dry_state *s)
{
    return part_of(s, N_PARTS);
}

static const qn_dry_entry *entries_of(dry_state *s)
{
    return (const qn_dry_entry *)(tails_of(s) + s->n_tails);
}

static const char *dry_name(const void *state)
{
    (void)state;
    return "dry";
}

static qn_status dry_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    (void)generated;
    (void)err;
    dry_state *s = state;
    qn__history_push(&s->history, part_of(s, RING), token);
    return QN_OK;
}

/* First entry of a token, or n_entries. */
static size_t find_head(dry_state *s, int32_t head)
{
    const qn_dry_entry *entries = entries_of(s);
    size_t low = 0, high = s->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].head < head) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < s->n_entries && entries[low].head == head ? low : s->n_entries;
}

/* Tokens of the longest breaker that begins `i` tokens before the newest, but its head; -1: none.
 */
static int64_t breaker_at(dry_state *s, const int32_t *window, uint32_t i)
{
    const qn_dry_entry *entries = entries_of(s);
    int64_t longest = -1;
    for (size_t e = find_head(s, window[i]); e < s->n_entries && entries[e].head == window[i];
         e++) {
        const int32_t *tail = tails_of(s) + entries[e].at;
        uint32_t n = entries[e].n, same = 0;
        while (same < n && n <= i && tail[same] == window[i - 1 - same]) {
            same++;
        }
        if (same == n && (int64_t)n > longest) {
            longest = n;
        }
    }
    return longest;
}

/* How much of the window's end may be compared: what follows the last breaker. */
static uint32_t comparable(dry_state *s, const int32_t *window, uint32_t n)
{
    for (uint32_t i = 0; i < n && s->n_entries > 0; i++) {
        int64_t tail = breaker_at(s, window, i);
        if (tail >= 0) {
            return i - (uint32_t)tail;
        }
    }
    return n;
}

/* z[k] = how many tokens w[k], w[k+1], ... and w[0], w[1], ... have in common. */
static void z_function(const int32_t *w, int32_t n, int32_t *z)
{
    int32_t left = 0, right = 0; /* the match that reaches farthest */
    z[0] = n;
    for (int32_t k = 1; k < n; k++) {
        int32_t same = 0;
        if (k < right) {
            same = z[k - left] < right - k ? z[k - left] : right - k;
        }
        while (k + same < n && w[same] == w[k + same]) {
            same++;
        }
        z[k] = same;
        if (k + same > right) {
            left = k;
            right = k + same;
        }
    }
}

/* What a token loses that continues a repetition of `length` tokens. */
static float penalty(const dry_state *s, uint32_t length)
{
    uint32_t e = length - s->allowed;
    e = e < s->longest ? e : s->longest;
    double factor = e == 0 ? 1.0 : qn__pow((double)s->base, (double)e);
    return qn__finite((float)((double)s->multiplier * factor));
}

/* Tokens that would continue a repetition, and what they lose, as a sparse list. */
static size_t list_penalties(dry_state *s, bool with_drafts)
{
    const uint32_t n = qn__history_count(&s->history, with_drafts);
    int32_t *window = part_of(s, WINDOW), *z = part_of(s, MATCH), *ids = part_of(s, IDS);
    float *values = (float *)part_of(s, VALUES);
    if (n <= s->allowed) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        window[i] = qn__history_back(&s->history, part_of(s, RING), with_drafts, i);
    }
    uint32_t limit = comparable(s, window, n);
    if (limit < s->allowed) {
        return 0;
    }
    z_function(window, (int32_t)n, z);
    size_t n_keys = 0;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t length = (uint32_t)z[k] < limit ? (uint32_t)z[k] : limit;
        if (length >= s->allowed) { /* longer ones first among those of a token */
            s->room[n_keys++] = (uint64_t)(uint32_t)window[k - 1] << 32 | (UINT32_MAX - length);
        }
    }
    qn__sort_keys(s->room, n_keys, s->room + s->history.capacity);
    size_t count = 0;
    const qn_dry_entry *entries = entries_of(s);
    int32_t last = 0;
    for (size_t i = 0; i < n_keys; i++) {
        int32_t id = (int32_t)(uint32_t)(s->room[i] >> 32);
        if (id < 0) {
            break; /* no tokens; they are last */
        }
        if (i > 0 && id == last) {
            continue;
        }
        last = id;
        size_t e = find_head(s, id);
        bool breaks = false; /* a breaker by itself */
        for (; e < s->n_entries && entries[e].head == id; e++) {
            breaks = breaks || entries[e].n == 0;
        }
        if (!breaks) {
            ids[count] = id;
            values[count++] = -penalty(s, UINT32_MAX - (uint32_t)s->room[i]);
        }
    }
    return count;
}

static void dry_apply(void *state, qn_candidates *c)
{
    dry_state *s = state;
    size_t n = list_penalties(s, false);
    if (n > 0) {
        qn__bias_row(c, part_of(s, IDS), (const float *)part_of(s, VALUES), n);
    }
}

static void dry_reset(void *state)
{
    qn__history_clear(&((dry_state *)state)->history);
}

/* In a graph, a row gets the list: ids, then what they lose. */
typedef struct dry_params {
    int64_t n;
    union {
        int32_t id;
        float value;
    } list[];
} dry_params;

static void dry_stage(void *params, qn_candidates *c)
{
    const dry_params *p = params;
    if (p->n > 0) {
        qn__bias_row(c, &p->list[0].id, &p->list[p->n].value, (size_t)p->n);
    }
}

static const int32_t *dry_names(const void *params, size_t *n)
{
    const dry_params *p = params;
    *n = (size_t)p->n;
    return &p->list[0].id;
}

const qn_sample_stage qn__stage_dry = {.name = "dry", .row = dry_stage, .names = dry_names};

static size_t params_bytes(size_t n)
{
    return sizeof(dry_params) + 2 * n * sizeof(int32_t);
}

static size_t dry_room(const void *state, int32_t j, size_t n_drafts)
{
    const qn_history *h = &((const dry_state *)state)->history;
    (void)j;
    size_t n = h->count + n_drafts;
    return params_bytes(n < h->capacity ? n : h->capacity);
}

static size_t dry_write(void *state, int32_t j, void *out)
{
    dry_state *s = state;
    dry_params *p = out;
    (void)j;
    size_t n = list_penalties(s, true);
    p->n = (int64_t)n;
    memcpy(p->list, part_of(s, IDS), n * sizeof(int32_t));
    memcpy(p->list + n, part_of(s, VALUES), n * sizeof(float));
    return params_bytes(n);
}

static void dry_begin(void *state)
{
    qn__history_forget_drafts(&((dry_state *)state)->history);
}

static void dry_draft(void *state, int32_t token)
{
    dry_state *s = state;
    qn__history_draft(&s->history, part_of(s, RING), token);
}

static const qn_sampler_graph dry_graph = {.stage = QN_STAGE_DRY,
                                           .room = dry_room,
                                           .params = dry_write,
                                           .begin = dry_begin,
                                           .draft = dry_draft};

static const qn_sampler_interface dry_fns = {.name = dry_name,
                                             .accept = dry_accept,
                                             .apply = dry_apply,
                                             .reset = dry_reset,
                                             .clone = qn__plain_clone,
                                             .copy_state = qn__plain_copy,
                                             .free = qn__plain_free,
                                             .graph = &dry_graph};

qn_sampler *qn__sampler_dry(const qn_dry_options *o, const qn_dry_breakers *breakers, qn_error *err)
{
    size_t n = (size_t)o->last_n, bytes = 0, more = 0;
    bool fits = qn__mul_size(n, 2 * sizeof(uint64_t) + N_PARTS * sizeof(int32_t), &bytes) &&
                qn__mul_size(breakers->n_entries, sizeof(qn_dry_entry), &more) &&
                qn__add_size(bytes, more, &bytes) &&
                qn__mul_size(breakers->n_tails, sizeof(int32_t), &more) &&
                qn__add_size(bytes, more, &bytes) && qn__add_size(bytes, sizeof(dry_state), &bytes);
    void *state;
    qn_sampler *s = fits ? qn__sampler_make(&dry_fns, bytes, &state, err) : NULL;
    if (!s) {
        qn__error_memory(err, "dry sampler");
        return NULL;
    }
    dry_state *own = state;
    own->multiplier = o->multiplier;
    own->base = o->base;
    own->allowed = o->allowed_length > 0 ? (uint32_t)o->allowed_length : 0;
    double longest = o->base > BASE_MIN ? LOG_FLT_MAX / qn__log((double)o->base) : QN_HISTORY_MAX;
    own->longest = longest < QN_HISTORY_MAX ? (uint32_t)longest : QN_HISTORY_MAX;
    own->history.capacity = (uint32_t)n;
    own->n_entries = breakers->n_entries;
    own->n_tails = breakers->n_tails;
    if (breakers->n_tails > 0) {
        memcpy(part_of(own, N_PARTS), breakers->tails, breakers->n_tails * sizeof(int32_t));
    }
    if (breakers->n_entries > 0) {
        memcpy(part_of(own, N_PARTS) + own->n_tails, breakers->entries,
               breakers->n_entries * sizeof(qn_dry_entry));
    }
    return s;
}

qn_sampler *qn_sampler_dry(const qn_vocab *vocab, const qn_dry_options *options, qn_error *err)
{
    const qn_dry_options *o = options;
    if (!isfinite(o->multiplier) || !isfinite(o->base)) {
        qn__error(err, QN_ERR_ARGUMENT, "dry: multiplier %g and base %g must be finite numbers",
                  (double)o->multiplier, (double)o->base);
        return NULL;
    }
    if (o->last_n > QN_HISTORY_MAX) {
        qn__error(err, QN_ERR_LIMIT, "dry: last_n %d is more than %d", o->last_n, QN_HISTORY_MAX);
        return NULL;
    }
    if (o->multiplier == 0.0F || o->base < 1.0F || o->last_n <= 0) {
        return qn__sampler_empty("?dry", err);
    }
    if (!vocab && o->n_breakers > 0) {
        qn__error(err, QN_ERR_ARGUMENT, "dry: breakers need a vocabulary");
        return NULL;
    }
    qn_dry_breakers breakers = {0};
    qn_sampler *s = NULL;
    if (qn__dry_breakers_make(vocab, o->breakers, o->n_breakers, &breakers, err) == QN_OK) {
        s = qn__sampler_dry(o, &breakers, err);
    }
    qn__dry_breakers_free(&breakers);
    return s;
}
