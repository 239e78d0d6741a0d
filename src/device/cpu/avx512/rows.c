/* rows.c: row functions on AVX-512. */
#define QN_VECTOR_512 1
#define QN_ROWS_TABLE qn__cpu_rows_avx512
#include "device/cpu/vector_rows.h"
