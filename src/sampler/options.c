/* options.c: the usual chain from a plain struct of settings. */
#include "sampler/sampler.h"

qn_sampling_options qn_sampling_defaults(void)
{
    return (qn_sampling_options){.seed = QN_SEED_RANDOM,
                                 .top_k = 40,
                                 .top_p = 0.95F,
                                 .min_p = 0.05F,
                                 .temperature = 0.8F,
                                 .min_keep = 0};
}

qn_sampler *qn_sampler_from_options(const qn_sampling_options *options, qn_error *err)
{
    qn_sampling_options o = options ? *options : qn_sampling_defaults();
    qn_sampler *chain = qn_sampler_chain(err);
    if (!chain) {
        return NULL;
    }
    if (qn_sampler_chain_add(chain, qn_sampler_top_k(o.top_k, err), err) == QN_OK &&
        qn_sampler_chain_add(chain, qn_sampler_top_p(o.top_p, o.min_keep, err), err) == QN_OK &&
        qn_sampler_chain_add(chain, qn_sampler_min_p(o.min_p, o.min_keep, err), err) == QN_OK &&
        qn_sampler_chain_add(chain, qn_sampler_temp(o.temperature, err), err) == QN_OK &&
        qn_sampler_chain_add(chain, qn_sampler_dist(o.seed, err), err) == QN_OK) {
        return chain;
    }
    qn_sampler_free(chain);
    return NULL;
}
