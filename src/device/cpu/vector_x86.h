/*
 * vector_x86.h: the sixteen floats of vector.h on x86: on AVX2 two registers, on AVX-512 one
 * (QN_VECTOR_512 set to 0 or 1).
 */
#ifndef QUERN_DEVICE_CPU_VECTOR_X86_H
#define QUERN_DEVICE_CPU_VECTOR_X86_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define QN_VECTOR_INLINE static inline __attribute__((always_inline))

#if QN_VECTOR_512

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 v16m;

/* A mask of the first n < 16 lanes. */
static inline __mmask16 v_first(int64_t n)
{
    return (__mmask16)((1U << n) - 1U);
}

static inline v16 v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline v16i vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}
static inline v16 v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
static inline void v_store_n(float *p, v16 x, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_first(n), x);
}
static inline v16 v_keep_n(v16 x, int64_t n)
{
    return _mm512_maskz_mov_ps(v_first(n), x);
}
static inline v16 v_fill_n(v16 x, int64_t n, v16 fill)
{
    return _mm512_mask_mov_ps(fill, v_first(n), x);
}
static inline v16 v_add(v16 x, v16 y)
{
    return _mm512_add_ps(x, y);
}
static inline v16 v_sub(v16 x, v16 y)
{
    return _mm512_sub_ps(x, y);
}
static inline v16 v_mul(v16 x, v16 y)
{
    return _mm512_mul_ps(x, y);
}
static inline v16 v_div(v16 x, v16 y)
{
    return _mm512_div_ps(x, y);
}
static inline v16 v_sqrt(v16 x)
{
    return _mm512_sqrt_ps(x);
}
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return _mm512_fmadd_ps(x, y, z);
}
static inline v16 v_max(v16 x, v16 y)
{
    return _mm512_max_ps(x, y);
} /* x > y ? x : y */
static inline v16 v_min(v16 x, v16 y)
{
    return _mm512_min_ps(x, y);
} /* x < y ? x : y */
static inline v16m v_less(v16 x, v16 y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ);
}
static inline v16 v_select(v16m m, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(m, y, x);
} /* m ? x : y */
static inline v16i v_bits(v16 x)
{
    return _mm512_castps_si512(x);
}
static inline v16 vi_float(v16i x)
{
    return _mm512_castsi512_ps(x);
}
static inline v16i vi_add(v16i x, v16i y)
{
    return _mm512_add_epi32(x, y);
}
static inline v16i vi_sub(v16i x, v16i y)
{
    return _mm512_sub_epi32(x, y);
}
static inline v16i vi_and(v16i x, v16i y)
{
    return _mm512_and_si512(x, y);
}
static inline v16i vi_or(v16i x, v16i y)
{
    return _mm512_or_si512(x, y);
}
static inline v16i vi_xor(v16i x, v16i y)
{
    return _mm512_xor_si512(x, y);
}
static inline v16i vi_half(v16i x)
{
    return _mm512_srai_epi32(x, 1);
}
static inline v16i vi_exponent(v16i x)
{
    return _mm512_srai_epi32(x, 23);
}
static inline v16i vi_to_exponent(v16i x)
{
    return _mm512_slli_epi32(x, 23);
}
static inline v16 vi_convert(v16i x)
{
    return _mm512_cvtepi32_ps(x);
}
static inline int v_any_equal(v16 x, v16 y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ);
} /* bit i: lane i */
static inline v16 v_dup_even(v16 x)
{
    return _mm512_moveldup_ps(x);
}
static inline v16 v_dup_odd(v16 x)
{
    return _mm512_movehdup_ps(x);
}
static inline v16 v_swap(v16 x)
{
    return _mm512_permute_ps(x, 0xB1);
}
/* even lanes x y - z, odd lanes x y + z */
static inline v16 v_fmaddsub(v16 x, v16 y, v16 z)
{
    return _mm512_fmaddsub_ps(x, y, z);
}
static inline v16 v_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline v16 v_from_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
static inline void v_to_f16(uint16_t *p, v16 x)
{
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void vi_store_high(uint16_t *p, v16i x) /* the upper 16 bits of each lane */
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
}
static inline v16i vi_bit16(v16i x) /* bit 16 of each lane, as 0 or 1 */
{
    return _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
}

