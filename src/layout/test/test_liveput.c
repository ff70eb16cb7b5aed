/* Liveput: against drawing which instances go, and how many. */
#include "layout/liveput.h"

#include "layout/test/layout_helpers.h"

static int whole_pipelines(const struct tm_survivors *left)
{
    int fewest = left->left[0];
    for (int s = 1; s < left->stages; s++)
        if (left->left[s] < fewest) fewest = left->left[s];
    return fewest;
}

static int draw_count(struct tm_random *random, const double *pmf, int count)
{
    double unit = tm_random_unit(random);
    for (int k = 1; k < count; k++) {
        if (unit < pmf[k]) return k;
        unit -= pmf[k];
    }
    return 0;
}

static void test_against_drawing(void **state)
{
    (void)state;
    static const double few[] = {0.8, 0.1, 0.06, 0.04}, many[] = {0, 0, 0.3, 0, 0.3, 0, 0.2, 0.2};
    static const struct {
        int pipelines, stages, spares;
        const double *pmf;
        int losses;
    } rows[] = {{4, 8, 0, few, 4},  {4, 8, 0, many, 8},  {2, 13, 6, few, 4}, {2, 13, 6, many, 8},
                {1, 30, 2, few, 4}, {10, 3, 2, many, 8}, {6, 4, 0, many, 8}};
    enum { DRAWS = 20000 };
    struct test_job *job = job_make(40, true, "tidemill-cost: 1\nkind: measured\nlink: 10Gbps\n", 32, test_speed);
    struct tm_random random = tm_random_make(5, 1);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int fleet = rows[i].pipelines * rows[i].stages + rows[i].spares;
        int layout = tm_layouts_find(&job->layouts, rows[i].pipelines, rows[i].stages);
        double sum = 0, squares = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            bool gone[TEST_INSTANCES_MAX];
            draw_subset(&random, fleet, draw_count(&random, rows[i].pmf, rows[i].losses), gone);
            struct tm_survivors left = survivors_of(rows[i].pipelines, rows[i].stages, gone);
            int whole = whole_pipelines(&left);
            double speed = job->layouts.list[tm_layouts_find(&job->layouts, whole, rows[i].stages)].samples_per_s;
            sum += speed;
            squares += speed * speed;
        }
        double mean = sum / DRAWS, error = 5 * sqrt((squares / DRAWS - mean * mean) / DRAWS) + 1e-9;
        double got = tm_liveput(&job->layouts, layout, fleet, rows[i].pmf, rows[i].losses);
        assert_row(fabs(got - mean) <= error, "row %zu: %g, drawn %g +- %g", i, got, mean, error);
    }
    job_drop(job);
}

static void test_edges(void **state)
{
    (void)state;
    struct test_job *job = job_make(12, true, "tidemill-cost: 1\nkind: measured\nlink: 10Gbps\n", 8, test_speed);
    int layout = tm_layouts_find(&job->layouts, 2, 4);
    double speed = job->layouts.list[layout].samples_per_s, all[9] = {0};
    assert_true(tm_liveput(&job->layouts, layout, 8, NULL, 0) == speed); /* nothing goes */
    all[8] = 1;
    assert_true(tm_liveput(&job->layouts, layout, 8, all, 9) == 0); /* all go */
    assert_true(tm_liveput(&job->layouts, TM_LAYOUT_PAUSE, 8, all, 9) == 0);
    static const double one[] = {0, 1};
    double half = job->layouts.list[tm_layouts_find(&job->layouts, 1, 4)].samples_per_s;
    assert_true(
        close_to(tm_liveput(&job->layouts, layout, 8, one, 2), half, 1e-12)); /* no spare: one pipeline breaks */
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_against_drawing), TM_TEST(test_edges))
