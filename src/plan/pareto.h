/* The trade between money and time: fleets of which none is both cheaper and faster than another. */
#ifndef TM_PLAN_PARETO_H
#define TM_PLAN_PARETO_H

#include "plan/fleet_judge.h"

/* The cheapest, the fastest, and the fastest within budgets between; cheapest first, near-equal ones once. The closed
 * form finds them, the judge (NULL: nobody) says what they take and cost and which are left. The request's objective
 * does not matter; its constraints hold for all. Of `out` bound and gap are those of the cheapest. */
int tm_plan_pareto(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                   const struct tm_plan_request *request, struct tm_plan_result *out, struct tm_error *e);

#endif
