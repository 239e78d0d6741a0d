/*
 * state.c: saving and restoring the store. Little-endian:
 *
 *   8 bytes "quernKV" and a zero; u32 version; u32 kind (0 all sequences, 1 one sequence);
 *   u64 hash of what fixes the layout of cells and the meaning of positions;
 *   u64 bytes of the body; u64 checksum of the body; the body:
 *
 * - u32 number of sequences; for each: u32 id, and for each group: u32 first block index, u32
 *   dropped, u32 entries, entries x (u32 block, u32 mask). A block is a number in the group's list,
 *   0xffffffff where the mask is 0.
 * - for each group its list: u32 blocks; blocks x u32 mask of the places that any sequence uses;
 *   then for each layer of the group, in order, the K blocks and the V blocks. Unused places are 0.
 *
 * So a state does not depend on the size of the store, on where its blocks lay, or on n_seq_max.
 * Known tokens are not part of it: restored blocks are not findable as prefixes.
 */
#include "base/error.h"
#include "device/kv_layout.h"
#include "memory/internal.h"

#include <stdlib.h>

#define VERSION  1U
#define NO_BLOCK UINT32_MAX

static const uint8_t magic[8] = {'q', 'u', 'e', 'r', 'n', 'K', 'V', 0};

enum { KIND_ALL = 0, KIND_SEQUENCE = 1 };

/* Hashing ---------------------------------------------------------------------------------------
 */

static uint64_t hash_word(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9fb21c651e98df25U;
    return h ^ (h >> 29);
}

static uint64_t hash_bytes(uint64_t h, const uint8_t *data, size_t n)
{
    for (; n >= 8; n -= 8, data += 8) {
        uint64_t word = 0;
        for (int i = 7; i >= 0; i--) {
            word = word << 8 | data[i];
        }
        h = hash_word(h, word);
    }
    uint64_t rest = n;
    for (size_t i = 0; i < n; i++) {
        rest = rest << 8 | data[i];
    }
    return hash_word(h, rest);
}

static uint64_t hash_float(uint64_t h, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return hash_word(h, bits);
}

static uint64_t hash_rope(uint64_t h, const qn_kv_rope *r)
{
    const qn_rope_params *p = &r->params;
    const int32_t words[] = {(int32_t)p->mode, p->n_rot,       p->n_ctx_orig, p->sections[0],
                             p->sections[1],   p->sections[2], p->sections[3]};
    const float floats[] = {p->freq_base,   p->freq_scale, p->ext_factor,
                            p->attn_factor, p->beta_fast,  p->beta_slow};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        h = hash_word(h, (uint64_t)(uint32_t)words[i]);
    }
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        h = hash_float(h, floats[i]);
    }
    for (int32_t i = 0; r->factors && i < p->n_rot / 2; i++) {
        h = hash_float(h, r->factors[i]);
    }
    return h;
}

/* Of everything that makes the cells of two stores mean the same. */
static uint64_t layout_hash(const qn_kv *kv)
{
    const qn_kv_layout *layout = &kv->layout;
    uint64_t h = hash_word(kv->config.model_hash,
                           (uint64_t)kv->config.type_k << 32 | (uint64_t)kv->config.type_v);
    for (int32_t i = 0; i < layout->n_groups; i++) {
        h = hash_word(h, (uint64_t)layout->groups[i].window << 32 |
                             (uint32_t)layout->groups[i].window_size);
    }
    for (int32_t i = 0; i < layout->n_layers; i++) {
        const qn_kv_layer *l = &layout->layers[i];
        const int32_t words[] = {l->group, l->n_head_kv, l->d_k, l->d_v, l->rope, l->rot_first};
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
            h = hash_word(h, (uint64_t)(uint32_t)words[k]);
        }
    }
    for (int32_t i = 0; i < kv->config.n_ropes; i++) {
        h = hash_rope(h, &kv->ropes[i]);
    }
    return h;
}

uint64_t qn__kv_state_checksum(const uint8_t *body, size_t n)
{
    return hash_bytes(0x243f6a8885a308d3U, body, n);
}

/* Writing ---------------------------------------------------------------------------------------
 */

/* Bytes go to `buf`; NULL: they are only counted. */
typedef struct sink {
    qn_buf *buf;
    size_t n;
} sink;

static void put_bytes(sink *out, const void *bytes, size_t n)
{
    if (out->buf) {
        qn__buf_add(out->buf, bytes, n);
    }
    out->n += n;
}

