/* search.c: see search.h. A trial picks levels by rounding f * x; its best scale is the one of
 * least weighted squares, A / B with A = sum w x l and B = sum w l l, and it gains A * A / B. */
#include "quant/search.h"

#include <string.h>

/* Below this the values count as zero. */
#define NEARLY_ZERO 1e-15F

/* Passes of the searches that improve value by value. */
enum { DESCENT_PASSES = 5 };

const qn_fit_range qn__fit_weighted = {.start = -0.9F, .step = 0.05F, .steps = 36};

float qn__extreme(const float *x, int n)
{
    float largest = 0.0F;
    float value = 0.0F;
    for (int i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        if (magnitude > largest) {
            largest = magnitude;
            value = x[i];
        }
    }
    return value;
}

float qn__sum_squares(const float *x, int64_t n)
{
    float sum = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sum;
}

void qn__weigh(const float *qw, const float *x, float sigma2, float *w, int n)
{
    for (int i = 0; i < n; i++) {
        w[i] = qw[i] * sqrtf(sigma2 + x[i] * x[i]);
    }
}

/* A and B of the trial f; the levels are stored where `level` is given. */
static void try_symmetric(const float *x, const float *w, int n, int half, float f, uint8_t *level,
                          float *a, float *b)
{
    float sum_a = 0.0F;
    float sum_b = 0.0F;
    for (int i = 0; i < n; i++) {
        int l = qn__clamp_int(qn__round_even(f * x[i]), -half, half - 1);
        float weight = w ? w[i] : x[i] * x[i];
        sum_a += weight * x[i] * (float)l;
        sum_b += weight * (float)l * (float)l;
        if (level) {
            level[i] = (uint8_t)(l + half);
        }
    }
    *a = sum_a;
    *b = sum_b;
}

float qn__fit_symmetric(const float *x, const float *w, int n, int half, uint8_t *level)
{
    float extreme = qn__extreme(x, n);
    if (fabsf(extreme) < NEARLY_ZERO) {
        memset(level, 0, (size_t)n);
        return 0.0F;
    }
    float a;
    float b;
    float best_factor = -(float)half / extreme;
    try_symmetric(x, w, n, half, best_factor, NULL, &a, &b);
    float scale = b != 0.0F ? a / b : 0.0F;
    float best = scale * a;
    for (int k = -9; k <= 9; k++) {
        if (k == 0) {
            continue;
        }
        float f = -((float)half + 0.1F * (float)k) / extreme;
        try_symmetric(x, w, n, half, f, NULL, &a, &b);
        if (b > 0.0F && a * a > best * b) {
            best_factor = f;
            scale = a / b;
            best = scale * a;
        }
    }
    try_symmetric(x, w, n, half, best_factor, level, &a, &b);
    return scale;
}

float qn__fit_descent(const float *x, int n, int half, uint8_t *level)
{
    float extreme = qn__extreme(x, n);
    if (fabsf(extreme) < NEARLY_ZERO) {
        memset(level, 0, (size_t)n);
        return 0.0F;
    }
    float a_all;
    float b_all;
    try_symmetric(x, NULL, n, half, -(float)half / extreme, level, &a_all, &b_all);
    for (int pass = 0; pass < DESCENT_PASSES; pass++) {
        bool changed = false;
        for (int i = 0; i < n; i++) {
            float w = x[i] * x[i];
            int old = (int)level[i] - half;
            float a = a_all - w * x[i] * (float)old;
            if (!(a > 0.0F)) {
                continue;
            }
            float b = b_all - w * (float)old * (float)old;
            int l = qn__clamp_int(qn__round_even(x[i] * b / a), -half, half - 1);
            if (l == old) {
                continue;
            }
            a += w * x[i] * (float)l;
            b += w * (float)l * (float)l;
            if (b > 0.0F && a * a * b_all > a_all * a_all * b) {
                level[i] = (uint8_t)(l + half);
                a_all = a;
                b_all = b;
                changed = true;
            }
        }
        if (!changed) {
            break;
        }
    }
    return b_all > 0.0F ? a_all / b_all : 0.0F;
}

/* Weighted error of x ~ scale * level + low. */
static float offset_error(const float *x, const float *w, int n, const uint8_t *level, float scale,
                          float low, bool absolute)
{
    float sum = 0.0F;
    for (int i = 0; i < n; i++) {
        float e = scale * (float)level[i] + low - x[i];
        e = absolute ? fabsf(e) : e * e;
        sum += w[i] * e;
    }
    return sum;
}

static void offset_levels(const float *x, int n, int top, float f, float low, uint8_t *level)
{
    for (int i = 0; i < n; i++) {
        level[i] = (uint8_t)qn__clamp_int(qn__round_even(f * (x[i] - low)), 0, top);
    }
}

