#include "sim/gang.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A finish this close to the deadline meets it: times are sums of seconds. */
static const double SAME_S = 1e-3;
/* The clock never stands still, whatever a policy asks for. */
static const double LEAST_STEP_S = 1e-6;
/* How fast a learner forgets. */
static const double MEMORY_S = 24 * 3600.0;
enum { DECISIONS_MAX = 1 << 22 };

/* From a time on a pool has so many instances for the gang, which never has more than it needs. */
struct change {
    double time_s; /* since the start of the job; less than 0: known history */
    int pool;
    int capacity;
};

struct pool {
    const struct tm_gang_pool *is;
    bool beside;   /* there are others in its group: parts of a gang are of use */
    int whole;     /* it has room: for the gang, or all that it ever has */
    int capacity;  /* now */
    bool is_short; /* tm_gang_pool_now.is_short */
    struct tm_spells spells;
};

struct world {
    struct tm_deadline_policy policy;
    enum tm_gang_choice choice;
    struct tm_deadline_terms terms;
    int gang;
    struct pool pools[TM_GANG_PLACES_MAX];
    int count;
    int group_count;
    struct change *changes; /* owned, by time */
    size_t change_count;
    size_t change_capacity;
    size_t next; /* change */
    struct tm_spells learned;
    struct tm_deadline_view view;
    int shares[TM_GANG_PLACES_MAX]; /* of the gang that is on spot */
    int last;                       /* tm_gang_pools_now.last */
    double start_left_s;            /* of on-demand instances that were asked for */
    double end_s;                   /* of the trace that ends first */
    bool at_cheapest;               /* the oracle's spot: one place, at the cheapest price of all */
    struct tm_gang_result *result;
};

/* ---- what the traces say ---- */

/* What is of use to a gang: of a pool that is alone in its group, all or nothing. */
static int useful(const struct world *w, const struct pool *pool, int64_t in_trace)
{
    int most = pool->is->limit < w->gang ? pool->is->limit : w->gang;
    int capacity = in_trace < most ? (int)in_trace : most;
    return pool->beside || capacity >= w->gang ? capacity : 0;
}

