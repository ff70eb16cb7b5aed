/* A plan as a file that others read: a SkyPilot task, or a job of ours (tidemill-job(5)). */
#ifndef TM_PLAN_EMIT_H
#define TM_PLAN_EMIT_H

#include "plan/search.h"
#include "workload/job.h"

/* A key of a job file that an option overrides. */
struct tm_emit_key {
    const char *map; /* the key stands in this one; NULL: at the top */
    const char *key;
    const char *text; /* NULL: the key goes */
    bool list;        /* the text is a list, with commas */
};

/* What the plan was for, and the job it came from (NULL: flags alone). */
struct tm_emit {
    const struct tm_plan_request *request;
    const struct tm_plan_answer *answer;
    const struct tm_job *job;
    const char *file;  /* its name without folders */
    const char *trace; /* that the plan was judged by; NULL: none */
    /* The absolute folder of the job, where what is written goes to another one: files that the job names beside itself
     * are named from the root then, and `run` goes on in that folder. NULL: names stay as they are. `env` looks for
     * them. */
    const char *folder;
    struct tm_env *env;
    const struct tm_emit_key *keys;
    size_t key_count;
};

/* Does SkyPilot offer this type? Its catalogue (0.14.1) no longer has p2, p3 and g3 of AWS. */
bool tm_emit_skypilot_has(const struct tm_instance_type *instance);
/* A SkyPilot cluster has instances of one kind: a fleet of several kinds, or of spot and on-demand instances, becomes
 * one document each, every one a task for a cluster of its own. The folder of the job file goes along, with the program
 * and the job's keys in it; a task starts an agent on each node, and a coordinator on the first. */
void tm_emit_skypilot(const struct tm_emit *emit, struct tm_text *out);
/* The user's own document with the keys changed that options override, and `fleet` with the pools that were chosen and
 * what was known of preemptions: simulate and run take it as it is. */
int tm_emit_job(const struct tm_emit *emit, struct tm_text *out, struct tm_error *e);

#endif