static void put_u32(sink *out, uint32_t x)
{
    uint8_t b[4];
    for (int i = 0; i < 4; i++) {
        b[i] = (uint8_t)(x >> (8 * i));
    }
    put_bytes(out, b, sizeof b);
}

static void put_u64(sink *out, uint64_t x)
{
    put_u32(out, (uint32_t)x);
    put_u32(out, (uint32_t)(x >> 32));
}

/* The blocks of a group that a state holds. */
typedef struct used {
    int32_t *number; /* [n_blocks of the pool]: number in the state, NONE: not used */
    int32_t *block;  /* [n]: the reverse */
    uint32_t *mask;  /* [n] */
    int32_t n;
} used;

static void free_used(used *u)
{
    free(u->number);
    free(u->block);
    free(u->mask);
}

static bool in_state(const qn_kv *kv, int32_t s, int32_t wanted)
{
    return wanted < 0 ? qn__kv_seq_pos_max(kv, s) >= 0 : s == wanted;
}

static bool find_used(const qn_kv *kv, int32_t gi, int32_t wanted, used *u)
{
    const group *g = &kv->groups[gi];
    size_t n = (size_t)g->n_blocks;
    *u = (used){qn__calloc(n, sizeof(int32_t)), qn__calloc(n, sizeof(int32_t)),
                qn__calloc(n, sizeof(uint32_t)), 0};
    if (!u->number || !u->block || !u->mask) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        u->number[i] = NONE;
    }
    for (int32_t s = 0; s < kv->n_seq; s++) {
        const table *t = &g->tables[s];
        for (int32_t i = 0; in_state(kv, s, wanted) && i < t->count; i++) {
            const entry *e = qn__kv_entry(t, i);
            if (e->mask == 0) {
                continue;
            }
            if (u->number[e->block] == NONE) {
                u->number[e->block] = u->n;
                u->block[u->n++] = e->block;
            }
            u->mask[u->number[e->block]] |= e->mask;
        }
    }
    return true;
}

static void put_sequence(const qn_kv *kv, int32_t s, const used *u, sink *out)
{
    put_u32(out, (uint32_t)s);
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        const table *t = &kv->groups[gi].tables[s];
        put_u32(out, t->count > 0 ? (uint32_t)t->first : 0);
        put_u32(out, (uint32_t)t->dropped);
        put_u32(out, (uint32_t)t->count);
        for (int32_t i = 0; i < t->count; i++) {
            const entry *e = qn__kv_entry(t, i);
            put_u32(out, e->mask ? (uint32_t)u[gi].number[e->block] : NO_BLOCK);
            put_u32(out, e->mask);
        }
    }
}

/* One block of one layer's K (V) store; `spare` is as long as a block. */
static void put_block(const qn_kv *kv, int32_t layer, bool is_v, int32_t b, uint32_t mask,
                      uint8_t *spare, sink *out)
{
    const store *s = &kv->stores[layer];
    const qn_kv_layer *l = &kv->layout.layers[layer];
    size_t bytes = is_v ? s->v_block : s->k_block, one = bytes / (size_t)l->n_head_kv;
    const uint8_t *from = (is_v ? s->v : s->k) + (size_t)b * bytes;
    if (mask == UINT32_MAX || !out->buf) {
        put_bytes(out, from, bytes);
        return;
    }
    memset(spare, 0, bytes);
    for (int place = 0; place < SIDE; place++) {
        for (int32_t h = 0; (mask >> place & 1U) && h < l->n_head_kv; h++) {
            size_t at = (size_t)h * one;
            if (is_v) {
                qn__kv_move_v(kv->config.type_v, spare + at, place, from + at, place, l->d_v);
            } else {
                qn__kv_move_k(kv->config.type_k, spare + at, place, from + at, place, l->d_k);
            }
        }
    }
    put_bytes(out, spare, bytes);
}

static void put_group(const qn_kv *kv, int32_t gi, const used *u, uint8_t *spare, sink *out)
{
    put_u32(out, (uint32_t)u->n);
    for (int32_t i = 0; i < u->n; i++) {
        put_u32(out, u->mask[i]);
    }
    for (int32_t layer = 0; layer < kv->layout.n_layers; layer++) {
        for (int is_v = 0; kv->layout.layers[layer].group == gi && is_v < 2; is_v++) {
            for (int32_t i = 0; (!is_v || kv->stores[layer].v) && i < u->n; i++) {
                put_block(kv, layer, is_v, u->block[i], u->mask[i], spare, out);
            }
        }
    }
}

