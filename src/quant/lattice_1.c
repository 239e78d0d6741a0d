/*
 * lattice_1.c: iq1_s and iq1_m: values -1, 0, 1 as points of a code book of eight, shifted by an
 * eighth up or down, under three-bit scales.
 *
 * Encoding: the values of a sub-block are sorted and every split into low, middle and high ones is
 * judged by least squares, with every choice of shifts; then each group of eight moves to a point.
 */
#include <float.h>
#include <string.h>

#include "quant/formats.h"
#include "quant/lattice.h"
#include "quant/search.h"

#define SHIFT 0.125F

enum { GROUPS = QN_SUPER_BLOCK / 8, MAX_SUBS = 16, SCALE_TOP = 15 };

/* Eight values of a point. */
static void put_group(float *y, float scale, unsigned point, bool down)
{
    for (int j = 0; j < 8; j++) {
        y[j] = scale * ((float)(qn__digit(point, 2, j) - 1) + (down ? -SHIFT : SHIFT));
    }
}

QN_DECODER(iq1_s)
{
    const qn_block_iq1_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = qn__f16_to_f32(b->d);
        for (int k = 0; k < QN_SUPER_BLOCK / 8; k++, y += 8) {
            int qh = b->qh[k / 4];
            int index = b->qs[k] | (qh >> (3 * (k % 4)) & 7) << 8;
            put_group(y, d * (float)(2 * (qh >> 12 & 7) + 1), qn__grid_iq1[index], qh >> 15);
        }
    }
}

/* The scale of a block, spread over its four words. */
static float block_scale(const qn_block_iq1_m *b)
{
    unsigned bits = 0;
    for (int i = 0; i < 4; i++) {
        bits |= (unsigned)(b->sc[i] >> 12) << (4 * i);
    }
    return qn__f16_to_f32((uint16_t)bits);
}

QN_DECODER(iq1_m)
{
    const qn_block_iq1_m *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        float d = block_scale(b);
        for (int k = 0; k < QN_SUPER_BLOCK / 8; k++, y += 8) {
            int high = b->qh[k / 2] >> (4 * (k % 2)) & 15;
            int scale = b->sc[k / 8] >> (3 * (k / 2 % 4)) & 7;
            put_group(y, d * (float)(2 * scale + 1), qn__grid_iq1[b->qs[k] | (high & 7) << 8],
                      high >> 3);
        }
    }
}

QN_FINDER(iq1_m)
{
    const qn_block_iq1_m *b = blocks;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(block_scale(&b[i]))) {
            return i;
        }
    }
    return -1;
}

/* ---- Encoding -------------------------------------------------------------------------------- */

/* What the digits stand for: shifted up, shifted down. */
static const float shifted[2][4] = {{-1.0F + SHIFT, SHIFT, 1.0F + SHIFT, 0.0F},
                                    {-1.0F - SHIFT, -SHIFT, 1.0F - SHIFT, 0.0F}};

/* A sub-block at work: 32 values that share one shift (iq1_s), or 16 in two groups with a shift
 * each (iq1_m). */
typedef struct sub_block {
    int n;
    const float *x;
    float w[QN_BLOCK];
    uint8_t order[QN_BLOCK]; /* indices of the values, ascending */
    uint8_t digit[QN_BLOCK];
    uint8_t down[QN_BLOCK / 8]; /* per group of eight: its shift */
    float scale;
} sub_block;

/* The best split so far. */
typedef struct split {
    int low, middle; /* the first `low` sorted values get digit 0, up to `middle` digit 1 */
    int shifts;
    float scale, best;
    bool found;
} split;

static void sort_values(sub_block *s)
{
    for (int i = 0; i < s->n; i++) {
        int at = i;
        for (; at > 0 && s->x[s->order[at - 1]] > s->x[i]; at--) {
            s->order[at] = s->order[at - 1];
        }
        s->order[at] = (uint8_t)i;
    }
}

static void judge(split *t, int low, int middle, int shifts, float a, float b)
{
    if (b > 0.0F && a * a > t->best * b) {
        t->scale = a / b;
        t->best = t->scale * a;
        t->low = low;
        t->middle = middle;
        t->shifts = shifts;
        t->found = true;
    }
}

