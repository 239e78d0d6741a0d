/* matmul_blocks_dotprod.c: block formats for processors with dot products. */
#define QN_NEON_DOT       1
#define QN_NEON_MUL(name) qn__dotprod_mul_##name
#include "device/cpu/neon/matmul_blocks.h"
