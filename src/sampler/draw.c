/* draw.c: random numbers of samplers, as transactions; see sampler.h. */
#include "sampler/sampler.h"

#include <math.h>

void qn__draw_reset(qn_draw *draw)
{
    draw->used_seed = draw->seed;
    while (draw->used_seed == QN_SEED_RANDOM) {
        draw->used_seed = qn__rng_entropy();
    }
    qn__rng_seed(&draw->rng, draw->used_seed);
    draw->drawn = false;
    draw->n_used = draw->n_ahead = 0;
    draw->value = 0;
}

void qn__draw_init(qn_draw *draw, uint32_t seed)
{
    draw->seed = seed;
    qn__draw_reset(draw);
}

static uint64_t next(const qn_draw *draw, qn_rng *rng)
{
    return draw->single ? (uint64_t)qn__rng_next(rng) << 32 : qn__rng_fraction64(rng);
}

static void look(qn_draw *draw)
{
    if (!draw->drawn) {
        draw->value = next(draw, &draw->rng);
        draw->drawn = true;
    }
}

uint64_t qn__draw_fraction(qn_draw *draw)
{
    return qn__draw_fraction_ahead(draw, 0);
}

uint64_t qn__draw_fraction_ahead(qn_draw *draw, uint32_t j)
{
    look(draw);
    draw->n_used = draw->n_used > j ? draw->n_used : j + 1;
    if (j == 0) {
        return draw->value;
    }
    if (draw->n_ahead == 0 || j <= draw->n_ahead) {
        draw->ahead = draw->rng;
        draw->n_ahead = 0;
    }
    uint64_t value = 0;
    for (; draw->n_ahead < j; draw->n_ahead++) {
        value = next(draw, &draw->ahead);
    }
    return value;
}

void qn__draw_forget(qn_draw *draw)
{
    draw->n_used = 0;
}

void qn__draw_accept(qn_draw *draw, bool generated)
{
    if (generated && draw->n_used > 0) {
        look(draw);
        draw->drawn = false;
        draw->n_used--;
        draw->n_ahead = 0;
    }
}

float qn__fraction_float(uint64_t fraction)
{
    float u = (float)(uint32_t)(fraction >> 32) * 0x1p-32F;
    return u < 1.0F ? u : 0x1.fffffep-1F;
}

bool qn__row_needs_draw(const qn_candidates *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->size && n < 2; i++) {
        n += c->logits[i] > -INFINITY;
    }
    return n == 2;
}

void qn__draw_pick(qn_draw *draw, qn_candidates *c)
{
    qn__draw_forget(draw); /* the last look decides whether the token costs a number */
    qn__dist_row(c, qn__row_needs_draw(c) ? qn__draw_fraction(draw) : 0);
}

void qn__draw_write_ahead(qn_draw *draw, int32_t j, uint64_t *fractions)
{
    for (int32_t i = 0; i <= j; i++) {
        fractions[i] = qn__draw_fraction_ahead(draw, (uint32_t)i);
    }
    qn__draw_forget(draw);
}

bool qn__draw_pick_ahead(qn_candidates *c, const uint64_t *fractions, uint32_t n_drawn)
{
    bool needs = qn__row_needs_draw(c);
    qn__dist_row(c, needs ? fractions[n_drawn] : 0);
    return needs;
}

void qn__draw_take(qn_draw *draw, bool looked)
{
    qn__draw_forget(draw);
    if (looked) {
        (void)qn__draw_fraction(draw);
    }
}
