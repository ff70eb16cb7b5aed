/* Pools that are choices: several traces at once, from each of which the policy rents what it wants.
 *
 * A pool gives at most what its trace has at the time, and its limit. What is asked for beyond that is refused, and the
 * policy is told. An instance is paid from the moment it is given and works after its start-up time. Where a trace
 * falls below what the job has there, the youngest go. */
#include "sim/simulate_internal.h"

#include "base/alloc.h"
#include "layout/mixed.h"

#include <math.h>
#include <string.h>

static const double LEAST_START_S = 0.001; /* nothing works in the moment in which it is asked for */

/* ---- a pool ---- */

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

static int capacity_of(const struct tm_sim_pool *pool, int in_trace)
{
    if (pool->trace == NULL) return pool->limit;
    return least_of(in_trace, pool->limit);
}

static int ordered_in(const struct tm_sim__pool *pool)
{
    int count = 0;
    for (int i = 0; i < pool->order_count; i++)
        count += pool->orders[i].count;
    return count;
}

/* Up to a time, which does not go back. */
static void advance(struct tm_sim__pool *pool, double now_s)
{
    const struct tm_trace *trace = pool->is->trace;
    if (trace == NULL) return;
    double at_ms = now_s * 1000 + (double)pool->is->from_ms + 1e-6;
    for (; pool->next < trace->event_count && (double)trace->events[pool->next].time_ms <= at_ms; pool->next++) {
        pool->in_trace += trace->events[pool->next].in - trace->events[pool->next].out;
        if (!isnan(trace->events[pool->next].price_usd_h)) pool->price_usd_h = trace->events[pool->next].price_usd_h;
    }
}

/* Instances that have their notice by now: those above the least that the trace has until it has run out. */
static int leaving_in(const struct tm_sim__pool *pool, double now_s)
{
    const struct tm_trace *trace = pool->is->trace;
    if (trace == NULL || pool->is->notice_s <= 0) return 0;
    double until_ms = (now_s + pool->is->notice_s) * 1000 + (double)pool->is->from_ms + 1e-6;
    int count = pool->in_trace, least = count;
    for (size_t i = pool->next; i < trace->event_count && (double)trace->events[i].time_ms <= until_ms; i++) {
        count += trace->events[i].in - trace->events[i].out;
        if (count < least) least = count;
    }
    int ours = pool->here + ordered_in(pool), kept = capacity_of(pool->is, least);
    int leaving = ours > kept ? ours - kept : 0;
    return leaving < pool->here ? leaving : pool->here;
}

/* Takes instances away, the youngest first; how many of them were usable. */
static int take_away(struct tm_sim__pool *pool, int count)
{
    while (count > 0 && pool->order_count > 0) {
        struct tm_sim__order *order = &pool->orders[pool->order_count - 1];
        int taken = count < order->count ? count : order->count;
        order->count -= taken;
        count -= taken;
        if (order->count == 0) pool->order_count--;
    }
    if (count > pool->here) count = pool->here;
    pool->here -= count;
    return count;
}

static int arrive(struct tm_sim__pool *pool, double now_s)
{
    int arrived = 0, kept = 0;
    for (int i = 0; i < pool->order_count; i++) {
        if (pool->orders[i].ready_s <= now_s + 1e-9)
            arrived += pool->orders[i].count;
        else
            pool->orders[kept++] = pool->orders[i];
    }
    pool->order_count = kept;
    pool->here += arrived;
    return arrived;
}

/* Where too many orders are under way, the newest joins the one before. */
static void order(struct tm_sim__pool *pool, int count, double ready_s)
{
    if (pool->order_count == TM_SIM__ORDERS_MAX) {
        pool->orders[pool->order_count - 1].count += count;
        pool->orders[pool->order_count - 1].ready_s = ready_s;
        return;
    }
    pool->orders[pool->order_count++] = (struct tm_sim__order){.count = count, .ready_s = ready_s};
}

/* ---- bounds ---- */

static double rate_on(const struct tm_sim__run *run, int instances, double speed)
{
    const struct tm_layouts *layouts = run->job->layouts;
    if (instances > run->workers_max) instances = run->workers_max;
    if (instances < run->options->workers_min) return 0;
    return speed * layouts->list[layouts->best[instances]].samples_per_s;
}

/* The instances of one group by pool, and their speeds. */
struct kinds {
    int counts[TM_POOLS_MAX];
    double speeds[TM_POOLS_MAX];
    int sum;
    bool mixed; /* of several speeds */
};