/* Lane i of the result: element 2 i (odd: 2 i + 1) of the 32 values x, y. */
static inline v16 v_even(v16 x, v16 y)
{
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(x, at, y);
}

static inline v16 v_odd(v16 x, v16 y)
{
    const __m512i at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(x, at, y);
}

static inline void v_halves(v16 x, __m256 *low, __m256 *high)
{
    *low = _mm512_castps512_ps256(x);
    *high = _mm512_extractf32x8_ps(x, 1);
}

#else

typedef struct v16 {
    __m256 a, b; /* lanes 0 .. 7, 8 .. 15 */
} v16;
typedef struct v16i {
    __m256i a, b;
} v16i;
typedef v16i v16m; /* all ones or all zeros in a lane */

static inline v16m v_first(int64_t n)
{
    const __m256i count = _mm256_set1_epi32((int)n);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (v16m){_mm256_cmpgt_epi32(count, lane),
                  _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8)))};
}

#define QN_BOTH(type, op, x, y)                                                                    \
    (type)                                                                                         \
    {                                                                                              \
        op((x).a, (y).a), op((x).b, (y).b)                                                         \
    }
#define QN_EACH(type, op, x)                                                                       \
    (type)                                                                                         \
    {                                                                                              \
        op((x).a), op((x).b)                                                                       \
    }
static inline v16 v_set(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline v16i vi_set(int32_t x)
{
    return (v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
static inline v16 v_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void v_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline v16 vi_float(v16i x)
{
    return QN_EACH(v16, _mm256_castsi256_ps, x);
}
static inline v16i v_bits(v16 x)
{
    return QN_EACH(v16i, _mm256_castps_si256, x);
}
static inline v16 v_add(v16 x, v16 y)
{
    return QN_BOTH(v16, _mm256_add_ps, x, y);
}
static inline v16 v_sub(v16 x, v16 y)
{
    return QN_BOTH(v16, _mm256_sub_ps, x, y);
}
static inline v16 v_mul(v16 x, v16 y)
{
    return QN_BOTH(v16, _mm256_mul_ps, x, y);
}
static inline v16 v_div(v16 x, v16 y)
{
    return QN_BOTH(v16, _mm256_div_ps, x, y);
}
static inline v16 v_sqrt(v16 x)
{
    return QN_EACH(v16, _mm256_sqrt_ps, x);
}
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline v16 v_max(v16 x, v16 y)
{
    return QN_BOTH(v16, _mm256_max_ps, x, y);
} /* x > y ? x : y */
static inline v16 v_min(v16 x, v16 y)
{
    return QN_BOTH(v16, _mm256_min_ps, x, y);
} /* x < y ? x : y */
static inline v16m v_less(v16 x, v16 y)
{
    return v_bits((v16){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)});
}
static inline v16 v_select(v16m m, v16 x, v16 y) /* m ? x : y */
{
    v16 f = vi_float(m);
    return (v16){_mm256_blendv_ps(y.a, x.a, f.a), _mm256_blendv_ps(y.b, x.b, f.b)};
}
static inline v16 v_load_n(const float *p, int64_t n)
{
    v16m m = v_first(n);
    return (v16){_mm256_maskload_ps(p, m.a),
                 n > 8 ? _mm256_maskload_ps(p + 8, m.b) : _mm256_setzero_ps()};
}
static inline void v_store_n(float *p, v16 x, int64_t n)
{
    v16m m = v_first(n);
    _mm256_maskstore_ps(p, m.a, x.a);
    if (n > 8) {
        _mm256_maskstore_ps(p + 8, m.b, x.b);
    }
}
static inline v16i vi_add(v16i x, v16i y)
{
    return QN_BOTH(v16i, _mm256_add_epi32, x, y);
}
static inline v16i vi_sub(v16i x, v16i y)
{
    return QN_BOTH(v16i, _mm256_sub_epi32, x, y);
}
static inline v16i vi_and(v16i x, v16i y)
{
    return QN_BOTH(v16i, _mm256_and_si256, x, y);
}
static inline v16i vi_or(v16i x, v16i y)
{
    return QN_BOTH(v16i, _mm256_or_si256, x, y);
}
static inline v16i vi_xor(v16i x, v16i y)
{
    return QN_BOTH(v16i, _mm256_xor_si256, x, y);
}
static inline v16i vi_half(v16i x)
{
    return (v16i){_mm256_srai_epi32(x.a, 1), _mm256_srai_epi32(x.b, 1)};
}
static inline v16i vi_exponent(v16i x)
{
    return (v16i){_mm256_srai_epi32(x.a, 23), _mm256_srai_epi32(x.b, 23)};
}
static inline v16i vi_to_exponent(v16i x)
{
    return (v16i){_mm256_slli_epi32(x.a, 23), _mm256_slli_epi32(x.b, 23)};
}
static inline v16 vi_convert(v16i x)
{
    return QN_EACH(v16, _mm256_cvtepi32_ps, x);
}
static inline v16 v_keep_n(v16 x, int64_t n)
{
    return vi_float(vi_and(v_bits(x), v_first(n)));
}
static inline v16 v_fill_n(v16 x, int64_t n, v16 fill)
{
    return v_select(v_first(n), x, fill);
}
static inline int v_any_equal(v16 x, v16 y) /* bit i: lane i */
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ)) |
           _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)) << 8;
}
static inline v16 v_dup_even(v16 x)
{
    return QN_EACH(v16, _mm256_moveldup_ps, x);
}
static inline v16 v_dup_odd(v16 x)
{
    return QN_EACH(v16, _mm256_movehdup_ps, x);
}
static inline v16 v_swap(v16 x)
{
    return (v16){_mm256_permute_ps(x.a, 0xB1), _mm256_permute_ps(x.b, 0xB1)};
}
/* even lanes x y - z, odd lanes x y + z */
static inline v16 v_fmaddsub(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmaddsub_ps(x.a, y.a, z.a), _mm256_fmaddsub_ps(x.b, y.b, z.b)};
}
static inline v16 v_from_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline v16 v_from_bf16(const uint16_t *p)
{
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return vi_float((v16i){_mm256_slli_epi32(a, 16), _mm256_slli_epi32(b, 16)});
}
static inline void v_to_f16(uint16_t *p, v16 x)
{
    _mm_storeu_si128((__m128i *)p,
                     _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 8),
                     _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void vi_store_high(uint16_t *p, v16i x) /* the upper 16 bits of each lane */
{
    __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(x.a, 16), _mm256_srli_epi32(x.b, 16));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xD8));
}
static inline v16i vi_bit16(v16i x) /* bit 16 of each lane, as 0 or 1 */
{
    return vi_and((v16i){_mm256_srli_epi32(x.a, 16), _mm256_srli_epi32(x.b, 16)}, vi_set(1));
}

