/* chain.c: samplers in a row, itself a sampler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/graph.h"

/* More members than anyone needs. */
#define CHAIN_MAX 1024

typedef struct chain_state {
    qn_sampler **members;
    size_t size, capacity;
    qn_row_queue queue; /* while the chain is attached */
} chain_state;

static const char *chain_name(const void *state)
{
    (void)state;
    return "chain";
}

static qn_status chain_accept(void *state, int32_t token, bool generated, qn_error *err)
{
    chain_state *chain = state;
    qn_status status = QN_OK;
    if (generated) {
        qn__row_queue_next(&chain->queue);
    }
    for (size_t i = 0; i < chain->size; i++) { /* every member hears of it; the first error stays */
        qn_sampler *member = chain->members[i];
        qn_status one = qn_sampler_accept(member, token, generated, status == QN_OK ? err : NULL);
        status = status == QN_OK ? one : status;
    }
    return status;
}

static void chain_apply(void *state, qn_candidates *c)
{
    chain_state *chain = state;
    chain->queue.n = 0; /* this is what the next token is of */
    for (size_t i = 0; i < chain->size; i++) {
        qn_sampler_apply(chain->members[i], c);
    }
}

static void chain_reset(void *state)
{
    chain_state *chain = state;
    chain->queue.n = 0;
    for (size_t i = 0; i < chain->size; i++) {
        qn_sampler_reset(chain->members[i]);
    }
}

static void chain_free(void *state)
{
    chain_state *chain = state;
    for (size_t i = 0; chain && i < chain->size; i++) {
        qn_sampler_free(chain->members[i]);
    }
    if (chain) {
        free(chain->members);
    }
    free(chain);
}

static void *chain_clone(const void *state)
{
    const chain_state *from = state;
    chain_state *copy = qn__calloc(1, sizeof *copy);
    if (!copy || from->size == 0) {
        return copy;
    }
    copy->members = qn__calloc(from->size, sizeof(qn_sampler *));
    copy->capacity = copy->members ? from->size : 0;
    for (size_t i = 0; i < copy->capacity; i++) {
        copy->members[i] = qn_sampler_clone(from->members[i], NULL);
        if (!copy->members[i]) {
            break;
        }
        copy->size++;
    }
    if (copy->size < from->size) {
        chain_free(copy);
        return NULL;
    }
    return copy;
}

static qn_status chain_copy_state(void *to, const void *from, qn_error *err)
{
    const chain_state *a = to, *b = from;
    if (a->size != b->size) {
        return qn__error(err, QN_ERR_ARGUMENT, "cannot copy a chain of %zu samplers to one of %zu",
                         b->size, a->size);
    }
    for (size_t i = 0; i < a->size; i++) {
        if (!qn__sampler_same_kind(a->members[i], b->members[i])) {
            return qn__error(err, QN_ERR_ARGUMENT, "cannot copy chains: member %zu is %s, not %s",
                             i, qn_sampler_name(b->members[i]), qn_sampler_name(a->members[i]));
        }
    }
    qn_status status = QN_OK;
    for (size_t i = 0; i < a->size && status == QN_OK; i++) {
        status = qn_sampler_copy(a->members[i], b->members[i], err);
    }
    return status;
}

static bool chain_seed(const void *state, uint32_t *out)
{
    const chain_state *chain = state;
    for (size_t i = chain->size; i-- > 0;) {
        const qn_sampler *member = chain->members[i];
        if (member->fns->seed && member->fns->seed(member->state, out)) {
            return true;
        }
    }
    return false;
}

static const qn_sampler_interface chain_fns = {.name = chain_name,
                                               .accept = chain_accept,
                                               .apply = chain_apply,
                                               .reset = chain_reset,
                                               .clone = chain_clone,
                                               .copy_state = chain_copy_state,
                                               .free = chain_free,
                                               .seed = chain_seed};

qn_sampler *qn_sampler_chain(qn_error *err)
{
    chain_state *state = qn__calloc(1, sizeof *state);
    qn_sampler *s = state ? qn_sampler_make(&chain_fns, state, err) : NULL;
    if (!s) {
        free(state);
        qn__error_memory(err, "sampler chain");
    }
    return s;
}

qn_row_queue *qn__chain_row_queue(const qn_sampler *chain)
{
    return &((chain_state *)chain->state)->queue;
}

bool qn_sampler_is_chain(const qn_sampler *s)
{
    return s && s->fns == &chain_fns;
}

qn_status qn_sampler_chain_add(qn_sampler *chain, qn_sampler *member, qn_error *err)
{
    if (!member) {
        return QN_ERR_MEMORY;
    }
    qn_status status = QN_OK;
    chain_state *state = qn_sampler_is_chain(chain) ? chain->state : NULL;
    if (!state || qn_sampler_is_chain(member)) {
        status = qn__error(err, QN_ERR_ARGUMENT, "a chain takes samplers that are no chains");
    } else if (chain->attached) {
        status = qn__error(err, QN_ERR_ARGUMENT, "an attached chain takes no samplers");
    } else if (state->size >= CHAIN_MAX) {
        status = qn__error(err, QN_ERR_LIMIT, "a chain has at most %d samplers", CHAIN_MAX);
    } else if (state->size == state->capacity) {
        size_t capacity = state->capacity ? 2 * state->capacity : 8;
        void *members = state->members;
        if (qn__realloc(&members, capacity, sizeof(qn_sampler *))) {
            state->members = members;
            state->capacity = capacity;
        } else {
            status = qn__error_memory(err, "sampler chain");
        }
    }
    if (status == QN_OK) {
        state->members[state->size++] = member;
    } else if (member != chain) {
        qn_sampler_free(member);
    }
    return status;
}

size_t qn_sampler_chain_size(const qn_sampler *chain)
{
    return qn_sampler_is_chain(chain) ? ((const chain_state *)chain->state)->size : 0;
}

qn_sampler *qn_sampler_chain_get(const qn_sampler *chain, size_t i)
{
    return i < qn_sampler_chain_size(chain) ? ((const chain_state *)chain->state)->members[i]
                                            : NULL;
}

qn_sampler *qn_sampler_chain_remove(qn_sampler *chain, size_t i)
{
    qn_sampler *member = qn_sampler_chain_get(chain, i);
    if (chain && chain->attached) {
        return NULL;
    }
    if (member) {
        chain_state *state = chain->state;
        state->size--;
        memmove(state->members + i, state->members + i + 1,
                (state->size - i) * sizeof(qn_sampler *));
    }
    return member;
}

/* Text behind what is there, as far as there is room. */
static void append(char *text, size_t capacity, size_t *length, const char *more)
{
    if (*length < capacity) {
        snprintf(text + *length, capacity - *length, "%s", more);
    }
    *length += strlen(more);
}

size_t qn_sampler_describe(const qn_sampler *chain, char *text, size_t capacity)
{
    size_t length = 0;
    append(text, capacity, &length, "logits ");
    for (size_t i = 0; i < qn_sampler_chain_size(chain); i++) {
        append(text, capacity, &length, "-> ");
        append(text, capacity, &length, qn_sampler_name(qn_sampler_chain_get(chain, i)));
        append(text, capacity, &length, " ");
    }
    return length;
}
