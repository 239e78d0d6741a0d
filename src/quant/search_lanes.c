/*
 * search_lanes.c: qn__fit_offset over four groups of values at once, a vector lane a group. Each
 * lane does exactly what the plain search does, in its order, so the bits are the same; conditions
 * become masks. Four lanes are one register on every machine that quern knows.
 */
#include <string.h>

#include "quant/search.h"

typedef float lanes __attribute__((vector_size(4 * QN_FIT_LANES)));
typedef int32_t mask __attribute__((vector_size(4 * QN_FIT_LANES)));

static inline lanes all(float x)
{
    return (lanes){x, x, x, x};
}

static inline lanes select_lanes(mask m, lanes yes, lanes no)
{
    return (lanes)(((mask)yes & m) | ((mask)no & ~m));
}

static inline bool any(mask m)
{
    return (m[0] | m[1] | m[2] | m[3]) != 0;
}

static inline lanes magnitude(lanes x)
{
    return (lanes)((mask)x & 0x7fffffff);
}

/* The level of qn__fit_offset as a float; outside of [0, top] it is limited before it can matter
 * how far outside. */
static inline lanes round_level(lanes x, float top)
{
    lanes level = (x + 12582912.0F) - 12582912.0F;
    level = select_lanes(level < all(0.0F), all(0.0F), level);
    return select_lanes(level > all(top), all(top), level);
}

/* The four groups with their values side by side. */
typedef struct groups {
    lanes x[QN_BLOCK], w[QN_BLOCK];
    lanes level[QN_BLOCK]; /* the best so far */
    int n;
    float top;
    bool absolute;
} groups;

static lanes fit_error(const groups *g, const lanes *level, lanes scale, lanes low)
{
    lanes sum = all(0.0F);
    for (int i = 0; i < g->n; i++) {
        lanes e = scale * level[i] + low - g->x[i];
        e = g->absolute ? magnitude(e) : e * e;
        sum += g->w[i] * e;
    }
    return sum;
}

/* Where the search of the four groups stands. */
typedef struct search {
    lanes low, high, sum_w, sum_x;
    lanes scale, best_low, best;
} search;

/* One trial: levels, least squares, error; takes over the lanes that got better. */
static void try_factor(groups *g, search *s, lanes f)
{
    lanes trial[QN_BLOCK];
    lanes l1 = all(0.0F);
    lanes l2 = all(0.0F);
    lanes lx = all(0.0F);
    for (int i = 0; i < g->n; i++) {
        lanes level = round_level(f * (g->x[i] - s->low), g->top);
        lanes wl = g->w[i] * level;
        trial[i] = level;
        l1 += wl;
        l2 += wl * level;
        lx += wl * g->x[i];
    }
    lanes determinant = s->sum_w * l2 - l1 * l1;
    mask usable = determinant > all(0.0F);
    lanes scale = (s->sum_w * lx - s->sum_x * l1) / determinant;
    lanes low = (l2 * s->sum_x - l1 * lx) / determinant;
    mask above = low > all(0.0F);
    scale = select_lanes(above, lx / l2, scale);
    low = select_lanes(above, all(0.0F), low);
    lanes error = fit_error(g, trial, scale, low);
    mask better = usable & (error < s->best);
    if (!any(better)) {
        return;
    }
    for (int i = 0; i < g->n; i++) {
        g->level[i] = select_lanes(better, trial[i], g->level[i]);
    }
    s->best = select_lanes(better, error, s->best);
    s->scale = select_lanes(better, scale, s->scale);
    s->best_low = select_lanes(better, low, s->best_low);
    s->low = s->best_low; /* the trials that follow start from the new minimum */
}

/* Values side by side, extremes and sums. */
static void load_groups(const float *x, const float *w, groups *g, search *s)
{
    for (int i = 0; i < g->n; i++) {
        for (int lane = 0; lane < QN_FIT_LANES; lane++) {
            g->x[i][lane] = x[lane * g->n + i];
            g->w[i][lane] = w[lane * g->n + i];
        }
    }
    s->low = s->high = g->x[0];
    s->sum_w = g->w[0];
    s->sum_x = g->w[0] * g->x[0];
    for (int i = 1; i < g->n; i++) {
        s->low = select_lanes(g->x[i] < s->low, g->x[i], s->low);
        s->high = select_lanes(g->x[i] > s->high, g->x[i], s->high);
        s->sum_w += g->w[i];
        s->sum_x += g->w[i] * g->x[i];
    }
    s->low = select_lanes(s->low > all(0.0F), all(0.0F), s->low);
}

void qn__fit_offset_lanes(const float *x, const float *w, int n, int top, qn_fit_range range,
                          uint8_t *level, float *scale, float *offset)
{
    groups g = {.n = n, .top = (float)top, .absolute = range.absolute};
    search s;
    load_groups(x, w, &g, &s);
    mask alive = s.high > s.low;
    const lanes whole_low = s.low;
    /* Lanes without a range go along with one of 1; their results are replaced below. */
    lanes span = select_lanes(alive, s.high - s.low, all(1.0F));
    lanes f = all((float)top) / span;
    s.scale = all(1.0F) / f;
    s.best_low = s.low;
    for (int i = 0; i < n; i++) {
        g.level[i] = round_level(f * (g.x[i] - s.low), g.top);
    }
    s.best = fit_error(&g, g.level, s.scale, s.low);
    for (int k = 0; k <= range.steps; k++) {
        float numerator = range.start + range.step * (float)k + (float)top;
        span = select_lanes(alive, s.high - s.low, all(1.0F));
        try_factor(&g, &s, all(numerator) / span);
    }
    for (int lane = 0; lane < QN_FIT_LANES; lane++) {
        bool used = alive[lane] != 0;
        scale[lane] = used ? s.scale[lane] : 0.0F;
        offset[lane] = used ? -s.best_low[lane] : -whole_low[lane];
        for (int i = 0; i < n; i++) {
            level[lane * n + i] = used ? (uint8_t)qn__truncate(g.level[i][lane], top) : 0;
        }
    }
}
