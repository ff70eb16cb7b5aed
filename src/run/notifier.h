/* Tells receivers (workload/job_notify.h) of alerts. Whoever is told is told by a process of its own (curl, sendmail,
 * the shell): a receiver that is slow or down keeps nobody waiting, and is tried again a few times. What is secret (a
 * webhook's address) stands in a private file, not on a command line. */
#ifndef TM_RUN_NOTIFIER_H
#define TM_RUN_NOTIFIER_H

#include "base/env.h"
#include "run/alert.h"
#include "workload/job_notify.h"

struct tm_notifier;

/* `dir`: a folder for its files, such as the state folder's logs; the lists are borrowed. The caller owns the result;
 * NULL: out of memory. */
struct tm_notifier *tm_notifier_create(struct tm_env *env, const char *dir, const struct tm_maps *const *lists,
                                       size_t list_count, const struct tm_alert_limits *limits);
/* A run goes on: what its receivers were told and what still holds (the budget, the deadline) is not told again. */
void tm_notifier_go_on(struct tm_notifier *notifier);
void tm_notifier_destroy(struct tm_notifier *notifier); /* NULL is allowed; what is under way is ended */

/* What is seen of the run now. */
void tm_notifier_look(struct tm_notifier *notifier, const struct tm_run_status *status);
/* So many instances were found so far that nobody knew of; told again when there are more. */
void tm_notifier_found(struct tm_notifier *notifier, const char *job, int strays);
/* Instances could not be given back: in words. */
void tm_notifier_left(struct tm_notifier *notifier, const char *job, const char *words);
/* The program cannot go on with the run: in words. */
void tm_notifier_failed(struct tm_notifier *notifier, const char *job, const char *words);
/* Starts what is due, and sees what has come of it, without waiting. True: nothing is left to do. */
bool tm_notifier_step(struct tm_notifier *notifier);

#endif
