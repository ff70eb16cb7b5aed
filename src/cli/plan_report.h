/* What plan prints: the table, the words behind it, the JSON document. */
#ifndef TM_CLI_PLAN_REPORT_H
#define TM_CLI_PLAN_REPORT_H

#include "cli/command.h"
#include "plan/advise.h"
#include "plan/replan.h"

struct tm_plan_report {
    const char *planner;
    const char *other_planner;
    const char *objective;
    const struct tm_plan_request *request;
    const struct tm_plan_result *result;
    const struct tm_plan_result *other;        /* the other planner's */
    const struct tm_plan_advice *advice;       /* NULL: none was asked for */
    const struct tm_plan_relaxation *relax;    /* where nothing was found */
    const struct tm_replan *running;           /* of a job that runs; NULL: of one that does not yet */
    const char *judge;                         /* how answers were judged */
    bool simulated;                            /* by the simulator; the bound is the closed form's */
    const struct tm_supply *supply;            /* what there was to choose from */
    bool for_skypilot;                         /* only of what SkyPilot offers */
    const char *batch_from;                    /* who said the batch: "as you said", "the model's", "assumed" */
    const struct tm_plan_larger_batch *larger; /* its batch 0: nothing worth telling */
    bool published;                            /* a planner of others, which looks at the price an hour alone */
    int64_t asked_ms;                          /* when live prices were asked for (UTC); 0: they were not */
    bool zones_by_region;                      /* zone names were taken as their region */
    const char *why_none;                      /* which options leave no offer; "": none of them by themselves */
    const struct tm_plan_answer
        *smallest; /* where the model fits nowhere that is allowed: what holds it; NULL: nothing */
};

void tm_plan_report_json(struct tm_cli *cli, const struct tm_plan_report *report);
int tm_plan_report_table(struct tm_cli *cli, const struct tm_plan_report *report, struct tm_error *e);
/* Nothing satisfies all constraints: what would, one relaxed at a time. -TM_ENONE. */
int tm_plan_report_nothing(const struct tm_plan_report *report, struct tm_error *e);

#endif
