/* Slurm jobs as instances: which command is due, and what its answer means. Nothing here starts a process or reads a
 * clock, so a test can be the scheduler.
 *
 * One job of one node is one instance. A job that is preempted is not asked back for (--no-requeue): the next is a new
 * job and a new instance. An sbatch whose answer did not come may have worked: its instance waits until squeue says
 * whether the job is there. A job of this run's folder that no instance knows of is cancelled, unless an earlier
 * program of the same run asked for it: nobody should wait in the queue twice. One that still waits keeps its number.
 * One that runs, and whose script can hear of it, becomes a new instance, because those of the earlier program have
 * ended in the run's books. What squeue says of a node that has died comes minutes late; the run's own heartbeats
 * decide, and `release` then cancels the job. */
#ifndef TM_CLOUD_SLURM_JOBS_H
#define TM_CLOUD_SLURM_JOBS_H

#include "base/text.h"
#include "cloud/cloud.h"
#include "cloud/slurm_text.h"

enum { TM_SLURM_POOLS_MAX = TM_CLOUD_POOLS_MAX, TM_SLURM_CANCEL_MAX = 32, TM_SLURM_INSTANCES_MAX = 1 << 16 };

/* A partition. */
struct tm_slurm__pool {
    const char *partition; /* borrowed */
    enum tm_instance_kind kind;
    int shown; /* the cloud's pool that it is, or is part of */
    int limit; /* jobs at a time, those about to go aside */
    double price_usd_h;
    int64_t notice_ms; /* before the end of a job, whether by preemption or by its time limit */
    int want;
    int failures; /* in a row */
    int64_t retry_ms;
    bool told; /* why it gives nothing */
};

enum tm_slurm__step { TM_SLURM_ASKED, TM_SLURM_QUEUED, TM_SLURM_HERE, TM_SLURM_GONE };

struct tm_slurm__job {
    int64_t number; /* Slurm's; 0: not known */
    size_t pool;
    enum tm_slurm__step step;
    bool unsure;                    /* asked for, and not answered */
    bool cancel;                    /* it is to end */
    bool over;                      /* Slurm says so, or does not know it any more */
    bool seen;                      /* in the last answer */
    bool stuck_told;                /* why it waits */
    char reason[TM_SLURM_WORD_MAX]; /* why it waits, as Slurm last said; "": not yet */
    bool hinted;
    bool prepared; /* what it needs is there: whoever runs commands sets it */
    bool tidied;   /* what it left is gone: likewise */
    bool renamed;  /* its script was started for another instance, of an earlier program */
    int64_t cancel_ms;
    int64_t completing_ms; /* since then; 0: it is not */
    int64_t limit_ms;      /* its time limit, by our clock; INT64_MAX: none */
    char node[TM_SLURM_WORD_MAX];
};

struct tm_slurm__command {
    enum tm_slurm__command_kind kind;
    size_t at;  /* TM_SLURM_SUBMIT: of the instance */
    bool whole; /* TM_SLURM_QUERY: of jobs that nobody here knows of, too, not only of those that have a number */
    int64_t cancel[TM_SLURM_CANCEL_MAX]; /* numbers of jobs */
    size_t cancel_count;
};

struct tm_slurm__jobs {
    struct tm_slurm__pool pools[TM_SLURM_POOLS_MAX];
    size_t pool_count;
    struct tm_slurm__tag tag; /* of this run; its instance is the last one that was used */
    int64_t poll_max_ms;
    int64_t poll_ms; /* now: doubled up to the longest, from a second after each change */
    int64_t query_ms;
    int64_t nodes_ms;
    int64_t whole_ms; /* until then a job may come to light that was asked for without an answer */
    bool adopting;    /* jobs of this run that are there since before this program began are taken over */
    /* Can the script of a job that runs be told which instance it is now? NULL: none can. */
    bool (*hears)(void *context, int64_t job);
    void *context;
    struct tm_cloud_instance *instances;
    size_t instance_count, instance_capacity;
    struct tm_slurm__job *jobs; /* by the same places */
    size_t job_capacity;
    struct tm_cloud_event *events;
    size_t event_first, event_count, event_capacity;
    int64_t strays[TM_SLURM_CANCEL_MAX]; /* jobs that nobody here knows of, to be cancelled */
    size_t stray_count;
    int waiting[TM_SLURM_POOLS_MAX]; /* by the cloud's pool: in the queue, as was told */
    bool stuck[TM_SLURM_POOLS_MAX];  /* and that one of them does not start by itself */
    struct tm_cloud_bill bill;       /* of those that have gone */
};

void tm_slurm_jobs__init(struct tm_slurm__jobs *s);
void tm_slurm_jobs__deinit(struct tm_slurm__jobs *s);

/* The command that is due; false: none. One at a time: its answer, or that it got none, goes to `answer`. */
int tm_slurm_jobs__next(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_slurm__command *out, bool *out_due,
                        struct tm_error *e);
int tm_slurm_jobs__answer(struct tm_slurm__jobs *s, int64_t now_ms, const struct tm_slurm__command *command,
                          const struct tm_slurm__answer *answer, struct tm_error *e);
/* What happens by the clock alone: time limits come near. */
int tm_slurm_jobs__tick(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_error *e);
/* When something is due without an answer; INT64_MAX: never. */
int64_t tm_slurm_jobs__due_ms(const struct tm_slurm__jobs *s);

void tm_slurm_jobs__want(struct tm_slurm__jobs *s, size_t pool, int count, int64_t now_ms);
/* One that has a notice is lost all the same, only sooner: whoever preempts it gets the node at once. */
int tm_slurm_jobs__release(struct tm_slurm__jobs *s, uint64_t id, int64_t now_ms, struct tm_error *e);
bool tm_slurm_jobs__event(struct tm_slurm__jobs *s, struct tm_cloud_event *out);
struct tm_cloud_bill tm_slurm_jobs__bill(struct tm_slurm__jobs *s, int64_t now_ms);
/* How many jobs may still be in Slurm. */
size_t tm_slurm_jobs__left(const struct tm_slurm__jobs *s);
/* Everything is to end. */
void tm_slurm_jobs__end_all(struct tm_slurm__jobs *s, int64_t now_ms);

#endif