static void add_kind(struct kinds *kinds, int pool, int count, double speed)
{
    kinds->counts[pool] = count;
    kinds->speeds[pool] = speed;
    kinds->sum += count;
    for (int i = 0; i < pool; i++)
        kinds->mixed = kinds->mixed || (count > 0 && kinds->counts[i] > 0 && kinds->speeds[i] != speed);
}

/* With several speeds, fewer instances may do more than all: the best of them. */
static double rate_of(const struct tm_sim__run *run, const struct kinds *kinds)
{
    const struct tm_layouts *layouts = run->job->layouts;
    double best = 0;
    int most = least_of(kinds->sum, run->workers_max), count = run->pools->count;
    for (int n = kinds->mixed ? 1 : most; n <= most; n++)
        best = fmax(best,
                    rate_on(run, n, tm_layout_mixed(layouts, layouts->best[n], kinds->counts, kinds->speeds, count)));
    return best;
}

/* What each group could give at a moment, with all that it has on demand. */
static void group_rates(const struct tm_sim__run *run, double rates[TM_POOLS_MAX])
{
    for (int g = 0; g < run->pools->group_count; g++) {
        struct kinds kinds = {.sum = 0};
        for (int i = 0; i < run->pools->count; i++) {
            const struct tm_sim__pool *pool = &run->pools->list[i];
            int capacity = pool->is->group == g ? capacity_of(pool->is, pool->in_trace) : 0;
            add_kind(&kinds, i, capacity, pool->is->speed);
        }
        rates[g] = rate_of(run, &kinds);
    }
}

/* Bounds pay nothing for links. */
static const struct tm_far *far_of(const struct tm_sim__run *run)
{
    static const struct tm_far nothing = {0};
    return run->info->choice == TM_CHOICE_BOUND ? &nothing : &run->options->pools->far;
}

/* That those who train are in. */
static int regions_of(const struct tm_sim__run *run)
{
    bool seen[TM_POOLS_MAX] = {false};
    int regions = 0;
    for (int i = 0; i < run->pools->count; i++) {
        const struct tm_sim__pool *pool = &run->pools->list[i];
        if (pool->is->group != run->pools->group || pool->here == 0 || seen[pool->is->region]) continue;
        seen[pool->is->region] = true;
        regions++;
    }
    return regions;
}

void tm_sim__pools_speed(struct tm_sim__run *run, int layout)
{
    struct kinds kinds = {.sum = 0};
    for (int i = 0; i < run->pools->count; i++) {
        const struct tm_sim__pool *pool = &run->pools->list[i];
        add_kind(&kinds, i, pool->is->group == run->pools->group ? pool->here : 0, pool->is->speed);
    }
    double speed = tm_layout_mixed(run->job->layouts, layout, kinds.counts, kinds.speeds, run->pools->count);
    double rate = run->job->layouts->list[layout].samples_per_s * speed;
    run->group_speed = rate > 0 ? speed * tm_far_rate(far_of(run), rate, regions_of(run)) / rate : speed;
}

void tm_sim__pools_traffic(struct tm_sim__run *run, double samples)
{
    struct tm_sim__pools *pools = run->pools;
    double usd = samples * tm_far_usd(far_of(run), regions_of(run));
    int biggest = -1;
    for (int i = 0; usd > 0 && i < pools->count; i++)
        if (pools->list[i].is->group == pools->group &&
            (biggest < 0 || pools->list[i].here > pools->list[biggest].here))
            biggest = i;
    if (biggest < 0) return;
    run->out->bill_usd += usd;
    run->out->pools[biggest].bill_usd += usd;
}

/* The least that a move takes: a restart in whatever layout restarts soonest. */
static double least_move_s(const struct tm_sim__run *run)
{
    double least_ms = INFINITY;
    for (int n = 1; n <= run->workers_max; n++) {
        int layout = run->job->layouts->best[n];
        if (layout != TM_LAYOUT_PAUSE)
            least_ms = fmin(least_ms, tm_migrations_restart_ms(run->job->migrations, layout));
    }
    return isinf(least_ms) ? 0 : least_ms / 1000;
}

