#include "sim/judge.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct outcome {
    double time_s; /* infinite: not finished */
    double bill_usd;
    double paused_s;
    double changes;
    double samples;
};

/* ---- one run ---- */

/* Steps take their predicted time times this in run `number`: the runs' shares fill the range evenly, in an order that
 * goes with nothing else. */
static double step_factor(const struct tm_judge *judge, int number, int runs)
{
    if (!(judge->step_spread > 0)) return 1;
    int stride = runs % 3 != 0 ? 3 : 1;
    double share = ((number * stride + runs / 2) % runs + 0.5) / runs, spread = judge->step_spread;
    return exp(tm_normal_quantile(share) * spread - spread * spread / 2);
}

static int run_once(const struct tm_judge *judge, int number, int runs, struct outcome *out, struct tm_error *e)
{
    struct tm_sim_options options = judge->options;
    struct tm_sim_result result;
    struct tm_trace drawn;
    int rc = 0;
    /* Slower steps are more of them, for time and money. */
    double factor = step_factor(judge, number, runs);
    options.samples_total *= factor;
    options.seed += (uint64_t)number;
    tm_trace_init(&drawn);
    if (judge->trace == NULL) {
        struct tm_draw draw = judge->draw;
        draw.number = number;
        draw.draws = runs;
        draw.length_ms = options.to_ms;
        rc = tm_trace_draw(&draw, &drawn, e);
    }
    if (rc == 0)
        rc = tm_simulate(judge->env, judge->job, judge->trace != NULL ? judge->trace : &drawn, judge->policy, &options,
                         &result, NULL, e);
    if (rc == 0) {
        bool finished = !isnan(result.finished_at_s);
        double length_s = finished                     ? result.finished_at_s
                          : isnan(result.stopped_at_s) ? result.wall_s
                                                       : result.stopped_at_s;
        *out = (struct outcome){.time_s = finished ? result.finished_at_s : INFINITY,
                                .bill_usd = result.bill_usd + length_s / 3600 * judge->beside_usd_h,
                                .paused_s = result.pauses.migrate_s + result.pauses.rollback_s + result.pauses.idle_s +
                                            result.pauses.start_s,
                                .changes = result.reconfigurations,
                                .samples = result.samples / factor};
    }
    tm_trace_deinit(&drawn);
    return rc;
}

/* ---- all of them ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of values in order of size: the first `count`. */
static struct tm_estimate estimate_of(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return (struct tm_estimate){sum / count, values[count / 10], values[count - 1 - count / 10]};
}

static void sum_up(const struct tm_judge *judge, const struct outcome *outcomes, int runs, struct tm_judged *out)
{
    double probability = judge->probability > 0 ? judge->probability : 0.95;
    double times[TM_JUDGE_RUNS_MAX], bills[TM_JUDGE_RUNS_MAX];
    double deadline_s = judge->deadline_s > 0 ? judge->deadline_s : judge->options.deadline_s;
    int finished = 0, met = 0;
    *out = (struct tm_judged){.p_deadline = NAN, .sure_s = INFINITY, .sure_usd = INFINITY};
    for (int i = 0; i < runs; i++) {
        times[i] = outcomes[i].time_s;
        bills[i] = outcomes[i].bill_usd;
        finished += isfinite(times[i]);
        met += times[i] <= deadline_s;
        out->paused_s += outcomes[i].paused_s / runs;
        out->changes += outcomes[i].changes / runs;
        out->samples += outcomes[i].samples / runs;
    }
    qsort(times, (size_t)runs, sizeof *times, by_size);
    qsort(bills, (size_t)runs, sizeof *bills, by_size);
    int needed = (int)ceil(probability * runs - 1e-9);
    out->p_finish = (double)finished / runs;
    out->finishes = finished >= needed;
    if (deadline_s > 0) out->p_deadline = (double)met / runs;
    out->bill_usd = estimate_of(bills, runs);
    out->time_s = (struct tm_estimate){INFINITY, INFINITY, INFINITY};
    if (!out->finishes) return;
    out->time_s = estimate_of(times, finished);
    out->sure_s = times[needed > 0 ? needed - 1 : 0];
    out->sure_usd = bills[needed > 0 ? needed - 1 : 0];
}

int tm_judge_job(const struct tm_judge *judge, struct tm_judged *out, struct tm_error *e)
{
    struct outcome outcomes[TM_JUDGE_RUNS_MAX];
    int runs = judge->runs > 0 ? judge->runs : TM_JUDGE_RUNS;
    assert(judge->policy != NULL && judge->options.samples_total > 0);
    if (runs > TM_JUDGE_RUNS_MAX)
        return tm_error_set(e, TM_ELIMIT, "at most %d simulations for one judgement", TM_JUDGE_RUNS_MAX);
    for (int i = 0; i < runs; i++) {
        int rc = run_once(judge, i, runs, &outcomes[i], e);
        if (rc != 0) return tm_error_wrap(e, rc, "simulating policy %s", judge->policy->name);
    }
    sum_up(judge, outcomes, runs, out);
    return 0;
}
