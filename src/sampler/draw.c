/* draw.c: random numbers of samplers, as transactions; see sampler.h. */
#include "sampler/sampler.h"

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

static void look(qn_draw *draw)
{
    if (!draw->drawn) {
        draw->value = qn__rng_fraction64(&draw->rng);
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
        value = qn__rng_fraction64(&draw->ahead);
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
