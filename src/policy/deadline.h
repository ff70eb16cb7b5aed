/* Policies for one gang with a deadline: a job that needs all its instances at once, on spot while there is spot, on
 * demand where the deadline needs it, or on nothing while there is time to wait.
 *
 * Pure functions from a view to a decision; the simulator (sim/gang.h) and the runtime make the view. Every launch,
 * of either kind, costs a restart: it is billed, and no work is done in it. On-demand instances are always given, after
 * their start-up time, which is not billed. A loss costs the next restart, no more.
 *
 * Slack is the time left less the work left. Working keeps it; waiting and restarting eat it; nothing gives it back.
 * The safety line: whoever is not on demand and has no more slack than one on-demand launch takes must launch now, and
 * stay. Every policy here keeps to it, so a deadline that on-demand instances alone can meet is met. */
#ifndef TM_POLICY_DEADLINE_H
#define TM_POLICY_DEADLINE_H

#include "policy/deadline_oracle.h"
#include "policy/deadline_values.h"
#include "policy/spells.h"

struct tm_deadline_view {
    const struct tm_deadline_terms *terms;
    double now_s;  /* since the start of the job */
    double done_s; /* work done */
    bool spot;     /* a spot gang can be had, or is there */
    enum tm_gang_on on;
    double restart_left_s;                   /* of what it is on: until it works */
    const struct tm_spells *spells;          /* how spot came and went so far */
    const struct tm_deadline_values *values; /* tidemill: made from the same terms */
    const struct tm_gang_plan *plan;         /* oracle-deadline */
};

struct tm_deadline_decision {
    enum tm_gang_on go; /* never TM_GANG_SPOT where there is none */
    double until_s;     /* ask again then at the latest; INFINITY: only when spot comes or goes */
};

struct tm_deadline_policy {
    const char *name;
    const char *summary;
    bool knows_all;    /* needs view.plan: the whole trace */
    bool needs_values; /* needs view.values and view.spells */
    struct tm_deadline_decision (*decide)(const struct tm_deadline_view *view);
};

extern const struct tm_deadline_policy tm_deadline_policies[]; /* ends with name NULL */
const struct tm_deadline_policy *tm_deadline_policy_find(const char *name);

/* The policy's decision, with the safety line drawn around it. */
struct tm_deadline_decision tm_deadline_decide(const struct tm_deadline_policy *policy,
                                               const struct tm_deadline_view *view);

#endif
