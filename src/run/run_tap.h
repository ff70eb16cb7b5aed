/* What a running coordinator shows to observers in its process (room api), and what they may ask of it. */
#ifndef TM_RUN_RUN_TAP_H
#define TM_RUN_RUN_TAP_H

#include "run/run_status.h"

typedef int (*tm_run_each_f)(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e);

struct tm_run_tap {
    void *self;
    uint64_t sequence; /* of the record's last event */
    /* As it stands now; borrowed until the next call. NULL: out of memory. */
    const struct tm_run_status *(*status)(struct tm_run_tap *tap);
    /* Events after a number, oldest first, at most `max`, until `each` returns other than 0, which is then returned. */
    int (*events)(struct tm_run_tap *tap, uint64_t after, size_t max, tm_run_each_f each, void *context,
                  struct tm_error *e);
    /* Stops the job: with a copy set of its last step, or (`now`) without waiting for one. */
    void (*stop)(struct tm_run_tap *tap, bool now);
    /* As tm_coordinator__steer. */
    int (*steer)(struct tm_run_tap *tap, const struct tm_steer_order *order, struct tm_error *e);
};

/* Served in the coordinator's loop: some ten times a second, after every event, and when one of its handles is ready.
 * It must not wait. */
struct tm_run_hook {
    void *context;
    void (*serve)(void *context, struct tm_run_tap *tap); /* NULL: none */
    /* What it waits for: appends up to `max` handles and says how many, and in how long it is to be served at the
     * latest (INT64_MAX: never). NULL: for nothing. */
    size_t (*watch)(void *context, int *handles, size_t max, int64_t *out_wait_ms);
};

struct tm_record;
/* Events of a record that is open. */
int tm_run_record__read(struct tm_record *record, uint64_t after, size_t max, tm_run_each_f each, void *context,
                        struct tm_error *e);
/* The same from a record that no coordinator has open: -TM_EBUSY where one has, -TM_ENOTFOUND where there is none. */
int tm_run_record_each(const char *path, uint64_t after, size_t max, tm_run_each_f each, void *context,
                       struct tm_error *e);
int tm_run_record__watch(const char *path, struct tm_run_watch *watch, struct tm_error *e);
/* What the record in a state folder says of its job; the caller owns what is in `out`. */
int tm_run_record_status(const char *dir, struct tm_run_status *out, struct tm_error *e);
struct tm_run_bill {
    uint64_t microusd;
    uint64_t on_demand_microusd; /* of that */
};
/* Puts down what a record that no coordinator has open does not know of these instances: that they were there, their
 * end, the rest of their bill. What has ended in the record does not come back. `bill`: of all; it may be less than
 * what was told before, because a cloud asks nothing for some. NULL: what is known of them adds up to it. */
int tm_run_record__settle(const char *path, int64_t utc_ms, Tmw__Instance *const *instances, size_t count,
                          const struct tm_run_bill *bill, struct tm_error *e);

#endif
