/* Why a plan is what it is: which constraints bind, what a little more time or money would buy, and, where nothing
 * satisfies all constraints, the nearest relaxation of each. Every figure comes from searching again. */
#ifndef TM_PLAN_ADVISE_H
#define TM_PLAN_ADVISE_H

#include "plan/fleet_judge.h"

enum { TM_PLAN_BINDINGS_MAX = 8 };

struct tm_plan_what_if {
    bool found;
    double limit; /* what the constraint was moved to: seconds or dollars */
    struct tm_plan_answer answer;
};

struct tm_plan_advice {
    const char *binds[TM_PLAN_BINDINGS_MAX]; /* options without which something better would be found */
    double without[TM_PLAN_BINDINGS_MAX];    /* the value then: dollars or seconds */
    size_t bind_count;
    struct tm_plan_what_if more_time;  /* the cheapest with an hour more than the deadline, where there is one */
    struct tm_plan_what_if more_money; /* the fastest with a tenth more than the budget, or than the answer costs */
    double fastest_s; /* what the budget allows as it is, or the answer: more money must buy less than this */
};

/* `result` must hold an answer. Large: give it its own allocation. `judge`: that the result was judged by; NULL: the
 * closed form. */
int tm_plan_advise(const struct tm_fleet_judge *judge, const struct tm_supply *supply,
                   const struct tm_plan_request *request, const struct tm_plan_result *result,
                   struct tm_plan_advice *out, struct tm_error *e);

/* Where a batch that nobody asked for leaves GPUs waiting, what one four times as large would bring. */
struct tm_plan_larger_batch {
    int batch; /* 0: nothing that is worth telling */
    struct tm_plan_answer answer;
};

/* Whether the network still converges, its user knows: it is told, not taken. `judge` NULL: by the closed form. */
int tm_plan_try_larger_batch(const struct tm_fleet_judge *judge, const struct tm_catalog *catalog,
                             const struct tm_plan_request *request, const struct tm_plan_answer *best,
                             struct tm_plan_larger_batch *out, struct tm_error *e);

/* What each constraint alone would have to be; infinite, or 0 for counts and chances, where that does not help. */
struct tm_plan_relaxation {
    double deadline_s;
    double budget_usd;
    double usd_h;
    int instances;      /* for --max-nodes */
    bool quotas;        /* without them */
    bool market;        /* if spot and on demand may be mixed */
    double probability; /* to meet the deadline */
    /* Where nothing of this helps alone: a deadline and a budget that a fleet meets; NaN: none, or not both are asked.
     */
    double both_s;
    double both_usd;
};

/* `judge` NULL: by the closed form. */
int tm_plan_relax(const struct tm_fleet_judge *judge, const struct tm_catalog *catalog, const struct tm_supply *supply,
                  const struct tm_plan_request *request, const struct tm_plan_result *result,
                  struct tm_plan_relaxation *out, struct tm_error *e);

#endif
