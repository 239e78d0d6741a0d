/*
 * scan_vector.h: the source of the tables of scan.h, in the compiler's own vectors, which become
 * whatever vectors the target has. The file that includes it defines QN_SCAN_LANES and
 * QN_SCAN_TABLE and is compiled with the flags of its instruction set.
 *
 * Floats are only compared, copied and taken through the written steps of qn__exp_weight; the rest
 * is integers. So lanes change nothing.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "sampler/exp_weight.h"
#include "sampler/sampler.h"
#include "sampler/scan.h"

#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { LANES = QN_SCAN_LANES, WIDE = LANES / 2, WORD = 32 };

typedef float vfloat __attribute__((vector_size(LANES * 4)));
typedef int32_t vint __attribute__((vector_size(LANES * 4)));
typedef uint32_t vuint __attribute__((vector_size(LANES * 4)));
typedef uint64_t vwide __attribute__((vector_size(LANES * 4))); /* half as many */

static inline vfloat load(const float *from)
{
    vfloat v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline vuint load_uint(const uint32_t *from)
{
    vuint v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline vfloat all(float x)
{
    const vfloat zero = {0};
    return x - zero;
}

static inline vint count_up(void)
{
    vint v = {0};
    for (int j = 0; j < LANES; j++) {
        v[j] = j;
    }
    return v;
}

static inline vfloat choose(vint mask, vfloat yes, vfloat no)
{
    return (vfloat)((mask & (vint)yes) | (~mask & (vint)no));
}

static inline vfloat larger(vfloat a, vfloat b)
{
    return choose(a > b, a, b);
}

static inline float largest(vfloat v)
{
    float max = v[0];
    for (int j = 1; j < LANES; j++) {
        max = v[j] > max ? v[j] : max;
    }
    return max;
}

/* Lanes added in pairs, so that no sum overflows. */
static inline vwide in_pairs(vuint v)
{
    vwide pairs = (vwide)v;
    return (pairs & 0xffffffffU) + (pairs >> 32);
}

static inline uint64_t total(vwide v)
{
    uint64_t sum = 0;
    for (int j = 0; j < WIDE; j++) {
        sum += v[j];
    }
    return sum;
}

static inline vfloat multiply_add(vfloat a, vfloat b, vfloat c)
{
#if QN_SCAN_LANES == 16 && defined(__AVX512F__)
    return (vfloat)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif QN_SCAN_LANES == 8 && defined(__FMA__)
    return (vfloat)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    for (int j = 0; j < LANES; j++) {
        c[j] = fmaf(a[j], b[j], c[j]);
    }
    return c;
#endif
}

static void clean(const float *from, size_t n, float *logits, int32_t *ids)
{
    size_t i = 0;
    vint id = count_up();
    for (; i + LANES <= n; i += LANES) {
        vfloat v = load(from + i);
        v = choose(v > all(FLT_MAX), all(FLT_MAX), v);
        v = choose(v <= all(FLT_MAX), v, all(-INFINITY)); /* a NaN is not */
        memcpy(logits + i, &v, sizeof v);
        memcpy(ids + i, &id, sizeof id);
        id += LANES;
    }
    for (; i < n; i++) {
        float x = from[i];
        logits[i] = x <= FLT_MAX ? x : (x > FLT_MAX ? FLT_MAX : -INFINITY);
        ids[i] = (int32_t)i;
    }
}

static float max(const float *logits, size_t n)
{
    vfloat a = all(-INFINITY), b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a = larger(load(logits + i), a);
        b = larger(load(logits + i + LANES), b);
    }
    float best = largest(larger(a, b));
    for (; i < n; i++) {
        best = logits[i] > best ? logits[i] : best;
    }
    return best;
}

static void peaks(const float *logits, size_t n, float *out)
{
    size_t first = 0;
    for (; first + QN_SCAN_BLOCK <= n; first += QN_SCAN_BLOCK) {
        vfloat a = all(-INFINITY), b = a;
        for (size_t i = 0; i < QN_SCAN_BLOCK; i += 2 * LANES) {
            a = larger(load(logits + first + i), a);
            b = larger(load(logits + first + i + LANES), b);
        }
        out[first / QN_SCAN_BLOCK] = largest(larger(a, b));
    }
    if (first < n) {
        out[first / QN_SCAN_BLOCK] = max(logits + first, n - first);
    }
}

static size_t count(const float *logits, size_t n, float least)
{
    vuint sums = {0}; /* n is below 2^31 */
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        sums -= (vuint)(load(logits + i) >= all(least));
    }
    size_t number = (size_t)total(in_pairs(sums));
    for (; i < n; i++) {
        number += logits[i] >= least;
    }
    return number;
}

