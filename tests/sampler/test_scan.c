/* The passes of sampler/scan.h, at every number of lanes, against loops over single candidates. */
#include "support/support.h"

#include <float.h>
#include <math.h>

#include "sampler/hostile.h"
#include "sampler/sampler.h"
#include "sampler/scan.h"

/* The table of 16 lanes, in whatever vectors the tests are compiled for. Its functions are called
 * here only, so it does not matter how vectors would be handed to others. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define QN_SCAN_LANES 16
#define QN_SCAN_NAME  "16 lanes"
#define QN_SCAN_TABLE scan_16
extern const qn_scan scan_16;
#include "sampler/scan_vector.h"

enum { N_LARGE = 2500 };

static float raw[N_LARGE], logits[N_LARGE], got_floats[N_LARGE];
static int32_t ids[N_LARGE];
static uint32_t weights[N_LARGE], got_weights[N_LARGE];

static float plain_max(const float *x, size_t n)
{
    float best = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

static void check_clean(const qn_scan *scan, size_t n)
{
    memset(got_floats, 0x7f, sizeof got_floats);
    scan->clean(raw, n, got_floats, ids);
    for (size_t i = 0; i < n; i++) {
        float want = isnan(raw[i]) ? -INFINITY : raw[i] > FLT_MAX ? FLT_MAX : raw[i];
        assert_int_equal(qn__float_bits(got_floats[i]), qn__float_bits(want));
        assert_int_equal(ids[i], i);
        logits[i] = want;
    }
    assert_true(n == N_LARGE || qn__float_bits(got_floats[n]) == 0x7f7f7f7f); /* not past the end */
}

static void check_maxima(const qn_scan *scan, size_t n)
{
    assert_true(scan->max(logits, n) == plain_max(logits, n));
    scan->peaks(logits, n, got_floats);
    for (size_t first = 0; first < n; first += QN_SCAN_BLOCK) {
        size_t size = n - first < QN_SCAN_BLOCK ? n - first : QN_SCAN_BLOCK;
        assert_true(got_floats[first / QN_SCAN_BLOCK] == plain_max(logits + first, size));
    }
}

/* Of logits that are not clean. */
static void check_raw_peaks(const qn_scan *scan, size_t n)
{
    scan->peaks(raw, n, got_floats);
    for (size_t first = 0; first < n; first += QN_SCAN_BLOCK) {
        size_t size = n - first < QN_SCAN_BLOCK ? n - first : QN_SCAN_BLOCK;
        assert_true(got_floats[first / QN_SCAN_BLOCK] == plain_max(raw + first, size));
    }
}

static void check_weights(const qn_scan *scan, size_t n, float best, qn_test_random *r)
{
    uint64_t sum = 0, distances_sum = 0;
    for (size_t i = 0; i < n; i++) {
        weights[i] = qn__exp_weight(logits[i] - best);
        sum += weights[i];
        distances_sum += (uint64_t)weights[i] * qn__row_distance(best, logits[i]);
    }
    memset(got_weights, 0x7f, sizeof got_weights);
    assert_true(scan->weigh(logits, n, best, got_weights) == sum);
    assert_memory_equal(got_weights, weights, n * sizeof *weights);
    assert_true(n == N_LARGE || got_weights[n] == 0x7f7f7f7f);
    assert_true(scan->sum_distances(logits, weights, n, best) == distances_sum);
    const uint64_t targets[] = {0, sum / 3, sum ? sum - 1 : 0, sum, qn_test_bits(r) % (sum + 1)};
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        uint64_t before = 0;
        size_t at = 0;
        while (at < n && before + weights[at] <= targets[t]) {
            before += weights[at++];
        }
        assert_int_equal(scan->reach(weights, n, targets[t]), at);
    }
}

