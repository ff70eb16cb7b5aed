/* The coordinator of the job in a state folder: what the folder says becomes a service, which runs until the job is
 * over. */
#ifndef TM_JOB_JOB_COORDINATOR_H
#define TM_JOB_JOB_COORDINATOR_H

#include "base/arena.h"
#include "run/run_settings.h"
#include "run/run_tap.h"

/* All is borrowed. */
struct tm_job_coordinator {
    const char *dir;           /* the state folder */
    bool by_hand;              /* a person started it: no program that runs the job does */
    bool tls;                  /* the folder has certificates */
    const char *listen;        /* HOST or HOST:PORT; NULL: where the last one did, else loopback */
    const char *advertise;     /* HOST or HOST:PORT that agents are told; NULL: where it listens */
    struct tm_run_hook hook;   /* whoever watches in this process */
    const volatile int *stop;  /* counted up by a signal handler: 1 stop in order, 2 at once */
    const volatile int *alone; /* set by one: the program that runs the job is gone */
    void (*bound)(void *context, const char *address); /* told where it listens, once; NULL: nobody */
    void *context;
    bool unrecorded; /* out: the job has ended, but a full disk kept its last events from the record */
};

/* Serves until the job is finished, stopped or has failed. `settings` are the folder's. */
int tm_job_coordinate(struct tm_env *env, struct tm_job_coordinator *job, const struct tm_run_settings *settings,
                      struct tm_arena *arena, struct tm_error *e);

#endif
