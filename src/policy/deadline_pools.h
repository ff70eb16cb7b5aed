/* Which pools one gang with a deadline is rented from. When to be on spot at all is the business of deadline.h: here it
 * is said where, and whether spot can be had as far as the way to choose goes.
 *
 * A gang is whole: all its instances are of one group of pools (one region and type). It is lost where one of its pools
 * no longer has its share. Going elsewhere is a launch like any other. */
#ifndef TM_POLICY_DEADLINE_POOLS_H
#define TM_POLICY_DEADLINE_POOLS_H

#include "policy/deadline.h"

enum tm_gang_choice {
    TM_GANG_FAILOVER, /* one pool; after a preemption the next by price */
    TM_GANG_SPREAD,   /* evenly over the pools of a group that are not short */
    TM_GANG_OURS,     /* the least expected cost of an hour of work */
    TM_GANG_BOUND     /* as the plan of view.plan says; its places are groups */
};

struct tm_gang_way {
    const char *name;
    const char *summary;
    enum tm_gang_choice choice;
    bool alone; /* the best pool alone, known afterwards */
    struct tm_deadline_decision (*decide)(const struct tm_deadline_view *view); /* NULL: as `policy` does */
    const char *policy;                                                         /* of deadline.h */
};

extern const struct tm_gang_way tm_gang_ways[]; /* ends with name NULL */
const struct tm_gang_way *tm_gang_way_find(const char *name);
/* Which says when to be on spot, on demand, or on nothing. */
struct tm_deadline_policy tm_gang_way_policy(const struct tm_gang_way *way);

/* A pool as it is now. */
struct tm_gang_pool_now {
    int group;                      /* from 0 on */
    int capacity;                   /* ours included */
    double usd_h;                   /* of one instance */
    bool is_short;                  /* it broke the gang the last time that it was in it */
    const struct tm_spells *spells; /* how it had room for the gang, or all it ever has, and had not */
};

struct tm_gang_pools_now {
    const struct tm_deadline_view *job;
    const struct tm_gang_pool_now *pools;
    int count; /* at most TM_GANG_PLACES_MAX */
    int gang;
    const int *shares; /* of the gang that is on spot; all 0: there is none */
    int last;          /* the pool that it was in last, or is; -1: none yet */
};

/* Fills the share of each pool in the gang as it should be on spot: those of now, where it should stay. False: there is
 * no spot that it would take. */
bool tm_gang_choose(enum tm_gang_choice choice, const struct tm_gang_pools_now *now, int shares[TM_GANG_PLACES_MAX]);

#endif
