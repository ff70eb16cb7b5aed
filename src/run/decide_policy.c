#include "run/decide_policy.h"

#include "base/alloc.h"
#include "base/log.h"
#include "layout/mixed.h"
#include "layout/recorded.h"
#include "policy/facts_record.h"
#include "run/fleet_watch.h"

#include <math.h>
#include <string.h>

enum {
    REFUSAL_MIN_S = 60,
    REFUSAL_MAX_S = 600,
    HORIZON = 12,
    STEPS_SEEN_MIN = 3,
    STEPS_SEEN_MAX = 20,
    RECORDED_MAX = 3 << 20
};

/* What a decision depends on beside the time that passes: asked the same again, as at every tick, the answer is at hand
 * until the next interval, or until the answer says. */
struct question {
    int layout;
    int migrating;
    int before;
    int lost;
    int after;
    int here[TM_POOLS_MAX];
    int ordered[TM_POOLS_MAX];
    int offered[TM_POOLS_MAX]; /* the next ones where there is a choice of pools */
    int leaving[TM_POOLS_MAX];
    int refused[TM_POOLS_MAX];
    int pool_lost[TM_POOLS_MAX];
    int price_microusd_h[TM_POOLS_MAX]; /* -1: not known */
    int observations;                   /* of the forecast */
    int hints;
    int interval;
    int copy_due;
    int only_one_replica;
    int limits_set; /* that were ordered: 1 a deadline, 2 a budget */
    int deadline_s;
    int budget_cents;
    int uneven_percent;
};

/* Steps of the standing layout, as they are told. */
struct steps_seen {
    int layout;
    uint64_t applied;
    int count;
    double mean_ms;
};

/* That a pool has no capacity is told only while too much is wanted of it: so it is remembered, and the pool is asked
 * again later, and later each time. Else the job would give back at once what it rents elsewhere instead. */
struct refusal {
    int arrived; /* of the pool, by then */
    double until_s;
    double wait_s;
};

struct tm_policy_decider {
    struct tm_policy_rule rule;
    struct tm_policy *policy;
    struct tm_fleet_watch watch;
    struct question asked;
    bool answered;
    struct tm_decision answer;
    double change_ms;       /* that the last change was expected to take */
    int spares;             /* that joined the running generation ... */
    uint64_t spares_of;     /* ... this one, and were given no seat: they are no news any more */
    int lost[TM_POOLS_MAX]; /* by pool, of which the policy was told */
    struct refusal refusals[TM_POOLS_MAX];
    struct steps_seen seen;
    double slower;       /* measured step time over predicted; 0: nothing measured yet */
    double best_samples; /* that the fastest layouts would have made since the first call ... */
    uint64_t applied;    /* ... the step then ... */
    double counted_s;    /* ... and up to when */
    bool counting;
    bool warned;
    const struct tm_decision_ear *ear; /* of the call under way */
    struct tm_policy_made made;
    struct tm_text options_text;
    struct tm_text layouts_text;
    struct tm_text cost_text;
};

/* Of an instance. */
static int workers_each(const struct tm_policy_decider *decider)
{
    return decider->rule.workers > 1 ? decider->rule.workers : 1;
}

static int observe(void *context, int count, int arrived, int lost, struct tm_error *e)
{
    struct tm_policy_decider *decider = context;
    count *= workers_each(decider);
    arrived *= workers_each(decider);
    lost *= workers_each(decider);
    int rc = tm_policy_observe(decider->policy, count, arrived, lost, e);
    if (rc == 0 && decider->ear != NULL) decider->ear->observed(decider->ear->context, count, arrived, lost);
    return rc;
}

static void hint(void *context, int losing, double in_s)
{
    struct tm_policy_decider *decider = context;
    losing *= workers_each(decider);
    tm_policy_hint(decider->policy, losing, in_s);
    if (decider->ear != NULL) decider->ear->hinted(decider->ear->context, losing, in_s);
}

