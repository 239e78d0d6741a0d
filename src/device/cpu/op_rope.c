/*
 * op_rope.c: ROPE_TABLE and ROPE.
 *
 * The table holds cos and sin of every pair of every token, so that the angles are made once a
 * batch and not once a layer. An angle is built in single precision by repeated multiplication,
 * theta_(j+1) = theta_j t with t = base^(-2 / n_rot): what models were trained and are compared
 * with. Its cos and sin are taken in double precision and rounded once.
 *
 * YaRN (Peng et al. 2023): pairs that turn slowly are interpolated (scaled by freq_scale), fast
 * ones are not, with a ramp between two pair numbers; the magnitude grows by 1 + 0.1 ln(1 / scale).
 */
#include "base/fmath.h"

#include <math.h>

#include "device/cpu/op.h"

#define PI 3.14159265358979323846

/* Tokens of a task. */
#define TABLE_TOKENS 8

typedef struct yarn {
    float low, high; /* the ramp, in pair numbers */
    float magnitude;
} yarn;

/* The pair that turns `n` times over the original context. */
static double turning_pair(const qn_rope_params *p, float n)
{
    return (double)p->n_rot * qn__log((double)p->n_ctx_orig / (2.0 * PI * (double)n)) /
           (2.0 * qn__log((double)p->freq_base));
}

static yarn yarn_of(const qn_rope_params *p)
{
    yarn y = {.magnitude = p->attn_factor};
    if (p->ext_factor != 0.0F) {
        y.low = (float)fmax(0.0, floor(turning_pair(p, p->beta_fast)));
        y.high = (float)fmin((double)p->n_rot - 1.0, ceil(turning_pair(p, p->beta_slow)));
        y.magnitude *= 1.0F + 0.1F * (float)qn__log(1.0 / (double)p->freq_scale);
    }
    return y;
}

/* The turned angle of pair j. */
static float scaled_angle(const qn_rope_params *p, const yarn *y, float angle, int32_t j)
{
    float scaled = p->freq_scale * angle;
    if (p->ext_factor == 0.0F) {
        return scaled;
    }
    float width = y->high - y->low > 0.001F ? y->high - y->low : 0.001F;
    float place = ((float)j - y->low) / width;
    place = place < 0.0F ? 0.0F : place > 1.0F ? 1.0F : place;
    float mix = (1.0F - place) * p->ext_factor;
    return scaled * (1.0F - mix) + angle * mix;
}

/* Which of a token's four positions turns pair j. */
static int position_of_pair(const qn_rope_params *p, int32_t j)
{
    const int32_t *s = p->sections;
    if (p->mode != QN_ROPE_MROPE && p->mode != QN_ROPE_IMROPE) {
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

static int64_t count_table(const qn_cpu_step *step, int phase)
{
    (void)phase;
    return qn__div_up(step->node->ne[1], TABLE_TOKENS);
}

static void run_table(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node;
    const qn_rope_params *p = &node->params.rope_table;
    const int32_t *positions = node->src[0]->data;
    const float *factors = node->src[1] ? node->src[1]->data : NULL;
    const int64_t n_tokens = node->ne[1];
    const int64_t end = qn__min_i64((task + 1) * TABLE_TOKENS, n_tokens);
    const int n_positions = (int)node->src[0]->ne[1];
    const yarn y = yarn_of(p);
    const float ratio = (float)qn__pow((double)p->freq_base, -2.0 / (double)p->n_rot);
    (void)phase;
    (void)scratch;
    for (int64_t token = task * TABLE_TOKENS; token < end; token++) {
        float *row = (float *)node->data + token * p->n_rot;
        float theta[4] = {0};
        for (int i = 0; i < n_positions; i++) {
            theta[i] = (float)positions[i * n_tokens + token];
        }
        for (int32_t j = 0; j < p->n_rot / 2; j++) {
            float angle = theta[position_of_pair(p, j)];
            angle = factors ? angle / factors[j] : angle;
            double sine, cosine;
            qn__sincos((double)scaled_angle(p, &y, angle, j), &sine, &cosine);
            row[2 * j] = (float)cosine * y.magnitude;
            row[2 * j + 1] = (float)sine * y.magnitude;
            for (int i = 0; i < n_positions; i++) {
                theta[i] *= ratio;
            }
        }
    }
}

const qn_cpu_kernel qn__kernel_rope_table = {
    .count = count_table,
    .run = run_table,
};

static void prepare_rope(qn_cpu_step *step)
{
    qn__cut_rows(step, step->node, QN_TASK_CHEAP);
}

static void run_rope(const qn_cpu_step *step, int phase, int64_t task, void *scratch)
{
    const qn_node *node = step->node, *x = node->src[0], *table = node->src[1];
    const int64_t first = node->params.rope.first, n_rot = node->params.rope.n_rot;
    const qn_rope_fn fn = node->params.rope.mode == QN_ROPE_NORM ? step->isa->rows->rope_norm
                                                                 : step->isa->rows->rope_neox;
    const qn_block block = qn__cut_block(step, node, task);
    (void)phase;
    (void)scratch;
    for (int64_t row = block.row; row < block.row_end; row++) {
        const qn_row_at at = qn__row_at(node, row);
        float *out = qn__row(node, at);
        const float *in = qn__row(x, at);
        const float *angles = qn__row(table, (qn_row_at){at.i2, 0, 0});
        if (out != in) {
            int64_t behind = first + n_rot;
            memcpy(out, in, (size_t)first * sizeof *out);
            memcpy(out + behind, in + behind, (size_t)(node->ne[0] - behind) * sizeof *out);
        }
        fn(out + first, in + first, angles, n_rot / 2);
    }
}

const qn_cpu_kernel qn__kernel_rope = {
    .prepare = prepare_rope,
    .count = qn__cut_count,
    .run = run_rope,
};
