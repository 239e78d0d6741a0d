/*
 * attend.h: attention over a paged store: leaf functions, one table an instruction set, and the two
 * kernels that use them. The scalar functions are the definition; the others have their bits.
 *
 * For one query (a head of a token at position p) over the keys of its sequence that exist, are not
 * masked by the causal limit and not by the window (the *present* keys):
 *
 *  score    of key j: the dot product q . k_j by the dot rule (chunks of 256 of the head dimension,
 *           acc = fmaf(q[i], k[i], acc) ascending from +0, chunk sums joined pairwise), then
 *           s = dot * scale; with a cap s = cap * tanh(s / cap); with ALiBi
 *           s = fmaf(-slope, |p - p_j|, s)
 *  block    of 32 positions with at least one present key, ascending within a segment of 512
 *           positions, from m = -inf, l[32] = 0, a[dv] = 0:
 *             m' = max(m, present s);  c = exp(m - m');  w_j = exp(s_j - m')
 *             l[j] = fmaf(l[j], c, w_j), j = position mod 32, w_j = 0 for keys not present
 *             a[i] = a[i] * c, then a[i] = fmaf(w_j, v_j[i], a[i]) over present j ascending
 *  segment  L = the sum of l by the tree of lanes j + (j + 16), then + 8, + 4, + 2, + 1
 *  merge    of segments by the binary tree over absolute segment indices; a node with one child
 *           present is that child; of (m, L, a) left and right:
 *             M = max(m, m');  e = exp(m - M), e' = exp(m' - M)
 *             L = fmaf(L, e, L' * e'),  a[i] = fmaf(a[i], e, a'[i] * e')
 *  end      with a sink z: M = max(m, z), e = exp(m - M), L = fmaf(L, e, exp(z - M)), f = e / L;
 *           without f = 1 / L; the result is a[i] * f; with no present key at all it is zero.
 *
 * So a key that is not present takes no part, whatever its place holds, and nothing depends on how
 * tokens are cut into batches, on which blocks a sequence has, or on who computes which segment.
 */
#ifndef QUERN_DEVICE_CPU_ATTEND_H
#define QUERN_DEVICE_CPU_ATTEND_H

#include "device/cpu/cpu.h"

#define QN_ATTEND_SEGMENT 512 /* positions computed alone */

/* What becomes of the dot products of some queries with a block. */
typedef struct qn_attend_soft {
    float scale, soft_cap; /* soft_cap 0: none */
    const float *slopes;   /* ALiBi, one a query; NULL: none */
    uint32_t mask;         /* present keys, at least one */
    int64_t distance;      /* with slopes: p - position of lane 0 */
} qn_attend_soft;

/* Some queries times a block, or some rows of it: scores (b = K, n = 32) and weighted sums (b = V,
 * n = dv). Strides are in elements. */
typedef struct qn_attend_product {
    const float *a; /* [n_q] rows of n_k, lda apart */
    size_t lda;
    qn_type b_type; /* F32, F16, BF16, Q8_0 */
    const void *b;  /* [n_k] rows of n, ldb apart */
    size_t ldb;
    const uint16_t *scales; /* Q8_0: as they belong to the first row of b (kv_layout.h) */
    bool is_v;              /* Q8_0: a scale is for 32 columns of a row, not 32 rows of a column */
    const void *next;       /* where b will lie in a later call, to ask for it; or NULL */
    float *c;               /* [n_q] rows of n, ldc apart */
    size_t ldc;
    const float *factors; /* [n_q], what c is multiplied with first; NULL: nothing. Not if fresh */
    int64_t n_q, n_k, n;
    bool fresh; /* c starts as +0 */
} qn_attend_product;

typedef struct qn_cpu_attend_fns {
    /* A whole Q8_0 block of one head as F32: K [d][32], V [32][dv]. */
    void (*widen_q8_0)(const void *block, int64_t d, bool is_v, float *to);
    /* c[q][i] = the chain acc = fmaf(a[q][j], b[j][i], acc), j ascending, from c[q][i] times the
     * query's factor or, where fresh, from +0. */
    void (*accumulate)(const qn_attend_product *p);
    /* n queries and one block: s [n][32] holds dot products and gets the weights w (0
     * where the mask has no bit); updates m [n] and l [n][32]; leaves c in factors [n]. */
    void (*soften)(const qn_attend_soft *p, int64_t n, float *s, float *m, float *l,
                   float *factors);
    void (*merge)(float *a, float e, const float *b, float e2, int64_t n); /* fmaf(a, e, b * e2) */
} qn_cpu_attend_fns;

extern const qn_cpu_attend_fns qn__attend_scalar, qn__attend_avx2, qn__attend_avx512,
    qn__attend_neon;

extern const qn_cpu_kernel qn__cpu_kernel_kv_store, qn__cpu_kernel_attend;

#endif
