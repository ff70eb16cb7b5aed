/* The agent of one instance of a job: what it goes by comes from the caller, from the variables that a cloud sets, and
 * from a state folder on the same machine, or all of it by a ticket (join.h); the first that says something counts. It
 * starts the job's worker, and runs until the job is over or the instance goes. */
#ifndef TM_JOB_JOB_AGENT_H
#define TM_JOB_JOB_AGENT_H

#include "base/arena.h"
#include "base/env.h"
#include "cloud/notice.h"

enum tm_agent_notice { TM_AGENT_NOTICE_LOCAL = TM_NOTICE_CLOUDS, TM_AGENT_NOTICE_NONE, TM_AGENT_NOTICE_UNSAID };

/* Not said: NULL, 0. All is borrowed. */
struct tm_job_agent {
    const char *state;       /* the folder that says the rest */
    const char *ticket;      /* instead: joins by it; tm_join__find_ticket says what is taken */
    const char *job;         /* a job file, for the built-in worker */
    const char *coordinator; /* HOST:PORT */
    const char *token_file;
    int64_t instance; /* its number within the job, from 1 */
    const char *host; /* where other workers reach it */
    const char *tls;  /* folder of its certificate */
    const char *copies;
    bool anchor;
    bool shows;               /* what workers print goes where this program prints, not to a file */
    int notice;               /* enum tm_notice_cloud or tm_agent_notice: who says that the instance goes */
    int64_t notice_ms;        /* left after SIGTERM */
    int64_t give_up_ms;       /* without a coordinator */
    const char *const *words; /* the worker's command; of none, the program's own */
    size_t word_count;
    const volatile int *terminating; /* counted up by a signal handler */
};

/* -TM_EUSAGE: something is missing, and how to give it. */
int tm_job_agent_serve(struct tm_env *env, const struct tm_job_agent *request, struct tm_arena *arena,
                       struct tm_error *e);

#endif
