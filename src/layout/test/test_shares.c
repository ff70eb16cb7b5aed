/* Shares: every small case against all ways to give out; equal ones as ever; the speeds of the issue. */
#include "layout/shares.h"

#include "layout/test/layout_helpers.h"

/* The least time over all ways. */
static uint64_t least(const uint32_t *slowness, uint32_t pipelines, uint32_t stages, uint32_t left, uint32_t at,
                      uint32_t *shares)
{
    if (at + 1 == pipelines) {
        shares[at] = left;
        return tm_shares_time(slowness, shares, pipelines, stages);
    }
    uint64_t best = UINT64_MAX;
    for (shares[at] = 1; shares[at] + (pipelines - at - 1) <= left; shares[at]++) {
        uint32_t tried[8];
        memcpy(tried, shares, sizeof tried);
        uint64_t time = least(slowness, pipelines, stages, left - shares[at], at + 1, tried);
        if (time < best) best = time;
    }
    return best;
}

static void test_least(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {250, 500, 777, 1000, 3000};
    for (uint32_t code = 0; code < 5 * 5 * 5; code++) {
        uint32_t slowness[3] = {kinds[code % 5], kinds[code / 5 % 5], kinds[code / 25]};
        for (uint32_t stages = 1; stages <= 3; stages++) {
            for (uint32_t micro = 3; micro <= 11; micro++) {
                uint32_t shares[8] = {0}, tried[8] = {0};
                uint64_t time = tm_shares_make(slowness, 3, stages, micro, shares);
                assert_row(shares[0] + shares[1] + shares[2] == micro && shares[0] > 0 && shares[1] > 0 &&
                               shares[2] > 0,
                           "code %u: %u of %u:%u:%u", code, micro, shares[0], shares[1], shares[2]);
                assert_int_equal(time, least(slowness, 3, stages, micro, 0, tried));
            }
        }
    }
}

/* Where all are alike, the first ones get what is left over: as before there were shares. */
static void test_even(void **state)
{
    (void)state;
    for (uint32_t pipelines = 1; pipelines <= 9; pipelines++) {
        for (uint32_t micro = pipelines; micro < 40; micro++) {
            uint32_t slowness[9], shares[9];
            for (uint32_t p = 0; p < pipelines; p++)
                slowness[p] = TM_SLOWNESS_USUAL;
            (void)tm_shares_make(slowness, pipelines, 1 + micro % 4, micro, shares);
            for (uint32_t p = 0; p < pipelines; p++)
                assert_int_equal(shares[p], micro / pipelines + (p < micro % pipelines ? 1 : 0));
        }
    }
}

static void test_mixed(void **state)
{
    (void)state;
    uint32_t shares[4];
    assert_int_equal(tm_shares_make((uint32_t[]){250, 500, 1000}, 3, 1, 28, shares), 4000);
    assert_memory_equal(shares, ((uint32_t[]){16, 8, 4}), 3 * sizeof *shares);
    /* a straggler at half speed: 3.5 of 4 */
    assert_int_equal(tm_shares_make((uint32_t[]){1000, 1000, 1000, 2000}, 4, 1, 28, shares), 8000);
    assert_memory_equal(shares, ((uint32_t[]){8, 8, 8, 4}), 4 * sizeof *shares);
    /* whatever it takes, each gets one */
    assert_int_equal(tm_shares_make((uint32_t[]){1, TM_SLOWNESS_MAX}, 2, 1, 2, shares), TM_SLOWNESS_MAX);
    assert_int_equal(shares[1], 1);
    /* as large as can be */
    static uint32_t many_slow[1024], many[1024];
    uint64_t sum = 0;
    for (uint32_t p = 0; p < 1024; p++)
        many_slow[p] = 1 + p * 977 % TM_SLOWNESS_MAX;
    (void)tm_shares_make(many_slow, 1024, 64, 1 << 20, many);
    for (uint32_t p = 0; p < 1024; p++)
        sum += many[p];
    assert_int_equal(sum, 1 << 20);
}

static void test_slowness(void **state)
{
    (void)state;
    assert_int_equal(tm_slowness(0), TM_SLOWNESS_USUAL);
    assert_int_equal(tm_slowness(-1), TM_SLOWNESS_USUAL);
    assert_int_equal(tm_slowness(2), 2000);
    assert_int_equal(tm_slowness(1e-9), 1);
    assert_int_equal(tm_slowness(1e9), TM_SLOWNESS_MAX);
}

TM_TEST_MAIN(TM_TEST(test_least), TM_TEST(test_even), TM_TEST(test_mixed), TM_TEST(test_slowness))
