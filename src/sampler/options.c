/* options.c: the usual chain from a plain struct of settings. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "sampler/sampler.h"

#define MIROSTAT_BEST 100 /* candidates that mirostat 1 estimates from */

static const char *const usual_breakers[] = {"\n", ":", "\"", "*"};

qn_sampling_options qn_sampling_defaults(void)
{
    qn_sampling_options o = {
        .seed = QN_SEED_RANDOM,
        .top_k = 40,
        .top_p = 0.95F,
        .min_p = 0.05F,
        .typical_p = 1.0F,
        .top_n_sigma = -1.0F,
        .xtc_threshold = 0.1F,
        .temperature = 0.8F,
        .dynatemp_exponent = 1.0F,
        .penalty_last_n = 64,
        .penalty_repeat = 1.0F,
        .dry = {.base = 1.75F,
                .allowed_length = 2,
                .last_n = 64,
                .breakers = usual_breakers,
                .n_breakers = sizeof usual_breakers / sizeof usual_breakers[0]},
        .mirostat_tau = 5.0F,
        .mirostat_eta = 0.1F,
        .adaptive_target = -1.0F,
        .adaptive_decay = 0.9F,
    };
    (void)qn_sampler_order_from_letters("edskypmxt", NULL, &o.order, NULL);
    return o;
}

static qn_sampler *make_kind(const qn_sampling_options *o, qn_sampler_kind kind, qn_error *err)
{
    switch (kind) {
    case QN_SAMPLER_DRY:
        return qn_sampler_dry(o->vocab, &o->dry, err);
    case QN_SAMPLER_TOP_K:
        return qn_sampler_top_k(o->top_k, err);
    case QN_SAMPLER_TYPICAL:
        return qn_sampler_typical(o->typical_p, o->min_keep, err);
    case QN_SAMPLER_TOP_P:
        return qn_sampler_top_p(o->top_p, o->min_keep, err);
    case QN_SAMPLER_TOP_N_SIGMA:
        return qn_sampler_top_n_sigma(o->top_n_sigma, err);
    case QN_SAMPLER_MIN_P:
        return qn_sampler_min_p(o->min_p, o->min_keep, err);
    case QN_SAMPLER_TEMPERATURE:
        return qn_sampler_temp_ext(o->temperature, o->dynatemp_range, o->dynatemp_exponent, err);
    case QN_SAMPLER_XTC:
        return qn_sampler_xtc(o->xtc_probability, o->xtc_threshold, o->min_keep, o->seed, err);
    case QN_SAMPLER_INFILL:
        return qn_sampler_infill(o->vocab, err);
    case QN_SAMPLER_PENALTIES:
        return qn_sampler_penalties(o->penalty_last_n, o->penalty_repeat, o->penalty_frequency,
                                    o->penalty_presence, err);
    default:
        qn__error(err, QN_ERR_ARGUMENT, "the order of samplers has an unknown kind: %d", (int)kind);
        return NULL;
    }
}

/* The user's biases, and bans: of tokens that the vocabulary wants suppressed, and of ends. */
static qn_status add_biases(qn_sampler *chain, const qn_sampling_options *o, qn_error *err)
{
    size_t n = o->n_biases, n_suppressed = 0;
    const int32_t *suppressed = o->vocab ? qn_vocab_suppressed(o->vocab, &n_suppressed) : NULL;
    int32_t n_vocab = o->ignore_eos && o->vocab ? qn_vocab_size(o->vocab) : 0;
    size_t room = n_suppressed + (size_t)n_vocab;
    if (n == 0 && room == 0) {
        return QN_OK;
    }
    qn_logit_bias *all = qn__add_size(room, n, &room) ? qn__calloc(room, sizeof *all) : NULL;
    if (!all) {
        return qn__error_memory(err, "logit biases");
    }
    if (n > 0) {
        memcpy(all, o->biases, n * sizeof *all);
    }
    for (size_t i = 0; i < n_suppressed; i++) {
        all[n++] = (qn_logit_bias){suppressed[i], -INFINITY};
    }
    for (int32_t id = 0; id < n_vocab; id++) {
        if (qn_vocab_is_end(o->vocab, id)) {
            all[n++] = (qn_logit_bias){id, -INFINITY};
        }
    }
    qn_status status =
        n > 0 ? qn_sampler_chain_add(chain, qn_sampler_logit_bias(all, n, err), err) : QN_OK;
    free(all);
    return status;
}