/* As new: what a coordinator before this one was told is told again. */
static int begin(void *context, struct tm_error *e)
{
    struct tm_policy_decider *decider = context;
    const struct tm_policy_rule *rule = &decider->rule;
    struct tm_policy_options options = {.interval_s = rule->interval_s, .horizon = HORIZON, .live = true};
    struct tm_fleet_learner learner = {.context = decider, .observe = observe, .hint = hint};
    struct tm_policy *policy = NULL;
    int rc = tm_policy_create(rule->info, rule->layouts, rule->migrations, rule->cost, &options, &policy, e);
    if (rc != 0) return rc;
    tm_policy_destroy(decider->policy);
    decider->policy = policy;
    tm_fleet_watch__init(&decider->watch, &learner, (int64_t)(rule->interval_s * 1000));
    decider->answered = false;
    decider->answer = (struct tm_decision){.layout = TM_LAYOUT_PAUSE};
    decider->change_ms = 0;
    decider->spares = 0;
    memset(decider->lost, 0, sizeof decider->lost);
    memset(decider->refusals, 0, sizeof decider->refusals);
    decider->seen = (struct steps_seen){.layout = TM_LAYOUT_PAUSE};
    decider->slower = 0;
    decider->best_samples = 0;
    decider->counting = false;
    return 0;
}

/* For the record. Layouts without number are not worth their room there. */
static int describe(struct tm_policy_decider *decider, struct tm_error *e)
{
    struct tm_policy_options options = {.interval_s = decider->rule.interval_s, .horizon = HORIZON, .live = true};
    tm_text_init(&decider->options_text, RECORDED_MAX);
    tm_text_init(&decider->layouts_text, RECORDED_MAX);
    tm_text_init(&decider->cost_text, RECORDED_MAX);
    tm_policy_options_record(&options, &decider->options_text);
    tm_layouts_record(decider->rule.layouts, &decider->layouts_text);
    tm_cost_record(decider->rule.cost, &decider->cost_text);
    int rc = tm_text_status(&decider->options_text, e);
    if (rc == 0) rc = tm_text_status(&decider->cost_text, e);
    if (rc == 0) rc = tm_text_status(&decider->layouts_text, e);
    decider->made = (struct tm_policy_made){.name = decider->rule.info->name,
                                            .seed = options.seed,
                                            .options = &decider->options_text,
                                            .layouts = &decider->layouts_text,
                                            .cost = &decider->cost_text};
    if (rc == -(int)TM_ELIMIT) decider->made.name = NULL;
    return rc == -(int)TM_ELIMIT ? 0 : rc;
}

int tm_policy_decider_create(const struct tm_policy_rule *rule, struct tm_policy_decider **out, struct tm_error *e)
{
    if (!rule->info->runs)
        return tm_error_set(e, TM_EUSAGE, "policy \"%s\" %s: it can be simulated, not run", rule->info->name,
                            rule->info->knows > TM_KNOWS_EVENT ? "knows the future" : "is there to compare with");
    struct tm_policy_decider *decider = tm_calloc(1, sizeof *decider);
    if (decider == NULL) return tm_error_nomem(e);
    decider->rule = *rule;
    int rc = begin(decider, e);
    if (rc == 0) rc = describe(decider, e);
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
    tm_policy_destroy(decider->policy);
    tm_text_deinit(&decider->options_text);
    tm_text_deinit(&decider->layouts_text);
    tm_text_deinit(&decider->cost_text);
    tm_free(decider);
}

/* ---- the fleet ---- */

/* Before the cloud has spoken, as the job has it: the first decision may rent. */
static double speed_of(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    if (view->cloud.known && view->cloud.speed > 0) return view->cloud.speed;
    return !view->cloud.known && decider->rule.speed > 0 ? decider->rule.speed : 1;
}

/* The price of one worker, of what an instance costs. */
static double usd_each(const struct tm_policy_decider *decider, uint64_t microusd)
{
    return microusd > 0 ? (double)microusd / 1e6 / workers_each(decider) : NAN;
}

/* So many instances as workers; what is not known stays so. */
static int as_workers(const struct tm_policy_decider *decider, int64_t instances)
{
    return (int)(instances > 0 ? instances * workers_each(decider) : instances);
}

/* Workers of the cloud's instances that run, and of those of them that have a notice. */
static int running(const struct tm_policy_decider *decider, const struct tm_run_view *view, bool spot, int *out_leaving)
{
    int count = 0;
    *out_leaving = 0;
    for (size_t i = 0; i < view->cloud.instance_count; i++) {
        const Tmw__Instance *instance = &view->cloud.instances[i];
        if ((instance->spot != 0) != spot || instance->end_ms != 0) continue;
        count += workers_each(decider);
        *out_leaving += instance->announced != 0 ? workers_each(decider) : 0;
    }
    return count;
}

