#include "sim/bottleneck.h"

#include <math.h>

const struct tm_bottleneck_options tm_bottleneck__default = {.threshold = 0.067, .warmup_s = 30, .needed = 12};

static const double servers_busy = 0.75; /* share of the ceiling from which they are the likely cause */

const char *tm_bottleneck_words(enum tm_bottleneck_cause cause)
{
    switch (cause) {
    case TM_BOTTLENECK_NONE:
        return "as fast as predicted";
    case TM_BOTTLENECK_WORKER:
        return "one worker is slow: replace it";
    case TM_BOTTLENECK_REMOTE:
        return "workers in other regions are slow: move them to one region";
    case TM_BOTTLENECK_SERVERS:
        return "the parameter servers are the bottleneck: add one";
    case TM_BOTTLENECK_INPUT:
        return "all workers are slow: check input, storage and hosts";
    }
    return "";
}

void tm_bottleneck_init(struct tm_bottleneck *bottleneck, const struct tm_bottleneck_options *options)
{
    *bottleneck = (struct tm_bottleneck){.options = *options};
}

void tm_bottleneck__reset(struct tm_bottleneck *bottleneck)
{
    bottleneck->seen = 0;
}

/* Slow ones among the workers, by kind; and the slowest. */
struct census {
    size_t slow, remote, slow_remote, slowest;
};

static struct census count_workers(const struct tm_bottleneck_observation *seen, double threshold)
{
    struct census census = {0};
    for (size_t i = 0; i < seen->worker_count; i++) {
        bool remote = seen->worker_remote != NULL && seen->worker_remote[i];
        bool slow = seen->worker_ratio[i] < 1 - threshold;
        census.slow += slow;
        census.remote += remote;
        census.slow_remote += slow && remote;
        if (seen->worker_ratio[i] < seen->worker_ratio[census.slowest]) census.slowest = i;
    }
    return census;
}

static enum tm_bottleneck_cause find_cause(const struct tm_bottleneck_observation *seen, double threshold,
                                           size_t *out_worker)
{
    enum tm_bottleneck_cause all = seen->server_share >= servers_busy ? TM_BOTTLENECK_SERVERS : TM_BOTTLENECK_INPUT;
    if (seen->worker_ratio == NULL || seen->worker_count == 0) return all;
    struct census census = count_workers(seen, threshold);
    if (census.slow == 1 && seen->worker_count > 1) {
        *out_worker = census.slowest;
        return TM_BOTTLENECK_WORKER;
    }
    bool only_remote = census.slow > 0 && census.slow == census.slow_remote && census.remote < seen->worker_count;
    return only_remote ? TM_BOTTLENECK_REMOTE : all;
}

struct tm_bottleneck_verdict tm_bottleneck_observe(struct tm_bottleneck *bottleneck,
                                                   const struct tm_bottleneck_observation *observation)
{
    struct tm_bottleneck_verdict verdict = {TM_BOTTLENECK_NONE, 0, 0};
    const struct tm_bottleneck_observation *o = observation;
    bool counts = o->time_s >= bottleneck->options.warmup_s && isfinite(o->observed_steps_s) &&
                  o->observed_steps_s >= 0 && isfinite(o->predicted_steps_s) && o->predicted_steps_s > 0;
    if (!counts) return verdict;
    double shortfall = 1 - o->observed_steps_s / o->predicted_steps_s;
    size_t at = bottleneck->seen++ % TM_BOTTLENECK_WINDOW;
    bottleneck->slow[at] = shortfall > bottleneck->options.threshold;
    bottleneck->shortfall[at] = shortfall;
    size_t there = bottleneck->seen < TM_BOTTLENECK_WINDOW ? bottleneck->seen : TM_BOTTLENECK_WINDOW;
    int slow = 0;
    double sum = 0;
    for (size_t i = 0; i < there; i++) {
        slow += bottleneck->slow[i];
        sum += bottleneck->shortfall[i];
    }
    if (slow < bottleneck->options.needed || !bottleneck->slow[at]) return verdict;
    verdict.cause = find_cause(o, bottleneck->options.threshold, &verdict.worker);
    verdict.shortfall = sum / (double)there;
    return verdict;
}
