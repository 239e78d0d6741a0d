/*
 * measure.h: how fast the machine itself is: loops that do nothing but read memory, or nothing but
 * one kind of multiplication.
 */
#ifndef QUERN_DEVICE_CPU_MEASURE_H
#define QUERN_DEVICE_CPU_MEASURE_H

#include "device/cpu/cpu.h"
#include "device/cpu/pool.h"

/* A loop that keeps the multipliers busy, and its operations a round. run NULL: the instruction set
 * has none. usable NULL: always. */
typedef struct qn_cpu_peak {
    void (*run)(int64_t rounds);
    double operations;
    bool (*usable)(void);
} qn_cpu_peak;

typedef struct qn_cpu_measure_fns {
    qn_cpu_peak peaks[QN_MEASURE_COUNT]; /* none for QN_MEASURE_READ */
} qn_cpu_measure_fns;

extern const qn_cpu_measure_fns qn__cpu_measure_scalar, qn__cpu_measure_avx2,
    qn__cpu_measure_avx512, qn__cpu_measure_neon, qn__cpu_measure_dotprod;

qn_status qn__cpu_measure(qn_pool *pool, const qn_cpu_isa *isa, qn_measure what, int32_t n_threads,
                          double seconds, double *out, qn_error *err);

/* Keeps the compiler from knowing what is in a register; no instruction. */
#if defined(__aarch64__)
#define QN_OPAQUE(x) __asm__ volatile("" : "+w"(x))
#else
#define QN_OPAQUE(x) __asm__ volatile("" : "+x"(x))
#endif

#endif
