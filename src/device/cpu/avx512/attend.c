/* attend.c: leaf functions of attention on AVX-512. */
#define QN_VECTOR_512   1
#define QN_ATTEND_TABLE qn__attend_avx512
#include "device/cpu/vector_attend.h"
