/* matmul_dotprod.c: the table of matrix products with dot products. Quantization and float weights
 * are those of NEON. */
#include "device/cpu/neon/matmul_neon.h"

#define QN_FLOAT_ROW(name, type) [type] = qn__neon_mul_##name,
#define QN_BLOCK_ROW(name, type) [type] = qn__dotprod_mul_##name,
const qn_cpu_matmul_fns qn__matmul_dotprod = {
    .quantize = qn__neon_quantize,
    .mul = {QN_MATMUL_FLOAT_TYPES(QN_FLOAT_ROW) QN_MATMUL_BLOCK_TYPES(QN_BLOCK_ROW)},
};
