#include "plan/expect.h"

#include "market/trace_stats.h"

#include <math.h>

struct tm_expect_trace tm_expect_trace(const struct tm_trace *trace)
{
    struct tm_trace_stats stats = tm_trace_stats(trace);
    double node_s = stats.mean_available * stats.duration_s;
    struct tm_expect_trace out = {.loss_per_s = node_s > 0 ? (double)stats.instances_lost / node_s : 0,
                                  .burst_size = 1};
    int64_t instances = 0;
    double lost = 0;
    double burst_lost = 0;
    double shares = 0;
    size_t bursts = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        lost += event->out;
        if (event->out > 1 && instances > 0) {
            burst_lost += event->out;
            shares += fmin(1, (double)event->out / (double)instances);
            bursts++;
        }
        instances += event->in - event->out;
    }
    double there = stats.instances_max > 0 ? stats.mean_available / (double)stats.instances_max : 0;
    if (out.loss_per_s > 0 && there > 0) out.replace_s = (1 - there) / (out.loss_per_s * there);
    if (bursts == 0) return out;
    out.burst_share = burst_lost / lost;
    out.burst_size = shares / (double)bursts;
    return out;
}

double tm_expect__away(const struct tm_expect_job *job, double loss_per_s)
{
    double missing = loss_per_s * ((1 - job->burst_share) * job->replace_s + job->burst_share * job->outage_s);
    return missing / (1 + missing);
}

void tm_expect__add_pool(const struct tm_expect_job *job, int instances, int spot, double loss_per_s,
                         struct tm_expect_losses *losses)
{
    if (spot < 1 || !(loss_per_s > 0)) return;
    double share = (double)spot / instances;
    double single = (1 - job->burst_share) * spot * loss_per_s;
    losses->rate += spot * loss_per_s;
    losses->single += single;
    losses->single_away = job->replace_s / instances;
    losses->away += tm_expect__away(job, loss_per_s) * share;
    if (!(job->burst_share > 0)) return;
    double rate = job->burst_share * loss_per_s / job->burst_size;
    double hits = spot == 1 ? job->burst_size : 1 - pow(1 - job->burst_size, spot); /* that it takes one at all */
    double away_s = job->burst_size * share / hits * job->outage_s;
    losses->burst += rate * hits;
    losses->burst_away += rate * hits * away_s;
    losses->burst_square += rate * hits * away_s * away_s;
}

static double normal_below(double z)
{
    return 0.5 * erfc(-z / sqrt(2));
}

double tm_expect__chance(double mean, double sigma, double limit)
{
    if (!isfinite(limit)) return 1;
    if (sigma < 1e-9) return mean <= limit;
    return normal_below((log(limit / mean) + sigma * sigma / 2) / sigma);
}

static struct tm_expectation never(void)
{
    struct tm_estimate infinite = {INFINITY, INFINITY, INFINITY};
    return (struct tm_expectation){.time_s = infinite,
                                   .cost_usd = infinite,
                                   .losses = INFINITY,
                                   .usd_h = INFINITY,
                                   .p_budget = NAN,
                                   .sure_s = INFINITY};
}

static double sure_z(double p)
{
    return p == 0.95 || p == 0 ? 1.6448536269514722 : tm_normal_quantile(p);
}

struct tm_expectation tm__expect(const struct tm_expect_job *job, const struct tm_expect_fleet *fleet)
{
    const struct tm_expect_losses *losses = &fleet->losses;
    double events = losses->single + losses->burst;
    double interval_s = events > 0 ? sqrt(2 * job->checkpoint_s / events) : INFINITY;
    double overhead = events > 0 ? job->checkpoint_s / interval_s : 0;
    double event_s = events > 0 ? interval_s / 2 + job->restart_s + job->rejoin_s : 0;
    double useful = (1 - overhead - events * event_s) * (1 - losses->away);
    if (!(useful > 0) || overhead + events * event_s >= 1 || !(fleet->samples_per_s.mean > 0)) return never();
    double work_s = job->samples / (fleet->samples_per_s.mean * useful);
    double time_s = job->startup_s + work_s;
    double speed_spread = tm_estimate_spread(&fleet->samples_per_s);
    double single_s = event_s + losses->single_away;
    double variance = losses->single * single_s * single_s + losses->burst * event_s * event_s +
                      2 * event_s * losses->burst_away + losses->burst_square; /* per second */
    double relative = hypot(work_s * speed_spread, sqrt(time_s * variance)) / time_s;
    double sigma = sqrt(log1p(relative * relative));
    return (struct tm_expectation){.finishes = true,
                                   .time_s = tm_estimate_around(time_s, sigma),
                                   .cost_usd = tm_estimate_around(time_s / 3600 * fleet->usd_h, sigma),
                                   .usd_h = fleet->usd_h,
                                   .losses = losses->rate * time_s,
                                   .checkpoint_interval_s = interval_s,
                                   .p_deadline = tm_expect__chance(time_s, sigma, job->deadline_s),
                                   .p_budget = NAN,
                                   .sure_s = time_s * exp(sure_z(job->sure) * sigma - sigma * sigma / 2)};
}