static qn_status add_mirostat(qn_sampler *chain, const qn_sampling_options *o, qn_error *err)
{
    if (o->mirostat == 1 && !o->vocab) {
        return qn__error(err, QN_ERR_ARGUMENT, "mirostat 1 needs a vocabulary");
    }
    qn_status status = qn_sampler_chain_add(chain, qn_sampler_temp(o->temperature, err), err);
    if (status != QN_OK) {
        return status;
    }
    qn_sampler *last = o->mirostat == 1
                           ? qn_sampler_mirostat(qn_vocab_size(o->vocab), o->seed, o->mirostat_tau,
                                                 o->mirostat_eta, MIROSTAT_BEST, err)
                           : qn_sampler_mirostat_v2(o->seed, o->mirostat_tau, o->mirostat_eta, err);
    return qn_sampler_chain_add(chain, last, err);
}

static qn_status add_order(qn_sampler *chain, const qn_sampling_options *o, qn_error *err)
{
    qn_status status = QN_OK;
    bool adaptive = false;
    for (size_t i = 0; i < o->order.count && status == QN_OK; i++) {
        if (o->order.kinds[i] == QN_SAMPLER_ADAPTIVE_P) {
            adaptive = true;
        } else {
            status = qn_sampler_chain_add(chain, make_kind(o, o->order.kinds[i], err), err);
        }
    }
    if (status != QN_OK) {
        return status;
    }
    qn_sampler *last =
        adaptive ? qn_sampler_adaptive_p(o->adaptive_target, o->adaptive_decay, o->seed, err)
                 : qn_sampler_dist(o->seed, err);
    return qn_sampler_chain_add(chain, last, err);
}

/* A bias for a token that does not exist is a slip of the pen: nothing would come of it. */
static qn_status check_biases(const qn_sampling_options *o, qn_error *err)
{
    int32_t n_vocab = o->vocab ? qn_vocab_size(o->vocab) : INT32_MAX;
    for (size_t i = 0; i < o->n_biases; i++) {
        int32_t token = o->biases[i].token;
        if (token < 0) {
            return qn__error(err, QN_ERR_ARGUMENT, "logit bias: %d is not a token id", token);
        }
        if (token >= n_vocab) {
            return qn__error(err, QN_ERR_ARGUMENT,
                             "logit bias: there is no token %d, the vocabulary has %d tokens",
                             token, n_vocab);
        }
    }
    return QN_OK;
}

/* What is wrong whatever the chain. */
static qn_status check(const qn_sampling_options *o, qn_error *err)
{
    if (o->mirostat < 0 || o->mirostat > 2) {
        return qn__error(err, QN_ERR_ARGUMENT, "mirostat: %d is not 0, 1 or 2", o->mirostat);
    }
    if (o->order.count > QN_SAMPLER_ORDER_MAX) {
        return qn__error(err, QN_ERR_LIMIT, "an order has at most %d samplers",
                         QN_SAMPLER_ORDER_MAX);
    }
    if (o->ignore_eos && !o->vocab) {
        return qn__error(err, QN_ERR_ARGUMENT, "ignore_eos needs a vocabulary");
    }
    qn_sampler *penalties = qn_sampler_penalties(o->penalty_last_n, o->penalty_repeat,
                                                 o->penalty_frequency, o->penalty_presence, err);
    qn_sampler_free(penalties); /* refused even where the order has none */
    return penalties ? check_biases(o, err) : QN_ERR_ARGUMENT;
}

qn_sampler *qn_sampler_from_options(const qn_sampling_options *options, qn_error *err)
{
    qn_sampling_options o = options ? *options : qn_sampling_defaults();
    if (check(&o, err) != QN_OK) {
        return NULL;
    }
    qn_sampler *chain = qn_sampler_chain(err);
    if (!chain) {
        return NULL;
    }
    qn_status status = add_biases(chain, &o, err);
    if (status == QN_OK) {
        status = o.mirostat ? add_mirostat(chain, &o, err) : add_order(chain, &o, err);
    }
    if (status != QN_OK) {
        qn_sampler_free(chain);
        return NULL;
    }
    return chain;
}
