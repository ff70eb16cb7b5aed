/* In what two job files differ, key by key. */
#ifndef TM_JOB_JOB_CHANGES_H
#define TM_JOB_JOB_CHANGES_H

#include "base/text.h"
#include "workload/job.h"

/* One line a key: "  fleet.limit: 4, not 6 as job.yaml says". `own` is the one that counts, `given` the other one.
 * Nothing is appended where they say the same, whatever their layout and comments. */
int tm_job__changes(const struct tm_job *own, const struct tm_job *given, struct tm_text *out, struct tm_error *e);

#endif
