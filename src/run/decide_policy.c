#include "run/decide_policy.h"

#include "base/alloc.h"
#include "base/log.h"
#include "policy/copy_interval.h"
#include "policy/rent.h"
#include "run/fleet_watch.h"

#include <math.h>
#include <string.h>

enum { HORIZON = 12, LEFT_S = 5 };
/* With more instances the tables of migrations that a look through the forecast needs take longer to fill in than a
 * coordinator may be away: larger fleets decide by the event alone. Up to here a decision takes at most 0.1 s once,
 * mostly a few milliseconds, and then, with its tables filled in, under one. */
enum { FORECAST_INSTANCES_MAX = 64 };
static const double slowed_by_copies = 0.1; /* share of training's speed while a set is copied */
static const double exposed_s = 10;         /* from a loss until its stage has a replica again */

/* All that a decision depends on: asked the same again, as at every tick, the answer is at hand. */
struct question {
    int layout;
    int before;
    int lost;
    int after;
    int on_demand;
    int ordered;
    int observations; /* of the forecast */
    int hints;
    int left; /* to the deadline, in LEFT_S */
};

struct tm_policy_decider {
    struct tm_policy_rule rule;
    struct tm_policy *policy;
    struct tm_fleet_watch watch;
    struct tm_forecast forecast;
    struct question asked;
    bool answered;
    int answer;
    int on_demand; /* that the policy wants */
    bool warned;
};

int tm_policy_decider_create(const struct tm_policy_rule *rule, struct tm_policy_decider **out, struct tm_error *e)
{
    if (rule->info->knows != TM_KNOWS_PAST && rule->info->knows != TM_KNOWS_EVENT)
        return tm_error_set(e, TM_EUSAGE, "policy \"%s\" knows the future: it can be simulated, not run",
                            rule->info->name);
    struct tm_policy_decider *decider = tm_calloc(1, sizeof *decider);
    if (decider == NULL) return tm_error_nomem(e);
    decider->rule = *rule;
    int64_t interval_ms = (int64_t)(rule->interval_s * 1000);
    int rc = tm_policy_create(rule->info, rule->layouts, rule->migrations, rule->cost, &decider->policy, e);
    if (rc == 0) rc = tm_fleet_watch_init(&decider->watch, rule->info->forecast, interval_ms, HORIZON, e);
    if (rc != 0) {
        tm_policy_decider_destroy(decider);
        return rc;
    }
    *out = decider;
    return 0;
}

void tm_policy_decider_destroy(struct tm_policy_decider *decider)
{
    if (decider == NULL) return;
    tm_fleet_watch_deinit(&decider->watch);
    tm_policy_destroy(decider->policy);
    tm_free(decider);
}

/* ---- what is asked ---- */

static double speed_of(const struct tm_run_view *view)
{
    return view->cloud.known && view->cloud.speed > 0 ? view->cloud.speed : 1;
}

static int on_demand_here(const struct tm_run_view *view)
{
    int count = 0;
    for (size_t i = 0; i < view->cloud.instance_count; i++)
        count += !view->cloud.instances[i].spot && view->cloud.instances[i].end_ms == 0;
    return count;
}

static double seconds_left(const struct tm_policy_rule *rule, const struct tm_run_view *view)
{
    return rule->deadline_s - (double)view->elapsed_ms / 1000;
}

/* The fleet before and after this moment. Arrivals and losses since the generation started are this moment's event. */
static struct question ask_of(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    const struct tm_layouts *layouts = decider->rule.layouts;
    struct question question = {.before = (int)view->last_workers,
                                .after = (int)view->worker_count,
                                .observations = decider->watch.observations,
                                .hints = (int)decider->watch.hint_count};
    question.lost = (int)(view->last_workers - view->last_here);
    if (question.after > layouts->instances_max) question.after = layouts->instances_max;
    if (question.before > layouts->instances_max) question.before = layouts->instances_max;
    if (question.lost > question.before) question.lost = question.before;
    question.layout = tm_layouts_find(layouts, (int)view->last_pipelines, (int)view->last_stages);
    if (layouts->list[question.layout].instances > question.before) question.layout = TM_LAYOUT_PAUSE;
    int beside = decider->rule.anchors_train ? 0 : decider->rule.anchors; /* keep copies, do not train */
    int on_demand = on_demand_here(view) > beside ? on_demand_here(view) - beside : 0;
    question.on_demand = on_demand < question.after ? on_demand : question.after;
    question.ordered = decider->on_demand > on_demand ? decider->on_demand - on_demand : 0;
    if (decider->rule.deadline_s > 0) question.left = (int)(seconds_left(&decider->rule, view) / LEFT_S);
    return question;
}

