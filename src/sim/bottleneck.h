/* Is a cluster slower than it should be, persistently, and why? For a running job: feed it what is observed beside what
 * was predicted, and it says so once it is sure.
 *
 * The idea is CM-DARE's (Li et al., ICDCS 2020): observed speed under the predicted one by more than a threshold, after
 * a warm-up, means a bottleneck. Added here: it must last (a share of recent observations, not one), and a likely cause
 * is named from who is slow: one worker, those far away, or all; and if all, whether the servers are near their
 * ceiling. */
#ifndef TM_SIM_BOTTLENECK_H
#define TM_SIM_BOTTLENECK_H

#include <stdbool.h>
#include <stddef.h>

enum { TM_BOTTLENECK_WINDOW = 16, TM_BOTTLENECK_WORKERS_MAX = 1024 };

enum tm_bottleneck_cause {
    TM_BOTTLENECK_NONE,    /* as fast as predicted, or not sure yet */
    TM_BOTTLENECK_WORKER,  /* one worker (see `worker`): replace it */
    TM_BOTTLENECK_REMOTE,  /* workers in other regions: bring them near */
    TM_BOTTLENECK_SERVERS, /* all are slow, and the servers near their ceiling: add one */
    TM_BOTTLENECK_INPUT    /* all are slow, the servers are not busy: input, storage or the hosts */
};
const char *tm_bottleneck_words(enum tm_bottleneck_cause cause);

struct tm_bottleneck_options {
    double threshold; /* share below the prediction that counts; CM-DARE's is 0.067 */
    double warmup_s;  /* observations before this are not counted; CM-DARE's is 30 */
    int needed; /* of the last TM_BOTTLENECK_WINDOW observations: this many must be slow; and as many must be there */
};
extern const struct tm_bottleneck_options tm_bottleneck__default; /* 0.067, 30 s, 12 */

struct tm_bottleneck_observation {
    double time_s; /* since the job or its generation started; ascending */
    double observed_steps_s;
    double predicted_steps_s;
    double server_share; /* predicted speed over the servers' ceiling; 0: there are none */
    /* Of each worker, where known (NULL: not): observed over predicted speed, and whether it is in another region. */
    const double *worker_ratio;
    const bool *worker_remote;
    size_t worker_count;
};

struct tm_bottleneck {
    struct tm_bottleneck_options options;
    bool slow[TM_BOTTLENECK_WINDOW];
    double shortfall[TM_BOTTLENECK_WINDOW];
    size_t seen; /* observations counted so far */
};

void tm_bottleneck_init(struct tm_bottleneck *bottleneck, const struct tm_bottleneck_options *options);
/* The fleet or the prediction has changed: what was seen is forgotten. */
void tm_bottleneck__reset(struct tm_bottleneck *bottleneck);

struct tm_bottleneck_verdict {
    enum tm_bottleneck_cause cause;
    double shortfall; /* mean share below the prediction over the window; 0 without a cause */
    size_t worker;    /* TM_BOTTLENECK_WORKER: which */
};

/* Takes one observation. Speeds that are not numbers above 0 are ignored (a step in which nothing was predicted). */
struct tm_bottleneck_verdict tm_bottleneck_observe(struct tm_bottleneck *bottleneck,
                                                   const struct tm_bottleneck_observation *observation);

#endif
