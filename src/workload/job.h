/* Job files: what is to be trained and what the user allows, in YAML (tidemill-job(5)).
 *
 * SkyPilot's words are used where the meaning is the same (name, resources, num_instances, envs, setup, run), so that a
 * task of theirs reads as a job and the other way round; what they have no word for is ours. Every key may be left out:
 * what a command needs and does not find it asks for. */
#ifndef TM_WORKLOAD_JOB_H
#define TM_WORKLOAD_JOB_H

#include "base/arena.h"
#include "base/env.h"
#include "base/fields.h"
#include "workload/job_fleet.h"
#include "workload/job_log.h"
#include "workload/job_notify.h"
#include "workload/job_training.h"

#include <stdbool.h>

enum { TM_JOB_BYTES_MAX = 4 << 20 };

/* A name and a text or number, of a map that the user makes up. */
struct tm_job_pair {
    const char *name;
    const char *text;
    int line;
};

struct tm_job_pairs {
    struct tm_job_pair *items;
    size_t count;
};

struct tm_job_resources {
    struct tm_strings infra; /* cloud[/region[/zone]] */
    struct tm_strings cloud;
    struct tm_strings region;
    struct tm_strings zone;
    struct tm_strings instance_type;
    struct tm_strings accelerators; /* NAME or NAME:COUNT */
    const char *use_spot;           /* "true", "false"; NULL: not said */
};

/* Not said: NULL, 0 or an empty list. */
struct tm_job {
    struct tm_arena arena;      /* owns the strings */
    const char *file;           /* that it was read from, for messages */
    const char *folder;         /* that the file is in ("": here): what it names is meant from there */
    const char *sky_only;       /* where the first key stands that SkyPilot alone reads; NULL: there is none */
    const struct tm_node *root; /* the document as it stands there */
    const char *document;       /* the file's text */
    const char *name;
    struct tm_job_resources resources;
    int64_t num_instances;
    struct tm_job_pairs envs;
    const char *setup;
    const char *run;
    const char *workdir;
    /* ours */
    const char *model; /* a map gpt: {...} becomes the formula "gpt:layers=4,..." */
    const char *profile;
    const char *network;     /* of the profile, where it has several */
    const char *profile_gpu; /* that it was taken on */
    const char *data;
    int64_t samples;
    int64_t steps; /* where samples and a batch are said, as many as those take */
    int64_t batch;
    int64_t micro_batch;
    const char *precision;
    const char *layout;
    int64_t seed;
    int64_t deadline_ms;
    int64_t budget_usd_millionths;
    int64_t max_hourly_usd_millionths;
    int64_t max_instances;
    double probability;
    const char *objective;
    const char *market;
    struct tm_job_pairs quotas;
    int64_t checkpoint_time_ms;
    int64_t restart_time_ms; /* from a preemption to the next step; TM_FLEET_UNSAID */
    int64_t checkpoint_interval_ms;
    struct tm_strings anchors; /* a count and an instance type each, or "none" alone */
    /* of a run */
    const char *copies; /* a folder, s3://BUCKET/PREFIX or az://CONTAINER/PREFIX; NULL: in the state folder */
    int engine; /* TM_JOB_ENGINE_GPT, ...; where the file does not say: its command where it has one, else gpt */
    int cloud;  /* by place in tm_job_cloud_names: where a run gets its instances */
    const char *policy;
    int64_t max_failures;    /* TM_FLEET_UNSAID */
    int64_t layers;          /* of a job that `run` trains */
    const char *determinism; /* "bitwise", "fast"; NULL: not said */
    /* of the built-in engine */
    struct tm_job_gpt gpt; /* of a model that is a map; else all is 0 */
    struct tm_job_optimizer optimizer;
    struct tm_job_schedule schedule;
    struct tm_job_checkpoint checkpoint;
    int64_t memory; /* bytes that a worker may use; 0: no limit */
    int name_line;  /* where it stands in the file; 0: it does not */
    int policy_line;
    int fleet_line;
    struct tm_job_fleet fleet;
    struct tm_maps notify; /* of struct tm_notify_target */
    struct tm_maps log;    /* of struct tm_log_target */
};

void tm_job_init(struct tm_job *job);
void tm_job_deinit(struct tm_job *job);
/* `job` must be initialised; it is filled only on success. Unknown keys are errors with a suggestion. */
int tm_job_load(struct tm_env *env, const char *path, struct tm_job *job, struct tm_error *e);
int tm_job_parse(const char *file, const char *text, size_t length, struct tm_job *job, struct tm_error *e);

/* Are the pools of its fleet among what it allows (resources, market, max_nodes)? -TM_EINPUT names what is not. */
int tm_job_check_pools(const struct tm_job *job, struct tm_error *e);
/* Does an entry of resources.infra, CLOUD[/REGION[/ZONE]] with "*" for any, mean this place? A part that is NULL
 * is not known, and may be any. */
bool tm_job_infra_means(const char *infra, const char *cloud, const char *region, const char *zone);
/* Does the file allow nothing but spot instances to train (market, resources.use_spot)? */
bool tm_job_wants_spot(const struct tm_job *job);
/* Does the file say that there are to be no anchors? */
bool tm_job_refuses_anchors(const struct tm_job *job);
/* The anchors that the file names, "2x c5.xlarge" (or a list of them): how many, of which type, in the job's memory. 0:
 * it names none, or "none". -TM_EINPUT: they are of several types, or cannot be understood. */
int tm_job_anchors(const struct tm_job *job, int64_t *out_count, const char **out_type, struct tm_error *e);
/* Keys of SkyPilot's that are in the file, unread, are for cloud skypilot, which reads the file itself: -TM_EINPUT on
 * another. */
int tm_job_check_sky(const struct tm_job *job, struct tm_error *e);
/* Does the file say anything of a key ("fleet.limit")? */
bool tm_job_says(const struct tm_job *job, const char *key);
/* What is wrong with a value that the file gives, as -TM_EINPUT: "job.yaml:3:7: batch: ..."; without line and column
 * where the key is not in the file. */
int tm_job_wrong(const struct tm_job *job, const char *key, struct tm_error *e, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* What trains it: a value of the key engine, or the job's `run`. */
enum { TM_JOB_ENGINE_GPT, TM_JOB_ENGINE_PACED, TM_JOB_ENGINE_COMMAND };
extern const char *const tm_job_engine_names[];

/* Values of the key cloud; the first where it is not said. */
extern const char *const tm_job_cloud_names[];
/* Does its cloud rent VMs, which boot empty and join (aws, gcp, azure)? */
bool tm_job_rents_vms(const struct tm_job *job);

#endif