/* On-demand workers that have joined and may train. */
static int anchors_here(const struct tm_run_view *view)
{
    int count = 0;
    for (size_t i = 0; view->workers != NULL && i < view->worker_count; i++)
        count += view->workers[i].anchor;
    return count;
}

/* The last report's sum, and what has been paid since. */
static double bill_usd(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    double usd = (double)view->cloud.bill_microusd / 1e6, usd_h = 0;
    for (size_t i = 0; i < view->cloud.instance_count; i++)
        if (view->cloud.instances[i].end_ms == 0) usd_h += (double)view->cloud.instances[i].price_microusd_h / 1e6;
    return usd + usd_h * (double)view->cloud.ago_ms / 3.6e6 * speed_of(decider, view);
}

static int at_least_0(int value)
{
    return value > 0 ? value : 0;
}

static void show_pools(const struct tm_policy_decider *decider, const struct tm_run_view *view, struct tm_facts *facts)
{
    const struct tm_facts_limits *limits = &facts->limits;
    int leaving, none, beside = limits->anchors_train ? 0 : limits->anchors; /* keep copies, do not train */
    int spot = running(decider, view, true, &leaving), on_demand = running(decider, view, false, &none);
    int keeping = on_demand < beside ? on_demand : beside, joined = anchors_here(view);
    int training = joined < facts->after ? joined : facts->after;
    /* of those that run, more than are wanted are about to be released */
    int coming =
        decider->answered && decider->answer.rents ? decider->answer.want_on_demand - beside : on_demand - keeping;
    int spot_here = facts->after - training, spot_coming = at_least_0(spot - leaving - spot_here);
    /* what is measured of this cloud counts more than what was expected of it */
    double spot_start_s = decider->rule.cost->measured.join_s, on_demand_start_s = decider->rule.cost->start_s;
    double join_s = fmax(0, spot_start_s - decider->rule.spot_wait_s);
    if (view->cloud.spot_wait_ms > 0) spot_start_s = (double)view->cloud.spot_wait_ms / 1000 + join_s;
    if (view->cloud.on_demand_wait_ms > 0) on_demand_start_s = (double)view->cloud.on_demand_wait_ms / 1000 + join_s;
    /* What was asked for at the beginning is on its way, until the cloud has told of it or it should be there: workers
     * may join, and train, before that. */
    if (decider->answered && spot == 0 && facts->now_s <= spot_start_s)
        spot_coming = at_least_0(decider->answer.want_spot - leaving - spot_here);
    struct tm_pool *pools = facts->pools;
    pools[0] = (struct tm_pool){.market = TM_POOL_SPOT,
                                .role = TM_POOL_TRAINS,
                                .price_usd_h = usd_each(decider, view->cloud.spot_microusd_h),
                                .here = spot_here,
                                .leaving = leaving,
                                .ordered = spot_coming,
                                .offered = as_workers(decider, view->cloud.spot_offered),
                                .start_s = spot_start_s};
    pools[1] = (struct tm_pool){.market = TM_POOL_ON_DEMAND,
                                .role = TM_POOL_TRAINS,
                                .price_usd_h = usd_each(decider, view->cloud.on_demand_microusd_h),
                                .here = training,
                                .ordered = at_least_0(coming - training),
                                .offered = -1,
                                .start_s = on_demand_start_s};
    pools[2] = (struct tm_pool){.market = TM_POOL_ON_DEMAND,
                                .role = TM_POOL_KEEPS_COPIES,
                                .price_usd_h = pools[1].price_usd_h,
                                .here = keeping,
                                .offered = -1};
    facts->pool_count = beside > 0 ? 3 : 2;
}

/* ---- a choice of pools ---- */

/* Workers, of one group where there is a choice. */
struct crew {
    int here;
    int last_workers;
    int last_here;
};

