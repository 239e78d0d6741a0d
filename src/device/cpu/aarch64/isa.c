/* isa.c: the instruction sets of AArch64. Every such processor has NEON; the dot products of
 * ARMv8.2 are told by the kernel (HWCAP). */
#include "device/cpu/isa.h"

#include <sys/auxv.h>

#include "device/cpu/attend.h"
#include "device/cpu/matmul.h"
#include "device/cpu/measure.h"
#include "device/cpu/rows.h"

static const qn_cpu_isa neon = {
    .name = "neon",
    .rows = &qn__cpu_rows_neon,
    .matmul = &qn__matmul_neon,
    .attend = &qn__attend_neon,
    .measure = &qn__cpu_measure_neon,
};

static const qn_cpu_isa dotprod = {
    .name = "neon-dotprod",
    .rows = &qn__cpu_rows_neon,
    .matmul = &qn__matmul_dotprod,
    .attend = &qn__attend_neon,
    .measure = &qn__cpu_measure_dotprod,
};

static bool always(void)
{
    return true;
}

static bool has_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static const qn_cpu_isa_row rows[] = {{&neon, always}, {&dotprod, has_dotprod}};

const qn_cpu_isa_row *qn__cpu_isa_row(size_t i)
{
    return i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
