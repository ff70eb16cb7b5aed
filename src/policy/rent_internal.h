/* How many instances to have: as many spot ones as the job can use, on-demand ones where the policy wants them (a
 * deadline) or copies need them (anchors), and no more than the budget can pay. A pure function. */
#ifndef TM_POLICY_RENT_INTERNAL_H
#define TM_POLICY_RENT_INTERNAL_H

#include <stdbool.h>

struct tm_rent_view {
    int workers_max; /* that train */
    int anchors;     /* on-demand instances that hold copies; they come on top unless they train too */
    bool anchors_train;
    int on_demand;     /* that the policy wants to train */
    double spot_usd_h; /* NaN: not known */
    double on_demand_usd_h;
    double bill_usd;
    double budget_usd; /* INFINITY: none */
    double hours_left; /* of work, with the fleet as it is; NaN: not known */
};

struct tm_rent {
    int spot;
    int on_demand;
    bool stop; /* the budget is used up */
};

struct tm_rent tm_rent__decide(const struct tm_rent_view *view);
/* What may still be spent before it stops. */
double tm_rent__left_usd(double budget_usd, double bill_usd);

#endif
