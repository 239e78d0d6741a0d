/* rope.c: see rope.h. */
#include "device/rope.h"

#include <math.h>

#include "base/fmath.h"

#define PI 3.14159265358979323846

/* The pair that turns `n` times over the original context. */
static double turning_pair(const qn_rope_params *p, float n)
{
    return (double)p->n_rot * qn__log((double)p->n_ctx_orig / (2.0 * PI * (double)n)) /
           (2.0 * qn__log((double)p->freq_base));
}

qn_rope_turn qn__rope_turn(const qn_rope_params *p)
{
    qn_rope_turn t = {.ratio = (float)qn__pow((double)p->freq_base, -2.0 / (double)p->n_rot),
                      .magnitude = p->attn_factor};
    if (p->ext_factor != 0.0F) {
        t.low = (float)fmax(0.0, floor(turning_pair(p, p->beta_fast)));
        t.high = (float)fmin((double)p->n_rot - 1.0, ceil(turning_pair(p, p->beta_slow)));
        t.magnitude *= 1.0F + 0.1F * (float)qn__log(1.0 / (double)p->freq_scale);
    }
    return t;
}

/* The turned angle of pair j. */
static float scaled_angle(const qn_rope_params *p, const qn_rope_turn *t, float angle, int32_t j)
{
    float scaled = p->freq_scale * angle;
    if (p->ext_factor == 0.0F) {
        return scaled;
    }
    float width = t->high - t->low > 0.001F ? t->high - t->low : 0.001F;
    float place = ((float)j - t->low) / width;
    place = place < 0.0F ? 0.0F : place > 1.0F ? 1.0F : place;
    float mix = (1.0F - place) * p->ext_factor;
    return scaled * (1.0F - mix) + angle * mix;
}

static bool has_sections(const qn_rope_params *p)
{
    return p->mode == QN_ROPE_MROPE || p->mode == QN_ROPE_IMROPE;
}

/* Which of a token's four positions turns pair j. */
static int position_of_pair(const qn_rope_params *p, int32_t j)
{
    const int32_t *s = p->sections;
    if (!has_sections(p)) {
        return 0;
    }
    int32_t k = (int32_t)(j % ((int64_t)s[0] + s[1] + s[2] + s[3]));
    if (p->mode == QN_ROPE_IMROPE) {
        int kind = k % 3;
        return kind == 0 && k < 3 * (int64_t)s[0]   ? 0
               : kind == 1 && k < 3 * (int64_t)s[1] ? 1
               : kind == 2 && k < 3 * (int64_t)s[2] ? 2
                                                    : 3;
    }
    return k < s[0] ? 0 : k < s[0] + s[1] ? 1 : k < s[0] + s[1] + s[2] ? 2 : 3;
}

void qn__rope_row(const qn_rope_params *p, const qn_rope_turn *turn, const float *factors,
                  const int32_t position[4], float *out)
{
    const int n_positions = has_sections(p) ? 4 : 1;
    float theta[4] = {0};
    for (int i = 0; i < n_positions; i++) {
        theta[i] = (float)position[i];
    }
    for (int32_t j = 0; j < p->n_rot / 2; j++) {
        float angle = theta[position_of_pair(p, j)];
        angle = factors ? angle / factors[j] : angle;
        double sine, cosine;
        qn__sincos((double)scaled_angle(p, turn, angle, j), &sine, &cosine);
        out[2 * j] = (float)cosine * turn->magnitude;
        out[2 * j + 1] = (float)sine * turn->magnitude;
        for (int i = 0; i < n_positions; i++) {
            theta[i] *= turn->ratio;
        }
    }
}
