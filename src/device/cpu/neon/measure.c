/* measure.c: peaks of NEON. */
#define QN_NEON_DOT      0
#define QN_MEASURE_TABLE qn__cpu_measure_neon
#include "device/cpu/neon/peaks.h"
