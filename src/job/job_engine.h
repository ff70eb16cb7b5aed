/* What can train a job: one row each for the built-in engine (gpt), the paced engine, and the job's own command. All
 * that depends on the engine stands in its row: nothing else asks which one it is.
 *
 * To add one: a file engine_NAME.c with its row, a line in job_engine.c and in tm_job_engine_names. */
#ifndef TM_JOB_JOB_ENGINE_H
#define TM_JOB_JOB_ENGINE_H

#include "base/arena.h"
#include "base/env.h"
#include "job/run_work.h"

struct tm_run_layouts;

struct tm_job_engine {
    const char *name;
    const char *costs; /* the shipped cost file that is used until a run has measured its own */
    bool one_stage;    /* pipelines have more than one stage only where the job says so */
    bool paced;        /* steps take as long as the layouts say, whatever this machine is */
    bool saves;        /* once the job is over its workers may have something of their own to save */
    bool proves_steps; /* the result of a job that was stopped is known at any step, not only at a durable one */
    bool weights;      /* the result is a checkpoint in result/ of the state folder */
    int workers_max;   /* that can train together; 0: as many as a run has */

    /* The job in numbers. Errors name file, line and key. */
    int (*load)(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_run_work *out,
                struct tm_error *e);
    /* Core-seconds of a step, measured here and now. NULL: nothing can be measured. */
    int (*measure)(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, double *out_core_s,
                   struct tm_error *e);
    /* Its layers, layouts and their speed; migrations are made by the caller. `dir` is the state folder. */
    int (*layouts)(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                   const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e);
    /* Appends what every machine of the job must have alike (wire/fingerprint.h). */
    int (*fingerprint)(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_text *out,
                       struct tm_error *e);
    /* A worker: trains until the job is over; who it is the agent's variables say. *out_status: of a process, to end
     * with. */
    int (*train)(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, int *out_status,
                 struct tm_error *e);
    /* What the run in `dir` leaves after step `step`, checked, and its hash. NULL: nothing that is known here. */
    int (*result)(struct tm_env *env, const struct tm_job *job, const char *dir, uint64_t step, struct tm_arena *arena,
                  char out_hash[33], struct tm_error *e);
};

const struct tm_job_engine *tm_job_engine_of(const struct tm_job *job);

#endif
