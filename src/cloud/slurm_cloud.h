/* Slurm as a cloud: partitions are pools, one-node jobs of an agent each are instances (slurm_jobs.h).
 *
 * There are two ways to speak to it. Where slurmrestd answers, everything goes through it (slurm_rest.h); else through
 * sbatch, squeue, sinfo, scontrol and scancel in their parsable forms. One request at a time, each with a time limit,
 * and none is waited for: `watch` and `next` as for every cloud. The queue is asked for once for all jobs, a second
 * after a change and then less and less often, down to every `poll_ms`.
 *
 * The command runs on each node as a step (srun) of the batch script, because only steps hear of a preemption while
 * there is time left. It gets TIDEMILL_INSTANCE_ID, TIDEMILL_INSTANCE_KIND, TIDEMILL_INSTANCE_ZONE (the partition) and
 * TIDEMILL_INSTANCE_HOST (the node's address), and as its last words --notice-left and the time from SIGTERM to the
 * end. Where nodes see the folders under the same name, as homes of clusters are, all goes through them. On a node
 * that does not, the other command runs, which joins by a ticket, with the program of that path or of PATH; its output
 * stays in TMPDIR of the node until it has ended in order.
 *
 * Jobs are named by the folder, so that whoever comes next finds what a killed program left. Those of the same run are
 * taken over: those that still wait, and those that run on a node that sees the folder. There the agent of the killed
 * program, whose certificate is worth nothing any more, finds in TIDEMILL_INSTANCE_FILE that its job is another
 * instance now, and ends; the script starts the next one in the same job. The others are cancelled. */
#ifndef TM_CLOUD_SLURM_CLOUD_H
#define TM_CLOUD_SLURM_CLOUD_H

#include "cloud/cloud.h"

enum { TM_SLURM_JOBS_MAX = 1000 }; /* at a time */

struct tm_slurm_pool {
    const char *partition;
    enum tm_instance_kind kind;
    int limit;
    double price_usd_h;
    int64_t notice_ms;     /* < 0: the partition's GraceTime, or 30 s where that is 0 */
    int64_t time_limit_ms; /* 0: the partition's own */
    const char *words;     /* further options of sbatch, set apart by blanks; NULL: none */
};

enum { TM_SLURM_TICKET_MAX = 256 };

struct tm_slurm_options {
    const struct tm_slurm_pool *pools; /* borrowed, as all of these */
    size_t pool_count;
    bool choices; /* each partition is a pool of the cloud; else those of one market are one, filled in their order */
    const char *const *command; /* ends in NULL */
    const char *const *join;    /* likewise, on a node that does not see the folder, with TIDEMILL_TICKET; NULL: none */
    const char *folder;         /* the state folder: it names all jobs of all runs in it */
    const char *script_dir;     /* the batch script is written there */
    const char *log_dir;        /* an instance's output goes to ID.log in it */
    uint64_t run;               /* tells this run from others in the folder; the same after a restart */
    uint64_t id_last;           /* highest number of an instance that was used before */
    int64_t poll_ms;            /* 0: 30 s */
    const char *rest;           /* slurmrestd's address; NULL: there is none */
    const char *token_file;     /* for it; NULL: SLURM_JWT, if it is set */
    const char *tools;          /* where sbatch and the others are; NULL: by PATH */
    /* Before a job is submitted or taken over: what its instance needs; NULL: nothing. */
    int (*prepare)(void *context, uint64_t id, struct tm_error *e);
    void *context;
    /* Just before a job is submitted, where `join` is given: what its agent may join by. It is in the batch script,
     * which Slurm shows to nobody else. */
    int (*ticket)(void *context, uint64_t id, enum tm_instance_kind market, char out[TM_SLURM_TICKET_MAX],
                  struct tm_error *e);
    void *ticket_context;
};

/* Where other nodes reach the one that this program runs on, if it is itself part of a job of Slurm: its NodeAddr, as
 * scontrol has it, for a node's name need not be one that machines know. False: it is none, or nobody knows. */
bool tm_slurm_own_address(struct tm_env *env, char *out, size_t size);

/* The caller owns the result (its `destroy`, which cancels all jobs and waits until they are gone, at most a minute).
 * -TM_EINPUT: there is no such partition; -TM_ENOTFOUND: there are no commands of Slurm here. */
int tm_slurm_cloud_create(struct tm_env *env, const struct tm_slurm_options *options, struct tm_cloud **out,
                          struct tm_error *e);

#endif
