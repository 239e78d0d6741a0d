/*
 * rows.c: the plain functions on rows. They define what every other table computes; order of
 * operations and places of fmaf are part of the definition.
 */
#include "device/cpu/rows.h"

#include <math.h>

#include "base/fmath.h"

#define LANES 16

/* Element-wise ----------------------------------------------------------------------------------
 */

#define BINARY(name, operator)                                                                     \
    static void name(float *out, const float *a, const float *b, int64_t n)                        \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            out[i] = a[i] operator b[i];                                                           \
        }                                                                                          \
    }                                                                                              \
    static void name##_one(float *out, const float *a, float b, int64_t n)                         \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            out[i] = a[i] operator b;                                                              \
        }                                                                                          \
    }

BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
BINARY(divide, /)

static void scale_bias(float *out, const float *x, int64_t n, float scale, float bias)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = fmaf(x[i], scale, bias);
    }
}

static float clamp_one(float x, float low, float high)
{
    x = low > x ? low : x;
    return high < x ? high : x;
}

static void clamp(float *out, const float *x, int64_t n, float low, float high)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = clamp_one(x[i], low, high);
    }
}

/* Activations -----------------------------------------------------------------------------------
 */

static float silu(float x)
{
    return x * qn__sigmoidf(x);
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static float gelu(float x)
{
    float t = fmaf(x * x, 0.044715F, 1.0F);
    return 0.5F * x * (1.0F + qn__tanhf(0.7978845608F * x * t));
}

static float gelu_erf(float x)
{
    return 0.5F * x * (1.0F + qn__erff(x * 0.70710678118654752F));
}

static float gelu_quick(float x)
{
    return x * qn__sigmoidf(1.702F * x);
}

static float relu(float x)
{
    return 0.0F > x ? 0.0F : x;
}

static float relu_sqr(float x)
{
    float r = relu(x);
    return r * r;
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
static float softplus(float x)
{
    return relu(x) + qn__logf(1.0F + qn__expf(-fabsf(x)));
}

static float square(float x)
{
    return x * x;
}

static float negate(float x)
{
    return -x;
}

#define UNARY(name, function)                                                                      \
    static void name(float *out, const float *x, int64_t n, float value)                           \
    {                                                                                              \
        (void)value;                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            out[i] = function(x[i]);                                                               \
        }                                                                                          \
    }

UNARY(row_silu, silu)
UNARY(row_gelu, gelu)
UNARY(row_gelu_erf, gelu_erf)
UNARY(row_gelu_quick, gelu_quick)
UNARY(row_relu, relu)
UNARY(row_relu_sqr, relu_sqr)
UNARY(row_sigmoid, qn__sigmoidf)
UNARY(row_tanh, qn__tanhf)
UNARY(row_softplus, softplus)
UNARY(row_exp, qn__expf)
UNARY(row_log, qn__logf)
UNARY(row_sqrt, sqrtf)
UNARY(row_sqr, square)
UNARY(row_neg, negate)
UNARY(row_abs, fabsf)

static void row_soft_cap(float *out, const float *x, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = cap * qn__tanhf(x[i] / cap);
    }
}

/* Gated activations -----------------------------------------------------------------------------
 */

static float swiglu(float g, float u, float limit)
{
    (void)limit;
    return silu(g) * u;
}

static float geglu(float g, float u, float limit)
{
    (void)limit;
    return gelu(g) * u;
}

static float reglu(float g, float u, float limit)
{
    (void)limit;
    return relu(g) * u;
}

static float swiglu_oai(float g, float u, float limit)
{
    (void)limit;
    g = 7.0F < g ? 7.0F : g;
    u = clamp_one(u, -7.0F, 7.0F);
    return gelu_quick(g) * (u + 1.0F);
}

static float swiglu_clamp_in(float g, float u, float limit)
{
    g = limit < g ? limit : g;
    return silu(g) * clamp_one(u, -limit, limit);
}

static float swiglu_clamp_out(float g, float u, float limit)
{
    float s = silu(g);
    s = limit < s ? limit : s;
    return s * clamp_one(u, -limit, limit);
}

#define GLU(name, function)                                                                        \
    static void name(float *out, const float *gate, const float *up, int64_t n, float limit)       \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            out[i] = function(gate[i], up[i], limit);                                              \
        }                                                                                          \
    }

