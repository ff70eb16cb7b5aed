/* Tickets for people: asked of the office of a run that takes machines which come by themselves (cloud: join), by the
 * word in its state folder. */
#ifndef TM_JOB_TICKETS_H
#define TM_JOB_TICKETS_H

#include "base/arena.h"
#include "base/env.h"

struct tm_tickets_request {
    int count;
    int64_t valid_ms; /* 0: as usual, TM_OFFICE_TICKET_MS */
    const char *host; /* where the machines reach this one; NULL: as the run says */
};

/* `count` words in the arena. -TM_ENOTFOUND: the run in `dir` has no office: it does not run, or its instances are
 * processes on its machine. */
int tm_tickets_ask(struct tm_env *env, const char *dir, const struct tm_tickets_request *request,
                   struct tm_arena *arena, const char *const **out, struct tm_error *e);

#endif