static inline __m256 join_pairs(__m256 x)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
}

/* Lane i of the result: element 2 i (odd: 2 i + 1) of the 32 values x, y. */
static inline v16 v_even(v16 x, v16 y)
{
    return (v16){join_pairs(_mm256_shuffle_ps(x.a, x.b, 0x88)),
                 join_pairs(_mm256_shuffle_ps(y.a, y.b, 0x88))};
}

static inline v16 v_odd(v16 x, v16 y)
{
    return (v16){join_pairs(_mm256_shuffle_ps(x.a, x.b, 0xDD)),
                 join_pairs(_mm256_shuffle_ps(y.a, y.b, 0xDD))};
}

static inline void v_halves(v16 x, __m256 *low, __m256 *high)
{
    *low = x.a;
    *high = x.b;
}

#endif

/* The tree of a reduction: lanes j and j + 8, then + 4, + 2, + 1. */
static inline float v_sum_lanes(v16 x)
{
    __m256 low, high;
    v_halves(x, &low, &high);
    __m256 s8 = _mm256_add_ps(low, high);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* The largest lane; no lane is NaN. */
static inline float v_max_lanes(v16 x)
{
    __m256 low, high;
    v_halves(x, &low, &high);
    __m256 m8 = _mm256_max_ps(low, high);
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

/* A mask of lanes from the low 16 bits. */
#if QN_VECTOR_512
QN_VECTOR_INLINE v16m v_mask(uint32_t bits)
{
    return (__mmask16)bits;
}

/* Whether every lane of both is at least `low`; a NaN is not. */
QN_VECTOR_INLINE bool v_none_below(v16 x, v16 y, v16 low)
{
    return _mm512_cmp_ps_mask(x, low, _CMP_GE_OQ) == 0xffff &&
           _mm512_cmp_ps_mask(y, low, _CMP_GE_OQ) == 0xffff;
}

QN_VECTOR_INLINE v16 v_from_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
#else
QN_VECTOR_INLINE v16m v_mask(uint32_t bits)
{
    const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i high = _mm256_slli_epi32(low, 8), all = _mm256_set1_epi32((int32_t)bits);
    return (v16m){_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low),
                  _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high)};
}

