/* What the coordinator asks the policy: a pure function from what it sees to how many pipelines of how many stages to
 * train with, whether to make a copy set now, and how many instances to have. */
#ifndef TM_RUN_DECIDE_H
#define TM_RUN_DECIDE_H

#include "base/text.h"
#include "run/steer.h"
#include "wire/roster.h"

enum { TM_RUN_POOLS_MAX = 64 };

struct tm_run_worker {
    uint64_t id;
    int pool; /* -1: the cloud has not told of its instance yet */
    bool anchor;
    bool seated;
};

/* A pool, by the cloud's last word. */
struct tm_run_pool {
    uint64_t microusd_h; /* 0: not known */
    int64_t offered;     /* how many more it would give now; -1: not known */
    uint32_t refused;    /* of what is wanted: there is no capacity for so many */
    uint32_t starting;   /* granted, not there yet */
    int64_t wait_ms;     /* from asking for one to its arrival, lately; 0: not measured */
    uint64_t bill_microusd;
    uint64_t instance_ms;
};

/* The cloud's last word. */
struct tm_run_cloud {
    bool known;               /* there was one */
    int64_t now_ms;           /* the cloud's time */
    int64_t ago_ms;           /* since it said so, in real time */
    double speed;             /* its seconds per second of real time */
    uint64_t spot_microusd_h; /* 0: not known */
    uint64_t on_demand_microusd_h;
    int64_t spot_wait_ms; /* as of a pool, of a job without a choice of them */
    int64_t on_demand_wait_ms;
    int64_t spot_offered; /* how many more it would give now; -1: not known */
    uint64_t bill_microusd;
    const struct tm_run_pool *pools; /* by number; of a job with a choice of them */
    size_t pool_count;
    const Tmw__Instance *instances; /* all that ever were */
    size_t instance_count;
};

struct tm_facts; /* policy/facts.h, which includes what engines call otherwise */
struct tm_decision;

/* Hears what the policy behind a decider is told and asked, in this order, while it decides. */
struct tm_decision_ear {
    void *context;
    void (*observed)(void *context, int count, int arrived, int lost);
    void (*hinted)(void *context, int losing, double in_s);
    void (*decided)(void *context, const struct tm_facts *facts,
                    const struct tm_decision *decision); /* NULL: no answer */
};

struct tm_run_view {
    int64_t now_ms;
    uint32_t layers;
    uint32_t micro_batches;
    uint64_t steps;
    uint64_t applied;
    const struct tm_run_worker *workers; /* those that may train: here, and not about to go */
    size_t worker_count;
    size_t leaving_count;    /* here, with a notice */
    int64_t leaving_left_ms; /* of them, the least time left */
    uint64_t generation;
    uint32_t pipelines; /* of the running generation; 0: none runs */
    uint32_t stages;
    /* The generation that started last, whether it still runs or not. */
    uint32_t last_pipelines;
    uint32_t last_stages;
    int64_t paused_ms;   /* that generation runs, and has not made its first step: since when nothing is; 0: it has */
    size_t last_workers; /* its members, but for anchors that only keep copies and spares that went ... */
    size_t last_here;    /* ... and how many of them are usable now */
    uint32_t last_workers_of[TM_RUN_POOLS_MAX]; /* the same by pool, where there is a choice of them */
    uint32_t last_here_of[TM_RUN_POOLS_MAX];
    bool only_one_replica; /* some layer's state is on one worker alone */
    int64_t since_copy_ms; /* since the newest whole set's step was applied, or the last try; -1: there was none yet */
    uint64_t copied_step;  /* of the newest whole set */
    uint64_t copy_ms;      /* what the newest took; 0: not known */
    uint32_t step_ms;      /* of the last step; 0: not known */
    double uneven;         /* step time over that if micro-batches were shared out anew; >= 1 */
    int64_t elapsed_ms;    /* since the job began, in real time */
    struct tm_run_limits limits;
    struct tm_run_cloud cloud;
    const struct tm_decision_ear *ear; /* NULL: none */
};

struct tm_run_decision {
    uint32_t pipelines; /* 0: wait, there are too few */
    uint32_t stages;
    uint32_t stage_first[TM_STAGES_MAX + 1];
    uint32_t predicted_step_ms; /* of that layout; 0: not known */
    bool share;                 /* by the speeds that were measured, micro-batches are to be shared out anew */
    bool copy;
    bool rents;         /* the next two count; else what there is is kept */
    uint32_t want_spot; /* instances to have in all, of each kind */
    uint32_t want_on_demand;
    uint32_t want[TM_RUN_POOLS_MAX]; /* by pool, where there is a choice; beside those with a notice */
    uint64_t pools;                  /* bit by bit: whose workers may have seats; 0: all */
    bool stop;                       /* the job is to stop in order */
    const char *why;                 /* in words, static; set where it stops */
};

/* What a policy was made from: with what its ear heard since, the same can be decided again. Borrowed from the decider.
 */
struct tm_policy_made {
    const char *name;
    uint64_t seed;
    const struct tm_text *options; /* policy/facts_record.h */
    const struct tm_text *layouts; /* layout/recorded.h, as the next */
    const struct tm_text *cost;
};

struct tm_decider {
    void *context;
    /* NULL: it keeps nothing from one decision to the next. Else: a coordinator begins, so all that was learned so far
     * is forgotten; what the coordinator knows from its record is told again. -TM_ENOMEM. */
    int (*begin)(void *context, struct tm_error *e);
    const struct tm_policy_made *made; /* NULL: no policy that could be asked again */
    void (*decide)(void *context, const struct tm_run_view *view, struct tm_run_decision *out);
};

/* Uses all there are: as many pipelines of `stages` as fit, with fewer stages when there are fewer workers, none below
 * `workers_min`; copies every `copy_every_ms`; wants `workers_max` spot instances, or (0) what there is. */
struct tm_use_all {
    uint32_t stages;
    uint32_t workers_min;
    uint32_t workers_max;
    int64_t copy_every_ms;
};
struct tm_decider tm_decider_use_all(struct tm_use_all *rule); /* borrowed */

#endif
