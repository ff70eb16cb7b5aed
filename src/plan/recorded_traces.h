/* Traces that a plan is given: of which offers each one speaks, and how instances are lost there.
 *
 * A trace speaks of the instance type that it was recorded of, in its region, where it says so. Of several that speak
 * of an offer the most particular one counts: one of the type before one of every type, one of the region before one of
 * all of them, and the later of equals. Offers that no trace speaks of are left to what is known of their risk. */
#ifndef TM_PLAN_RECORDED_TRACES_H
#define TM_PLAN_RECORDED_TRACES_H

#include "market/catalog.h"
#include "plan/expect.h"

enum { TM_PLAN_TRACES_MAX = 16 };

struct tm_plan_trace {
    const struct tm_trace *trace; /* borrowed */
    const char *name;             /* as the user gave it; borrowed */
    const char *type;             /* instance type or GPU of the catalogue; NULL: every type. Borrowed */
    const char *region;           /* NULL: everywhere. Borrowed */
    struct tm_expect_trace losses;
    double outage_s; /* until a pool gives instances again after a burst */
};

struct tm_plan_traces {
    struct tm_plan_trace list[TM_PLAN_TRACES_MAX];
    size_t count;
};

/* The trace that speaks of an offer; NULL: none. `traces` may be NULL. */
const struct tm_plan_trace *tm_plan__trace_of(const struct tm_plan_traces *traces,
                                              const struct tm_instance_type *instance, const struct tm_offer *offer);

/* The job with losses as the trace has them; NULL: as it is. */
struct tm_expect_job tm_plan__job_on(const struct tm_expect_job *job, const struct tm_plan_trace *trace);

/* The region of the catalogue that a trace's header names, by its own name or by a zone of it: NULL if it names none
 * that the catalogue has. */
const char *tm_plan_trace_region(const struct tm_catalog *catalog, const struct tm_trace *trace);

/* Is this an instance type, or a GPU, that the catalogue has? */
bool tm_plan_trace_type_is_known(const struct tm_catalog *catalog, const char *type);

#endif
