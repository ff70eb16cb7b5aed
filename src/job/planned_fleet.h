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
    struct tm_cost cost;       /* of migrations, where one is given */
    struct tm_job_fleet asked; /* its texts and pools are borrowed, and not used */
};

/* `out` is large: give it its own allocation; it is to be freed after any call. -TM_EINPUT: an instance type that the
 * catalogue has not got, or a fleet that cannot be judged; *out_known false: the job has no pools, or neither model nor
 * profile, so that nothing can be predicted. */
int tm_planned_fleet__init(struct tm_env *env, const struct tm_run_settings *settings, struct tm_planned_fleet *out,
                           bool *out_known, struct tm_error *e);
void tm_planned_fleet__deinit(struct tm_planned_fleet *planned);

enum { TM_PLANNED_BATCH = 256 }; /* samples of a step, where neither job nor model says */
/* The job's micro-batch size, which is fixed for life; 0: it says none that divides the batch. */
int tm_planned_micro_batch(const struct tm_job *job, int64_t batch);
/* What checkpoints and restarts take, for the planner: as said (checkpoint_ms > 0, restart_ms >= 0), else as usual, by
 * the bytes of the weights and the optimizer's state, which it returns. */
double tm_planned_times(const struct tm_model *model, int64_t checkpoint_ms, int64_t restart_ms,
                        struct tm_expect_job *out);
/* What is known of step times, for the planner. */
void tm_knowledge_supply(const struct tm_knowledge *knowledge, struct tm_supply_request *out);

#endif
