/*
 * blocks.h: the bytes of the block formats as they lie in a file (little-endian, no padding), for
 * the decoders and encoders of this room and for the kernels that repack them. What each field
 * means is at its struct; the value of element i of a block is given as y(i). A half float (f16) is
 * kept as its 16 bits.
 */
#ifndef QUERN_QUANT_BLOCKS_H
#define QUERN_QUANT_BLOCKS_H

#include <assert.h>
#include <stdint.h>

enum {
    QN_BLOCK = 32,       /* values of a simple block */
    QN_SUPER_BLOCK = 256 /* values of a K or lattice block */
};

/* Blocks may lie at odd addresses in a mapped file: no field needs alignment. */
#define QN_PACKED __attribute__((packed))

/*
 * Nibble order of the 32-value formats: byte j holds value j in its low half and value j + 16 in
 * its high half.
 */

/* y = (nibble - 8) * d */
typedef struct QN_PACKED qn_block_q4_0 {
    uint16_t d;
    uint8_t qs[16];
} qn_block_q4_0;
static_assert(sizeof(qn_block_q4_0) == 18, "q4_0");

/* y = nibble * d + m */
typedef struct QN_PACKED qn_block_q4_1 {
    uint16_t d, m;
    uint8_t qs[16];
} qn_block_q4_1;
static_assert(sizeof(qn_block_q4_1) == 20, "q4_1");

/* q = nibble | bit i of qh << 4; y = (q - 16) * d */
typedef struct QN_PACKED qn_block_q5_0 {
    uint16_t d;
    uint32_t qh;
    uint8_t qs[16];
} qn_block_q5_0;
static_assert(sizeof(qn_block_q5_0) == 22, "q5_0");

/* q as q5_0; y = q * d + m */
typedef struct QN_PACKED qn_block_q5_1 {
    uint16_t d, m;
    uint32_t qh;
    uint8_t qs[16];
} qn_block_q5_1;
static_assert(sizeof(qn_block_q5_1) == 24, "q5_1");

/* y = q * d */
typedef struct QN_PACKED qn_block_q8_0 {
    uint16_t d;
    int8_t qs[32];
} qn_block_q8_0;
static_assert(sizeof(qn_block_q8_0) == 34, "q8_0");

/* Activations only: y = q * d; s = d * (sum of q) */
typedef struct QN_PACKED qn_block_q8_1 {
    uint16_t d, s;
    int8_t qs[32];
} qn_block_q8_1;
static_assert(sizeof(qn_block_q8_1) == 36, "q8_1");

/* y = d * qn__iq4_values[nibble] */
typedef struct QN_PACKED qn_block_iq4_nl {
    uint16_t d;
    uint8_t qs[16];
} qn_block_iq4_nl;
static_assert(sizeof(qn_block_iq4_nl) == 18, "iq4_nl");

/* y = qn__e2m1_values[nibble] * qn__e8m0_half(e) */
typedef struct QN_PACKED qn_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} qn_block_mxfp4;
static_assert(sizeof(qn_block_mxfp4) == 17, "mxfp4");

/* 64 values in four groups of 16: group s, position r has the nibble r / 8 of qs[8 s + r % 8];
 * y = qn__e2m1_values[nibble] * qn__ue4m3_half(d[s]) */
typedef struct QN_PACKED qn_block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} qn_block_nvfp4;
static_assert(sizeof(qn_block_nvfp4) == 36, "nvfp4");

/* 128 values: y = d where bit i % 8 of qs[i / 8] is set, else -d */
typedef struct QN_PACKED qn_block_q1_0 {
    uint16_t d;
    uint8_t qs[16];
} qn_block_q1_0;
static_assert(sizeof(qn_block_q1_0) == 18, "q1_0");

/* 64 values, two bits each from the lowest: y = (q - 1) * d */
typedef struct QN_PACKED qn_block_q2_0 {
    uint16_t d;
    uint8_t qs[16];
} qn_block_q2_0;
static_assert(sizeof(qn_block_q2_0) == 18, "q2_0");

/*
 * Super-blocks of 256. Packing P2: value i has two bits of qs[32 (i / 128) + i % 32] from bit
 * 2 ((i % 128) / 32). Packing P4: value i has nibble (i % 64) / 32 of qs[32 (i / 64) + i % 32].
 */

/* P2. Sub-blocks of 16, s = i / 16: low half of scales[s] the scale, high half the minimum.
 * y = (d * scale) * q - dmin * minimum */
typedef struct QN_PACKED qn_block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
} qn_block_q2_k;
static_assert(sizeof(qn_block_q2_k) == 84, "q2_K");

/* P2 and the third bit, bit i / 32 of hmask[i % 32]: q = low two bits, minus 4 where it is clear.
 * Scale of s = i / 16: qn__q3_k_scales. y = (d * (scale - 32)) * q */
typedef struct QN_PACKED qn_block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
} qn_block_q3_k;
static_assert(sizeof(qn_block_q3_k) == 110, "q3_K");

/* P4. Sub-blocks of 32, s = i / 32, scales and minima: qn__q4_k_scales.
 * y = (d * scale) * q - dmin * minimum */
typedef struct QN_PACKED qn_block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} qn_block_q4_k;
static_assert(sizeof(qn_block_q4_k) == 144, "q4_K");

/* As q4_K with bit 4 of q in bit i / 32 of qh[i % 32] */
typedef struct QN_PACKED qn_block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} qn_block_q5_k;
static_assert(sizeof(qn_block_q5_k) == 176, "q5_K");

/* h = i / 128, k = (i % 128) / 32, l = i % 32: low four bits nibble k / 2 of
 * ql[64 h + 32 (k % 2) + l], high two bits from bit 2 k of qh[32 h + l].
 * y = (d * scales[i / 16]) * (q - 32) */
