/*
 * avx512_emulation.h: AVX-512 kernels on machines without AVX-512.
 *
 * tests/CMakeLists.txt compiles src/device/cpu/avx512/<name>.c a second time with this header
 * included before everything else: the intrinsics become SIMDe's (package libsimde-dev), which does
 * them with what the machine has. The objects are linked before the library, so that their tables
 * take the place of the real ones, and isa.c lets the machine pass as one with AVX-512.
 *
 * A test uses it by naming QN_TEST_EMULATED somewhere in tests/device/test_<subject>.c: then a
 * second program, device_<subject>_avx512, is built of that file with QN_TEST_EMULATED defined and
 * the emulated kernels in it. There qn__cpu_isa_find("avx512") works, and so does a device opened
 * with it; in the plain program it returns NULL on machines without AVX-512. Tests therefore walk
 * qn__cpu_isa_at(i) and compare each instruction set with the first, which is scalar.
 *
 * Kernels need not know: they include <immintrin.h> as always. An intrinsic that SIMDe lacks gets a
 * definition here.
 */
#ifndef QUERN_TESTS_AVX512_EMULATION_H
#define QUERN_TESTS_AVX512_EMULATION_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

/* What SIMDe 0.7 lacks.
 * ----------------------------------------------------------------------------
 */

#include <string.h>

/* Only the lanes of the mask may be touched: the rest may lie outside of the memory. */
static inline simde__m512 qn_emulate_maskz_loadu_ps(simde__mmask16 mask, const void *p)
{
    float lanes[16] = {0};
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1) {
            memcpy(&lanes[i], (const char *)p + 4 * i, 4);
        }
    }
    return simde_mm512_loadu_ps(lanes);
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps(mask, p) qn_emulate_maskz_loadu_ps(mask, p)

static inline void qn_emulate_mask_storeu_ps(void *p, simde__mmask16 mask, simde__m512 x)
{
    float lanes[16];
    simde_mm512_storeu_ps(lanes, x);
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1) {
            memcpy((char *)p + 4 * i, &lanes[i], 4);
        }
    }
}
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps(p, mask, x) qn_emulate_mask_storeu_ps(p, mask, x)

/* Both halves by an AVX2 intrinsic. Fields: m256, m256i, m256d of SIMDe's private types. */
#define QN_EMULATE_HALVES(name, result, result_field, operand, operand_field, half)                \
    static inline simde__##result qn_emulate_##name(simde__##operand x)                            \
    {                                                                                              \
        simde__##result##_private r;                                                               \
        simde__##operand##_private p = simde__##operand##_to_private(x);                           \
        r.result_field[0] = half(p.operand_field[0]);                                              \
        r.result_field[1] = half(p.operand_field[1]);                                              \
        return simde__##result##_from_private(r);                                                  \
    }

QN_EMULATE_HALVES(cvtepi32_ps, m512, m256, m512i, m256i, _mm256_cvtepi32_ps)
QN_EMULATE_HALVES(moveldup_ps, m512, m256, m512, m256, _mm256_moveldup_ps)
QN_EMULATE_HALVES(movehdup_ps, m512, m256, m512, m256, _mm256_movehdup_ps)
#undef _mm512_cvtepi32_ps
#undef _mm512_moveldup_ps
#undef _mm512_movehdup_ps
#define _mm512_cvtepi32_ps(x) qn_emulate_cvtepi32_ps(x)
#define _mm512_moveldup_ps(x) qn_emulate_moveldup_ps(x)
#define _mm512_movehdup_ps(x) qn_emulate_movehdup_ps(x)

/* The same with a constant: a macro, because the constant must stay one. */
#define QN_EMULATE_IMMEDIATE(type, field, half, x, immediate)                                      \
    __extension__({                                                                                \
        simde__##type##_private p_ = simde__##type##_to_private(x);                                \
        p_.field[0] = half(p_.field[0], immediate);                                                \
        p_.field[1] = half(p_.field[1], immediate);                                                \
        simde__##type##_from_private(p_);                                                          \
    })
