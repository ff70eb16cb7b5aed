#include "policy/copy_interval_internal.h"

#include <math.h>

static const double most_s = 1800;
static const double steps_between = 10;
static const double unknown_copy_s = 1;

double tm_copy__loss_rate(const struct tm_copy_view *view)
{
    if (view->pipelines < 1 || view->stages < 1 || !(view->lost_per_s > 0)) return 0;
    /* One replica goes; each of the others goes in the same burst, or by itself before it is replaced. */
    double other = view->together + view->lost_per_s * view->exposed_s;
    if (other > 1) other = 1;
    return view->stages * view->pipelines * view->lost_per_s * pow(other, view->pipelines - 1);
}

double tm_copy__interval_s(const struct tm_copy_view *view)
{
    double copy_s = view->copy_s > 0 ? view->copy_s : unknown_copy_s;
    double cost_s = copy_s * view->slowed;
    double rate = tm_copy__loss_rate(view);
    double best_s = rate > 0 ? sqrt(2 * cost_s / rate) : INFINITY;
    double least_s = fmax(2 * copy_s, steps_between * view->step_s);
    return fmax(least_s, fmin(best_s, most_s));
}
