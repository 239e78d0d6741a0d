/* isa.c: the instruction sets of x86-64. */
#include "device/cpu/isa.h"

#include "device/cpu/attend.h"
#include "device/cpu/matmul.h"
#include "device/cpu/measure.h"
#include "device/cpu/rows.h"

static const qn_cpu_isa avx2 = {
    .name = "avx2",
    .rows = &qn__cpu_rows_avx2,
    .matmul = &qn__matmul_avx2,
    .attend = &qn__attend_avx2,
    .measure = &qn__cpu_measure_avx2,
};

static const qn_cpu_isa avx512 = {
    .name = "avx512",
    .rows = &qn__cpu_rows_avx512,
    .matmul = &qn__matmul_avx512,
    .attend = &qn__attend_avx512,
    .measure = &qn__cpu_measure_avx512,
};

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
#if defined(QN_CPU_EMULATE_AVX512) /* tests/support/avx512_emulation.h */
    return has_avx2();
#else
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
#endif
}

static const qn_cpu_isa_row rows[] = {{&avx2, has_avx2}, {&avx512, has_avx512}};

const qn_cpu_isa_row *qn__cpu_isa_row(size_t i)
{
    return i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
