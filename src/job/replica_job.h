/* A job that was profiled on one worker, as predictions of many such workers take it (workload/replica.h): the step
 * that it was profiled with, and what is known of its device and its links. */
#ifndef TM_JOB_REPLICA_JOB_H
#define TM_JOB_REPLICA_JOB_H

#include "job/knowledge.h"
#include "workload/replica.h"

struct tm_replica_job {
    struct tm_replica_request request; /* but for workers, links and batch; points into this struct */
    struct tm_model model;
    struct tm_network layers;
    struct tm_gpu_figures figures;
    struct tm_comm_model comm;
};

/* `knowledge` has read source->profile, which must be given, and learns from it; both are borrowed. `precision`: of the
 * steps; mixed: whichever the profile has. `out` must stay where it is, and is to be freed after any call. -TM_EINPUT:
 * the profile has no such steps. */
int tm_replica_job_init(struct tm_env *env, const struct tm_knowledge_source *source, const struct tm_catalog *catalog,
                        int precision, struct tm_knowledge *knowledge, struct tm_replica_job *out, struct tm_error *e);
void tm_replica_job_deinit(struct tm_replica_job *job);

#endif
