/* logit_bias.c: adds numbers to the logits of given tokens; minus infinity bans. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/graph.h"

static float add(float logit, size_t i, const void *with)
{
    float value = ((const float *)with)[i];
    return logit == -INFINITY || value == -INFINITY ? -INFINITY : qn__finite(logit + value);
}

void qn__bias_row(qn_candidates *c, const int32_t *ids, const float *values, size_t n)
{
    qn__row_change(c, ids, n, add, values);
}

/* room: ids, then values. */
typedef struct logit_bias_state {
    qn_plain_state plain;
    size_t n, capacity;
    union {
        int32_t id;
        float value;
    } room[];
} logit_bias_state;

static const char *logit_bias_name(const void *state)
{
    (void)state;
    return "logit-bias";
}

static void logit_bias_apply(void *state, qn_candidates *c)
{
    logit_bias_state *s = state;
    qn__bias_row(c, &s->room[0].id, &s->room[s->capacity].value, s->n);
}

static const int32_t *logit_bias_names(const void *state, size_t *n)
{
    const logit_bias_state *s = state;
    *n = s->n;
    return &s->room[0].id;
}

const qn_sample_stage qn__stage_logit_bias = {
    .name = "logit-bias", .row = logit_bias_apply, .names = logit_bias_names};

static const qn_sampler_graph logit_bias_graph = {.stage = QN_STAGE_LOGIT_BIAS};

static const qn_sampler_interface logit_bias_fns = {.name = logit_bias_name,
                                                    .apply = logit_bias_apply,
                                                    .clone = qn__plain_clone,
                                                    .copy_state = qn__plain_copy,
                                                    .free = qn__plain_free,
                                                    .graph = &logit_bias_graph};

/* By token, then by bias, so that a sum has one value whatever order the list came in. */
static int compare(const void *a, const void *b)
{
    const qn_logit_bias *x = a, *y = b;
    if (x->token != y->token) {
        return x->token < y->token ? -1 : 1;
    }
    return x->bias < y->bias ? -1 : x->bias > y->bias;
}

/* Sum of biases for one token: a ban wins, then plus infinity. */
static float join(float a, float b)
{
    return a == -INFINITY || b == -INFINITY ? -INFINITY : a + b;
}

qn_sampler *qn_sampler_logit_bias(const qn_logit_bias *biases, size_t n, qn_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(biases[i].bias)) {
            qn__error(err, QN_ERR_ARGUMENT, "logit bias of token %d is not a number",
                      biases[i].token);
            return NULL;
        }
    }
    if (n == 0) {
        return qn__sampler_empty("?logit-bias", err);
    }
    size_t bytes;
    void *state;
    bool fits = qn__mul_size(n, 2 * sizeof(float), &bytes) &&
                qn__add_size(bytes, sizeof(logit_bias_state), &bytes);
    qn_logit_bias *sorted = fits ? qn__calloc(n, sizeof *sorted) : NULL;
    qn_sampler *s = sorted ? qn__sampler_make(&logit_bias_fns, bytes, &state, err) : NULL;
    if (!s) {
        free(sorted);
        qn__error_memory(err, "logit biases");
        return NULL;
    }
    memcpy(sorted, biases, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    logit_bias_state *own = state;
    own->capacity = n;
    for (size_t i = 0; i < n; i++) {
        bool again = own->n > 0 && own->room[own->n - 1].id == sorted[i].token;
        size_t at = again ? own->n - 1 : own->n++;
        own->room[at].id = sorted[i].token;
        float *value = &own->room[n + at].value;
        *value = again ? join(*value, sorted[i].bias) : sorted[i].bias;
    }
    free(sorted);
    return s;
}