/* One shift for all values. */
static void split_one(const sub_block *s, split *t)
{
    float wx[QN_BLOCK + 1] = {0.0F}; /* prefix sums of w x and of w in sorted order */
    float ww[QN_BLOCK + 1] = {0.0F};
    for (int i = 0; i < s->n; i++) {
        int v = s->order[i];
        wx[i + 1] = wx[i] + s->w[v] * s->x[v];
        ww[i + 1] = ww[i] + s->w[v];
    }
    for (int low = 0; low <= s->n; low++) {
        for (int mid = low; mid <= s->n; mid++) {
            for (int down = 0; down < 2; down++) {
                const float *q = shifted[down];
                float a = (wx[low] - wx[0]) * q[0] + (wx[mid] - wx[low]) * q[1] +
                          (wx[s->n] - wx[mid]) * q[2];
                float b = (ww[low] - ww[0]) * q[0] * q[0] + (ww[mid] - ww[low]) * q[1] * q[1] +
                          (ww[s->n] - ww[mid]) * q[2] * q[2];
                judge(t, low, mid, down, a, b);
            }
        }
    }
}

/* A shift for each of two groups; bit 1 of `shifts` is the first group's. */
static void split_two(const sub_block *s, split *t)
{
    float wx[2][QN_BLOCK + 1] = {{0.0F}, {0.0F}};
    float ww[2][QN_BLOCK + 1] = {{0.0F}, {0.0F}};
    for (int i = 0; i < s->n; i++) {
        int v = s->order[i];
        for (int g = 0; g < 2; g++) {
            bool mine = v / 8 == g;
            wx[g][i + 1] = wx[g][i] + (mine ? s->w[v] * s->x[v] : 0.0F);
            ww[g][i + 1] = ww[g][i] + (mine ? s->w[v] : 0.0F);
        }
    }
    for (int low = 0; low <= s->n; low++) {
        for (int mid = low; mid <= s->n; mid++) {
            float a[2][2]; /* group, shift */
            float b[2][2];
            for (int k = 0; k < 4; k++) {
                int g = k / 2;
                const float *q = shifted[k % 2];
                a[g][k % 2] = wx[g][s->n] * q[2] - (wx[g][low] + wx[g][mid]);
                b[g][k % 2] = ww[g][s->n] * q[2] * q[2] + ww[g][low] * (q[0] * q[0] - q[1] * q[1]) +
                              ww[g][mid] * (q[1] * q[1] - q[2] * q[2]);
            }
            for (int c = 0; c < 4; c++) {
                judge(t, low, mid, c, a[0][c >> 1] + a[1][c & 1], b[0][c >> 1] + b[1][c & 1]);
            }
        }
    }
}

/* Scale, digits and shifts of the sub-block from its best split. A sub-block that is (nearly) zero
 * has scale 0 and all fields 0. */
static bool fit_split(sub_block *s, float threshold)
{
    bool two = s->n == 16;
    split t = {.best = -FLT_MAX};
    s->scale = 0.0F;
    memset(s->digit, 0, sizeof s->digit);
    memset(s->down, 0, sizeof s->down);
    if (fabsf(qn__extreme(s->x, s->n)) < threshold) {
        return false;
    }
    sort_values(s);
    if (two) {
        split_two(s, &t);
    } else {
        split_one(s, &t);
    }
    if (!t.found) {
        return false;
    }
    for (int i = 0; i < s->n; i++) {
        s->digit[s->order[i]] = (uint8_t)((i >= t.low) + (i >= t.middle));
    }
    if (t.scale < 0.0F) {
        t.scale = -t.scale;
        t.shifts = (two ? 3 : 1) - t.shifts;
        for (int i = 0; i < s->n; i++) {
            s->digit[i] = (uint8_t)(2 - s->digit[i]);
        }
    }
    s->scale = t.scale;
    for (int g = 0; g < s->n / 8; g++) {
        s->down[g] = (uint8_t)(two ? t.shifts >> (1 - g) & 1 : t.shifts);
    }
    return true;
}

/* Adds a group's share of A = sum w q x and B = sum w q q; q = factor * shifted digit. */
static void add_squares(const float *x, const float *w, const uint8_t *digit, int down,
                        float factor, float *a, float *b)
{
    for (int j = 0; j < 8; j++) {
        float q = shifted[down][digit[j]] * factor;
        *a += w[j] * q * x[j];
        *b += w[j] * q * q;
    }
}

