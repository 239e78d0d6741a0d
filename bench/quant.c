/*
 * quant.c: speed of the formats' decoders and encoders on one thread, in millions of values a
 * second, over rows of normal numbers. Usage: bench_quant [type …]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "quant/quant.h"

enum { ROW = 4096, ROWS = 16, MIN_NS = 200000000 };

static float normal(uint64_t *state)
{
    float sum = 0.0F;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005U + 1442695040888963407U;
        sum += (float)(*state >> 40) / 16777216.0F - 0.5F;
    }
    return sum;
}

typedef struct buffers {
    float *x, *y, *weights;
    unsigned char *blocks;
} buffers;

/* Runs the work on all rows until enough time has passed; millions of values a second. */
static double measure(const qn_quant *format, const buffers *b, size_t row_bytes,
                      const void *tables, bool encode, bool weighted)
{
    uint64_t start = qn__clock_ns();
    uint64_t spent;
    double values = 0.0;
    do {
        for (int r = 0; r < ROWS; r++) {
            unsigned char *row = b->blocks + (size_t)r * row_bytes;
            if (encode) {
                format->encode(b->x + r * ROW, row, ROW, weighted ? b->weights : NULL, tables);
            } else {
                format->decode(row, b->y, ROW);
            }
            values += ROW;
            spent = qn__clock_ns() - start;
            if (spent > MIN_NS) {
                break;
            }
        }
    } while (spent < MIN_NS);
    return values / (double)spent * 1e3;
}

int main(int argc, char **argv)
{
    buffers b = {.x = malloc(ROW * ROWS * sizeof(float)),
                 .y = malloc(ROW * sizeof(float)),
                 .weights = malloc(ROW * sizeof(float)),
                 .blocks = calloc(ROW * ROWS, sizeof(float))};
    if (!b.x || !b.y || !b.weights || !b.blocks) {
        return 1;
    }
    uint64_t state = 1;
    for (int i = 0; i < ROW * ROWS; i++) {
        b.x[i] = normal(&state);
    }
    for (int i = 0; i < ROW; i++) {
        float v = normal(&state);
        b.weights[i] = v * v;
    }
    printf("%-8s %10s %10s %10s  (million values a second)\n", "type", "decode", "encode",
           "weighted");
    for (int id = 0; id < QN_TYPE_COUNT; id++) {
        const qn_quant *format = qn__quant_get((qn_type)id);
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++) {
            qn_type type;
            wanted = wanted || (qn_type_from_name(argv[i], &type) && (int)type == id);
        }
        if (!format || !wanted) {
            continue;
        }
        size_t row_bytes;
        if (qn_type_row_bytes((qn_type)id, ROW, &row_bytes, NULL) != QN_OK) {
            return 1;
        }
        void *tables = format->make_tables ? format->make_tables() : NULL;
        bool plain_works = format->encode && !format->needs_weights;
        double plain = plain_works ? measure(format, &b, row_bytes, tables, true, false) : 0.0;
        double weighted = format->encode ? measure(format, &b, row_bytes, tables, true, true) : 0.0;
        double decode = measure(format, &b, row_bytes, tables, false, false);
        printf("%-8s %10.1f %10.2f %10.2f\n", qn_type_get_info(id)->name, decode, plain, weighted);
        free(tables);
    }
    free(b.x);
    free(b.y);
    free(b.weights);
    free(b.blocks);
    return 0;
}
