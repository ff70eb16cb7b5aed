/* What a cluster of workers around parameter servers would do: speed, time, cost, and what losses do to them.
 *
 * After "Speeding up Deep Learning with Transient Servers" (Li et al., ICAC 2019) and CM-DARE (ICDCS 2020), whose
 * published measurements are the figures here: speeds of single workers, prices, start-up times, lifetimes. The speed
 * of a cluster is the sum of its workers' speeds under the ceiling of its parameter servers; losses take workers away
 * at random ages, replacements come after a while, and many runs drawn from a seed give distributions.
 *
 * A worker's step takes 1 / its speed alone, plus the exchange with the servers that does not hide behind computing,
 * plus three round trips to a server in another region. With S the sum of such speeds and C the ceiling, a cluster
 * makes (S^-7 + C^-7)^(-1/7) steps a second: doc/forecast-and-lifetimes.md has the fit. */
#ifndef TM_SIM_CLUSTER_WHATIF_H
#define TM_SIM_CLUSTER_WHATIF_H

#include "base/error.h"
#include "base/text.h"
#include "market/catalog.h"
#include "market/risk.h"
#include "market/survival.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_CLUSTER_WORKERS_MAX = 256, TM_CLUSTER_SERVERS_MAX = 64, TM_CLUSTER_RUNS_MAX = 1000000 };
/* GPUs of the study; beyond them, those of the catalogue that a cluster names (tm_cluster_know). */
enum tm_cluster_gpu { TM_CLUSTER_K80, TM_CLUSTER_P100, TM_CLUSTER_V100, TM_CLUSTER_GPUS };
enum { TM_CLUSTER_OTHERS_MAX = 8, TM_CLUSTER_KINDS_MAX = TM_CLUSTER_GPUS + TM_CLUSTER_OTHERS_MAX };

struct tm_cluster_gpu_facts {
    const char *name;
    double transient_usd_h;
    double on_demand_usd_h;
    double startup_s;             /* of a replacement, asked for right after a loss */
    double hazard_h[TM_AGE_BINS]; /* losses per instance-hour by age (survival.h) */
    double first_hour_layout;     /* of the first hour's losses, t^layout have come by the age of t hours */
};
extern const struct tm_cluster_gpu_facts tm_cluster__gpus[TM_CLUSTER_GPUS];

struct tm_cluster_model {
    const char *name;
    double steps_per_s[TM_CLUSTER_KINDS_MAX]; /* of a worker alone; NaN or 0: not known */
    double ceiling[2];            /* steps a second that one and two parameter servers take; infinite: no limit */
    double join_s;                /* from a new VM that is up to its first step */
    double exchange_s, sharpness; /* 0: as fitted to the study's clusters */
};
/* NULL-named at the end: resnet15, resnet32, shake-small, shake-big. */
extern const struct tm_cluster_model tm_cluster__models[];
/* -TM_EUSAGE with the names there are. */
int tm_cluster_model_find(const char *name, const struct tm_cluster_model **out, struct tm_error *e);

struct tm_cluster_worker {
    int gpu; /* of enum tm_cluster_gpu, or TM_CLUSTER_GPUS + i: the cluster's other i */
    bool transient;
    char region[24]; /* "": that of the servers */
};

/* A GPU that the study did not have, in a region. */
struct tm_cluster_other {
    char name[24];
    char region[24];
    char instance[64]; /* whose prices are taken */
    struct tm_cluster_gpu_facts facts;
};

struct tm_cluster {
    struct tm_cluster_worker workers[TM_CLUSTER_WORKERS_MAX];
    size_t count;
    int servers; /* 0 only for a worker alone, which needs none */
    struct tm_cluster_other others[TM_CLUSTER_OTHERS_MAX];
    size_t other_count;
};

/* "2x K80:transient, P100@us-west1, V100:on-demand": count x GPU, transient unless it says otherwise, and a region
 * where it is not the first one's. Servers: one, or none for a worker alone. */
int tm_cluster_parse(const char *text, struct tm_cluster *out, struct tm_error *e);
/* The same in words, equal neighbours counted: "2x K80:transient, 1x P100:transient@us-west1". */
void tm_cluster_print(const struct tm_cluster *cluster, struct tm_text *out);

/* Prices and lifetimes of the GPUs that the study did not have: those of the catalogue, and of the risk of spot. Needed
 * before such a cluster is run. -TM_EUSAGE: a GPU that the catalogue does not have. */
int tm_cluster_know(struct tm_cluster *cluster, const struct tm_catalog *catalog, const struct tm_risk *risk,
                    struct tm_error *e);
const char *tm_cluster_gpu_name(const struct tm_cluster *cluster, int gpu);

/* How long a worker lives, were it transient: as its GPU does in its region, where CM-DARE measured that; else as its
 * GPU does in all. */
