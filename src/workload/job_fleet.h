/* The instances of a job, as its file says (`fleet` of tidemill-job(5)).
 *
 * A fleet is described either by pools, each so many instances of one type at one place, as a plan writes them, or by
 * the older keys, one type and how many at most. From pools the older ones follow; saying both differently is an
 * error. Pools with a trace or a limit of their own are choices: the policy rents from them what it wants, up to
 * fleet.limit in all. */
#ifndef TM_WORKLOAD_JOB_FLEET_H
#define TM_WORKLOAD_JOB_FLEET_H

#include "base/fields.h"

#include <stdbool.h>

/* Not said: NULL, 0; TM_FLEET_UNSAID where 0 means something. */
enum { TM_FLEET_UNSAID = -1, TM_FLEET_POOLS_MAX = 64, TM_FLEET_INSTANCES_MAX = 100000, TM_FLEET_WORKERS_EACH_MAX = 64 };
enum { TM_FLEET_SPEED = 60 }; /* where none is said */

enum tm_pool_market { TM_POOL_SPOT, TM_POOL_ON_DEMAND };
enum tm_pool_role { TM_POOL_TRAINS, TM_POOL_KEEPS_COPIES };
extern const char *const tm_pool_market_names[]; /* "spot", "on-demand" */
enum tm_fleet_rent { TM_RENT_WORTHWHILE, TM_RENT_ALL, TM_RENT_CHEAPEST };
extern const char *const tm_fleet_rent_names[]; /* "worthwhile", "all", "cheapest" */
extern const char *const tm_pool_role_names[];  /* "trains", "keeps copies" */

/* Instances of one type at one place. */
struct tm_job_pool {
    const char *instance;
    const char *cloud;
    const char *region;
    const char *zone;
    int market;
    int role;
    int64_t count;
    int64_t usd_h_millionths; /* of one; TM_FLEET_UNSAID: the catalogue's */
    int64_t mean_life_ms;     /* of a spot instance; 0: as the fleet's losses say */
    const char *infra;        /* cloud[/region[/zone]], SkyPilot's way to write the three above */
    int64_t limit;            /* most instances at a time; 0: `count`, else what its trace has */
    const char *trace;        /* of this pool alone */
    int64_t from_ms;          /* of that trace */
    int64_t start_ms;         /* from asking for one to its first work; TM_FLEET_UNSAID: as the fleet says */
    int64_t notice_ms;        /* TM_FLEET_UNSAID: as the fleet says */
    double throughput;        /* of an instance over that of the fleet's type; 0: as predicted */
    const char *partition;    /* of Slurm; NULL: it is none */
    int64_t time_limit_ms;    /* of a job there; 0: the partition's */
    const char *sbatch;       /* further options of sbatch, set apart by blanks; NULL: none */
};

/* What is known of preemptions, where there is no trace. */
struct tm_job_losses {
    int64_t mean_life_ms;
    double bursts;      /* share of the preemptions that come in bursts; TM_FLEET_UNSAID */
    double burst_size;  /* share of a pool that a burst takes */
    int64_t outage_ms;  /* until a pool gives instances again after a burst; TM_FLEET_UNSAID */
    int64_t replace_ms; /* until one that went alone is replaced; TM_FLEET_UNSAID */
};

/* How cloud slurm is spoken to. */
struct tm_job_slurm {
    const char *rest;       /* address of slurmrestd; NULL: Slurm's commands are used */
    const char *token_file; /* its token; NULL: SLURM_JWT, if it is set */
};

/* The pods of cloud kubernetes. */
struct tm_job_pods {
    const char *image;          /* that has the program in it */
    const char *space;          /* namespace; NULL: the context's */
    const char *context;        /* of the kubeconfig; NULL: the current one */
    const char *account;        /* service account; NULL: the namespace's */
    const char *priority;       /* priority class; NULL: none */
    int spot;                   /* how spot nodes are marked: by place in tm_pods_spot_names */
    int64_t gpus;               /* of each */
    const char *gpu;            /* resource of a GPU; NULL: nvidia.com/gpu */
    const char *cpu;            /* as Kubernetes writes it: "4", "500m"; NULL: not said */
    const char *memory;         /* likewise: "16Gi" */
    struct tm_strings selector; /* further labels of nodes, NAME=VALUE */
};
extern const char *const tm_pods_spot_names[]; /* "any", "eks", "karpenter", "gke", "aks" */

