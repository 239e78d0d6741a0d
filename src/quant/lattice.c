/* lattice.c: see lattice.h. */
#include "quant/lattice.h"

#include <stdlib.h>

#include "base/mem.h"
#include "quant/formats.h"

enum { MAX_POINTS = 2048, PATTERNS = 65536, HALVES = 256, DISTANCES = 8 * 14 * 14 + 1 };

/* Squared distances of half patterns, digits counted as odd numbers: a whole distance is the sum of
 * two of these. */
typedef struct half_distances {
    int shift; /* bits of a half */
    uint16_t of[HALVES][HALVES];
} half_distances;

static void fill_distances(half_distances *table, int bits, int group)
{
    table->shift = bits * group / 2;
    for (unsigned a = 0; a < 1U << table->shift; a++) {
        for (unsigned b = 0; b < 1U << table->shift; b++) {
            int sum = 0;
            for (int j = 0; j < group / 2; j++) {
                int d = 2 * (qn__digit(a, bits, j) - qn__digit(b, bits, j));
                sum += d * d;
            }
            table->of[a][b] = (uint16_t)sum;
        }
    }
}

static uint16_t distance(const half_distances *table, unsigned a, unsigned b)
{
    unsigned low = (1U << table->shift) - 1;
    return (uint16_t)(table->of[a & low][b & low] +
                      table->of[a >> table->shift][b >> table->shift]);
}

/* Whether all digits of a pattern are ones that values can have. */
static bool possible(unsigned pattern, int bits, int group)
{
    for (int j = 0; bits == 2 && j < group; j++) {
        if (qn__digit(pattern, bits, j) == 3) {
            return false;
        }
    }
    return pattern < 1U << (bits * group);
}

/* Appends the points at the `rings` smallest different distances from a pattern, nearest first and
 * then by number, behind their count. */
static bool add_neighbours(qn_buf *lists, const half_distances *table, unsigned pattern,
                           const uint16_t *points, int n_points, int rings)
{
    uint16_t at[MAX_POINTS];
    bool present[DISTANCES] = {false};
    uint16_t found[MAX_POINTS + 1];
    uint16_t count = 0;
    for (int p = 0; p < n_points; p++) {
        at[p] = distance(table, pattern, points[p]);
        present[at[p]] = true;
    }
    for (int d = 0; d < DISTANCES && rings > 0; d++) {
        if (!present[d]) {
            continue;
        }
        rings--;
        for (int p = 0; p < n_points; p++) {
            if (at[p] == d) {
                found[++count] = (uint16_t)p;
            }
        }
    }
    found[0] = count;
    return qn__buf_add(lists, found, ((size_t)count + 1) * sizeof found[0]);
}

static void *make_lattice(const uint16_t *points, int n_points, int bits, int group, int rings)
{
    qn_buf lists = {0};
    qn_lattice *lattice = NULL;
    int32_t *entry = qn__calloc(PATTERNS, sizeof *entry);
    half_distances *table = qn__calloc(1, sizeof *table);
    if (!entry || !table) {
        goto done;
    }
    fill_distances(table, bits, group);
    int next_point = 0;
    for (unsigned pattern = 0; pattern < PATTERNS; pattern++) {
        if (next_point < n_points && points[next_point] == pattern) {
            entry[pattern] = next_point++;
        } else if (possible(pattern, bits, group)) {
            entry[pattern] = -(int32_t)(lists.size / sizeof(uint16_t)) - 1;
            if (!add_neighbours(&lists, table, pattern, points, n_points, rings)) {
                goto done;
            }
        }
    }
    lattice = malloc(sizeof *lattice + lists.size);
    if (lattice) {
        lattice->points = points;
        lattice->bits = bits;
        lattice->group = group;
        memcpy(lattice->entry, entry, PATTERNS * sizeof *entry);
        memcpy(lattice->list, lists.data, lists.size);
    }
done:
    free(table);
    free(entry);
    qn__buf_free(&lists);
    return lattice;
}

void *qn__tables_iq1(void)
{
    return make_lattice(qn__grid_iq1, 2048, 2, 8, 3);
}

void *qn__tables_iq2_xxs(void)
{
    return make_lattice(qn__grid_iq2_xxs, 256, 2, 8, 2);
}

void *qn__tables_iq2_xs(void)
{
    return make_lattice(qn__grid_iq2_xs, 512, 2, 8, 2);
}

void *qn__tables_iq2_s(void)
{
    return make_lattice(qn__grid_iq2_s, 1024, 2, 8, 1);
}

void *qn__tables_iq3_xxs(void)
{
    return make_lattice(qn__grid_iq3_xxs, 256, 3, 4, 2);
}

void *qn__tables_iq3_s(void)
{
    return make_lattice(qn__grid_iq3_s, 512, 3, 4, 3);
}

int qn__lattice_nearest(const qn_lattice *lattice, const float *x, const float *w, float scale,
                        const float *value, uint8_t *digit, bool *on_grid)
{
    int32_t entry = lattice->entry[qn__lattice_pattern(lattice, digit)];
    *on_grid = entry >= 0;
    if (entry >= 0) {
        return entry;
    }
    const uint16_t *list = lattice->list + (-entry - 1);
    int best = list[1];
    float least = 0.0F;
    for (int i = 1; i <= list[0]; i++) {
        unsigned point = lattice->points[list[i]];
        float sum = 0.0F;
        for (int j = 0; j < lattice->group; j++) {
            float e = scale * value[qn__digit(point, lattice->bits, j)] - x[j];
            sum += w[j] * e * e;
        }
        if (i == 1 || sum < least) {
            least = sum;
            best = list[i];
        }
    }
    for (int j = 0; j < lattice->group; j++) {
        digit[j] = (uint8_t)qn__digit(lattice->points[best], lattice->bits, j);
    }
    return best;
}
