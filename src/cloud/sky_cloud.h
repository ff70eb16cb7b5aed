/* SkyPilot as a cloud: a cluster of one node is an instance, launched and taken down by SkyPilot's API (remote_cloud.h
 * has what is common to such services). Each call is a process of SkyPilot's own Python (python/tidemill/skypilot.py),
 * which is part of this program; SkyPilot chooses, rents and fails over as it does for everybody. */
#ifndef TM_CLOUD_SKY_CLOUD_H
#define TM_CLOUD_SKY_CLOUD_H

#include "cloud/remote_cloud.h"

/* Of a job that may choose: what its clusters are, and where. */
struct tm_sky_pool {
    const char *instance; /* type, as the catalogue has it */
    const char *infra;    /* cloud/region/zone; "": where SkyPilot finds it */
};

/* All is borrowed as long as the cloud is there. */
struct tm_sky_options {
    const char *python;  /* that has SkyPilot; NULL: "python3" */
    const char *task;    /* file of a SkyPilot task or a job: what is to be rented */
    const char *folder;  /* that the task's names are meant from */
    const char *program; /* tidemill, which is brought along */
    const char *state;   /* the state folder: it names all clusters of all runs in it */
    const char *dir;     /* in it: for files of this cloud */
    const struct tm_cloud_pool *pools;
    const struct tm_sky_pool *places; /* of each */
    int pool_count;                   /* 0: no choice but the market */
    int limit[2];                     /* by market, then */
    int64_t poll_ms;                  /* 0: 30 s */
    uint64_t id_first;
    /* What the instance's agent needs, as one word. */
    int (*ticket)(void *context, uint64_t id, enum tm_instance_kind market, char out[TM_REMOTE_WORDS_MAX],
                  struct tm_error *e);
    bool (*has_joined)(void *context, uint64_t id);
    void *context;
};

/* Asks SkyPilot once, and waits for that: -TM_EINPUT: it is not there. The caller owns the result (its `destroy`, which
 * waits until all clusters are down, at most ten minutes). */
int tm_sky_cloud_create(struct tm_env *env, const struct tm_sky_options *options, struct tm_cloud **out,
                        struct tm_error *e);

/* The answer in what a call printed, as rows that grow (tm_grow). -TM_EINPUT: there is none. */
int tm_sky_answer__read(const char *text, size_t length, struct tm_remote_row **rows, size_t *capacity,
                        struct tm_remote_answer *out, struct tm_error *e);

#endif
