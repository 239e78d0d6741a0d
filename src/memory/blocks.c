/* blocks.c: pools of blocks and what they are known to hold; see internal.h. */
#include "device/kv_layout.h"
#include "memory/internal.h"

/* The list of unused blocks: plain ones in front, findable ones behind, longest unused first. */
static void list_remove(group *g, int32_t b)
{
    block *x = &g->blocks[b];
    if (x->prev == NONE) {
        g->free_head = x->next;
    } else {
        g->blocks[x->prev].next = x->next;
    }
    if (x->next == NONE) {
        g->free_tail = x->prev;
    } else {
        g->blocks[x->next].prev = x->prev;
    }
    x->prev = x->next = NONE;
    g->n_free--;
}

static void list_add(group *g, int32_t b, bool at_end)
{
    block *x = &g->blocks[b];
    x->prev = at_end ? g->free_tail : NONE;
    x->next = at_end ? NONE : g->free_head;
    if (g->free_head == NONE) {
        g->free_head = g->free_tail = b;
    } else if (at_end) {
        g->blocks[g->free_tail].next = b;
        g->free_tail = b;
    } else {
        g->blocks[g->free_head].prev = b;
        g->free_head = b;
    }
    g->n_free++;
}

int32_t qn__kv_blocks_free(const group *g)
{
    return g->n_free > SPARE ? g->n_free - SPARE : 0;
}

int32_t qn__kv_block_take(qn_kv *kv, int32_t gi, int32_t refs, bool dry)
{
    group *g = &kv->groups[gi];
    int32_t b = g->free_head;
    if (b == NONE) {
        return NONE;
    }
    list_remove(g, b);
    g->blocks[b].refs = refs;
    if (!dry) {
        qn__kv_block_forget(kv, gi, b);
        if (g->moved) {
            memset(g->moved + (size_t)b * SIDE, 0, SIDE * sizeof *g->moved);
        }
    }
    return b;
}

void qn__kv_block_release(qn_kv *kv, int32_t gi, int32_t b, int32_t refs)
{
    group *g = &kv->groups[gi];
    g->blocks[b].refs -= refs;
    if (g->blocks[b].refs == 0) {
        list_add(g, b, g->blocks[b].content != NONE);
    }
}

void qn__kv_block_share(qn_kv *kv, int32_t gi, int32_t b)
{
    group *g = &kv->groups[gi];
    if (g->blocks[b].refs == 0) {
        list_remove(g, b);
    }
    g->blocks[b].refs++;
}

void qn__kv_block_copy(qn_kv *kv, int32_t gi, int32_t to, int32_t from)
{
    group *g = &kv->groups[gi];
    for (int32_t i = 0; i < kv->layout.n_layers; i++) {
        const store *s = &kv->stores[i];
        if (kv->layout.layers[i].group != gi) {
            continue;
        }
        memcpy(s->k + (size_t)to * s->k_block, s->k + (size_t)from * s->k_block, s->k_block);
        if (s->v) {
            memcpy(s->v + (size_t)to * s->v_block, s->v + (size_t)from * s->v_block, s->v_block);
        }
    }
    if (g->moved) {
        memcpy(g->moved + (size_t)to * SIDE, g->moved + (size_t)from * SIDE,
               SIDE * sizeof *g->moved);
    }
}

void qn__kv_place_copy(qn_kv *kv, int32_t gi, int32_t to, int to_place, int32_t from,
                       int from_place)
{
    group *g = &kv->groups[gi];
    for (int32_t i = 0; i < kv->layout.n_layers; i++) {
        const qn_kv_layer *layer = &kv->layout.layers[i];
        const store *s = &kv->stores[i];
        if (layer->group != gi) {
            continue;
        }
        size_t heads = (size_t)layer->n_head_kv;
        for (size_t h = 0; h < heads; h++) {
            size_t k = s->k_block / heads, v = s->v_block / heads;
            qn__kv_move_k(kv->config.type_k, s->k + ((size_t)to * heads + h) * k, to_place,
                          s->k + ((size_t)from * heads + h) * k, from_place, layer->d_k);
            if (s->v) {
                qn__kv_move_v(kv->config.type_v, s->v + ((size_t)to * heads + h) * v, to_place,
                              s->v + ((size_t)from * heads + h) * v, from_place, layer->d_v);
            }
        }
    }
    if (g->moved) {
        g->moved[(size_t)to * SIDE + (size_t)to_place] =
            g->moved[(size_t)from * SIDE + (size_t)from_place];
    }
}

/* Contents --------------------------------------------------------------------------------------
 */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93U;
    x ^= x >> 32;
    return x;
}

static int32_t *bucket_of(const qn_kv *kv, uint64_t parent, const int32_t *tokens)
{
    uint64_t h = mix(parent);
    for (int i = 0; i < SIDE; i++) {
        h = mix(h ^ (uint32_t)tokens[i]);
    }
    return &kv->buckets[h & (uint64_t)(kv->n_buckets - 1)];
}

uint64_t qn__kv_chain_root(const qn_kv *kv)
{
    return mix(kv->salt) | (UINT64_C(1) << 63); /* ids of contents have no such bit */
}

content *qn__kv_content_find(const qn_kv *kv, uint64_t parent, const int32_t *tokens)
{
    for (int32_t i = *bucket_of(kv, parent, tokens); i != NONE; i = kv->contents[i].next) {
        content *c = &kv->contents[i];
        if (c->parent == parent && memcmp(c->tokens, tokens, sizeof c->tokens) == 0) {
            return c;
        }
    }
    return NULL;
}

static content *make_content(qn_kv *kv, uint64_t parent, const int32_t *tokens)
{
    int32_t i = kv->free_content; /* there are as many as blocks, and each has one */
    content *c = &kv->contents[i];
    kv->free_content = c->next;
    int32_t *bucket = bucket_of(kv, parent, tokens);
    *c = (content){.id = ++kv->next_id, .parent = parent, .next = *bucket};
    memcpy(c->tokens, tokens, sizeof c->tokens);
    for (int g = 0; g < QN_MAX_KV_GROUPS; g++) {
        c->block[g] = NONE;
    }
    *bucket = i;
    return c;
}

uint64_t qn__kv_content_add(qn_kv *kv, uint64_t parent, const int32_t *tokens,
                            const int32_t blocks[QN_MAX_KV_GROUPS])
{
    content *c = qn__kv_content_find(kv, parent, tokens);
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        if (blocks[gi] == NONE) {
            continue;
        }
        c = c ? c : make_content(kv, parent, tokens);
        if (c->block[gi] == NONE) {
            c->block[gi] = blocks[gi];
            c->n_blocks++;
            kv->groups[gi].blocks[blocks[gi]].content = (int32_t)(c - kv->contents);
        }
    }
    return c ? c->id : ++kv->next_id;
}

void qn__kv_block_forget(qn_kv *kv, int32_t gi, int32_t b)
{
    int32_t i = kv->groups[gi].blocks[b].content;
    if (i == NONE) {
        return;
    }
    content *c = &kv->contents[i];
    kv->groups[gi].blocks[b].content = NONE;
    c->block[gi] = NONE;
    if (--c->n_blocks > 0) {
        return;
    }
    int32_t *link = bucket_of(kv, c->parent, c->tokens);
    while (*link != i) {
        link = &kv->contents[*link].next;
    }
    *link = c->next;
    c->next = kv->free_content;
    kv->free_content = i;
}

void qn__kv_contents_clear(qn_kv *kv)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        for (int32_t b = 0; b < kv->groups[gi].n_blocks; b++) {
            qn__kv_block_forget(kv, gi, b);
        }
    }
}
