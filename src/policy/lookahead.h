/* Look-ahead: the best sequence of layouts for a given sequence of fleets (Parcae's optimizer).
 *
 * Over the steps to come it maximises the sum of throughput x (duration - expected pause), where the pause comes from
 * the migration table. A migration that is longer than its step carries over; one more change while it runs pays a
 * second restart. O(steps x layouts^2). */
#ifndef TM_POLICY_LOOKAHEAD_H
#define TM_POLICY_LOOKAHEAD_H

#include "layout/migrate.h"

enum { TM_LOOKAHEAD_STEPS_MAX = 1 << 17 };

/* One step: what happens to the fleet at its beginning, and how long it lasts. */
struct tm_ahead {
    double duration_s;
    int before; /* instances before it */
    int lost;
    int after; /* before - lost + arrivals */
};

struct tm_lookahead; /* scratch memory, reused from call to call; holds no state that changes an answer */

int tm_lookahead__create(const struct tm_layouts *layouts, struct tm_migrations *migrations, struct tm_lookahead **out,
                         struct tm_error *e);
void tm_lookahead__destroy(struct tm_lookahead *lookahead);

/* Where the job stands: its layout, and what is left of a migration under way (0: none). */
struct tm_standing {
    int layout;
    double migrating_ms;
};

/* The best layout for each step to path[0..count-1] (NULL: not wanted; path[0] is the decision), the samples it is
 * expected to yield to *samples (NULL: not wanted). */
int tm_lookahead__solve(struct tm_lookahead *lookahead, struct tm_standing start, const struct tm_ahead *steps,
                        size_t count, int *path, double *samples, struct tm_error *e);

#endif
