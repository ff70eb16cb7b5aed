/* What the coordinator asks the policy: a pure function from what it sees to how many pipelines of how many stages to
 * train with, and whether to make a copy set now. */
#ifndef TM_RUN_DECIDE_H
#define TM_RUN_DECIDE_H

#include "wire/roster.h"

struct tm_run_worker {
    uint64_t id;
    bool anchor;
    bool seated;
    int64_t notice_left_ms; /* -1: no notice */
};

struct tm_run_view {
    int64_t now_ms;
    uint32_t layers;
    uint32_t micro_batches;
    uint64_t steps;
    uint64_t applied;
    const struct tm_run_worker *workers; /* usable ones, by number; with a notice only while the deadline is far */
    size_t worker_count;
    uint64_t generation;
    uint32_t pipelines; /* of the running generation; 0: none runs */
    uint32_t stages;
    /* The generation that started last, whether it still runs or not. */
    uint32_t last_pipelines;
    uint32_t last_stages;
    size_t last_workers;   /* its members ... */
    size_t last_here;      /* ... and how many of them are usable now */
    bool only_one_replica; /* some layer's state is on one worker alone */
    int64_t since_copy_ms; /* since the newest whole set's step was applied; -1: there is none */
    uint64_t copied_step;  /* of the newest whole set */
};

struct tm_run_decision {
    uint32_t pipelines; /* 0: wait, there are too few */
    uint32_t stages;
    uint32_t stage_first[TM_STAGES_MAX + 1];
    bool copy;
    uint32_t want_spot; /* instances to have in all, of each kind */
    uint32_t want_on_demand;
    uint32_t predicted_step_ms; /* of that layout; 0: not known */
};

struct tm_decider {
    void *context;
    void (*decide)(void *context, const struct tm_run_view *view, struct tm_run_decision *out);
};

/* Uses all there are: as many pipelines of `stages` as fit, with fewer stages when there are fewer workers, none below
 * `workers_min`; copies every `copy_every_ms`; wants `workers_max` spot instances. */
struct tm_use_all {
    uint32_t stages;
    uint32_t workers_min;
    uint32_t workers_max;
    int64_t copy_every_ms;
};
struct tm_decider tm_decider_use_all(struct tm_use_all *rule); /* borrowed */

/* Cuts layers into stages as evenly as whole layers allow. */
void tm_decide_cut(uint32_t layers, uint32_t stages, uint32_t stage_first[]);

#endif
