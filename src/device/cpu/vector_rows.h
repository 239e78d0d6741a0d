/*
 * vector_rows.h: the functions of scalar/rows.c on sixteen values at once, for the instruction set
 * of the file that includes this (see vector.h). Element i of a row is lane i mod 16, which is also
 * the lane that sums want; the rest of a row is loaded and stored by mask.
 */
#include <math.h>

#include "device/cpu/rows.h"
#include "device/cpu/vector.h"

/* Element-wise ----------------------------------------------------------------------------------
 */

#define BINARY(name, function)                                                                     \
    static void name(float *out, const float *a, const float *b, int64_t n)                        \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= n; i += 16) {                                                             \
            v_store(out + i, function(v_load(a + i), v_load(b + i)));                              \
        }                                                                                          \
        if (i < n) {                                                                               \
            v16 x = v_load_n(a + i, n - i), y = v_load_n(b + i, n - i);                            \
            v_store_n(out + i, function(x, y), n - i);                                             \
        }                                                                                          \
    }                                                                                              \
    static void name##_one(float *out, const float *a, float b, int64_t n)                         \
    {                                                                                              \
        const v16 y = v_set(b);                                                                    \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= n; i += 16) {                                                             \
            v_store(out + i, function(v_load(a + i), y));                                          \
        }                                                                                          \
        if (i < n) {                                                                               \
            v_store_n(out + i, function(v_load_n(a + i, n - i), y), n - i);                        \
        }                                                                                          \
    }

BINARY(add, v_add)
BINARY(sub, v_sub)
BINARY(mul, v_mul)
BINARY(divide, v_div)

static void scale_bias(float *out, const float *x, int64_t n, float scale, float bias)
{
    const v16 s = v_set(scale), b = v_set(bias);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v_store(out + i, v_fma(v_load(x + i), s, b));
    }
    if (i < n) {
        v_store_n(out + i, v_fma(v_load_n(x + i, n - i), s, b), n - i);
    }
}

static inline v16 clamp_16(v16 x, v16 low, v16 high)
{
    return v_min(high, v_max(low, x));
}

static void clamp(float *out, const float *x, int64_t n, float low, float high)
{
    const v16 l = v_set(low), h = v_set(high);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v_store(out + i, clamp_16(v_load(x + i), l, h));
    }
    if (i < n) {
        v_store_n(out + i, clamp_16(v_load_n(x + i, n - i), l, h), n - i);
    }
}

/* Activations -----------------------------------------------------------------------------------
 */

static inline v16 silu(v16 x)
{
    return v_mul(x, v_sigmoid(x));
}

static inline v16 gelu(v16 x)
{
    const v16 one = v_set(1.0F);
    v16 t = v_fma(v_mul(x, x), v_set(0.044715F), one);
    v16 h = v_tanh(v_mul(v_mul(v_set(0.7978845608F), x), t));
    return v_mul(v_mul(v_set(0.5F), x), v_add(one, h));
}

static inline v16 gelu_erf(v16 x)
{
    v16 e = v_erf(v_mul(x, v_set(0.70710678118654752F)));
    return v_mul(v_mul(v_set(0.5F), x), v_add(v_set(1.0F), e));
}

static inline v16 gelu_quick(v16 x)
{
    return v_mul(x, v_sigmoid(v_mul(v_set(1.702F), x)));
}

static inline v16 relu(v16 x)
{
    return v_max(v_set(0.0F), x);
}

static inline v16 relu_sqr(v16 x)
{
    v16 r = relu(x);
    return v_mul(r, r);
}

static inline v16 softplus(v16 x)
{
    v16 e = v_exp(v_neg(v_abs(x)));
    return v_add(relu(x), v_log(v_add(v_set(1.0F), e)));
}

static inline v16 square(v16 x)
{
    return v_mul(x, x);
}

#define UNARY(name, function)                                                                      \
    static void name(float *out, const float *x, int64_t n, float value)                           \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        (void)value;                                                                               \
        for (; i + 16 <= n; i += 16) {                                                             \
            v_store(out + i, function(v_load(x + i)));                                             \
        }                                                                                          \
        if (i < n) {                                                                               \
            v_store_n(out + i, function(v_load_n(x + i, n - i)), n - i);                           \
        }                                                                                          \
    }

UNARY(row_silu, silu)
UNARY(row_gelu, gelu)
UNARY(row_gelu_erf, gelu_erf)
UNARY(row_gelu_quick, gelu_quick)
UNARY(row_relu, relu)
UNARY(row_relu_sqr, relu_sqr)
UNARY(row_sigmoid, v_sigmoid)
UNARY(row_tanh, v_tanh)
UNARY(row_softplus, softplus)
UNARY(row_exp, v_exp)
UNARY(row_log, v_log)
UNARY(row_sqrt, v_sqrt)
UNARY(row_sqr, square)
UNARY(row_neg, v_neg)
UNARY(row_abs, v_abs)

