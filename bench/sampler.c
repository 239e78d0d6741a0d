/*
 * sampler.c: microseconds of one pick from a row of logits, by sampler and size of vocabulary.
 *
 *   bench_sampler
 *
 * Rows: "peaked" as a model gives them (most of the weight on few tokens), "flat" (spread over
 * all). The best of many runs; filling the candidates from the row is part of each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <quern/sampler.h>

#include "base/clock.h"
#include "base/rng.h"

#define ROUNDS 200

static float normal(qn_rng *rng)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (double)qn__rng_next(rng) / 4294967296.0;
    }
    return (float)(sum - 6.0);
}

static double time_one(qn_sampler *s, qn_candidates *c, const float *row, size_t n)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; s && i < ROUNDS; i++) {
        uint64_t start = qn__clock_ns();
        qn_candidates_fill(c, row, n);
        qn_sampler_apply(s, c);
        uint64_t ns = qn__clock_ns() - start;
        best = ns < best ? ns : best;
    }
    qn_sampler_free(s);
    return (double)best / 1000.0;
}

static void print_rows(const char *name, size_t n, const float *row, qn_candidates *c)
{
    printf("%-7s %7zu  %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n", name, n,
           time_one(qn_sampler_greedy(NULL), c, row, n),
           time_one(qn_sampler_dist(1, NULL), c, row, n),
           time_one(qn_sampler_top_k(40, NULL), c, row, n),
           time_one(qn_sampler_top_p(0.95F, 0, NULL), c, row, n),
           time_one(qn_sampler_min_p(0.05F, 0, NULL), c, row, n),
           time_one(qn_sampler_from_options(NULL, NULL), c, row, n));
}

int main(void)
{
    static const size_t sizes[] = {32000, 128256, 262144};
    qn_rng rng;
    qn__rng_seed(&rng, 1);
    printf("row          n    greedy     dist    top-k    top-p    min-p  default   (us)\n");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        float *row = calloc(n, sizeof *row);
        qn_candidates *c = qn_candidates_make(n, NULL);
        if (!row || !c) {
            return 1;
        }
        for (int flat = 0; flat < 2; flat++) {
            for (size_t i = 0; i < n; i++) {
                row[i] = normal(&rng) * (flat ? 0.5F : 2.5F);
            }
            for (size_t i = 0; !flat && i < 20; i++) { /* a few that stand out */
                row[i * 997] = 14.0F - 0.5F * (float)i;
            }
            print_rows(flat ? "flat" : "peaked", n, row, c);
        }
        qn_candidates_free(c);
        free(row);
    }
    return 0;
}
