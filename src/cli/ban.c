/* ban.c: see ban.h. The state is a bit a token. */
#include "cli/ban.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ban_state {
    size_t n; /* tokens */
    uint8_t bits[];
} ban_state;

static size_t state_bytes(size_t n)
{
    return sizeof(ban_state) + (n + 7) / 8;
}

static const char *ban_name(const void *state)
{
    (void)state;
    return "ban";
}

static bool is_banned(const ban_state *s, int32_t id)
{
    return id >= 0 && (size_t)id < s->n && (s->bits[id / 8] >> (id % 8) & 1);
}

static void ban_apply(void *state, qn_candidates *c)
{
    const ban_state *s = state;
    for (size_t i = 0; i < c->size; i++) {
        if (is_banned(s, c->ids[i])) {
            c->logits[i] = -INFINITY;
            c->sorted = false;
        }
    }
}

static void *ban_clone(const void *state)
{
    const ban_state *s = state;
    ban_state *copy = malloc(state_bytes(s->n));
    if (copy) {
        memcpy(copy, s, state_bytes(s->n));
    }
    return copy;
}

static const qn_sampler_interface interface = {
    .name = ban_name,
    .apply = ban_apply,
    .clone = ban_clone,
    .free = free,
};

qn_sampler *cli_ban_sampler(const qn_vocab *vocab, bool ends, qn_error *err)
{
    int32_t n = qn_vocab_size(vocab);
    ban_state *s = calloc(1, state_bytes((size_t)n));
    if (!s) {
        if (err) {
            err->code = QN_ERR_MEMORY;
            snprintf(err->message, sizeof err->message, "out of memory for a sampler");
        }
        return NULL;
    }
    s->n = (size_t)n;
    size_t count = 0;
    const int32_t *ids = qn_vocab_suppressed(vocab, &count);
    for (size_t i = 0; i < count; i++) {
        s->bits[ids[i] / 8] |= (uint8_t)(1U << (ids[i] % 8));
    }
    for (int32_t id = 0; ends && id < n; id++) {
        if (qn_vocab_is_end(vocab, id)) {
            s->bits[id / 8] |= (uint8_t)(1U << (id % 8));
        }
    }
    qn_sampler *sampler = qn_sampler_make(&interface, s, err);
    if (!sampler) {
        free(s);
    }
    return sampler;
}
