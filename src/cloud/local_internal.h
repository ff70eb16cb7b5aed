/* The insides of the local cloud. */
#ifndef TM_CLOUD_LOCAL_INTERNAL_H
#define TM_CLOUD_LOCAL_INTERNAL_H

#include "cloud/local_cloud.h"
#include "cloud/local_slots.h"
#include "cloud/metadata_server.h"

#define TM_LOCAL_NEVER INT64_MAX

enum { TM_LOCAL_RUN_TEXT = 24, TM_LOCAL_NAME_MAX = 32 };

/* Where an instance runs. There are `limit` of them, so never more instances than fit. Due times are the trace's. */
struct tm_local__place {
    uint64_t id; /* of the instance; 0: free */
    int pool;
    bool has_slot;
    bool keeper; /* one of options.keepers */
    size_t slot;
    int64_t arrive_ms;
    int64_t hint_ms;
    int64_t notice_ms;
    int64_t loss_ms;
    int64_t billed_ms; /* up to then */
    int64_t pid_start;
    int handle; /* ready when its leader has ended; -1: none */
    int endpoint;
    bool in_netns;
    struct tm_metadata known;
};

struct tm_local__pool {
    const struct tm_trace *trace; /* NULL: there are always some */
    struct tm_local_slots slots;
    bool *slot_taken;  /* by slot */
    size_t slot_first; /* those before have gone */
    size_t slot_next;  /* those from here on have not come */
    size_t price_next; /* of the trace's events */
    double price_usd_h;
    int want;
    int refused;  /* that was told */
    int failures; /* in a row, soon after arrival */
    int64_t retry_ms;
};

struct tm_local__cloud {
    struct tm_cloud cloud; /* first */
    struct tm_env *env;
    struct tm_local_options options;
    char run[TM_LOCAL_RUN_TEXT]; /* names this cloud among all there were */
    char record_path[1024];
    int64_t self_start;
    bool choices;                                    /* pools were given */
    struct tm_cloud_pool is[TM_CLOUD_POOLS_MAX];     /* what the pools are ... */
    struct tm_local__pool pools[TM_CLOUD_POOLS_MAX]; /* ... and how they stand */
    int pool_count;
    bool asked;       /* for an instance: the trace begins then ... */
    int64_t start_ns; /* ... at this time */
    int64_t done_ms;  /* everything up to here has happened */
    int64_t grant_ms; /* requests are looked at then, whatever else happens */
    bool record_due;
    bool netns_up;
    int leftovers;
    struct tm_local__place places[TM_LOCAL_INSTANCES_MAX];
    struct tm_cloud_instance *instances; /* by id - 1 */
    size_t instance_count;
    size_t instance_capacity;
    struct tm_cloud_event *events; /* from event_first on */
    size_t event_first;
    size_t event_count;
    size_t event_capacity;
    struct tm_cloud_bill bill;
    struct tm_metadata_server *server;
};

int64_t tm_local__now_ms(const struct tm_local__cloud *local);
/* What an instance of a pool is called. */
const char *tm_local__type(const struct tm_local__cloud *local, int pool, bool keeper);
const char *tm_local__zone(const struct tm_local__cloud *local, int pool, bool keeper);
struct tm_cloud_instance *tm_local__instance(struct tm_local__cloud *local, const struct tm_local__place *place);
int tm_local__tell(struct tm_local__cloud *local, struct tm_cloud_event event, struct tm_error *e);

/* local_grant.c */
int tm_local__grant_all(struct tm_local__cloud *local, int64_t time_ms, struct tm_error *e);
/* Free slots of a pool that instances would be granted from now. */
int tm_local__free_slots(const struct tm_local__cloud *local, int pool, int64_t time_ms);
/* A slot is free again. Where the newest go, the instance that would go first gets it. */
void tm_local__free_slot(struct tm_local__cloud *local, const struct tm_local__place *place);

/* local_timeline.c: makes everything happen that is due, in order. */
int tm_local__advance(struct tm_local__cloud *local, struct tm_error *e);
int64_t tm_local__next_ms(const struct tm_local__cloud *local); /* when the next is due; TM_LOCAL_NEVER */
/* Bills the place up to a time. */
void tm_local__settle(struct tm_local__cloud *local, struct tm_local__place *place, int64_t time_ms);
/* The instance of a place is gone, and the place free. */
int tm_local__end(struct tm_local__cloud *local, struct tm_local__place *place, enum tm_instance_state state,
                  int64_t time_ms, int status, struct tm_error *e);

/* local_process.c */
int tm_local__start_process(struct tm_local__cloud *local, struct tm_local__place *place, struct tm_error *e);
/* Ends and forgets all processes of a place; its exit status, or -1 where we ended it. */
int tm_local__stop_process(struct tm_local__cloud *local, struct tm_local__place *place, bool by_itself,
                           int *out_status, struct tm_error *e);

/* local_record.c */
int tm_local__write_record(struct tm_local__cloud *local, struct tm_error *e);
void tm_local__record_path(const char *state_dir, char *out, size_t size);

/* local_netns.c: names are made from the run and the place. */
int tm_local__netns_open(struct tm_local__cloud *local, struct tm_error *e);
int tm_local__netns_add(struct tm_local__cloud *local, struct tm_local__place *place, struct tm_error *e);
int tm_local__netns_cut(struct tm_local__cloud *local, struct tm_local__place *place, bool cut, struct tm_error *e);
void tm_local__netns_remove(struct tm_local__cloud *local, struct tm_local__place *place);
void tm_local__netns_name(const char *run, size_t place, char out[TM_LOCAL_NAME_MAX]);
void tm_local__netns_gateway(const char *run, char out[TM_LOCAL_NAME_MAX]); /* our address in their network */
int tm_local__netns_clean_up(struct tm_env *env, const char *run);          /* how many there were */

#endif
