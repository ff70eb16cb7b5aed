/* Joining a job by a ticket (wire/ticket.h): a machine that has nothing of the job gets in at its office, with a key of
 * its own, and lays down what agent and worker need in a folder like a run's state folder, but for this machine alone:
 * job, settings, data, token, certificate, and where the coordinator is. Copies in files go back through the office. */
#ifndef TM_JOB_JOIN_H
#define TM_JOB_JOIN_H

#include "base/arena.h"
#include "base/env.h"

enum {
    TM_JOIN_DATA_MAX = 1 << 30
}; /* bytes of a data file that is handed over; a larger one must lie on the machine */

/* In the arena. */
struct tm_joined {
    const char *dir;
    const char *copies; /* where parts of copy sets go (store/copy_store.h) */
    const char *tls;    /* the certificate's folder */
    const char *host;   /* this machine, as the office's network reaches it */
    uint64_t instance;
    bool anchor;
    bool stays;         /* it came by itself, and says that it is there (stay.h) */
    const char *office; /* HOST:PORT */
};

/* A ticket that is given: the word itself, "@FILE", or NULL: the variable TIDEMILL_TICKET. In the arena; NULL in `out`:
 * there is none. */
int tm_join__find_ticket(struct tm_env *env, const char *given, struct tm_arena *arena, const char **out,
                         struct tm_error *e);
/* Waits for the office and the coordinator for a while, and for its turn as long as the ticket is good, until
 * *terminating is not 0. On failure nothing is left. */
int tm_join__run(struct tm_env *env, const char *ticket, const volatile int *terminating, struct tm_arena *arena,
                 struct tm_joined *out, struct tm_error *e);
/* Removes the folder. */
void tm_join__remove(const struct tm_joined *joined);

#endif
