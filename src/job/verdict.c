#include "job/verdict.h"

#include "job/job_pools.h"

#include "base/units.h"
#include "policy/policy.h"

#include <math.h>
#include <string.h>

enum { WHY_BYTES_MAX = 1 << 14 };

static const double NOTABLY = 0.98; /* of the bill: less of a difference is not worth a word */

/* ---- the fleet ---- */

static void add_pool(struct tm_verdict *out, struct tm_job_pool pool)
{
    if (pool.count > 0 && out->fleet_count < TM_VERDICT_POOLS_MAX) out->fleet[out->fleet_count++] = pool;
}

/* Of pools to choose from, as many as there can be. */
static void take_choices(const struct tm_job_fleet *fleet, const struct tm_job_pools *known, struct tm_verdict *out)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++) {
        struct tm_job_pool pool = pools[i];
        pool.count = known->list[i].limit;
        if (!isnan(known->list[i].price_usd_h)) pool.usd_h_millionths = llround(known->list[i].price_usd_h * 1e6);
        add_pool(out, pool);
    }
}

static void take_fleet(const struct tm_job_fleet *fleet, const struct tm_trace *trace, struct tm_verdict *out)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        add_pool(out, pools[i]);
    if (count > 0) return;
    const char *zone = trace->zone[0] != '\0' ? trace->zone : NULL;
    add_pool(out, (struct tm_job_pool){.instance = fleet->instance,
                                       .zone = zone,
                                       .market = TM_POOL_SPOT,
                                       .role = TM_POOL_TRAINS,
                                       .count = fleet->limit - fleet->on_demand,
                                       .usd_h_millionths = fleet->spot_usd_h_millionths});
    bool trains = fleet->on_demand_trains != 0;
    add_pool(out,
             (struct tm_job_pool){
                 .instance = trains || fleet->anchor_instance[0] == '\0' ? fleet->instance : fleet->anchor_instance,
                 .zone = zone,
                 .market = TM_POOL_ON_DEMAND,
                 .role = trains ? TM_POOL_TRAINS : TM_POOL_KEEPS_COPIES,
                 .count = fleet->on_demand,
                 .usd_h_millionths = trains ? fleet->on_demand_usd_h_millionths : fleet->anchor_usd_h_millionths});
}

/* ---- what is expected ---- */

static void add_row(struct tm_verdict *out, const struct tm_run_expectation *expected, bool known, bool chosen)
{
    const struct tm_estimate unknown = {NAN, NAN, NAN};
    if (expected->policy == NULL) return;
    for (size_t i = 0; i < out->row_count; i++)
        if (strcmp(out->rows[i].policy, expected->policy) == 0) return;
    const struct tm_policy_info *info = tm_policy_find(expected->policy);
    out->rows[out->row_count++] = (struct tm_expected){.policy = expected->policy,
                                                       .time_s = known ? expected->time_s : unknown,
                                                       .bill_usd = known ? expected->bill_usd : unknown,
                                                       .sure_s = known ? expected->sure_s : NAN,
                                                       .p_deadline = known ? expected->p_deadline : NAN,
                                                       .paused_s = expected->paused_s,
                                                       .changes = expected->changes,
                                                       .on_demand = info != NULL && info->on_demand,
                                                       .chosen = chosen};
}

/* Nobody asked for an end: a job that trains longer than is simulated breaks no promise. */
static bool has_limits(const struct tm_job *job)
{
    return job->deadline_ms > 0 || job->budget_usd_millionths > 0;
}

/* Does it finish, on time and within the budget? */
static bool meets_deadline(const struct tm_job *job, const struct tm_expected *row)
{
    if (isnan(row->time_s.mean)) return true; /* nothing is known against it */
    if (!isfinite(row->time_s.mean)) return !has_limits(job);
    return (isnan(row->p_deadline) || row->p_deadline >= job->probability - 1e-9);
}

static bool keeps_budget(const struct tm_job *job, const struct tm_expected *row)
{
    double budget_usd = (double)job->budget_usd_millionths / 1e6;
    return job->budget_usd_millionths == 0 || isnan(row->bill_usd.mean) || row->bill_usd.mean <= budget_usd;
}

/* ---- in words ---- */

static const char *duration(double seconds, char text[TM_UNITS_TEXT_MAX])
{
    return tm_unit_print(TM_UNIT_DURATION, (int64_t)(seconds * 1000), text);
}

static double cents_above(double usd)
{
    return ceil(usd * 100 - 1e-6) / 100;
}

static void say_good(const struct tm_job *job, const struct tm_expected *row, struct tm_text *out)
{
    char time[TM_UNITS_TEXT_MAX];
    char deadline[TM_UNITS_TEXT_MAX];
    if (isnan(row->time_s.mean)) {
        tm_text_puts(out, "no time is predicted: what a step of run: takes is not known before it runs");
        return;
    }
    if (!isfinite(row->time_s.mean)) {
        tm_text_printf(out, "policy %s: it is not finished within the time that is simulated", row->policy);
        return;
    }
    tm_text_printf(out, "policy %s: about %s and $%.2f", row->policy, duration(row->time_s.mean, time),
                   row->bill_usd.mean);
    if (!isnan(row->p_deadline))
        tm_text_printf(out, "; the probability of meeting the deadline of %s is %.0f%%",
                       duration((double)job->deadline_ms / 1000, deadline), 100 * row->p_deadline);
    if (job->budget_usd_millionths > 0)
        tm_text_printf(out, "; within the budget of $%.2f", (double)job->budget_usd_millionths / 1e6);
}