/* Moves the groups to points of the book and fits the scale again where one had to move. */
static void place_groups(const qn_lattice *lattice, sub_block *s, uint16_t *index)
{
    bool all_on_grid = true;
    for (int g = 0; g < s->n / 8; g++) {
        bool on_grid;
        index[g] = (uint16_t)qn__lattice_nearest(lattice, s->x + 8 * g, s->w + 8 * g, s->scale,
                                                 shifted[s->down[g]], s->digit + 8 * g, &on_grid);
        all_on_grid = all_on_grid && on_grid;
    }
    if (all_on_grid) {
        return;
    }
    float a = 0.0F;
    float b = 0.0F;
    for (int g = 0; g < s->n / 8; g++) {
        add_squares(s->x + 8 * g, s->w + 8 * g, s->digit + 8 * g, s->down[g], 1.0F, &a, &b);
    }
    if (a > 0.0F && b > 0.0F) {
        s->scale = a / b;
    }
}

/* What is found for a super-block. */
typedef struct fit {
    sub_block sub[MAX_SUBS];
    uint16_t index[GROUPS];
    uint8_t field[MAX_SUBS]; /* three-bit scales */
    float d;
} fit;

static void fit_super_block(const qn_lattice *lattice, const float *x, const float *weights, int n,
                            float threshold, fit *f)
{
    float sigma2 = 2.0F * qn__sum_squares(x, QN_SUPER_BLOCK) / (float)QN_SUPER_BLOCK;
    float largest = 0.0F;
    int subs = QN_SUPER_BLOCK / n;
    memset(f->index, 0, sizeof f->index);
    memset(f->field, 0, sizeof f->field);
    for (int i = 0; i < subs; i++) {
        sub_block *s = &f->sub[i];
        s->n = n;
        s->x = x + i * n;
        if (weights) {
            qn__weigh(weights + i * n, s->x, sigma2, s->w, n);
        } else {
            for (int j = 0; j < n; j++) {
                s->w[j] = s->x[j] * s->x[j];
            }
        }
        if (fit_split(s, threshold)) {
            place_groups(lattice, s, f->index + i * n / 8);
        }
        largest = s->scale > largest ? s->scale : largest;
    }
    f->d = largest / (float)SCALE_TOP;
    float inverse = qn__inverse(f->d);
    for (int i = 0; i < subs && f->d > 0.0F; i++) {
        int l = qn__round_even(0.5F * (inverse * f->sub[i].scale - 1.0F));
        f->field[i] = (uint8_t)qn__clamp_int(l, 0, 7);
    }
}

QN_ENCODER(iq1_s)
{
    qn_block_iq1_s *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(tables, x + at, weights ? weights + at : NULL, 32, 1e-12F, &f);
        b->d = qn__f32_to_f16(f.d * 1.125F);
        for (int g = 0; g < 8; g++) {
            unsigned qh = f.d > 0.0F ? (unsigned)(f.field[g] | f.sub[g].down[0] << 3) << 12 : 0;
            for (int k = 0; k < 4; k++) {
                b->qs[4 * g + k] = (uint8_t)f.index[4 * g + k];
                qh |= (unsigned)(f.index[4 * g + k] >> 8) << (3 * k);
            }
            b->qh[g] = (uint16_t)qh;
        }
    }
}

/* Fits d of iq1_m once more with the scales as stored. */
static float refit(const fit *f)
{
    float a = 0.0F;
    float b = 0.0F;
    for (int k = 0; k < GROUPS; k++) {
        const sub_block *s = &f->sub[k / 2];
        int first = 8 * (k % 2);
        add_squares(s->x + first, s->w + first, s->digit + first, s->down[k % 2],
                    (float)(2 * f->field[k / 2] + 1), &a, &b);
    }
    return b > 0.0F ? a / b : f->d;
}

QN_ENCODER(iq1_m)
{
    qn_block_iq1_m *b = blocks;
    for (int64_t at = 0; at < n; at += QN_SUPER_BLOCK, b++) {
        fit f;
        fit_super_block(tables, x + at, weights ? weights + at : NULL, 16, 1e-7F, &f);
        memset(b, 0, sizeof *b);
        for (int k = 0; k < GROUPS; k++) {
            int high = f.index[k] >> 8 | f.sub[k / 2].down[k % 2] << 3;
            b->qs[k] = (uint8_t)f.index[k];
            b->qh[k / 2] |= (uint8_t)(high << (4 * (k % 2)));
        }
        unsigned d = f.d > 0.0F ? qn__f32_to_f16(refit(&f) * 1.1125F) : 0;
        for (int i = 0; i < 4; i++) {
            unsigned word = (d >> (4 * i) & 15) << 12;
            for (int j = 0; j < 4; j++) {
                word |= (unsigned)f.field[4 * i + j] << (3 * j);
            }
            b->sc[i] = (uint16_t)word;
        }
    }
}
