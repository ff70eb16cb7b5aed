/* The insides of the Slurm cloud. */
#ifndef TM_CLOUD_SLURM_INTERNAL_H
#define TM_CLOUD_SLURM_INTERNAL_H

#include "cloud/slurm_cloud.h"
#include "cloud/slurm_jobs.h"

enum { TM_SLURM_WORDS_MAX = 96, TM_SLURM_TEXT_MAX = 16 << 20 };

/* A command of Slurm on its way. */
struct tm_slurm__process {
    int pid;    /* 0: none */
    int handle; /* ready when it has ended */
    int output; /* -1: closed */
    int64_t deadline_ms;
    struct tm_text text;
};

/* Starts it; nothing else may be on its way. */
int tm_slurm_process__start(struct tm_slurm__process *process, struct tm_env *env, const char *const *argv,
                            int64_t limit_ms, struct tm_error *e);
/* Reads what is there. True: it has ended, *out_status says how (-1: it was given up), and `text` is whole. */
bool tm_slurm_process__step(struct tm_slurm__process *process, struct tm_env *env, int *out_status);
/* What to wait for; up to two handles. */
size_t tm_slurm_process__watch(const struct tm_slurm__process *process, int handles[2]);
/* Ends it, if there is one. */
void tm_slurm_process__stop(struct tm_slurm__process *process, struct tm_env *env);

#endif