static void row_soft_cap(float *out, const float *x, int64_t n, float cap)
{
    const v16 c = v_set(cap);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v_store(out + i, v_mul(c, v_tanh(v_div(v_load(x + i), c))));
    }
    if (i < n) {
        v_store_n(out + i, v_mul(c, v_tanh(v_div(v_load_n(x + i, n - i), c))), n - i);
    }
}

/* Gated activations -----------------------------------------------------------------------------
 */

static inline v16 swiglu(v16 g, v16 u, v16 limit)
{
    (void)limit;
    return v_mul(silu(g), u);
}

static inline v16 geglu(v16 g, v16 u, v16 limit)
{
    (void)limit;
    return v_mul(gelu(g), u);
}

static inline v16 reglu(v16 g, v16 u, v16 limit)
{
    (void)limit;
    return v_mul(relu(g), u);
}

static inline v16 swiglu_oai(v16 g, v16 u, v16 limit)
{
    const v16 seven = v_set(7.0F);
    (void)limit;
    g = v_min(seven, g);
    u = clamp_16(u, v_set(-7.0F), seven);
    return v_mul(gelu_quick(g), v_add(u, v_set(1.0F)));
}

static inline v16 swiglu_clamp_in(v16 g, v16 u, v16 limit)
{
    return v_mul(silu(v_min(limit, g)), clamp_16(u, v_neg(limit), limit));
}

static inline v16 swiglu_clamp_out(v16 g, v16 u, v16 limit)
{
    return v_mul(v_min(limit, silu(g)), clamp_16(u, v_neg(limit), limit));
}

#define GLU(name, function)                                                                        \
    static void name(float *out, const float *gate, const float *up, int64_t n, float limit)       \
    {                                                                                              \
        const v16 c = v_set(limit);                                                                \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= n; i += 16) {                                                             \
            v_store(out + i, function(v_load(gate + i), v_load(up + i), c));                       \
        }                                                                                          \
        if (i < n) {                                                                               \
            v16 g = v_load_n(gate + i, n - i), u = v_load_n(up + i, n - i);                        \
            v_store_n(out + i, function(g, u, c), n - i);                                          \
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

static float sum(const float *x, int64_t n)
{
    v16 lane = v_set(0.0F);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        lane = v_add(lane, v_load(x + i));
    }
    if (i < n) {
        lane = v_add(lane, v_load_n(x + i, n - i));
    }
    return v_sum_lanes(lane);
}

static float sum_squares(const float *x, int64_t n, float center)
{
    const v16 c = v_set(center);
    v16 lane = v_set(0.0F);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 d = v_sub(v_load(x + i), c);
        lane = v_fma(d, d, lane);
    }
    if (i < n) {
        v16 d = v_keep_n(v_sub(v_load_n(x + i, n - i), c), n - i);
        lane = v_fma(d, d, lane);
    }
    return v_sum_lanes(lane);
}

/* One place of a row: 16 values, or the first `rest` of them. */
static inline v16 load_some(const float *p, int64_t rest)
{
    return rest < 16 ? v_load_n(p, rest) : v_load(p);
}

static void normalize(float *out, const float *x, int64_t n, float center, float factor,
                      const float *weight, const float *bias)
{
    const v16 c = v_set(center), f = v_set(factor);
    for (int64_t i = 0; i < n; i += 16) {
        int64_t rest = n - i;
        v16 y = v_mul(v_sub(load_some(x + i, rest), c), f);
        if (weight && bias) {
            y = v_fma(y, load_some(weight + i, rest), load_some(bias + i, rest));
        } else if (weight) {
            y = v_mul(y, load_some(weight + i, rest));
        } else if (bias) {
            y = v_add(y, load_some(bias + i, rest));
        }
        if (rest < 16) {
            v_store_n(out + i, y, rest);
        } else {
            v_store(out + i, y);
        }
    }
}

static float inverse_root(float x)
{
    return 1.0F / sqrtf(x);
}

static void norm_rms(float *out, const float *x, int64_t n, float eps, const float *weight,
                     const float *bias)
{
    float mean = sum_squares(x, n, 0.0F) / (float)n;
    normalize(out, x, n, 0.0F, inverse_root(mean + eps), weight, bias);
}

static void norm_layer(float *out, const float *x, int64_t n, float eps, const float *weight,
                       const float *bias)
{
    float mean = sum(x, n) / (float)n;
    float variance = sum_squares(x, n, mean) / (float)n;
    normalize(out, x, n, mean, inverse_root(variance + eps), weight, bias);
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
    normalize(out, x, n, 0.0F, inverse_root(sum_squares(x, n, 0.0F) + eps), weight, bias);
}

static float row_max(const float *x, int64_t n)
{
    v16 max = v_set(-__builtin_inff());
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        max = v_max(v_load(x + i), max);
    }
    if (i < n) {
        v16 fill = v_set(-__builtin_inff());
        max = v_max(v_fill_n(v_load_n(x + i, n - i), n - i, fill), max);
    }
    return v_max_lanes(max);
}

