/* A cloud: renting, releasing, what there is, what it costs, and what happens. One struct of functions that the local
 * cloud implements, and those of AWS, GCP and Azure will.
 *
 * A cloud is opened with its pools, and they go by number from then on. A job without a choice of pools has two:
 * TM_CLOUD_SPOT and TM_CLOUD_ON_DEMAND.
 *
 * Renting is saying how many of a pool are wanted: the cloud grants what it can now and the rest when it can, and what
 * is lost is asked for again, as the clouds' own fleets do. What it cannot grant is told (TM_CLOUD_REFUSED), and stays
 * wanted. Everything happens inside `next`: call it all the time, or wait for the handles of `watch` among others and
 * then call it with no timeout. */
#ifndef TM_CLOUD_CLOUD_H
#define TM_CLOUD_CLOUD_H

#include "base/env.h"

enum tm_instance_kind { TM_INSTANCE_SPOT, TM_INSTANCE_ON_DEMAND, TM_INSTANCE_KINDS };

enum { TM_CLOUD_POOLS_MAX = 64, TM_CLOUD_SPOT = 0, TM_CLOUD_ON_DEMAND = 1 };

/* What a cloud is told of a pool when it is opened. */
struct tm_cloud_pool {
    char name[96]; /* as people read it */
    char type[64]; /* instance type; "": the cloud's own */
    char zone[64]; /* "", or as the cloud calls it */
    enum tm_instance_kind kind;
    int limit;          /* instances at a time, those about to go aside; 0: none of its own */
    double price_usd_h; /* where the cloud does not say; NaN: not known */
    int64_t start_ms;   /* from grant to arrival, in the cloud's time, where the cloud is ours to time */
    int64_t notice_ms;  /* likewise; 0: losses come without */
};

enum tm_instance_state {
    TM_INSTANCE_STARTING, /* granted, not there yet, not billed */
    TM_INSTANCE_RUNNING,
    TM_INSTANCE_NOTICED, /* runs, and will be taken back */
    TM_INSTANCE_LOST,
    TM_INSTANCE_RELEASED, /* given back, or shut itself down in order */
};

/* Times are the cloud's (now_ms); -1: not so far. */
struct tm_cloud_instance {
    uint64_t id; /* in the order of grants, one by one; never used again */
    int pool;
    enum tm_instance_kind kind; /* of its pool */
    enum tm_instance_state state;
    char zone[64];
    char type[64];
    char metadata[TM_ADDRESS_MAX]; /* address of its metadata endpoint */
    char host[64];                 /* where it is reached, and should listen */
    double price_usd_h;            /* now, or last */
    double bill_usd;               /* so far */
    int64_t asked_ms;
    int64_t arrived_ms;
    int64_t noticed_ms;
    int64_t gone_ms;
    bool ungranted; /* asked for, and the cloud gave none: it never was */
    bool recalled;  /* an earlier program asked for it: how long it took to come is not known */
    int pid;        /* local: of its process group's leader; 0: none */
};

enum tm_cloud_event_kind {
    TM_CLOUD_ARRIVED,
    TM_CLOUD_HINT,   /* it may be taken back soon (AWS: rebalance recommendation) */
    TM_CLOUD_NOTICE, /* it will be, in left_ms */
    TM_CLOUD_LOST,
    TM_CLOUD_RELEASED,
    TM_CLOUD_REFUSED, /* of what is wanted of a pool, there is no capacity for some */
};

struct tm_cloud_event {
    enum tm_cloud_event_kind kind;
    uint64_t instance; /* 0: TM_CLOUD_REFUSED */
    int pool;          /* of the instance, too */
    int count;         /* TM_CLOUD_REFUSED: how many are missing now; 0: none any more */
    int64_t time_ms;   /* the cloud's */
    int64_t left_ms;   /* TM_CLOUD_NOTICE: until the loss, in real time */
    bool announced;    /* TM_CLOUD_LOST: there was a notice */
    char why[200];     /* TM_CLOUD_REFUSED, TM_CLOUD_HINT: in the cloud's words; "": it does not say */
    int status;        /* TM_CLOUD_LOST, TM_CLOUD_RELEASED: exit status of what ended by itself; -1: it was ended */
};

/* By pool. */
struct tm_cloud_bill {
    double usd[TM_CLOUD_POOLS_MAX];
    double seconds[TM_CLOUD_POOLS_MAX]; /* instance-seconds */
};

struct tm_cloud {
    void *self;
    bool bills_start;  /* instances are billed from their grant on; else from their arrival */
    bool learns_start; /* how long one takes to come is the cloud's to say: it is measured, and remembered */
    /* What it was opened with: borrowed as long as it is there. */
    const struct tm_cloud_pool *(*pools)(struct tm_cloud *cloud, int *out_count);
    /* How many of a pool are wanted from now on. Fewer than there are: no more are granted; see release. -TM_EUSAGE:
     * there is no such pool. */
    int (*want)(struct tm_cloud *cloud, int pool, int count, struct tm_error *e);
    /* Gives one back at once, and wants one less of its pool. -TM_ENOTFOUND where there is none such now. */
    int (*release)(struct tm_cloud *cloud, uint64_t id, struct tm_error *e);
    /* All there are and were, by id: borrowed until the next call. */
    const struct tm_cloud_instance *(*instances)(struct tm_cloud *cloud, size_t *out_count);
    /* The next event; waits for it up to timeout_ms (0: does not wait), then -TM_ETIMEOUT. */
    int (*next)(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e);
    /* What to wait for beside others: appends up to `max` handles and says how many; call `next` when one is ready or
     * *out_wait_ms (INT64_MAX: never) is over. */
    size_t (*watch)(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms);
    double (*price_usd_h)(struct tm_cloud *cloud, int pool); /* now; NaN: not known */
    int (*offered)(struct tm_cloud *cloud, int pool);        /* how many more it would give now; NULL, -1: not known */
    int64_t (*now_ms)(struct tm_cloud *cloud);               /* the time that is billed */
    struct tm_cloud_bill (*bill)(struct tm_cloud *cloud);    /* up to now */
    /* Everything was given back: may the bill still change, with what `next` brings? NULL: it does not. */
    bool (*owes)(struct tm_cloud *cloud);
    /* How many were found so far that an earlier program left, or that nobody here asked for: they are ended. NULL:
     * such are not looked for. */
    int (*strays)(struct tm_cloud *cloud);
    /* Gives everything back and frees the cloud. An error says what was left behind. */
    int (*destroy)(struct tm_cloud *cloud, struct tm_error *e);
};

const char *tm_instance_kind__name(enum tm_instance_kind kind);                     /* "spot", "on-demand" */
const char *tm_instance_state_name(enum tm_instance_state state);                   /* "starting", ... */
const char *tm_cloud_event_kind_name(enum tm_cloud_event_kind kind);                /* "arrived", ... */
bool tm_instance_is_here(const struct tm_cloud_instance *instance);                 /* running or noticed */
const struct tm_cloud_instance *tm_cloud_find(struct tm_cloud *cloud, uint64_t id); /* NULL: none */
/* How long instances of a pool were waited for, on average: the last `most` that came, and those that wait for longer
 * than that already. -1: none was. */
int64_t tm_cloud_wait_ms(struct tm_cloud *cloud, int pool, int most);
/* The two pools of a job without a choice: named "spot" and "on-demand", the rest for the caller to fill in. */
void tm_cloud_pools__plain(struct tm_cloud_pool out[2]);

#endif
