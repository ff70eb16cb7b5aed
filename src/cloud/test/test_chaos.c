#include "cloud/chaos.h"

#include "base/test/harness.h"

static void test_a_pure_function_of_seed_and_number(void **state)
{
    (void)state;
    struct tm_chaos chaos = {.seed = 4, .mean_ms = 1000, .begin_ms = 5000, .lasting_ms = 300};
    struct tm_chaos other = chaos;
    other.seed = 5;
    int kinds[TM_FAULT_KINDS] = {0};
    int differ = 0;
    int64_t last_ms = 0;
    double lasting_ms = 0;
    int lasting = 0;
    for (uint64_t k = 0; k < 7000; k++) {
        struct tm_fault fault = tm_chaos_fault(&chaos, k);
        struct tm_fault again = tm_chaos_fault(&chaos, k);
        struct tm_fault elsewhere = tm_chaos_fault(&other, k);
        assert_row(fault.time_ms == again.time_ms && fault.kind == again.kind && fault.lasts_ms == again.lasts_ms &&
                       fault.pick == again.pick && fault.number == k,
                   "fault %d differs from itself", (int)k);
        assert_row(fault.time_ms >= last_ms && fault.time_ms >= 5000, "fault %d goes back", (int)k);
        last_ms = fault.time_ms;
        differ += fault.time_ms != elsewhere.time_ms || fault.kind != elsewhere.kind;
        kinds[fault.kind]++;
        bool lasts = fault.kind >= TM_FAULT_STOP_WORKER;
        assert_int_equal(fault.lasts_ms > 0, lasts);
        lasting += lasts;
        lasting_ms += (double)fault.lasts_ms;
        assert_int_equal(tm_chaos_first_from(&chaos, fault.time_ms), k);
        assert_int_equal(tm_chaos_first_from(&chaos, fault.time_ms + 1) >= k + 1, 1);
        assert_true(tm_fault_target(&fault, 8) < 8);
    }
    assert_true(differ > 6900);
    assert_in_range((int)(lasting_ms / lasting), 270, 330); /* mean of an exponential of 300 + 1/2, 4000 draws: 5 ms */
    for (int i = 0; i < TM_FAULT_KINDS; i++)                /* 1000 each: five standard deviations are 146 */
        assert_row(kinds[i] > 850 && kinds[i] < 1150, "%s: %d", tm_fault_kind_name((enum tm_fault_kind)i), kinds[i]);
}

static void test_weights(void **state)
{
    (void)state;
    struct tm_chaos chaos = {.seed = 4, .mean_ms = 10};
    chaos.weights[TM_FAULT_KILL_WORKER] = 3;
    chaos.weights[TM_FAULT_CUT_LINK] = 1;
    int kinds[TM_FAULT_KINDS] = {0};
    for (uint64_t k = 0; k < 4000; k++)
        kinds[tm_chaos_fault(&chaos, k).kind]++;
    assert_int_equal(kinds[TM_FAULT_KILL_WORKER] + kinds[TM_FAULT_CUT_LINK], 4000);
    assert_in_range(kinds[TM_FAULT_CUT_LINK], 863, 1137); /* five standard deviations */
}

static void test_targets_are_spread(void **state)
{
    (void)state;
    struct tm_chaos chaos = {.seed = 9, .mean_ms = 10};
    int hits[4] = {0};
    for (uint64_t k = 0; k < 4000; k++) {
        struct tm_fault fault = tm_chaos_fault(&chaos, k);
        hits[tm_fault_target(&fault, 4)]++;
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(hits[i], 863, 1137);
}

TM_TEST_MAIN(TM_TEST(test_a_pure_function_of_seed_and_number), TM_TEST(test_weights), TM_TEST(test_targets_are_spread))
