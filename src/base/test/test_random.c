#include "base/random.h"
#include "base/sample_order.h"

#include "base/test/harness.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* From Random123's kat_vectors. */
static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        uint32_t got[4];
        tm_random_block(rows[i].counter, rows[i].key, got);
        assert_row(memcmp(got, rows[i].want, sizeof got) == 0, "vector %zu: %08x %08x %08x %08x", i, got[0], got[1],
                   got[2], got[3]);
    }
}

static void test_a_sequence_is_the_blocks_in_order(void **state)
{
    (void)state;
    struct tm_random random = tm_random_make(0, 0);
    assert_true(tm_random_u64(&random) == 0xe169c58d6627e8d5);
    assert_true(tm_random_u64(&random) == 0x9b00dbd8bc57ac4c);
    struct tm_random later = tm_random_make(0, 0);
    later.position = 2;
    assert_true(tm_random_u64(&random) == tm_random_u64(&later));
}

static void test_seed_and_stream_matter_in_all_bits(void **state)
{
    (void)state;
    uint64_t seen[129];
    for (unsigned i = 0; i <= 128; i++) {
        struct tm_random random = tm_random_make(i < 64 ? 1ULL << i : 0, i >= 64 && i < 128 ? 1ULL << (i - 64) : 0);
        seen[i] = tm_random_u64(&random);
        for (unsigned k = 0; k < i; k++)
            assert_row(seen[k] != seen[i], "bits %u and %u give the same", k, i);
    }
}

static void test_a_copy_goes_its_own_way(void **state)
{
    (void)state;
    struct tm_random a = tm_random_make(7, 3);
    (void)tm_random_u64(&a);
    struct tm_random b = a;
    uint64_t first = tm_random_u64(&a);
    (void)tm_random_u64(&a);
    assert_true(tm_random_u64(&b) == first);
}

static void test_unit_is_uniform(void **state)
{
    (void)state;
    enum { DRAWS = 100000, BINS = 20 };
    struct tm_random random = tm_random_make(1, 2);
    int bins[BINS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        double unit = tm_random_unit(&random);
        assert_row(unit >= 0 && unit < 1, "draw %d: %g", i, unit);
        bins[(int)(unit * BINS)]++;
    }
    for (int i = 0; i < BINS; i++) /* 5 standard deviations of a bin; the seed is fixed */
        assert_row(fabs(bins[i] - (double)DRAWS / BINS) < 5 * 69, "bin %d: %d", i, bins[i]);
}

static void test_below_stays_below(void **state)
{
    (void)state;
    static const uint64_t limits[] = {1, 2, 3, 7, 10, 1000003, 1ULL << 32, (1ULL << 63) + 1, UINT64_MAX};
    for (size_t i = 0; i < TM_COUNT(limits); i++) {
        struct tm_random random = tm_random_make(5, i);
        bool low = false;
        bool high = false;
        for (int k = 0; k < 200; k++) {
            uint64_t draw = tm_random_below(&random, limits[i]);
            assert_row(draw < limits[i], "limit %llu: drew %llu", (unsigned long long)limits[i],
                       (unsigned long long)draw);
            low = low || draw <= limits[i] / 2;
            high = high || draw >= limits[i] / 2;
        }
        assert_row(low && high, "limit %llu: one half only", (unsigned long long)limits[i]);
    }
}

static void test_exponential(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    struct tm_random random = tm_random_make(9, 9);
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) {
        double draw = tm_random_exponential(&random, 4);
        assert_row(draw > 0 && isfinite(draw), "draw %d: %g", i, draw);
        sum += draw;
    }
    assert_true(fabs(sum / DRAWS - 4) < 0.07);
}

/* Running Philox backwards gives the place where the 64 bits are all zero. */
static void test_exponential_of_zero_bits_is_positive(void **state)
{
    (void)state;
    struct tm_random random = tm_random_make(1, 0xd45467c7ca90ff34);
    random.position = 0x3f7ab621fa4c9d5a;
    struct tm_random again = random;
    assert_true(tm_random_u64(&again) == 0);
    assert_true(tm_random_exponential(&random, 1) > 0);
}

/* The values that python/tidemill/samples.py gives: jobs that are under way keep their samples. */
static void test_keys_of_samples(void **state)
{
    (void)state;
    assert_int_equal(tm_sample_key(7, 3, 5, 1), 6145565984214112202);
    assert_int_equal(tm_sample_key(0x1234567890ABCDEF, (uint64_t)1 << 34, 9, 2), 5687744962982183632);
    assert_int_equal(tm_sample_item(3, 500, 97), 132);
    assert_int_equal(tm_sample_item(0x1234567890ABCDEF, 1000003, ((uint64_t)1 << 40) + 2), 768645);
}

TM_TEST_MAIN(TM_TEST(test_known_answers), TM_TEST(test_a_sequence_is_the_blocks_in_order),
             TM_TEST(test_seed_and_stream_matter_in_all_bits), TM_TEST(test_a_copy_goes_its_own_way),
             TM_TEST(test_unit_is_uniform), TM_TEST(test_below_stays_below), TM_TEST(test_exponential),
             TM_TEST(test_exponential_of_zero_bits_is_positive), TM_TEST(test_keys_of_samples))
