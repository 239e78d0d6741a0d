/* run_model.c: see run_model.h. */
#include "support/run_model.h"

#include "base/mem.h"
#include "device/plan.h"
#include "model/model.h"
#include "support/support.h"

typedef struct stores {
    int32_t n;
    qn_node *k[QN_MAX_LAYERS], *v[QN_MAX_LAYERS];
    void *blocks[2 * QN_MAX_LAYERS];
    size_t bytes[2 * QN_MAX_LAYERS];
} stores;

static qn_node *make_store(stores *s, qn_graph *g, int64_t ne0, int64_t ne1, int64_t heads,
                           int64_t n_blocks)
{
    const int64_t ne[4] = {ne0, ne1, heads, n_blocks};
    size_t bytes = (size_t)(ne0 * ne1 * heads * n_blocks) * sizeof(float);
    s->blocks[s->n] = qn__block_alloc(bytes);
    s->bytes[s->n] = bytes;
    assert_non_null(s->blocks[s->n]);
    return qn__graph_store(g, QN_TYPE_F32, ne, s->blocks[s->n++], "store");
}

static qn_node *input(qn_graph *g, qn_type type, int64_t ne0, int64_t ne1, int64_t ne2,
                      const char *name)
{
    const int64_t ne[3] = {ne0, ne1, ne2};
    return qn__graph_input(g, type, 3, ne, name);
}

static void make_inputs(const qn_model *model, qn_graph *g, const qn_test_batch *b,
                        qn_build_inputs *in, qn_build_group *groups, int64_t n_blocks)
{
    int64_t t = b->n_tokens;
    in->n_ctx_seq = b->n_ctx;
    in->want_logits = !b->embeddings;
    in->want_embeddings = b->embeddings;
    in->tokens = input(g, QN_TYPE_I32, t, 1, 1, "tokens");
    in->positions = input(g, QN_TYPE_I32, t, qn__model_n_positions(model), 1, "positions");
    if (qn__model_needs_q_scale(model)) {
        in->q_scale = input(g, QN_TYPE_F32, 1, 1, t, "q_scale");
    }
    if (b->out_ids) {
        in->out_ids = input(g, QN_TYPE_I32, b->n_out, 1, 1, "out_ids");
    }
    for (int32_t i = 0; i < qn__model_kv_layout(model)->n_groups; i++) {
        groups[i] = (qn_build_group){
            .slots = input(g, QN_TYPE_I32, t, 1, 1, "slots"),
            .tables = input(g, QN_TYPE_I32, n_blocks, 1, 1, "tables"),
            .masks = input(g, QN_TYPE_I32, n_blocks, 1, 1, "masks"),
            .rows = input(g, QN_TYPE_I32, 4, t, 1, "rows"),
        };
    }
    in->groups = groups;
}

/* Entry e of the sequence lies in block n_blocks - 1 - e. */
static void fill_inputs(const qn_model *model, const qn_test_batch *b, const qn_build_inputs *in,
                        int64_t n_blocks)
{
    int32_t first_block = b->first_position / QN_KV_BLOCK;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        int32_t pos = b->first_position + i;
        ((int32_t *)in->tokens->data)[i] = b->tokens[i];
        for (int32_t s = 0; s < qn__model_n_positions(model); s++) {
            ((int32_t *)in->positions->data)[s * b->n_tokens + i] = s < 3 ? pos : 0;
        }
        if (in->q_scale) {
            ((float *)in->q_scale->data)[i] = qn__model_q_scale(model, pos);
        }
    }
    for (int32_t i = 0; b->out_ids && i < b->n_out; i++) {
        ((int32_t *)in->out_ids->data)[i] = b->out_ids[i];
    }
    for (int32_t g = 0; g < qn__model_kv_layout(model)->n_groups; g++) {
        const qn_build_group *group = &in->groups[g];
        for (int64_t e = 0; e < n_blocks; e++) {
            ((int32_t *)group->tables->data)[e] = (int32_t)(n_blocks - 1 - e);
            ((uint32_t *)group->masks->data)[e] = 0;
        }
        for (int32_t i = 0; i < b->n_tokens; i++) {
            int32_t pos = b->first_position + i, entry = pos / QN_KV_BLOCK - first_block;
            int32_t *row = (int32_t *)group->rows->data + (size_t)4 * (size_t)i;
            ((int32_t *)group->slots->data)[i] =
                ((int32_t)n_blocks - 1 - entry) * QN_KV_BLOCK + pos % QN_KV_BLOCK;
            ((uint32_t *)group->masks->data)[entry] |= 1U << (pos % QN_KV_BLOCK);
            row[0] = 0;
            row[1] = (int32_t)n_blocks;
            row[2] = first_block;
            row[3] = pos;
        }
    }
}

float *qn_test_run_model(const qn_model *model, qn_device *device, const qn_test_batch *batch,
                         int64_t *columns)
{
    qn_error err = {0};
    const qn_kv_layout *kv = qn__model_kv_layout(model);
    int64_t n_blocks = (batch->first_position + batch->n_tokens - 1) / QN_KV_BLOCK -
                       batch->first_position / QN_KV_BLOCK + 1;
    qn_graph *g = qn__graph_make(&err);
    stores *s = qn__calloc(1, sizeof(*s));
    assert_non_null(g);
    assert_non_null(s);
    for (int32_t i = 0; i < kv->n_layers; i++) {
        const qn_kv_layer *l = &kv->layers[i];
        s->k[i] = make_store(s, g, QN_KV_BLOCK, l->d_k, l->n_head_kv, n_blocks);
        s->v[i] = make_store(s, g, l->d_v, QN_KV_BLOCK, l->n_head_kv, n_blocks);
    }
    qn_build_group groups[QN_MAX_KV_GROUPS];
    qn_build_inputs in = {.k = s->k, .v = s->v};
    qn_build_outputs out = {0};
    make_inputs(model, g, batch, &in, groups, n_blocks);
    qn_test_ok(qn__model_build(model, g, &in, &out, &err), err);
    qn_test_ok(qn__graph_finish(g, &err), err);
    qn_plan *plan = NULL;
    qn_test_ok(qn__plan_make(g, device, NULL, &plan, &err), err);
    fill_inputs(model, batch, &in, n_blocks);
    qn_test_ok(qn__plan_run(plan, 0, NULL, &err), err);
    const qn_node *result = batch->embeddings ? out.embeddings : out.logits;
    size_t bytes = (size_t)(result->ne[0] * result->ne[1]) * sizeof(float);
    float *rows = malloc(bytes);
    assert_non_null(rows);
    memcpy(rows, result->data, bytes);
    *columns = result->ne[0];
    qn__plan_free(plan);
    qn__graph_free(g);
    for (int32_t i = 0; i < s->n; i++) {
        qn__block_free(s->blocks[i], s->bytes[i]);
    }
    free(s);
    return rows;
}
