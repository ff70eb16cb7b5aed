/* Branch and bound over boxes of throughput and loss rate in one region.
 *
 * In a box a fleet gives at least `low` samples a second and at most `high`, net of what is away, and has at least
 * `loss_low` and at most `loss_high` loss events a second. The integer program (mix.h) gives the least price an hour of
 * a fleet with at least `low` and at most `loss_high`; no fleet of the box takes less time than one with `high` and
 * `loss_low`. Their product bounds the cost of the box from below; the time alone bounds the time. Boxes that cannot
 * hold anything better than what was found are dropped, others are halved; a box of the lowest bound goes first. */
#include "base/alloc.h"
#include "plan/mix.h"
#include "plan/search_internal.h"

#include <math.h>
#include <string.h>

enum { BOXES_MAX = 1 << 16, STEPS_MAX = 1 << 16 };

static const double GAP_WANTED = 0.005; /* relative: the search stops there */
static const double PROGRAM_GAP = 0.001;
static const double WIDE = 1.25;  /* boxes wider than this are halved before an integer program is worth its time */
static const double TINY = 1.003; /* and those narrower than this are not halved again */

struct box {
    size_t region;
    bool spot; /* with spot instances, or on demand alone */
    double low, high;
    double loss_low, loss_high;
    double least_usd_h; /* that a fleet of it costs: of its program, or of the box it was cut from */
    double bound;
    bool solved; /* least_usd_h is as good as a program of its own would make it */
};

struct branch {
    struct tm_search *search;
    struct box *boxes; /* a heap: the lowest bound first */
    size_t count, capacity;
    struct tm_mix_pool *pools; /* of one program */
    const struct tm_plan_pool **offers;
    size_t pool_count;
    double *covered; /* quotas x pools: what an instance counts */
    struct tm_mix_counts *counts;
};

/* ---- the heap ---- */