static struct crew crew_of(const struct tm_policy_decider *decider, const struct tm_run_view *view, int group)
{
    const struct tm_policy_rule *rule = &decider->rule;
    struct crew crew = {0};
    if (rule->pool_count == 0)
        return (struct crew){(int)view->worker_count, (int)view->last_workers, (int)view->last_here};
    for (size_t i = 0; i < view->worker_count; i++) {
        int pool = view->workers[i].pool;
        crew.here += pool >= 0 && pool < rule->pool_count && rule->pools[pool].group == group;
    }
    for (int i = 0; i < rule->pool_count; i++) {
        if (rule->pools[i].group != group) continue;
        crew.last_workers += (int)view->last_workers_of[i];
        crew.last_here += (int)view->last_here_of[i];
    }
    return crew;
}

/* That the job trains in: by the last answer, or, of a coordinator that has just begun, by who trains. */
static int standing_group(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    const struct tm_policy_rule *rule = &decider->rule;
    uint32_t most = 0;
    int group = -1;
    if (rule->pool_count == 0) return 0;
    if (decider->answered) return decider->answer.group;
    for (int i = 0; i < rule->pool_count; i++) {
        if (view->last_workers_of[i] <= most) continue;
        most = view->last_workers_of[i];
        group = rule->pools[i].group;
    }
    return group;
}

/* What is measured of queues, beside what comes after the arrival. */
static double start_of(const struct tm_rule_pool *pool, const struct tm_run_pool *told)
{
    return told->wait_ms > 0 ? pool->start_s - pool->wait_s + (double)told->wait_ms / 1000 : pool->start_s;
}

/* Pools of anchors, behind the others. */
static void show_keepers(const struct tm_policy_decider *decider, const struct tm_run_view *view,
                         struct tm_facts *facts)
{
    const struct tm_policy_rule *rule = &decider->rule;
    facts->keeper_count = rule->keeper_count;
    for (int i = rule->pool_count; i < rule->pool_count + rule->keeper_count; i++) {
        const struct tm_run_pool *told = &view->cloud.pools[i];
        int here = 0;
        for (size_t k = 0; k < view->cloud.instance_count; k++)
            here += view->cloud.instances[k].pool == (uint32_t)i && view->cloud.instances[k].end_ms == 0;
        int starting = (int)told->starting, more = at_least_0(rule->pools[i].limit - here - starting);
        facts->pools[i] = (struct tm_pool){.market = rule->pools[i].market,
                                           .role = TM_POOL_KEEPS_COPIES,
                                           .zone = i,
                                           .price_usd_h = usd_each(decider, told->microusd_h),
                                           .here = as_workers(decider, here),
                                           .ordered = as_workers(decider, starting),
                                           .offered = as_workers(decider, more),
                                           .start_s = rule->pools[i].start_s,
                                           .region = rule->pools[i].region,
                                           .speed = 1};
    }
}

static void show_choices(const struct tm_policy_decider *decider, const struct tm_run_view *view,
                         struct tm_facts *facts)
{
    const struct tm_policy_rule *rule = &decider->rule;
    int running[TM_POOLS_MAX] = {0}, lost[TM_POOLS_MAX] = {0};
    facts->choices = true;
    facts->group = standing_group(decider, view);
    facts->move_usd = rule->move_usd;
    facts->far = rule->far;
    facts->pool_count = rule->pool_count;
    for (int i = 0; i < rule->pool_count; i++) {
        const struct tm_run_pool *told = &view->cloud.pools[i];
        facts->pools[i] = (struct tm_pool){
            .market = rule->pools[i].market,
            .role = TM_POOL_TRAINS,
            .zone = i,
            .price_usd_h = rule->pools[i].free && told->microusd_h == 0 ? 0 : usd_each(decider, told->microusd_h),
            .ordered = as_workers(decider, told->starting),
            .offered = as_workers(decider, told->offered),
            .limit = as_workers(decider, rule->pools[i].limit),
            .start_s = start_of(&rule->pools[i], told),
            .group = rule->pools[i].group,
            .region = rule->pools[i].region,
            .refused = as_workers(decider, told->refused),
            .speed = rule->pools[i].speed};
    }
    for (size_t i = 0; i < view->worker_count; i++)
        if (view->workers[i].pool >= 0 && view->workers[i].pool < rule->pool_count)
            facts->pools[view->workers[i].pool].here++;
    for (size_t i = 0; i < view->cloud.instance_count; i++) {
        const Tmw__Instance *instance = &view->cloud.instances[i];
        if (instance->pool >= (uint32_t)rule->pool_count) continue;
        running[instance->pool] += instance->end_ms == 0 && !instance->announced ? workers_each(decider) : 0;
        lost[instance->pool] += instance->end_ms != 0 && !instance->released ? workers_each(decider) : 0;
    }
    for (int i = 0; i < rule->pool_count; i++) { /* those whose workers have not joined yet are on their way, too */
        facts->pools[i].ordered += at_least_0(running[i] - facts->pools[i].here);
        facts->pools[i].lost = at_least_0(lost[i] - decider->lost[i]);
    }
    show_keepers(decider, view, facts);
}

