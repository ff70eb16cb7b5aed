/* Acquire, probe, predict again, plan again: the loop that a running job goes through, as one function.
 *
 * What was granted is probed (its links), its steps are watched (observed.h), and what is left of the job is weighed
 * anew on the fleet that runs. While deadline and budget still hold nothing changes. Once one fails, the rest is
 * planned afresh, with what was learned: types of the GPU whose steps were seen are as much faster or slower than
 * predicted as they were. No clock, no file: the runtime calls it with what it knows. */
#ifndef TM_PLAN_REPLAN_H
#define TM_PLAN_REPLAN_H

#include "plan/search.h"
#include "workload/observed.h"
#include "workload/probed_links.h"

struct tm_replan_state {
    const struct tm_plan_fleet *fleet; /* that runs */
    const struct tm_supply *home;      /* where it runs, if the new plan may not lie there; NULL: as the new one */
    double samples_done;
    double elapsed_s;
    double spent_usd;
    struct tm_observed *observed;        /* steps; NULL or empty: none yet */
    const struct tm_probed_links *links; /* NULL: not probed */
};

struct tm_replan {
    struct tm_plan_request left;   /* the request for what is left to do */
    struct tm_plan_answer running; /* the fleet that runs, judged for what is left */
    double factor;                 /* observed step time over the predicted one */
    bool holds;                    /* all constraints still do */
};

/* `supply` was made for the request; the rates of types that were observed are changed in it where a plan is made anew.
 * `next` gets that plan, where !holds (count 0: nothing satisfies what is left). -TM_EUSAGE: nothing is left to do. */
int tm_plan_replan(struct tm_supply *supply, const struct tm_plan_request *request, const struct tm_replan_state *state,
                   struct tm_replan *out, struct tm_plan_result *next, struct tm_error *e);

#endif