/* The VM of run --detach. */
struct tm_job_coordinator_vm {
    const char *type;         /* instance type; NULL: a small one */
    const char *account;      /* as whom it rents the others */
    int64_t usd_h_millionths; /* what it costs; TM_FLEET_UNSAID */
    const char *reached_from; /* CIDR that reaches its API; NULL: none */
};

/* Of cloud aws: what all its VMs have in common. */
struct tm_job_aws {
    const char *image;          /* NULL: Amazon's newest for GPUs */
    const char *subnet;         /* NULL: the default VPC's, of the pool's zone */
    const char *security_group; /* NULL: the VPC's default group */
    const char *instance_profile;
    struct tm_job_coordinator_vm coordinator; /* its account: an instance profile */
    int64_t disk;                             /* bytes of the first disk; 0: as the image has it */
    int64_t silence_ms;                       /* a VM ends itself after so long without the run; 0: the usual */
    int64_t life_ms;                          /* and after so long in any case; 0: the usual */
    int64_t start_ms;                         /* it must have joined within so long; 0: the usual */
};

/* Of cloud azure: what all its VMs have in common. */
struct tm_job_azure {
    const char *location;       /* NULL: as the pools say */
    const char *resource_group; /* NULL: tidemill */
    const char *image;          /* PUBLISHER:OFFER:SKU:VERSION, or an id; NULL: Microsoft's for GPUs */
    const char *subnet;         /* an id; NULL: of a network that is made */
    const char *security_group; /* an id */
    const char *identity;       /* id of a managed identity by which VMs end themselves */
    bool public_ip;
    struct tm_job_coordinator_vm coordinator; /* its account: id of a managed identity */
    int64_t disk;                             /* as of tm_job_aws, and so on */
    int64_t silence_ms;
    int64_t life_ms;
    int64_t start_ms;
};

/* Of cloud gcp: what all its VMs have in common. */
struct tm_job_gcp {
    const char *image;                        /* NULL: Google's newest for PyTorch on GPUs */
    const char *network;                      /* NULL: default */
    const char *subnetwork;                   /* NULL: the network's, of the region */
    const char *service_account;              /* NULL: VMs have none */
    struct tm_job_coordinator_vm coordinator; /* its account: a service account */
    int64_t disk;                             /* as of tm_job_aws, and so on */
    int64_t silence_ms;
    int64_t life_ms;
    int64_t start_ms;
};

/* Where a run gets its instances. */
struct tm_job_fleet {
    struct tm_maps pools;        /* struct tm_job_pool */
    struct tm_strings hosts;     /* of cloud hosts: cloud/host_list.h */
    struct tm_job_slurm slurm;   /* of cloud slurm */
    struct tm_job_pods pods;     /* of cloud kubernetes */
    struct tm_job_aws aws;       /* of cloud aws */
    struct tm_job_azure azure;   /* of cloud azure */
    struct tm_job_gcp gcp;       /* of cloud gcp */
    struct tm_job_losses losses; /* where there is no trace */
    const char *trace;           /* a file, or a published hour's name */
    int64_t from_ms;             /* of the trace */
    int64_t to_ms;               /* 0: its end */
    double speed;                /* seconds of the trace in one on the wall */
    int64_t limit;               /* instances at a time */
    int64_t scaled;  /* counts of the trace are scaled so that its largest is the limit: 0, 1 or TM_FLEET_UNSAID */
    int64_t workers; /* of each instance; 0: 1 */
    int64_t workers_min;
    int64_t memory;                     /* bytes of an instance; stages must fit; 0: no limit */
    int64_t stages_min;                 /* of a pipeline; 0: 1 */
    int64_t stages_max;                 /* 0: as many as the model allows */
    int64_t on_demand;                  /* instances rented on demand, from the start; they hold copies ... */
    int64_t on_demand_trains;           /* ... and train as well: 0, 1 or TM_FLEET_UNSAID */
    int64_t notice_ms;                  /* in the trace's time; TM_FLEET_UNSAID */
    int64_t notice_wall_ms;             /* on the wall; 0: as notice_ms says */
    int64_t hint_ms;                    /* before the notice, in the trace's time */
    int64_t spot_start_ms;              /* from grant to arrival, in the trace's time */
    int64_t on_demand_start_ms;         /* TM_FLEET_UNSAID */
    const char *instance;               /* type, for prices */
    int64_t spot_usd_h_millionths;      /* where the trace has no prices; TM_FLEET_UNSAID: the catalogue's */
    int64_t on_demand_usd_h_millionths; /* of one that trains */
    const char *anchor_instance;        /* type of those that only keep copies; NULL, "": the same */
    int64_t anchor_usd_h_millionths;    /* TM_FLEET_UNSAID: the catalogue's */
    int64_t seed;                       /* which instances are lost */
    int rent;                           /* of pools that are choices: by place in tm_fleet_rent_names */
    bool across_regions;                /* workers in several regions may train together ... */
    bool across_types;                  /* ... and workers on instances of several types */
    double region_gbit_s;               /* of the links between two regions; 0: the usual */
    int64_t region_usd_gb_millionths;   /* of traffic from one region to another; TM_FLEET_UNSAID: the usual */
    int64_t poll_ms;                    /* longest time between two looks at a scheduler; 0: its usual */
};

