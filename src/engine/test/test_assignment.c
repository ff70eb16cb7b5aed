/* Pure functions: cuts, shares, turns, moves, fixed point, the order of samples. */
#include "base/sample_order.h"
#include "base/test/harness.h"
#include "engine/assignment.h"
#include "engine/fixed_point.h"

#include <math.h>
#include <string.h>

static const struct tm_network network = {.blocks = 6, .width = 64, .heads = 4, .ctx = 32};

static void test_every_layer_and_micro_batch_once(void **state)
{
    (void)state;
    for (int pipelines = 1; pipelines <= 9; pipelines++) {
        for (int stages = 1; stages <= 8; stages++) {
            struct tm_assignment a;
            assert_int_equal(tm_assignment_make(&network, pipelines, stages, 11, &a, NULL), 0);
            assert_int_equal(a.first_layer[0], 0);
            assert_int_equal(a.first_layer[stages], 8);
            for (int s = 0; s < stages; s++)
                assert_true(a.first_layer[s] < a.first_layer[s + 1]);
            assert_int_equal(a.first_micro[pipelines], 11);
            for (int p = 0; p < pipelines; p++) {
                int64_t share = a.first_micro[p + 1] - a.first_micro[p];
                assert_true(share == 11 / pipelines || share == 11 / pipelines + 1);
            }
        }
    }
}

/* The slowest stage against every way to cut 6 blocks in two or three. Ends cost little, so blocks decide. */
static void test_cuts_are_even(void **state)
{
    (void)state;
    static const struct {
        int stages;
        int most_blocks;
    } rows[] = {{1, 6}, {2, 3}, {3, 2}, {4, 2}, {5, 2}, {6, 1}, {8, 1}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_assignment a;
        assert_int_equal(tm_assignment_make(&network, 1, rows[i].stages, 4, &a, NULL), 0);
        int most = 0;
        for (int s = 0; s < rows[i].stages; s++) {
            int blocks = 0;
            for (int l = a.first_layer[s]; l < a.first_layer[s + 1]; l++)
                blocks += l > 0 && l < 7;
            most = blocks > most ? blocks : most;
        }
        assert_row(most == rows[i].most_blocks, "%d stages: a stage has %d blocks", rows[i].stages, most);
    }
}

static void test_layouts_that_cannot_be(void **state)
{
    (void)state;
    struct tm_assignment a;
    struct tm_error e = {0};
    assert_int_equal(tm_assignment_make(&network, 1, 9, 8, &a, &e), -(int)TM_EINPUT);
    assert_error_has(e, "9 stages, but the network has 8 layers");
    assert_int_equal(tm_assignment_make(&network, 9, 1, 8, &a, &e), -(int)TM_EINPUT);
    assert_error_has(e, "9 pipelines, but a step has 8 micro-batches;");
    static const char *const wrong[] = {"", "x", "2", "2x", "x2", "0x2", "2x0", "-1x2", "2x2x2", "1000x1", "2 x 2"};
    for (size_t i = 0; i < TM_COUNT(wrong); i++) {
        int pipelines = 0;
        int stages = 0;
        assert_row(tm_layout_parse(wrong[i], &pipelines, &stages, &e) == -(int)TM_EUSAGE, "\"%s\"", wrong[i]);
    }
}

/* Every micro-batch goes forth once and back once, forth first, and no more are kept than promised. */
static void test_turns_of_a_stage(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 5; stages++) {
        for (int stage = 0; stage < stages; stage++) {
            for (int64_t count = 1; count <= 9; count++) {
                int64_t forth = 0;
                int64_t back = 0;
                for (int64_t turn = 0; turn < 2 * count; turn++) {
                    struct tm_stage__turn now = tm_stage__turn(stages, stage, count, turn);
                    int64_t *next = now.backward ? &back : &forth;
                    assert_row(now.micro == *next, "stage %d of %d, %d micro-batches, turn %d", stage, stages,
                               (int)count, (int)turn);
                    (*next)++;
                    assert_true(back <= forth);
                    assert_true(forth - back <= tm_stage_in__flight(stages, stage, count));
                }
                assert_int_equal(forth, count);
                assert_int_equal(back, count);
            }
        }
    }
}

