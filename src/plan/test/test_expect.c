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

/* Spot and on-demand instances of one pool, lost one by one (unless the job says otherwise). */
static struct tm_expect_fleet fleet_of(const struct tm_expect_job *job, int spot, int on_demand, double life_h)
{
    struct tm_expect_fleet fleet = {.samples_per_s = {100, 90, 111.1111111111111}, .usd_h = spot + 3.0 * on_demand};
    tm_expect__add_pool(job, spot + on_demand, spot, 1 / (life_h * 3600), &fleet.losses);
    return fleet;
}

static void test_without_losses(void **state)
{
    (void)state;
    struct tm_expect_job job = job_of(10);
    struct tm_expect_fleet fleet = fleet_of(&job, 0, 4, 1);
    struct tm_expectation got = tm__expect(&job, &fleet);
    assert_true(got.finishes && got.losses == 0 && isinf(got.checkpoint_interval_s) && got.p_deadline == 1);
    assert_true(fabs(got.time_s.mean - (120 + 36000)) < 1e-6);
    assert_true(fabs(got.cost_usd.mean - 36120.0 / 3600 * 12) < 1e-9);
    assert_true(got.time_s.p10 < got.time_s.mean && got.time_s.mean < got.time_s.p90);
}

/* Plays the story: work goes on in intervals that end in a checkpoint; a loss throws away the interval in hand, costs a
 * restart, and takes 1/n of the speed until the replacement joins. */
static double play(const struct tm_expect_job *job, const struct tm_expect_fleet *fleet, int instances, double life_h,
                   double interval_s, struct tm_random *random)
{
    double rate = instances / (life_h * 3600);
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
        time_s = next_loss_s + job->restart_s + job->replace_s / instances;
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
        struct tm_expect_fleet fleet = fleet_of(&job, rows[i].spot, 0, rows[i].life_h);
        struct tm_expectation got = tm__expect(&job, &fleet);
        double sum = 0;
        enum { TRIALS = 400 };
        for (int k = 0; k < TRIALS; k++)
            sum += play(&job, &fleet, rows[i].spot, rows[i].life_h, got.checkpoint_interval_s, &random);
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
    struct tm_expect_fleet fleet = fleet_of(&job, 8, 0, 10);
    double interval_s = tm__expect(&job, &fleet).checkpoint_interval_s;
    double sums[3] = {0};
    for (int k = 0; k < 3; k++) {
        struct tm_random random = tm_random_make(5, 0);
        for (int trial = 0; trial < 600; trial++)
            sums[k] += play(&job, &fleet, 8, 10, interval_s * (k == 0 ? 1 : k == 1 ? 0.4 : 2.5), &random);
    }
    assert_true(sums[0] < sums[1] && sums[0] < sums[2]);
}

static void test_deadline_and_edges(void **state)
{
    (void)state;
    struct tm_expect_job job = job_of(10);
    struct tm_expect_fleet fleet = fleet_of(&job, 8, 0, 24);
    double mean_s = tm__expect(&job, &fleet).time_s.mean;
    double before = 0;
    for (double share = 0.5; share < 2; share += 0.1) {
        job.deadline_s = mean_s * share;
        double p = tm__expect(&job, &fleet).p_deadline;
        assert_row(p >= before && p >= 0 && p <= 1, "at %.1f of the mean: %.3f after %.3f", share, p, before);
        before = p;
    }
    assert_true(before > 0.99);
    fleet = fleet_of(&job, 8, 0, 1 / 3600.0); /* an instance lives a second */
    assert_false(tm__expect(&job, &fleet).finishes);
    fleet.samples_per_s.mean = 0;
    assert_false(tm__expect(&job, &fleet).finishes);
}

/* A fleet in `pools` equal pools, of which bursts take half at a time. */
static struct tm_expect_fleet spread_fleet(const struct tm_expect_job *job, int instances, int pools)
{
    struct tm_expect_fleet fleet = {.samples_per_s = {100, 99, 101.01}, .usd_h = instances};
    for (int i = 0; i < pools; i++)
        tm_expect__add_pool(job, instances, instances / pools, 1 / (12 * 3600.0), &fleet.losses);
    return fleet;
}

/* Plays bursts alone: a burst of a pool takes each of its instances with a chance, stops all for a restart and the
 * redoing of half an interval, and leaves the fleet smaller until the outage is over. */
