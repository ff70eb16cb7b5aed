#include "policy/lookahead.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* States are numbered 2 x layout for running, 2 x layout + 1 for still migrating. */
struct state {
    double samples;
    double left_ms; /* of the migration; 0 when running */
    bool reached;
};

struct tm_lookahead {
    const struct tm_layouts *layouts;
    struct tm_migrations *migrations;
    struct state *now; /* [2 x layouts] */
    struct state *next;
    int *came_from; /* [steps][2 x layouts]: the state before */
    size_t came_from_capacity;
    int *ranked;        /* [2 x layouts]: scratch */
    double *restart_ms; /* [layouts]: one more restart while migrating */
};

int tm_lookahead__create(const struct tm_layouts *layouts, struct tm_migrations *migrations, struct tm_lookahead **out,
                         struct tm_error *e)
{
    struct tm_lookahead *l = tm_calloc(1, sizeof *l);
    if (l == NULL) return tm_error_nomem(e);
    l->layouts = layouts;
    l->migrations = migrations;
    l->now = tm_calloc(2 * layouts->count, sizeof *l->now);
    l->next = tm_calloc(2 * layouts->count, sizeof *l->next);
    l->ranked = tm_calloc(2 * layouts->count, sizeof *l->ranked);
    l->restart_ms = tm_calloc(layouts->count, sizeof *l->restart_ms);
    if (l->now == NULL || l->next == NULL || l->ranked == NULL || l->restart_ms == NULL) {
        tm_lookahead__destroy(l);
        return tm_error_nomem(e);
    }
    for (size_t i = 0; i < layouts->count; i++)
        l->restart_ms[i] = tm_migrations_restart_ms(migrations, (int)i);
    *out = l;
    return 0;
}

void tm_lookahead__destroy(struct tm_lookahead *l)
{
    if (l == NULL) return;
    tm_free(l->now);
    tm_free(l->next);
    tm_free(l->came_from);
    tm_free(l->ranked);
    tm_free(l->restart_ms);
    tm_free(l);
}

/* Is the candidate better than what is there? Equal values prefer fewer stages before (running) or less left over. */
static bool better(const struct tm_lookahead *l, const struct state *there, const int *there_from,
                   const struct state *candidate, int from)
{
    if (!there->reached || candidate->samples > there->samples) return true;
    if (candidate->samples < there->samples) return false;
    if (candidate->left_ms != there->left_ms) return candidate->left_ms < there->left_ms;
    return l->layouts->list[from / 2].stages < l->layouts->list[*there_from / 2].stages;
}

static void consider(struct tm_lookahead *l, int *came_from, int from, int to, double cost_ms, double duration_s)
{
    struct state candidate = l->now[from];
    double work_s = duration_s - cost_ms / 1000;
    int state = 2 * to;
    if (work_s >= 0) {
        candidate.samples += l->layouts->list[to].samples_per_s * work_s;
        candidate.left_ms = 0;
    } else {
        candidate.left_ms = -work_s * 1000;
        state++;
    }
    if (!better(l, &l->next[state], &came_from[state], &candidate, from)) return;
    candidate.reached = true;
    l->next[state] = candidate;
    came_from[state] = from;
}

/* Layouts that fit `instances`; the pause only where nothing else does. */
static bool fits(const struct tm_layouts *layouts, int layout, int instances)
{
    if (layout == TM_LAYOUT_PAUSE) return instances < layouts->stages_min || layouts->count == 1;
    return layouts->list[layout].instances <= instances;
}

/* States that are reached, the richest first: what they lead to rules out most of what the others could. */
static int rank_states(struct tm_lookahead *l)
{
    int count = 0;
    for (int state = 0; state < 2 * (int)l->layouts->count; state++) {
        if (!l->now[state].reached) continue;
        int place = count++;
        for (; place > 0 && l->now[l->ranked[place - 1]].samples < l->now[state].samples; place--)
            l->ranked[place] = l->ranked[place - 1];
        l->ranked[place] = state;
    }
    return count;
}

/* Can going from `from` to `to` be no better than what already leads there, even at its least cost? */
static bool is_beaten(const struct tm_lookahead *l, int from, int to, const struct tm_ahead *step)
{
    const struct state *there = &l->next[2 * to];
    if (!there->reached) return false;
    double work_s = step->duration_s - tm_migrations_least_ms(l->migrations, from / 2, step->lost, to) / 1000;
    if (work_s < 0) return false;
    return l->now[from].samples + l->layouts->list[to].samples_per_s * work_s < there->samples;
}

static int advance(struct tm_lookahead *l, const struct tm_ahead *step, int *came_from, struct tm_error *e)
{
    int count = (int)l->layouts->count, reached = rank_states(l);
    memset(l->next, 0, 2 * l->layouts->count * sizeof *l->next);
    for (int i = 0; i < reached; i++) {
        int from = l->ranked[i], layout = from / 2;
        if (l->layouts->list[layout].instances > step->before) continue;
        for (int to = 0; to < count; to++) {
            if (!fits(l->layouts, to, step->after) || is_beaten(l, from, to, step)) continue;
            double cost_ms = tm_migrations_ms(l->migrations, step->before, layout, step->lost, to);
            if (isnan(cost_ms)) return tm_error_nomem(e);
            if (l->now[from].left_ms > 0) cost_ms = cost_ms > 0 ? cost_ms + l->restart_ms[to] : l->now[from].left_ms;
            consider(l, came_from, from, to, cost_ms, step->duration_s);
        }
    }
    struct state *swap = l->now;
    l->now = l->next;
    l->next = swap;
    return 0;
}

static void start_at(struct tm_lookahead *l, struct tm_standing start)
{
    memset(l->now, 0, 2 * l->layouts->count * sizeof *l->now);
    int state = 2 * start.layout + (start.migrating_ms > 0);
    l->now[state] = (struct state){.reached = true, .left_ms = start.migrating_ms};
}

static int best_state(const struct tm_lookahead *l)
{
    int best = -1;
    for (int i = 0; i < 2 * (int)l->layouts->count; i++)
        if (l->now[i].reached && (best < 0 || l->now[i].samples > l->now[best].samples)) best = i;
    return best;
}

int tm_lookahead__solve(struct tm_lookahead *l, struct tm_standing start, const struct tm_ahead *steps, size_t count,
                        int *path, double *samples, struct tm_error *e)
{
    assert(count > 0);
    size_t states = 2 * l->layouts->count;
    int rc = tm_grow((void **)&l->came_from, &l->came_from_capacity, count * states, sizeof *l->came_from,
                     TM_LOOKAHEAD_STEPS_MAX * (size_t)256);
    if (rc == -TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "a look-ahead of %zu steps is too long", count);
    if (rc != 0) return tm_error_nomem(e);
    start_at(l, start);
    for (size_t i = 0; i < count; i++) {
        rc = advance(l, &steps[i], l->came_from + i * states, e);
        if (rc != 0) return rc;
    }
    int state = best_state(l);
    assert(state >= 0);
    if (samples != NULL) *samples = l->now[state].samples;
    for (size_t i = count; path != NULL && i-- > 0;) {
        path[i] = state / 2;
        state = l->came_from[i * states + (size_t)state];
    }
    return 0;
}