#undef _mm512_permute_ps
#undef _mm512_srai_epi32
#undef _mm512_permutex_epi64
#define _mm512_permute_ps(x, n) QN_EMULATE_IMMEDIATE(m512, m256, _mm256_permute_ps, x, n)
#define _mm512_srai_epi32(x, n) QN_EMULATE_IMMEDIATE(m512i, m256i, _mm256_srai_epi32, x, n)
#define _mm512_permutex_epi64(x, n)                                                                \
    QN_EMULATE_IMMEDIATE(m512i, m256i, _mm256_permute4x64_epi64, x, n)

static inline simde__m512 qn_emulate_fmaddsub_ps(simde__m512 x, simde__m512 y, simde__m512 z)
{
    simde__m512_private a = simde__m512_to_private(x), b = simde__m512_to_private(y),
                        c = simde__m512_to_private(z);
    a.m256[0] = _mm256_fmaddsub_ps(a.m256[0], b.m256[0], c.m256[0]);
    a.m256[1] = _mm256_fmaddsub_ps(a.m256[1], b.m256[1], c.m256[1]);
    return simde__m512_from_private(a);
}
#undef _mm512_fmaddsub_ps
#define _mm512_fmaddsub_ps(x, y, z) qn_emulate_fmaddsub_ps(x, y, z)

static inline __m256 qn_emulate_extractf32x8_ps(simde__m512 x, int half)
{
    return simde__m512_to_private(x).m256[half];
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(x, half) qn_emulate_extractf32x8_ps(x, half)

/* 16 bytes to 16 lanes of 32 bits. */
static inline simde__m512i qn_emulate_cvtepu8_epi32(__m128i x)
{
    simde__m512i_private r;
    r.m256i[0] = _mm256_cvtepu8_epi32(x);
    r.m256i[1] = _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8));
    return simde__m512i_from_private(r);
}
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(x) qn_emulate_cvtepu8_epi32(x)

/* 16 lanes of 16 bits to and from 16 of 32. */
static inline simde__m512i qn_emulate_cvtepu16_epi32(__m256i x)
{
    simde__m512i_private r;
    r.m256i[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(x));
    r.m256i[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1));
    return simde__m512i_from_private(r);
}
static inline __m256i qn_emulate_cvtepi32_epi16(simde__m512i x)
{
    simde__m512i_private p = simde__m512i_to_private(x);
    uint16_t low[16];
    for (int i = 0; i < 16; i++) {
        low[i] = (uint16_t)p.u32[i];
    }
    return _mm256_loadu_si256((const __m256i *)low);
}
static inline simde__m512i qn_emulate_cvtepi8_epi32(__m128i x)
{
    simde__m512i_private r;
    r.m256i[0] = _mm256_cvtepi8_epi32(x);
    r.m256i[1] = _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8));
    return simde__m512i_from_private(r);
}
static inline simde__m512 qn_emulate_cvtph_ps(__m256i x)
{
    simde__m512_private r;
    r.m256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    r.m256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
    return simde__m512_from_private(r);
}
static inline __m256i qn_emulate_cvtps_ph(simde__m512 x)
{
    simde__m512_private p = simde__m512_to_private(x);
    return _mm256_set_m128i(_mm256_cvtps_ph(p.m256[1], 0), _mm256_cvtps_ph(p.m256[0], 0));
}
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#define _mm512_cvtepu16_epi32(x)     qn_emulate_cvtepu16_epi32(x)
#define _mm512_cvtepi32_epi16(x)     qn_emulate_cvtepi32_epi16(x)
#define _mm512_cvtepi8_epi32(x)      qn_emulate_cvtepi8_epi32(x)
#define _mm512_cvtph_ps(x)           qn_emulate_cvtph_ps(x)
#define _mm512_cvtps_ph(x, rounding) qn_emulate_cvtps_ph(x) /* to nearest */

#endif