static void test_moves_are_what_is_missing(void **state)
{
    (void)state;
    struct tm_assignment from;
    struct tm_assignment to;
    struct tm_layer_move moves[64];
    assert_int_equal(tm_assignment_make(&network, 2, 2, 8, &from, NULL), 0);
    assert_int_equal(tm_assignment_make(&network, 1, 4, 8, &to, NULL), 0);
    size_t count = tm_assignment__moves(&from, &to, 4, moves, 64);
    for (size_t i = 0; i < count; i++) {
        assert_true(tm_assignment_holds(&from, moves[i].from, moves[i].layer));
        assert_false(tm_assignment_holds(&from, moves[i].to, moves[i].layer));
        assert_true(tm_assignment_holds(&to, moves[i].to, moves[i].layer));
    }
    assert_int_equal(tm_assignment__moves(&from, &from, 4, moves, 64), 0);
    assert_int_equal(tm_assignment__moves(&to, &from, 4, moves, 3), tm_assignment__moves(&to, &from, 4, moves, 64));
}

static void test_fixed_point(void **state)
{
    (void)state;
    for (int64_t addends = 1; addends <= 100000; addends = addends * 3 + 1) {
        double limit = tm_fixed__limit(addends);
        assert_true(limit * (double)addends <= 2147483647.0);
        int32_t start = tm_fixed__start(addends);
        assert_true(tm_fixed__fits(0.999F, start, addends));
        assert_false(tm_fixed__fits(2.01F, start, addends));
        assert_false(tm_fixed__fits(NAN, start, addends));
        assert_false(tm_fixed__fits(INFINITY, start, addends));
        for (float largest = 1e-9F; largest < 1e9F; largest *= 7) {
            int32_t best = tm_fixed__best(largest, addends);
            assert_row(tm_fixed__fits(largest, best, addends), "%g of %d", (double)largest, (int)addends);
            assert_true(tm_fixed__fits(largest * 2, best, addends));          /* two bits of room */
            assert_false(tm_fixed__fits(largest * 17, best, addends));        /* and no more than four */
            assert_int_equal(tm_fixed__next(largest, best, addends), best);   /* it stays */
            assert_true(tm_fixed__next(largest, best + 10, addends) == best); /* or is mended */
            assert_true(tm_fixed__next(largest, best - 10, addends) == best);
        }
        assert_int_equal(tm_fixed__next(0, 5, addends), 5);
    }
    assert_true(tm_fixed__unit(-3) == 0.125F);
}

static void test_every_window_once_an_epoch(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 5, 64, 65, 1000};
    for (size_t i = 0; i < TM_COUNT(counts); i++) {
        uint64_t n = counts[i];
        size_t moved = 0;
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            unsigned char seen[1000] = {0};
            for (uint64_t k = 0; k < n; k++) {
                uint64_t w = tm_sample_item(42, n, epoch * n + k);
                assert_true(w < n);
                assert_row(seen[w]++ == 0, "window %d twice in an epoch of %d", (int)w, (int)n);
                moved += w != k;
            }
        }
        assert_true(n < 64 || moved > 2 * n); /* it is an order of its own */
    }
    size_t same = 0;
    for (uint64_t k = 0; k < 1000; k++) {
        same += tm_sample_item(42, 1000, k) == tm_sample_item(43, 1000, k);
        same += tm_sample_item(42, 1000, k) == tm_sample_item(42, 1000, 1000 + k);
    }
    assert_true(same < 20); /* two chances in a thousand, two thousand times: 2 is expected */
}

TM_TEST_MAIN(TM_TEST(test_every_layer_and_micro_batch_once), TM_TEST(test_cuts_are_even),
             TM_TEST(test_layouts_that_cannot_be), TM_TEST(test_turns_of_a_stage),
             TM_TEST(test_moves_are_what_is_missing), TM_TEST(test_fixed_point),
             TM_TEST(test_every_window_once_an_epoch))