GLU(row_swiglu, swiglu)
GLU(row_geglu, geglu)
GLU(row_reglu, reglu)
GLU(row_swiglu_oai, swiglu_oai)
GLU(row_swiglu_clamp_in, swiglu_clamp_in)
GLU(row_swiglu_clamp_out, swiglu_clamp_out)

/* Reductions ------------------------------------------------------------------------------------
 */

static float tree(float lane[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0];
}

static float sum(const float *x, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        lane[i % LANES] += x[i];
    }
    return tree(lane);
}

/* sum of (x - center)^2 */
static float sum_squares(const float *x, int64_t n, float center)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        float c = x[i] - center;
        lane[i % LANES] = fmaf(c, c, lane[i % LANES]);
    }
    return tree(lane);
}

/* out = (x - center) * factor, then times weight, plus bias: fused where both are there */
static void normalize(float *out, const float *x, int64_t n, float center, float factor,
                      const float *weight, const float *bias)
{
    for (int64_t i = 0; i < n; i++) {
        float y = (x[i] - center) * factor;
        if (weight && bias) {
            y = fmaf(y, weight[i], bias[i]);
        } else if (weight) {
            y = y * weight[i];
        } else if (bias) {
            y = y + bias[i];
        }
        out[i] = y;
    }
}

static void norm_rms(float *out, const float *x, int64_t n, float eps, const float *weight,
                     const float *bias)
{
    float mean = sum_squares(x, n, 0.0F) / (float)n;
    normalize(out, x, n, 0.0F, 1.0F / sqrtf(mean + eps), weight, bias);
}

static void norm_layer(float *out, const float *x, int64_t n, float eps, const float *weight,
                       const float *bias)
{
    float mean = sum(x, n) / (float)n;
    float variance = sum_squares(x, n, mean) / (float)n;
    normalize(out, x, n, mean, 1.0F / sqrtf(variance + eps), weight, bias);
}

static void norm_l2_max(float *out, const float *x, int64_t n, float eps, const float *weight,
                        const float *bias)
{
    float length = sqrtf(sum_squares(x, n, 0.0F));
    normalize(out, x, n, 0.0F, 1.0F / (eps > length ? eps : length), weight, bias);
}

static void norm_l2_eps(float *out, const float *x, int64_t n, float eps, const float *weight,
                        const float *bias)
{
    normalize(out, x, n, 0.0F, 1.0F / sqrtf(sum_squares(x, n, 0.0F) + eps), weight, bias);
}

static void soft_max(float *out, const float *x, int64_t n)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn__expf(x[i] - max);
        lane[i % LANES] += out[i];
    }
    float total = tree(lane);
    for (int64_t i = 0; i < n; i++) {
        out[i] /= total;
    }
}

static int32_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > max) {
            max = x[i];
            best = i;
        }
    }
    return (int32_t)best;
}

/* Rotation --------------------------------------------------------------------------------------
 */

static void rotate(float *out_x, float *out_y, float x, float y, float c, float s)
{
    *out_x = fmaf(x, c, -(y * s));
    *out_y = fmaf(x, s, y * c);
}

static void rope_norm(float *out, const float *x, const float *table, int64_t n_pairs)
{
    for (int64_t j = 0; j < n_pairs; j++) {
        rotate(&out[2 * j], &out[2 * j + 1], x[2 * j], x[2 * j + 1], table[2 * j],
               table[2 * j + 1]);
    }
}

static void rope_neox(float *out, const float *x, const float *table, int64_t n_pairs)
{
    for (int64_t j = 0; j < n_pairs; j++) {
        rotate(&out[j], &out[j + n_pairs], x[j], x[j + n_pairs], table[2 * j], table[2 * j + 1]);
    }
}

/* Others ----------------------------------------------------------------------------------------
 */

static void add_scaled(float *out, const float *x, int64_t n, float w)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = fmaf(x[i], w, out[i]);
    }
}

static void from_f16(float *out, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn__f16_to_f32(x[i]);
    }
}

static void from_bf16(float *out, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn__bf16_to_f32(x[i]);
    }
}

static void to_f16(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn__f32_to_f16(x[i]);
    }
}

static void to_bf16(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn__f32_to_bf16(x[i]);
    }
}

#define QN_ROWS_TABLE qn__cpu_rows_scalar
#include "device/cpu/rows_table.h"