/* Does it still count? Clocks jump. */
static bool is_fresh(const struct refusal *refusal, double now_s)
{
    return now_s < refusal->until_s && refusal->until_s - now_s <= refusal->wait_s;
}

static void remember_refusals(struct tm_policy_decider *decider, const struct tm_run_view *view, struct tm_facts *facts)
{
    int arrived[TM_POOLS_MAX] = {0}, ours = 0;
    for (size_t i = 0; i < view->cloud.instance_count; i++)
        if (view->cloud.instances[i].pool < (uint32_t)decider->rule.pool_count)
            arrived[view->cloud.instances[i].pool]++;
    for (int i = 0; i < decider->rule.pool_count; i++)
        ours += facts->pools[i].here + facts->pools[i].ordered;
    for (int i = 0; i < decider->rule.pool_count; i++) {
        struct refusal *refusal = &decider->refusals[i];
        struct tm_pool *pool = &facts->pools[i];
        if (arrived[i] > refusal->arrived) *refusal = (struct refusal){.until_s = 0};
        refusal->arrived = arrived[i];
        if (pool->refused > 0 && !is_fresh(refusal, facts->now_s)) {
            refusal->wait_s = fmin(fmax(2 * refusal->wait_s, REFUSAL_MIN_S), REFUSAL_MAX_S);
            refusal->until_s = facts->now_s + refusal->wait_s;
        }
        /* a job that has nothing asks all of them again */
        if (pool->offered < 0 && pool->refused == 0 && ours > 0 && is_fresh(refusal, facts->now_s))
            pool->refused = workers_each(decider);
    }
}

/* The cloud has not spoken yet: who trains, trains on. */
static bool waits_for_cloud(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    return decider->rule.pool_count > 0 &&
           (!view->cloud.known || view->cloud.pool_count < (size_t)decider->rule.pool_count);
}

/* ---- the fleet before and after ---- */

/* The fleet before and after this moment. Arrivals and losses since the generation started are this moment's event, but
 * for arrivals that the policy has already left without a seat. */
static void show_fleet(const struct tm_policy_decider *decider, const struct tm_run_view *view, struct tm_facts *facts)
{
    const struct tm_layouts *layouts = decider->rule.layouts;
    int most = layouts->instances_max;
    int spares = decider->spares_of == view->generation ? decider->spares : 0;
    struct crew crew = crew_of(decider, view, standing_group(decider, view));
    int others = at_least_0(crew.here - crew.last_here); /* than the generation's own */
    int before = crew.last_workers + spares < most ? crew.last_workers + spares : most;
    int after = crew.here < most ? crew.here : most;
    int lost = crew.last_workers - crew.last_here + at_least_0(spares - others);
    facts->first = before == 0;
    facts->before = before;
    facts->lost = lost < before ? lost : before;
    facts->after = after;
    facts->event = facts->lost > 0 || after != before;
    facts->noticed = true;
    facts->standing.layout = tm_layouts_find(layouts, (int)view->last_pipelines, (int)view->last_stages);
    if (layouts->list[facts->standing.layout].instances > before) facts->standing.layout = TM_LAYOUT_PAUSE;
    if (view->paused_ms > 0)
        facts->standing.migrating_ms = fmax(0, decider->change_ms - (double)view->paused_ms * facts->speed);
    if (decider->rule.pool_count > 0)
        show_choices(decider, view, facts);
    else
        show_pools(decider, view, facts);
}

/* ---- progress ---- */

