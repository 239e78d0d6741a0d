/* fuzz_hparams.c: hyper-parameters of any architecture from the metadata of arbitrary bytes; what
 * is accepted must hold together. */
#include <math.h>
#include <stdlib.h>

#include "model/hparams.h"

static void check(const qn_hparams *hp, const qn_kv_layout *kv)
{
    if (hp->n_layer < 1 || hp->n_layer > QN_MAX_LAYERS || kv->n_layers > hp->n_layer ||
        kv->n_groups < 1 || kv->n_groups > QN_MAX_KV_GROUPS || !isfinite(hp->norm_eps)) {
        abort();
    }
    for (int32_t il = 0; il < hp->n_layer; il++) {
        const qn_layer_params *lp = &hp->layer[il];
        if (lp->kv < 0 || lp->kv >= kv->n_layers || lp->rope >= hp->n_rope ||
            lp->n_head % lp->n_head_kv != 0 || lp->n_used > hp->n_expert) {
            abort();
        }
        const qn_kv_layer *stored = &kv->layers[lp->kv];
        if (stored->n_head_kv != lp->n_head_kv || stored->d_k != lp->d_k ||
            stored->d_v != lp->d_v || stored->group >= kv->n_groups) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_gguf_options options = qn_gguf_defaults();
    options.metadata_only = true;
    qn_gguf *g = NULL;
    if (qn_gguf_open_memory(&g, data, size, "input", &options, NULL) != QN_OK) {
        return 0;
    }
    qn_gguf_text name = {0};
    const qn_arch *arch = NULL;
    if (qn_gguf_get_str(g, "general.architecture", &name, NULL) == QN_OK) {
        arch = qn__arch_find(name.data, name.size);
    }
    qn_hparams *hp = calloc(1, sizeof(*hp));
    qn_kv_layout *kv = calloc(1, sizeof(*kv));
    if (arch && hp && kv && qn__hparams_read(hp, g, arch, 0, NULL) == QN_OK) {
        qn__hparams_kv_layout(hp, arch, kv);
        check(hp, kv);
    }
    free(hp);
    free(kv);
    qn_gguf_free(g);
    return 0;
}
