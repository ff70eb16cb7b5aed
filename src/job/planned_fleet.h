/* The fleet that a job file describes by its pools, as the planner's judge takes it: same model, same knowledge, same
 * prices and losses, so that what is expected of it is what the plan said, to the last digit. */
#ifndef TM_JOB_PLANNED_FLEET_H
#define TM_JOB_PLANNED_FLEET_H

#include "job/knowledge.h"
#include "plan/fleet_judge.h"
#include "run/run_settings.h"

struct tm_planned_fleet {
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_knowledge knowledge;
    struct tm_trace trace; /* of the place, where the job names one */
    struct tm_offer offers[TM_PLAN_PARTS_MAX];
    struct tm_offer keepers;
    int64_t lives_ms[TM_PLAN_PARTS_MAX];
    struct tm_plan_request request;
    struct tm_plan_fleet fleet;
    struct tm_fleet_judge judge;
};

/* `out` is large: give it its own allocation; it is to be freed after any call. -TM_EINPUT: an instance type that the
 * catalogue has not got, or a fleet that cannot be judged; *out_known false: the job has no pools, or neither model nor
 * profile, so that nothing can be predicted. `path` is the job file. */
int tm_planned_fleet__init(struct tm_env *env, const char *path, const struct tm_run_settings *settings,
                           struct tm_planned_fleet *out, bool *out_known, struct tm_error *e);
void tm_planned_fleet__deinit(struct tm_planned_fleet *planned);

/* What is known of step times, for the planner. */
void tm_knowledge_supply(const struct tm_knowledge *knowledge, struct tm_supply_request *out);

#endif