/* What is in the way, and the nearest that is not. */
static void say_bad(const struct tm_job *job, const struct tm_expected *row, const struct tm_run_expectation *unlimited,
                    struct tm_text *out)
{
    char deadline[TM_UNITS_TEXT_MAX];
    char time[TM_UNITS_TEXT_MAX];
    bool late = !meets_deadline(job, row);
    if (!isfinite(row->time_s.mean)) {
        tm_text_printf(out, "policy %s does not finish the job", row->policy);
        if (job->budget_usd_millionths > 0)
            tm_text_printf(out, " within the budget of $%.2f", (double)job->budget_usd_millionths / 1e6);
        if (unlimited->policy != NULL && isfinite(unlimited->time_s.mean))
            tm_text_printf(out, "; with $%.2f and %s it does", cents_above(unlimited->sure_usd),
                           tm_unit_print_limit(unlimited->sure_s, time));
        return;
    }
    if (late)
        tm_text_printf(out, "the probability of meeting the deadline of %s is %.0f%%, below %g%%; %s can be met",
                       duration((double)job->deadline_ms / 1000, deadline), floor(100 * row->p_deadline),
                       100 * job->probability, tm_unit_print_limit(row->sure_s, time));
    if (!keeps_budget(job, row))
        tm_text_printf(out, "%sthe budget of $%.2f is not enough: about $%.2f is needed; $%.2f is enough",
                       late ? "; " : "", (double)job->budget_usd_millionths / 1e6, row->bill_usd.mean,
                       cents_above(row->bill_usd.p90));
}

static void say_others(const struct tm_job *job, const struct tm_verdict *verdict, struct tm_text *out)
{
    char time[TM_UNITS_TEXT_MAX];
    for (size_t i = 0; i < verdict->row_count; i++) {
        const struct tm_expected *row = &verdict->rows[i];
        if (row->chosen || !meets_deadline(job, row) || !keeps_budget(job, row)) continue;
        tm_text_printf(out, "; %s would do: about %s and $%.2f", row->policy, duration(row->time_s.mean, time),
                       row->bill_usd.mean);
    }
}

/* What would meet the limits, too, for less money. */
static void say_cheaper(const struct tm_job *job, const struct tm_verdict *verdict, struct tm_text *out)
{
    char time[TM_UNITS_TEXT_MAX];
    const struct tm_expected *chosen = &verdict->rows[0];
    for (size_t i = 1; i < verdict->row_count; i++) {
        const struct tm_expected *row = &verdict->rows[i];
        if (!meets_deadline(job, row) || !keeps_budget(job, row)) continue;
        if (isfinite(row->time_s.mean) && row->bill_usd.mean < NOTABLY * chosen->bill_usd.mean)
            tm_text_printf(out, "; policy %s would cost less: about %s and $%.2f", row->policy,
                           duration(row->time_s.mean, time), row->bill_usd.mean);
    }
}

int tm_verdict_make(const struct tm_job *job, const struct tm_run_plan *plan, const char *local, struct tm_arena *arena,
                    struct tm_verdict *out, struct tm_error *e)
{
    struct tm_text why;
    struct tm_run_expectation chosen = plan->chosen;
    bool known = !plan->speed_unknown;
    *out = (struct tm_verdict){0};
    if (plan->pools != NULL)
        take_choices(&job->fleet, plan->pools, out);
    else
        take_fleet(&job->fleet, &plan->trace, out);
    if (!known) chosen.policy = job->policy;
    add_row(out, &chosen, known, true);
    if (known) add_row(out, &plan->restart, true, false);
    if (known) add_row(out, &plan->on_demand, true, false);
    out->feasible = meets_deadline(job, &out->rows[0]) && keeps_budget(job, &out->rows[0]);
    tm_text_init(&why, WHY_BYTES_MAX);
    if (out->feasible)
        say_good(job, &out->rows[0], &why);
    else
        say_bad(job, &out->rows[0], &plan->unlimited, &why);
    if (!out->feasible) say_others(job, out, &why);
    if (out->feasible && known) say_cheaper(job, out, &why);
    if (local != NULL) tm_text_printf(&why, "; %s", local);
    int rc = tm_text_status(&why, e);
    out->why = rc == 0 ? tm_arena_strdup(arena, tm_text_string(&why)) : NULL;
    tm_text_deinit(&why);
    if (rc != 0) return rc;
    return out->why == NULL ? tm_error_nomem(e) : 0;
}

void tm_verdict_never(const struct tm_job *job, const char *why, struct tm_verdict *out)
{
    struct tm_trace none = {.zone = ""};
    const struct tm_estimate never = {INFINITY, INFINITY, INFINITY}, unknown = {NAN, NAN, NAN};
    struct tm_run_expectation chosen = {.policy = job->policy,
                                        .time_s = never,
                                        .bill_usd = unknown,
                                        .sure_s = INFINITY,
                                        .p_deadline = job->deadline_ms > 0 ? 0 : NAN};
    *out = (struct tm_verdict){.why = why};
    take_fleet(&job->fleet, &none, out);
    add_row(out, &chosen, true, true);
}
