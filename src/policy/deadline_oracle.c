#include "policy/deadline_oracle.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* What to be on: an enum tm_gang_on, which stands for the first place, and behind those the other places of spot. */
enum { KINDS = 3 };

static bool is_spot(int kind)
{
    return kind == TM_GANG_SPOT || kind >= KINDS;
}

static int place_of(int kind)
{
    return kind >= KINDS ? kind - KINDS + 1 : 0;
}

static const double SAME_S = 1e-6;
static const double SAME_USD = 1e-9;

/* How a spell is spent: on one thing, or (once in a plan) on it in the first or the last part only, idle else. */
enum how { WHOLE, FIRST_PART, LAST_PART };

/* A way to get to the end of a spell. Of a part no more than the launch is counted yet; it may grow by room_s. */
struct pair {
    double used_s; /* slack used: idle and restarting time */
    double usd;
    double room_s;
    int32_t parent; /* index in all pairs */
    int32_t part;   /* 3 x the spell spent in part + how; 0: none so far */
    int8_t during;  /* an enum tm_gang_on, in this spell */
    int8_t after;   /* at its end */
    int8_t how;
    int8_t part_on;
};

struct search {
    const struct tm_deadline_terms *terms;
    const struct tm_gang_places *places;
    double cheapest_usd_s; /* of all places */
    double slack_s;
    double bound_usd;    /* it can be done for that */
    bool parts;          /* may a spell be spent in part */
    double spot_ahead_s; /* time with spot from the end of this spell to the deadline */
    struct pair *pairs;  /* of all spells, one after the other */
    size_t count;
    size_t capacity;
};

static double price_usd_s(const struct search *search, int on)
{
    if (is_spot(on)) return search->places->usd_h[place_of(on)] / 3600;
    return (on == TM_GANG_ON_DEMAND ? search->terms->on_demand_usd_h : 0) / 3600;
}

/* With its part as long as can be. */
static double least_used_s(const struct pair *pair)
{
    return pair->used_s - pair->room_s;
}

/* Pairs of one kind stand side by side, those without a part first, by the least slack they can use, then dollars. */
static int compare_pairs(const void *left, const void *right)
{
    const struct pair *a = left;
    const struct pair *b = right;
    if (a->after != b->after) return a->after < b->after ? -1 : 1;
    if (a->part_on != b->part_on) return a->part_on < b->part_on ? -1 : 1;
    if (least_used_s(a) != least_used_s(b)) return least_used_s(a) < least_used_s(b) ? -1 : 1;
    if (a->usd != b->usd) return a->usd < b->usd ? -1 : 1;
    return (a->parent > b->parent) - (a->parent < b->parent);
}

/* `a` can do with as little slack as `b`, and however much `b` grows its part, `a` is as cheap with as little slack. */
static bool beats(const struct pair *a, const struct pair *b, double part_usd_s)
{
    double a_full_usd = a->usd + part_usd_s * a->used_s; /* what growing costs is on one line for all of a kind */
    double b_full_usd = b->usd + part_usd_s * b->used_s;
    return least_used_s(a) <= least_used_s(b) && a->usd <= b->usd + SAME_USD && a_full_usd <= b_full_usd + SAME_USD;
}

/* The one of pairs without parts, in order of slack used and so of falling dollars, that uses most but at most used_s.
 */
static const struct pair *last_within(const struct pair *pairs, size_t count, double used_s)
{
    size_t low = 0;
    while (count > 0) {
        size_t half = count / 2;
        bool within = pairs[low + half].used_s <= used_s;
        if (within) low += half + 1;
        count = within ? count - half - 1 : half;
    }
    return low > 0 ? &pairs[low - 1] : NULL;
}

/* Drops pairs that another one beats (those it finds with little effort: what stays too much costs time only). Gives
 * how many are left. */
