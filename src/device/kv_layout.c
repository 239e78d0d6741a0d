/* kv_layout.c: see kv_layout.h. One position at a time; the definition of how cells are stored. */
#include "device/kv_layout.h"

#include "base/fmath.h"
#include "base/mem.h"

#define SIDE    QN_KV_BLOCK /* positions of a block */
#define GROUP   32          /* values under one Q8_0 scale */
#define F16_MAX 65504.0F

bool qn__kv_type_supported(qn_type type, int64_t d)
{
    switch (type) {
    case QN_TYPE_F32:
    case QN_TYPE_F16:
    case QN_TYPE_BF16:
        return d > 0;
    case QN_TYPE_Q8_0:
        return d > 0 && d % GROUP == 0;
    default:
        return false;
    }
}

size_t qn__kv_block_bytes(qn_type type, int64_t d)
{
    size_t row, bytes;
    if (!qn__kv_type_supported(type, d) || qn_type_row_bytes(type, d, &row, NULL) != QN_OK ||
        !qn__mul_size(row, SIDE, &bytes)) {
        return 0;
    }
    return bytes;
}

/* Element i of a row is at base + i * step; the Q8_0 scale of group i at scales + i * scale_step.
 */
typedef struct cell {
    size_t base, step;
    size_t scales, scale_step;
} cell;

static cell cell_k(int place)
{
    size_t at = (size_t)place;
    return (cell){at, SIDE, at, SIDE};
}

static cell cell_v(int64_t dv, int place)
{
    size_t at = (size_t)place, n = (size_t)dv;
    return (cell){at * n, 1, at * (n / GROUP), 1};
}

static uint16_t *scales_of(void *block, int64_t d)
{
    return (uint16_t *)(void *)((uint8_t *)block + (size_t)d * SIDE);
}

/* Round to nearest even by the adder; |x| < 2^22. */
static float round_even(float x)
{
    return (x + 12582912.0F) - 12582912.0F;
}

static void put_q8_0(void *block, int64_t d, cell at, const float *row)
{
    int8_t *levels = block;
    uint16_t *scales = scales_of(block, d);
    for (int64_t g = 0; g < d / GROUP; g++) {
        const float *x = row + g * GROUP;
        float largest = 0.0F;
        for (int i = 0; i < GROUP; i++) {
            float magnitude = x[i] < 0.0F ? -x[i] : x[i];
            largest = magnitude > largest ? magnitude : largest;
        }
        float scale = largest / 127.0F;
        uint16_t half = qn__f32_to_f16(scale < F16_MAX ? scale : F16_MAX);
        scale = qn__f16_to_f32(half);
        scales[at.scales + (size_t)g * at.scale_step] = half;
        for (int i = 0; i < GROUP; i++) {
            float level = scale > 0.0F ? x[i] / scale : 0.0F;
            level = level > 127.0F ? 127.0F : level < -127.0F ? -127.0F : level;
            level = level == level ? level : 0.0F; /* a NaN has no level */
            levels[at.base + (size_t)(g * GROUP + i) * at.step] = (int8_t)round_even(level);
        }
    }
}

static void put(qn_type type, void *block, int64_t d, cell at, const float *row)
{
    uint16_t *half = block;
    float *full = block;
    switch (type) {
    case QN_TYPE_F16:
        for (int64_t i = 0; i < d; i++) {
            half[at.base + (size_t)i * at.step] = qn__f32_to_f16(row[i]);
        }
        break;
    case QN_TYPE_BF16:
        for (int64_t i = 0; i < d; i++) {
            half[at.base + (size_t)i * at.step] = qn__f32_to_bf16(row[i]);
        }
        break;
    case QN_TYPE_Q8_0:
        put_q8_0(block, d, at, row);
        break;
    default:
        for (int64_t i = 0; i < d; i++) {
            full[at.base + (size_t)i * at.step] = row[i];
        }
        break;
    }
}

static void get(qn_type type, const void *block, int64_t d, cell at, float *row)
{
    const uint16_t *half = block;
    const float *full = block;
    const int8_t *levels = block;
    const uint16_t *scales = (const uint16_t *)(const void *)(levels + (size_t)d * SIDE);
    for (int64_t i = 0; i < d; i++) {
        size_t from = at.base + (size_t)i * at.step;
        switch (type) {
        case QN_TYPE_F16:
            row[i] = qn__f16_to_f32(half[from]);
            break;
        case QN_TYPE_BF16:
            row[i] = qn__bf16_to_f32(half[from]);
            break;
        case QN_TYPE_Q8_0:
            row[i] = (float)levels[from] *
                     qn__f16_to_f32(scales[at.scales + (size_t)(i / GROUP) * at.scale_step]);
            break;
        default:
            row[i] = full[from];
            break;
        }
    }
}

void qn__kv_put_k(qn_type type, void *block, int64_t d, int place, const float *row)
{
    put(type, block, d, cell_k(place), row);
}

void qn__kv_get_k(qn_type type, const void *block, int64_t d, int place, float *row)
{
    get(type, block, d, cell_k(place), row);
}

void qn__kv_put_v(qn_type type, void *block, int64_t dv, int place, const float *row)
{
    put(type, block, dv, cell_v(dv, place), row);
}

void qn__kv_get_v(qn_type type, const void *block, int64_t dv, int place, float *row)
{
    get(type, block, dv, cell_v(dv, place), row);
}

/* Elements of `size` bytes; n of them. */
static void move(void *to, const void *from, size_t size, size_t n, size_t to_base,
                 size_t from_base, size_t step)
{
    for (size_t i = 0; i < n; i++) {
        memcpy((uint8_t *)to + (to_base + i * step) * size,
               (const uint8_t *)from + (from_base + i * step) * size, size);
    }
}

static void move_cell(qn_type type, void *to, cell to_at, const void *from, cell from_at, int64_t d)
{
    size_t n = (size_t)d;
    size_t size = type == QN_TYPE_F32 ? 4 : type == QN_TYPE_Q8_0 ? 1 : 2;
    move(to, from, size, n, to_at.base, from_at.base, to_at.step);
    if (type == QN_TYPE_Q8_0) {
        move((uint8_t *)to + n * SIDE, (const uint8_t *)from + n * SIDE, 2, n / GROUP, to_at.scales,
             from_at.scales, to_at.scale_step);
    }
}

void qn__kv_move_k(qn_type type, void *to, int to_place, const void *from, int from_place,
                   int64_t d)
{
    move_cell(type, to, cell_k(to_place), from, cell_k(from_place), d);
}

void qn__kv_move_v(qn_type type, void *to, int to_place, const void *from, int from_place,
                   int64_t dv)
{
    move_cell(type, to, cell_v(dv, to_place), from, cell_v(dv, from_place), dv);
}
