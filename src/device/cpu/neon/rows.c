/* rows.c: row functions on NEON. */
#define QN_VECTOR_NEON 1
#define QN_ROWS_TABLE  qn__cpu_rows_neon
#include "device/cpu/vector_rows.h"
