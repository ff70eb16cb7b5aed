#include "plan/expect.h"

#include <math.h>

double tm_expect_band_rate(int band)
{
    static const double middles[] = {0.025, 0.075, 0.125, 0.175, 0.30};
    if (band < 0 || band > 4) return NAN;
    return -log1p(-middles[band]) / (30 * 86400.0);
}

static double normal_below(double z)
{
    return 0.5 * erfc(-z / sqrt(2));
}

/* A quantity around `mean` with a relative standard deviation, as a log-normal 80% interval. */
static struct tm_estimate around(double mean, double relative)
{
    return tm_estimate_around(mean, sqrt(log1p(relative * relative)));
}

static struct tm_expectation never(void)
{
    struct tm_estimate infinite = {INFINITY, INFINITY, INFINITY};
    return (struct tm_expectation){.time_s = infinite, .cost_usd = infinite, .losses = INFINITY};
}

struct tm_expectation tm_expect(const struct tm_expect_job *job, const struct tm_expect_fleet *fleet)
{
    int nodes = fleet->spot_nodes + fleet->on_demand_nodes;
    double rate = fleet->spot_nodes > 0 ? fleet->spot_nodes * fleet->loss_per_s : 0;
    double interval_s = rate > 0 ? sqrt(2 * job->checkpoint_s / rate) : INFINITY;
    double overhead = rate > 0 ? job->checkpoint_s / interval_s : 0;
    double loss_s = (rate > 0 ? interval_s / 2 : 0) + job->restart_s + job->replace_s / nodes;
    double useful = 1 - overhead - rate * loss_s;
    double usd_h = 0;
    if (fleet->spot_nodes > 0) usd_h += fleet->spot_nodes * fleet->spot_usd_h;
    if (fleet->on_demand_nodes > 0) usd_h += fleet->on_demand_nodes * fleet->on_demand_usd_h;
    if (!(useful > 0) || !(fleet->samples_per_s.mean > 0)) return never();
    double work_s = job->samples / (fleet->samples_per_s.mean * useful);
    double time_s = job->startup_s + work_s;
    double losses = rate * time_s;
    double speed_spread = tm_estimate_spread(&fleet->samples_per_s);
    double deviation_s = hypot(work_s * speed_spread, sqrt(losses) * loss_s);
    double relative = deviation_s / time_s;
    double sigma = sqrt(log1p(relative * relative));
    double p = 1;
    if (isfinite(job->deadline_s)) {
        bool exact = sigma < 1e-9;
        p = exact ? (time_s <= job->deadline_s)
                  : normal_below((log(job->deadline_s / time_s) + sigma * sigma / 2) / sigma);
    }
    return (struct tm_expectation){.finishes = true,
                                   .time_s = around(time_s, relative),
                                   .cost_usd = around(time_s / 3600 * usd_h, relative),
                                   .usd_h = usd_h,
                                   .losses = losses,
                                   .checkpoint_interval_s = interval_s,
                                   .p_deadline = p};
}
