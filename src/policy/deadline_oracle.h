/* The cheapest way to do a single-gang job within its deadline, with the whole future known: a bound for all policies.
 *
 * Exact in continuous time. Cost and progress are linear in the times of launches and stops, so in some cheapest plan
 * all of them lie where spot comes or goes, at the start or at the deadline, but for one, which is where the work needs
 * it. So it is enough to decide for each spell of the trace what to be on for the whole of it, or once for a part of
 * it, and to keep for each situation the pairs (slack used, dollars) that no other pair beats in both. */
#ifndef TM_POLICY_DEADLINE_ORACLE_H
#define TM_POLICY_DEADLINE_ORACLE_H

#include "base/error.h"
#include "policy/deadline_terms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_GANG_SPELLS_MAX = 1 << 16, TM_GANG_PAIRS_MAX = 1 << 24, TM_GANG_PLACES_MAX = 64 };

/* From start_s to that of the next one (the last: for ever): where a whole gang can be had on spot. */
struct tm_gang_spell {
    double start_s; /* the first one's is 0 */
    uint64_t up;    /* a bit for each place; 0: there is no spot */
};

/* Where a gang can be on spot. Going from one to another is a launch. */
struct tm_gang_places {
    double usd_h[TM_GANG_PLACES_MAX]; /* of the whole gang */
    int count;                        /* 1 or more */
};

/* What to be on from start_s to that of the next one. */
struct tm_gang_stretch {
    double start_s;
    enum tm_gang_on on;
    int place; /* of a spot gang */
};

struct tm_gang_plan {
    struct tm_gang_stretch *stretches; /* owned */
    size_t count;
    size_t capacity;
    double cost_usd;
};

/* `plan` need not be initialised; tm_gang_plan_deinit frees. -TM_ENONE: no plan meets the deadline. -TM_ELIMIT: too
 * many pairs to keep. The terms' own spot price says nothing here: that of the place does. */
int tm_gang_plan_init(struct tm_gang_plan *plan, const struct tm_deadline_terms *terms,
                      const struct tm_gang_places *places, const struct tm_gang_spell *spells, size_t count,
                      struct tm_error *e);
/* The stretch that holds at a time. */
size_t tm_gang_plan__at(const struct tm_gang_plan *plan, double now_s);
void tm_gang_plan_deinit(struct tm_gang_plan *plan);

#endif
