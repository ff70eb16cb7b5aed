/* A plan judged by replay: the simulator runs the job on the fleet through a trace, from several starts.
 *
 * The trace says how much of what was asked for a place gives over time. Each pool of the fleet lives through it from
 * another start, so that zones are short at different times, and has its spot count times the share that is there;
 * on-demand instances are always there. A trace that is shorter than the job begins anew. The job runs as the
 * `checkpoint` policy does it (restart from the last checkpoint at every change), with the plan's own checkpoint
 * interval, unless another policy is asked for. */
#ifndef TM_PLAN_REPLAY_H
#define TM_PLAN_REPLAY_H

#include "plan/search.h"

struct tm_replay {
    struct tm_env *env;
    const struct tm_trace *trace;
    const char *policy; /* NULL: checkpoint */
    int starts;         /* spread evenly over the trace; at least 1 */
};

/* Puts what the replays gave into answer->expectation: means, and over the starts the 10% and 90% points of time and
 * money and the share that met the deadline. finishes is false where a start was not done in twenty times what was
 * expected. */
int tm_plan_replay(const struct tm_replay *replay, const struct tm_supply *supply,
                   const struct tm_plan_request *request, struct tm_plan_answer *answer, struct tm_error *e);

/* Judges all answers and puts those first that satisfy the constraints by replay, the best of them at the top. */
int tm_plan_replay_all(const struct tm_replay *replay, const struct tm_supply *supply,
                       const struct tm_plan_request *request, struct tm_plan_result *result, struct tm_error *e);

#endif
