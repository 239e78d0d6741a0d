/* isa.h: the instruction sets beyond plain C. The rows are in a file a family of processors
 * (x86/isa.c, aarch64/isa.c, other/isa.c), of which a build has one. */
#ifndef QUERN_DEVICE_CPU_ISA_H
#define QUERN_DEVICE_CPU_ISA_H

#include "device/cpu/cpu.h"

typedef struct qn_cpu_isa_row {
    const qn_cpu_isa *isa;
    bool (*usable)(void); /* whether this machine has it */
} qn_cpu_isa_row;

/* Row i of the family, worst first; NULL behind the last. */
const qn_cpu_isa_row *qn__cpu_isa_row(size_t i);

#endif