extern const struct tm_field tm_job_fleet_fields[];
struct tm_job_fleet tm_job_fleet_unsaid(void);

/* The pools of a fleet; count 0: it has none. */
const struct tm_job_pool *tm_job_fleet_pools(const struct tm_job_fleet *fleet, size_t *count);
/* Of pools that are choices, how many train: they come before those that keep copies. */
size_t tm_job_fleet_trainers(const struct tm_job_fleet *fleet);
/* Is one of its pools a partition of Slurm? */
bool tm_job_fleet_has_partitions(const struct tm_job_fleet *fleet);
/* Fills in what follows for pools that are partitions; a pool that is neither of a type nor one is -TM_EINPUT. Before
 * all else that is asked of pools. */
int tm_job_fleet__settle_partitions(struct tm_job_fleet *fleet, const char *place, struct tm_error *e);
/* Are its pools choices, each with a trace or a limit of its own, and not a fleet as it was planned? */
bool tm_job_fleet_has_choices(const struct tm_job_fleet *fleet);
/* Choices that leave nothing to choose: all spot instances of several types in one region are rented, and train
 * together, as `plan` writes a mix. */
bool tm_job_fleet_is_mix(const struct tm_job_fleet *fleet);
/* Fills cloud, region and zone from `infra`; contradicting it is -TM_EINPUT. `number` of the pool, from 1. */
int tm_job_pool_locate(struct tm_job_pool *pool, size_t number, const char *place, struct tm_arena *arena,
                       struct tm_error *e);
/* How many workers each instance has, and all of them. */
int64_t tm_job_fleet_workers_each(const struct tm_job_fleet *fleet);
int64_t tm_job_fleet_workers_max(const struct tm_job_fleet *fleet);
/* The same fleet where instances are counted and not their workers: each is one, whatever it has. */
struct tm_job_fleet tm_job_fleet_by_instance(const struct tm_job_fleet *fleet);
/* How many on-demand instances only keep copies. */
int64_t tm_job_fleet_keepers(const struct tm_job_fleet *fleet);
/* How many spot instances there can be at a time: those of its pools, else the limit. */
int64_t tm_job_fleet_spot_max(const struct tm_job_fleet *fleet);
/* Does the file say anything of preemptions? */
bool tm_job_losses_said(const struct tm_job_losses *losses);
/* Are preemptions drawn from what is known of them, for want of a trace (NULL or "")? */
bool tm_job_fleet_is_drawn(const struct tm_job_fleet *fleet);

/* The notice that the fleet's keys say, in the trace's time; NaN: they say nothing. And the one that a cloud gives by
 * itself: NULL and "" mean any. */
double tm_job_fleet_notice_s(const struct tm_job_fleet *fleet);
int64_t tm_cloud_notice_ms(const char *cloud);
/* The price of all instances of a market that train, whatever their pools say. */
void tm_job_fleet_set_price(struct tm_job_fleet *fleet, enum tm_pool_market market, int64_t usd_h_millionths);

/* Fills in the older keys from the pools; what is said and differs is -TM_EINPUT. Nothing to do without pools.
 * `place` names the fleet in messages ("job.yaml:3"). */
int tm_job_fleet_settle(struct tm_job_fleet *fleet, const char *place, struct tm_error *e);

/* Can the local cloud be this fleet? -TM_EINPUT says what it has not got. It emulates one type that trains, spot and
 * on demand, and on-demand instances that either all train or all keep copies. */
int tm_job_fleet_check_local(const struct tm_job_fleet *fleet, const char *place, struct tm_error *e);

#endif
