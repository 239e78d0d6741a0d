/* sampler.c: the calls that every sampler answers, and what makers share. */
#include "sampler/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/graph.h"

qn_sampler *qn_sampler_make(const qn_sampler_interface *fns, void *state, qn_error *err)
{
    if (!fns || !fns->apply) {
        qn__error(err, QN_ERR_ARGUMENT, "a sampler needs an apply function");
        return NULL;
    }
    if (state && !fns->clone) {
        qn__error(err, QN_ERR_ARGUMENT, "a sampler with a state needs a clone function");
        return NULL;
    }
    qn_sampler *s = qn__calloc(1, sizeof *s);
    if (!s) {
        qn__error_memory(err, "sampler");
        return NULL;
    }
    s->fns = fns;
    s->state = state;
    return s;
}

qn_sampler *qn__sampler_make(const qn_sampler_interface *fns, size_t state_bytes, void **state,
                             qn_error *err)
{
    qn_plain_state *block = qn__calloc(1, state_bytes);
    qn_sampler *s = block ? qn_sampler_make(fns, block, err) : NULL;
    if (!s) {
        free(block);
        qn__error_memory(err, "sampler");
        return NULL;
    }
    block->bytes = state_bytes;
    *state = block;
    return s;
}

void *qn__plain_clone(const void *state)
{
    size_t bytes = ((const qn_plain_state *)state)->bytes;
    void *copy = malloc(bytes);
    if (copy) {
        memcpy(copy, state, bytes);
    }
    return copy;
}

void qn__plain_free(void *state)
{
    free(state);
}

qn_status qn__plain_copy(void *to, const void *from, qn_error *err)
{
    size_t bytes = ((const qn_plain_state *)from)->bytes;
    if (((const qn_plain_state *)to)->bytes != bytes) {
        return qn__error(err, QN_ERR_ARGUMENT, "cannot copy between samplers of other settings");
    }
    memcpy(to, from, bytes);
    return QN_OK;
}

void qn_sampler_free(qn_sampler *s)
{
    if (!s) {
        return;
    }
    if (s->fns->free) {
        s->fns->free(s->state);
    }
    free(s);
}

const char *qn_sampler_name(const qn_sampler *s)
{
    if (s->shown[0]) {
        return s->shown;
    }
    const char *name = s->fns->name ? s->fns->name(s->state) : NULL;
    return name ? name : "(null)";
}

qn_status qn_sampler_accept(qn_sampler *s, int32_t token, bool generated, qn_error *err)
{
    return s->fns->accept ? s->fns->accept(s->state, token, generated, err) : QN_OK;
}

void qn_sampler_apply(qn_sampler *s, qn_candidates *c)
{
    s->fns->apply(s->state, c);
}

void qn_sampler_reset(qn_sampler *s)
{
    if (s->fns->reset) {
        s->fns->reset(s->state);
    }
}

qn_sampler *qn_sampler_clone(const qn_sampler *s, qn_error *err)
{
    void *state = s->fns->clone ? s->fns->clone(s->state) : NULL;
    if (s->fns->clone && !state) {
        qn__error_memory(err, "copy of a sampler");
        return NULL;
    }
    qn_sampler *copy = qn_sampler_make(s->fns, state, err);
    if (!copy && s->fns->free) {
        s->fns->free(state);
    }
    return copy;
}

bool qn__sampler_same_kind(const qn_sampler *a, const qn_sampler *b)
{
    if (a->fns != b->fns || !a->fns->name) {
        return a->fns == b->fns;
    }
    const char *x = a->fns->name(a->state), *y = b->fns->name(b->state);
    return x == y || (x && y && strcmp(x, y) == 0);
}

qn_status qn_sampler_copy(qn_sampler *to, const qn_sampler *from, qn_error *err)
{
    if (to == from) {
        return QN_OK;
    }
    if (!qn__sampler_same_kind(to, from)) {
        return qn__error(err, QN_ERR_ARGUMENT, "cannot copy the state of sampler %s to %s",
                         qn_sampler_name(from), qn_sampler_name(to));
    }
    if (to->fns->copy_state) {
        return to->fns->copy_state(to->state, from->state, err);
    }
    if (!to->fns->clone) {
        return QN_OK; /* stateless */
    }
    void *state = from->fns->clone(from->state);
    if (!state) {
        return qn__error_memory(err, "copy of a sampler");
    }
    if (to->fns->free) {
        to->fns->free(to->state);
    }
    to->state = state;
    return QN_OK;
}

uint32_t qn_sampler_seed(const qn_sampler *s)
{
    uint32_t seed;
    return s->fns->seed && s->fns->seed(s->state, &seed) ? seed : QN_SEED_RANDOM;
}

/* The empty sampler: its state is its name. */
typedef struct empty_state {
    qn_plain_state plain;
    const char *name;
} empty_state;

static const char *empty_name(const void *state)
{
    return ((const empty_state *)state)->name;
}

static void empty_apply(void *state, qn_candidates *c)
{
    (void)state;
    (void)c;
}

static const qn_sampler_graph empty_graph = {.stage = QN_STAGE_NONE};

static const qn_sampler_interface empty_fns = {.name = empty_name,
                                               .apply = empty_apply,
                                               .clone = qn__plain_clone,
                                               .free = qn__plain_free,
                                               .graph = &empty_graph};

qn_sampler *qn__sampler_empty(const char *name, qn_error *err)
{
    void *state;
    qn_sampler *s = qn__sampler_make(&empty_fns, sizeof(empty_state), &state, err);
    if (s) {
        ((empty_state *)state)->name = name;
    }
    return s;
}