static void put_body(const qn_kv *kv, int32_t wanted, const used *u, uint8_t *spare, sink *out)
{
    uint32_t n = 0;
    for (int32_t s = 0; s < kv->n_seq; s++) {
        n += in_state(kv, s, wanted);
    }
    put_u32(out, n);
    for (int32_t s = 0; s < kv->n_seq; s++) {
        if (in_state(kv, s, wanted)) {
            put_sequence(kv, s, u, out);
        }
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        put_group(kv, gi, &u[gi], spare, out);
    }
}

static size_t largest_block(const qn_kv *kv)
{
    size_t largest = 0;
    for (int32_t i = 0; i < kv->layout.n_layers; i++) {
        const store *s = &kv->stores[i];
        largest = s->k_block > largest ? s->k_block : largest;
        largest = s->v_block > largest ? s->v_block : largest;
    }
    return largest;
}

/* The whole state into `buf` (NULL: counted). 0 where memory is lacking. */
static size_t write_state(qn_kv *kv, int32_t wanted, qn_buf *buf)
{
    used u[QN_MAX_KV_GROUPS] = {{0}};
    uint8_t *spare = qn__calloc(largest_block(kv), 1);
    bool ok = spare != NULL;
    sink count = {0}, out = {.buf = buf};
    for (int32_t gi = 0; ok && gi < kv->n_groups; gi++) {
        ok = find_used(kv, gi, wanted, &u[gi]);
    }
    if (ok) {
        put_body(kv, wanted, u, spare, &count);
        ok = !buf || qn__buf_reserve(buf, QN_KV_STATE_HEADER + count.n);
    }
    if (ok && buf) {
        size_t start = buf->size;
        put_bytes(&out, magic, sizeof magic);
        put_u32(&out, VERSION);
        put_u32(&out, wanted < 0 ? KIND_ALL : KIND_SEQUENCE);
        put_u64(&out, layout_hash(kv));
        put_u64(&out, count.n);
        put_u64(&out, 0);
        put_body(kv, wanted, u, spare, &out);
        uint64_t sum = qn__kv_state_checksum(buf->data + start + QN_KV_STATE_HEADER, count.n);
        for (size_t i = 0; i < 8; i++) {
            buf->data[start + QN_KV_STATE_HEADER - 8 + i] = (uint8_t)(sum >> (8 * i));
        }
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        free_used(&u[gi]);
    }
    free(spare);
    return ok ? QN_KV_STATE_HEADER + count.n : 0;
}

qn_status qn__kv_state_write(qn_kv *kv, int32_t s, qn_buf *out, qn_error *err)
{
    if (s >= kv->n_seq || kv->batch.open) {
        return qn__error(err, QN_ERR_ARGUMENT, "no sequence %d to save", s);
    }
    qn__kv_apply_moves(kv);
    return write_state(kv, s, out) > 0 ? QN_OK : qn__error_memory(err, "a KV state");
}

size_t qn__kv_state_size(qn_kv *kv, int32_t s)
{
    return s < kv->n_seq && !kv->batch.open ? write_state(kv, s, NULL) : 0;
}

/* Reading ---------------------------------------------------------------------------------------
 */

typedef struct source {
    const uint8_t *data;
    size_t size, at;
    bool failed; /* something was read beyond the end */
} source;

static const uint8_t *get_bytes(source *in, size_t n)
{
    if (in->failed || n > in->size - in->at) {
        in->failed = true;
        return NULL;
    }
    in->at += n;
    return in->data + in->at - n;
}