/*
 * qn__exp_weight, lane by lane, with another way to the same integer: the polynomial times 2^31
 * (powers of two change no bits) gets its exponent added and is rounded by adding just below 1/2
 * and cutting. The weight 2^31 itself is too large for a signed integer.
 */
static inline vuint exp_weights(vfloat d)
{
    const float scale = 0x1p31F, almost_half = 0x1.fffffep-2F, below = 0x1.fffffep30F;
    vfloat x = choose(d > all(QN_EXP_LOWEST), d, all(QN_EXP_LOWEST));
    vfloat shifted = multiply_add(x, all(QN_EXP_LOG2_E), all(QN_EXP_ROUND));
    vfloat k = all(QN_EXP_ROUND) - shifted; /* negative of the exponent */
    vfloat r = multiply_add(k, all(QN_EXP_LN2_HIGH), x);
    r = multiply_add(k, all(QN_EXP_LN2_LOW), r);
    vfloat p = all(scale * QN_EXP_P6);
    p = multiply_add(p, r, all(scale * QN_EXP_P5));
    p = multiply_add(p, r, all(scale * QN_EXP_P4));
    p = multiply_add(p, r, all(scale * QN_EXP_P3));
    p = multiply_add(p, r, all(scale * QN_EXP_P2));
    p = multiply_add(p, r, all(scale));
    p = multiply_add(p, r, all(scale));
    vfloat value = (vfloat)((vint)p + ((vint)shifted << 23)); /* low bits of shifted: exponent */
    vint whole = value > all(below);
    value = choose(whole, all(below), value + almost_half);
    return (vuint) __builtin_convertvector(value, vint) + ((vuint)whole & 128U);
}

static uint64_t weigh(const float *logits, size_t n, float best, uint32_t *weights)
{
    vwide sums = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vuint w = exp_weights(load(logits + i) - all(best));
        memcpy(weights + i, &w, sizeof w);
        sums += in_pairs(w);
    }
    if (i < n) {
        vfloat rest = all(-INFINITY);
        memcpy(&rest, logits + i, (n - i) * sizeof *logits);
        vuint w = exp_weights(rest - all(best));
        memcpy(weights + i, &w, (n - i) * sizeof *weights);
        sums += in_pairs(w);
    }
    return total(sums);
}

static size_t reach(const uint32_t *weights, size_t n, uint64_t target)
{
    uint64_t sum = 0;
    size_t i = 0;
    for (; i + QN_SCAN_BLOCK <= n; i += QN_SCAN_BLOCK) {
        vwide sums = {0};
        for (size_t j = 0; j < QN_SCAN_BLOCK; j += LANES) {
            sums += in_pairs(load_uint(weights + i + j));
        }
        uint64_t block = total(sums);
        if (sum + block > target) {
            break;
        }
        sum += block;
    }
    for (; i < n; i++) {
        sum += weights[i];
        if (sum > target) {
            return i;
        }
    }
    return n;
}

static uint64_t sum_from(const float *logits, const uint32_t *weights, size_t n, float least,
                         size_t *number)
{
    vwide sums = {0};
    vuint counts = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vuint mask = (vuint)(load(logits + i) >= all(least));
        sums += in_pairs(load_uint(weights + i) & mask);
        counts -= mask;
    }
    uint64_t sum = total(sums);
    *number = (size_t)total(in_pairs(counts));
    for (; i < n; i++) {
        sum += logits[i] >= least ? weights[i] : 0;
        *number += logits[i] >= least;
    }
    return sum;
}

