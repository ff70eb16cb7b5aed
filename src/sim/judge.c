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

/* `given`: what it lives through, and no longer than that; NULL: the trace. */
static int run_once(const struct tm_judge *judge, const struct tm_draw *given, int number, int runs,
                    struct outcome *out, struct tm_error *e)
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
    if (given != NULL) {
        struct tm_draw draw = *given;
        draw.number = number;
        draw.draws = runs;
        if (judge->trace == NULL) draw.length_ms = options.to_ms;
        options.from_ms = 0;
        options.to_ms = draw.length_ms;
        rc = tm_trace_draw(&draw, &drawn, e);
    }
    if (rc == 0)
        rc = tm_simulate(judge->env, judge->job, given == NULL ? judge->trace : &drawn, judge->policy, &options,
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

/* A drawn run is given up after the time it is given. On a recorded trace and without a deadline, spot instances may
 * just be away for long: then it is given four times as long, as often as that helps. */
static int run_to_end(const struct tm_judge *judge, int number, int runs, struct outcome *out, struct tm_error *e)
{
    enum { TRIES = 4 };
    struct tm_judge patient = *judge;
    bool limited = judge->deadline_s > 0 || judge->options.deadline_s > 0 || judge->options.budget_usd > 0;
    int tries = judge->trace != NULL || judge->draw.like == NULL || limited ? 1 : TRIES, rc = 0;
    for (int i = 0; i < tries; i++) {
        rc = run_once(&patient, judge->trace == NULL ? &judge->draw : NULL, number, runs, out, e);
        if (rc != 0 && i > 0) return rc == -(int)TM_ELIMIT ? 0 : rc; /* too long to simulate: it stays unfinished */
        if (rc != 0 || isfinite(out->time_s)) break;
        patient.options.to_ms *= 4;
    }
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

static void widen(struct tm_estimate *estimate, double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    struct tm_estimate other = estimate_of(values, count);
    estimate->p10 = fmin(estimate->p10, other.p10);
    estimate->p90 = fmax(estimate->p90, other.p90);
}

/* Eight times as long as it takes on the trace, then a run is given up: it says nothing of the interval. */
static int hear_others(const struct tm_judge *judge, struct tm_judged *out, struct tm_error *e)
{
    double times[TM_JUDGE_RUNS], bills[TM_JUDGE_RUNS];
    struct tm_draw draw = *judge->others;
    int count = 0;
    draw.length_ms = (int64_t)fmin(out->time_s.p90 * 8000 + 3.6e6, (double)(judge->options.to_ms));
    for (int i = 0; i < TM_JUDGE_RUNS; i++) {
        struct outcome outcome;
        int rc = run_once(judge, &draw, i, TM_JUDGE_RUNS, &outcome, e);
        if (rc != 0) return rc == -(int)TM_ELIMIT ? 0 : rc; /* too many losses to count */
        if (isinf(outcome.time_s)) continue;
        times[count] = outcome.time_s;
        bills[count++] = outcome.bill_usd;
    }
    if (count == 0) return 0;
    widen(&out->time_s, times, count);
    widen(&out->bill_usd, bills, count);
    return 0;
}

int tm_judge_job(const struct tm_judge *judge, struct tm_judged *out, struct tm_error *e)
{
    struct outcome outcomes[TM_JUDGE_RUNS_MAX];
    int runs = judge->runs > 0 ? judge->runs : TM_JUDGE_RUNS;
    assert(judge->policy != NULL && judge->options.samples_total > 0);
    if (runs > TM_JUDGE_RUNS_MAX)
        return tm_error_set(e, TM_ELIMIT, "at most %d simulations for one judgement", TM_JUDGE_RUNS_MAX);
    for (int i = 0; i < runs; i++) {
        int rc = run_to_end(judge, i, runs, &outcomes[i], e);
        if (rc != 0) return tm_error_wrap(e, rc, "simulating policy %s", judge->policy->name);
    }
    sum_up(judge, outcomes, runs, out);
    if (judge->trace == NULL || judge->others == NULL || !out->finishes) return 0;
    int rc = hear_others(judge, out, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "simulating policy %s", judge->policy->name);
}
