/* random_chain.c: see random_chain.h. */
#include "support/random_chain.h"

#include <math.h>

#include "support/small_vocab.h"

static qn_error err;

static float one_of(qn_test_random *r, const float *values, size_t n)
{
    return values[qn_test_bits(r) % n];
}

static size_t min_keep(qn_test_random *r)
{
    return qn_test_bits(r) % 3 ? 0 : qn_test_bits(r) % 5;
}

static qn_sampler *random_top_k(qn_test_random *r)
{
    static const int32_t k[] = {0, 1, 2, 5, 40, 300, 100000};
    return qn_sampler_top_k(k[qn_test_bits(r) % 7], &err);
}

static qn_sampler *random_top_p(qn_test_random *r)
{
    static const float p[] = {0.0F, 0.1F, 0.5F, 0.9F, 0.95F, 0.999F, 1.0F};
    return qn_sampler_top_p(one_of(r, p, 7), min_keep(r), &err);
}

static qn_sampler *random_min_p(qn_test_random *r)
{
    static const float p[] = {0.0F, 0.001F, 0.05F, 0.5F, 1.0F, 1.5F};
    return qn_sampler_min_p(one_of(r, p, 6), min_keep(r), &err);
}

static qn_sampler *random_temp(qn_test_random *r)
{
    static const float t[] = {-1.0F, 0.0F, 1e-30F, 0.1F, 0.7F, 1.0F, 1.3F, 10.0F};
    return qn_sampler_temp(one_of(r, t, 8), &err);
}

static qn_sampler *random_dist(qn_test_random *r)
{
    return qn_sampler_dist(qn_test_bits(r) % 100000, &err);
}

static qn_sampler *random_greedy(qn_test_random *r)
{
    (void)r;
    return qn_sampler_greedy(&err);
}

static qn_sampler *random_temp_ext(qn_test_random *r)
{
    static const float t[] = {-1.0F, 0.0F, 0.5F, 1.0F, 2.0F}, range[] = {0.0F, 0.3F, 1.0F, 5.0F};
    static const float exponent[] = {0.0F, 0.5F, 1.0F, 2.0F};
    float middle = one_of(r, t, 5), wide = one_of(r, range, 4);
    return qn_sampler_temp_ext(middle, wide, one_of(r, exponent, 4), &err);
}

static qn_sampler *random_typical(qn_test_random *r)
{
    static const float p[] = {0.0F, 0.2F, 0.9F, 0.99F, 1.0F};
    return qn_sampler_typical(one_of(r, p, 5), min_keep(r), &err);
}

static qn_sampler *random_top_n_sigma(qn_test_random *r)
{
    static const float n[] = {0.0F, 0.1F, 1.0F, 3.0F};
    return qn_sampler_top_n_sigma(one_of(r, n, 4), &err);
}

static qn_sampler *random_logit_bias(qn_test_random *r)
{
    qn_logit_bias biases[40];
    size_t n = qn_test_bits(r) % 41;
    for (size_t i = 0; i < n; i++) {
        biases[i].token = (int32_t)(qn_test_bits(r) % 300);
        biases[i].bias = qn_test_bits(r) % 4 ? qn_test_normal(r) * 5.0F : -INFINITY;
    }
    return qn_sampler_logit_bias(biases, n, &err);
}

static qn_sampler *random_xtc(qn_test_random *r)
{
    static const float p[] = {0.0F, 0.3F, 0.9F, 1.0F}, threshold[] = {0.0F, 0.01F, 0.1F, 0.4F};
    float probability = one_of(r, p, 4), least = one_of(r, threshold, 4);
    size_t keep = min_keep(r);
    return qn_sampler_xtc(probability, least, keep, qn_test_bits(r) % 100000, &err);
}

const qn_vocab *qn_test_chain_vocab(void)
{
    static qn_vocab *vocab;
    if (!vocab) {
        qn_test_ok(small_vocab_load(small_vocab_writer("bpe"), &vocab, &err), err);
    }
    return vocab;
}

static qn_sampler *random_penalties(qn_test_random *r)
{
    static const int32_t last_n[] = {0, 1, 5, 64, 400};
    static const float repeat[] = {0.5F, 1.0F, 1.3F, 40.0F}, more[] = {-1.0F, 0.0F, 0.4F, 30.0F};
    int32_t n = last_n[qn_test_bits(r) % 5];
    float factor = one_of(r, repeat, 4), frequency = one_of(r, more, 4);
    return qn_sampler_penalties(n, factor, frequency, one_of(r, more, 4), &err);
}

static qn_sampler *random_dry(qn_test_random *r)
{
    static const int32_t last_n[] = {1, 7, 64, 300};
    static const float multiplier[] = {0.0F, 0.5F, 20.0F}, base[] = {1.0F, 1.75F, 9.0F};
    static const char *const breakers[] = {"\n", "e", "th"};
    qn_dry_options o = {.multiplier = one_of(r, multiplier, 3),
                        .base = one_of(r, base, 3),
                        .allowed_length = (int32_t)(qn_test_bits(r) % 4),
                        .last_n = last_n[qn_test_bits(r) % 4],
                        .breakers = breakers,
                        .n_breakers = qn_test_bits(r) % 4};
    return qn_sampler_dry(qn_test_chain_vocab(), &o, &err);
}