/* ---- what the policy sees ---- */

/* The forecast for the next intervals; false: there is none. */
static bool look_ahead(struct tm_policy_decider *decider, double interval_s, struct tm_view *view,
                       struct tm_ahead ahead[HORIZON])
{
    struct tm_error e;
    bool told = decider->rule.info->knows == TM_KNOWS_EVENT;
    ahead[0] = (struct tm_ahead){interval_s, view->before, view->lost, view->after};
    for (int i = 1; i < HORIZON; i++)
        ahead[i] = (struct tm_ahead){interval_s, view->after, 0, view->after};
    view->ahead = ahead;
    view->ahead_count = HORIZON;
    if (decider->watch.forecaster == NULL || decider->watch.observations == 0) return false;
    if (decider->rule.layouts->instances_max > FORECAST_INSTANCES_MAX && decider->rule.info->knows == TM_KNOWS_EVENT)
        return false;
    if (tm_forecaster_predict(decider->watch.forecaster, HORIZON, &decider->forecast, &e) != 0) return false;
    view->forecast = &decider->forecast;
    view->forecast_from = decider->watch.count;
    view->observed = decider->watch.observations;
    if (told) return true;
    int path[HORIZON];
    for (int i = 0; i < HORIZON; i++)
        path[i] = decider->forecast.steps[i].point;
    tm_policy_ahead_of_path(decider->rule.layouts, interval_s, path, HORIZON, view->before, ahead);
    return true;
}

static void decide_layout(struct tm_policy_decider *decider, const struct question *question,
                          const struct tm_run_view *run)
{
    const struct tm_policy_rule *rule = &decider->rule;
    double interval_s = rule->interval_s;
    struct tm_ahead ahead[HORIZON];
    bool told = rule->info->knows == TM_KNOWS_EVENT;
    struct tm_view view = {.standing = {question->layout, 0},
                           .first = question->before == 0,
                           .event = told && (question->lost > 0 || question->after != question->before),
                           .before = question->before,
                           .lost = told ? question->lost : 0,
                           .after = told ? question->after : question->before,
                           .noticed = true,
                           .interval_s = interval_s,
                           .now_s = (double)run->elapsed_ms / 1000 * speed_of(run),
                           .on_demand = question->on_demand,
                           .ordered = question->ordered,
                           .start_s = rule->cost->start_s,
                           .has_deadline = rule->deadline_s > 0 && rule->samples_per_step > 0,
                           .samples_left = (double)(run->steps - run->applied) * rule->samples_per_step,
                           .seconds_left = seconds_left(rule, run) * speed_of(run),
                           .efficiency = NAN};
    (void)look_ahead(decider, interval_s, &view, ahead);
    struct tm_decision decision = {.layout = TM_LAYOUT_PAUSE};
    struct tm_error e;
    if (tm_policy_decide(decider->policy, &view, &decision, &e) != 0) {
        if (!decider->warned) tm_log(TM_LOG_WARN, "the policy has no answer, the fastest layout is used: %s", e.text);
        decider->warned = true;
        decision.layout = rule->layouts->best[question->after];
    }
    decider->answer = tm_policy_realise(rule->layouts, decision.layout, question->after);
    decider->on_demand = rule->info->on_demand ? rule->workers_max : decision.on_demand;
}

/* ---- copies and instances ---- */

