/* A machine that came to a run by itself (run/office.h: a guest) says that it is there, from a thread of its own: once
 * a second over the office's connection, which is made again where it is lost. It hears when it may go. */
#ifndef TM_JOB_STAY_H
#define TM_JOB_STAY_H

#include "base/env.h"
#include "wire/ticket.h"

struct tm_stay;

/* `tls_folder`: its certificate. Texts are borrowed. The caller owns the result. */
int tm_stay__begin(struct tm_env *env, const char *office, const char *tls_folder, uint64_t instance,
                   struct tm_stay **out, struct tm_error *e);
/* What is told to the office with the next word; false: this machine may go. `stay` is a struct tm_stay. */
bool tm_stay__goes_on(void *stay, bool noticed, int64_t notice_left_ms);
/* Says good-bye with the status, as far as the office can be reached, and frees all. `again`: a ticket by which the
 * machine, which was away for too long, is to come back; "": it is not. NULL is allowed. */
void tm_stay__end(struct tm_stay *stay, int status, char again[TM_TICKET_MAX]);

#endif
