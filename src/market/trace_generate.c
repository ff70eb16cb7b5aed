#include "market/trace_generate.h"

#include "base/alloc.h"
#include "base/random.h"
#include "market/trace_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_ROUNDS = 30, LATER_ROUNDS = 3, DRAWS = 60 };
enum { STREAM_LOSS_TIME = 1, STREAM_LOSS_SIZE, STREAM_ARRIVAL_TIME, STREAM_ARRIVAL_SIZE, STREAM_DRAW };
static const double GOOD_ENOUGH = 0.03; /* of the misfit: a percent or two in each figure */

/* A burst seen in a trace, and how many instances there were before it. */
struct burst {
    int64_t level;
    int32_t size;
};

/* How large bursts are: as seen in a trace at a like number of instances, or geometric. */
struct burst_sizes {
    struct burst *seen; /* by level; NULL: geometric */
    size_t seen_count;
    double mean;
};

struct target {
    int64_t instances_max;
    double mean;
    double losses_per_s; /* over the whole time */
    struct burst_sizes losses;
    struct burst_sizes arrivals;
    int64_t interval_ms;
    int64_t duration_ms;
    int64_t first_count;
};

struct rates {
    double loss_per_s;    /* while there is an instance */
    double arrival_per_s; /* while half of the room is free */
};

/* ---- the figures to meet ---- */

