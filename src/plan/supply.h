/* What there is to rent for a model: instance types with the throughput that fleets of them give, and regions with
 * their pools (an instance type in a zone). Made once from a catalogue; searches with other limits use it again. */
#ifndef TM_PLAN_SUPPLY_H
#define TM_PLAN_SUPPLY_H

#include "market/catalog.h"
#include "market/risk.h"
#include "plan/recorded_traces.h"
#include "workload/predict.h"

enum { TM_PLAN_INSTANCES_MAX = 1024, TM_PLAN_ZONES_MAX = 4, TM_PLAN_ANCHOR_KINDS_MAX = 3 };

struct tm_plan_rate {
    int instances;
    double samples_per_s;
    double spread; /* of its logarithm */
};

struct tm_plan_type {
    const struct tm_instance_type *instance;
    struct tm_fleet_group group;
    enum tm_precision precision;
    struct tm_plan_rate *rates; /* ascending; only counts that are faster than all smaller ones */
    size_t rate_count;
    bool saturated;  /* larger fleets were tried and are no faster */
    double slowdown; /* of what was seen to what was predicted; 1: nothing was seen */
};

struct tm_plan_pool {
    const struct tm_offer *offer;
    size_t type;
    double spot_usd_h;      /* NaN: not to be had, not allowed, or several zones are cheaper */
    double on_demand_usd_h; /* likewise; of a type in a region only at one place */
    double loss_per_s;      /* of a spot instance */
};

struct tm_plan_anchor_kind {
    const struct tm_instance_type *instance;
    const struct tm_offer *offer;
};

/* Instances that can train together: those of one region with GPUs of one maker. */
struct tm_plan_region {
    const char *cloud;
    const char *region;
    size_t first; /* pools, those of one type side by side, cheapest spot first */
    size_t count;
    struct tm_plan_anchor_kind anchors[TM_PLAN_ANCHOR_KINDS_MAX]; /* instances without GPU: those that hold anchor_gib
                                                                     for the least money; most memory for the money;
                                                                     most network for the money */
    size_t anchor_count;
};

/* Instance types with GPUs that were allowed, and why some of them are of no use. */
struct tm_supply_types {
    size_t allowed;
    size_t unpriced;        /* have no price that is allowed: no spot price, say */
    size_t gpu_unknown;     /* the catalogue has no figures of their GPU, or they have less than a whole one */
    size_t network_unknown; /* nor of their network (see tm_catalog_assume_network) */
    size_t unfit;           /* the model does not fit */
    size_t no_precision;    /* their GPU has no mode of the precision that was asked for */
};

struct tm_supply {
    const struct tm_catalog *catalog;
    struct tm_supply_types seen;
    struct tm_plan_type *types;
    size_t type_count, type_capacity;
    struct tm_plan_pool *pools;
    size_t pool_count, pool_capacity;
    struct tm_plan_region *regions;
    size_t region_count, region_capacity;
    struct tm_offer *assumed; /* of anchors in regions of which the catalogue has no instances without GPU */
};

struct tm_supply_request {
    const struct tm_model *model;
    const struct tm_compute_model *compute;
    const struct tm_comm_model *comm;
    int precision; /* or mixed */
    int batch;
    int micro_batch; /* that the job says, for life; 0: the best */
    unsigned ways;   /* enum tm_way that may be tried beside data parallel and pipelines, of fleets of one type */
    int max_instances;
    bool spot; /* may be rented */
    bool on_demand;
    /* How often a spot instance is lost: as the trace that speaks of its offer has it, else so (NaN: as is known of the
     * risk of the offer), else `default_loss_per_s`. */
    const struct tm_plan_traces *traces; /* NULL: none */
    double loss_per_s;
    double default_loss_per_s;
    const struct tm_risk *risk;       /* NULL: nothing is known */
    const struct tm_catalog *catalog; /* that the offers are of; needed with `risk` and `traces` */
    const double *offer_loss_per_s;   /* by offer of the catalogue, from tm_supply_loss_rates; NULL: ask each time */
    double probed_bit_s;              /* of the instances' network, where it was probed; 0: as the catalogue says */
    double anchor_gib;                /* that anchors must hold together; 0: any */
    const struct tm_instance_type *anchor_type; /* that the job names for them; NULL: any */
    /* May this offer be used, to train or (anchor) to hold copies? NULL: all. */
    bool (*allowed)(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer,
                    bool anchor);
    const void *allowed_context;
    /* Measured steps of the model on one kind of GPU at one precision; count 0: none. */
    const char *measured_gpu;
    enum tm_precision measured_precision;
    const int *measured_batches;
    const double *measured_ms;
    size_t measured_count;
    /* Its gradients as they become ready; count 0: as its layers tell. */
    const struct tm_comm_bucket *gradients;
    size_t gradient_count;
};

void tm_supply_init(struct tm_supply *supply);
void tm_supply_deinit(struct tm_supply *supply);
/* `supply` must be initialised; catalogue and request must outlive it. */
int tm_supply__make(const struct tm_catalog *catalog, const struct tm_supply_request *request, struct tm_supply *supply,
                    struct tm_error *e);

/* A type alone, without rates; false: its GPU or its network is not known, so nothing can be predicted. */
bool tm_supply__type(const struct tm_catalog *catalog, const struct tm_supply_request *request,
                     const struct tm_instance_type *instance, struct tm_plan_type *out);

/* Whose accelerator an instance has: "nvidia", "amd", "aws" (Trainium), "google", "intel". Those of different makers do
 * not train together. */
const char *tm_plan_maker(const struct tm_instance_type *instance);

/* How often one spot instance of an offer is lost; `offer` is of the catalogue that the request names, if it does. */
double tm_supply__loss_rate(const struct tm_supply_request *request, const struct tm_offer *offer);

/* The same for every offer of the request's catalogue, asked once: searches ask often. The caller frees it. */
int tm_supply_loss_rates(const struct tm_supply_request *request, double **out, struct tm_error *e);

/* Peak figures of a GPU of the catalogue, as prediction wants them. */
struct tm_gpu_figures tm_plan_gpu_figures(const struct tm_gpu *gpu);
/* One instance of a type with such GPUs, as predictions take it: an instance type may have more memory a GPU than is
 * usual. */
struct tm_fleet_group tm_plan_group(const struct tm_gpu *gpu, const struct tm_instance_type *instance);
/* The precision that was asked for; mixed: the fastest 16-bit one that the GPU has. */
enum tm_precision tm_plan_precision(const struct tm_gpu_figures *gpu, int asked);

/* The most that one instance of a type gives in a fleet of its own type whose throughput lies between the two; 0 where
 * such fleets do not exist. Fleets between two counts are taken to lie on the line between them. */
double tm_plan_type__rate(const struct tm_plan_type *type, double low, double high);

/* What the predictor is asked for a fleet of these types; `groups` has room for `count`. */
struct tm_predict_request tm_supply_predict_request(const struct tm_supply_request *request,
                                                    const struct tm_plan_type *const *types, const int *instances,
                                                    size_t count, struct tm_fleet_group *groups);

#endif
