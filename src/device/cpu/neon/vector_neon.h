/* vector_neon.h: the sixteen floats of vector.h on AArch64: four registers of NEON. */
#ifndef QUERN_DEVICE_CPU_NEON_VECTOR_NEON_H
#define QUERN_DEVICE_CPU_NEON_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define QN_VECTOR_INLINE static inline __attribute__((always_inline))

typedef struct v16 {
    float32x4_t r[4]; /* lanes 4 i .. 4 i + 3 */
} v16;
typedef struct v16i {
    int32x4_t r[4];
} v16i;
typedef struct v16m {
    uint32x4_t r[4]; /* all ones or all zeros in a lane */
} v16m;

/* A result of the given type from an operation on each register of one, two or three operands. */
#define QN_EACH(type, op, x)                                                                       \
    (type)                                                                                         \
    {                                                                                              \
        {                                                                                          \
            op((x).r[0]), op((x).r[1]), op((x).r[2]), op((x).r[3])                                 \
        }                                                                                          \
    }
#define QN_BOTH(type, op, x, y)                                                                    \
    (type)                                                                                         \
    {                                                                                              \
        {                                                                                          \
            op((x).r[0], (y).r[0]), op((x).r[1], (y).r[1]), op((x).r[2], (y).r[2]),                \
                op((x).r[3], (y).r[3])                                                             \
        }                                                                                          \
    }
#define QN_THREE(type, op, x, y, z)                                                                \
    (type)                                                                                         \
    {                                                                                              \
        {                                                                                          \
            op((x).r[0], (y).r[0], (z).r[0]), op((x).r[1], (y).r[1], (z).r[1]),                    \
                op((x).r[2], (y).r[2], (z).r[2]), op((x).r[3], (y).r[3], (z).r[3])                 \
        }                                                                                          \
    }
/* The same operation with a constant on each register. */
#define QN_WITH(type, op, x, n)                                                                    \
    (type)                                                                                         \
    {                                                                                              \
        {                                                                                          \
            op((x).r[0], n), op((x).r[1], n), op((x).r[2], n), op((x).r[3], n)                     \
        }                                                                                          \
    }

