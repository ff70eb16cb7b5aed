/* The state folder of a job whose machines are the user's own: `tidemill coordinator` makes it, agents elsewhere get
 * copies of its token and certificates. */
#ifndef TM_JOB_COORDINATOR_FOLDER_H
#define TM_JOB_COORDINATOR_FOLDER_H

#include "base/arena.h"
#include "run/state_folder.h"

struct tm_coordinator_request {
    const char *path;      /* the job file; NULL: a folder that is there */
    const char *state;     /* the folder; NULL: by the job's name */
    const char *listen;    /* HOST or HOST:PORT; NULL: loopback */
    const char *advertise; /* HOST or HOST:PORT that agents are told; NULL: where it listens */
    const char *copies;    /* a folder that all machines share; NULL: none */
    int64_t instances;     /* that certificates are made for; 0: 16 */
};
enum { TM_COORDINATOR_INSTANCES_MAX = 1024 };

struct tm_coordinator_folder {
    char dir[TM_STATE_PATH_MAX]; /* absolute */
    bool tls;                    /* it has certificates */
};

/* What is there stays: the same job goes on. -TM_EINPUT: it is of another job file, and it is said in what. */
int tm_coordinator_folder_make(struct tm_env *env, const struct tm_coordinator_request *request, struct tm_arena *arena,
                               struct tm_coordinator_folder *out, struct tm_error *e);

#endif
