/*
 * lattice_23.c: iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s: magnitudes as points of a code book, signs
 * beside them, a four-bit scale for 16 or 32 values under one half float.
 *
 * Encoding: a sub-block at a time, magnitudes and signs are parted; trials of a scale round the
 * values to digits, move each group to a point of the book and are judged by least squares; a
 * second look repeats that with the scale found. What differs between the formats is a row of
 * `kinds`; only packing and unpacking of the fields is a function of each format.
 */
#include <string.h>

#include "quant/formats.h"
#include "quant/lattice.h"
#include "quant/search.h"

enum { GROUPS_OF_8 = QN_SUPER_BLOCK / 8, MAX_SUBS = 16, SCALE_TOP = 31 };

static const float levels_2[4] = {8.0F, 25.0F, 43.0F, 0.0F};
static const float levels_3_xxs[8] = {4.0F, 12.0F, 20.0F, 28.0F, 36.0F, 44.0F, 52.0F, 62.0F};
/* What the searches take a digit for; iq3_s decodes to the same. */
static const float levels_odd[8] = {1.0F, 3.0F, 5.0F, 7.0F, 9.0F, 11.0F, 13.0F, 15.0F};

/* ---- Decoding -------------------------------------------------------------------------------- */

/* One group of `n` values: factor * level * sign. */
static void put_group(float *y, float factor, unsigned point, int bits, int n, const float *levels,
                      unsigned signs)
{
    for (int j = 0; j < n; j++) {
        float value = factor * levels[qn__digit(point, bits, j)];
        y[j] = signs >> j & 1 ? -value : value;
    }
}

/* Seven stored sign bits and the eighth, which makes the number of negative values even. */
static unsigned with_parity(unsigned seven)
{
    unsigned v = seven & 127;
    return v | (unsigned)__builtin_parity(v) << 7;
}

static int nibble(uint8_t byte, int which)
{
    return byte >> (4 * which) & 15;
}

QN_DECODER(iq2_xxs)
{
    const qn_block_iq2_xxs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < GROUPS_OF_8; k++, y += 8) {
            uint32_t word = b->g[k / 4].signs;
            float factor = d * (0.5F + (float)(word >> 28)) * 0.25F;
            put_group(y, factor, qn__grid_iq2_xxs[b->g[k / 4].index[k % 4]], 2, 8, levels_2,
                      with_parity(word >> (7 * (k % 4))));
        }
    }
}

QN_DECODER(iq2_xs)
{
    const qn_block_iq2_xs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < GROUPS_OF_8; k++, y += 8) {
            float s = (float)nibble(b->scales[k / 4], k / 2 % 2);
            unsigned q = b->qs[k];
            put_group(y, d * (0.5F + s) * 0.25F, qn__grid_iq2_xs[q & 511], 2, 8, levels_2,
                      with_parity(q >> 9));
        }
    }
}

QN_DECODER(iq2_s)
{
    const qn_block_iq2_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < GROUPS_OF_8; k++, y += 8) {
            float s = (float)nibble(b->scales[k / 4], k / 2 % 2);
            int index = b->qs[k] | (b->qh[k / 4] >> (2 * (k % 4)) & 3) << 8;
            put_group(y, d * (0.5F + s) * 0.25F, qn__grid_iq2_s[index], 2, 8, levels_2,
                      b->signs[k]);
        }
    }
}

QN_DECODER(iq3_xxs)
{
    const qn_block_iq3_xxs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < GROUPS_OF_8; k++, y += 8) {
            uint32_t word = b->signs[k / 4];
            float factor = d * (0.5F + (float)(word >> 28)) * 0.5F;
            unsigned signs = with_parity(word >> (7 * (k % 4)));
            put_group(y, factor, qn__grid_iq3_xxs[b->qs[2 * k]], 3, 4, levels_3_xxs, signs);
            put_group(y + 4, factor, qn__grid_iq3_xxs[b->qs[2 * k + 1]], 3, 4, levels_3_xxs,
                      signs >> 4);
        }
    }
}

QN_DECODER(iq3_s)
{
    const qn_block_iq3_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < 2 * GROUPS_OF_8; k++, y += 4) {
            int s = nibble(b->scales[k / 16], k / 8 % 2);
            int index = b->qs[k] | (b->qh[k / 8] >> (k % 8) & 1) << 8;
            put_group(y, d * (float)(1 + 2 * s), qn__grid_iq3_s[index], 3, 4, levels_odd,
                      (unsigned)b->signs[k / 2] >> (4 * (k % 2)));
        }
    }
}

/* ---- Encoding -------------------------------------------------------------------------------- */