static inline v16 v_set(float x)
{
    const float32x4_t v = vdupq_n_f32(x);
    return (v16){{v, v, v, v}};
}
static inline v16i vi_set(int32_t x)
{
    const int32x4_t v = vdupq_n_s32(x);
    return (v16i){{v, v, v, v}};
}
static inline v16 v_load(const float *p)
{
    return (v16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
static inline void v_store(float *p, v16 x)
{
    for (int i = 0; i < 4; i++) {
        vst1q_f32(p + 4 * i, x.r[i]);
    }
}

/* The first n < 16 lanes; there are no masked loads, so they go through the stack. */
static inline v16 v_load_n(const float *p, int64_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return v_load(lanes);
}
static inline void v_store_n(float *p, v16 x, int64_t n)
{
    float lanes[16];
    v_store(lanes, x);
    memcpy(p, lanes, (size_t)n * sizeof *p);
}

static inline v16m v_first(int64_t n)
{
    static const uint32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint32x4_t count = vdupq_n_u32((uint32_t)n);
    return (v16m){{vcltq_u32(vld1q_u32(lane), count), vcltq_u32(vld1q_u32(lane + 4), count),
                   vcltq_u32(vld1q_u32(lane + 8), count), vcltq_u32(vld1q_u32(lane + 12), count)}};
}

static inline v16i v_bits(v16 x)
{
    return QN_EACH(v16i, vreinterpretq_s32_f32, x);
}
static inline v16 vi_float(v16i x)
{
    return QN_EACH(v16, vreinterpretq_f32_s32, x);
}
static inline v16 v_add(v16 x, v16 y)
{
    return QN_BOTH(v16, vaddq_f32, x, y);
}
static inline v16 v_sub(v16 x, v16 y)
{
    return QN_BOTH(v16, vsubq_f32, x, y);
}
static inline v16 v_mul(v16 x, v16 y)
{
    return QN_BOTH(v16, vmulq_f32, x, y);
}
static inline v16 v_div(v16 x, v16 y)
{
    return QN_BOTH(v16, vdivq_f32, x, y);
}
static inline v16 v_sqrt(v16 x)
{
    return QN_EACH(v16, vsqrtq_f32, x);
}
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return QN_THREE(v16, vfmaq_f32, z, x, y);
}
static inline v16m v_less(v16 x, v16 y)
{
    return QN_BOTH(v16m, vcltq_f32, x, y);
}
static inline v16 v_select(v16m m, v16 x, v16 y) /* m ? x : y */
{
    return QN_THREE(v16, vbslq_f32, m, x, y);
}
/* Not fmax and fmin, which hand on a NaN from either side. */
static inline v16 v_max(v16 x, v16 y)
{
    return v_select(v_less(y, x), x, y);
} /* x > y ? x : y */
static inline v16 v_min(v16 x, v16 y)
{
    return v_select(v_less(x, y), x, y);
} /* x < y ? x : y */
static inline v16 v_fill_n(v16 x, int64_t n, v16 fill)
{
    return v_select(v_first(n), x, fill);
}
static inline v16 v_keep_n(v16 x, int64_t n)
{
    return v_select(v_first(n), x, v_set(0.0F));
}
static inline v16i vi_add(v16i x, v16i y)
{
    return QN_BOTH(v16i, vaddq_s32, x, y);
}
static inline v16i vi_sub(v16i x, v16i y)
{
    return QN_BOTH(v16i, vsubq_s32, x, y);
}
static inline v16i vi_and(v16i x, v16i y)
{
    return QN_BOTH(v16i, vandq_s32, x, y);
}
static inline v16i vi_or(v16i x, v16i y)
{
    return QN_BOTH(v16i, vorrq_s32, x, y);
}
static inline v16i vi_xor(v16i x, v16i y)
{
    return QN_BOTH(v16i, veorq_s32, x, y);
}
static inline v16i vi_half(v16i x)
{
    return QN_WITH(v16i, vshrq_n_s32, x, 1);
}
static inline v16i vi_exponent(v16i x)
{
    return QN_WITH(v16i, vshrq_n_s32, x, 23);
}
static inline v16i vi_to_exponent(v16i x)
{
    return QN_WITH(v16i, vshlq_n_s32, x, 23);
}
static inline v16 vi_convert(v16i x)
{
    return QN_EACH(v16, vcvtq_f32_s32, x);
}
static inline int v_any_equal(v16 x, v16 y) /* bit i: lane i */
{
    static const uint32_t bits[4] = {1, 2, 4, 8};
    const v16m m = QN_BOTH(v16m, vceqq_f32, x, y);
    uint32_t found = 0;
    for (int i = 0; i < 4; i++) {
        found |= vaddvq_u32(vandq_u32(m.r[i], vld1q_u32(bits))) << (4 * i);
    }
    return (int)found;
}
static inline v16 v_dup_even(v16 x)
{
    return QN_BOTH(v16, vtrn1q_f32, x, x);
}
static inline v16 v_dup_odd(v16 x)
{
    return QN_BOTH(v16, vtrn2q_f32, x, x);
}
static inline v16 v_swap(v16 x)
{
    return QN_EACH(v16, vrev64q_f32, x);
}
/* even lanes x y - z, odd lanes x y + z */
static inline v16 v_fmaddsub(v16 x, v16 y, v16 z)
{
    const int32x4_t sign = vreinterpretq_s32_s64(vdupq_n_s64(0x80000000));
    const v16i signs = {{sign, sign, sign, sign}};
    return v_fma(x, y, vi_float(vi_xor(v_bits(z), signs)));
}
static inline float32x4_t v_widen_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline v16 v_from_f16(const uint16_t *p)
{
    return (v16){{v_widen_f16(p), v_widen_f16(p + 4), v_widen_f16(p + 8), v_widen_f16(p + 12)}};
}
static inline float32x4_t v_widen_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline v16 v_from_bf16(const uint16_t *p)
{
    return (v16){{v_widen_bf16(p), v_widen_bf16(p + 4), v_widen_bf16(p + 8), v_widen_bf16(p + 12)}};
}
static inline void v_to_f16(uint16_t *p, v16 x)
{
    for (int i = 0; i < 4; i++) {
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.r[i])));
    }
}
static inline void vi_store_high(uint16_t *p, v16i x) /* the upper 16 bits of each lane */
{
    for (int i = 0; i < 4; i++) {
        vst1_u16(p + 4 * i, vshrn_n_u32(vreinterpretq_u32_s32(x.r[i]), 16));
    }
}
static inline v16i vi_bit16(v16i x) /* bit 16 of each lane, as 0 or 1 */
{
    return vi_and(QN_WITH(v16i, vshrq_n_s32, x, 16), vi_set(1));
}