float qn__fit_offset(const float *x, const float *w, int n, int top, qn_fit_range range,
                     uint8_t *level, float *offset)
{
    float low = x[0];
    float high = x[0];
    float sum_w = w[0];
    float sum_x = w[0] * x[0];
    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    low = low > 0.0F ? 0.0F : low;
    if (!(high > low)) {
        memset(level, 0, (size_t)n);
        *offset = -low;
        return 0.0F;
    }
    float f = (float)top / (high - low);
    float scale = 1.0F / f;
    float best_low = low;
    offset_levels(x, n, top, f, low, level);
    float best = offset_error(x, w, n, level, scale, low, range.absolute);
    for (int k = 0; k <= range.steps; k++) {
        uint8_t trial[QN_BLOCK];
        f = (range.start + range.step * (float)k + (float)top) / (high - low);
        offset_levels(x, n, top, f, low, trial);
        float l1 = 0.0F;
        float l2 = 0.0F;
        float lx = 0.0F;
        for (int i = 0; i < n; i++) {
            float wl = w[i] * (float)trial[i];
            l1 += wl;
            l2 += wl * (float)trial[i];
            lx += wl * x[i];
        }
        float determinant = sum_w * l2 - l1 * l1;
        if (!(determinant > 0.0F)) {
            continue;
        }
        float trial_scale = (sum_w * lx - sum_x * l1) / determinant;
        float trial_low = (l2 * sum_x - l1 * lx) / determinant;
        if (trial_low > 0.0F) {
            trial_low = 0.0F;
            trial_scale = lx / l2;
        }
        float error = offset_error(x, w, n, trial, trial_scale, trial_low, range.absolute);
        if (error < best) {
            memcpy(level, trial, (size_t)n);
            best = error;
            scale = trial_scale;
            best_low = low = trial_low; /* the trials that follow start from the new minimum */
        }
    }
    *offset = -best_low;
    return scale;
}

/* Weighted squared error of rounding f * x to levels up to `top`. `byte`: the level as it comes out
 * of its unsigned byte (a negative one wraps), unlimited, as the first trial has it. */
static float positive_error(const float *x, const float *w, int n, int top, float f, bool byte)
{
    float scale = 1.0F / f;
    float sum = 0.0F;
    for (int i = 0; i < n; i++) {
        int l = qn__round_even(f * x[i]);
        l = byte ? (uint8_t)l : l > top ? top : l;
        float e = x[i] - scale * (float)l;
        sum += w[i] * e * e;
    }
    return sum;
}

/* Improves levels value by value; A and B are the sums of the levels given. */
static void positive_descent(const float *x, const float *w, int n, int top, uint8_t *level,
                             float *a_all, float *b_all)
{
    for (int pass = 0; pass < DESCENT_PASSES; pass++) {
        bool changed = false;
        for (int i = 0; i < n; i++) {
            float old = (float)level[i];
            float a = *a_all - w[i] * x[i] * old;
            float b = *b_all - w[i] * old * old;
            if (!(a > 0.0F && b > 0.0F)) {
                continue;
            }
            int l = qn__round_even(x[i] * b / a);
            l = l > top ? top : l;
            if (l == (int)level[i]) {
                continue;
            }
            a += w[i] * x[i] * (float)l;
            b += w[i] * (float)l * (float)l;
            if (a * a * *b_all > *a_all * *a_all * b) {
                level[i] = (uint8_t)l;
                *a_all = a;
                *b_all = b;
                changed = true;
            }
        }
        if (!changed) {
            break;
        }
    }
}

float qn__fit_positive(const float *x, const float *w, int n, int top, uint8_t *level)
{
    float largest = 0.0F;
    for (int i = 0; i < n; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    if (largest < NEARLY_ZERO) {
        memset(level, 0, (size_t)n);
        return 0.0F;
    }
    float best_factor = (float)top / largest;
    float best = positive_error(x, w, n, top, best_factor, true);
    for (int k = -4; k <= 4; k++) {
        if (k == 0) {
            continue;
        }
        float f = (0.1F * (float)k + (float)top) / largest;
        float error = positive_error(x, w, n, top, f, false);
        if (error < best) {
            best = error;
            best_factor = f;
        }
    }
    float a = 0.0F;
    float b = 0.0F;
    for (int i = 0; i < n; i++) {
        int l = qn__round_even(best_factor * x[i]);
        l = l > top ? top : l;
        level[i] = (uint8_t)l;
        a += w[i] * x[i] * (float)l;
        b += w[i] * (float)l * (float)l;
    }
    positive_descent(x, w, n, top, level, &a, &b);
    return b > 0.0F ? a / b : 0.0F;
}