/* The best way through the groups, knowing all: layouts change for nothing, and a move costs no more than a restart. */
static int plan_bound(struct tm_sim__run *run, struct tm_error *e)
{
    struct tm_sim__pools *pools = run->pools;
    size_t moments = run->moments.count, groups = (size_t)pools->group_count;
    double worth[TM_POOLS_MAX] = {0}, next[TM_POOLS_MAX] = {0}, rates[TM_POOLS_MAX] = {0};
    pools->path = tm_calloc(moments * groups + 1, 1);
    if (pools->path == NULL) return tm_error_nomem(e);
    for (size_t m = 0; m < moments; m++) {
        size_t best = 0;
        for (int i = 0; i < pools->count; i++)
            advance(&pools->list[i], run->moments.list[m].time_s);
        group_rates(run, rates);
        for (size_t g = 1; g < groups; g++)
            if (worth[g] > worth[best]) best = g;
        for (size_t g = 0; g < groups; g++) {
            double pause_s = fmin(pools->move_s, run->moments.ahead[m].duration_s);
            double lost = run->info->free || m == 0 ? 0 : rates[g] * pause_s;
            bool moves = worth[best] - lost > worth[g];
            pools->path[m * groups + g] = (unsigned char)(moves ? best : g);
            next[g] = (moves ? worth[best] - lost : worth[g]) + rates[g] * run->moments.ahead[m].duration_s;
        }
        memcpy(worth, next, sizeof worth);
    }
    size_t at = 0; /* back from the best end: path[m * groups] becomes the group of moment m */
    for (size_t g = 1; g < groups; g++)
        if (worth[g] > worth[at]) at = g;
    for (size_t m = moments; m-- > 0;) {
        size_t from = pools->path[m * groups + at];
        pools->path[m * groups] = (unsigned char)at;
        at = from;
    }
    for (int i = 0; i < pools->count; i++) {
        pools->list[i].next = 0;
        pools->list[i].in_trace = 0;
        pools->list[i].price_usd_h = pools->list[i].is->price_usd_h;
    }
    return 0;
}

/* Who knows all has what the group gives, at once: as many as make a difference, the cheapest first, on demand or not.
 */
static void take_bound(struct tm_sim__run *run, size_t moment)
{
    struct tm_sim__pools *pools = run->pools;
    int capacity = 0, group = pools->path[moment * (size_t)pools->group_count];
    pools->moved = pools->group >= 0 && pools->group != group;
    pools->group = group;
    for (int i = 0; i < pools->count; i++) {
        pools->list[i].here = 0;
        if (pools->list[i].is->group == group) capacity += capacity_of(pools->list[i].is, pools->list[i].in_trace);
    }
    if (capacity > run->workers_max) capacity = run->workers_max;
    while (capacity > 0 && rate_on(run, capacity - 1, 1) >= rate_on(run, capacity, 1))
        capacity--;
    while (capacity > 0) {
        struct tm_sim__pool *to = NULL;
        for (int i = 0; i < pools->count; i++) {
            struct tm_sim__pool *pool = &pools->list[i];
            bool may = pool->is->group == group && pool->here == 0 && capacity_of(pool->is, pool->in_trace) > 0;
            bool faster = to != NULL && pool->is->speed > to->is->speed;
            bool cheaper = to != NULL && pool->is->speed == to->is->speed && pool->price_usd_h < to->price_usd_h;
            if (may && (to == NULL || faster || cheaper)) to = pool;
        }
        if (to == NULL) return; /* cannot be: their sum is the capacity */
        int room = capacity_of(to->is, to->in_trace);
        to->here = room < capacity ? room : capacity;
        capacity -= to->here;
    }
}

double tm_sim__pools_bound_ms(const struct tm_sim__run *run, int to)
{
    bool pays = run->pools->moved && !run->info->free && to != TM_LAYOUT_PAUSE;
    return pays ? run->pools->move_s * 1000 : 0;
}

/* ---- a run ---- */

/* What the traces say before the job starts is known history. */
static void feed_history(struct tm_sim__run *run)
{
    struct tm_pool seen[TM_POOLS_MAX];
    struct tm_sim__pools *pools = run->pools;
    double longest_s = 0;
    for (int i = 0; i < pools->count; i++)
        if (pools->list[i].is->trace != NULL)
            longest_s =
                fmax(longest_s, (double)(pools->list[i].is->from_ms - pools->list[i].is->trace->begin_ms) / 1000);
    for (int64_t left = (int64_t)(longest_s / run->options->interval_s); left > 0; left--) {
        double now_s = -(double)left * run->options->interval_s;
        for (int i = 0; i < pools->count; i++) {
            struct tm_sim__pool *pool = &pools->list[i];
            bool begun = pool->is->trace == NULL ||
                         now_s * 1000 + (double)pool->is->from_ms >= (double)pool->is->trace->begin_ms - 1e-6;
            advance(pool, now_s);
            seen[i] = (struct tm_pool){.market = pool->is->market,
                                       .group = pool->is->group,
                                       .speed = pool->is->speed,
                                       .offered = begun ? capacity_of(pool->is, pool->in_trace) : -1};
        }
        tm_policy_observe_pools(run->policy, now_s, seen, pools->count);
    }
}

