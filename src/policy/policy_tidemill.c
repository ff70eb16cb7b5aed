/* Ours: what each layout is worth over what may come, not over one guess.
 *
 * The forecast says how the fleet may change in one interval: a distribution of losses and arrivals, most of it on "no
 * change". A layout is worth what it yields until the fleet changes next, at any of the intervals to come, plus, for
 * each change that may be next, the best that can be made of the time that is left then, all pauses paid:
 *
 *     worth(y) = thr(y) (T - C(now -> y))                          the first interval
 *              + sum over k: P(no change before k) [ P(none at k) thr(y) T
 *                  + sum over changes j: P(j) max over z: thr(z) ((K - k) T - C(y, j -> z)) ]
 *
 * C are the expected pauses of migrate.h: which instances go is averaged over as well as how many. Staying costs
 * nothing, so where little happens a move must pay for itself within K intervals: no flapping. One change is looked
 * through, not two: the exact solution of the whole decision process gained 0.05% more samples on the published hours,
 * at a thousand times the work. */
#include "policy/policy_internal.h"

#include <math.h>

enum {
    INTERVALS = 12,     /* K: answers hardly differ from 12 to 20 */
    JUMPS_EACH = 8,     /* kinds of losses, and of arrivals */
    FEW_LAYOUTS = 256,  /* with more layouts than this, only the likely ones are tried */
    NEAR_PIPELINES = 2, /* ... those with at most so many pipelines less than fit ... */
};
static const double likely_share = 0.75; /* ... and at least this share of the best throughput */
static const double believed_after = 80; /* intervals after which half of what the forecast says is believed */
static const double sure = 0.9;          /* a change as likely as this is not doubted */
static const double hysteresis = 0.01;   /* a move that no event asks for must gain this share */

/* A change of the fleet that may come next. */
struct jump {
    int lost;
    int arrived;
    double probability; /* in one interval */
};

/* Sizes 1 to 5 stand alone, larger ones are put together by powers of two. */
static int kind_of(int size)
{
    int kind = size - 1;
    if (size <= 5) return kind;
    for (kind = 5, size /= 6; size > 1 && kind < JUMPS_EACH - 1; size /= 2)
        kind++;
    return kind;
}

/* How far the forecast's changes are believed: little after a few intervals, when each event it saw weighs heavily; but
 * a change that it is sure of (announced losses) is not doubted. */
static double trust_in(const struct tm_view *view)
{
    int from = view->forecast_from;
    double unchanged = from <= view->forecast->count_max ? view->forecast->steps[0].pmf[from] : 0;
    double learned = view->observed / (view->observed + believed_after);
    return 1 - unchanged > sure ? 1 : learned;
}

/* Losses first, then arrivals. Sizes of one kind become their mean, in whole instances. */
static size_t list_jumps(const struct tm_view *view, const struct tm_layouts *layouts, struct jump *jumps)
{
    int instances_max = layouts->instances_max, each = layouts->workers_each > 1 ? layouts->workers_each : 1;
    double probability[2 * JUMPS_EACH] = {0}, sizes[2 * JUMPS_EACH] = {0};
    if (view->forecast == NULL) return 0;
    const double *pmf = view->forecast->steps[0].pmf;
    double trust = trust_in(view);
    for (int count = 0; count <= view->forecast->count_max; count++) {
        int change = count - view->forecast_from;
        if (change == 0 || pmf[count] <= 0) continue;
        int kind = change < 0 ? kind_of(-change) : JUMPS_EACH + kind_of(change);
        probability[kind] += pmf[count];
        sizes[kind] += pmf[count] * (change < 0 ? -change : change);
    }
    size_t count = 0;
    for (int kind = 0; kind < 2 * JUMPS_EACH; kind++) {
        if (probability[kind] < 1e-9) continue;
        int size = each * (int)fmax(1, round(sizes[kind] / probability[kind] / each));
        struct jump jump = {.probability = probability[kind] * trust};
        if (kind < JUMPS_EACH)
            jump.lost = size < view->after ? size : view->after;
        else
            jump.arrived = view->after + size < instances_max ? size : instances_max - view->after;
        if (jump.lost + jump.arrived > 0) jumps[count++] = jump;
    }
    return count;
}

static void sort_by_speed(const struct tm_layouts *layouts, int *candidates, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        int layout = candidates[i];
        size_t place = i;
        for (; place > 0 && layouts->list[candidates[place - 1]].samples_per_s < layouts->list[layout].samples_per_s;
             place--)
            candidates[place] = candidates[place - 1];
        candidates[place] = layout;
    }
}

/* Adds layouts of a depth with `first` to `last` pipelines that reach a throughput. */
static size_t add_candidates(const struct tm_policy *policy, size_t count, int stages, int first, int last,
                             double least)
{
    for (int pipelines = first > 1 ? first : 1; pipelines <= last; pipelines++) {
        int layout = tm_layouts_find(policy->layouts, pipelines, stages);
        if (layout != TM_LAYOUT_PAUSE && policy->layouts->list[layout].samples_per_s > least)
            policy->candidates[count++] = layout;
    }
    return count;
}

