/* When spot instances alone will be late: how many on-demand ones to keep. */
#include "policy/policy_internal.h"

#include <math.h>

static const double margin = 0.05;           /* asked for beyond what is needed, since forecasts are not promises */
static const double give_back = 0.15;        /* and this much before one is given back: ordering again takes time */
static const double usual_efficiency = 0.85; /* share of the best throughput, until there is some to measure */

/* Spot instances to count on: the mean of the forecast's last step, or what is there. */
static double spot_to_come(const struct tm_view *view)
{
    int spot = view->after - view->on_demand;
    if (view->forecast == NULL || view->forecast->horizon < 1) return spot;
    double mean = view->forecast->steps[view->forecast->horizon - 1].mean;
    return mean < spot ? mean : spot;
}

/* The fewest on-demand instances with which the fleet reaches a rate; all that fit if none does. */
static int fewest_for(const struct tm_shapes *shapes, double spot, double samples_per_s)
{
    int most = shapes->nodes_max;
    for (int more = 0; more < most; more++) {
        int nodes = (int)spot + more < most ? (int)spot + more : most;
        if (shapes->list[shapes->best[nodes]].samples_per_s >= samples_per_s) return more;
    }
    return most;
}

int tm_policy__on_demand_needed(const struct tm_shapes *shapes, const struct tm_view *view)
{
    if (view->samples_left <= 0) return 0;
    double full = shapes->list[shapes->best[shapes->nodes_max]].samples_per_s;
    double efficiency = isnan(view->efficiency) ? usual_efficiency : fmin(1, fmax(0.2, view->efficiency));
    double left_s = view->seconds_left - view->start_s - view->interval_s;
    /* the last moment at which on-demand instances alone still make it: from there on, nothing is left to chance */
    if (left_s <= 0 || view->samples_left >= (1 - margin) * full * (left_s - view->interval_s))
        return shapes->nodes_max;
    double needed = view->samples_left / left_s / efficiency;
    double spot = spot_to_come(view);
    int want = fewest_for(shapes, spot, needed * (1 + margin));
    int have = view->on_demand + view->ordered;
    if (want >= have) return want;
    int keep = fewest_for(shapes, spot, needed * (1 + give_back));
    return keep < have ? keep : have;
}