int tm_sim__pools_begin(struct tm_sim__run *run, struct tm_error *e)
{
    const struct tm_sim_pools *given = run->options->pools;
    struct tm_sim__pools *pools = run->pools = tm_calloc(1, sizeof *pools);
    if (pools == NULL) return tm_error_nomem(e);
    pools->count = given->count;
    pools->all = run->info->free ? given->count : given->count + given->keeper_count;
    pools->group = -1;
    for (int i = 0; i < pools->all; i++) {
        pools->list[i] = (struct tm_sim__pool){.is = &given->list[i], .price_usd_h = given->list[i].price_usd_h};
        if (i < given->count && given->list[i].group >= pools->group_count)
            pools->group_count = given->list[i].group + 1;
    }
    pools->move_s = least_move_s(run);
    if (run->info->choice == TM_CHOICE_BOUND) return plan_bound(run, e);
    feed_history(run);
    return 0;
}

void tm_sim__pools_end(struct tm_sim__run *run)
{
    if (run->pools == NULL) return;
    tm_free(run->pools->path);
    tm_free(run->pools);
}

/* Preemptions and arrivals of this moment. Of those preempted, the ones beyond what the job can use are the first. */
static void meet(struct tm_sim__run *run, int *lost, int *arrived, int *spot)
{
    struct tm_sim__pools *pools = run->pools;
    double notice_s = INFINITY;
    int taken = 0;
    for (int i = 0; i < pools->count; i++) {
        struct tm_sim__pool *pool = &pools->list[i];
        bool trains = pool->is->group == pools->group;
        int over = pool->here + ordered_in(pool) - capacity_of(pool->is, pool->in_trace);
        pool->lost = over > 0 ? over : 0;
        int gone = over > 0 ? take_away(pool, over) : 0, come = arrive(pool, run->now_s);
        if (gone > 0) notice_s = fmin(notice_s, pool->is->notice_s);
        run->losses_seen += gone;
        run->together_seen += gone > 1 ? gone : 0;
        taken += trains ? gone : 0;
        *arrived += trains ? come : 0;
        *spot += trains && pool->is->market == TM_POOL_SPOT ? pool->here : 0;
    }
    run->anchored = false;
    for (int i = pools->count; i < pools->all; i++) /* their address must be told to all */
        run->anchored = arrive(&pools->list[i], run->now_s) > 0 || run->anchored;
    run->used.notice_s = isinf(notice_s) ? run->used.notice_s : notice_s;
    int spared = least_of(taken, pools->spares);
    pools->spares -= spared;
    *lost = least_of(taken - spared, pools->trained);
}

void tm_sim__pools_meet(struct tm_sim__run *run, size_t moment)
{
    struct tm_sim__pools *pools = run->pools;
    int before = pools->trained, lost = 0, arrived = 0, spot = 0;
    for (int i = 0; i < pools->count; i++)
        advance(&pools->list[i], run->now_s);
    if (run->info->choice == TM_CHOICE_BOUND) {
        if (!run->part) take_bound(run, moment);
        for (int i = 0; i < pools->count; i++)
            spot += pools->list[i].here;
        lost = before > spot ? before - spot : 0;
        arrived = spot > before ? spot - before : 0;
    } else {
        meet(run, &lost, &arrived, &spot);
    }
    run->now = (struct tm_ahead){.duration_s = run->moments.ahead[moment].duration_s,
                                 .before = before,
                                 .lost = lost,
                                 .after = least_of(before - lost + arrived, run->workers_max)};
    run->arrived_now = arrived;
    run->arrived += arrived;
    run->lost += lost;
    run->spot = run->rented = least_of(spot, run->workers_max);
}

