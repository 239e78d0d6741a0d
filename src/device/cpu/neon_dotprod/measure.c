/* measure.c: peaks of NEON with dot products. */
#define QN_NEON_DOT      1
#define QN_MEASURE_TABLE qn__cpu_measure_dotprod
#include "device/cpu/neon/peaks.h"
