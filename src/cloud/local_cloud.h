/* The local cloud: instances are process groups of this machine, and what happens to them follows a trace, or one for
 * each pool.
 *
 * Cloud time is the trace's: `speed` of its seconds pass per second of real time. Spot instances are granted from the
 * slots of the trace (local_slots.h) and lost with them, by SIGKILL to all their processes, after a notice; on-demand
 * ones are granted always, `on_demand_start_ms` later. Never more than `limit` at a time, of both kinds together. After
 * the trace's end what there is stays. Where pools are given, each follows its own trace and has its own limit, price,
 * start-up time and notice; an instance is then billed from its grant, and where a trace falls below what is rented of
 * its pool the newest go: all as the simulator has it (sim/sim_pools.c). Each instance has a metadata endpoint
 * (metadata.h). What an instance does is deterministic given trace, seed and requests at given times: arrivals, notices
 * and losses bear the trace's times, and so does the bill, however late `next` is called.
 *
 * The command of an instance gets these variables beside the caller's:
 *   TIDEMILL_INSTANCE_ID, TIDEMILL_INSTANCE_KIND, TIDEMILL_INSTANCE_POOL (its name), TIDEMILL_INSTANCE_ZONE,
 *   TIDEMILL_INSTANCE_HOST (where to listen),
 *   TIDEMILL_METADATA (HOST:PORT), TIDEMILL_CLOUD_MARK and TIDEMILL_INSTANCE_MARK (by which leftovers are found).
 * One that exits with status 0 is released, and one less is wanted; with any other it is lost without a notice, and the
 * next of its kind waits a while (a second, doubled each time it happens again soon).
 *
 * The state folder holds the file local-cloud.tmcloud while a cloud is there: marks, pids and when they started. A
 * cloud that finds one of a program that is gone first ends what that one left. */
#ifndef TM_CLOUD_LOCAL_CLOUD_H
#define TM_CLOUD_LOCAL_CLOUD_H

#include "cloud/cloud.h"
#include "market/trace.h"

enum { TM_LOCAL_INSTANCES_MAX = 256, TM_LOCAL_HISTORY_MAX = 1 << 16 };

/* A pool to choose from. */
struct tm_local_pool {
    struct tm_cloud_pool is;
    const struct tm_trace *trace; /* begins when the first instance is asked for; NULL: there are always some */
};

struct tm_local_options {
    const struct tm_trace *trace; /* borrowed, as all of these; of a cloud without pools to choose from */
    /* Pools to choose from; 0: spot as the trace has it, and on-demand. Where there are some, the keys of one trace, of
     * a kind and of keepers that follow do not count. */
    const struct tm_local_pool *pools;
    int pool_count;
    const char *const *command;   /* ends in NULL */
    const char *const *variables; /* "NAME=VALUE", ends in NULL; NULL: none */
    const char *state_dir;
    const char *log_dir;    /* an instance's output goes to ID.log in it, which stays; NULL: to the program's */
    double speed;           /* trace seconds per second of real time; > 0 */
    int64_t notice_ms;      /* in trace time; 0: losses come without */
    int64_t notice_wall_ms; /* > 0: in wall time, instead */
    int64_t hint_ms;        /* before the notice, in trace time; 0: no hints */
    int64_t spot_start_ms;  /* from grant to arrival, in trace time */
    int64_t on_demand_start_ms;
    const char *types[TM_INSTANCE_KINDS]; /* what instances say that they are; NULL: what the trace says */
    const char *zones[TM_INSTANCE_KINDS];
    int keepers; /* so many on-demand instances are of a type of their own: the first, and those in their place */
    const char *keeper_type; /* NULL: as the others */
    const char *keeper_zone;
    double keeper_usd_h;
    double spot_usd_h; /* where the trace has no prices */
    double on_demand_usd_h;
    int limit;               /* instances at a time, those about to go aside: at most TM_LOCAL_INSTANCES_MAX */
    uint64_t id_first;       /* number of the first instance; 0: 1. A run that goes on does not use one twice */
    uint64_t seed;           /* which ones are lost */
    bool no_losses;          /* what came stays */
    bool netns;              /* each in a network namespace of its own; needs root, ip and tc */
    int64_t link_bits_per_s; /* netns: each way; 0: not shaped */
    /* Before an instance is started: what it needs; NULL: nothing. */
    int (*prepare)(void *context, uint64_t id, struct tm_error *e);
    void *context;
};

/* The caller owns the result (its `destroy`). -TM_EBUSY: another program runs a cloud in the same state folder. */
int tm_local_cloud_create(struct tm_env *env, const struct tm_local_options *options, struct tm_cloud **out,
                          struct tm_error *e);
/* How many processes and namespaces of an earlier program this one ended at its start. */
int tm_local_cloud_leftovers(const struct tm_cloud *cloud);
/* Where its instances reach this program: "127.0.0.1", or our address in the network of the namespaces. */
void tm_local_cloud_host(const struct tm_cloud *cloud, char out[TM_ADDRESS_MAX]);
/* Cuts the link of an instance, or mends it. -TM_EUSAGE without namespaces; -TM_ENOTFOUND: there is none such now. */
int tm_local_cloud_cut(struct tm_cloud *cloud, uint64_t id, bool cut, struct tm_error *e);

/* Ends what a program that is gone left in the state folder; 0 where there is nothing. A cloud does it at its start. */
int tm_local__clean_up(struct tm_env *env, const char *state_dir, int *out_count, struct tm_error *e);

#endif
