/* isa.c: the instruction sets of this machine, worst first: plain C, then those of its family. */
#include "device/cpu/isa.h"

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

const qn_cpu_isa *qn__cpu_isa_at(int32_t i)
{
    const qn_cpu_isa_row *row;
    int32_t seen = 1;
    if (i == 0) {
        return &scalar;
    }
    for (size_t k = 0; (row = qn__cpu_isa_row(k)); k++) {
        if (row->usable() && seen++ == i) {
            return row->isa;
        }
    }
    return NULL;
}

const qn_cpu_isa *qn__cpu_isa_find(const char *name)
{
    const qn_cpu_isa *isa, *best = NULL;
    for (int32_t i = 0; (isa = qn__cpu_isa_at(i)); i++) {
        if (!name || strcmp(name, isa->name) == 0) {
            best = isa;
        }
    }
    return best;
}