struct tm_cluster_life {
    double hazard_h[TM_AGE_BINS];
    double first_hour_layout;
    int gpu;
    bool of_region;
};
void tm_cluster_life_of(const struct tm_cluster *cluster, size_t worker, struct tm_cluster_life *out);
/* Share lost by an age. */
double tm_cluster_lost_by(const struct tm_cluster_life *life, double age_h);

/* ---- parts of the model ---- */

/* Steps a second with the workers for which `present` is true (NULL: all). Unknown speeds are the caller's mistake. */
double tm_cluster_speed(const struct tm_cluster_model *model, const struct tm_cluster *cluster, const bool *present);
/* Sum of what the workers would make alone. */
double tm_cluster_sum_of_speeds(const struct tm_cluster_model *model, const struct tm_cluster *cluster);
/* Ceiling of a number of servers: known for one and two, grown by the same factor for each doubling. */
double tm_cluster_ceiling(const struct tm_cluster_model *model, int servers);
/* Time to the end if a replacement joins after overhead_s, the rest going on meanwhile: O + (R - O v0) / v1. */
double tm_cluster__replacement_s(double overhead_s, double remaining_steps, double v0, double v1);
/* Seconds to write a checkpoint of a size to cloud storage. */
double tm_cluster_checkpoint_s(double megabytes);
/* Round trip between two regions, in seconds; 0 for the same one. */
double tm_cluster__round_trip_s(const char *a, const char *b);

/* ---- how far off ---- */

enum { TM_CLUSTER_TRIALS_MAX = 16 };
struct tm_cluster_trial {
    const char *what; /* workers, or a region */
    const char *gpu;  /* of a region */
    double measured;
    double fitted;    /* with everything; NaN: nothing is fitted */
    double predicted; /* held out */
    double low, high; /* of a region: an interval that holds 80% */
};
/* Hours of the study's clusters: exchange, ceiling and sharpness are fitted to those of the other sizes. */
size_t tm_cluster_hold_out_sizes(struct tm_cluster_trial out[TM_CLUSTER_TRIALS_MAX]);
/* Shares of VMs revoked within 1 or 24 hours in CM-DARE's regions, from the other regions of the same GPU. */
size_t tm_cluster_hold_out_regions(bool first_hour, struct tm_cluster_trial out[TM_CLUSTER_TRIALS_MAX]);

/* ---- a job ---- */

enum tm_cluster_chief { TM_CHIEF_FAILOVER, TM_CHIEF_RESTART, TM_CHIEF_FATAL };
extern const char *const tm_cluster_chiefs[]; /* "failover", "restart", "fatal" */

/* What a worker that was lost costs: its place to the end of the job, filled again or not, or the time that it was up.
 * The study's text says the latter; its bills, $2.08 for two K80 of which one was lost, are the former. */
enum tm_cluster_billing { TM_LOST_TO_END, TM_LOST_UPTIME };
extern const char *const tm_cluster_billings[]; /* "to-end", "uptime" */

struct tm_cluster_job {
    const struct tm_cluster_model *model;
    double steps;
    int revocations; /* of transient workers, at random times; -1: as their lifetimes have it */
    bool at_hour;    /* it starts at `hour` of the local day; else at any */
    int hour;
    bool replace; /* lost workers by new ones of the same kind */
    enum tm_cluster_billing lost_billed;
    enum tm_cluster_chief chief; /* when the first worker is lost: another takes over; or the job goes back to its last
                                    checkpoint; or it is lost */
    double checkpoint_every;     /* steps; 0: none are written */
    double checkpoint_mb;
    int runs; /* to draw; 1 is enough where nothing is random */
    uint64_t seed;
};

struct tm_spread {
    double mean, sd, p10, p50, p90;
};

struct tm_cluster_outcome {
    double steps_per_s;      /* with all workers */
    struct tm_spread time_h; /* of runs that finish */
    struct tm_spread cost_usd;
    struct tm_spread uptime_usd; /* the same with every worker billed for its uptime */
    double revocations;          /* mean number, over all runs */
    double with_count[3];        /* share of runs with 0, 1, and 2 or more */
    double lost;                 /* share of runs that never finish; their time is not in the means */
};

/* -TM_EUSAGE for what cannot be: more revocations than transient workers, no server for several workers. */
int tm_cluster_run(const struct tm_cluster_job *job, const struct tm_cluster *cluster, struct tm_cluster_outcome *out,
                   struct tm_error *e);

/* One more worker (like the last one), and one more server: what they would do, and whether it pays: faster by 1% and
 * more, and no dearer. */
struct tm_cluster_advice {
    struct tm_cluster_outcome worker;
    bool worker_pays;
    struct tm_cluster_outcome server;
    bool server_pays;
};
int tm_cluster_advise(const struct tm_cluster_job *job, const struct tm_cluster *cluster,
                      const struct tm_cluster_outcome *now, struct tm_cluster_advice *out, struct tm_error *e);

#endif
