/* The state folder of a job whose machines are the user's own: `tidemill coordinator` makes it, agents elsewhere get
 * copies of its token and certificates. */
#ifndef TM_CLI_COORDINATOR_FOLDER_H
#define TM_CLI_COORDINATOR_FOLDER_H

#include "cli/command.h"
#include "run/state_folder.h"

struct tm_coordinator_folder {
    char dir[TM_STATE_PATH_MAX]; /* absolute */
    bool tls;                    /* it has certificates */
};

/* By the job file at `path` and the options state, listen, copies and instances; `path` NULL: one that is there.
 * What is there stays: the same job goes on. -TM_EINPUT: it is of another job file, and it is said in what. */
int tm_coordinator_folder_make(struct tm_cli *cli, const char *path, struct tm_coordinator_folder *out,
                               struct tm_error *e);

#endif