/* Layouts worth trying on so many instances, the fastest first. Of a long list only those near the best: of each depth
 * the widest that fit and, since more pipelines may be slower or never measured, the fastest and those near it. */
static size_t list_candidates(const struct tm_policy *policy, int instances)
{
    const struct tm_layouts *layouts = policy->layouts;
    size_t count = 0;
    bool few = policy->options.breadth == TM_BREADTH_ALL ||
               (policy->options.breadth == TM_BREADTH_DEFAULT && layouts->count <= FEW_LAYOUTS);
    double least = few ? 0 : likely_share * layouts->list[layouts->best[instances]].samples_per_s;
    for (int stages = layouts->stages_min; stages <= layouts->stages_max; stages++) {
        int most = instances / stages, widest = tm_layouts_find(layouts, most, stages);
        if (widest == TM_LAYOUT_PAUSE) continue;
        int fastest = layouts->list[layouts->fastest[widest]].pipelines, wide = most - NEAR_PIPELINES;
        if (few) wide = 1;
        if (fastest < wide) count = add_candidates(policy, count, stages, fastest - NEAR_PIPELINES, fastest, least);
        count = add_candidates(policy, count, stages, wide, most, least);
    }
    sort_by_speed(layouts, policy->candidates, count);
    return count;
}

/* Would moving to `to` for so little make more of some interval than what is known already? */
static bool may_improve(double speed, double least_s, double interval_s, const double best[INTERVALS + 1])
{
    for (int k = 1; k < INTERVALS; k++)
        if (speed * (interval_s * (INTERVALS - k) - least_s) > best[k]) return true;
    return false;
}

/* best[k]: the most that can be made of the time left after interval k, once the jump has come. */
static int best_after_jump(struct tm_policy *policy, int instances, int layout, const struct jump *jump,
                           double interval_s, double best[INTERVALS + 1], struct tm_error *e)
{
    const struct tm_layouts *layouts = policy->layouts;
    for (int k = 0; k <= INTERVALS; k++)
        best[k] = 0;
    size_t count = list_candidates(policy, instances - jump->lost + jump->arrived);
    for (size_t i = 0; i < count; i++) {
        int to = policy->candidates[i];
        double speed = layouts->list[to].samples_per_s;
        double least_s = tm_migrations_least_ms(policy->migrations, layout, jump->lost, to) / 1000;
        if (!may_improve(speed, least_s, interval_s, best)) continue;
        double ms = tm_migrations_ms(policy->migrations, instances, layout, jump->lost, to);
        if (isnan(ms)) return tm_error_nomem(e);
        for (int k = 0; k <= INTERVALS; k++) {
            double samples = speed * (interval_s * (INTERVALS - k) - ms / 1000);
            best[k] = samples > best[k] ? samples : best[k];
        }
    }
    return 0;
}

/* What the next interval's jumps do to all layouts alike. */
struct outlook {
    const struct jump *jumps;
    size_t count;
    size_t arrivals;                  /* losses stand before this one */
    double changing;                  /* the probability of any of them, in one interval */
    double unchanged[INTERVALS + 1];  /* of none before interval k */
    double free_after[INTERVALS + 1]; /* the most that they leave after interval k, every move then free */
};

/* What the jump takes from what no layout can exceed, once the best of its moves are known. */
static double taken_by(const struct tm_policy *policy, const struct tm_view *view, const struct outlook *outlook,
                       const struct jump *jump, const double best[INTERVALS + 1])
{
    const struct tm_layouts *layouts = policy->layouts;
    double free_speed = layouts->list[layouts->best[view->after - jump->lost + jump->arrived]].samples_per_s, taken = 0;
    for (int k = 1; k < INTERVALS; k++)
        taken += outlook->unchanged[k] * (free_speed * view->interval_s * (INTERVALS - k) - best[k]);
    return taken * jump->probability;
}

/* -INFINITY where it is sure to be below `hope`: then the dear part, large losses, is not even looked at. `bound` is
 * what it cannot exceed (bound_of). */
static int worth_of(struct tm_policy *policy, const struct tm_view *view, const struct tm_ranked *ranked, double hope,
                    const struct outlook *outlook, double *out, struct tm_error *e)
{
    double speed = policy->layouts->list[ranked->layout].samples_per_s, interval_s = view->interval_s;
    double bound = ranked->bound, after[INTERVALS + 1] = {0}, best[2 * JUMPS_EACH][INTERVALS + 1];
    *out = -INFINITY;
    for (size_t i = 0; i < outlook->count; i++) {
        size_t j = (outlook->arrivals + i) % outlook->count; /* arrivals are cheap to look at, then small losses */
        const struct jump *jump = &outlook->jumps[j];
        int rc = best_after_jump(policy, view->after, ranked->layout, jump, interval_s, best[j], e);
        if (rc != 0) return rc;
        bound -= taken_by(policy, view, outlook, jump, best[j]);
        if (bound + fabs(bound) * 1e-9 < hope) return 0;
    }
    for (size_t j = 0; j < outlook->count; j++)
        for (int k = 0; k <= INTERVALS; k++)
            after[k] += outlook->jumps[j].probability * best[j][k];
    double worth = -speed * ranked->pause_s;
    for (int k = 1; k <= INTERVALS; k++)
        worth += outlook->unchanged[k] * (speed * interval_s + (k < INTERVALS ? after[k] : 0));
    *out = worth;
    return 0;
}