static int push(struct branch *branch, const struct box *box, struct tm_error *e)
{
    void *boxes = branch->boxes;
    int rc = tm_grow(&boxes, &branch->capacity, branch->count + 1, sizeof *box, BOXES_MAX);
    branch->boxes = boxes;
    if (rc != 0) return tm_error_nomem(e);
    size_t at = branch->count++;
    while (at > 0 && branch->boxes[(at - 1) / 2].bound > box->bound) {
        branch->boxes[at] = branch->boxes[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    branch->boxes[at] = *box;
    return 0;
}

static struct box pop(struct branch *branch)
{
    struct box first = branch->boxes[0];
    struct box last = branch->boxes[--branch->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= branch->count) break;
        if (child + 1 < branch->count && branch->boxes[child + 1].bound < branch->boxes[child].bound) child++;
        if (branch->boxes[child].bound >= last.bound) break;
        branch->boxes[at] = branch->boxes[child];
        at = child;
    }
    branch->boxes[at] = last;
    return first;
}

/* ---- time and money of a box ---- */

/* Share of the time that is useful at a rate of loss events, before what is away. */
static double useful(const struct tm_expect_job *job, double events)
{
    return 1 - sqrt(2 * job->checkpoint_s * events) - events * (job->restart_s + job->rejoin_s);
}

static double least_time(const struct branch *branch, const struct box *box)
{
    const struct tm_expect_job *job = &branch->search->request->job;
    double share = useful(job, box->loss_low);
    return share > 0 ? job->startup_s + job->samples / (box->high * share) : INFINITY;
}

/* The job with the losses of a pool. */
static struct tm_expect_job job_of(const struct branch *branch, const struct tm_plan_pool *pool)
{
    const struct tm_plan_request *request = branch->search->request;
    const struct tm_instance_type *instance = branch->search->supply->types[pool->type].instance;
    return tm_plan__job_on(&request->job, tm_plan__trace_of(request->supply.traces, instance, pool->offer));
}

/* Loss events that one more spot instance adds at least: bursts take many at once, so that the more there are of a pool
 * the less each adds. */
static double least_events(const struct branch *branch, const struct tm_plan_pool *pool)
{
    if (!branch->search->losses) return 0;
    struct tm_expect_job job = job_of(branch, pool);
    double loss_per_s = pool->loss_per_s;
    double single = (1 - job.burst_share) * loss_per_s;
    if (!(job.burst_share > 0)) return single;
    int most = branch->search->request->max_instances;
    return single + job.burst_share * loss_per_s / job.burst_size * (1 - pow(1 - job.burst_size, most)) / most;
}

static double away(const struct branch *branch, const struct tm_plan_pool *pool)
{
    if (!branch->search->losses) return 0;
    struct tm_expect_job job = job_of(branch, pool);
    return tm_expect__away(&job, pool->loss_per_s);
}

/* What may be spent an hour in a box. */
static double price_cap(const struct branch *branch, double least_s)
{
    const struct tm_plan_request *request = branch->search->request;
    return fmin(request->max_usd_h, request->budget_usd / (least_s / 3600));
}

static double smallest_spread(const struct tm_supply *supply)
{
    double least = INFINITY;
    for (size_t t = 0; t < supply->type_count; t++) {
        for (size_t i = 0; i < supply->types[t].rate_count; i++)
            least = fmin(least, supply->types[t].rates[i].spread);
    }
    return least;
}

static bool can_be_on_time(const struct branch *branch, double time_s)
{
    const struct tm_plan_request *request = branch->search->request;
    if (isinf(request->job.deadline_s)) return true;
    if (!branch->search->losses) return time_s <= request->job.deadline_s;
    double sigma = smallest_spread(branch->search->supply) * (1 - request->job.startup_s / time_s);
    return tm_expect__chance(time_s, sqrt(log1p(sigma * sigma)), request->job.deadline_s) >= request->min_probability;
}

static double bound_of(const struct branch *branch, double least_s, double least_usd_h)
{
    if (!(least_usd_h <= price_cap(branch, least_s)) || !can_be_on_time(branch, least_s)) return INFINITY;
    return branch->search->request->objective == TM_PLAN_CHEAPEST ? least_s / 3600 * least_usd_h : least_s;
}

/* A price without an integer program: the least for a sample a second there is, as if instances could be cut. */
static double quick_price(const struct branch *branch, const struct box *box)
{
    const struct tm_supply *supply = branch->search->supply;
    const struct tm_plan_region *region = &supply->regions[box->region];
    double least = INFINITY; /* dollars an hour for a sample a second */
    size_t type = SIZE_MAX;
    double rate = 0;
    for (size_t i = 0; i < region->count; i++) {
        const struct tm_plan_pool *pool = &supply->pools[region->first + i];
        if (pool->type != type) rate = tm_plan_type__rate(&supply->types[pool->type], box->low, box->high);
        type = pool->type;
        if (rate <= 0) continue;
        if (box->spot && !isnan(pool->spot_usd_h))
            least = fmin(least, pool->spot_usd_h / (rate * (1 - away(branch, pool))));
        if (!isnan(pool->on_demand_usd_h)) least = fmin(least, pool->on_demand_usd_h / rate);
    }
    return least * box->low;
}

/* ---- the integer program of a box ---- */

static double nan_is_infinite(double price)
{
    return isnan(price) ? INFINITY : price;
}

/* Can every instance of b be replaced by one of a, whatever the rest of the fleet is? */
static bool dominates(const struct branch *branch, size_t a, size_t b)
{
    const struct tm_mix_pool *x = &branch->pools[a];
    const struct tm_mix_pool *y = &branch->pools[b];
    bool better = x->samples_per_s >= y->samples_per_s && x->loss_events <= y->loss_events && x->away <= y->away &&
                  nan_is_infinite(x->spot_usd_h) <= nan_is_infinite(y->spot_usd_h) &&
                  nan_is_infinite(x->on_demand_usd_h) <= nan_is_infinite(y->on_demand_usd_h) &&
                  x->network_bit_s >= y->network_bit_s && x->memory_gib >= y->memory_gib;
    if (!better) return false;
    bool equal = x->samples_per_s == y->samples_per_s && x->spot_usd_h == y->spot_usd_h &&
                 x->on_demand_usd_h == y->on_demand_usd_h;
    return !equal || a < b;
}

/* One pool a type: its cheapest zone on spot, which is all that a bound needs. */
static void gather_pools(struct branch *branch, const struct box *box)
{
    const struct tm_supply *supply = branch->search->supply;
    const struct tm_plan_region *region = &supply->regions[box->region];
    branch->pool_count = 0;
    for (size_t i = 0; i < region->count; i++) {
        const struct tm_plan_pool *pool = &supply->pools[region->first + i];
        const struct tm_plan_type *type = &supply->types[pool->type];
        size_t at = branch->pool_count;
        if (at > 0 && branch->pools[at - 1].type == pool->type) { /* another zone: it may be the one on demand */
            if (isnan(branch->pools[at - 1].on_demand_usd_h))
                branch->pools[at - 1].on_demand_usd_h = pool->on_demand_usd_h;
            continue;
        }
        double rate = tm_plan_type__rate(type, box->low, box->high);
        if (rate <= 0) continue;
        branch->offers[at] = pool;
        branch->pools[branch->pool_count++] =
            (struct tm_mix_pool){.type = pool->type,
                                 .samples_per_s = rate,
                                 .spot_usd_h = box->spot ? pool->spot_usd_h : NAN,
                                 .on_demand_usd_h = pool->on_demand_usd_h,
                                 .loss_events = least_events(branch, pool),
                                 .away = away(branch, pool),
                                 .network_bit_s = type->group.network_bit_s,
                                 .memory_gib = isnan(type->instance->memory_gib) ? 0 : type->instance->memory_gib};
    }
}

static bool has_quota(const struct branch *branch, size_t pool)
{
    const struct tm_plan_request *request = branch->search->request;
    const struct tm_instance_type *instance = branch->search->supply->types[branch->offers[pool]->type].instance;
    for (size_t q = 0; q < request->quota_count; q++) {
        if (tm_plan__quota_covers(&request->quotas[q], instance, branch->offers[pool]->offer)) return true;
    }
    return false;
}

static void drop_dominated(struct branch *branch)
{
    size_t count = branch->pool_count;
    double *dropped = branch->covered; /* free until the quotas are written */
    for (size_t b = 0; b < count; b++) {
        dropped[b] = 0;
        for (size_t a = 0; a < count && dropped[b] == 0; a++)
            dropped[b] = a != b && !(a < b && dropped[a] > 0) && !has_quota(branch, a) && dominates(branch, a, b);
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (dropped[i] > 0) continue;
        branch->pools[kept] = branch->pools[i];
        branch->offers[kept++] = branch->offers[i];
    }
    branch->pool_count = kept;
}

static size_t fill_quotas(struct branch *branch, struct tm_mix_quota quotas[TM_PLAN_QUOTAS_MAX])
{
    const struct tm_plan_request *request = branch->search->request;
    for (size_t q = 0; q < request->quota_count; q++) {
        double *covered = branch->covered + q * branch->pool_count;
        for (size_t i = 0; i < branch->pool_count; i++) {
            const struct tm_plan_pool *pool = branch->offers[i];
            const struct tm_instance_type *instance = branch->search->supply->types[pool->type].instance;
            covered[i] = tm_plan__quota_counts(&request->quotas[q], instance, pool->offer);
        }
        quotas[q] = (struct tm_mix_quota){covered, request->quotas[q].markets, request->quotas[q].limit};
    }
    return request->quota_count;
}

static size_t fill_anchors(const struct tm_plan_region *region, struct tm_mix_anchor *anchors)
{
    for (size_t i = 0; i < region->anchor_count; i++) {
        const struct tm_instance_type *instance = region->anchors[i].instance;
        anchors[i] = (struct tm_mix_anchor){region->anchors[i].offer->on_demand_usd_h, instance->network_gbps * 1e9,
                                            instance->memory_gib};
    }
    return region->anchor_count;
}

/* What was found, as a fleet: spot and on-demand places of a type may differ. */
static void fleet_of(const struct branch *branch, const struct box *box, size_t zones, struct tm_plan_fleet *fleet)
{
    const struct tm_supply *supply = branch->search->supply;
    const struct tm_plan_region *region = &supply->regions[box->region];
    *fleet = (struct tm_plan_fleet){.part_count = 0};
    for (size_t i = 0; i < branch->pool_count; i++) {
        struct tm_mix_counts counts = branch->counts[i];
        const struct tm_plan_pool *pool = branch->offers[i];
        size_t over = 0; /* zones that the spot instances spread over */
        while (over < zones && pool + over < supply->pools + region->first + region->count &&
               pool[over].type == pool->type && !isnan(pool[over].spot_usd_h) && (int)over < counts.spot)
            over++;
        for (const struct tm_plan_pool *p = pool; p < supply->pools + region->first + region->count; p++) {
            if (p->type != pool->type || fleet->part_count == TM_PLAN_PARTS_MAX) break;
            size_t zone = (size_t)(p - pool);
            int spot = zone < over ? counts.spot / (int)over + (zone < (size_t)(counts.spot % (int)over)) : 0;
            int on_demand = isnan(p->on_demand_usd_h) ? 0 : counts.on_demand;
            if (spot + on_demand > 0)
                fleet->parts[fleet->part_count++] =
                    (struct tm_plan_part){supply->types[p->type].instance, p->offer, spot, on_demand};
        }
    }
}

/* Leaves out types without which the fleet is as fast: they would stand idle. Sets the exact throughput; false: it does
 * not fit together. */
static bool drop_idle(struct branch *branch, const struct box *box, struct tm_prediction *prediction, int *out_rc,
                      struct tm_error *e)
{
    struct tm_plan_fleet fleet;
    fleet_of(branch, box, 1, &fleet);
    if (fleet.part_count == 0 || !tm_search__predict(branch->search, &fleet, prediction, e, out_rc)) return false;
    for (size_t i = 0; i < branch->pool_count; i++) {
        struct tm_mix_counts counts = branch->counts[i];
        struct tm_prediction without;
        if (counts.spot + counts.on_demand == 0) continue;
        branch->counts[i] = (struct tm_mix_counts){0, 0};
        fleet_of(branch, box, 1, &fleet);
        bool idle = fleet.part_count > 0 && tm_search__predict(branch->search, &fleet, &without, e, out_rc) &&
                    without.samples_per_s >= 0.999 * prediction->samples_per_s;
        if (idle)
            *prediction = without;
        else
            branch->counts[i] = counts;
        if (*out_rc != 0) return false;
    }
    return true;
}

/* Weighs what the program found, exactly, also spread over zones. */
static int consider_found(struct branch *branch, const struct box *box, struct tm_error *e)
{
    struct tm_search *search = branch->search;
    struct tm_prediction prediction;
    struct tm_plan_fleet fleet;
    int rc = 0;
    if (!drop_idle(branch, box, &prediction, &rc, e)) return rc;
    struct tm_plan_rate rate = {.samples_per_s = prediction.samples_per_s,
                                .spread = tm_estimate_spread(&prediction.step_s)};
    bool spread = search->losses && search->request->job.burst_share > 0 && isfinite(search->request->job.deadline_s);
    for (size_t zones = 1; zones <= (spread ? TM_PLAN_ZONES_MAX : 1); zones++) {
        fleet_of(branch, box, zones, &fleet);
        if (tm_search__within_quotas(search, &fleet))
            tm_search__consider(search, &search->supply->regions[box->region], &fleet, &rate);
    }
    return 0;
}

/* What an integer program points to. */
struct program {
    struct tm_mix mix;
    struct tm_mix_quota quotas[TM_PLAN_QUOTAS_MAX];
    struct tm_mix_anchor anchors[TM_PLAN_ANCHOR_KINDS_MAX];
    int anchor_counts[TM_PLAN_ANCHOR_KINDS_MAX];
};

/* The least price an hour in a box, as a program. */
static void build_program(struct branch *branch, const struct box *box, struct program *program)
{
    const struct tm_plan_request *request = branch->search->request;
    const struct tm_plan_region *region = &branch->search->supply->regions[box->region];
    gather_pools(branch, box);
    drop_dominated(branch);
    program->mix = (struct tm_mix){.pools = branch->pools,
                                   .pool_count = branch->pool_count,
                                   .anchors = program->anchors,
                                   .quotas = program->quotas,
                                   .samples_per_s = box->low,
                                   .loss_events = box->spot && branch->search->losses ? box->loss_high : INFINITY,
                                   .usd_h = price_cap(branch, least_time(branch, box)),
                                   .instances = request->max_instances};
    program->mix.quota_count = fill_quotas(branch, program->quotas);
    if (request->anchors_said > 0) return; /* they are beside every fleet: the bound stays one without them */
    if (!box->spot || !branch->search->losses || !(request->state_bytes > 0) || request->market != TM_PLAN_MIXED ||
        region->anchor_count == 0)
        return;
    double interval_s = sqrt(2 * request->job.checkpoint_s / box->loss_low);
    program->mix.anchor_count = fill_anchors(region, program->anchors);
    program->mix.anchor_network_bit_s = box->loss_low > 0 ? tm_search__anchor_bit_s(request, interval_s) : 0;
    program->mix.anchor_memory_gib = tm_search__anchor_gib(request);
}

/* Sets the box's bound by an integer program; infinite where it holds nothing. */
static int solve_box(struct branch *branch, struct box *box, struct tm_error *e)
{
    struct program program;
    struct tm_mix_solution solution;
    build_program(branch, box, &program);
    box->solved = true;
    branch->search->out->programs++;
    int rc = tm_mix__solve(&program.mix, PROGRAM_GAP, branch->counts, program.anchor_counts, &solution, e);
    if (rc != 0) return rc;
    if (solution.feasible) box->least_usd_h = fmax(box->least_usd_h, solution.bound_usd_h);
    double bound = bound_of(branch, least_time(branch, box), box->least_usd_h);
    box->bound = solution.feasible ? fmax(box->bound, bound) : INFINITY;
    return isfinite(box->bound) ? consider_found(branch, box, e) : 0;
}

/* ---- the search ---- */

static int push_boxed(struct branch *branch, const struct box *box, struct tm_error *e)
{
    struct box fresh = *box;
    fresh.least_usd_h = fmax(fresh.least_usd_h, quick_price(branch, &fresh));
    fresh.bound = fmax(fresh.bound, bound_of(branch, least_time(branch, &fresh), fresh.least_usd_h));
    return isfinite(fresh.bound) ? push(branch, &fresh, e) : 0;
}

/* One or two boxes for each region: with spot instances and without. */
static int push_regions(struct branch *branch, struct tm_error *e)
{
    const struct tm_supply *supply = branch->search->supply;
    int most = branch->search->request->max_instances;
    for (size_t r = 0; r < supply->region_count; r++) {
        const struct tm_plan_region *region = &supply->regions[r];
        struct box box = {.region = r, .low = INFINITY};
        for (size_t i = 0; i < region->count; i++) {
            const struct tm_plan_pool *pool = &supply->pools[region->first + i];
            const struct tm_plan_type *type = &supply->types[pool->type];
            const struct tm_plan_rate *last = &type->rates[type->rate_count - 1];
            double peak = type->saturated ? last->samples_per_s : last->samples_per_s / last->instances * most;
            box.low = fmin(box.low, type->rates[0].samples_per_s * (1 - away(branch, pool)));
            box.high = fmax(box.high, peak);
            if (isnan(pool->spot_usd_h)) continue;
            box.spot = true;
            box.loss_high = fmax(box.loss_high, most * least_events(branch, pool));
        }
        box.high = fmax(box.high, box.low * TINY);
        int rc = box.spot ? push_boxed(branch, &box, e) : 0;
        box.spot = false;
        box.loss_high = 0;
        if (rc == 0) rc = push_boxed(branch, &box, e);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Halves a box where it is widest, in terms of time. What the whole costs at least, each half does; the half that has
 * the same least throughput and the same most losses needs no program of its own. */
static int halve(struct branch *branch, const struct box *box, struct tm_error *e)
{
    const struct tm_expect_job *job = &branch->search->request->job;
    struct box first = *box;
    struct box second = *box;
    double losses = useful(job, box->loss_low) / fmax(useful(job, box->loss_high), 0.01);
    if (losses > box->high / box->low && box->loss_high > 0) {
        double root = (sqrt(box->loss_low) + sqrt(box->loss_high)) / 2;
        first.loss_high = root * root;
        first.solved = false;
        second.loss_low = root * root;
    } else {
        first.high = sqrt(box->low * box->high);
        second.low = first.high;
        second.solved = false;
    }
    int rc = push_boxed(branch, &first, e);
    return rc == 0 ? push_boxed(branch, &second, e) : rc;
}

static bool is_tiny(const struct branch *branch, const struct box *box)
{
    const struct tm_expect_job *job = &branch->search->request->job;
    return box->high <= box->low * TINY && useful(job, box->loss_low) <= fmax(useful(job, box->loss_high), 0.01) * TINY;
}

/* Until the best bound is near the best answer, or no more programs may be solved. Sets what is proven. */
static int run(struct branch *branch, struct tm_error *e)
{
    struct tm_search *search = branch->search;
    struct tm_plan_result *out = search->out;
    double bound = INFINITY;
    int rc = push_regions(branch, e);
    for (int step = 0; rc == 0 && branch->count > 0; step++) {
        struct box box = pop(branch);
        bool over = (int)out->programs >= search->request->programs_max || step >= STEPS_MAX ||
                    branch->count + 2 >= BOXES_MAX || (box.solved && is_tiny(branch, &box));
        if (box.bound >= tm_search__best(search) * (1 - GAP_WANTED) || over) {
            bound = box.bound;
            break;
        }
        if (box.solved || box.high > box.low * WIDE) {
            rc = halve(branch, &box, e);
            continue;
        }
        rc = solve_box(branch, &box, e);
        if (rc == 0 && isfinite(box.bound)) rc = push(branch, &box, e);
    }
    if (rc != 0) return rc;
    double best = tm_search__best(search);
    out->bound = fmin(bound, best);
    out->gap = isfinite(best) ? 1 - out->bound / best : NAN;
    return 0;
}

static int branch_init(struct branch *branch, struct tm_search *search, struct tm_error *e)
{
    size_t most = 1;
    *branch = (struct branch){.search = search};
    for (size_t r = 0; r < search->supply->region_count; r++)
        most = search->supply->regions[r].count > most ? search->supply->regions[r].count : most;
    branch->pools = tm_alloc(most * sizeof *branch->pools);
    branch->offers = tm_alloc(most * sizeof *branch->offers); /* NOLINT(bugprone-sizeof-expression): pointers */
    branch->counts = tm_alloc(most * sizeof *branch->counts);
    branch->covered = tm_alloc(most * (search->request->quota_count + 1) * sizeof *branch->covered);
    bool room = branch->pools != NULL && branch->offers != NULL && branch->counts != NULL && branch->covered != NULL;
    return room ? 0 : tm_error_nomem(e);
}

static void branch_deinit(struct branch *branch)
{
    tm_free(branch->pools);
    tm_free(branch->offers);
    tm_free(branch->counts);
    tm_free(branch->covered);
    tm_free(branch->boxes);
}

int tm_search__branch(struct tm_search *search, struct tm_error *e)
{
    struct branch branch;
    int rc = branch_init(&branch, search, e);
    if (rc == 0) rc = run(&branch, e);
    branch_deinit(&branch);
    return rc;
}

/* ---- for others ---- */

static size_t region_index(const struct tm_supply *supply, const struct tm_plan_fleet *fleet)
{
    for (size_t r = 0; r < supply->region_count; r++) {
        const struct tm_plan_region *region = &supply->regions[r];
        for (size_t i = 0; i < region->count; i++) {
            if (supply->pools[region->first + i].offer == fleet->parts[0].offer) return r;
        }
    }
    return 0;
}

int tm_plan_program(const struct tm_supply *supply, const struct tm_plan_request *request,
                    const struct tm_plan_answer *answer, struct tm_jsonout *json, struct tm_error *e)
{
    struct tm_search search = {supply, request, request->planner == TM_PLAN_TIDEMILL, NULL};
    struct box box = {.region = region_index(supply, &answer->fleet),
                      .spot = tm_plan_spot_instances(&answer->fleet) > 0,
                      .low = answer->prediction.samples_per_s * 0.97,
                      .high = answer->prediction.samples_per_s * 1.03,
                      .loss_high = INFINITY};
    struct branch branch;
    struct program program;
    struct tm_mix_solution solution = {0};
    int rc = branch_init(&branch, &search, e);
    if (rc == 0) build_program(&branch, &box, &program);
    if (rc == 0) rc = tm_mix__solve(&program.mix, 0, branch.counts, program.anchor_counts, &solution, e);
    struct tm_milp *milp = rc == 0 ? tm_mix__program(&program.mix) : NULL;
    if (rc == 0 && milp == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_bool(json, "feasible", solution.feasible);
        tm_jsonout_number(json, "objective", solution.usd_h);
        tm_jsonout_number(json, "bound", solution.bound_usd_h);
        tm_milp__json(milp, "program", json);
        tm_jsonout_end(json);
    }
    tm_milp__destroy(milp);
    branch_deinit(&branch);
    return rc;
}
