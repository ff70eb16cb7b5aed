/* The closed form against a Monte Carlo of the same story, and at its edges. */
#include "base/random.h"
#include "base/test/harness.h"
#include "plan/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct tm_expect_job job_of(double hours_of_work)
{
    return (struct tm_expect_job){.samples = 100 * 3600 * hours_of_work,
                                  .deadline_s = INFINITY,
                                  .checkpoint_s = 10,
                                  .restart_s = 60,
                                  .replace_s = 180,
                                  .startup_s = 120};
}

static struct tm_expect_fleet fleet_of(int spot, int on_demand, double life_h)
{
    return (struct tm_expect_fleet){.samples_per_s = {100, 90, 111.1111111111111},
                                    .spot_nodes = spot,
                                    .on_demand_nodes = on_demand,
                                    .loss_per_s = 1 / (life_h * 3600),
                                    .spot_usd_h = 1,
                                    .on_demand_usd_h = 3};
}

static void test_without_losses(void **state)
{
    (void)state;
    struct tm_expect_job job = job_of(10);
    struct tm_expect_fleet fleet = fleet_of(0, 4, 1);
    struct tm_expectation got = tm_expect(&job, &fleet);
    assert_true(got.finishes && got.losses == 0 && isinf(got.checkpoint_interval_s) && got.p_deadline == 1);
    assert_true(fabs(got.time_s.mean - (120 + 36000)) < 1e-6);
    assert_true(fabs(got.cost_usd.mean - 36120.0 / 3600 * 12) < 1e-9);
    assert_true(got.time_s.p10 < got.time_s.mean && got.time_s.mean < got.time_s.p90);
}

/* Plays the story: work goes on in intervals that end in a checkpoint; a loss throws away the interval in hand, costs a
 * restart, and takes 1/n of the speed until the replacement joins. */
static double play(const struct tm_expect_job *job, const struct tm_expect_fleet *fleet, double interval_s,
                   struct tm_random *random)
{
    int nodes = fleet->spot_nodes + fleet->on_demand_nodes;
    double rate = fleet->spot_nodes * fleet->loss_per_s;
    double time_s = job->startup_s;
    double done = 0;
    double next_loss_s = time_s + tm_random_exponential(random, 1 / rate);
    while (done < job->samples) {
        double work_s = fmin(interval_s, (job->samples - done) / fleet->samples_per_s.mean);
        double end_s = time_s + work_s + job->checkpoint_s;
        if (next_loss_s >= end_s) {
            done += work_s * fleet->samples_per_s.mean;
            time_s = end_s;
            continue;
        }
        time_s = next_loss_s + job->restart_s + job->replace_s / nodes;
        next_loss_s = time_s + tm_random_exponential(random, 1 / rate);
    }
    return time_s;
}

/* The closed form is first order in rate x interval: within 5% while losses cost less than a fifth of the time. */
static void test_against_monte_carlo(void **state)
{
    (void)state;
    static const struct {
        int spot;
        double life_h;
    } rows[] = {{1, 24}, {8, 24}, {16, 48}, {8, 10}, {32, 30}};
    struct tm_random random = tm_random_make(11, 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_expect_job job = job_of(10);
        struct tm_expect_fleet fleet = fleet_of(rows[i].spot, 0, rows[i].life_h);
        struct tm_expectation got = tm_expect(&job, &fleet);
        double sum = 0;
        enum { TRIALS = 400 };
        for (int k = 0; k < TRIALS; k++)
            sum += play(&job, &fleet, got.checkpoint_interval_s, &random);
        double want = sum / TRIALS;
        assert_row(fabs(got.time_s.mean / want - 1) < 0.05, "%d nodes, %g h: %.0f s, played %.0f s", rows[i].spot,
                   rows[i].life_h, got.time_s.mean, want);
    }
}

/* The interval is near the best one: half and double of it do no better when played. */
static void test_interval_is_near_the_best(void **state)
{
    (void)state;
    struct tm_expect_job job = job_of(10);
    struct tm_expect_fleet fleet = fleet_of(8, 0, 10);
    double interval_s = tm_expect(&job, &fleet).checkpoint_interval_s;
    double sums[3] = {0};
    for (int k = 0; k < 3; k++) {
        struct tm_random random = tm_random_make(5, 0);
        for (int trial = 0; trial < 600; trial++)
            sums[k] += play(&job, &fleet, interval_s * (k == 0 ? 1 : k == 1 ? 0.4 : 2.5), &random);
    }
    assert_true(sums[0] < sums[1] && sums[0] < sums[2]);
}

static void test_deadline_and_edges(void **state)
{
    (void)state;
    struct tm_expect_job job = job_of(10);
    struct tm_expect_fleet fleet = fleet_of(8, 0, 24);
    double mean_s = tm_expect(&job, &fleet).time_s.mean;
    double before = 0;
    for (double share = 0.5; share < 2; share += 0.1) {
        job.deadline_s = mean_s * share;
        double p = tm_expect(&job, &fleet).p_deadline;
        assert_row(p >= before && p >= 0 && p <= 1, "at %.1f of the mean: %.3f after %.3f", share, p, before);
        before = p;
    }
    assert_true(before > 0.99);
    fleet.loss_per_s = 1; /* an instance lives a second */
    assert_false(tm_expect(&job, &fleet).finishes);
    fleet.samples_per_s.mean = 0;
    assert_false(tm_expect(&job, &fleet).finishes);
}

static void test_bands(void **state)
{
    (void)state;
    double before = 0;
    for (int band = 0; band <= 4; band++) {
        double rate = tm_expect_band_rate(band);
        assert_row(rate > before, "band %d: %g after %g", band, rate, before);
        before = rate;
    }
    assert_true(fabs(1 - exp(-tm_expect_band_rate(0) * 30 * 86400) - 0.025) < 1e-12);
    assert_true(isnan(tm_expect_band_rate(-1)) && isnan(tm_expect_band_rate(5)));
}

TM_TEST_MAIN(TM_TEST(test_without_losses), TM_TEST(test_against_monte_carlo), TM_TEST(test_interval_is_near_the_best),
             TM_TEST(test_deadline_and_edges), TM_TEST(test_bands))