static size_t prune(const struct search *search, struct pair *pairs, size_t count)
{
    enum { LOOK_BACK = 64 };
    size_t kept = 0, kind = 0, whole = 0, whole_end = 0;
    if (count == 0) return 0;
    qsort(pairs, count, sizeof *pairs, compare_pairs);
    for (size_t i = 0; i < count; i++) {
        struct pair pair = pairs[i];
        if (kept == 0 || pairs[kept - 1].after != pair.after) whole = whole_end = kept;
        if (kept == 0 || pairs[kept - 1].after != pair.after || pairs[kept - 1].part_on != pair.part_on) kind = kept;
        double part_usd_s = price_usd_s(search, pair.part_on);
        bool beaten = false;
        for (size_t k = kept; !beaten && k > kind && k + LOOK_BACK > kept; k--)
            beaten = beats(&pairs[k - 1], &pair, part_usd_s);
        if (!beaten && pair.part != 0) {
            const struct pair *other = last_within(pairs + whole, whole_end - whole, least_used_s(&pair));
            beaten = other != NULL && other->usd <= pair.usd + SAME_USD;
        }
        if (beaten) continue;
        pairs[kept++] = pair;
        if (pair.part == 0) whole_end = kept;
    }
    return kept;
}

/* No way from here is cheaper: work is done on spot while there is spot, and costs no launches. */
static double least_usd(const struct search *search, const struct pair *pair, double end_s)
{
    double left_s = fmax(search->terms->work_s - (end_s - pair->used_s), 0);
    double spot_s = search->spot_ahead_s + (is_spot(pair->part_on) ? pair->room_s : 0);
    double spot_usd_s = search->cheapest_usd_s;
    double on_demand_usd_s = price_usd_s(search, TM_GANG_ON_DEMAND);
    if (on_demand_usd_s <= spot_usd_s) return pair->usd + left_s * on_demand_usd_s;
    return pair->usd + fmin(left_s, spot_s) * spot_usd_s + fmax(left_s - spot_s, 0) * on_demand_usd_s;
}

