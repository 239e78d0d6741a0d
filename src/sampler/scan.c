/* scan.c: vectors of 16 bytes, which every machine has; and which table is the fastest. */
#define QN_SCAN_LANES 4
#define QN_SCAN_NAME  "128"
#define QN_SCAN_TABLE qn__scan_128
#include "sampler/scan_vector.h"

const qn_scan *qn__scan(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
        return &qn__scan_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &qn__scan_avx2;
    }
#endif
    return &qn__scan_128;
}
