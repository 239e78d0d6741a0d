/* isa.c: the instruction sets of this build, worst first, and which of them the machine has. */
#include <string.h>

#include "device/cpu/attend.h"
#include "device/cpu/matmul.h"
#include "device/cpu/measure.h"
#include "device/cpu/rows.h"

static const qn_cpu_isa scalar = {
    .name = "scalar",
    .rows = &qn__cpu_rows_scalar,
    .matmul = &qn__matmul_scalar,
    .attend = &qn__attend_scalar,
    .measure = &qn__cpu_measure_scalar,
};

#if defined(__x86_64__)
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
#endif

static bool always(void)
{
    return true;
}

static const struct {
    const qn_cpu_isa *isa;
    bool (*usable)(void);
} isas[] = {
    {&scalar, always},
#if defined(__x86_64__)
    {&avx2, has_avx2},
    {&avx512, has_avx512},
#endif
};

const qn_cpu_isa *qn__cpu_isa_find(const char *name)
{
    const qn_cpu_isa *best = NULL;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if ((!name || strcmp(name, isas[i].isa->name) == 0) && isas[i].usable()) {
            best = isas[i].isa;
        }
    }
    return best;
}

const qn_cpu_isa *qn__cpu_isa_at(int32_t i)
{
    int32_t seen = 0;
    for (size_t k = 0; k < sizeof isas / sizeof isas[0]; k++) {
        if (isas[k].usable() && seen++ == i) {
            return isas[k].isa;
        }
    }
    return NULL;
}
