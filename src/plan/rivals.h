/* The published planners on a catalogue, for comparison with ours: DeepVM's rules need figures that a catalogue does
 * not have, so they get ours: F is the predicted throughput of one instance, the scaling curve is fitted to predicted
 * throughputs, the spot price is the lowest of any place, the remotes are the region's instances without GPU, and
 * quotas are the request's. Types whose single instance cannot train the model are left out: DeepVM knows no memory. */
#ifndef TM_PLAN_RIVALS_H
#define TM_PLAN_RIVALS_H

#include "plan/deepvm.h"
#include "plan/search.h"

/* The fleet that a planner takes at request->max_usd_h, unjudged; *found false: it finds none. */
int tm_plan_rival(const struct tm_supply *supply, const struct tm_plan_request *request, enum tm_deepvm_planner planner,
                  struct tm_plan_answer *out, bool *found, struct tm_error *e);

#endif
