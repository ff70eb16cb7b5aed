/* When spot instances alone will be late: how many on-demand ones to keep.
 *
 * An on-demand instance can be had at any time, so whoever waits keeps the chance that spot instances come by
 * themselves; but the later they are ordered, the more of them are needed at once, and the last ones of a large fleet
 * add least. So: with much slack wait, with some keep the average rate that the rest of the job needs, with little ask
 * for more than that, since forecasts are no promises; and at the last moment at which on-demand instances alone still
 * make it, take as many as there is room for. Of the counts that make it, the one whose samples cost least is kept: a
 * layout that divides evenly may do more for its money than one with an instance less. */
#include "policy/policy_internal.h"

#include <math.h>

static const double much_slack = 0.25; /* of the time that is left */
static const double ample_slack = 0.5; /* ... before the only ones that train are given back */
static const double little_slack = 0.1;
static const double safety = 0.05;           /* of the full fleet's throughput: starts, pauses, the last step */
static const double margin = 0.02;           /* beyond what is needed, when slack is little */
static const double give_back = 0.05;        /* beyond what is needed, before one is given back */
static const double nearly_sure = 0.1;       /* an instance that the forecast doubts less than this counts as there */
static const double cheaper = 0.05;          /* by so much a sample must be; else fewer, and wait for spot */
static const double usual_efficiency = 0.92; /* share of the best throughput, until there is some to measure */

/* Spot instances to count on: the mean of the forecast's last step, or what is there or about to be. */
static double spot_to_come(const struct tm_view *view)
{
    int spot = view->after - view->on_demand + view->spot_ordered;
    if (view->forecast == NULL || view->forecast->horizon < 1) return spot;
    double mean = view->forecast->steps[view->forecast->horizon - 1].mean;
    return mean < spot ? mean : spot;
}

/* The on-demand instances with which the fleet reaches a rate and a sample costs least; of those that differ little,
 * and where prices are not known, the fewest; all that fit if none reaches it. */
static int cheapest_for(const struct tm_layouts *layouts, const struct tm_view *view, double spot, double samples_per_s)
{
    int most = layouts->instances_max, counted = (int)(spot + nearly_sure), best = most;
    double least = INFINITY;
    double spot_usd_h = counted > 0 ? counted * view->spot_usd_h : 0;
    bool priced = view->on_demand_usd_h > 0 && spot_usd_h >= 0;
    for (int more = 0; more == 0 || counted + more <= most; more++) {
        int instances = counted + more < most ? counted + more : most;
        double rate = layouts->list[layouts->best[instances]].samples_per_s;
        if (rate < samples_per_s) continue;
        if (!priced || more == 0) return more;
        double usd = (spot_usd_h + more * view->on_demand_usd_h) / rate;
        if (usd >= least * (1 - cheaper)) continue;
        least = usd;
        best = more;
    }
    return best;
}

/* Late even with all instances as soon as they can be there, those that are here training until then. */
static bool is_hopeless(const struct tm_layouts *layouts, const struct tm_view *view)
{
    double most = layouts->list[layouts->best[layouts->instances_max]].samples_per_s;
    double now = layouts->list[layouts->best[view->after]].samples_per_s;
    double wait_s = view->on_demand > 0 ? 0 : fmin(view->start_s, view->seconds_left);
    return view->samples_left > now * wait_s + most * (view->seconds_left - wait_s);
}

int tm_policy__on_demand_needed(const struct tm_layouts *layouts, const struct tm_view *view)
{
    if (view->samples_left <= 0) return 0;
    double full = layouts->list[layouts->best[layouts->instances_max]].samples_per_s * (1 - safety);
    double left_s = view->seconds_left - view->start_s - view->interval_s;
    double slack_s = left_s - view->interval_s - (full > 0 ? view->samples_left / full : 0);
    if (is_hopeless(layouts, view)) return 0; /* late in any case: spend no more than it takes */
    if (slack_s <= 0) return layouts->instances_max;
    double needed = view->samples_left / left_s, spot = spot_to_come(view);
    double efficiency = isnan(view->efficiency) ? usual_efficiency : fmin(1, fmax(0.5, view->efficiency));
    int have = view->on_demand + view->ordered;
    bool alone = view->choices && have > 0 && spot + nearly_sure < 1; /* all pools are dry: nothing else would run */
    bool much = slack_s > (alone ? ample_slack : much_slack) * left_s, little = slack_s < little_slack * left_s;
    int want = much ? 0 : cheapest_for(layouts, view, spot, little ? needed * (1 + margin) / efficiency : needed);
    if (want >= have) return want;
    int keep = much ? 0 : cheapest_for(layouts, view, spot, needed * (1 + give_back) / efficiency);
    return keep < have ? keep : have;
}
