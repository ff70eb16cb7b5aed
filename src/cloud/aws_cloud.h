/* AWS as a cloud: VMs of EC2, on demand and spot, each an agent of the run (vms.h says how they live).
 *
 * All calls go over libcurl's multi interface and none is waited for, but before anything is rented: then the program
 * is brought to the bucket, and AWS is asked for an image. Every VM is tagged as it is made, with the job, its owner,
 * the run and how long it may live; `tidemill cloud list` and `clean` find it by that alone. What a call would rent is
 * in a file of the state folder before the call is made, with its token: a program that dies between call and answer
 * leaves what the next one needs to find the VM.
 *
 * A VM ends by itself when it shuts down, and shuts down when the run has let it go, has been silent for long, or when
 * its time is over (aws_user_data.h). */
#ifndef TM_CLOUD_AWS_CLOUD_H
#define TM_CLOUD_AWS_CLOUD_H

#include "cloud/cloud.h"

enum { TM_AWS_INSTANCES_MAX = 256, TM_AWS_TICKET_MAX = 512 };

/* All is borrowed as long as the cloud is there. "" and NULL: not said. */
struct tm_aws_options {
    const struct tm_cloud_pool *pools; /* zone: a zone, a region, or "" */
    int pool_count;
    const char *region; /* NULL: as set for AWS's own tools */
    const char *image;  /* NULL: Amazon's newest for GPUs */
    const char *subnet;
    const char *security_group;
    const char *profile; /* an instance profile, by name */
    int64_t disk_gb;     /* of the first disk; 0: as the image has it */
    const char *job;     /* its name */
    const char *owner;
    uint64_t run;       /* tells this run from all others; the same after a restart */
    const char *bucket; /* where VMs find the program, and what they leave */
    const char *prefix; /* "" or "a/b", of all objects */
    const char *program;
    const char *variables; /* as of aws_user_data.h */
    const char *setup;
    const char *state_dir; /* what must be found again after a crash */
    const char *log_dir;   /* an instance's output goes to worker-ID.log in it */
    uint64_t id_first;
    int64_t account_ms; /* the cloud's time that is already paid for: where the last program of this run stood */
    int64_t poll_ms;    /* longest time between two looks; 0: 15 s */
    int64_t silence_ms; /* VMs end themselves after so long without the run; 0: 15 minutes */
    int64_t life_ms;    /* and after so long in any case; 0: 6 days */
    int64_t start_ms;   /* from the call to the agent's joining; 0: 30 minutes */
    /* What the instance's agent needs, as one word. */
    int (*ticket)(void *context, uint64_t id, bool on_demand, char out[TM_AWS_TICKET_MAX], struct tm_error *e);
    bool (*has_joined)(void *context, uint64_t id);
    void *context;
};

/* The caller owns the result (its `destroy`, which waits at most two minutes until AWS says that all VMs end). */
int tm_aws_cloud_create(struct tm_env *env, const struct tm_aws_options *options, struct tm_cloud **out,
                        struct tm_error *e);

#endif