static bool copy_due(const struct tm_policy_rule *rule, const struct tm_run_view *view)
{
    if (view->applied <= view->copied_step) return false;
    if (view->since_copy_ms < 0 || view->applied == view->steps) return true;
    int64_t every_ms = view->only_one_replica ? rule->copy_every_alone_ms : rule->copy_every_ms;
    if (every_ms > 0) return view->since_copy_ms >= every_ms;
    struct tm_fleet_losses losses = tm_fleet_losses_of(&view->cloud, (int64_t)(rule->interval_s * 1000));
    struct tm_copy_view copy = {.pipelines = (int)view->pipelines,
                                .stages = (int)view->stages,
                                .lost_per_s = losses.lost_per_s * losses.unannounced * speed_of(view),
                                .together = losses.together,
                                .copy_s = (double)view->copy_ms / 1000,
                                .slowed = slowed_by_copies,
                                .step_s = view->step_ms / 1000.0,
                                .exposed_s = exposed_s};
    return (double)view->since_copy_ms >= tm_copy_interval_s(&copy) * 1000;
}

static double usd_or_nan(uint64_t microusd)
{
    return microusd > 0 ? (double)microusd / 1e6 : NAN;
}

static void rent(const struct tm_policy_decider *decider, const struct tm_run_view *view, struct tm_run_decision *out)
{
    const struct tm_policy_rule *rule = &decider->rule;
    out->rents = rule->workers_max > 0;
    if (!out->rents) return;
    double samples_per_s = decider->answered ? rule->layouts->list[decider->answer].samples_per_s : 0;
    double samples_left = (double)(view->steps - view->applied) * rule->samples_per_step;
    double hours_left = samples_per_s > 0 ? samples_left / samples_per_s / 3600 : NAN;
    struct tm_rent_view asked = {.workers_max = rule->workers_max,
                                 .anchors = rule->anchors,
                                 .anchors_train = rule->anchors_train,
                                 .on_demand = decider->on_demand,
                                 .spot_usd_h = usd_or_nan(view->cloud.spot_microusd_h),
                                 .on_demand_usd_h = usd_or_nan(view->cloud.on_demand_microusd_h),
                                 .bill_usd = (double)view->cloud.bill_microusd / 1e6,
                                 .budget_usd = rule->budget_usd > 0 ? rule->budget_usd : INFINITY,
                                 .hours_left = hours_left};
    struct tm_rent rent = tm_rent_decide(&asked);
    out->want_spot = (uint32_t)rent.spot;
    out->want_on_demand = (uint32_t)rent.on_demand;
    out->stop = rent.stop;
}

static void decide(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    struct tm_policy_decider *decider = context;
    const struct tm_layouts *layouts = decider->rule.layouts;
    struct tm_error e;
    if (tm_fleet_watch_update(&decider->watch, &view->cloud, &e) != 0 && !decider->warned) {
        tm_log(TM_LOG_WARN, "no forecast: %s", e.text);
        decider->warned = true;
    }
    struct question question = ask_of(decider, view);
    bool enough = question.after >= decider->rule.workers_min && question.after > 0;
    *out = (struct tm_run_decision){.copy = copy_due(&decider->rule, view)};
    bool ask = enough || decider->rule.deadline_s > 0; /* with a deadline, on-demand instances may have to help */
    if (ask && (!decider->answered || memcmp(&question, &decider->asked, sizeof question) != 0)) {
        decide_layout(decider, &question, view);
        decider->asked = question;
        decider->answered = true;
    }
    rent(decider, view, out);
    if (!enough) return;
    const struct tm_layout *layout = &layouts->list[decider->answer];
    const struct tm_cut *cut = &layouts->cuts[layout->stages];
    bool fits = layout->pipelines > 0 && layout->stages <= TM_STAGES_MAX && layout->stages <= (int)view->layers &&
                layouts->layer_count == (int)view->layers;
    if (!fits) return;
    out->pipelines = (uint32_t)layout->pipelines;
    if (out->pipelines > view->micro_batches) out->pipelines = view->micro_batches;
    out->stages = (uint32_t)layout->stages;
    bool told = !decider->rule.steps_unknown;
    if (decider->rule.workers_max > 0 && !view->cloud.known) told = false; /* layouts are timed by the cloud's clock */
    out->predicted_step_ms = told ? (uint32_t)lround(layout->step_s * 1000 / speed_of(view)) : 0;
    for (int s = 0; s <= layout->stages; s++)
        out->stage_first[s] = (uint32_t)cut->first[s];
}

struct tm_decider tm_policy_decider_get(struct tm_policy_decider *decider)
{
    return (struct tm_decider){.context = decider, .decide = decide};
}
