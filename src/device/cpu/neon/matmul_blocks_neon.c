/* matmul_blocks_neon.c: block formats for every AArch64 processor. */
#define QN_NEON_DOT       0
#define QN_NEON_MUL(name) qn__neon_mul_##name
#include "device/cpu/neon/matmul_blocks.h"
