/* matmul_avx512.c: the table of matrix products for AVX-512 with VNNI. Quantization is too small a
 * part to have a form of its own: it is that of AVX2, which every such machine has. */
#include "device/cpu/avx512/matmul_avx512.h"
#include "device/cpu/avx2/matmul_avx2.h"

#define QN_ROW(name, type) [type] = qn__avx512_mul_##name,
const qn_cpu_matmul_fns qn__matmul_avx512 = {
    .quantize = qn__avx2_quantize,
    .mul = {QN_MATMUL_TYPES(QN_ROW)},
};
