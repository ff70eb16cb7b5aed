/* The equations. Under a guess, spot is lost at rate l and comes at rate m. With w work left, s slack, r the restart,
 * g the start-up of on-demand, c and d the prices of spot and on-demand, and V of four situations - idle (no spot, on
 * nothing), spot (there, working), dem0 (on demand, no spot), dem1 (on demand, though there is spot):
 *
 *   launch(w, s) = r' c + e^(-l r) spot(w, s-r) + (1 - e^(-l r)) idle(w, s-r)       r': the part of r before a loss
 *   hire(w, s)   = r d + e^(-m (g+r)) dem0(w, s-g-r) + (1 - e^(-m (g+r))) dem1(w, s-g-r)
 *   idle(w, s)   = min(hire(w, s), e^(-m h) idle(w, s-h) + (1 - e^(-m h)) launch(w, s-h))       h: a step of slack
 *   spot(w, s)   = k c + e^(-l k) spot(w-k, s) + (1 - e^(-l k)) idle(between w and w-k, s)      k: a step of work
 *   dem0(w, s)   = min(idle(w, s), k d + e^(-m k) dem0(w-k, s) + (1 - e^(-m k)) dem1(w-k, s))
 *   dem1(w, s)   = min(launch(w, s), k d + e^(-l k) dem1(w-k, s) + (1 - e^(-l k)) dem0(w-k, s))
 *
 * At s <= g + r only hiring, or staying on demand, is left; launch needs s >= g + 2r. Everything on the right has less
 * work, or as much work and less slack, so one sweep in that order fills the table. */
#include "policy/deadline_values.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    WORK_STEPS = 160,
    SLACK_STEPS_MAX = 160,
    SLACK_STEPS_COARSE = 24,
    RATES = 6,
    IDLE = 0,
    SPOT,
    DEM0,
    DEM1,
    SITUATIONS
};

static const double mean_life_h[RATES] = {0.125, 0.5, 2, 8, 32, 128};

static const double PRIOR_ENDS = 1;
static const double PRIOR_S = 2 * 3600.0;

struct cell {
    float usd[SITUATIONS];
};

struct tm_deadline_values {
    struct tm_deadline_terms terms;
    double work_step_s;
    double slack_step_s;
    int slack_steps;
    struct cell *cells; /* [lost][comes][work][slack] */
};

/* One guess, with the chances that the equations need. */
struct guess {
    double lost_s, comes_s;                 /* rates */
    double keep_work, keep_restart;         /* spot stays through a step of work, a restart */
    double none_work, none_hire, none_wait; /* no spot comes in a step of work, a hire, a step of waiting */
    double restart_billed_s;                /* expected part of a restart before a loss */
    double work_before_loss;                /* share of a work step done before a loss in it */
    double work_billed_s;
};

static struct cell *table_of(const struct tm_deadline_values *v, int lost, int comes)
{
    size_t size = (size_t)(WORK_STEPS + 1) * (size_t)(v->slack_steps + 1);
    return v->cells + ((size_t)lost * RATES + (size_t)comes) * size;
}

static struct guess guess_of(const struct tm_deadline_values *v, int lost, int comes)
{
    struct guess g = {.lost_s = 1 / (3600 * mean_life_h[lost]), .comes_s = 1 / (3600 * mean_life_h[comes])};
    double k = v->work_step_s;
    g.keep_work = exp(-g.lost_s * k);
    g.keep_restart = exp(-g.lost_s * tm_deadline_spot_launch_s(&v->terms));
    g.none_work = exp(-g.comes_s * k);
    g.none_hire = exp(-g.comes_s * tm_deadline_launch_s(&v->terms));
    g.none_wait = exp(-g.comes_s * v->slack_step_s);
    g.restart_billed_s = (1 - g.keep_restart) / g.lost_s;
    g.work_billed_s = (1 - g.keep_work) / g.lost_s;
    g.work_before_loss = 1 / (g.lost_s * k) - g.keep_work / (1 - g.keep_work);
    return g;
}

/* A situation's value in one row of work, at any slack up to that of the `most`th cell: what is behind it may not be
 * filled in yet. */
static double at_slack(const struct tm_deadline_values *v, const struct cell *row, double slack_s, int most,
                       int situation)
{
    double position = fmin(fmax(slack_s / v->slack_step_s, 0), most);
    int below = (int)position;
    if (below == most) return row[below].usd[situation];
    double share = position - below;
    return (1 - share) * row[below].usd[situation] + share * row[below + 1].usd[situation];
}