/* qn__row_distance, lane by lane. */
static inline vuint distances(vfloat best, vfloat logits)
{
    vfloat d = best - logits;
    d = choose(d < all(QN_DISTANCE_MAX), d, all(QN_DISTANCE_MAX));
    return (vuint) __builtin_convertvector(d * QN_DISTANCE_UNIT + 0.5F, vint); /* at most 2^22 */
}

static uint64_t sum_distances(const float *logits, const uint32_t *weights, size_t n, float best)
{
    vwide sums = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vwide d = (vwide)distances(all(best), load(logits + i));
        vwide w = (vwide)load_uint(weights + i);
        sums += (d & 0xffffffffU) * (w & 0xffffffffU) + (d >> 32) * (w >> 32);
    }
    uint64_t sum = total(sums);
    for (; i < n; i++) {
        sum += (uint64_t)weights[i] * qn__row_distance(best, logits[i]);
    }
    return sum;
}

static void spread(const float *logits, size_t n, float best, qn_scan_spread *out)
{
    vwide sums = {0}, squares = {0};
    vuint counts = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vfloat v = load(logits + i);
        vuint mask = (vuint)(v > all(-INFINITY));
        vuint d = distances(all(best), v) & mask;
        vwide even = (vwide)d & 0xffffffffU, odd = (vwide)d >> 32;
        sums += even + odd;
        squares += even * even + odd * odd;
        counts -= mask;
    }
    *out = (qn_scan_spread){total(in_pairs(counts)), total(sums), total(squares)};
    for (; i < n; i++) {
        if (logits[i] > -INFINITY) {
            uint64_t d = qn__row_distance(best, logits[i]);
            out->count++;
            out->sum += d;
            out->squares += d * d;
        }
    }
}

static inline vint load_int(const int32_t *from)
{
    vint v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* Whether these are the ids first, first + 1, … of a word of bits. */
static inline bool is_word(const int32_t *ids, int32_t first)
{
    vint wanted = count_up() + first, differ = {0};
    for (size_t j = 0; j < WORD; j += LANES) {
        differ |= load_int(ids + j) ^ wanted;
        wanted += LANES;
    }
    uint64_t any = 0;
    for (int j = 0; j < WIDE; j++) {
        any |= ((vwide)differ)[j];
    }
    return any == 0;
}

static inline void mask_word(float *logits, uint32_t word)
{
    const vuint bit = (vuint){0} + 1U;
    vuint lane = bit << (vuint)count_up();
    for (size_t j = 0; j < WORD; j += LANES) {
        vint on = ((word >> j) & lane) != 0;
        vfloat v = choose(on, load(logits + j), all(-INFINITY));
        memcpy(logits + j, &v, sizeof v);
    }
}

static void mask(float *logits, const int32_t *ids, size_t n, const uint32_t *bits, size_t words)
{
    for (size_t i = 0; i < n; i += WORD) {
        if (i + WORD <= n && is_word(ids + i, (int32_t)i)) {
            uint32_t word = i / WORD < words ? bits[i / WORD] : 0;
            if (word != UINT32_MAX) {
                mask_word(logits + i, word);
            }
            continue;
        }
        for (size_t j = i; j < n && j < i + WORD; j++) {
            uint32_t at = (uint32_t)ids[j];
            bool on = at / WORD < words && (bits[at / WORD] >> at % WORD & 1) != 0;
            logits[j] = on ? logits[j] : -INFINITY;
        }
    }
}

const qn_scan QN_SCAN_TABLE = {.name = QN_SCAN_NAME,
                               .clean = clean,
                               .max = max,
                               .peaks = peaks,
                               .count = count,
                               .weigh = weigh,
                               .reach = reach,
                               .sum_from = sum_from,
                               .sum_distances = sum_distances,
                               .spread = spread,
                               .mask = mask};
