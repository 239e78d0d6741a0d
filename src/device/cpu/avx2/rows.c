/* rows.c: row functions on AVX2 with FMA. */
#define QN_VECTOR_512 0
#define QN_ROWS_TABLE qn__cpu_rows_avx2
#include "device/cpu/vector_rows.h"