/* What differs between the formats. */
typedef struct kind {
    int sub;           /* values that share a scale */
    int top;           /* largest digit */
    float sigma;       /* sigma2 = sigma * sum(x * x) / 256 */
    bool sigma_weight; /* without importance: w = sigma2 / 4 + x * x instead of x * x */
    bool parity;       /* seven stored sign bits */
    float threshold;   /* below it a sub-block counts as zero */
    bool fit_start;    /* start from the search for non-negative levels (iq2_xxs) */
    float step;        /* trials: f = (2 top + 1 + step * k) / largest, k = -reach .. reach */
    int reach;
    bool look_at_all; /* the second look takes every group, not those off the grid alone */
    bool start_off;   /* groups count as off the grid until a trial says otherwise */
    float correction; /* of the stored d */
} kind;

static const kind kind_iq2_xxs = {.sub = 32,
                                  .top = 2,
                                  .sigma = 1.0F,
                                  .parity = true,
                                  .threshold = 1e-15F,
                                  .fit_start = true,
                                  .step = 0.1F,
                                  .reach = 6,
                                  .look_at_all = true,
                                  .start_off = true,
                                  .correction = 1.0F};
static const kind kind_iq2_xs = {.sub = 16,
                                 .top = 2,
                                 .sigma = 1.0F,
                                 .parity = true,
                                 .threshold = 1e-15F,
                                 .step = 0.1F,
                                 .reach = 9,
                                 .correction = 1.0F};
static const kind kind_iq2_s = {.sub = 16,
                                .top = 2,
                                .sigma = 2.0F,
                                .sigma_weight = true,
                                .threshold = 1e-8F,
                                .step = 0.1F,
                                .reach = 9,
                                .correction = 0.9875F};
static const kind kind_iq3_xxs = {.sub = 32,
                                  .top = 7,
                                  .sigma = 2.0F,
                                  .parity = true,
                                  .threshold = 1e-8F,
                                  .step = 0.2F,
                                  .reach = 15,
                                  .correction = 1.0125F};
static const kind kind_iq3_s = {.sub = 32,
                                .top = 7,
                                .sigma = 2.0F,
                                .threshold = 0.0F,
                                .step = 0.2F,
                                .reach = 9,
                                .look_at_all = true,
                                .start_off = true,
                                .correction = 1.033F};

/* What is found for a super-block. */
typedef struct fit {
    float d;                         /* as it is stored */
    uint8_t scale[MAX_SUBS];         /* four bits */
    uint8_t signs[GROUPS_OF_8];      /* of eight values */
    uint16_t index[2 * GROUPS_OF_8]; /* of each group of the book */
} fit;

/* A sub-block at work. */
typedef struct sub_block {
    float v[QN_BLOCK], w[QN_BLOCK], root[QN_BLOCK]; /* magnitudes, weights, their square roots */
    uint8_t digit[QN_BLOCK];
    bool on_grid[QN_BLOCK / 4];
    float largest;
} sub_block;

static void sub_weights(const kind *k, const float *x, const float *weights, float sigma2,
                        sub_block *s)
{
    if (weights) {
        qn__weigh(weights, x, sigma2, s->w, k->sub);
    } else {
        for (int i = 0; i < k->sub; i++) {
            s->w[i] = k->sigma_weight ? 0.25F * sigma2 + x[i] * x[i] : x[i] * x[i];
        }
    }
    for (int i = 0; i < k->sub; i++) {
        s->root[i] = sqrtf(s->w[i]);
    }
}

/* Parts eight values into magnitudes and a byte of signs. With the parity rule an odd number of
 * negative ones is made even where it costs least; that magnitude then counts as negative. */
static uint8_t part_signs(const kind *k, const float *x, const float *w, float *v)
{
    unsigned signs = 0;
    for (int j = 0; j < 8; j++) {
        signs |= (unsigned)(x[j] < 0.0F) << j;
        v[j] = fabsf(x[j]);
    }
    if (k->parity && __builtin_parity(signs)) {
        int cheapest = 0;
        float least = w[0] * x[0] * x[0];
        for (int j = 1; j < 8; j++) {
            float cost = w[j] * x[j] * x[j];
            if (cost < least) {
                least = cost;
                cheapest = j;
            }
        }
        v[cheapest] = -v[cheapest];
        signs ^= 1U << cheapest;
    }
    return (uint8_t)signs;
}

/* Rounds a group to digits with the factor f and moves it to a point. */
static void place_group(const kind *k, const qn_lattice *lattice, sub_block *s, int first, float f,
                        float scale, uint8_t *digit, bool *on_grid)
{
    for (int j = 0; j < lattice->group; j++) {
        int l = qn__round_even(0.5F * (f * s->v[first + j] - 1.0F));
        digit[j] = (uint8_t)qn__clamp_int(l, 0, k->top);
    }
    qn__lattice_nearest(lattice, s->v + first, s->root + first, scale, levels_odd, digit, on_grid);
}