static uint32_t get_u32(source *in)
{
    const uint8_t *b = get_bytes(in, 4);
    return b ? (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24
             : 0;
}

static uint64_t get_u64(source *in)
{
    uint64_t low = get_u32(in);
    return low | (uint64_t)get_u32(in) << 32;
}

static qn_status damaged(qn_error *err, const char *what)
{
    return qn__error(err, QN_ERR_FORMAT, "KV state: %s", what);
}

static qn_status check_header(const qn_kv *kv, uint32_t kind, source *in, qn_error *err)
{
    const uint8_t *m = get_bytes(in, sizeof magic);
    if (!m || memcmp(m, magic, sizeof magic) != 0) {
        return damaged(err, "this is none");
    }
    uint32_t version = get_u32(in), own_kind = get_u32(in);
    uint64_t hash = get_u64(in), bytes = get_u64(in), sum = get_u64(in);
    if (in->failed) {
        return damaged(err, "it ends in its header");
    }
    if (version != VERSION) {
        return qn__error(err, QN_ERR_FORMAT, "KV state: version %u; this program reads %u", version,
                         VERSION);
    }
    if (own_kind != kind) {
        return damaged(err, own_kind == KIND_ALL ? "it holds all sequences, not one"
                                                 : "it holds one sequence, not all");
    }
    if (hash != layout_hash(kv)) {
        return damaged(err, "it was made with another model or other cache types");
    }
    if (bytes != in->size - in->at) {
        return damaged(err, "its length is wrong");
    }
    return qn__kv_state_checksum(in->data + in->at, in->size - in->at) == sum
               ? QN_OK
               : damaged(err, "its checksum is wrong");
}

/* What a state says of one group's blocks, gathered while its sequences are read. */
typedef struct claim {
    uint32_t *mask;  /* [n_blocks]: places used */
    int32_t *refs;   /* [n_blocks] */
    int32_t *last;   /* [n_blocks]: the last sequence that named it, counted from 1 */
    int32_t *number; /* [n_blocks]: where it is put */
} claim;

static bool make_claim(const group *g, claim *c)
{
    size_t n = (size_t)g->n_blocks;
    *c = (claim){qn__calloc(n, 4), qn__calloc(n, 4), qn__calloc(n, 4), qn__calloc(n, 4)};
    return c->mask && c->refs && c->last && c->number;
}

static void free_claim(claim *c)
{
    free(c->mask);
    free(c->refs);
    free(c->last);
    free(c->number);
}

/* One table: its shape, and what it claims. */
static qn_status check_table(const group *g, int32_t turn, claim *c, source *in, qn_error *err)
{
    uint32_t first = get_u32(in), dropped = get_u32(in), count = get_u32(in);
    if (in->failed || count > (in->size - in->at) / 8) {
        return damaged(err, "it ends in a table");
    }
    if (count > (uint32_t)g->capacity) {
        return qn__error(err, QN_ERR_FULL, "KV state: a sequence is too long for this cache");
    }
    if (first > QN_KV_MAX_POS / SIDE || count > QN_KV_MAX_POS / SIDE - first ||
        dropped > (uint32_t)QN_KV_MAX_POS) {
        return damaged(err, "a position is out of range");
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = get_u32(in), mask = get_u32(in);
        if (mask == 0 && b == NO_BLOCK && i > 0 && i + 1 < count) {
            continue;
        }
        if (mask == 0 || b == NO_BLOCK) {
            return damaged(err, "an entry of a table is empty");
        }
        if (b >= (uint32_t)g->n_blocks) {
            return qn__error(err, QN_ERR_FULL, "KV state: more blocks than this cache has");
        }
        if (c->last[b] == turn) {
            return damaged(err, "a sequence names a block twice");
        }
        c->last[b] = turn;
        c->mask[b] |= mask;
        c->refs[b]++;
    }
    return QN_OK;
}

/* The list of blocks of a group and the length of its data. */
static qn_status check_blocks(const qn_kv *kv, int32_t gi, const claim *c, source *in,
                              qn_error *err)
{
    const group *g = &kv->groups[gi];
    uint32_t n = get_u32(in);
    if (in->failed || n > (uint32_t)g->n_blocks) {
        return damaged(err, "bad number of blocks");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (c->mask[i] == 0 || get_u32(in) != c->mask[i]) {
            return damaged(err, "blocks and tables do not agree");
        }
    }
    for (uint32_t i = n; i < (uint32_t)g->n_blocks; i++) {
        if (c->mask[i] != 0) {
            return damaged(err, "a table names a block that is not there");
        }
    }
    for (int32_t layer = 0; layer < kv->layout.n_layers; layer++) {
        const store *s = &kv->stores[layer];
        if (kv->layout.layers[layer].group == gi) {
            get_bytes(in, (size_t)n * s->k_block); /* both factors are of this store */
            get_bytes(in, (size_t)n * s->v_block);
        }
    }
    return in->failed ? damaged(err, "it ends in its data") : QN_OK;
}

/* Blocks of the group that are to be had once the sequences to be replaced are gone. */
static int32_t room(const qn_kv *kv, int32_t gi, int32_t wanted)
{
    const group *g = &kv->groups[gi];
    if (wanted < 0) {
        return g->n_blocks - SPARE;
    }
    int32_t n = g->n_free;
    const table *t = &g->tables[wanted];
    for (int32_t i = 0; i < t->count; i++) {
        const entry *e = qn__kv_entry(t, i);
        n += e->mask && g->blocks[e->block].refs == 1;
    }
    return n - SPARE;
}

static qn_status check_body(qn_kv *kv, int32_t wanted, claim *claims, source *in, qn_error *err)
{
    uint32_t n = get_u32(in);
    if (wanted >= 0 && n != 1) {
        return damaged(err, "bad number of sequences");
    }
    if (n > (uint32_t)kv->n_seq) {
        return qn__error(err, QN_ERR_FULL, "KV state: %u sequences, %d are possible", n, kv->n_seq);
    }
    for (int32_t s = 0; s < kv->n_seq; s++) {
        kv->seq_mark[s] = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = get_u32(in);
        if (wanted < 0 && (id >= (uint32_t)kv->n_seq || kv->seq_mark[id]++)) {
            return damaged(err, "a sequence id is out of range or given twice");
        }
        for (int32_t gi = 0; gi < kv->n_groups; gi++) {
            qn_status status = check_table(&kv->groups[gi], (int32_t)i + 1, &claims[gi], in, err);
            if (status != QN_OK) {
                return status;
            }
        }
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        qn_status status = check_blocks(kv, gi, &claims[gi], in, err);
        if (status != QN_OK) {
            return status;
        }
        int32_t need = 0;
        for (int32_t b = 0; b < kv->groups[gi].n_blocks; b++) {
            need += claims[gi].mask[b] != 0;
        }
        if (need > room(kv, gi, wanted)) {
            return qn__error(err, QN_ERR_FULL, "KV state: it does not fit into this cache");
        }
    }
    return in->at == in->size ? QN_OK : damaged(err, "bytes are left over");
}

/* Everything was checked: puts the state in. `in` stands at the body. */
static void take_sequence(qn_kv *kv, int32_t s, const claim *claims, source *in)
{
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        table *t = &kv->groups[gi].tables[s];
        t->head = 0;
        t->first = (int32_t)get_u32(in);
        t->dropped = (int32_t)get_u32(in);
        t->count = (int32_t)get_u32(in);
        for (int32_t i = 0; i < t->count; i++) {
            uint32_t b = get_u32(in), mask = get_u32(in);
            t->entries[i] = (entry){mask ? claims[gi].number[b] : NONE, mask};
        }
    }
    qn__kv_sequence_reset_if_empty(kv, s);
}

