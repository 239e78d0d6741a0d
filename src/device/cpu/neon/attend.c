/* attend.c: leaf functions of attention on NEON. */
#define QN_VECTOR_NEON  1
#define QN_ATTEND_TABLE qn__attend_neon
#include "device/cpu/vector_attend.h"