/* A = sum w v q and B = sum w q q, q = 2 digit + 1. */
static void least_squares(const kind *k, const sub_block *s, const uint8_t *digit, float *a,
                          float *b)
{
    float sum_a = 0.0F;
    float sum_b = 0.0F;
    for (int i = 0; i < k->sub; i++) {
        float q = (float)(2 * digit[i] + 1);
        sum_a += s->w[i] * s->v[i] * q;
        sum_b += s->w[i] * q * q;
    }
    *a = sum_a;
    *b = sum_b;
}

/* Tries factors around the obvious one; the best digits stay in the sub-block. */
static float run_trials(const kind *k, const qn_lattice *lattice, sub_block *s, float largest,
                        float scale)
{
    float best = 0.0F;
    for (int t = -k->reach; t <= k->reach; t++) {
        uint8_t digit[QN_BLOCK];
        bool on_grid[QN_BLOCK / 4];
        float f = ((float)(2 * k->top + 1) + k->step * (float)t) / largest;
        float a;
        float b;
        for (int first = 0; first < k->sub; first += lattice->group) {
            place_group(k, lattice, s, first, f, 1.0F / f, digit + first,
                        &on_grid[first / lattice->group]);
        }
        least_squares(k, s, digit, &a, &b);
        if (b > 0.0F && a * a > best * b) {
            scale = a / b;
            best = scale * a;
            memcpy(s->digit, digit, sizeof digit);
            memcpy(s->on_grid, on_grid, sizeof on_grid);
        }
    }
    return scale;
}

static float look_again(const kind *k, const qn_lattice *lattice, sub_block *s, float scale)
{
    int off = 0;
    int groups = k->sub / lattice->group;
    for (int g = 0; g < groups; g++) {
        off += !s->on_grid[g];
    }
    if (!(scale > 0.0F) || (off == 0 && !k->fit_start)) {
        return scale;
    }
    float a;
    float b;
    for (int g = 0; g < groups; g++) {
        bool on_grid;
        if (k->look_at_all || !s->on_grid[g]) {
            place_group(k, lattice, s, g * lattice->group, 1.0F / scale, scale,
                        s->digit + g * lattice->group, &on_grid);
        }
    }
    least_squares(k, s, s->digit, &a, &b);
    return b > 0.0F ? a / b : scale;
}

/* Scale of a sub-block whose magnitudes and weights are set; its digits are set. 0: it is zero. */
static float fit_sub_block(const kind *k, const qn_lattice *lattice, sub_block *s)
{
    float largest = s->v[0];
    for (int i = 1; i < k->sub; i++) {
        largest = s->v[i] > largest ? s->v[i] : largest;
    }
    memset(s->digit, 0, sizeof s->digit);
    for (int g = 0; g < QN_BLOCK / 4; g++) {
        s->on_grid[g] = !k->start_off;
    }
    if (!(largest > 0.0F) || largest < k->threshold) {
        return 0.0F;
    }
    float scale = largest / (float)(2 * k->top + 1);
    if (k->fit_start) {
        uint8_t level[QN_BLOCK];
        scale = qn__fit_positive(s->v, s->w, k->sub, k->top + 2, level);
        largest = (float)(k->top + 1) * scale;
        if (!(largest > 0.0F)) {
            return 0.0F;
        }
    }
    scale = run_trials(k, lattice, s, largest, scale);
    return look_again(k, lattice, s, scale);
}

/* The four-bit scales of the sub-blocks and d. */
static void fit_scales(const kind *k, const float *scale, fit *out)
{
    int subs = QN_SUPER_BLOCK / k->sub;
    float largest = 0.0F;
    for (int s = 0; s < subs; s++) {
        largest = scale[s] > largest ? scale[s] : largest;
    }
    if (!(largest > 0.0F)) {
        memset(out, 0, sizeof *out);
        return;
    }
    float d = largest / (float)SCALE_TOP;
    float inverse = 1.0F / d;
    out->d = d * k->correction;
    for (int s = 0; s < subs; s++) {
        int l = qn__round_even(0.5F * (inverse * scale[s] - 1.0F));
        out->scale[s] = (uint8_t)qn__clamp_int(l, 0, 15);
    }
}

