/* What predict and plan know before they start: the GPU's figures, and what a profile of the user's teaches. */
#ifndef TM_JOB_KNOWLEDGE_H
#define TM_JOB_KNOWLEDGE_H

#include "base/arena.h"
#include "base/env.h"
#include "market/catalog.h"
#include "workload/comm.h"
#include "workload/job.h"
#include "workload/predict.h"

/* What the user gave to learn from; NULL: not given. */
struct tm_knowledge_source {
    const char *profile;     /* a file */
    const char *profile_gpu; /* that it was taken on */
    const char *model;       /* a shipped one, a file or a formula */
    const char *network;     /* of the profile, where it has several */
};

struct tm_knowledge {
    struct tm_profile profile;
    struct tm_compute_model compute; /* learned from the shipped profiles and the user's */
    struct tm_comm_model comm;       /* likewise, from data-parallel runs */
    const char *gpu;                 /* that the model was profiled on, by its name in the catalogue; "": on none */
    enum tm_precision precision;     /* that it was profiled in */
    /* Measured steps of the model in question on that GPU at that precision. */
    int *batches;
    double *ms;
    size_t count;
    /* Its gradients in the order in which they become ready, where the profile has them. */
    struct tm_comm_bucket *gradients;
    size_t gradient_count;
};

void tm_knowledge_init(struct tm_knowledge *knowledge);
void tm_knowledge_deinit(struct tm_knowledge *knowledge);

/* What a job gives to learn from: files lie here, or beside its own. The texts are the job's, or in the arena. */
struct tm_knowledge_source tm_knowledge__of_job(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena);
/* The precision that a job says, TM_PRECISION_MIXED among them; -1: none. */
int tm_knowledge__said_precision(const struct tm_job *job);

/* Reads the profile, if one was given. */
int tm_knowledge_read(struct tm_env *env, const struct tm_knowledge_source *source, struct tm_knowledge *knowledge,
                      struct tm_error *e);
/* The model that was given, else the network of the profile. */
int tm_knowledge_model(struct tm_env *env, const struct tm_knowledge_source *source,
                       const struct tm_knowledge *knowledge, struct tm_model *model, struct tm_error *e);
/* The precision that the model was profiled in, else `usual`: TM_PRECISION_MIXED may come out. */
int tm_knowledge_precision(const struct tm_knowledge_source *source, const struct tm_knowledge *knowledge,
                           const struct tm_model *model, int usual);
/* Learns from what was read. `precision`: of the measured steps of this model; mixed: the one that the profile has. */
int tm_knowledge_learn(struct tm_env *env, const struct tm_knowledge_source *source, const struct tm_catalog *catalog,
                       const struct tm_model *model, int precision, struct tm_knowledge *knowledge, struct tm_error *e);

/* A GPU of the catalogue by any of its names; unknown ones get a suggestion. */
int tm_knowledge__gpu(const struct tm_catalog *catalog, const char *name, struct tm_gpu_figures *out,
                      struct tm_error *e);

/* An instance type of the catalogue by its name, of a cloud that `allows` allows (NULL: of any). -TM_EUSAGE with a
 * suggestion. */
int tm_knowledge_instance(const struct tm_catalog *catalog, const char *name,
                          bool (*allows)(const void *context, const char *cloud), const void *context,
                          const struct tm_instance_type **out, struct tm_error *e);
/* One instance of a type, as predictions take it; -TM_EUSAGE: nobody knows its GPU. */
int tm_knowledge__group(const struct tm_catalog *catalog, const struct tm_instance_type *instance,
                        struct tm_fleet_group *out, struct tm_error *e);
/* What an hour of a type costs where it is cheapest; a price that is not NaN is known already, and stays. -TM_EUSAGE:
 * the catalogue does not have what is missing; `remedy` is what the message says to do about it. */
int tm_knowledge_prices(const struct tm_catalog *catalog, const char *instance, const char *remedy, double *spot_usd_h,
                        double *on_demand_usd_h, struct tm_error *e);

/* The GPU of each step of a profile: that of its row, else the one that was asked for, else the longest whose name is
 * in the file's name, else that of another row. -TM_EUSAGE: nobody says it. The caller frees them (base/alloc.h). */
int tm_knowledge_step_gpus(const struct tm_catalog *catalog, const struct tm_profile *profile, const char *path,
                           const char *asked, struct tm_gpu_figures **out, struct tm_error *e);

/* Whose networks are looked up: those that the profile names a model for or has layers of, then the shipped ones. */
struct tm_knowledge_names {
    struct tm_env *env;
    const struct tm_profile *profile;
    const struct tm_profile *shipped; /* nothing of the profile's measurements may be used: what ships tells; or NULL */
    bool no_memory;                   /* set where a network was not found for want of memory */
};

/* The model of a step of a profile; context is a struct tm_knowledge_names. Names may carry the context length behind
 * the model's name: gpt2-124m-1024. Where a profile does not say how attention was computed, its measured memory shows
 * whether scores were stored; where that may not be used, they were if they were in the shipped steps of that model. */
bool tm_knowledge_step_model(void *context, const struct tm_profile_step *step, struct tm_model *model);

/* What the shipped profiles teach, and nothing else. */
int tm_knowledge_shipped(struct tm_env *env, const struct tm_catalog *catalog, struct tm_compute_model *out,
                         struct tm_error *e);

#endif