static int add_change(struct world *w, double time_s, int pool, int capacity, struct tm_error *e)
{
    int rc =
        tm_grow((void **)&w->changes, &w->change_capacity, w->change_count + 1, sizeof *w->changes, TM_GANG_SPELLS_MAX);
    if (rc == -TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "spot availability changes more than %d times; cut the traces",
                            TM_GANG_SPELLS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    w->changes[w->change_count++] = (struct change){.time_s = time_s, .pool = pool, .capacity = capacity};
    return 0;
}

/* A pool has nothing behind the end of its trace. */
static int list_pool(struct world *w, int number, struct tm_error *e)
{
    const struct pool *pool = &w->pools[number];
    const struct tm_trace *trace = pool->is->trace;
    int64_t count = 0;
    int before = -1, rc = 0;
    for (size_t i = 0; rc == 0 && i < trace->event_count; i++) {
        count += trace->events[i].in - trace->events[i].out;
        int capacity = useful(w, pool, count);
        if (capacity == before) continue;
        if (i + 1 < trace->event_count && trace->events[i + 1].time_ms == trace->events[i].time_ms) continue;
        rc = add_change(w, (double)(trace->events[i].time_ms - pool->is->from_ms) / 1000, number, capacity, e);
        before = capacity;
    }
    double end_s = (double)(trace->end_ms - pool->is->from_ms) / 1000;
    w->end_s = fmin(w->end_s, end_s);
    if (rc == 0 && before > 0) rc = add_change(w, end_s, number, 0, e);
    return rc;
}

static int by_time(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    if (a->pool != b->pool) return a->pool < b->pool ? -1 : 1;
    return (a->capacity < b->capacity) - (a->capacity > b->capacity); /* the end of a trace is the last */
}

static int list_changes(struct world *w, struct tm_error *e)
{
    int rc = 0;
    w->end_s = INFINITY;
    for (int i = 0; rc == 0 && i < w->count; i++)
        rc = list_pool(w, i, e);
    if (rc == 0 && w->change_count > 0) qsort(w->changes, w->change_count, sizeof *w->changes, by_time);
    return rc;
}

/* Which groups have room for the gang now, a bit for each. */
static uint64_t groups_up(const struct world *w)
{
    int sums[TM_GANG_PLACES_MAX] = {0};
    uint64_t up = 0;
    for (int i = 0; i < w->count; i++)
        sums[w->pools[i].is->group] += w->pools[i].capacity;
    for (int g = 0; g < w->group_count; g++)
        if (sums[g] >= w->gang) up |= UINT64_C(1) << g;
    return up;
}

static void advance(struct world *w, double now_s)
{
    for (; w->next < w->change_count && w->changes[w->next].time_s <= now_s + LEAST_STEP_S; w->next++) {
        const struct change *change = &w->changes[w->next];
        w->pools[change->pool].capacity = change->capacity;
    }
}

static void learn(struct world *w, double now_s)
{
    for (int i = 0; i < w->count; i++)
        tm_spells_observe(&w->pools[i].spells, now_s, w->pools[i].capacity >= w->pools[i].whole);
    tm_spells_observe(&w->learned, now_s, groups_up(w) != 0);
}

/* What lies before the start is known. */
static void learn_history(struct world *w)
{
    while (w->next < w->change_count && w->changes[w->next].time_s <= 0) {
        double now_s = w->changes[w->next].time_s;
        advance(w, now_s);
        learn(w, fmin(now_s, 0));
    }
}

/* ---- time passes ---- */

static void launch(struct world *w, enum tm_gang_on on)
{
    w->view.on = on;
    w->view.restart_left_s = on == TM_GANG_NOTHING ? 0 : w->terms.restart_s;
    w->start_left_s = 0;
    if (on != TM_GANG_SPOT) memset(w->shares, 0, sizeof w->shares);
    if (on == TM_GANG_NOTHING) return;
    if (on == TM_GANG_ON_DEMAND) w->start_left_s = w->terms.start_s;
    w->view.restart_left_s += on == TM_GANG_SPOT ? w->terms.spot_start_s : w->start_left_s;
    w->result->launches++;
}

static bool is_broken(struct world *w)
{
    bool broken = false;
    for (int i = 0; i < w->count; i++) {
        bool gone = w->shares[i] > w->pools[i].capacity;
        w->pools[i].is_short = gone || (w->pools[i].is_short && w->shares[i] == 0);
        broken = broken || gone;
    }
    return broken;
}

/* What the world is like now, as far as a policy may know it; a spot gang that is gone is gone. */
static void look(struct world *w)
{
    advance(w, w->view.now_s);
    learn(w, w->view.now_s);
    if (w->view.on != TM_GANG_SPOT) return;
    bool whole = w->choice == TM_GANG_BOUND; /* what its gang is made of changes for nothing, within a group */
    if (whole ? (groups_up(w) >> w->pools[w->last].is->group & 1) != 0 || (w->at_cheapest && groups_up(w) != 0)
              : !is_broken(w))
        return;
    launch(w, TM_GANG_NOTHING);
    w->result->losses++;
}

/* To the next change. */
static double step_s(const struct world *w, double until_s)
{
    double now_s = w->view.now_s;
    double step = until_s - now_s;
    if (w->next < w->change_count) step = fmin(step, w->changes[w->next].time_s - now_s);
    if (w->view.on != TM_GANG_NOTHING) {
        if (w->start_left_s > 0) step = fmin(step, w->start_left_s);
        step = fmin(step, w->view.restart_left_s > 0 ? w->view.restart_left_s : w->terms.work_s - w->view.done_s);
    }
    return fmax(step, LEAST_STEP_S);
}

static double cheapest_usd_h(const struct world *w, int group)
{
    double usd_h = INFINITY;
    for (int i = 0; i < w->count; i++)
        if (group < 0 || w->pools[i].is->group == group) usd_h = fmin(usd_h, w->pools[i].is->usd_h);
    return usd_h;
}

/* Prices stay what they are, so dollars come at the end. */
static void settle_bills(struct world *w)
{
    struct tm_gang_result *r = w->result;
    struct tm_gang_bill *on_demand = &r->pools[w->count];
    for (int i = 0; i < w->count; i++) {
        double usd_h = w->pools[i].is->usd_h;
        if (w->choice == TM_GANG_BOUND) usd_h = cheapest_usd_h(w, w->at_cheapest ? -1 : w->pools[i].is->group);
        r->pools[i].bill_usd = r->pools[i].instance_hours * usd_h;
        r->cost_usd += r->pools[i].bill_usd;
    }
    on_demand->instance_hours = r->on_demand_s / 3600 * w->gang;
    on_demand->bill_usd = r->on_demand_s * w->terms.on_demand_usd_h / 3600;
    r->cost_usd += on_demand->bill_usd;
}

static void pass_on_spot(struct world *w, double step)
{
    w->result->spot_s += step;
    for (int i = 0; i < w->count; i++)
        w->result->pools[i].instance_hours += w->shares[i] * step / 3600;
}

static void pass(struct world *w, double step)
{
    struct tm_gang_result *r = w->result;
    w->view.now_s += step;
    if (w->view.on == TM_GANG_NOTHING) {
        r->idle_s += step;
        return;
    }
    if (w->start_left_s > 0) {
        r->start_up_s += step;
    } else {
        if (w->view.on == TM_GANG_SPOT)
            pass_on_spot(w, step);
        else
            r->on_demand_s += step;
        if (w->view.restart_left_s > 0) r->restart_s += step;
    }
    if (w->view.restart_left_s <= 0) w->view.done_s += step;
    w->view.restart_left_s = w->view.restart_left_s - step < LEAST_STEP_S ? 0 : w->view.restart_left_s - step;
    w->start_left_s = w->start_left_s - step < LEAST_STEP_S ? 0 : w->start_left_s - step;
}

/* ---- decisions ---- */

/* Where spot would be taken; false: nowhere. */
static bool find_spot(const struct world *w, int shares[TM_GANG_PLACES_MAX])
{
    struct tm_gang_pool_now pools[TM_GANG_PLACES_MAX];
    for (int i = 0; i < w->count; i++) {
        const struct pool *pool = &w->pools[i];
        pools[i] = (struct tm_gang_pool_now){.group = w->at_cheapest ? 0 : pool->is->group,
                                             .capacity = pool->capacity,
                                             .usd_h = pool->is->usd_h,
                                             .is_short = pool->is_short,
                                             .spells = &pool->spells};
    }
    struct tm_gang_pools_now now = {
        .job = &w->view, .pools = pools, .count = w->count, .gang = w->gang, .shares = w->shares, .last = w->last};
    return tm_gang_choose(w->choice, &now, shares);
}

static void follow(struct world *w, enum tm_gang_on go, const int shares[TM_GANG_PLACES_MAX])
{
    bool same = memcmp(shares, w->shares, sizeof w->shares) == 0;
    int before = w->last;
    if (go != TM_GANG_SPOT) {
        if (go != w->view.on) launch(w, go);
        return;
    }
    for (int i = w->count - 1; i >= 0 && !(same && w->view.on == TM_GANG_SPOT); i--)
        if (shares[i] > 0) w->last = i;
    bool elsewhere = before >= 0 && w->pools[before].is->group != w->pools[w->last].is->group && !w->at_cheapest;
    bool shuffled = w->choice == TM_GANG_BOUND && !elsewhere;
    if (w->view.on != TM_GANG_SPOT || !(same || shuffled)) launch(w, TM_GANG_SPOT);
    w->result->moves += elsewhere;
    memcpy(w->shares, shares, sizeof w->shares);
}

static int play(struct world *w, struct tm_error *e)
{
    struct tm_gang_result *r = w->result;
    int shares[TM_GANG_PLACES_MAX];
    while (w->view.done_s < w->terms.work_s - LEAST_STEP_S) {
        look(w);
        w->view.spot = find_spot(w, shares);
        struct tm_deadline_decision decision = tm_deadline_decide(&w->policy, &w->view);
        if (++r->decisions > DECISIONS_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d decisions; the job is too long", DECISIONS_MAX);
        follow(w, decision.go, shares);
        double step = step_s(w, decision.until_s);
        assert(isfinite(step)); /* a policy that waits says until when */
        pass(w, step);
    }
    r->finished_at_s = w->view.now_s;
    r->deadline_met = r->finished_at_s <= w->terms.deadline_s + SAME_S;
    settle_bills(w);
    r->trace_ended = r->finished_at_s > w->end_s;
    r->on_demand_only_usd = (w->terms.work_s + w->terms.restart_s) * w->terms.on_demand_usd_h / 3600;
    return 0;
}

/* ---- before the first decision ---- */

/* When which groups have room, from the start on. */
static int list_spells(struct world *w, struct tm_gang_spell **out, size_t *out_count, struct tm_error *e)
{
    struct world from = *w; /* borrows */
    size_t count = 0;
    struct tm_gang_spell *spells = tm_calloc(w->change_count + 1, sizeof *spells);
    if (spells == NULL) return tm_error_nomem(e);
    double now_s = 0;
    bool more = true;
    while (more) {
        advance(&from, now_s);
        uint64_t up = groups_up(&from);
        if (w->at_cheapest) up = up != 0;
        if (count == 0 || spells[count - 1].up != up)
            spells[count++] = (struct tm_gang_spell){.start_s = now_s, .up = up};
        more = from.next < from.change_count;
        if (more) now_s = from.changes[from.next].time_s;
    }
    *out = spells;
    *out_count = count;
    return 0;
}

static int make_plan(struct world *w, struct tm_gang_plan *plan, struct tm_error *e)
{
    struct tm_gang_places places = {.count = w->at_cheapest ? 1 : w->group_count};
    struct tm_gang_spell *spells = NULL;
    size_t count = 0;
    int rc = list_spells(w, &spells, &count, e);
    if (rc != 0) return rc;
    for (int g = 0; g < places.count; g++)
        places.usd_h[g] = w->gang * cheapest_usd_h(w, w->at_cheapest ? -1 : g);
    rc = tm_gang_plan_init(plan, &w->terms, &places, spells, count, e);
    tm_free(spells);
    if (rc != -TM_ELIMIT || places.count == 1) return rc;
    w->at_cheapest = true;
    return make_plan(w, plan, e);
}

/* What a policy works out before the first decision; then the job. */
static int prepare_and_play(struct world *w, struct tm_error *e)
{
    struct tm_gang_plan plan = {0};
    struct tm_deadline_values *values = NULL;
    int rc = 0;
    if (w->policy.knows_all) {
        rc = make_plan(w, &plan, e);
        if (rc == -TM_ENONE) {
            w->policy = *tm_deadline_policy_find("on-demand");
            w->choice = TM_GANG_FAILOVER;
            rc = 0;
        }
        w->view.plan = &plan;
    }
    if (rc == 0 && w->policy.needs_values) rc = tm_deadline_values_create(&w->terms, &values, e);
    w->view.values = values;
    if (rc == 0) rc = play(w, e);
    tm_deadline_values_destroy(values);
    tm_gang_plan_deinit(&plan);
    return rc;
}

static int check_pool(const struct tm_gang_pool *pool, struct tm_error *e)
{
    if (!(pool->usd_h >= 0 && pool->usd_h <= 1e9))
        return tm_error_set(e, TM_EINPUT, "the spot price must be a number from 0 to 1e9, not %g", pool->usd_h);
    if (pool->from_ms < pool->trace->begin_ms || pool->from_ms > pool->trace->end_ms)
        return tm_error_set(e, TM_EINPUT, "the start, %g h, is not in the trace (%g h to %g h)",
                            (double)pool->from_ms / 3.6e6, (double)pool->trace->begin_ms / 3.6e6,
                            (double)pool->trace->end_ms / 3.6e6);
    return 0;
}

static int check(const struct tm_gang_pools *pools, const struct tm_gang_options *o, struct tm_error *e)
{
    const struct {
        const char *name;
        double value;
        double least;
    } values[] = {{"work", o->work_s, 1},        {"deadline", o->deadline_s, 1},
                  {"restart", o->restart_s, 0},  {"start-up", o->start_s, 0},
                  {"start", o->spot_start_s, 0}, {"on-demand price", o->on_demand_usd_h, 0}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (!(values[i].value >= values[i].least && values[i].value <= 1e9))
            return tm_error_set(e, TM_EINPUT, "the %s must be a number from %g to 1e9, not %g", values[i].name,
                                values[i].least, values[i].value);
    }
    if (o->gang < 1) return tm_error_set(e, TM_EINPUT, "a gang needs at least one instance, not %d", o->gang);
    int rc = 0;
    for (int i = 0; rc == 0 && i < pools->count; i++)
        rc = check_pool(&pools->list[i], e);
    return rc;
}

/* What a spot gang is expected to cost: the mean of the pools that cost no more than on-demand, else the cheapest. */
static double usual_usd_h(const struct tm_gang_pools *pools, double on_demand_usd_h)
{
    double sum = 0, least = INFINITY;
    int count = 0;
    for (int i = 0; i < pools->count; i++) {
        least = fmin(least, pools->list[i].usd_h);
        if (pools->list[i].usd_h > on_demand_usd_h) continue;
        sum += pools->list[i].usd_h;
        count++;
    }
    return count > 0 ? sum / count : least;
}

static void make_world(struct world *w, const struct tm_gang_pools *pools, const struct tm_gang_options *o)
{
    w->terms = (struct tm_deadline_terms){.work_s = o->work_s,
                                          .deadline_s = o->deadline_s,
                                          .restart_s = o->restart_s,
                                          .start_s = o->start_s,
                                          .spot_usd_h = usual_usd_h(pools, o->on_demand_usd_h) * o->gang,
                                          .on_demand_usd_h = o->on_demand_usd_h * o->gang,
                                          .spot_start_s = o->spot_start_s};
    w->gang = o->gang;
    w->count = pools->count;
    w->last = -1;
    w->view = (struct tm_deadline_view){.terms = &w->terms, .spells = &w->learned};
    tm_spells_init(&w->learned, MEMORY_S);
    for (int i = 0; i < pools->count; i++) {
        const struct tm_gang_pool *is = &pools->list[i];
        int64_t most = is->trace->instances_max < is->limit ? is->trace->instances_max : is->limit;
        bool less = most > 0 && most < o->gang;
        w->pools[i] = (struct pool){.is = is, .whole = less ? (int)most : o->gang};
        for (int k = 0; k < pools->count; k++)
            w->pools[i].beside = w->pools[i].beside || (k != i && pools->list[k].group == is->group);
        if (is->group >= w->group_count) w->group_count = is->group + 1;
        tm_spells_init(&w->pools[i].spells, MEMORY_S);
    }
}

static int simulate(const struct tm_gang_pools *pools, const struct tm_deadline_policy *policy,
                    enum tm_gang_choice choice, const struct tm_gang_options *options, struct tm_gang_result *result,
                    struct tm_error *e)
{
    int rc = check(pools, options, e);
    if (rc != 0) return rc;
    struct tm_gang_result made = {0};
    struct world w = {.policy = *policy, .choice = choice, .result = &made};
    make_world(&w, pools, options);
    rc = list_changes(&w, e);
    if (rc == 0) {
        learn_history(&w);
        rc = prepare_and_play(&w, e);
    }
    tm_free(w.changes);
    if (rc == 0) *result = made;
    return rc;
}

int tm_gang_simulate(const struct tm_trace *trace, const struct tm_deadline_policy *policy,
                     const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e)
{
    struct tm_gang_pool pool = {
        .trace = trace, .from_ms = options->from_ms, .limit = TM_TRACE_INSTANCES_MAX, .usd_h = options->spot_usd_h};
    struct tm_gang_pools pools = {.list = &pool, .count = 1};
    return simulate(&pools, policy, policy->knows_all ? TM_GANG_BOUND : TM_GANG_FAILOVER, options, result, e);
}

/* ---- the best pool alone ---- */

static bool is_better(const struct tm_gang_result *a, const struct tm_gang_result *b)
{
    if (a->deadline_met != b->deadline_met) return a->deadline_met;
    return a->cost_usd < b->cost_usd;
}

static int simulate_alone(const struct tm_gang_pools *pools, const struct tm_deadline_policy *policy,
                          const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e)
{
    struct tm_gang_result best = {0};
    for (int i = 0; i < pools->count; i++) {
        struct tm_gang_pool pool = pools->list[i];
        struct tm_gang_result made = {0};
        pool.group = 0;
        int rc =
            simulate(&(struct tm_gang_pools){.list = &pool, .count = 1}, policy, TM_GANG_FAILOVER, options, &made, e);
        if (rc != 0) return rc;
        struct tm_gang_bill spot = made.pools[0], on_demand = made.pools[1];
        made.pools[0] = made.pools[1] = (struct tm_gang_bill){0};
        made.pools[i] = spot;
        made.pools[pools->count] = on_demand;
        if (i == 0 || is_better(&made, &best)) best = made;
    }
    *result = best;
    return 0;
}

int tm_gang_simulate_pools(const struct tm_gang_pools *pools, const struct tm_gang_way *way,
                           const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e)
{
    struct tm_deadline_policy policy = tm_gang_way_policy(way);
    assert(pools->count > 0 && pools->count <= TM_GANG_PLACES_MAX);
    if (way->alone) return simulate_alone(pools, &policy, options, result, e);
    return simulate(pools, &policy, way->choice, options, result, e);
}
