/* attend.c: leaf functions of attention on AVX2 with FMA and F16C. */
#define QN_VECTOR_512   0
#define QN_ATTEND_TABLE qn__attend_avx2
#include "device/cpu/vector_attend.h"
