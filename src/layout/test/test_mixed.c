/* Layouts on instances of several speeds. */
#include "layout/mixed.h"

#include "layout/test/layout_helpers.h"

#define COST "tidemill-cost: 1\nkind: measured\nreform_ms: 1000\nlink: 5Gbit/s\nlink_latency_ms: 1\nstore: 2Gbit/s\n"

static void test_rows(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int pipelines, stages;
        double micro_batches;
        int counts[3];
        double speeds[3];
        double want;
    } rows[] = {
        {"one speed is that speed, to the last bit", 4, 2, 28, {3, 0, 5}, {0.3, 9, 0.3}, 0.3},
        {"speeds 1, 2 and 4 add up", 3, 1, 28, {1, 1, 1}, {1, 2, 4}, 10.0 / 4},
        {"in any order", 3, 1, 28, {1, 1, 1}, {4, 1, 2}, 10.0 / 4},
        {"without micro-batches, the mean", 3, 1, 0, {1, 1, 1}, {4, 1, 2}, 7.0 / 3},
        {"a pipeline is as fast as its slowest", 2, 2, 0, {3, 1}, {1, 0.5}, 0.75},
        {"like ones form pipelines", 2, 2, 0, {2, 2}, {1, 3}, 2},
        {"the fastest have the seats", 2, 1, 0, {1, 2}, {1, 3}, 3},
        {"where some are missing, the slowest stand for them", 4, 1, 0, {1, 1}, {2, 1}, 1.25},
        {"nobody is there", 2, 1, 8, {0, 0}, {2, 1}, 1},
    };
    struct test_job *job = job_make(9, true, COST, 16, test_speed);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int layout = tm_layouts_find(&job->layouts, rows[i].pipelines, rows[i].stages);
        assert_true(layout != TM_LAYOUT_PAUSE);
        job->layouts.micro_batches = rows[i].micro_batches;
        double got = tm_layout_mixed(&job->layouts, layout, rows[i].counts, rows[i].speeds, 3);
        assert_row(close_to(got, rows[i].want, 1e-3), "%s: %g, not %g", rows[i].name, got, rows[i].want);
        if (i == 0) assert_true(got == rows[i].want);
    }
    assert_true(tm_layout_mixed(&job->layouts, TM_LAYOUT_PAUSE, (int[]){1, 1}, (double[]){1, 2}, 2) == 1);
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_rows))