static double launch_usd(const struct tm_deadline_values *v, const struct guess *g, const struct cell *row,
                         double slack_s, int most)
{
    const struct tm_deadline_terms *t = &v->terms;
    double after_s = slack_s - tm_deadline_spot_launch_s(t);
    if (after_s < tm_deadline_launch_s(t)) return INFINITY;
    return g->restart_billed_s / 3600 * t->spot_usd_h + g->keep_restart * at_slack(v, row, after_s, most, SPOT) +
           (1 - g->keep_restart) * at_slack(v, row, after_s, most, IDLE);
}

static double hire_usd(const struct tm_deadline_values *v, const struct guess *g, const struct cell *row,
                       double slack_s, int most)
{
    const struct tm_deadline_terms *t = &v->terms;
    double after_s = slack_s - tm_deadline_launch_s(t);
    return t->restart_s / 3600 * t->on_demand_usd_h + g->none_hire * at_slack(v, row, after_s, most, DEM0) +
           (1 - g->none_hire) * at_slack(v, row, after_s, most, DEM1);
}

/* Waiting for one step: spot that comes is launched, or, where that is no longer safe, on-demand. */
static double wait_usd(const struct tm_deadline_values *v, const struct guess *g, const struct cell *row,
                       double slack_s, int most)
{
    double after_s = slack_s - v->slack_step_s;
    if (after_s < tm_deadline_launch_s(&v->terms)) return INFINITY;
    double idle = at_slack(v, row, after_s, most, IDLE);
    double launch = fmin(launch_usd(v, g, row, after_s, most), hire_usd(v, g, row, after_s, most));
    return g->none_wait * idle + (1 - g->none_wait) * launch;
}

static void fill_cell(const struct tm_deadline_values *v, const struct guess *g, const struct cell *before,
                      struct cell *row, int j, int most)
{
    double slack_s = j * v->slack_step_s;
    double usd_s = v->terms.on_demand_usd_h / 3600;
    double work_usd = v->work_step_s * usd_s;
    struct cell *cell = &row[j];
    const struct cell *less = &before[j];
    double idle = fmin(hire_usd(v, g, row, slack_s, most), wait_usd(v, g, row, slack_s, most));
    cell->usd[IDLE] = (float)idle;
    double part = g->work_before_loss;
    cell->usd[SPOT] = (float)(g->work_billed_s / 3600 * v->terms.spot_usd_h + g->keep_work * less->usd[SPOT] +
                              (1 - g->keep_work) * ((1 - part) * idle + part * less->usd[IDLE]));
    double dem0 = work_usd + g->none_work * less->usd[DEM0] + (1 - g->none_work) * less->usd[DEM1];
    double dem1 = work_usd + g->keep_work * less->usd[DEM1] + (1 - g->keep_work) * less->usd[DEM0];
    bool may_leave = slack_s >= tm_deadline_launch_s(&v->terms);
    cell->usd[DEM0] = (float)(may_leave ? fmin(dem0, idle) : dem0);
    cell->usd[DEM1] = (float)fmin(dem1, launch_usd(v, g, row, slack_s, most));
}

static void fill_table(struct tm_deadline_values *v, int lost, int comes)
{
    struct guess g = guess_of(v, lost, comes);
    struct cell *row = table_of(v, lost, comes);
    for (int j = 0; j <= v->slack_steps; j++)
        row[j] = (struct cell){{0}}; /* no work left: no cost */
    for (int i = 1; i <= WORK_STEPS; i++) {
        struct cell *before = row;
        row += v->slack_steps + 1;
        for (int j = 0; j <= v->slack_steps; j++) {
            row[j] = before[j]; /* without any slack, hiring looks at this very cell */
            fill_cell(v, &g, before, row, j, j > 0 ? j - 1 : 0);
        }
    }
}

