/* table.c: finds an architecture in the tables of rows (table_dense.c, table_experts.c). */
#include "model/arch/rows.h"

static const qn_arch *const tables[] = {qn__dense_archs, qn__expert_archs};

enum { N_TABLES = sizeof(tables) / sizeof(tables[0]) };

const qn_arch *qn__arch_find(const char *name, size_t size)
{
    for (size_t i = 0; i < N_TABLES; i++) {
        for (const qn_arch *a = tables[i]; a->name; a++) {
            if (strlen(a->name) == size && memcmp(a->name, name, size) == 0) {
                return a;
            }
        }
    }
    return NULL;
}

const char *qn_model_architecture_at(int32_t index)
{
    for (size_t i = 0; index >= 0 && i < N_TABLES; i++) {
        for (const qn_arch *a = tables[i]; a->name; a++) {
            if (index-- == 0) {
                return a->name;
            }
        }
    }
    return NULL;
}
