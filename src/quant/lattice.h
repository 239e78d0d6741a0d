/*
 * lattice.h: code books of the lattice formats, and how an encoder finds a point near its values.
 *
 * A point is a row of digits; what a digit stands for is a matter of the format. Books of 8 values
 * have digits 0..2 in two bits, books of 4 values digits 0..7 in three bits.
 */
#ifndef QUERN_QUANT_LATTICE_H
#define QUERN_QUANT_LATTICE_H

#include <quern/base.h>

extern const uint16_t qn__grid_iq2_xxs[256];
extern const uint16_t qn__grid_iq2_xs[512];
extern const uint16_t qn__grid_iq2_s[1024];
extern const uint16_t qn__grid_iq1[2048];
extern const uint16_t qn__grid_iq3_xxs[256];
extern const uint16_t qn__grid_iq3_s[512];

/* Digit j of a point. */
static inline int qn__digit(unsigned point, int bits, int j)
{
    return (int)(point >> (bits * j)) & ((1 << bits) - 1);
}

/*
 * What an encoder asks of a book: for each pattern of digits the index of the point that it is, or
 * the points around it. One block, freed with free().
 */
typedef struct qn_lattice {
    const uint16_t *points;
    int bits, group;      /* bits a digit, digits a point */
    int32_t entry[65536]; /* >= 0: the point; < 0: neighbours start at list[-entry - 1] */
    uint16_t list[];      /* lists of point numbers, each behind its length */
} qn_lattice;

/* Packs digits into a pattern. */
static inline unsigned qn__lattice_pattern(const qn_lattice *lattice, const uint8_t *digit)
{
    unsigned pattern = 0;
    for (int j = 0; j < lattice->group; j++) {
        pattern |= (unsigned)digit[j] << (lattice->bits * j);
    }
    return pattern;
}

/*
 * The point for a group of values x: the digits themselves where they are a point, else the
 * neighbour with the least sum of w (scale * value[digit] - x)^2, whose digits replace the given
 * ones. Returns its number; *on_grid tells.
 */
int qn__lattice_nearest(const qn_lattice *lattice, const float *x, const float *w, float scale,
                        const float *value, uint8_t *digit, bool *on_grid);

#endif
