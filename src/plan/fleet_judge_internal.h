/* What the judge of fleets and its layouts share. */
#ifndef TM_PLAN_FLEET_JUDGE_INTERNAL_H
#define TM_PLAN_FLEET_JUDGE_INTERNAL_H

#include "plan/fleet_judge.h"

/* The mean life of a spot instance of a part; 0: it is never lost. */
int64_t tm_fleet_judge__life_ms(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                                const struct tm_plan_fleet *fleet, size_t part);

/* The closed form's bound against the judge's best answer; NaN where the judge found something below it. */
void tm_plan__set_bound(const struct tm_plan_request *request, struct tm_plan_result *out);

#endif