/* The mean of the standing layout's last steps; of a few at least, since the first ones are slow. */
static double measured_step_s(struct tm_policy_decider *decider, const struct tm_run_view *view, int layout)
{
    struct steps_seen *seen = &decider->seen;
    if (seen->layout != layout) *seen = (struct steps_seen){.layout = layout, .applied = view->applied};
    if (view->step_ms > 0 && view->applied > seen->applied && view->paused_ms == 0) {
        if (seen->count < STEPS_SEEN_MAX) seen->count++;
        seen->mean_ms += (view->step_ms - seen->mean_ms) / seen->count;
    }
    seen->applied = view->applied;
    double step_s = seen->count >= STEPS_SEEN_MIN ? seen->mean_ms / 1000 * speed_of(decider, view) : 0;
    double predicted_s = decider->rule.layouts->list[layout].step_s;
    if (step_s > 0 && predicted_s > 0) decider->slower = step_s / predicted_s;
    return step_s;
}

/* Samples since the first call over what the fastest layouts would have made of the same fleets. */
static double efficiency(struct tm_policy_decider *decider, const struct tm_run_view *view,
                         const struct tm_facts *facts)
{
    const struct tm_layouts *layouts = decider->rule.layouts;
    if (!decider->counting) {
        decider->applied = view->applied;
        decider->counted_s = facts->now_s;
        decider->counting = true;
    }
    double slower = decider->slower > 0 ? decider->slower : 1;
    double passed_s = fmax(0, facts->now_s - decider->counted_s);
    decider->best_samples += layouts->list[layouts->best[facts->after]].samples_per_s / slower * passed_s;
    decider->counted_s = facts->now_s;
    if (decider->best_samples <= 0 || view->applied < decider->applied) return NAN;
    double made = (double)(view->applied - decider->applied) * decider->rule.samples_per_step;
    return made > 0 ? made / decider->best_samples : NAN;
}

/* In real time since the job began; 0: none. */
static double deadline_of(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    if (!view->limits.deadline_set || decider->rule.deadline_moot) return decider->rule.deadline_s;
    return view->limits.deadline_s / speed_of(decider, view);
}

static void fill_facts(struct tm_policy_decider *decider, const struct tm_run_view *view, struct tm_facts *facts)
{
    const struct tm_policy_rule *rule = &decider->rule;
    double speed = speed_of(decider, view), elapsed_s = (double)view->elapsed_ms / 1000;
    double deadline_s = deadline_of(decider, view);
    *facts = (struct tm_facts){
        .now_s = elapsed_s * speed,
        .speed = speed,
        .copies = {.since_s = view->since_copy_ms < 0 ? -1 : (double)view->since_copy_ms / 1000 * speed,
                   .uncopied = view->applied > view->copied_step,
                   .last = view->applied == view->steps,
                   .only_one_replica = view->only_one_replica,
                   .copy_s = (double)view->copy_ms / 1000 * speed,
                   .every_s = (double)rule->copy_every_ms / 1000 * speed,
                   .every_alone_s = (double)rule->copy_every_alone_ms / 1000 * speed},
        .losses = tm_fleet_losses__of(&view->cloud, (int64_t)(rule->interval_s * 1000)),
        .limits = {.workers_min = rule->workers_min > 1 ? rule->workers_min : 1,
                   .workers_max = as_workers(decider, rule->workers_max),
                   .workers_each = workers_each(decider),
                   .rent = rule->rent,
                   .anchors = as_workers(decider, rule->anchors),
                   .anchors_train = rule->anchors_train,
                   .seconds_left = (deadline_s - elapsed_s) * speed,
                   .budget_usd = view->limits.budget_set ? view->limits.budget_usd : rule->budget_usd,
                   .bill_usd = bill_usd(decider, view)}};
    if (workers_each(decider) > 1) facts->losses.together = 1;
    show_fleet(decider, view, facts);
    remember_refusals(decider, view, facts);
    facts->progress.step_s = measured_step_s(decider, view, facts->standing.layout);
    /* Nobody knows how far it is to the end before a step of a job's own command has been seen. */
    bool known = rule->samples_per_step > 0 && (!rule->steps_unknown || decider->slower > 0);
    facts->progress.samples_per_step = rule->samples_per_step;
    double steps_left = view->steps > view->applied ? (double)(view->steps - view->applied) : 0;
    facts->progress.samples_left = known ? steps_left * rule->samples_per_step : INFINITY;
    facts->progress.efficiency = efficiency(decider, view, facts);
    facts->progress.uneven = view->uneven > 1 ? view->uneven : 0;
    facts->limits.has_deadline = deadline_s > 0 && known;
}

/* ---- asking ---- */

