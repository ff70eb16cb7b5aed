/* The judge: what a job takes and costs under a policy, as a distribution and not as one outcome.
 *
 * The job is simulated several times. Each time what its spot instances live through is another draw (market/
 * trace_draw.h), and steps are slower or faster than predicted, by how unsure the prediction is: one quantile of it
 * each time, so that few runs cover all of it. Deadline, budget and anchors act in every run as they would in a real
 * one. `plan`, `simulate` and `run` ask this judge; the same questions get the same answers. */
#ifndef TM_SIM_JUDGE_H
#define TM_SIM_JUDGE_H

#include "market/trace_draw.h"
#include "sim/simulate.h"
#include "workload/estimate.h"

enum {
    TM_JUDGE_RUNS = 20, /* 19 of them are the 95% that a deadline is asked for by default */
    TM_JUDGE_RUNS_MAX = 64,
};

struct tm_judge {
    struct tm_env *env;
    const struct tm_sim_job *job;
    const struct tm_policy_info *policy;
    struct tm_sim_options options; /* samples_total above 0; from_ms and to_ms are of the trace */
    const struct tm_trace *trace;  /* as it will be replayed; NULL: one is drawn each time, up to to_ms ... */
    struct tm_draw draw;           /* ... by these figures: its number, draws and length are set here */
    /* With a trace: what might have happened instead, told apart by number as `draw` is. It widens the intervals of
     * time and cost, and nothing else. NULL: nothing. */
    const struct tm_draw *others;
    double deadline_s;   /* that runs are held against; 0: options.deadline_s, which the policy acts on */
    double step_spread;  /* of the logarithm of the step time; 0: it is known */
    double beside_usd_h; /* paid for as long as the job runs, whatever trains */
    double probability;  /* with which the job must finish, and sure_s must be enough; 0: 0.95 */
    int runs;            /* at least 1; 0: TM_JUDGE_RUNS */
};

struct tm_judged {
    bool finishes;             /* with the probability asked for */
    double p_finish;           /* share of the runs that finished before their budget or the simulated time ended */
    double p_deadline;         /* share of the runs that met the deadline; NaN: there is none */
    struct tm_estimate time_s; /* of the runs that finished; infinite where !finishes */
    struct tm_estimate bill_usd;
    double sure_s;   /* done by then with the probability; infinite where !finishes */
    double sure_usd; /* enough with the probability, of the runs that finished; infinite where !finishes */
    double paused_s; /* means over all runs */
    double changes;
    double samples;
};

int tm_judge_job(const struct tm_judge *judge, struct tm_judged *out, struct tm_error *e);

#endif
