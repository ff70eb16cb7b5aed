/* What is learned of pools, and how policies choose among them. Shared by pools_*.c and what asks them. */
#ifndef TM_POLICY_POOLS_INTERNAL_H
#define TM_POLICY_POOLS_INTERNAL_H

#include "policy/facts.h"
#include "policy/policy.h"

/* A pool that has just given or taken instances takes some again sooner than one that has not for hours: losses are
 * counted by how long it has been calm. */
enum { TM_POOLS_AGES = 4 };

/* Of one pool. */
struct tm_learned_pool {
    double losses[TM_POOLS_AGES];     /* instances that it took back, ours or others' ... */
    double instance_s[TM_POOLS_AGES]; /* ... in so many instance-seconds */
    double drops;                     /* how often it took some */
    double dropped_s;                 /* when it last did; -INFINITY: never */
    double calm_s;                    /* since when it has taken none, and had some */
    int capacity;                     /* as last seen: ours and those on offer */
    int here;                         /* of them, those that had arrived */
    bool is_short;                    /* it took or refused some, and none has arrived since */
    int ours;                         /* here, on their way or with a notice, as last seen ... */
    bool gives;                       /* ... and it gave some since it last refused any */
};

/* Of the pools that can train together, as one: the throughput that all their capacity would give, so that what they
 * lose together shows in it. */
struct tm_learned_group {
    bool begun;
    double sampled_s; /* when it was last looked at */
    double last;      /* and what it was */
    double weight;    /* of the sums that follow: samples, the old ones fading */
    double sum;
    double squares;
    double products; /* of each sample with the one before */
};

struct tm_learned_pools {
    double now_s;
    bool begun;
    struct tm_learned_pool pools[TM_POOLS_MAX];
    struct tm_learned_group groups[TM_POOLS_MAX];
    float together[TM_POOLS_MAX][TM_POOLS_MAX]; /* how often both took some within a quarter of an hour */
    int current;                                /* failover: the pool that the job is in; -1: none */
};

/* Until the first observation nothing is known. */
void tm_learned_pools__init(struct tm_learned_pools *learned);
/* The spot capacity of each group comes back; what it would give is then to be sampled. -1: of some pool of it nothing
 * is known yet, neither what it offers nor by an instance that was asked for. */
void tm_learned_pools__observe(struct tm_learned_pools *learned, double now_s, const struct tm_pool *pools, int count,
                               int capacities[TM_POOLS_MAX]);
void tm_learned_pools__sample(struct tm_learned_pools *learned, int group, double rate);
/* One over the seconds that an instance of the pool is expected to live from now on: by how long the pool has been
 * calm, from its own figures, those of all pools and what is usual. */
double tm_learned_pools__lost_per_s(const struct tm_learned_pools *learned, int pool);
/* How many instances it takes when it takes some, ours or others'; one, until it is known. */
double tm_learned_pools__at_once(const struct tm_learned_pools *learned, int pool);
/* How likely `other` takes instances when `pool` does. */
double tm_learned_pools__together(const struct tm_learned_pools *learned, int pool, int other);
/* The throughput of a group that is expected after so many samples, from what it is now. */
double tm_learned_pools__expected(const struct tm_learned_pools *learned, int group, double now, int samples);
enum { TM_POOLS_SAMPLE_S = 600 };

struct tm_policy;

/* Fills want and group of the decision, and why where it moves. `on_demand` are the on-demand instances that the
 * deadline needs. */
void tm_policy__choose_pools(struct tm_policy *policy, const struct tm_facts *facts, int on_demand,
                             struct tm_decision *out);
/* Of instances in the order in which they would be rented (`order`: the pool of each), how many are worth their money:
 * all that one pool has, and more as long as a sample of them costs little more than one of those; all, where none has
 * a price. */
int tm_pools__worthwhile(const struct tm_policy *policy, const struct tm_facts *facts, const short *order, int count,
                         int alone);
/* Dollars a sample with so many instances, at most, over those with `alone` of them. */
double tm_pools__most_usd(const struct tm_facts *facts, int count, int alone);
/* Anchors are wanted in every region where instances are wanted or train. */
void tm_pools__want_keepers(const struct tm_facts *facts, struct tm_decision *out);
/* Are anchors of a group's regions still on their way? */
bool tm_pools__keepers_come(const struct tm_facts *facts, int group);
/* Parts of it. */
void tm_policy__choose_ours(struct tm_policy *policy, const struct tm_facts *facts, int on_demand,
                            struct tm_decision *out);

/* Workers of an instance: what pools are rented in. */
static inline int tm_pools__each(const struct tm_facts *facts)
{
    return facts->limits.workers_each > 1 ? facts->limits.workers_each : 1;
}
/* What a pool has now: ours, and those on offer; what is not known counts as all that the job could want and may have,
 * unless a request was just refused. */
int tm_pool__capacity(const struct tm_pool *pool, int most);
/* The speed of a group's instances, counts[pool] of each: their mean. */
double tm_pools__speed(const struct tm_pool *pools, int count, int group, const int *counts);
/* How many regions the instances of a group are in, counts[pool] of each. */
int tm_pools__regions(const struct tm_pool *pools, int count, int group, const int *counts);
/* Samples per second of the fastest layout on so many instances of a speed, between whole numbers too. */
double tm_policy__rate(const struct tm_policy *policy, double instances, double speed, int workers_min);

#endif