static void fit_super_block(const kind *k, const qn_lattice *lattice, const float *x,
                            const float *weights, fit *out)
{
    float scale[MAX_SUBS];
    float sigma2 = k->sigma * qn__sum_squares(x, QN_SUPER_BLOCK) / (float)QN_SUPER_BLOCK;
    memset(out, 0, sizeof *out);
    for (int first = 0; first < QN_SUPER_BLOCK; first += k->sub) {
        sub_block s;
        float *sub_scale = &scale[first / k->sub];
        sub_weights(k, x + first, weights ? weights + first : NULL, sigma2, &s);
        for (int i = 0; i < k->sub; i += 8) {
            out->signs[(first + i) / 8] = part_signs(k, x + first + i, s.w + i, s.v + i);
        }
        *sub_scale = fit_sub_block(k, lattice, &s);
        bool turned = *sub_scale < 0.0F;
        *sub_scale = turned ? -*sub_scale : *sub_scale;
        for (int i = 0; i < k->sub; i += 8) {
            uint8_t *signs = &out->signs[(first + i) / 8];
            *signs = *sub_scale == 0.0F ? 0 : turned ? (uint8_t) ~*signs : *signs;
        }
        for (int i = 0; i < k->sub; i += lattice->group) {
            int32_t entry = lattice->entry[qn__lattice_pattern(lattice, s.digit + i)];
            out->index[(first + i) / lattice->group] =
                (uint16_t)(*sub_scale == 0.0F || entry < 0 ? 0 : entry);
        }
    }
    fit_scales(k, scale, out);
}

/* Seven sign bits of four groups and a scale of 32 values. */
static uint32_t pack_signs(const fit *f, int g)
{
    uint32_t word = (uint32_t)f->scale[g] << 28;
    for (int l = 0; l < 4; l++) {
        word |= (uint32_t)(f->signs[4 * g + l] & 127) << (7 * l);
    }
    return word;
}

QN_ENCODER(iq2_xxs)
{
    qn_block_iq2_xxs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(&kind_iq2_xxs, tables, x + at, weights ? weights + at : NULL, &f);
        b->d = qn__f32_to_f16(f.d);
        for (int g = 0; g < 8; g++) {
            for (int l = 0; l < 4; l++) {
                b->g[g].index[l] = (uint8_t)f.index[4 * g + l];
            }
            b->g[g].signs = pack_signs(&f, g);
        }
    }
}

QN_ENCODER(iq2_xs)
{
    qn_block_iq2_xs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(&kind_iq2_xs, tables, x + at, weights ? weights + at : NULL, &f);
        b->d = qn__f32_to_f16(f.d);
        for (int k = 0; k < GROUPS_OF_8; k++) {
            b->qs[k] = (uint16_t)(f.index[k] | (f.signs[k] & 127) << 9);
        }
        for (int g = 0; g < 8; g++) {
            b->scales[g] = (uint8_t)(f.scale[2 * g] | f.scale[2 * g + 1] << 4);
        }
    }
}

QN_ENCODER(iq2_s)
{
    qn_block_iq2_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(&kind_iq2_s, tables, x + at, weights ? weights + at : NULL, &f);
        memset(b, 0, sizeof *b);
        b->d = qn__f32_to_f16(f.d);
        for (int k = 0; k < GROUPS_OF_8; k++) {
            b->qs[k] = (uint8_t)f.index[k];
            b->qh[k / 4] |= (uint8_t)(f.index[k] >> 8 << (2 * (k % 4)));
            b->signs[k] = f.signs[k];
        }
        for (int g = 0; g < 8; g++) {
            b->scales[g] = (uint8_t)(f.scale[2 * g] | f.scale[2 * g + 1] << 4);
        }
    }
}

QN_ENCODER(iq3_xxs)
{
    qn_block_iq3_xxs *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(&kind_iq3_xxs, tables, x + at, weights ? weights + at : NULL, &f);
        b->d = qn__f32_to_f16(f.d);
        for (int k = 0; k < 2 * GROUPS_OF_8; k++) {
            b->qs[k] = (uint8_t)f.index[k];
        }
        for (int g = 0; g < 8; g++) {
            b->signs[g] = pack_signs(&f, g);
        }
    }
}

QN_ENCODER(iq3_s)
{
    qn_block_iq3_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(&kind_iq3_s, tables, x + at, weights ? weights + at : NULL, &f);
        memset(b, 0, sizeof *b);
        b->d = qn__f32_to_f16(f.d);
        for (int k = 0; k < 2 * GROUPS_OF_8; k++) {
            b->qs[k] = (uint8_t)f.index[k];
            b->qh[k / 8] |= (uint8_t)(f.index[k] >> 8 << (k % 8));
        }
        memcpy(b->signs, f.signs, sizeof b->signs);
        for (int g = 0; g < 8; g++) {
            b->scales[g / 2] |= (uint8_t)(f.scale[g] << (4 * (g % 2)));
        }
    }
}