int tm_deadline_values_create(const struct tm_deadline_terms *terms, struct tm_deadline_values **out,
                              struct tm_error *e)
{
    struct tm_deadline_values *v = tm_calloc(1, sizeof *v);
    if (v == NULL) return tm_error_nomem(e);
    double slack_s = fmax(terms->deadline_s - terms->work_s, 1);
    /* With much more slack than restarts need, how much it is hardly matters: a coarse table is made sooner. */
    bool much = slack_s > 12 * 3600.0 && slack_s > SLACK_STEPS_MAX * terms->restart_s;
    double step_s = fmax(fmin(terms->restart_s, slack_s), slack_s / (much ? SLACK_STEPS_COARSE : SLACK_STEPS_MAX));
    v->terms = *terms;
    v->slack_steps = (int)ceil(slack_s / step_s - 1e-9);
    v->slack_step_s = slack_s / v->slack_steps;
    v->work_step_s = terms->work_s / WORK_STEPS;
    /* zeroed: between cells a value may look at the next one with weight 0, before it is filled in */
    v->cells = tm_calloc(RATES * RATES * (WORK_STEPS + 1) * ((size_t)v->slack_steps + 1), sizeof *v->cells);
    if (v->cells == NULL) {
        tm_free(v);
        return tm_error_nomem(e);
    }
    for (int lost = 0; lost < RATES; lost++) {
        for (int comes = 0; comes < RATES; comes++)
            fill_table(v, lost, comes);
    }
    *out = v;
    return 0;
}

void tm_deadline_values_destroy(struct tm_deadline_values *values)
{
    if (values == NULL) return;
    tm_free(values->cells);
    tm_free(values);
}

double tm_deadline_values__step_s(const struct tm_deadline_values *values)
{
    return fmin(values->slack_step_s, 600);
}

/* How likely each rate is after `ends` ends in `time_s`. Before anything was seen, as if one spell of two hours had
 * been (half an hour does as well; eight hours cost 2% on recorded traces: doc/deadlines.md). */
static void weigh(double time_s, double ends, double weights[RATES])
{
    double logs[RATES];
    double most = -INFINITY;
    double sum = 0;
    for (int i = 0; i < RATES; i++) {
        double rate_s = 1 / (3600 * mean_life_h[i]);
        logs[i] = (ends + PRIOR_ENDS) * log(rate_s * 3600) - rate_s * (time_s + PRIOR_S);
        most = fmax(most, logs[i]);
    }
    for (int i = 0; i < RATES; i++)
        sum += weights[i] = exp(logs[i] - most);
    for (int i = 0; i < RATES; i++)
        weights[i] /= sum;
}

/* Costs in one row of work. Going on with what it is on costs no launch; `before` is the row with a step less work. */
static struct tm_deadline_costs costs_in_row(const struct tm_deadline_values *v, const struct guess *g,
                                             const struct cell *before, const struct cell *row, bool up,
                                             enum tm_gang_on on, double slack_s)
{
    struct tm_deadline_costs costs = {.spot_usd = INFINITY};
    if (up) costs.spot_usd = launch_usd(v, g, row, slack_s, v->slack_steps);
    costs.wait_usd = wait_usd(v, g, row, slack_s, v->slack_steps);
    if (on != TM_GANG_ON_DEMAND) {
        costs.on_demand_usd = hire_usd(v, g, row, slack_s, v->slack_steps);
        return costs;
    }
    double work_usd = v->work_step_s / 3600 * v->terms.on_demand_usd_h;
    double dem0 = at_slack(v, before, slack_s, v->slack_steps, DEM0);
    double dem1 = at_slack(v, before, slack_s, v->slack_steps, DEM1);
    costs.on_demand_usd = work_usd + (up ? g->keep_work * dem1 + (1 - g->keep_work) * dem0
                                         : g->none_work * dem0 + (1 - g->none_work) * dem1);
    return costs;
}

struct tm_deadline_costs tm_deadline_values__costs(const struct tm_deadline_values *values,
                                                   const struct tm_spells *spells, enum tm_gang_on on, double left_s,
                                                   double slack_s)
{
    double lost_weights[RATES];
    double comes_weights[RATES];
    weigh(spells->time_s[1], spells->ends[1], lost_weights);
    weigh(spells->time_s[0], spells->ends[0], comes_weights);
    double position = fmin(fmax(left_s / values->work_step_s, 1), WORK_STEPS);
    int above = (int)ceil(position);
    struct tm_deadline_costs sum = {0};
    for (int lost = 0; lost < RATES; lost++) {
        for (int comes = 0; comes < RATES; comes++) {
            double weight = lost_weights[lost] * comes_weights[comes];
            if (weight < 1e-6) continue;
            struct guess g = guess_of(values, lost, comes);
            const struct cell *row = table_of(values, lost, comes) + above * (values->slack_steps + 1);
            struct tm_deadline_costs costs =
                costs_in_row(values, &g, row - (values->slack_steps + 1), row, spells->up, on, slack_s);
            sum.wait_usd += weight * costs.wait_usd;
            sum.spot_usd += weight * costs.spot_usd;
            sum.on_demand_usd += weight * costs.on_demand_usd;
        }
    }
    return sum;
}
