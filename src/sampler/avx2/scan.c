/* scan.c: the passes of sampler/scan.h on AVX2 with FMA. */
#define QN_SCAN_LANES 8
#define QN_SCAN_NAME  "avx2"
#define QN_SCAN_TABLE qn__scan_avx2
#include "sampler/scan_vector.h"
