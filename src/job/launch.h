/* A job on a cloud (provider.h), from its plan to its result: the state folder is taken and filled, the cloud is
 * opened, and a supervisor runs until the job is over; then everything that was started ends, and what is to last is
 * kept.
 *
 *     rc = tm_launch_create(env, &request, &launch, e);
 *     while (rc == 0 && !tm_launch_ended(launch)) rc = tm_launch_step(launch, 100, e);
 *     int closed = tm_launch_close(launch, rc, e);
 *     if (rc == 0) rc = tm_launch_status(launch, &status, e); // whatever `closed` says: there is a result
 *     if (rc == 0) rc = tm_launch_keep(launch, &status, e);
 *     tm_launch_destroy(launch); */
#ifndef TM_JOB_LAUNCH_H
#define TM_JOB_LAUNCH_H

#include "base/arena.h"
#include "job/expectation.h"
#include "run/run_status.h"

/* All is borrowed as long as the launch is there. */
struct tm_launch_request {
    const char *dir; /* the state folder, absolute */
    bool resumed;    /* go on with what is there; else it is removed first */
    bool keep_token; /* but for its token: it was begun elsewhere, and is the same job */
    struct tm_run_settings *settings;
    const struct tm_run_plan *plan;
    const char *program; /* path of tidemill itself */
    const char *call;    /* how it was called, for the record; NULL: not known */
    int64_t faults_max;  /* of chaos; 0: no end */
    bool until_end;      /* stop in order when the trace ends */
    struct tm_arena *arena;
};

struct tm_launch;

/* `out` is set also where it fails, unless memory is short (then it is NULL): close and destroy it. */
int tm_launch_create(struct tm_env *env, const struct tm_launch_request *request, struct tm_launch **out,
                     struct tm_error *e);
/* NULL is allowed. Gives the folder back. */
void tm_launch_destroy(struct tm_launch *launch);

/* Waits at most so long for something to happen. */
int tm_launch_step(struct tm_launch *launch, int64_t timeout_ms, struct tm_error *e);
/* The job is over, and a script of the user's has saved what it had to save, or the time for that is over. */
bool tm_launch_ended(const struct tm_launch *launch);
/* How many instances and processes were found so far that an earlier program left, or nobody asked for; they are ended.
 */
int tm_launch_strays(const struct tm_launch *launch);
/* After close: what could not be given back, in words; "": all was. Borrowed. */
const char *tm_launch_left(const struct tm_launch *launch);
/* Asks for a stop with a copy set; asked twice, it stops at once. What a script is saving then is given up. */
void tm_launch_stop(struct tm_launch *launch);
/* Ends all that was started and closes the books, whatever happened; NULL is allowed. `rc` is what happened: it is
 * returned with `e` as it is, unless it is 0 and closing fails. */
int tm_launch_close(struct tm_launch *launch, int rc, struct tm_error *e);

/* Where others reach the run from now on, for those who find it by its bucket (run_home.h): false, where its copies are
 * in none. */
bool tm_launch_tell(struct tm_launch *launch, const char *where);

/* How it ended, by the record; the caller owns what is in `out`. After close. */
int tm_launch_status(struct tm_launch *launch, struct tm_run_status *out, struct tm_error *e);
/* Keeps the weights (and fills in their hash), the costs as measured, the summary of a job that is over, and the
 * report; where its copies are in a bucket, there, too. On a VM that ends with the run it tries for some minutes. */
int tm_launch_keep(struct tm_launch *launch, struct tm_run_status *status, struct tm_error *e);

/* ---- before it: what is in a state folder ---- */

/* The absolute name of the state folder that was given; NULL: the usual one of a job of that name. */
int tm_launch_find_dir(struct tm_env *env, const char *given, const char *name, struct tm_arena *arena,
                       const char **out, struct tm_error *e);
/* The settings of the run in a folder, to go on with it. They may have the job file that was given with it
 * (tm_job_file_load): in what it differs from the run's own is said in `changes`, and it takes the place of what is
 * missing there. -TM_ENOTFOUND: there is nothing to go on with, or not enough. */
int tm_launch_resume(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_text *changes,
                     struct tm_error *e);
/* Is there a run's work: its record or, where that was lost, its copies? */
bool tm_launch_has_work(struct tm_env *env, const char *dir);
/* Nothing that lasts is thrown away unasked: not an unfinished run, not the copy sets of one that failed, not the
 * weights of one that is finished. -TM_EEXISTS says which it is, and what to do. */
int tm_launch_may_clear(struct tm_env *env, const char *dir, struct tm_error *e);

/* What the VM costs an hour that this runs on, if it was rented for the run; else 0. */
double tm_launch_own_usd_h(struct tm_env *env);

#endif