static int price_microusd_h(double price_usd_h)
{
    return isfinite(price_usd_h) ? (int)lround(fmin(price_usd_h, 2000) * 1e6) : -1;
}

static struct question question_of(const struct tm_policy_decider *decider, const struct tm_run_limits *limits,
                                   const struct tm_facts *facts)
{
    const struct tm_facts_copies *copies = &facts->copies;
    struct question question;
    memset(&question, 0, sizeof question); /* compared byte by byte */
    question.layout = facts->standing.layout;
    question.migrating = facts->standing.migrating_ms > 0;
    question.before = facts->before;
    question.lost = facts->lost;
    question.after = facts->after;
    for (int i = 0; i < facts->pool_count + facts->keeper_count; i++) {
        question.here[i] = facts->pools[i].here;
        question.ordered[i] = facts->pools[i].ordered;
        if (!facts->choices) continue;
        question.offered[i] = facts->pools[i].offered;
        question.leaving[i] = facts->pools[i].leaving;
        question.refused[i] = facts->pools[i].refused;
        question.pool_lost[i] = facts->pools[i].lost;
        question.price_microusd_h[i] = price_microusd_h(facts->pools[i].price_usd_h);
    }
    question.observations = decider->watch.observations;
    question.hints = (int)decider->watch.hint_count;
    question.interval = (int)(facts->now_s / decider->rule.interval_s);
    question.copy_due = copies->uncopied && (copies->since_s < 0 || copies->last || !decider->answered ||
                                             copies->since_s >= decider->answer.copy_every_s);
    question.only_one_replica = copies->only_one_replica;
    question.limits_set = (limits->deadline_set ? 1 : 0) + (limits->budget_set ? 2 : 0);
    question.deadline_s = (int)fmin(limits->deadline_s, 1e9);
    question.budget_cents = (int)fmin(limits->budget_usd * 100, 1e9);
    question.uneven_percent = (int)lround(fmin(facts->progress.uneven, 1e6) * 100);
    return question;
}

/* Who is given no seat now has been seen. */
static void settle(struct tm_policy_decider *decider, const struct tm_run_view *view, const struct tm_facts *facts,
                   int layout)
{
    if (facts->first || facts->lost > 0 || layout != facts->standing.layout) return;
    decider->spares = at_least_0(facts->after - crew_of(decider, view, facts->group).last_here);
    decider->spares_of = view->generation;
}

static void ask(struct tm_policy_decider *decider, const struct tm_run_view *view, const struct tm_facts *facts)
{
    const struct tm_policy_rule *rule = &decider->rule;
    struct tm_error e;
    struct tm_decision decision;
    if (facts->choices) tm_policy_observe_pools(decider->policy, facts->now_s, facts->pools, facts->pool_count);
    int rc = tm_policy_decide(decider->policy, facts, &decision, &e);
    if (decider->ear != NULL) decider->ear->decided(decider->ear->context, facts, rc == 0 ? &decision : NULL);
    if (rc != 0) {
        if (!decider->warned) tm_log(TM_LOG_WARN, "the policy has no answer; using the fastest layout: %s", e.text);
        decider->warned = true;
        decision = decider->answer;
        decision.layout = rule->layouts->best[facts->after];
        decision.pace = 1;
    }
    int after = facts->after;
    if (facts->choices) { /* of the group that is to train */
        after = crew_of(decider, view, decision.group).here;
        if (after > rule->layouts->instances_max) after = rule->layouts->instances_max;
        for (int i = 0; i < facts->pool_count; i++)
            decider->lost[i] += facts->pools[i].lost;
    }
    decision.layout = tm_policy_realise(rule->layouts, decision.layout, after, facts->limits.workers_min);
    if (decision.layout != facts->standing.layout || facts->lost > 0) {
        double ms =
            tm_migrations_ms(rule->migrations, facts->before, facts->standing.layout, facts->lost, decision.layout);
        decider->change_ms = isnan(ms) ? 0 : ms;
    }
    settle(decider, view, facts, decision.layout);
    decider->answer = decision;
    decider->answered = true;
}

/* ---- what becomes of the answer ---- */

static uint32_t instances_for(const struct tm_policy_decider *decider, int workers)
{
    int each = workers_each(decider);
    return (uint32_t)((workers + each - 1) / each);
}