static qn_sampler *random_budget(qn_test_random *r)
{
    const int32_t begin[2] = {(int32_t)(qn_test_bits(r) % 4), (int32_t)(qn_test_bits(r) % 4)};
    const int32_t end[2] = {(int32_t)(qn_test_bits(r) % 9), 1}, forced[3] = {5, 0, end[0]};
    const qn_token_span starts[2] = {{begin, 1}, {begin, 2}}, ends = {end, 1 + qn_test_bits(r) % 2};
    const qn_reasoning_options o = {.vocab = qn_test_bits(r) % 2 ? qn_test_chain_vocab() : NULL,
                                    .starts = starts,
                                    .ends = &ends,
                                    .n_starts = 1 + qn_test_bits(r) % 2,
                                    .n_ends = 1,
                                    .forced = {forced, qn_test_bits(r) % 4},
                                    .budget = (int32_t)(qn_test_bits(r) % 4),
                                    .first = (qn_reasoning_state)(qn_test_bits(r) % 2)};
    return qn_sampler_reasoning_budget(&o, &err);
}

static qn_sampler *random_infill(qn_test_random *r)
{
    (void)r;
    return qn_sampler_infill(qn_test_chain_vocab(), &err);
}

static qn_sampler *random_mirostat(qn_test_random *r)
{
    static const float tau[] = {0.0F, 0.5F, 3.0F, 5.0F}, eta[] = {0.0F, 0.1F, 1.0F};
    static const int32_t best[] = {0, 2, 20, 100};
    float target = one_of(r, tau, 4), rate = one_of(r, eta, 3);
    int32_t m = best[qn_test_bits(r) % 4];
    return qn_sampler_mirostat(1000, qn_test_bits(r) % 100000, target, rate, m, &err);
}

static qn_sampler *random_mirostat_v2(qn_test_random *r)
{
    static const float tau[] = {0.0F, 0.5F, 3.0F, 5.0F}, eta[] = {0.0F, 0.1F, 1.0F};
    float target = one_of(r, tau, 4), rate = one_of(r, eta, 3);
    return qn_sampler_mirostat_v2(qn_test_bits(r) % 100000, target, rate, &err);
}

static qn_sampler *random_adaptive_p(qn_test_random *r)
{
    static const float target[] = {-1.0F, 0.0F, 0.05F, 0.3F, 1.0F}, decay[] = {0.0F, 0.5F, 0.99F};
    float aim = one_of(r, target, 5);
    return qn_sampler_adaptive_p(aim, one_of(r, decay, 3), qn_test_bits(r) % 100000, &err);
}

typedef qn_sampler *(*maker)(qn_test_random *r);
static const maker makers[QN_TEST_N_SAMPLERS] = {
    random_top_k,    random_top_p,       random_min_p,      random_temp, random_temp_ext,
    random_typical,  random_top_n_sigma, random_logit_bias, random_xtc,  random_penalties,
    random_dry,      random_budget,      random_infill,     random_dist, random_greedy,
    random_mirostat, random_mirostat_v2, random_adaptive_p};

qn_sampler *qn_test_random_sampler(uint32_t which, qn_test_random *r)
{
    qn_sampler *s = makers[which](r);
    assert_non_null(s);
    return s;
}

/* dist most often. */
static uint32_t which_picks(qn_test_random *r)
{
    uint32_t n = QN_TEST_N_SAMPLERS - QN_TEST_PICKING;
    return QN_TEST_PICKING + (qn_test_bits(r) % 2 ? qn_test_bits(r) % n : 0);
}

qn_sampler *qn_test_random_chain(qn_test_random *r)
{
    qn_sampler *chain = qn_sampler_chain(&err);
    assert_non_null(chain);
    uint32_t n = 1 + qn_test_bits(r) % 5;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t which = qn_test_bits(r) % 8 ? qn_test_bits(r) % QN_TEST_PICKING : which_picks(r);
        qn_test_ok(qn_sampler_chain_add(chain, qn_test_random_sampler(which, r), &err), err);
    }
    if (qn_test_bits(r) % 8) {
        qn_sampler *last = qn_test_random_sampler(which_picks(r), r);
        qn_test_ok(qn_sampler_chain_add(chain, last, &err), err);
    }
    return chain;
}

void qn_test_random_text(qn_sampler *chain, int32_t n, int32_t n_vocab, qn_test_random *r)
{
    int32_t few = n_vocab < 9 ? n_vocab : 9;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)(qn_test_bits(r) % (uint32_t)few);
        id = qn_test_bits(r) % 8 ? id : (int32_t)(qn_test_bits(r) % (uint32_t)n_vocab);
        qn_test_ok(qn_sampler_accept(chain, id, qn_test_bits(r) % 2, &err), err);
    }
}

qn_sampler *qn_test_chain_of(qn_sampler *member)
{
    qn_sampler *chain = qn_sampler_chain(&err);
    assert_non_null(chain);
    qn_test_ok(qn_sampler_chain_add(chain, member, &err), err);
    return chain;
}

static const char *own_name(const void *state)
{
    (void)state;
    return "own";
}

static void own_apply(void *state, qn_candidates *c)
{
    int32_t divisor = *(const int32_t *)state;
    for (size_t i = 0; i < c->size; i++) {
        if (c->ids[i] % divisor == 0) {
            c->logits[i] = -INFINITY;
            c->sorted = c->has_weights = false;
        }
    }
}

static void *own_clone(const void *state)
{
    int32_t *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    *copy = *(const int32_t *)state;
    return copy;
}

static const qn_sampler_interface own = {
    .name = own_name, .apply = own_apply, .clone = own_clone, .free = free};

qn_sampler *qn_test_own_sampler(int32_t divisor)
{
    qn_sampler *s = qn_sampler_make(&own, own_clone(&divisor), &err);
    assert_non_null(s);
    return s;
}