/* Lane i of the result: element 2 i (odd: 2 i + 1) of the 32 values x, y. */
static inline v16 v_even(v16 x, v16 y)
{
    return (v16){{vuzp1q_f32(x.r[0], x.r[1]), vuzp1q_f32(x.r[2], x.r[3]),
                  vuzp1q_f32(y.r[0], y.r[1]), vuzp1q_f32(y.r[2], y.r[3])}};
}
static inline v16 v_odd(v16 x, v16 y)
{
    return (v16){{vuzp2q_f32(x.r[0], x.r[1]), vuzp2q_f32(x.r[2], x.r[3]),
                  vuzp2q_f32(y.r[0], y.r[1]), vuzp2q_f32(y.r[2], y.r[3])}};
}

/* The tree of a reduction: lanes j and j + 8, then + 4, + 2, + 1. */
static inline float v_sum_lanes(v16 x)
{
    const float32x4_t s4 =
        vaddq_f32(vaddq_f32(x.r[0], x.r[2]), vaddq_f32(x.r[1], x.r[3])); /* (0 + 8) + (4 + 12) */
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}

/* The largest lane; no lane is NaN. */
static inline float v_max_lanes(v16 x)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.r[0], x.r[1]), vmaxq_f32(x.r[2], x.r[3])));
}

/* A mask of lanes from the low 16 bits. */
QN_VECTOR_INLINE v16m v_mask(uint32_t bits)
{
    static const uint32_t bit[16] = {0x1,   0x2,   0x4,   0x8,   0x10,   0x20,   0x40,   0x80,
                                     0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000};
    const uint32x4_t all = vdupq_n_u32(bits);
    return (v16m){{vtstq_u32(all, vld1q_u32(bit)), vtstq_u32(all, vld1q_u32(bit + 4)),
                   vtstq_u32(all, vld1q_u32(bit + 8)), vtstq_u32(all, vld1q_u32(bit + 12))}};
}

/* Whether every lane of both is at least `low`; a NaN is not. */
QN_VECTOR_INLINE bool v_none_below(v16 x, v16 y, v16 low)
{
    const v16m a = QN_BOTH(v16m, vcgeq_f32, x, low), b = QN_BOTH(v16m, vcgeq_f32, y, low);
    const v16m both = QN_BOTH(v16m, vandq_u32, a, b);
    const uint32x4_t all =
        vandq_u32(vandq_u32(both.r[0], both.r[1]), vandq_u32(both.r[2], both.r[3]));
    return vminvq_u32(all) != 0;
}

QN_VECTOR_INLINE float v_half(uint16_t x)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x))), 0);
}

/* One register: what a tile of attention's products is made of (vector_attend.h). ----------------
 */

/* clang-format off */
#define REG       4 /* lanes */
#define MOST_ROWS 4 /* queries of a tile */
#define TILE_ROWS 4 /* of F32 */
#define TILE_COLS 4
typedef float32x4_t reg;
QN_VECTOR_INLINE reg r_zero(void) { return vdupq_n_f32(0.0F); }
QN_VECTOR_INLINE reg r_set(float x) { return vdupq_n_f32(x); }
QN_VECTOR_INLINE reg r_load(const float *p) { return vld1q_f32(p); }
QN_VECTOR_INLINE void r_store(float *p, reg x) { vst1q_f32(p, x); }
QN_VECTOR_INLINE reg r_mul(reg x, reg y) { return vmulq_f32(x, y); }
QN_VECTOR_INLINE reg r_fma(reg x, reg y, reg z) { return vfmaq_f32(z, x, y); }
QN_VECTOR_INLINE reg r_from_f16(const uint16_t *p) { return v_widen_f16(p); }
QN_VECTOR_INLINE reg r_from_bf16(const uint16_t *p) { return v_widen_bf16(p); }
QN_VECTOR_INLINE reg r_from_i8(const int8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    const int16x8_t x = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
}
/* clang-format on */

QN_VECTOR_INLINE v16 v_from_i8(const int8_t *p)
{
    return (v16){{r_from_i8(p), r_from_i8(p + 4), r_from_i8(p + 8), r_from_i8(p + 12)}};
}

/* Keeps the compiler from loading a value anew with every use. */
#define QN_LOADED(x) __asm__("" : "+w"(x))

#endif