static int compare_bursts(const void *a, const void *b)
{
    const struct burst *x = a;
    const struct burst *y = b;
    int order = (x->level > y->level) - (x->level < y->level);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

static int collect_sizes(const struct tm_trace *like, bool losses, struct burst_sizes *out, struct tm_error *e)
{
    out->seen = tm_alloc((like->event_count + 1) * sizeof *out->seen);
    if (out->seen == NULL) return tm_error_nomem(e);
    double sum = 0;
    int64_t level = 0;
    for (size_t i = 0; i < like->event_count; i++) {
        int32_t size = losses ? like->events[i].out : like->events[i].in;
        if (i > 0 && size > 0) {
            out->seen[out->seen_count++] = (struct burst){level, size};
            sum += size;
        }
        level += like->events[i].in - like->events[i].out;
    }
    qsort(out->seen, out->seen_count, sizeof *out->seen, compare_bursts);
    out->mean = out->seen_count > 0 ? sum / (double)out->seen_count : 1;
    return 0;
}

static int target_like(const struct tm_trace_recipe *recipe, struct target *target, struct tm_error *e)
{
    const struct tm_trace *like = recipe->like;
    struct tm_trace_stats stats = tm_trace_stats(like);
    if (like->end_ms <= like->begin_ms) return tm_error_set(e, TM_EUSAGE, "the trace to match has no length");
    *target = (struct target){
        .instances_max = like->instances_max,
        .mean = stats.mean_available,
        .losses_per_s = (double)stats.loss_events / stats.duration_s,
        .interval_ms = recipe->interval_ms != 0 ? recipe->interval_ms : like->interval_ms,
        .duration_ms = recipe->duration_ms != 0 ? recipe->duration_ms : like->end_ms,
        .first_count = like->event_count > 0 ? like->events[0].in : 0,
    };
    int rc = collect_sizes(like, true, &target->losses, e);
    if (rc == 0) rc = collect_sizes(like, false, &target->arrivals, e);
    return rc;
}

static int target_from_figures(const struct tm_trace_recipe *recipe, struct target *target, struct tm_error *e)
{
    double burst = recipe->mean_burst > 0 ? recipe->mean_burst : 1;
    if (recipe->instances_max < 1 || recipe->instances_max > TM_TRACE_INSTANCES_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected between 1 and %d instances", TM_TRACE_INSTANCES_MAX);
    if (!(recipe->mean_available > 0 && recipe->mean_available <= (double)recipe->instances_max))
        return tm_error_set(e, TM_EUSAGE, "expected a mean above 0 and at most %lld, the most instances at a time",
                            (long long)recipe->instances_max);
    if (recipe->mtbf_ms < 1) return tm_error_set(e, TM_EUSAGE, "expected a mean time between preemptions above 0");
    if (!(burst >= 1 && burst <= (double)recipe->instances_max))
        return tm_error_set(e, TM_EUSAGE, "expected a burst from 1 to %lld, the most instances at a time",
                            (long long)recipe->instances_max);
    *target = (struct target){
        .instances_max = recipe->instances_max,
        .mean = recipe->mean_available,
        .losses_per_s = 1000.0 / (double)recipe->mtbf_ms,
        .losses = {.mean = burst},
        .arrivals = {.mean = burst},
        .interval_ms = recipe->interval_ms,
        .duration_ms = recipe->duration_ms != 0 ? recipe->duration_ms : 24 * 3600 * (int64_t)1000,
        .first_count = (int64_t)(recipe->mean_available + 0.5),
    };
    return 0;
}

/* ---- one made-up trace ---- */

/* One of the bursts seen at about this level: the nearest eighth of them, and those at the same distance. */
static int64_t draw_seen(const struct burst_sizes *sizes, int64_t level, struct tm_random *random)
{
    size_t wanted = sizes->seen_count / 8 > 4 ? sizes->seen_count / 8 : 4;
    if (wanted > sizes->seen_count) wanted = sizes->seen_count;
    size_t from = 0;
    while (from < sizes->seen_count && sizes->seen[from].level < level)
        from++;
    size_t to = from;
    while (to - from < wanted) { /* the nearer neighbour next */
        bool left = to == sizes->seen_count ||
                    (from > 0 && level - sizes->seen[from - 1].level <= sizes->seen[to].level - level);
        if (left)
            from--;
        else
            to++;
    }
    while (to < sizes->seen_count && sizes->seen[to].level == sizes->seen[to - 1].level)
        to++;
    while (from > 0 && sizes->seen[from - 1].level == sizes->seen[from].level)
        from--;
    return sizes->seen[from + tm_random_below(random, to - from)].size;
}

static int64_t draw_size(const struct burst_sizes *sizes, int64_t level, struct tm_random *random)
{
    if (sizes->seen_count > 0) return draw_seen(sizes, level, random);
    if (sizes->mean <= 1) return 1;
    double stop = 1 / sizes->mean; /* geometric on 1, 2, 3 ... */
    double unit = tm_random_unit(random);
    return 1 + (int64_t)(log1p(-unit) / log1p(-stop));
}

static int64_t on_grid(double time_s, int64_t interval_ms)
{
    int64_t grid_ms = interval_ms > 0 ? interval_ms : 1000;
    return (int64_t)(time_s * 1000 / (double)grid_ms + 0.5) * grid_ms;
}

/* Draws in exponential time: hazard accumulates at the present rate until it passes a drawn threshold, so that a
 * change of rate needs no new draw and nearby rates give nearby traces (which calibration needs). */
static int simulate(const struct target *target, struct rates rates, uint64_t seed, struct tm_trace *trace,
                    struct tm_error *e)
{
    struct tm_random loss_time = tm_random_make(seed, STREAM_LOSS_TIME);
    struct tm_random loss_size = tm_random_make(seed, STREAM_LOSS_SIZE);
    struct tm_random arrival_time = tm_random_make(seed, STREAM_ARRIVAL_TIME);
    struct tm_random arrival_size = tm_random_make(seed, STREAM_ARRIVAL_SIZE);
    double to_loss = tm_random_exponential(&loss_time, 1);
    double to_arrival = tm_random_exponential(&arrival_time, 1);
    double time_s = 0;
    double end_s = (double)target->duration_ms / 1000;
    int64_t count = target->first_count < target->instances_max ? target->first_count : target->instances_max;
    trace->event_count = 0;
    int rc = tm_trace_add(trace, 0, count, 0, NAN, e);
    while (rc == 0) {
        double room = (double)(target->instances_max - count) / (double)target->instances_max;
        double loss_rate = count > 0 ? rates.loss_per_s : 0;
        double arrival_rate = rates.arrival_per_s * 2 * room;
        double loss_in = loss_rate > 0 ? to_loss / loss_rate : INFINITY;
        double arrival_in = arrival_rate > 0 ? to_arrival / arrival_rate : INFINITY;
        double step = fmin(loss_in, arrival_in);
        if (time_s + step >= end_s) break;
        time_s += step;
        int64_t time_ms = on_grid(time_s, target->interval_ms);
        if (time_ms >= target->duration_ms) break;
        bool loss = loss_in <= arrival_in;
        to_loss = loss ? tm_random_exponential(&loss_time, 1) : to_loss - step * loss_rate;
        to_arrival = loss ? to_arrival - step * arrival_rate : tm_random_exponential(&arrival_time, 1);
        int64_t size = draw_size(loss ? &target->losses : &target->arrivals, count, loss ? &loss_size : &arrival_size);
        int64_t most = loss ? count : target->instances_max - count;
        if (size > most) size = most;
        count += loss ? -size : size;
        rc = tm_trace_add(trace, time_ms, loss ? 0 : size, loss ? size : 0, NAN, e);
    }
    trace->begin_ms = 0;
    trace->end_ms = target->duration_ms;
    trace->interval_ms = target->interval_ms;
    trace->instances_max = target->instances_max;
    return rc;
}

/* ---- calibration ---- */

static double relative_gap(double got, double wanted)
{
    return wanted > 0 ? fabs(got - wanted) / wanted : fabs(got);
}

static double misfit(const struct target *target, const struct tm_trace_stats *stats)
{
    double rate = (double)stats->loss_events / stats->duration_s;
    double gap = 2 * relative_gap(stats->mean_available, target->mean) + relative_gap(rate, target->losses_per_s);
    if (target->losses_per_s > 0 && stats->loss_events > 0) gap += relative_gap(stats->mean_burst, target->losses.mean);
    return gap;
}

/* Moves the rates towards the target. Odds of being full against the odds wanted tell which way the mean lies. */
static struct rates improve(const struct target *target, const struct tm_trace_stats *stats, struct rates rates)
{
    double most = (double)target->instances_max;
    double got_odds = (stats->mean_available + 0.01 * most) / (most * 1.01 - stats->mean_available);
    double wanted_odds = (target->mean + 0.01 * most) / (most * 1.01 - target->mean);
    double rate = ((double)stats->loss_events + 0.5) / stats->duration_s;
    double loss_step = target->losses_per_s > 0 ? target->losses_per_s / rate : 1;
    rates.arrival_per_s *= pow(wanted_odds / got_odds, 0.6) * pow(loss_step, 0.5);
    rates.loss_per_s *= pow(loss_step, 0.7);
    return rates;
}

static struct rates first_guess(const struct target *target)
{
    double most = (double)target->instances_max;
    double room = fmax(1 - target->mean / most, 0.02);
    double up = target->instances_max == 1 ? fmax(target->mean, 0.02) : 1;
    struct rates rates = {.loss_per_s = target->losses_per_s / up};
    double lost_per_s = target->losses_per_s * target->losses.mean;
    rates.arrival_per_s = lost_per_s / fmax(target->arrivals.mean, 1) / (2 * room);
    if (rates.arrival_per_s <= 0) rates.arrival_per_s = 1e-6;
    return rates;
}

/* A draw of the dice: the n-th of a seed. Draws differ by luck, most of all in short traces, so that the best of many
 * fits far better than the first. */
static uint64_t draw_seed(uint64_t seed, int draw)
{
    struct tm_random random = tm_random_make(seed, STREAM_DRAW);
    random.position = (uint64_t)draw;
    return draw == 0 ? seed : tm_random_u64(&random);
}

static int calibrate(const struct target *target, uint64_t seed, struct tm_trace *out, struct tm_error *e)
{
    struct rates rates = first_guess(target);
    struct rates best = rates;
    uint64_t best_seed = seed;
    double best_gap = INFINITY;
    int rc = 0;
    for (int draw = 0; rc == 0 && draw < DRAWS && best_gap > GOOD_ENOUGH; draw++) {
        uint64_t drawn = draw_seed(seed, draw);
        for (int round = 0; round < (draw == 0 ? FIRST_ROUNDS : LATER_ROUNDS) && best_gap > GOOD_ENOUGH; round++) {
            rc = simulate(target, rates, drawn, out, e);
            if (rc != 0) return rc;
            struct tm_trace_stats stats = tm_trace_stats(out);
            double gap = misfit(target, &stats);
            if (gap < best_gap) {
                best_gap = gap;
                best = rates;
                best_seed = drawn;
            }
            rates = improve(target, &stats, rates);
        }
        rates = best;
    }
    return rc == 0 ? simulate(target, best, best_seed, out, e) : rc;
}

int tm_trace_generate(const struct tm_trace_recipe *recipe, struct tm_trace *out, struct tm_error *e)
{
    struct target target = {0};
    int rc = recipe->like != NULL ? target_like(recipe, &target, e) : target_from_figures(recipe, &target, e);
    if (rc == 0 && (target.interval_ms < 0 || target.duration_ms < 1000 || target.interval_ms > target.duration_ms))
        rc = tm_error_set(e, TM_EUSAGE, "expected a duration of a second or more, and an interval no longer than it");
    if (rc == 0 && target.losses_per_s * (double)target.duration_ms / 1000 > TM_TRACE_EVENTS_MAX / 4)
        rc =
            tm_error_set(e, TM_ELIMIT, "more than %d preemptions; ask for a shorter duration", TM_TRACE_EVENTS_MAX / 4);
    struct tm_trace fresh;
    tm_trace_init(&fresh);
    if (rc == 0) rc = calibrate(&target, recipe->seed, &fresh, e);
    tm_free(target.losses.seen);
    tm_free(target.arrivals.seen);
    if (rc != 0) {
        tm_trace_deinit(&fresh);
        return rc;
    }
    (void)snprintf(fresh.format, sizeof fresh.format, "generated");
    (void)snprintf(fresh.source, sizeof fresh.source, "generated, seed %llu", (unsigned long long)recipe->seed);
    tm_trace_deinit(out);
    *out = fresh;
    return 0;
}