/* Of the instances that are to train, over what the layout says. */
static double mixed_speed(const struct tm_policy_decider *decider, const struct tm_run_view *view, int layout,
                          int group)
{
    const struct tm_policy_rule *rule = &decider->rule;
    int counts[TM_POOLS_MAX] = {0};
    double speeds[TM_POOLS_MAX] = {0};
    if (rule->pool_count == 0) return 1;
    for (int i = 0; i < rule->pool_count; i++)
        speeds[i] = rule->pools[i].speed;
    for (size_t i = 0; i < view->worker_count; i++) {
        int pool = view->workers[i].pool;
        if (pool >= 0 && pool < rule->pool_count && rule->pools[pool].group == group) counts[pool]++;
    }
    return fmax(1e-9, tm_layout_mixed(rule->layouts, layout, counts, speeds, rule->pool_count));
}

static void carry_out(const struct tm_policy_decider *decider, const struct tm_decision *answer,
                      const struct tm_run_view *view, struct tm_run_decision *out)
{
    const struct tm_layouts *layouts = decider->rule.layouts;
    const struct tm_layout *layout = &layouts->list[answer->layout];
    const struct tm_cut *cut = &layouts->cuts[layout->stages];
    const struct tm_policy_rule *rule = &decider->rule;
    *out = (struct tm_run_decision){.share = answer->share,
                                    .copy = answer->copy,
                                    .rents = answer->rents,
                                    .want_spot = instances_for(decider, answer->want_spot),
                                    .want_on_demand = instances_for(decider, answer->want_on_demand),
                                    .stop = answer->stop,
                                    .why = tm_why_words(answer->why)};
    for (int i = 0; i < rule->pool_count + rule->keeper_count; i++) {
        out->want[i] = instances_for(decider, answer->want[i]);
        if (i >= rule->pool_count) continue;
        if (rule->pools[i].group == answer->group) out->pools |= (uint64_t)1 << i;
    }
    bool fits = layout->pipelines > 0 && layout->stages <= TM_STAGES_MAX && layout->stages <= (int)view->layers &&
                layouts->layer_count == (int)view->layers;
    if (!fits) return;
    out->pipelines = (uint32_t)layout->pipelines;
    if (out->pipelines > view->micro_batches) out->pipelines = view->micro_batches;
    out->stages = (uint32_t)layout->stages;
    bool told = !decider->rule.steps_unknown;
    if (decider->rule.workers_max > 0 && !view->cloud.known) told = false; /* layouts are timed by the cloud's clock */
    out->predicted_step_ms = told ? (uint32_t)lround(layout->step_s / answer->pace /
                                                     mixed_speed(decider, view, answer->layout, answer->group) * 1000 /
                                                     speed_of(decider, view))
                                  : 0;
    for (int s = 0; s <= layout->stages; s++)
        out->stage_first[s] = (uint32_t)cut->first[s];
}

static void learn(struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    struct tm_error e;
    if (tm_fleet_watch__update(&decider->watch, &view->cloud, &e) == 0 || decider->warned) return;
    tm_log(TM_LOG_WARN, "no forecast: %s", e.text);
    decider->warned = true;
}

static void decide(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    struct tm_policy_decider *decider = context;
    struct tm_facts facts;
    bool told = decider->rule.info->knows != TM_KNOWS_PAST;
    if (waits_for_cloud(decider, view)) {
        int layout = tm_layouts_find(decider->rule.layouts, (int)view->pipelines, (int)view->stages);
        struct tm_decision same = {.layout = layout, .pace = 1};
        carry_out(decider, &same, view, out);
        return;
    }
    decider->ear = view->ear;
    if (told) learn(decider, view);
    fill_facts(decider, view, &facts);
    struct question question = question_of(decider, &view->limits, &facts);
    bool same = decider->answered && memcmp(&question, &decider->asked, sizeof question) == 0;
    if (!same || facts.now_s >= decider->answer.until_s) {
        ask(decider, view, &facts);
        decider->asked = question;
    }
    if (!told) learn(decider, view);
    decider->ear = NULL;
    carry_out(decider, &decider->answer, view, out);
}

struct tm_decider tm_policy_decider_get(struct tm_policy_decider *decider)
{
    return (struct tm_decider){.context = decider,
                               .begin = begin,
                               .made = decider->made.name != NULL ? &decider->made : NULL,
                               .decide = decide};
}