static int keep(struct search *search, const struct pair *pair, double end_s, struct tm_error *e)
{
    if (pair->used_s > search->slack_s + pair->room_s + SAME_S) return 0;
    if (least_usd(search, pair, end_s) > search->bound_usd + SAME_USD) return 0;
    int rc =
        tm_grow((void **)&search->pairs, &search->capacity, search->count + 1, sizeof *pair, (size_t)TM_GANG_PAIRS_MAX);
    if (rc == -TM_ELIMIT)
        return tm_error_set(
            e, TM_ELIMIT,
            "oracle-deadline: more than %d states to keep; leave this policy out, or use a shorter deadline",
            TM_GANG_PAIRS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    search->pairs[search->count++] = *pair;
    return 0;
}

struct stage {
    int32_t number;
    uint64_t up;
    double end_s;
    double length_s;
};

static bool can_be(const struct stage *stage, int on)
{
    return !is_spot(on) || (stage->up >> place_of(on) & 1) != 0;
}

/* A launch is charged its whole restart at once: a plan that ends it in its restart is never the cheapest. */
static int spend(struct search *search, const struct stage *stage, int32_t parent, int on, enum how how,
                 struct tm_error *e)
{
    const struct tm_deadline_terms *terms = search->terms;
    struct pair next = search->pairs[parent];
    int before = can_be(stage, next.after) ? next.after : TM_GANG_NOTHING; /* lost */
    bool goes_on = before == on && how != LAST_PART;
    double start_s = on == TM_GANG_ON_DEMAND && !goes_on ? terms->start_s : 0;
    double spot_s = is_spot(on) ? terms->spot_start_s : 0;
    double launch_s = on == TM_GANG_NOTHING || goes_on ? 0 : start_s + spot_s + terms->restart_s;
    next.parent = parent;
    next.during = (int8_t)on;
    next.after = (int8_t)(how == FIRST_PART ? TM_GANG_NOTHING : on);
    next.how = (int8_t)how;
    if (how == WHOLE) {
        next.used_s += on == TM_GANG_NOTHING ? stage->length_s : launch_s;
        next.usd += price_usd_s(search, on) * (stage->length_s - start_s);
    } else {
        if (next.part != 0 || stage->length_s < launch_s) return 0;
        next.used_s += stage->length_s;
        next.usd += price_usd_s(search, on) * (launch_s - start_s);
        next.part = 3 * stage->number + (int)how;
        next.part_on = (int8_t)on;
        next.room_s = stage->length_s - launch_s;
    }
    return keep(search, &next, stage->end_s, e);
}

/* All ways through one spell, behind those through the one before, which begin at `first`. */
static int through_spell(struct search *search, size_t first, const struct stage *stage, struct tm_error *e)
{
    size_t end = search->count;
    for (size_t i = first; i < end; i++) {
        for (int on = 0; on < KINDS + search->places->count - 1; on++) {
            if (!can_be(stage, on)) continue;
            for (int how = WHOLE; how <= (on != TM_GANG_NOTHING && search->parts ? LAST_PART : WHOLE); how++) {
                int rc = spend(search, stage, (int32_t)i, on, (enum how)how, e);
                if (rc != 0) return rc;
            }
        }
    }
    if (search->count > end) search->count = end + prune(search, search->pairs + end, search->count - end);
    return 0;
}

/* By how much the part has to grow for the work to be done; less than 0: it is done without. */
static double growth_s(const struct search *search, const struct pair *pair)
{
    return fmax(pair->used_s - search->slack_s, 0);
}

static double final_usd(const struct search *search, const struct pair *pair)
{
    return pair->usd + growth_s(search, pair) * price_usd_s(search, pair->part_on);
}

static int add_stretch(struct tm_gang_plan *plan, double start_s, int on, struct tm_error *e)
{
    struct tm_gang_stretch stretch = {
        .start_s = start_s, .on = is_spot(on) ? TM_GANG_SPOT : (enum tm_gang_on)on, .place = place_of(on)};
    const struct tm_gang_stretch *last = plan->count > 0 ? &plan->stretches[plan->count - 1] : NULL;
    if (last != NULL && last->on == stretch.on && last->place == stretch.place) return 0;
    int rc = tm_grow((void **)&plan->stretches, &plan->capacity, plan->count + 1, sizeof *plan->stretches,
                     2 * (size_t)TM_GANG_SPELLS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    plan->stretches[plan->count++] = stretch;
    return 0;
}

/* One spell of the way: a part is as long as its launch and its growth. */
static int add_spell(struct tm_gang_plan *plan, double start_s, double end_s, const struct pair *pair, double growth,
                     struct tm_error *e)
{
    double part_s = fmin(end_s - start_s - pair->room_s + growth, end_s - start_s);
    if (pair->how == WHOLE) return add_stretch(plan, start_s, pair->during, e);
    bool first = pair->how == FIRST_PART;
    int rc = add_stretch(plan, start_s, first ? pair->during : (int8_t)TM_GANG_NOTHING, e);
    if (rc != 0) return rc;
    if (first) return add_stretch(plan, start_s + part_s, TM_GANG_NOTHING, e);
    return add_stretch(plan, end_s - part_s, pair->during, e);
}

static double spell_end_s(const struct tm_deadline_terms *terms, const struct tm_gang_spell *spells, size_t count,
                          size_t i)
{
    return i + 1 < count ? fmin(spells[i + 1].start_s, terms->deadline_s) : terms->deadline_s;
}

/* Writes the way to `best`, which is found from its end. */
static int write_plan(const struct search *search, const struct tm_gang_spell *spells, size_t count, size_t used,
                      const struct pair *best, struct tm_gang_plan *plan, struct tm_error *e)
{
    size_t *way = tm_alloc(used * sizeof *way); /* indices of pairs */
    if (way == NULL) return tm_error_nomem(e);
    size_t at = (size_t)(best - search->pairs);
    for (size_t i = used; i-- > 0; at = (size_t)search->pairs[at].parent)
        way[i] = at;
    int rc = 0;
    for (size_t i = 0; i < used && rc == 0; i++)
        rc = add_spell(plan, spells[i].start_s, spell_end_s(search->terms, spells, count, i), &search->pairs[way[i]],
                       growth_s(search, best), e);
    tm_free(way);
    plan->cost_usd = final_usd(search, best);
    return rc;
}

/* All ways to the deadline; gives how many spells begin before it, and the cheapest way (NULL: there is none). */
static int walk(struct search *search, const struct tm_gang_spell *spells, size_t count, size_t *out_used,
                const struct pair **out_best, struct tm_error *e)
{
    size_t first = 0;
    size_t used = 0;
    search->count = 0;
    search->spot_ahead_s = 0;
    for (size_t i = 0; i < count && spells[i].start_s < search->terms->deadline_s; i++) {
        if (spells[i].up != 0) search->spot_ahead_s += spell_end_s(search->terms, spells, count, i) - spells[i].start_s;
    }
    int rc = keep(search, &(struct pair){0}, 0, e);
    for (; rc == 0 && used < count && spells[used].start_s < search->terms->deadline_s; used++) {
        double end_s = spell_end_s(search->terms, spells, count, used);
        struct stage stage = {(int32_t)used, spells[used].up, end_s, end_s - spells[used].start_s};
        if (stage.up != 0) search->spot_ahead_s -= stage.length_s;
        size_t next = search->count;
        rc = through_spell(search, first, &stage, e);
        first = next;
    }
    if (rc != 0) return rc;
    const struct pair *best = NULL;
    for (size_t i = first; i < search->count; i++) {
        if (best == NULL || final_usd(search, &search->pairs[i]) < final_usd(search, best)) best = &search->pairs[i];
    }
    *out_used = used;
    *out_best = best;
    return 0;
}

/* First without parts: quick, nearly the cheapest, and so a bound that leaves little to the second. */
static int solve(struct search *search, const struct tm_gang_spell *spells, size_t count, struct tm_gang_plan *plan,
                 struct tm_error *e)
{
    const struct pair *best = NULL;
    size_t used = 0;
    int rc = walk(search, spells, count, &used, &best, e);
    if (rc != 0) return rc;
    if (best != NULL) search->bound_usd = fmin(search->bound_usd, final_usd(search, best));
    search->parts = true;
    rc = walk(search, spells, count, &used, &best, e);
    if (rc != 0) return rc;
    if (best == NULL)
        return tm_error_set(e, TM_ENONE, "no plan meets the deadline: even on-demand instances need longer");
    return write_plan(search, spells, count, used, best, plan, e);
}

int tm_gang_plan_init(struct tm_gang_plan *plan, const struct tm_deadline_terms *terms,
                      const struct tm_gang_places *places, const struct tm_gang_spell *spells, size_t count,
                      struct tm_error *e)
{
    assert(count > 0 && count <= TM_GANG_SPELLS_MAX && spells[0].start_s == 0);
    assert(places->count > 0 && places->count <= TM_GANG_PLACES_MAX);
    struct search search = {.terms = terms,
                            .places = places,
                            .cheapest_usd_s = INFINITY,
                            .slack_s = terms->deadline_s - terms->work_s,
                            .bound_usd = INFINITY};
    for (int i = 0; i < places->count; i++)
        search.cheapest_usd_s = fmin(search.cheapest_usd_s, places->usd_h[i] / 3600);
    struct tm_gang_plan made = {0};
    int rc = solve(&search, spells, count, &made, e);
    tm_free(search.pairs);
    if (rc != 0) {
        tm_gang_plan_deinit(&made);
        return rc;
    }
    *plan = made;
    return 0;
}

size_t tm_gang_plan__at(const struct tm_gang_plan *plan, double now_s)
{
    size_t i = 0;
    while (i + 1 < plan->count && plan->stretches[i + 1].start_s <= now_s + SAME_S)
        i++;
    return i;
}

void tm_gang_plan_deinit(struct tm_gang_plan *plan)
{
    tm_free(plan->stretches);
    *plan = (struct tm_gang_plan){0};
}
