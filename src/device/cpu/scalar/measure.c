/* measure.c: the peak of plain code: fused multiply-add one by one. */
#include "device/cpu/measure.h"

#include <math.h>

#define CHAINS 8

static void peak_f32(int64_t rounds)
{
    volatile float seed = 1.0F;
    float acc[CHAINS] = {0}, a = seed, b = seed;
    for (int64_t i = 0; i < rounds; i++) {
        for (int j = 0; j < CHAINS; j++) {
            acc[j] = fmaf(a, b, acc[j]);
        }
    }
    for (int j = 0; j < CHAINS; j++) {
        seed = acc[j];
    }
}

const qn_cpu_measure_fns qn__cpu_measure_scalar = {
    .peaks = {[QN_MEASURE_F32] = {.run = peak_f32, .operations = 2.0 * CHAINS}},
};
