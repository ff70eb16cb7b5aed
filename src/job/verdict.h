/* What is said of a job before anything is rented: what its fleet is, what each way to run it is expected to take,
 * which one will run, and whether deadline and budget can be met. */
#ifndef TM_JOB_VERDICT_H
#define TM_JOB_VERDICT_H

#include "job/expectation.h"
#include "workload/estimate.h"

enum { TM_VERDICT_ROWS_MAX = 4, TM_VERDICT_POOLS_MAX = TM_FLEET_POOLS_MAX + 2 };

/* One way to run the job. Not known: NaN. */
struct tm_expected {
    const char *policy;
    struct tm_estimate time_s; /* of the cloud; infinite: it does not finish */
    struct tm_estimate bill_usd;
    double sure_s;     /* done by then with the probability that the job asks for */
    double p_deadline; /* NaN: no deadline, or nothing is predicted */
    double paused_s;
    double changes;
    bool on_demand; /* it rents on-demand instances alone */
    bool chosen;    /* this one will run */
};

struct tm_verdict {
    struct tm_job_pool fleet[TM_VERDICT_POOLS_MAX]; /* of what will run; borrowed texts, NULL: not known */
    size_t fleet_count;
    struct tm_expected rows[TM_VERDICT_ROWS_MAX]; /* exactly one is chosen */
    size_t row_count;
    bool feasible;   /* the chosen one meets deadline and budget, as far as anything is predicted */
    const char *why; /* in words: of the choice, of what cannot be met and the nearest that can; in the arena */
};

/* `local`: why the cloud cannot be this fleet, to be said too; NULL: it can. */
int tm_verdict_make(const struct tm_job *job, const struct tm_run_plan *plan, const char *local, struct tm_arena *arena,
                    struct tm_verdict *out, struct tm_error *e);
/* Of a job that nothing can train on this fleet; `why` is borrowed. */
void tm_verdict_never(const struct tm_job *job, const char *why, struct tm_verdict *out);

#endif