static void check_sums(const qn_scan *scan, size_t n, float best, float least)
{
    size_t number = 0, got_number;
    uint64_t sum = 0;
    qn_scan_spread want = {0}, got;
    for (size_t i = 0; i < n; i++) {
        number += logits[i] >= least;
        sum += logits[i] >= least ? weights[i] : 0;
        if (logits[i] > -INFINITY) {
            uint64_t d = qn__row_distance(best, logits[i]);
            want.count++;
            want.sum += d;
            want.squares += d * d;
        }
    }
    assert_int_equal(scan->count(logits, n, least), number);
    assert_true(scan->sum_from(logits, weights, n, least, &got_number) == sum);
    assert_int_equal(got_number, number);
    scan->spread(logits, n, best, &got);
    assert_true(got.count == want.count && got.sum == want.sum && got.squares == want.squares);
}

static bool has_bit(const uint32_t *bits, size_t words, int32_t id)
{
    return (size_t)id / 32 < words && (bits[id / 32] >> id % 32 & 1) != 0;
}

/* Ids in order, and with a few that are not; bits all alike, mixed, and too few. */
static void check_mask(const qn_scan *scan, size_t n, qn_test_random *r)
{
    uint32_t bits[(N_LARGE + 31) / 32];
    for (int round = 0; round < 6; round++) {
        for (size_t w = 0; w < sizeof bits / sizeof *bits; w++) {
            uint32_t kind = qn_test_bits(r) % 3;
            bits[w] = kind == 0   ? 0
                      : kind == 1 ? UINT32_MAX
                                  : qn_test_bits(r) ^ qn_test_bits(r) << 9;
        }
        size_t words = round == 5 ? n / 64 : (n + 31) / 32;
        for (size_t i = 0; i < n; i++) {
            ids[i] = (int32_t)i;
            got_floats[i] = logits[i];
        }
        for (size_t k = 0; n > 0 && round >= 3 && k < 5; k++) {
            size_t a = qn_test_bits(r) % n, b = qn_test_bits(r) % n;
            int32_t swap = ids[a];
            ids[a] = ids[b];
            ids[b] = swap;
        }
        scan->mask(got_floats, ids, n, bits, words);
        for (size_t i = 0; i < n; i++) {
            float want = has_bit(bits, words, ids[i]) ? logits[i] : -INFINITY;
            assert_int_equal(qn__float_bits(got_floats[i]), qn__float_bits(want));
        }
    }
}

static void check_table(const qn_scan *scan)
{
    static const size_t sizes[] = {0, 1, 3, 4, 7, 15, 16, 17, 63, 64, 65, 127, 200, 1003, N_LARGE};
    qn_test_random r = {5};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        for (int kind = 0; kind < N_ROWS; kind++) {
            make_row(kind, raw, n, &r);
            check_clean(scan, n);
            check_maxima(scan, n);
            check_mask(scan, n, &r);
            check_raw_peaks(scan, n);
            float best = plain_max(logits, n);
            if (best == -INFINITY) {
                assert_int_equal(scan->count(logits, n, -INFINITY), n);
                continue;
            }
            check_weights(scan, n, best, &r);
            check_sums(scan, n, best, best - 3.0F);
            check_sums(scan, n, best, best);
            check_sums(scan, n, best, -INFINITY);
        }
    }
}

static void test_passes(void **state)
{
    (void)state;
    check_table(&qn__scan_128);
    check_table(&scan_16);
    check_table(qn__scan());
}

/* Every few differences from the best, through all exponents and past the end. */
static void test_weights(void **state)
{
    (void)state;
    const qn_scan *scans[] = {qn__scan(), &scan_16};
    size_t n = 0;
    for (uint32_t bits = qn__float_bits(-0.0F); bits <= qn__float_bits(-23.0F); bits += 2503) {
        logits[n++] = qn__bits_float(bits);
        if (n < N_LARGE && bits + 2503 <= qn__float_bits(-23.0F)) {
            continue;
        }
        for (size_t s = 0; s < 2; s++) {
            scans[s]->weigh(logits, n, 0.0F, got_weights);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(got_weights[i], qn__exp_weight(logits[i]));
            }
        }
        n = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