typedef struct QN_PACKED qn_block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
} qn_block_q6_k;
static_assert(sizeof(qn_block_q6_k) == 210, "q6_K");

/* Activations only: y = d * q; bsums[s] = sum of the 16 q of group s */
typedef struct QN_PACKED qn_block_q8_k {
    float d;
    int8_t qs[256];
    int16_t bsums[16];
} qn_block_q8_k;
static_assert(sizeof(qn_block_q8_k) == 292, "q8_K");

/* g = i / 32: six-bit scale nibble g % 2 of scales_l[g / 2] | two bits of scales_h from bit 2 g
 * << 4; nibble (i % 32) / 16 of qs[16 g + i % 16]. y = (d * (scale - 32)) * qn__iq4_values[nibble]
 */
typedef struct QN_PACKED qn_block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} qn_block_iq4_xs;
static_assert(sizeof(qn_block_iq4_xs) == 136, "iq4_xs");

/* Ternary, P2: y = (q - 1) * d */
typedef struct QN_PACKED qn_block_tq2_0 {
    uint8_t qs[64];
    uint16_t d;
} qn_block_tq2_0;
static_assert(sizeof(qn_block_tq2_0) == 66, "tq2_0");

/* Ternary, five digits a byte as a fraction of 256, the first digit the most significant: 160
 * values in qs[0..32), 80 in qs[32..48), 16 in qh. y = (q - 1) * d */
typedef struct QN_PACKED qn_block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
} qn_block_tq1_0;
static_assert(sizeof(qn_block_tq1_0) == 54, "tq1_0");

/*
 * Lattice formats: a group of eight values (iq1, iq2) or four (iq3) is a point of a code book
 * (lattice.h). Sign bits: bit j of a group's byte for its value j.
 */

/* g = i / 32, group l = (i % 32) / 8: point index[l]; of `signs`: seven sign bits from bit 7 l (the
 * eighth makes their number even), the scale s in bits 28..31.
 * y = (d * (0.5 + s) * 0.25) * point * sign */
typedef struct QN_PACKED qn_block_iq2_xxs {
    uint16_t d;
    struct QN_PACKED {
        uint8_t index[4];
        uint32_t signs;
    } g[8];
} qn_block_iq2_xxs;
static_assert(sizeof(qn_block_iq2_xxs) == 66, "iq2_xxs");

/* Group k = i / 8: point qs[k] & 511, seven sign bits above. Scale of 16 values: nibble
 * (i % 32) / 16 of scales[i / 32]. Values as iq2_xxs. */
typedef struct QN_PACKED qn_block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
} qn_block_iq2_xs;
static_assert(sizeof(qn_block_iq2_xs) == 74, "iq2_xs");

/* Point qs[k] | two bits of qh[k / 4] from bit 2 (k % 4) << 8, eight sign bits signs[k]. */
typedef struct QN_PACKED qn_block_iq2_s {
    uint16_t d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} qn_block_iq2_s;
static_assert(sizeof(qn_block_iq2_s) == 82, "iq2_s");

/* Groups of four, k = i / 4: point qs[k]. signs[i / 32] as in iq2_xxs, for groups of eight.
 * y = (d * (0.5 + s) * 0.5) * point * sign */
typedef struct QN_PACKED qn_block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];
    uint32_t signs[8];
} qn_block_iq3_xxs;
static_assert(sizeof(qn_block_iq3_xxs) == 98, "iq3_xxs");

/* Point qs[k] | bit k % 8 of qh[k / 8] << 8; sign bit i % 8 of signs[i / 8]; scale nibble g % 2 of
 * scales[g / 2], g = i / 32. y = (d * (1 + 2 s)) * point * sign */
typedef struct QN_PACKED qn_block_iq3_s {
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} qn_block_iq3_s;
static_assert(sizeof(qn_block_iq3_s) == 110, "iq3_s");

/* g = i / 32, k = i / 8: point qs[k] | three bits of qh[g] from bit 3 (k % 4) << 8; scale bits
 * 12..14, shift -0.125 where bit 15 is set, else 0.125. y = (d * (2 s + 1)) * (point + shift) */
typedef struct QN_PACKED qn_block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
} qn_block_iq1_s;
static_assert(sizeof(qn_block_iq1_s) == 50, "iq1_s");

/* n = nibble k % 2 of qh[k / 2]: point qs[k] | (n & 7) << 8, shift as iq1_s by n & 8. Scale of 16
 * values, b = i / 16: three bits of sc[b / 4] from bit 3 (b % 4). d: the top nibbles of sc[0..3],
 * lowest first. */
typedef struct QN_PACKED qn_block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint16_t sc[4];
} qn_block_iq1_m;
static_assert(sizeof(qn_block_iq1_m) == 56, "iq1_m");

/* Code of iq4_nl and iq4_xs. */
extern const int8_t qn__iq4_values[16];

/* E2M1 numbers, doubled: code of mxfp4 and nvfp4. */
extern const int8_t qn__e2m1_values[16];

/* Half of the E8M0 number 2^(e - 127): what the doubled code is multiplied with. */
float qn__e8m0_half(uint8_t e);

/* Half of the UE4M3 number of the byte. */
float qn__ue4m3_half(uint8_t x);

/* A number to the nearest UE4M3 byte (halves up): 0 for what is not positive, at most 448. */
uint8_t qn__ue4m3_from_f32(float x);

/* The sixteen 6-bit scales of q3_K as stored, 0..63. */
void qn__q3_k_scales(const uint8_t packed[12], uint8_t scale[16]);

/* The eight 6-bit scales and minima of q4_K and q5_K. */
void qn__q4_k_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t minimum[8]);

#endif
