#include "policy/rent_internal.h"

#include <math.h>

static const double last_share = 0.995; /* of the budget: what is under way is billed too */

/* The most on-demand instances that the money left pays to the end, beside the others. */
static int affordable(const struct tm_rent_view *view, int wanted, int spot)
{
    if (isinf(view->budget_usd) || isnan(view->on_demand_usd_h) || isnan(view->hours_left)) return wanted;
    double spot_usd_h = isnan(view->spot_usd_h) ? 0 : view->spot_usd_h;
    double left_usd = view->budget_usd - view->bill_usd;
    while (wanted > 0 && (wanted * view->on_demand_usd_h + spot * spot_usd_h) * view->hours_left > left_usd)
        wanted--;
    return wanted;
}

double tm_rent__left_usd(double budget_usd, double bill_usd)
{
    return budget_usd * last_share - bill_usd;
}

struct tm_rent tm_rent__decide(const struct tm_rent_view *view)
{
    struct tm_rent rent = {0};
    if (tm_rent__left_usd(view->budget_usd, view->bill_usd) <= 0) {
        rent.stop = true;
        return rent;
    }
    int training = view->on_demand;
    if (view->anchors_train && training < view->anchors) training = view->anchors;
    if (training > view->workers_max) training = view->workers_max;
    int beside = view->anchors_train ? 0 : view->anchors;
    int floor = view->anchors_train ? view->anchors : 0; /* copies are not saved at */
    int paid = affordable(view, training, view->workers_max - training);
    training = paid > floor ? paid : floor < training ? floor : training;
    rent.on_demand = training + beside;
    rent.spot = view->workers_max - training;
    return rent;
}