/* Those that have got their notice since the last time are told to the forecast. */
static void hear_notices(struct tm_sim__run *run, const struct tm_facts *facts)
{
    int leaving = 0;
    double in_s = 0;
    for (int i = 0; i < facts->pool_count; i++) {
        if (facts->pools[i].group != facts->group) continue;
        leaving += facts->pools[i].leaving;
        if (facts->pools[i].leaving > 0) in_s = fmax(in_s, run->pools->list[i].is->notice_s);
    }
    if (leaving > run->pools->announced) tm_policy_hint(run->policy, leaving - run->pools->announced, in_s);
    run->pools->announced = leaving;
}

void tm_sim__pools_show(struct tm_sim__run *run, struct tm_facts *facts)
{
    struct tm_sim__pools *pools = run->pools;
    facts->choices = true;
    facts->group = pools->group;
    facts->spares = pools->spares;
    facts->move_usd = run->options->pools->move_usd;
    facts->far = run->options->pools->far;
    facts->pool_count = pools->count;
    facts->keeper_count = pools->all - pools->count;
    for (int i = 0; i < pools->all; i++) {
        const struct tm_sim__pool *pool = &pools->list[i];
        int ordered = ordered_in(pool), room = capacity_of(pool->is, pool->in_trace) - pool->here - ordered;
        pools->list[i].leaving = leaving_in(pool, run->now_s);
        facts->pools[i] = (struct tm_pool){.market = pool->is->market,
                                           .role = i < pools->count ? TM_POOL_TRAINS : TM_POOL_KEEPS_COPIES,
                                           .zone = i,
                                           .price_usd_h = pool->price_usd_h,
                                           .here = pool->here - pool->leaving,
                                           .ordered = ordered,
                                           .leaving = pool->leaving,
                                           .offered = room > 0 ? room : 0,
                                           .start_s = pool->is->start_s,
                                           .group = pool->is->group,
                                           .region = pool->is->region,
                                           .lost = pool->lost,
                                           .refused = pool->refused,
                                           .speed = pool->is->speed};
    }
    hear_notices(run, facts);
    tm_policy_observe_pools(run->policy, run->now_s, facts->pools, facts->pool_count);
}

/* ---- the decision ---- */

/* Gives back and asks for what makes of what there is what is wanted. How many of those that train were given back. */
static int follow(struct tm_sim__run *run, const struct tm_decision *decision)
{
    struct tm_sim__pools *pools = run->pools;
    int released = 0;
    for (int i = 0; i < pools->all; i++) {
        struct tm_sim__pool *pool = &pools->list[i];
        bool trains = i < pools->count;
        int ours = pool->here + ordered_in(pool), wanted = decision->want[i];
        if (trains && pool->is->group == decision->group) wanted += pool->leaving; /* paid, and used to their end */
        pool->refused = 0;
        if (ours > wanted) {
            int gone = take_away(pool, ours - wanted);
            if (trains && pool->is->group == pools->group) released += gone;
        } else if (wanted > ours) {
            int room = capacity_of(pool->is, pool->in_trace) - ours, given = wanted - ours;
            if (given > room) given = room > 0 ? room : 0;
            pool->refused = wanted - ours - given;
            if (given > 0) order(pool, given, run->now_s + fmax(LEAST_START_S, pool->is->start_s));
        }
    }
    return released;
}

/* Of those that trained before, how many no longer do: some are given back, some with a notice have their successors.
 * Those that have just come may be among the ones given back, and are not of those that trained. */
static int out_of_use(const struct tm_sim__run *run, bool moves, int released, int spares)
{
    int trained = run->now.before - run->now.lost, more = spares - run->pools->spares;
    return least_of(moves ? trained : released + (more > 0 ? more : 0), trained);
}

void tm_sim__pools_carry_out(struct tm_sim__run *run, const struct tm_decision *decision)
{
    struct tm_sim__pools *pools = run->pools;
    int here = 0, biggest = -1;
    bool bound = run->info->choice == TM_CHOICE_BOUND, moves = !bound && decision->group != pools->group;
    int released = bound ? 0 : follow(run, decision);
    if (bound)
        pools->moved = pools->moved && !run->part;
    else
        pools->moved = moves && pools->group >= 0 && pools->trained > 0;
    if (!bound) pools->group = decision->group;
    for (int i = 0; i < pools->count; i++) {
        const struct tm_sim__pool *pool = &pools->list[i];
        if (pool->is->group != pools->group) continue;
        here += pool->here;
        if (biggest < 0 || pool->here > pools->list[biggest].here) biggest = i;
    }
    run->now.after = least_of(here, run->workers_max); /* the others have a notice, and their successors are here */
    pools->given_up = bound ? 0 : out_of_use(run, moves, released, here - run->now.after);
    run->now.lost += pools->given_up;
    pools->trained = run->now.after;
    pools->spares = here - run->now.after;
    int region = biggest >= 0 ? pools->list[biggest].is->region : -1;
    if (pools->moved && biggest >= 0 && !run->info->free) {
        double usd = region != pools->region ? run->options->pools->move_usd : 0; /* not to another type beside */
        run->out->bill_usd += usd;
        run->out->pools[biggest].bill_usd += usd;
        run->out->moves++;
    }
    if (biggest >= 0) pools->region = region;
}

