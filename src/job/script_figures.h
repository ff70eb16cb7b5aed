/* How much there is to train, as a job's own script says it: tidemill.torch.init(steps=300, batch=64). Files that were
 * written for others (a task of SkyPilot's managed jobs, torchrun's line) do not. */
#ifndef TM_JOB_SCRIPT_FIGURES_H
#define TM_JOB_SCRIPT_FIGURES_H

#include "base/env.h"
#include "workload/job.h"

/* 0, "": not said, or not as a plain number. */
struct tm_script_figures {
    int64_t steps;
    int64_t batch;
    int64_t micro_batch;
    int64_t seed; /* -1: not said */
    char determinism[16];
};

/* Of the first call of init (or of tidemill's Accelerator) in a Python script that has plain numbers for steps and
 * batch, else of the first that has one of them. False: there is none. Nothing is run. */
bool tm_script_figures__read(const char *text, size_t length, struct tm_script_figures *out);
/* Of the script at a path, or of a module, as of python -m in that folder ("": here). *found false: it is not there,
 * too. */
int tm_script_figures_of(struct tm_env *env, const char *path, struct tm_script_figures *out, bool *found,
                         struct tm_error *e);
int tm_script_figures_of_module(struct tm_env *env, const char *folder, const char *module,
                                struct tm_script_figures *out, bool *found, struct tm_error *e);
/* A job with `run` that lacks steps, batch or micro_batch has those of its script from then on, in its document, too,
 * so that each of its processes and a resumed run know them. A job whose script does not say stays as it is. */
int tm_script_figures__fill(struct tm_env *env, struct tm_job *job, struct tm_error *e);

#endif
