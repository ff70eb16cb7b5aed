/* What a job wants of its cloud at a time, for `tidemill cloud check`. */
#ifndef TM_JOB_CHECK_NEEDS_H
#define TM_JOB_CHECK_NEEDS_H

#include "cloud/checks.h"
#include "market/catalog.h"
#include "workload/job.h"

/* All borrows from the job and the catalogue. */
struct tm_check_needs {
    struct tm_check_need list[TM_CHECK_NEEDS_MAX];
    size_t count;
    const char *region; /* NULL: the job does not say */
    const char *image;  /* NULL: the cloud's usual */
};

/* As many of each pool as it may have; on demand, where a deadline may ask for them, as many as of spot. */
void tm_job_check_needs(const struct tm_job *job, const struct tm_catalog *catalog, struct tm_check_needs *out);

#endif