double tm_sim__pools_next_s(const struct tm_sim__run *run)
{
    double next_s = INFINITY;
    for (int i = 0; i < run->pools->all; i++)
        for (int k = 0; k < run->pools->list[i].order_count; k++)
            next_s = fmin(next_s, run->pools->list[i].orders[k].ready_s);
    return next_s;
}

void tm_sim__pools_bill(struct tm_sim__run *run, double hours)
{
    struct tm_sim_result *out = run->out;
    for (int i = 0; i < run->pools->all; i++) {
        const struct tm_sim__pool *pool = &run->pools->list[i];
        double instance_hours = hours * (pool->here + ordered_in(pool));
        double usd = isnan(pool->price_usd_h) ? 0 : instance_hours * pool->price_usd_h;
        out->pools[i].instance_hours += instance_hours;
        out->pools[i].bill_usd += usd;
        out->instance_hours += instance_hours;
        out->bill_usd += usd;
        if (pool->is->market == TM_POOL_ON_DEMAND) out->on_demand_hours += instance_hours;
    }
}

/* ---- the best single pool ---- */

static bool is_better(const struct tm_sim_result *a, const struct tm_sim_result *b)
{
    if (!isnan(a->finished_at_s) && !isnan(b->finished_at_s)) {
        if (a->finished_at_s != b->finished_at_s) return a->finished_at_s < b->finished_at_s;
    } else if (a->samples != b->samples) {
        return a->samples > b->samples;
    }
    return a->bill_usd < b->bill_usd;
}

static int simulate_one(struct tm_env *env, const struct tm_sim_job *job, const struct tm_trace *trace,
                        const struct tm_policy_info *info, const struct tm_sim_options *options, int number,
                        struct tm_sim_result *out, struct tm_sim_log *log, struct tm_error *e)
{
    const struct tm_sim_pools *all = options->pools;
    struct tm_sim_pool list[TM_POOLS_MAX];
    struct tm_sim_pools alone = {.list = list, .count = 1, .keeper_count = all->keeper_count};
    struct tm_sim_options asked = *options;
    struct tm_sim_pool_bill bills[TM_POOLS_MAX] = {0};
    list[0] = all->list[number];
    list[0].group = 0;
    for (int i = 0; i < all->keeper_count; i++)
        list[1 + i] = all->list[all->count + i];
    asked.pools = &alone;
    int rc = tm_simulate(env, job, trace, info, &asked, out, log, e);
    if (rc != 0) return rc;
    bills[number] = out->pools[0];
    for (int i = 0; i < all->keeper_count; i++)
        bills[all->count + i] = out->pools[1 + i];
    memcpy(out->pools, bills, sizeof bills);
    return 0;
}

int tm_sim__best_single(struct tm_env *env, const struct tm_sim_job *job, const struct tm_trace *trace,
                        const struct tm_policy_info *info, const struct tm_sim_options *options,
                        struct tm_sim_result *out, struct tm_sim_log *log, struct tm_error *e)
{
    struct tm_sim_result result, best_result;
    int best = -1;
    for (int i = 0; i < options->pools->count; i++) {
        if (options->pools->list[i].market != TM_POOL_SPOT) continue;
        int rc = simulate_one(env, job, trace, info, options, i, &result, NULL, e);
        if (rc != 0) return rc;
        if (best >= 0 && !is_better(&result, &best_result)) continue;
        best = i;
        best_result = result;
    }
    if (best < 0) return tm_error_set(e, TM_EINPUT, "policy single needs a spot pool");
    if (log != NULL) return simulate_one(env, job, trace, info, options, best, out, log, e);
    *out = best_result;
    return 0;
}
