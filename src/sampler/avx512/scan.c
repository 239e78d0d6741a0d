/* scan.c: the passes of sampler/scan.h on AVX-512. */
#define QN_SCAN_LANES 16
#define QN_SCAN_NAME  "avx512"
#define QN_SCAN_TABLE qn__scan_avx512
#include "sampler/scan_vector.h"
