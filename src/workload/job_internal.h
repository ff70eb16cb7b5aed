#ifndef TM_WORKLOAD_JOB_INTERNAL_H
#define TM_WORKLOAD_JOB_INTERNAL_H

#include "workload/job.h"

/* job_training.c */
extern const struct tm_field tm_job__optimizer_fields[];
extern const struct tm_field tm_job__schedule_fields[];
extern const struct tm_field tm_job__checkpoint_fields[];
struct tm_job_optimizer tm_job__optimizer_unsaid(void);
/* A model that is a map, which must be taken out of the document: gpt with its sizes, and as the formula that
 * prediction knows. */
int tm_job__read_model(const char *file, const struct tm_node *model, struct tm_job *job, struct tm_error *e);

/* job_pods.c: could Kubernetes take what fleet.pods says? */
int tm_job__check_pods(const struct tm_job *job, struct tm_error *e);

#endif
