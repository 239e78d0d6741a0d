/*
 * compute.c: graphs and plans by shape. A shape that was seen before costs nothing; the ones that
 * were not used for longest make place for new ones.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "context/context.h"

#define CAPACITY_MIN 64

int32_t qn__compute_capacity(int32_t n)
{
    int32_t capacity = CAPACITY_MIN;
    while (capacity < n && capacity < INT32_MAX / 2) {
        capacity *= 2;
    }
    return capacity > n ? capacity : n;
}

static void compute_free(qn_compute *c)
{
    if (c) {
        qn__plan_free(c->plan);
        qn__graph_free(c->graph);
        free(c);
    }
}

void qn__compute_free_all(qn_context *ctx)
{
    for (int i = 0; i < QN_COMPUTE_CACHE; i++) {
        compute_free(ctx->computes.slots[i]);
        ctx->computes.slots[i] = NULL;
    }
}

static qn_node *input(qn_compute *c, qn_type type, int64_t ne0, int64_t ne1, int64_t ne2,
                      const char *name)
{
    const int64_t ne[3] = {ne0, ne1, ne2};
    return qn__graph_input(c->graph, type, 3, ne, name);
}

static void make_inputs(const qn_context *ctx, qn_compute *c)
{
    const qn_shape *s = &c->shape;
    qn_build_inputs *in = &c->in;
    if (s->from_embeddings) {
        in->embeddings = input(c, QN_TYPE_F32, ctx->hparams->n_embd, s->n_tokens, 1, "embeddings");
    } else {
        in->tokens = input(c, QN_TYPE_I32, s->n_tokens, 1, 1, "tokens");
    }
    in->positions =
        input(c, QN_TYPE_I32, s->n_tokens, qn__model_n_positions(ctx->model), 1, "positions");
    if (qn__model_needs_q_scale(ctx->model)) {
        in->q_scale = input(c, QN_TYPE_F32, 1, 1, s->n_tokens, "q_scale");
    }
    if (s->n_outputs > 0 && s->n_outputs < s->n_tokens) {
        in->out_ids = input(c, QN_TYPE_I32, s->n_outputs, 1, 1, "out_ids");
    }
    in->want_logits = s->n_outputs > 0;
    in->want_embeddings = s->n_outputs > 0 && s->want_embeddings;
    in->n_ctx_seq = ctx->options.n_ctx;
    for (int32_t g = 0; g < ctx->layout->n_groups; g++) {
        qn_build_group *group = &c->groups[g];
        group->slots = input(c, QN_TYPE_I32, s->n_tokens, 1, 1, "slots");
        group->tables = input(c, QN_TYPE_I32, s->capacity[g], 1, 1, "tables");
        group->masks = input(c, QN_TYPE_I32, s->capacity[g], 1, 1, "masks");
        group->rows = input(c, QN_TYPE_I32, 4, s->n_tokens, 1, "rows");
    }
    in->groups = c->groups;
    if (s->n_sampled > 0) {
        c->programs = input(c, QN_TYPE_I32, s->program_words, s->n_sampled, 1, "programs");
    }
}

/* Rows that are sampled in the graph: from the logits through their programs. */
static void add_sampling(qn_compute *c)
{
    if (c->programs && c->out.logits) {
        qn_node *sampled = qn__graph_sample(c->graph, c->out.logits, c->programs, &qn__sample_table,
                                            c->shape.n_keep);
        c->sampled = qn__graph_output(c->graph, sampled, "sampled");
    }
}

static void make_stores(qn_context *ctx, qn_compute *c)
{
    qn_node **k = ctx->stores, **v = ctx->stores + ctx->layout->n_layers;
    for (int32_t i = 0; i < ctx->layout->n_layers; i++) {
        qn_kv_store sk = qn__kv_store_k(ctx->kv, i), sv = qn__kv_store_v(ctx->kv, i);
        k[i] = qn__graph_store(c->graph, sk.type, sk.ne, sk.data, "k_store");
        v[i] = sv.data ? qn__graph_store(c->graph, sv.type, sv.ne, sv.data, "v_store") : NULL;
    }
    c->in.k = k;
    c->in.v = v;
}

static qn_status compute_make(qn_context *ctx, const qn_shape *shape, qn_compute **out,
                              qn_error *err)
{
    qn_status status = QN_ERR_MEMORY;
    qn_compute *c = qn__calloc(1, sizeof *c);
    if (!c) {
        return qn__error_memory(err, "graph");
    }
    c->shape = *shape;
    c->graph = qn__graph_make(err);
    if (!c->graph) {
        goto done;
    }
    make_inputs(ctx, c);
    make_stores(ctx, c);
    status = qn__model_build(ctx->model, c->graph, &c->in, &c->out, err);
    c->in.k = c->in.v = NULL; /* of the building only */
    if (status == QN_OK) {
        add_sampling(c);
        status = qn__graph_finish(c->graph, err);
    }
    if (status == QN_OK && c->programs && !c->sampled) {
        status = qn__error(err, QN_ERR_UNSUPPORTED, "the model gives no logits to sample from");
    }
    if (status == QN_OK && shape->n_outputs > 0 && !c->out.logits && !c->out.embeddings) {
        status = qn__error(err, QN_ERR_UNSUPPORTED, "the model gives no output rows");
    }
    if (status == QN_OK) {
        status = qn__plan_make(c->graph, ctx->options.device, ctx->memory, &c->plan, err);
    }
done:
    if (status != QN_OK) {
        compute_free(c);
        c = NULL;
    }
    *out = c;
    return status;
}

qn_status qn__compute_get(qn_context *ctx, const qn_shape *shape, qn_compute **out, qn_error *err)
{
    qn_compute_cache *cache = &ctx->computes;
    int oldest = 0;
    cache->clock++;
    for (int i = 0; i < QN_COMPUTE_CACHE; i++) {
        qn_compute *c = cache->slots[i];
        if (c && memcmp(&c->shape, shape, sizeof *shape) == 0) {
            c->last_used = cache->clock;
            ctx->counters.n_plans_reused++;
            *out = c;
            return QN_OK;
        }
        qn_compute *least = cache->slots[oldest];
        if (least && (!c || c->last_used < least->last_used)) {
            oldest = i;
        }
    }
    compute_free(cache->slots[oldest]);
    cache->slots[oldest] = NULL;
    qn_status status = compute_make(ctx, shape, out, err);
    if (status == QN_OK) {
        cache->slots[oldest] = *out;
        (*out)->last_used = cache->clock;
        ctx->counters.n_plans_made++;
    }
    return status;
}
