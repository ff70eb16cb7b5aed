#include "policy/policy_internal.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>
#include <strings.h>

const struct tm_policy_info tm_policies[] = {
    {.name = "ideal",
     .summary = "the fastest layout in every interval, with no pauses: a bound that cannot be reached",
     .knows = TM_KNOWS_EVENT,
     .free = true,
     .forecast = -1,
     .choice = TM_CHOICE_BOUND,
     .decide = tm_policy__ideal},
    {.name = "on-demand",
     .summary = "only on-demand instances, which are never preempted",
     .knows = TM_KNOWS_EVENT,
     .on_demand = true,
     .forecast = -1,
     .decide = tm_policy__fixed},
    {.name = "reactive",
     .summary = "the fastest layout after each event; the whole fleet restarts from a checkpoint",
     .knows = TM_KNOWS_EVENT,
     .runs = true,
     .forecast = -1,
     .decide = tm_policy__reactive},
    {.name = "checkpoint",
     .summary = "like Varuna: the fastest layout after each event; work since the last checkpoint is redone",
     .knows = TM_KNOWS_EVENT,
     .checkpoints = true,
     .runs = true,
     .forecast = -1,
     .decide = tm_policy__checkpoint},
    {.name = "redundant",
     .summary = "like Bamboo: a fixed depth; each instance shadows its neighbour",
     .knows = TM_KNOWS_EVENT,
     .forecast = -1,
     .decide = tm_policy__redundant},
    {.name = "parcae",
     .summary = "Parcae: its forecast and optimizer; decides before the event",
     .knows = TM_KNOWS_PAST,
     .ticks_only = true,
     .runs = true,
     .forecast = TM_FORECAST_PARCAE,
     .decide = tm_policy__parcae},
    {.name = "parcae-notice",
     .summary = "Parcae's optimizer, told of this interval's event, with a flat forecast after it",
     .knows = TM_KNOWS_EVENT,
     .ticks_only = true,
     .runs = true,
     .forecast = -1,
     .decide = tm_policy__parcae},
    {.name = "parcae-truth",
     .summary = "Parcae's optimizer, given the true next intervals",
     .knows = TM_KNOWS_NEXT,
     .forecast = -1,
     .decide = tm_policy__parcae},
    {.name = "tidemill",
     .summary = "ours: best expected throughput over our forecast; decides at each event and notice",
     .knows = TM_KNOWS_EVENT,
     .step_in_flight = true,
     .runs = true,
     .deadlines = true,
     .forecast = TM_FORECAST_TIDEMILL,
     .choice = TM_CHOICE_OURS,
     .decide = tm_policy__tidemill},
    {.name = "oracle",
     .summary = "the best possible, knowing the whole trace: a bound for all but ideal",
     .knows = TM_KNOWS_ALL,
     .forecast = -1,
     .choice = TM_CHOICE_BOUND,
     .decide = tm_policy__oracle},
    {.name = "single",
     .summary = "of pools: the best one alone, known afterwards; layouts as ours",
     .knows = TM_KNOWS_EVENT,
     .step_in_flight = true,
     .forecast = TM_FORECAST_TIDEMILL,
     .choice = TM_CHOICE_ONE,
     .choice_only = true,
     .decide = tm_policy__tidemill},
    {.name = "failover",
     .summary = "of pools, like SkyPilot's managed jobs: after a preemption the whole job goes to the next by price",
     .knows = TM_KNOWS_EVENT,
     .step_in_flight = true,
     .forecast = TM_FORECAST_TIDEMILL,
     .choice = TM_CHOICE_FAILOVER,
     .choice_only = true,
     .decide = tm_policy__tidemill},
    {.name = "spread",
     .summary = "of pools, like SkyServe: evenly over those that are not short, the rest on demand",
     .knows = TM_KNOWS_EVENT,
     .step_in_flight = true,
     .forecast = TM_FORECAST_TIDEMILL,
     .choice = TM_CHOICE_SPREAD,
     .choice_only = true,
     .decide = tm_policy__tidemill},
    {.name = NULL},
};