QN_VECTOR_INLINE bool v_none_below(v16 x, v16 y, v16 low)
{
    __m256 a =
        _mm256_and_ps(_mm256_cmp_ps(x.a, low.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, low.a, _CMP_GE_OQ));
    __m256 b =
        _mm256_and_ps(_mm256_cmp_ps(y.a, low.a, _CMP_GE_OQ), _mm256_cmp_ps(y.b, low.a, _CMP_GE_OQ));
    return _mm256_movemask_ps(_mm256_and_ps(a, b)) == 0xff;
}

QN_VECTOR_INLINE v16 v_from_i8(const int8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
#endif

QN_VECTOR_INLINE float v_half(uint16_t x)
{
    return _cvtsh_ss(x);
}

/* One register: what a tile of attention's products is made of (vector_attend.h). ----------------
 */

/* clang-format off */
#if QN_VECTOR_512
#define REG       16 /* lanes */
#define MOST_ROWS 6 /* queries of a tile */
#define TILE_ROWS 6 /* of F32 */
#define TILE_COLS 2
typedef __m512 reg;
QN_VECTOR_INLINE reg r_zero(void) { return _mm512_setzero_ps(); }
QN_VECTOR_INLINE reg r_set(float x) { return _mm512_set1_ps(x); }
QN_VECTOR_INLINE reg r_load(const float *p) { return _mm512_loadu_ps(p); }
QN_VECTOR_INLINE void r_store(float *p, reg x) { _mm512_storeu_ps(p, x); }
QN_VECTOR_INLINE reg r_mul(reg x, reg y) { return _mm512_mul_ps(x, y); }
QN_VECTOR_INLINE reg r_fma(reg x, reg y, reg z) { return _mm512_fmadd_ps(x, y, z); }
QN_VECTOR_INLINE reg r_from_f16(const uint16_t *p) { return v_from_f16(p); }
QN_VECTOR_INLINE reg r_from_bf16(const uint16_t *p) { return v_from_bf16(p); }
QN_VECTOR_INLINE reg r_from_i8(const int8_t *p) { return v_from_i8(p); }
#else
#define REG       8
#define MOST_ROWS 4
#define TILE_ROWS 3
#define TILE_COLS 4
typedef __m256 reg;
QN_VECTOR_INLINE reg r_zero(void) { return _mm256_setzero_ps(); }
QN_VECTOR_INLINE reg r_set(float x) { return _mm256_set1_ps(x); }
QN_VECTOR_INLINE reg r_load(const float *p) { return _mm256_loadu_ps(p); }
QN_VECTOR_INLINE void r_store(float *p, reg x) { _mm256_storeu_ps(p, x); }
QN_VECTOR_INLINE reg r_mul(reg x, reg y) { return _mm256_mul_ps(x, y); }
QN_VECTOR_INLINE reg r_fma(reg x, reg y, reg z) { return _mm256_fmadd_ps(x, y, z); }
QN_VECTOR_INLINE reg r_from_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
QN_VECTOR_INLINE reg r_from_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
QN_VECTOR_INLINE reg r_from_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
#endif
/* clang-format on */

/* Keeps the compiler from loading a value anew with every use: loads are what is scarce here. */
#if defined(QN_CPU_EMULATE_AVX512)
#define QN_LOADED(x) (void)(x)
#else
#define QN_LOADED(x) __asm__("" : "+v"(x))
#endif

#endif
