/* A model with its costs and the layouts that it may have, each with its speed: as measured in the model's file, else
 * predicted on an instance type; and as a run has measured it, where the cost file says so. What simulate predicts
 * with, a run decides with, and the paced engine takes its times from. */
#ifndef TM_JOB_JOB_LAYOUTS_H
#define TM_JOB_JOB_LAYOUTS_H

#include "job/knowledge.h"
#include "layout/speed.h"

/* How fast layouts of a model are: a tm_layout_speed with all that it needs. */
struct tm_job_speed {
    tm_layout_speed speed;
    void *context; /* of it: points to the model or into this struct, which must stay where it is */
    struct tm_knowledge knowledge;
    struct tm_speed_context predicted;
};

struct tm_job_speed_request {
    const struct tm_catalog *catalog;
    const struct tm_model *model;
    const char *instance; /* the type that is rented; NULL: p3.2xlarge, which the published hours are of */
    int64_t batch;        /* of a model that brings no measured layouts; 0: its own, else 8 an instance */
    int64_t micro_batch;  /* of one pipeline; 0: the best of each layout */
    bool precise;         /* at `precision`; else at the best of 16 bits that the GPU has */
    int precision;        /* or mixed */
    int instances_max;
    int workers;                       /* of an instance, which is what layouts are made of; 0: 1 */
    struct tm_knowledge_source source; /* a profile to learn from, where there is one */
};

/* As a job says it, of its own model and instance type; files are named in the arena. */
struct tm_job_speed_request tm_job_speed__of_job(struct tm_env *env, const struct tm_job *job,
                                                 const struct tm_catalog *catalog, const struct tm_model *model,
                                                 int64_t batch, struct tm_arena *arena);
/* All is borrowed; `out` is to be freed after any call. */
int tm_job_speed__init(struct tm_env *env, const struct tm_job_speed_request *request, struct tm_job_speed *out,
                       struct tm_error *e);
void tm_job_speed__deinit(struct tm_job_speed *speed);

struct tm_job_layouts {
    struct tm_model model;
    struct tm_cost cost;
    struct tm_layouts layouts;
};

struct tm_job_layouts_request {
    const struct tm_catalog *catalog;
    const char *model; /* a shipped one, a file or a formula */
    const char *cost;  /* paper, measured or a file */
    double speed;      /* of the trace, for measured costs; 0: at which they were measured */
    const char *instance;
    int instances_max;
    int64_t batch;
    const struct tm_layout_rules *rules; /* instead of the cost file's; NULL: its */
    struct tm_knowledge_source source;   /* a profile to learn from, where there is one */
};

/* `out` is to be freed after any call. */
int tm_job_layouts_init(struct tm_env *env, const struct tm_job_layouts_request *request, struct tm_job_layouts *out,
                        struct tm_error *e);
void tm_job_layouts_deinit(struct tm_job_layouts *job);

/* The layouts alone, for a model and a cost that are there. */
int tm_job_layouts__make(const struct tm_model *model, const struct tm_cost *cost, int instances_max,
                         tm_layout_speed speed, void *context, struct tm_layouts *out, struct tm_error *e);

#endif