const struct tm_policy_info *tm_policy_find(const char *name)
{
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++)
        if (strcasecmp(info->name, name) == 0) return info;
    return NULL;
}

static int make_forecaster(struct tm_policy *policy, struct tm_error *e)
{
    if (policy->info->forecast < 0) return 0;
    struct tm_forecaster_options options = {.method = (enum tm_forecast_method)policy->info->forecast,
                                            .interval_ms = (int64_t)(policy->options.interval_s * 1000),
                                            .horizon_max = policy->options.horizon,
                                            .seed = policy->options.seed};
    return tm_forecaster_create(&options, &policy->forecaster, e);
}

int tm_policy_create(const struct tm_policy_info *info, const struct tm_layouts *layouts,
                     struct tm_migrations *migrations, const struct tm_cost *cost,
                     const struct tm_policy_options *options, struct tm_policy **out, struct tm_error *e)
{
    struct tm_policy *policy = tm_calloc(1, sizeof *policy);
    if (policy == NULL) return tm_error_nomem(e);
    policy->info = info;
    policy->layouts = layouts;
    policy->migrations = migrations;
    policy->cost = cost;
    policy->options = *options;
    policy->slower = 1;
    int rc = tm_lookahead__create(layouts, migrations, &policy->lookahead, e);
    policy->candidates = tm_calloc(layouts->count, sizeof *policy->candidates);
    policy->ranked = tm_calloc(layouts->count, sizeof *policy->ranked);
    if (rc == 0 && (policy->candidates == NULL || policy->ranked == NULL)) rc = tm_error_nomem(e);
    if (rc == 0) rc = make_forecaster(policy, e);
    if (rc == 0 && info->choice != TM_CHOICE_NONE) {
        policy->pools = tm_alloc(sizeof *policy->pools);
        if (policy->pools == NULL)
            rc = tm_error_nomem(e);
        else
            tm_learned_pools__init(policy->pools);
    }
    if (rc != 0)
        tm_policy_destroy(policy);
    else
        *out = policy;
    return rc;
}

void tm_policy_destroy(struct tm_policy *policy)
{
    if (policy == NULL) return;
    tm_forecaster_destroy(policy->forecaster);
    tm_deadline_values_destroy(policy->values);
    tm_lookahead__destroy(policy->lookahead);
    tm_free(policy->pools);
    tm_free(policy->plan);
    tm_free(policy->candidates);
    tm_free(policy->ranked);
    tm_free(policy);
}

int tm_policy__ask(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    struct tm_decision decision = {.layout = view->standing.layout,
                                   .change = TM_CHANGE_MIGRATE,
                                   .pace = 1,
                                   .want_on_demand = view->on_demand,
                                   .until_s = INFINITY};
    bool bound = view->choices && policy->info->choice == TM_CHOICE_BOUND; /* who knows all pays nothing there */
    int rc = (bound ? tm_policy__ideal : policy->info->decide)(policy, view, &decision, e);
    if (rc == 0) *out = decision;
    return rc;
}

int tm_policy_realise(const struct tm_layouts *layouts, int layout, int instances, int workers_min)
{
    const struct tm_layout *wanted = &layouts->list[layout];
    if (instances < workers_min) return TM_LAYOUT_PAUSE;
    if (wanted->instances <= instances) return layout;
    int pipelines = instances / wanted->stages;
    return pipelines > 0 ? tm_layouts_find(layouts, pipelines, wanted->stages) : tm_layouts_find(layouts, 1, instances);
}

void tm_policy_ahead_of_path(const struct tm_layouts *layouts, double interval_s, const int *path, size_t count,
                             int before, struct tm_ahead *out)
{
    int floor = layouts->stages_min, least = path[0];
    for (size_t i = 1; i < count; i++)
        if (path[i] < least) least = path[i];
    for (size_t i = 0; i < count; i++) {
        int after = least < floor ? floor : path[i]; /* Parcae never plans for less than its smallest layout */
        if (after > layouts->instances_max) after = layouts->instances_max;
        out[i] = (struct tm_ahead){interval_s, before, before > after ? before - after : 0, after};
        before = after;
    }
}
