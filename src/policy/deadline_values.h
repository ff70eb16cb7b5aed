/* What the rest of a single-gang job is expected to cost, for each guess of how long spot stays and stays away.
 *
 * Under one guess (a rate of losses, a rate of arrivals) the job is a Markov decision process over work left, slack,
 * whether there is spot, and what the gang is on. Working takes work off and keeps slack; waiting and restarting take
 * slack off; so one sweep over growing work and slack solves it exactly on its grid (deadline_values.c has the
 * equations). Tables are made once for a job; a decision weighs them by how likely each guess is after what was seen.
 */
#ifndef TM_POLICY_DEADLINE_VALUES_H
#define TM_POLICY_DEADLINE_VALUES_H

#include "base/error.h"
#include "policy/deadline_terms.h"
#include "policy/spells.h"

#include <stdbool.h>

struct tm_deadline_values;

int tm_deadline_values_create(const struct tm_deadline_terms *terms, struct tm_deadline_values **out,
                              struct tm_error *e);
void tm_deadline_values_destroy(struct tm_deadline_values *values); /* NULL: nothing */

/* Expected dollars to the end of the job from here, by what is done next. */
struct tm_deadline_costs {
    double wait_usd;
    double spot_usd; /* where there is spot */
    double on_demand_usd;
};

/* `slack_s` is the time left less the work left; `on` works (its restart is over). */
struct tm_deadline_costs tm_deadline_values__costs(const struct tm_deadline_values *values,
                                                   const struct tm_spells *spells, enum tm_gang_on on, double left_s,
                                                   double slack_s);
/* How much slack one step of waiting takes in the tables: a decision is good for about so long. */
double tm_deadline_values__step_s(const struct tm_deadline_values *values);

#endif