/* What going to a layout now costs; NaN: no memory. */
static double pause_s_to(struct tm_policy *policy, const struct tm_view *view, int layout)
{
    double left_ms = view->standing.migrating_ms;
    double ms = tm_migrations_ms(policy->migrations, view->before, view->standing.layout, view->lost, layout);
    if (isnan(ms) || left_ms <= 0) return ms / 1000;
    return (ms > 0 ? ms + tm_migrations_restart_ms(policy->migrations, layout) : left_ms) / 1000;
}

/* What no layout can exceed: as worth_of, with every move after a jump free. */
static double bound_of(double speed, double pause_s, double interval_s, const struct outlook *outlook)
{
    double bound = -speed * pause_s;
    for (int k = 1; k <= INTERVALS; k++)
        bound += outlook->unchanged[k] * (speed * interval_s + (k < INTERVALS ? outlook->free_after[k] : 0));
    return bound;
}

static void look_out(const struct tm_policy *policy, const struct tm_view *view, struct outlook *outlook)
{
    const struct tm_layouts *layouts = policy->layouts;
    for (size_t j = 0; j < outlook->count; j++) {
        const struct jump *jump = &outlook->jumps[j];
        double speed = layouts->list[layouts->best[view->after - jump->lost + jump->arrived]].samples_per_s;
        outlook->changing += jump->probability;
        outlook->arrivals += jump->lost > 0;
        for (int k = 0; k <= INTERVALS; k++)
            outlook->free_after[k] += jump->probability * speed * view->interval_s * (INTERVALS - k);
    }
    outlook->unchanged[1] = 1;
    for (int k = 2; k <= INTERVALS; k++)
        outlook->unchanged[k] = outlook->unchanged[k - 1] * (1 - outlook->changing);
}

static int rank(struct tm_policy *policy, const struct tm_view *view, const struct outlook *outlook, int layout,
                struct tm_ranked *out, struct tm_error *e)
{
    double pause_s = pause_s_to(policy, view, layout), speed = policy->layouts->list[layout].samples_per_s;
    if (isnan(pause_s)) return tm_error_nomem(e);
    *out = (struct tm_ranked){layout, pause_s, bound_of(speed, pause_s, view->interval_s, outlook)};
    return 0;
}

/* Candidates with their bounds, the most promising first: most need no closer look. */
static int rank_candidates(struct tm_policy *policy, const struct tm_view *view, const struct outlook *outlook,
                           size_t *out_count, struct tm_error *e)
{
    size_t count = list_candidates(policy, view->after);
    for (size_t i = 0; i < count; i++) {
        struct tm_ranked ranked;
        int rc = rank(policy, view, outlook, policy->candidates[i], &ranked, e);
        if (rc != 0) return rc;
        size_t place = i;
        for (; place > 0 && policy->ranked[place - 1].bound < ranked.bound; place--)
            policy->ranked[place] = policy->ranked[place - 1];
        policy->ranked[place] = ranked;
    }
    *out_count = count;
    return 0;
}

/* Where nothing has happened, a move must promise more than the forecast's own wavering. */
static int keep_if_near(struct tm_policy *policy, const struct tm_view *view, const struct outlook *outlook,
                        double most, struct tm_decision *out, struct tm_error *e)
{
    int standing = view->standing.layout;
    if (view->event || out->layout == standing || standing == TM_LAYOUT_PAUSE) return 0;
    struct tm_ranked ranked;
    double staying;
    int rc = rank(policy, view, outlook, standing, &ranked, e);
    if (rc == 0) rc = worth_of(policy, view, &ranked, -INFINITY, outlook, &staying, e);
    if (rc == 0 && most < staying * (1 + hysteresis)) out->layout = standing;
    return rc;
}

int tm_policy__tidemill(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                        struct tm_error *e)
{
    struct jump jumps[2 * JUMPS_EACH];
    struct outlook outlook = {.jumps = jumps, .count = list_jumps(view, policy->layouts, jumps)};
    size_t count;
    look_out(policy, view, &outlook);
    if (view->has_deadline) out->want_on_demand = tm_policy__on_demand_needed(policy->layouts, view);
    int rc = rank_candidates(policy, view, &outlook, &count, e);
    if (rc != 0) return rc;
    out->layout = TM_LAYOUT_PAUSE;
    double most = -INFINITY;
    for (size_t i = 0; i < count && policy->ranked[i].bound > most; i++) {
        double worth;
        rc = worth_of(policy, view, &policy->ranked[i], most, &outlook, &worth, e);
        if (rc != 0) return rc;
        if (worth <= most) continue;
        most = worth;
        out->layout = policy->ranked[i].layout;
    }
    return keep_if_near(policy, view, &outlook, most, out, e);
}