static void take_data(const qn_kv *kv, int32_t gi, const claim *c, source *in)
{
    int32_t n = (int32_t)get_u32(in);
    get_bytes(in, (size_t)n * 4);
    for (int32_t layer = 0; layer < kv->layout.n_layers; layer++) {
        const store *s = &kv->stores[layer];
        if (kv->layout.layers[layer].group != gi) {
            continue;
        }
        for (int32_t i = 0; i < n; i++) {
            memcpy(s->k + (size_t)c->number[i] * s->k_block, get_bytes(in, s->k_block), s->k_block);
        }
        for (int32_t i = 0; s->v && i < n; i++) {
            memcpy(s->v + (size_t)c->number[i] * s->v_block, get_bytes(in, s->v_block), s->v_block);
        }
    }
}

static void take_body(qn_kv *kv, int32_t wanted, const claim *claims, source *in)
{
    qn__kv_seq_rm(kv, wanted, -1, -1);
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        for (int32_t b = 0; b < kv->groups[gi].n_blocks; b++) {
            if (claims[gi].refs[b] > 0) {
                claims[gi].number[b] = qn__kv_block_take(kv, gi, claims[gi].refs[b], false);
            }
        }
    }
    uint32_t n = get_u32(in);
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)get_u32(in);
        take_sequence(kv, wanted < 0 ? id : wanted, claims, in);
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        take_data(kv, gi, &claims[gi], in);
    }
}

qn_status qn__kv_state_read(qn_kv *kv, int32_t s, const uint8_t *data, size_t size, qn_error *err)
{
    if (s >= kv->n_seq || kv->batch.open || !data) {
        return qn__error(err, QN_ERR_ARGUMENT, "no sequence %d to restore", s);
    }
    claim claims[QN_MAX_KV_GROUPS] = {{0}};
    source in = {.data = data, .size = size};
    qn_status status = check_header(kv, s < 0 ? KIND_ALL : KIND_SEQUENCE, &in, err);
    source body = in;
    for (int32_t gi = 0; status == QN_OK && gi < kv->n_groups; gi++) {
        status =
            make_claim(&kv->groups[gi], &claims[gi]) ? QN_OK : qn__error_memory(err, "a KV state");
    }
    if (status == QN_OK) {
        status = check_body(kv, s, claims, &in, err);
    }
    if (status == QN_OK) {
        take_body(kv, s, claims, &body);
    }
    for (int32_t gi = 0; gi < kv->n_groups; gi++) {
        free_claim(&claims[gi]);
    }
    return status;
}