static void soft_max(float *out, const float *x, int64_t n)
{
    const v16 max = v_set(row_max(x, n));
    v16 lane = v_set(0.0F);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 e = v_exp(v_sub(v_load(x + i), max));
        v_store(out + i, e);
        lane = v_add(lane, e);
    }
    if (i < n) {
        v16 e = v_exp(v_sub(v_load_n(x + i, n - i), max));
        v_store_n(out + i, e, n - i);
        lane = v_add(lane, v_keep_n(e, n - i));
    }
    divide_one(out, out, v_sum_lanes(lane), n);
}

static int32_t argmax(const float *x, int64_t n)
{
    const float max = row_max(x, n);
    if (max == -__builtin_inff()) {
        return 0;
    }
    const v16 m = v_set(max);
    for (int64_t i = 0; i < n; i += 16) {
        int64_t rest = n - i;
        int found = v_any_equal(load_some(x + i, rest), m);
        found &= rest < 16 ? (1 << rest) - 1 : 0xFFFF;
        if (found) {
            return (int32_t)i + __builtin_ctz((unsigned)found);
        }
    }
    return 0;
}

/* Rotation --------------------------------------------------------------------------------------
 */

/* Lanes (x, y) of a pair, (c, s) of its angle: x c - y s, x s + y c. */
static inline v16 turn_pairs(v16 x, v16 angle)
{
    v16 crossed = v_mul(v_dup_odd(x), v_swap(angle));
    return v_fmaddsub(v_dup_even(x), angle, crossed);
}

static void rope_norm(float *out, const float *x, const float *table, int64_t n_pairs)
{
    const int64_t n = 2 * n_pairs;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v_store(out + i, turn_pairs(v_load(x + i), v_load(table + i)));
    }
    if (i < n) {
        v16 part = v_load_n(x + i, n - i), angle = v_load_n(table + i, n - i);
        v_store_n(out + i, turn_pairs(part, angle), n - i);
    }
}

static void rope_neox(float *out, const float *x, const float *table, int64_t n_pairs)
{
    for (int64_t j = 0; j < n_pairs; j += 16) {
        int64_t rest = n_pairs - j;
        v16 low = load_some(table + 2 * j, 2 * rest);
        v16 high = rest > 8 ? load_some(table + 2 * j + 16, 2 * rest - 16) : v_set(0.0F);
        v16 c = v_even(low, high), s = v_odd(low, high);
        v16 a = load_some(x + j, rest), b = load_some(x + j + n_pairs, rest);
        v16 turned_a = v_fma(a, c, v_neg(v_mul(b, s)));
        v16 turned_b = v_fma(a, s, v_mul(b, c));
        if (rest < 16) {
            v_store_n(out + j, turned_a, rest);
            v_store_n(out + j + n_pairs, turned_b, rest);
        } else {
            v_store(out + j, turned_a);
            v_store(out + j + n_pairs, turned_b);
        }
    }
}

/* Others ----------------------------------------------------------------------------------------
 */

static void add_scaled(float *out, const float *x, int64_t n, float w)
{
    const v16 f = v_set(w);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v_store(out + i, v_fma(v_load(x + i), f, v_load(out + i)));
    }
    if (i < n) {
        v16 y = v_fma(v_load_n(x + i, n - i), f, v_load_n(out + i, n - i));
        v_store_n(out + i, y, n - i);
    }
}

/* Half floats go through 16 of them on the stack at the end of a row. */
#define WIDEN(name, function)                                                                      \
    static void name(float *out, const uint16_t *x, int64_t n)                                     \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= n; i += 16) {                                                             \
            v_store(out + i, function(x + i));                                                     \
        }                                                                                          \
        if (i < n) {                                                                               \
            uint16_t rest[16] = {0};                                                               \
            memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);                                      \
            v_store_n(out + i, function(rest), n - i);                                             \
        }                                                                                          \
    }

#define NARROW(name, function)                                                                     \
    static void name(uint16_t *out, const float *x, int64_t n)                                     \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + 16 <= n; i += 16) {                                                             \
            function(out + i, v_load(x + i));                                                      \
        }                                                                                          \
        if (i < n) {                                                                               \
            uint16_t rest[16];                                                                     \
            function(rest, v_load_n(x + i, n - i));                                                \
            memcpy(out + i, rest, (size_t)(n - i) * sizeof *out);                                  \
        }                                                                                          \
    }

/* The upper half, rounded to nearest even; a NaN keeps its upper bits and becomes quiet. */
static inline void v_to_bf16(uint16_t *p, v16 x)
{
    v16i bits = v_bits(x);
    v16i rounded = vi_add(bits, vi_add(vi_bit16(bits), vi_set(0x7FFF)));
    v16 quiet = vi_float(vi_or(bits, vi_set(0x00400000)));
    v16m number = v_less(v_neg(v_abs(x)), v_set(__builtin_inff())); /* false for a NaN */
    vi_store_high(p, v_bits(v_select(number, vi_float(rounded), quiet)));
}

WIDEN(from_f16, v_from_f16)
WIDEN(from_bf16, v_from_bf16)
NARROW(to_f16, v_to_f16)
NARROW(to_bf16, v_to_bf16)

#include "device/cpu/rows_table.h"
