/* The mix: how many instances of each pool, on spot and on demand, and how many anchors, for the least money an hour.
 *
 * A pool is an instance type in a zone. What is not linear has been settled before: how much one instance of each type
 * gives, how often it is lost, what throughput is needed. What is left is an integer program,
 *
 *     minimise   sum spot price x s + on-demand price x o + anchor price x a
 *     subject to sum rate x ((1 - away) s + o) >= throughput needed        sum events x s <= loss events allowed
 *                sum s + o <= instances;  price <= price allowed;               at most 3 types
 *                network and memory of on-demand instances and anchors >= what the copies of the state need
 *                s, o, a within the quotas
 */
#ifndef TM_PLAN_MIX_H
#define TM_PLAN_MIX_H

#include "plan/milp.h"

enum { TM_MIX_TYPES_MAX = 3 };

struct tm_mix_pool {
    size_t type; /* any number; pools of one type have the same */
    double samples_per_s;
    double spot_usd_h;      /* NaN: not to be had */
    double on_demand_usd_h; /* likewise */
    double loss_events;     /* per second that a spot instance adds */
    double away;            /* share of the time that a spot instance is missing */
    double network_bit_s;   /* of an on-demand instance, as an anchor */
    double memory_gib;
};

struct tm_mix_anchor {
    double usd_h;
    double network_bit_s;
    double memory_gib;
};

enum { TM_MIX_SPOT = 1, TM_MIX_ON_DEMAND = 2 };

/* At most `limit` instances, or vCPUs, of some pools. */
struct tm_mix_quota {
    const double *pools; /* one a pool: what an instance counts; 0: it does not */
    int markets;         /* which of TM_MIX_SPOT and TM_MIX_ON_DEMAND count */
    int limit;
};

struct tm_mix {
    const struct tm_mix_pool *pools;
    size_t pool_count;
    const struct tm_mix_anchor *anchors;
    size_t anchor_count;
    const struct tm_mix_quota *quotas;
    size_t quota_count;
    double samples_per_s;        /* needed */
    double loss_events;          /* allowed; infinite: any */
    double usd_h;                /* allowed */
    int instances;               /* allowed; also the most of one pool */
    double anchor_network_bit_s; /* needed; 0: none */
    double anchor_memory_gib;
    int types; /* allowed; 0: TM_MIX_TYPES_MAX */
};

struct tm_mix_counts {
    int spot;
    int on_demand;
};

struct tm_mix_solution {
    bool feasible;
    double usd_h;
    double bound_usd_h; /* no mix costs less */
};

/* To a relative gap. `counts` has room for every pool, `anchors` for every anchor. */
int tm_mix__solve(const struct tm_mix *mix, double gap, struct tm_mix_counts *counts, int *anchors,
                  struct tm_mix_solution *out, struct tm_error *e);

/* The integer program itself; the caller destroys it. NULL: no memory. */
struct tm_milp *tm_mix__program(const struct tm_mix *mix);

#endif
