/* Policies: what to do next, as pure functions from a view to a decision.
 *
 * The simulator and the runtime make the view and carry out the decision; a policy reads no clock, no file and no
 * random number that its view did not give. What a policy may know is part of its row in the table: the view is made
 * accordingly, so a policy cannot look further than it says. */
#ifndef TM_POLICY_POLICY_H
#define TM_POLICY_POLICY_H

#include "market/forecast.h"
#include "policy/lookahead.h"

/* What stands in view.ahead. */
enum tm_knows {
    TM_KNOWS_PAST,  /* decides before this moment's event is known: a forecast, from this moment on */
    TM_KNOWS_EVENT, /* this moment's event, then what view.forecast says */
    TM_KNOWS_NEXT,  /* the true next intervals, as many as the look-ahead has */
    TM_KNOWS_ALL,   /* everything to the end */
};

struct tm_view {
    struct tm_standing standing;
    bool first; /* nothing has run yet */
    bool event; /* the fleet changes at this moment (only told to those who may know) */
    int before; /* instances before this moment's event */
    int lost;
    int after;
    bool noticed;      /* the loss was announced long enough ago */
    double interval_s; /* of the look-ahead */
    const struct tm_ahead *ahead;
    size_t ahead_count;
    const struct tm_forecast *forecast; /* of the intervals after this one; NULL: none */
    int forecast_from;                  /* the count it was made from */
    int observed;                       /* intervals that the forecast has learned from */
    double now_s;                       /* since the start of the job */
    int on_demand;                      /* of `after`, on-demand instances */
    int ordered;                        /* on-demand instances on their way */
    double start_s;                     /* how long they take */
    bool has_deadline;
    double samples_left;
    double seconds_left;
    double efficiency; /* samples so far over what the fastest layouts would have made; NaN: none so far */
};

/* How the next layout is reached. */
enum tm_change {
    TM_CHANGE_MIGRATE,  /* state moves between instances; the migration table says what it costs */
    TM_CHANGE_ROLLBACK, /* everybody restarts from the newest checkpoint */
    TM_CHANGE_FREE,     /* costs nothing: bounds that nobody can reach */
    TM_CHANGE_TIMED,    /* costs what the decision says, and never less than the same migration */
};

struct tm_decision {
    int layout;
    enum tm_change change;
    double pace;     /* share of the layout's throughput that is reached: redundancy and checkpoints cost some */
    double pause_ms; /* TM_CHANGE_TIMED */
    int on_demand;   /* on-demand instances wanted: more are ordered, fewer given back */
};

struct tm_policy; /* one for a job: borrows its layouts and migrations, owns scratch */

struct tm_policy_info {
    const char *name;
    const char *summary;
    enum tm_knows knows;
    bool ticks_only;     /* decides once an interval, not at each event */
    bool on_demand;      /* rents on-demand instances alone */
    bool free;           /* changes cost nothing, arrivals are used and losses left at once: a bound */
    bool step_in_flight; /* an unannounced loss costs the step in flight */
    bool checkpoints;    /* a loss costs the work since the last checkpoint */
    int forecast;        /* a tm_forecast_method, or -1: none */
    int (*decide)(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e);
};

extern const struct tm_policy_info tm_policies[]; /* ends with name NULL */
const struct tm_policy_info *tm_policy_find(const char *name);

int tm_policy_create(const struct tm_policy_info *info, const struct tm_layouts *layouts,
                     struct tm_migrations *migrations, const struct tm_cost *cost, struct tm_policy **out,
                     struct tm_error *e);
void tm_policy_destroy(struct tm_policy *policy);

/* The decision for a view. The layout fits view->after if the policy may know it; else the caller must make it fit
 * (tm_policy_realise). */
int tm_policy_decide(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e);

/* How many layouts ours looks at. By default all of up to 256, and of more only those near the best. */
enum tm_breadth { TM_BREADTH_DEFAULT, TM_BREADTH_ALL, TM_BREADTH_LIKELY };
void tm_policy_set_breadth(struct tm_policy *policy, enum tm_breadth breadth);

/* A path of counts (a forecast's points) as steps of whole intervals, for those who know the past. */
void tm_policy_ahead_of_path(const struct tm_layouts *layouts, double interval_s, const int *path, size_t count,
                             int before, struct tm_ahead *out);

/* What becomes of a layout when there are fewer instances than it needs: as many whole pipelines as there are, else one
 * pipeline over all, else the pause. */
int tm_policy_realise(const struct tm_layouts *layouts, int layout, int instances);

#endif
