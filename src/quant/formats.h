/* formats.h: the decoders and encoders of the families, for the table in quant.c. */
#ifndef QUERN_QUANT_FORMATS_H
#define QUERN_QUANT_FORMATS_H

#include <stdint.h>

#define QN_DECODER(name) void qn__decode_##name(const void *blocks, float *y, int64_t n)
#define QN_ENCODER(name)                                                                           \
    void qn__encode_##name(const float *x, void *blocks, int64_t n, const float *weights,          \
                           const void *tables)
#define QN_FINDER(name) int64_t qn__find_invalid_##name(const void *blocks, int64_t count)

/* plain.c */
QN_DECODER(f32);
QN_ENCODER(f32);
QN_FINDER(f32);
QN_DECODER(f16);
QN_ENCODER(f16);
QN_FINDER(f16);
QN_DECODER(bf16);
QN_ENCODER(bf16);
QN_FINDER(bf16);
QN_FINDER(f64);

/* simple.c */
QN_DECODER(q4_0);
QN_ENCODER(q4_0);
QN_DECODER(q4_1);
QN_ENCODER(q4_1);
QN_DECODER(q5_0);
QN_ENCODER(q5_0);
QN_DECODER(q5_1);
QN_ENCODER(q5_1);
QN_DECODER(q8_0);
QN_ENCODER(q8_0);
QN_DECODER(q8_1);
QN_ENCODER(q8_1);
QN_FINDER(q8_1);

/* ternary.c: one bit, two bits, ternary digits */
QN_DECODER(q1_0);
QN_ENCODER(q1_0);
QN_DECODER(q2_0);
QN_ENCODER(q2_0);
QN_DECODER(tq1_0);
QN_ENCODER(tq1_0);
QN_DECODER(tq2_0);
QN_ENCODER(tq2_0);

/* k_23.c, k_45.c, k_68.c */
QN_DECODER(q2_k);
QN_ENCODER(q2_k);
QN_DECODER(q3_k);
QN_ENCODER(q3_k);
QN_DECODER(q4_k);
QN_ENCODER(q4_k);
QN_DECODER(q5_k);
QN_ENCODER(q5_k);
QN_DECODER(q6_k);
QN_ENCODER(q6_k);
QN_DECODER(q8_k);
QN_ENCODER(q8_k);
QN_FINDER(q8_k);

/* iq4.c */
QN_DECODER(iq4_nl);
QN_ENCODER(iq4_nl);
QN_DECODER(iq4_xs);
QN_ENCODER(iq4_xs);

/* fp4.c */
QN_DECODER(mxfp4);
QN_ENCODER(mxfp4);
QN_FINDER(mxfp4);
QN_DECODER(nvfp4);
QN_ENCODER(nvfp4);

/* lattice_23.c, lattice_1.c */
QN_DECODER(iq2_xxs);
QN_ENCODER(iq2_xxs);
QN_DECODER(iq2_xs);
QN_ENCODER(iq2_xs);
QN_DECODER(iq2_s);
QN_ENCODER(iq2_s);
QN_DECODER(iq3_xxs);
QN_ENCODER(iq3_xxs);
QN_DECODER(iq3_s);
QN_ENCODER(iq3_s);
QN_DECODER(iq1_s);
QN_ENCODER(iq1_s);
QN_DECODER(iq1_m);
QN_ENCODER(iq1_m);
QN_FINDER(iq1_m);

/* lattice.c: the tables of their encoders. */
void *qn__tables_iq1(void);
void *qn__tables_iq2_xxs(void);
void *qn__tables_iq2_xs(void);
void *qn__tables_iq2_s(void);
void *qn__tables_iq3_xxs(void);
void *qn__tables_iq3_s(void);

#endif
