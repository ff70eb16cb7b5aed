/* Coordinator and agent as programs: the state machines, a record, links and a clock in one loop. */
#ifndef TM_RUN_SERVE_H
#define TM_RUN_SERVE_H

#include "base/env.h"
#include "cloud/notice.h"
#include "run/agent.h"
#include "run/coordinator.h"
#include "run/run_tap.h"

struct tm_coordinator_service {
    struct tm_coordinator_options coordinator; /* incarnation 0: drawn */
    struct tm_decider decider;
    const char *listen;
    const char *advertise;        /* HOST or HOST:PORT that others are told; NULL: where it listens */
    const char *record;           /* path */
    const char *copy_folder;      /* NULL: no copies in files */
    bool copies_shared;           /* the folder is no part of the state folder, and may be another job's: an error */
    const char *tls_folder;       /* NULL: none, loopback only */
    const char *address_file;     /* where it listens is written there; NULL: not */
    const char *here_file;        /* and there, where this machine itself reaches it, if others are told another */
    const char *owner_dir;        /* state folder: it ends when no living process owns it; NULL: it does not check */
    const volatile int *alone;    /* set by a signal handler: the owner is gone, look at once; NULL: never */
    const volatile int *stop;     /* counted up by a signal handler: 1 stop in order, 2 at once; NULL: never */
    const struct tm_run_job *job; /* put into the record, for views; NULL: not */
    struct tm_run_hook hook;
    void (*bound)(void *context, const char *address); /* called once with where it listens; NULL: not */
    void *context;
    bool unrecorded; /* out: the job has ended, but a full disk kept its last events or its last manifest from files */
};

/* Runs until the job is finished, stopped or has failed and its workers have gone, or *stop is 2. */
int tm_coordinator_serve(struct tm_env *env, struct tm_coordinator_service *service, struct tm_error *e);

/* One of the workers that an agent keeps. */
struct tm_agent_worker {
    const char *const *variables; /* beside those of all; NULL ends them; NULL: none */
    const char *output;           /* a file that the worker's outputs go to; NULL: the agent's own outputs */
    const char *output_name;      /* of it, below the job's state folder, for people elsewhere; NULL: none */
    const char *worker_file;      /* its pid and start are written there; NULL: not */
};

struct tm_agent_service {
    struct tm_agent_options agent; /* id: of its first worker; the others' follow */
    const struct tm_agent_worker *workers;
    uint32_t worker_count;   /* 0: one, of which nothing is said; else up to TM_WORKERS_EACH_MAX, all of them kept */
    const char *coordinator; /* HOST:PORT */
    const char *tls_folder;
    /* The workers' command; "%u" in a word becomes its incarnation. NULL ends it. It leads a process group, and gets
     * TIDEMILL_INCARNATION and TIDEMILL_AGENT_PID beside `variables` (NULL ends them; NULL: none). */
    const char *const *worker;
    const char *const *variables;
    bool worker_deaf;                       /* SIGTERM is for the agent alone, whoever else gets it */
    const struct tm_notice_options *notice; /* where the cloud says that the instance goes; NULL: nowhere */
    int64_t notice_ms;                      /* how long SIGTERM leaves */
    int64_t give_up_ms;                     /* without word from a coordinator; 0: never */
    /* Told all the time whether there is a notice, and how much of it is left; false: the instance is to go at once.
     * NULL: nobody asks. */
    bool (*stays)(void *context, bool noticed, int64_t left_ms);
    void *context;
    const volatile int *terminating; /* set on SIGTERM: a notice; the second time: stop at once */
};

/* Runs until the job is done or the instance goes. -TM_EPEER: a worker fails again and again, the coordinator refused
 * us, or there was none for too long. What is in the way of a connection is logged, once. */
int tm_agent_serve(struct tm_env *env, struct tm_agent_service *service, struct tm_error *e);

#endif
