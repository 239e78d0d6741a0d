/*
 * fuzz_quant.c: any bytes as blocks of any format, and any floats into any encoder. First byte: the
 * format; the rest: blocks to decode, and the same bytes as values and weights to encode. Nothing
 * may read or write outside.
 */
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

enum { MAX_VALUES = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const qn_type type = (qn_type)(data[0] % QN_TYPE_COUNT);
    const qn_type_info *info = qn_type_get_info(type);
    const qn_quant *format = qn__quant_get(type);
    data++;
    size--;
    if (!format) {
        return 0;
    }
    size_t count = size / info->block_bytes;
    count = count < MAX_VALUES / info->block_values ? count : MAX_VALUES / info->block_values;
    size_t bytes = count * info->block_bytes;
    size_t values = count * info->block_values;
    /* Blocks of exactly the right size, so that the sanitizer sees every byte too many. */
    uint8_t *blocks = malloc(bytes + !bytes);
    float *y = malloc((values + !values) * sizeof *y);
    if (!blocks || !y) {
        abort();
    }
    memcpy(blocks, data, bytes);
    format->decode(blocks, y, (int64_t)values);
    int64_t bad = qn__quant_find_invalid(type, blocks, (int64_t)count);
    if (bad < -1 || bad >= (int64_t)count) {
        abort();
    }

    size_t floats = size / sizeof *y < values ? size / sizeof *y : values;
    floats = floats / info->block_values * info->block_values;
    if (format->encode && floats > 0) {
        static void *tables[QN_TYPE_COUNT];
        if (format->make_tables && !tables[type]) {
            tables[type] = format->make_tables();
        }
        memcpy(y, data, floats * sizeof *y);
        format->encode(y, blocks, (int64_t)floats, y, tables[type]);
        if (!format->needs_weights) {
            format->encode(y, blocks, (int64_t)floats, NULL, tables[type]);
        }
        format->decode(blocks, y, (int64_t)floats);
    }
    free(blocks);
    free(y);
    return 0;
}
