/* The paced engine as a worker of a job: paced.h in the loop of elastic.h. */
#ifndef TM_ENGINE_PACED_WORKER_H
#define TM_ENGINE_PACED_WORKER_H

#include "engine/paced.h"

#include <tidemill.h>

/* Takes part until the job is over; as tm_elastic__run. `library` is taken but for endpoint and kernel_class. */
int tm_paced_worker(struct tm_env *env, const struct tidemill_options *library, const struct tm_paced_job *job,
                    struct tm_error *e);

#endif