static double play_bursts(const struct tm_expect_job *job, int instances, int pools, double interval_s,
                          struct tm_random *random)
{
    double rate = pools * job->burst_share / (12 * 3600.0) / job->burst_size;
    double left_s = job->samples / 100;
    double time_s = job->startup_s;
    while (left_s > 0) {
        double free_s = tm_random_exponential(random, 1 / rate);
        double worth = interval_s / (interval_s + job->checkpoint_s);
        if (free_s * worth >= left_s) return time_s + left_s / worth;
        left_s -= free_s * worth;
        time_s += free_s;
        int taken = 0;
        for (int i = 0; i < instances / pools; i++)
            taken += tm_random_unit(random) < job->burst_size;
        if (taken == 0) continue;
        time_s += job->restart_s + tm_random_unit(random) * interval_s + (double)taken / instances * job->outage_s;
    }
    return time_s;
}

static struct tm_expect_job burst_job(void)
{
    struct tm_expect_job job = job_of(20);
    job.burst_share = 1;
    job.burst_size = 0.5;
    job.outage_s = 3600;
    return job;
}

/* Mean and spread of the closed form against play: within 5% and a quarter. */
static void test_bursts_against_monte_carlo(void **state)
{
    (void)state;
    struct tm_expect_job job = burst_job();
    struct tm_random random = tm_random_make(7, 0);
    for (int pools = 1; pools <= 4; pools *= 2) {
        struct tm_expect_fleet fleet = spread_fleet(&job, 8, pools);
        struct tm_expectation got = tm__expect(&job, &fleet);
        enum { TRIALS = 3000 };
        double sum = 0;
        double squares = 0;
        for (int k = 0; k < TRIALS; k++) {
            double s = play_bursts(&job, 8, pools, got.checkpoint_interval_s, &random);
            sum += s;
            squares += s * s;
        }
        double mean = sum / TRIALS;
        double deviation = sqrt(squares / TRIALS - mean * mean);
        double sigma = tm_estimate_spread(&got.time_s) * got.time_s.mean;
        assert_row(fabs(got.time_s.mean / mean - 1) < 0.05, "%d pools: %.0f s, played %.0f s", pools, got.time_s.mean,
                   mean);
        assert_row(fabs(sigma / deviation - 1) < 0.3, "%d pools: spread %.0f s, played %.0f s", pools, sigma,
                   deviation);
    }
}

/* The more zones a fleet lies in, the surer its deadline: bursts take less of it at once. (With one instance a zone
 * there is nothing left to spread, only more events.) */
static void test_spreading_is_surer(void **state)
{
    (void)state;
    struct tm_expect_job job = burst_job();
    struct tm_expect_fleet one = spread_fleet(&job, 8, 1);
    double before = 0;
    job.deadline_s = tm__expect(&job, &one).time_s.mean * 1.15;
    for (int pools = 1; pools <= 4; pools *= 2) {
        struct tm_expect_fleet fleet = spread_fleet(&job, 8, pools);
        double p = tm__expect(&job, &fleet).p_deadline;
        assert_row(p > before, "%d pools: %.4f after %.4f", pools, p, before);
        before = p;
    }
}

/* The time it is done by with a probability, and the probability of being done by then, say the same. */
static void test_sure_time(void **state)
{
    (void)state;
    static const double sures[] = {0.5, 0.8, 0.95, 0.99};
    for (size_t i = 0; i < TM_COUNT(sures); i++) {
        struct tm_expect_job job = job_of(10);
        struct tm_expect_fleet fleet = fleet_of(&job, 8, 0, 24);
        job.sure = sures[i];
        job.deadline_s = tm__expect(&job, &fleet).sure_s;
        assert_row(fabs(tm__expect(&job, &fleet).p_deadline - sures[i]) < 1e-6, "%g", sures[i]);
    }
}

static void test_losses_of_a_trace(void **state)
{
    (void)state;
    struct tm_trace trace;
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_add(&trace, 0, 10, 0, NAN, NULL), 0);
    assert_int_equal(tm_trace_add(&trace, 1000000, 0, 1, NAN, NULL), 0); /* alone */
    assert_int_equal(tm_trace_add(&trace, 2000000, 1, 0, NAN, NULL), 0);
    assert_int_equal(tm_trace_add(&trace, 3000000, 0, 4, NAN, NULL), 0); /* four of ten at once */
    trace.end_ms = 4000000;
    trace.instances_max = 10;
    struct tm_expect_trace got = tm_expect_trace(&trace);
    assert_true(fabs(got.loss_per_s - 5.0 / (10e3 + 9e3 + 10e3 + 6e3)) < 1e-12);
    assert_true(fabs(got.burst_share - 0.8) < 1e-12 && fabs(got.burst_size - 0.4) < 1e-12);
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_without_losses), TM_TEST(test_against_monte_carlo), TM_TEST(test_interval_is_near_the_best),
             TM_TEST(test_deadline_and_edges), TM_TEST(test_bursts_against_monte_carlo),
             TM_TEST(test_spreading_is_surer), TM_TEST(test_sure_time), TM_TEST(test_losses_of_a_trace))
