/* The supervisor: keeps a coordinator running, drives the cloud for it, and carries out chaos where it is asked for.
 *
 *     while (tm_supervisor_step(supervisor, 100, e) == 0 && !tm_supervisor_ended(supervisor)) draw what there is to
 * see;
 *
 * The coordinator is a process of its own, `PROGRAM coordinator --state DIR`, in a group of its own, so that what a
 * terminal sends does not reach it. One that dies is started again at once, and then after ever longer waits; one that
 * cannot be started is an error. It bears the owner's mark, and ends by itself when we are gone. */
#ifndef TM_RUN_SUPERVISOR_H
#define TM_RUN_SUPERVISOR_H

#include "run/chaos_driver.h"
#include "run/cloud_driver.h"
#include "run/state_folder.h"

/* A coordinator's exit status: the job has ended, but a full disk kept its last events from the record. */
enum { TM_COORDINATOR_UNRECORDED = 5 };

struct tm_supervisor_options {
    struct tm_cloud_driver_options driver;
    const char *program;                  /* path of tidemill itself, borrowed as all texts */
    const char *mark;                     /* "NAME=VALUE" of the owner */
    const char *call;                     /* "NAME=VALUE" that says how all this was called; NULL: not known */
    const char *listen;                   /* HOST:PORT for the coordinator; NULL: its own choice */
    const char *advertise;                /* HOST or HOST:PORT that others are told; NULL: where it listens */
    const struct tm_chaos_options *chaos; /* NULL: none */
    bool resumed;                         /* the first coordinator hears it: a job that failed is tried again */
    /* Checkpoint-restart: at each change of the fleet all workers are ended, and begin again from the newest copy set
     * in files. */
    bool restart_all;
    uint32_t workers; /* of an instance; 0: 1 */
};

struct tm_supervisor;

int tm_supervisor_create(struct tm_env *env, const struct tm_supervisor_options *options, struct tm_supervisor **out,
                         struct tm_error *e);
/* The run is over: ends the coordinator, if it still runs, gives all instances back and closes the books
 * (tm_cloud_driver__close). Nothing but destroy may follow. */
int tm_supervisor_close(struct tm_supervisor *supervisor, struct tm_error *e);
/* Ends the coordinator, if it runs; the cloud is the caller's. NULL is allowed. */
void tm_supervisor_destroy(struct tm_supervisor *supervisor);

int tm_supervisor_step(struct tm_supervisor *supervisor, int64_t timeout_ms, struct tm_error *e);
/* The coordinator has ended in order: the job is finished, stopped or has failed. */
bool tm_supervisor_ended(const struct tm_supervisor *supervisor);
/* Asks for a stop with a copy set (SIGTERM to the coordinator); asked twice, it stops at once. */
void tm_supervisor_stop(struct tm_supervisor *supervisor);

struct tm_supervisor_view {
    int coordinator_pid; /* 0: none runs */
    int coordinator_starts;
    bool connected; /* the driver and it know each other */
    const struct tm_cloud_order *order;
    uint64_t faults; /* that chaos has carried out */
};
struct tm_supervisor_view tm_supervisor__look(const struct tm_supervisor *supervisor);

#endif
