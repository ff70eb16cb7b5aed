#include "sim/gang.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>

/* A finish this close to the deadline meets it: times are sums of seconds. */
static const double SAME_S = 1e-3;
/* The clock never stands still, whatever a policy asks for. */
static const double LEAST_STEP_S = 1e-6;
/* How fast a learner forgets. */
static const double MEMORY_S = 24 * 3600.0;
enum { DECISIONS_MAX = 1 << 22 };

struct spell_list {
    struct tm_gang_spell *spells; /* owned; times since the start of the job, [0] at 0 */
    size_t count;
    size_t capacity;
};

struct world {
    const struct tm_deadline_policy *policy;
    struct tm_deadline_terms terms;
    struct spell_list list;
    size_t spell; /* the one that holds now */
    struct tm_spells learned;
    struct tm_deadline_view view;
    double start_left_s; /* of on-demand instances that were asked for */
    struct tm_gang_result *result;
};

static int add_spell(struct spell_list *list, double start_s, bool up, struct tm_error *e)
{
    if (list->count > 0 && list->spells[list->count - 1].up == up) return 0;
    int rc =
        tm_grow((void **)&list->spells, &list->capacity, list->count + 1, sizeof *list->spells, TM_GANG_SPELLS_MAX);
    if (rc == -TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "spot availability changes more than %d times; cut the trace",
                            TM_GANG_SPELLS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    list->spells[list->count++] = (struct tm_gang_spell){.start_s = start_s, .up = up};
    return 0;
}

/* Feeds what lies before the start to `learned`, and lists the spells from there on. */
static int make_spells(const struct tm_trace *trace, const struct tm_gang_options *o, struct tm_spells *learned,
                       struct spell_list *list, struct tm_error *e)
{
    int64_t count = 0;
    size_t i = 0;
    for (; i < trace->event_count && trace->events[i].time_ms <= o->from_ms; i++) {
        count += trace->events[i].in - trace->events[i].out;
        tm_spells_observe(learned, (double)(trace->events[i].time_ms - o->from_ms) / 1000, count >= o->gang);
    }
    int rc = add_spell(list, 0, count >= o->gang, e);
    for (; i < trace->event_count && rc == 0; i++) {
        count += trace->events[i].in - trace->events[i].out;
        rc = add_spell(list, (double)(trace->events[i].time_ms - o->from_ms) / 1000, count >= o->gang, e);
    }
    double end_s = (double)(trace->end_ms - o->from_ms) / 1000;
    if (rc == 0 && end_s > list->spells[list->count - 1].start_s) rc = add_spell(list, end_s, false, e);
    return rc;
}

static void launch(struct world *w, enum tm_gang_on on)
{
    w->view.on = on;
    w->view.restart_left_s = on == TM_GANG_NOTHING ? 0 : w->terms.restart_s;
    w->start_left_s = 0;
    if (on == TM_GANG_NOTHING) return;
    if (on == TM_GANG_ON_DEMAND) w->start_left_s = w->terms.start_s;
    w->view.restart_left_s += w->start_left_s;
    w->result->launches++;
}

/* What the world is like now, as far as a policy may know it; a spot gang that is gone is gone. */
static void look(struct world *w)
{
    while (w->spell + 1 < w->list.count && w->list.spells[w->spell + 1].start_s <= w->view.now_s + LEAST_STEP_S)
        w->spell++;
    w->view.spot = w->list.spells[w->spell].up;
    tm_spells_observe(&w->learned, w->view.now_s, w->view.spot);
    if (w->view.on == TM_GANG_SPOT && !w->view.spot) {
        launch(w, TM_GANG_NOTHING);
        w->result->losses++;
    }
}

/* To the next change. */
static double step_s(const struct world *w, double until_s)
{
    double now_s = w->view.now_s;
    double step = until_s - now_s;
    if (w->spell + 1 < w->list.count) step = fmin(step, w->list.spells[w->spell + 1].start_s - now_s);
    if (w->view.on != TM_GANG_NOTHING) {
        if (w->start_left_s > 0) step = fmin(step, w->start_left_s);
        step = fmin(step, w->view.restart_left_s > 0 ? w->view.restart_left_s : w->terms.work_s - w->view.done_s);
    }
    return fmax(step, LEAST_STEP_S);
}

static void pass(struct world *w, double step)
{
    struct tm_gang_result *r = w->result;
    w->view.now_s += step;
    if (w->view.on == TM_GANG_NOTHING) {
        r->idle_s += step;
    } else if (w->start_left_s > 0) {
        r->start_up_s += step;
    } else {
        *(w->view.on == TM_GANG_SPOT ? &r->spot_s : &r->on_demand_s) += step;
        if (w->view.restart_left_s > 0) r->restart_s += step;
    }
    if (w->view.on == TM_GANG_NOTHING) return;
    if (w->view.restart_left_s <= 0) w->view.done_s += step;
    w->view.restart_left_s = w->view.restart_left_s - step < LEAST_STEP_S ? 0 : w->view.restart_left_s - step;
    w->start_left_s = w->start_left_s - step < LEAST_STEP_S ? 0 : w->start_left_s - step;
}

static int play(struct world *w, struct tm_error *e)
{
    struct tm_gang_result *r = w->result;
    while (w->view.done_s < w->terms.work_s - LEAST_STEP_S) {
        look(w);
        struct tm_deadline_decision decision = tm_deadline_decide(w->policy, &w->view);
        if (++r->decisions > DECISIONS_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d decisions; the job is too long", DECISIONS_MAX);
        if (decision.go != w->view.on) launch(w, decision.go);
        double step = step_s(w, decision.until_s);
        assert(isfinite(step)); /* a policy that waits says until when */
        pass(w, step);
    }
    r->finished_at_s = w->view.now_s;
    r->deadline_met = r->finished_at_s <= w->terms.deadline_s + SAME_S;
    r->cost_usd = (r->spot_s * w->terms.spot_usd_h + r->on_demand_s * w->terms.on_demand_usd_h) / 3600;
    return 0;
}

static int check(const struct tm_trace *trace, const struct tm_gang_options *o, struct tm_error *e)
{
    const struct {
        const char *name;
        double value;
        double least;
    } values[] = {{"work", o->work_s, 1},           {"deadline", o->deadline_s, 1},
                  {"restart", o->restart_s, 0},     {"start-up", o->start_s, 0},
                  {"spot price", o->spot_usd_h, 0}, {"on-demand price", o->on_demand_usd_h, 0}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (!(values[i].value >= values[i].least && values[i].value <= 1e9))
            return tm_error_set(e, TM_EINPUT, "the %s must be a number from %g to 1e9, not %g", values[i].name,
                                values[i].least, values[i].value);
    }
    if (o->gang < 1) return tm_error_set(e, TM_EINPUT, "a gang needs at least one instance, not %d", o->gang);
    if (o->from_ms < trace->begin_ms || o->from_ms > trace->end_ms)
        return tm_error_set(e, TM_EINPUT, "the start, %g h, is not in the trace (%g h to %g h)",
                            (double)o->from_ms / 3.6e6, (double)trace->begin_ms / 3.6e6, (double)trace->end_ms / 3.6e6);
    return 0;
}

/* What a policy works out before the first decision; then the job. */
static int prepare_and_play(struct world *w, struct tm_error *e)
{
    struct tm_gang_plan plan = {0};
    struct tm_deadline_values *values = NULL;
    int rc = 0;
    if (w->policy->knows_all) {
        rc = tm_gang_plan_init(&plan, &w->terms, w->list.spells, w->list.count, e);
        if (rc == -TM_ENONE) {
            w->policy = tm_deadline_policy_find("on-demand");
            rc = 0;
        }
        w->view.plan = &plan;
    }
    if (rc == 0 && w->policy->needs_values) rc = tm_deadline_values_create(&w->terms, &values, e);
    w->view.values = values;
    if (rc == 0) rc = play(w, e);
    tm_deadline_values_destroy(values);
    tm_gang_plan_deinit(&plan);
    return rc;
}

int tm_gang_simulate(const struct tm_trace *trace, const struct tm_deadline_policy *policy,
                     const struct tm_gang_options *options, struct tm_gang_result *result, struct tm_error *e)
{
    int rc = check(trace, options, e);
    if (rc != 0) return rc;
    struct tm_gang_result made = {0};
    struct world w = {.policy = policy, .result = &made};
    w.terms = (struct tm_deadline_terms){.work_s = options->work_s,
                                         .deadline_s = options->deadline_s,
                                         .restart_s = options->restart_s,
                                         .start_s = options->start_s,
                                         .spot_usd_h = options->spot_usd_h * options->gang,
                                         .on_demand_usd_h = options->on_demand_usd_h * options->gang};
    w.view = (struct tm_deadline_view){.terms = &w.terms, .spells = &w.learned};
    tm_spells_init(&w.learned, MEMORY_S);
    rc = make_spells(trace, options, &w.learned, &w.list, e);
    if (rc == 0) rc = prepare_and_play(&w, e);
    tm_free(w.list.spells);
    if (rc != 0) return rc;
    made.trace_ended = made.finished_at_s > (double)(trace->end_ms - options->from_ms) / 1000;
    made.on_demand_only_usd = (options->work_s + options->restart_s) * w.terms.on_demand_usd_h / 3600;
    *result = made;
    return 0;
}
