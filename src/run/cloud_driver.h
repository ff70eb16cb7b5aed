/* The cloud driver: rents and releases instances as the coordinator orders, and reports continuously what there is
 * (cloud_link.h). It outlives the coordinator: without new orders the last one holds.
 *
 *     while (...) {
 *         rc = tm_cloud_driver__step(driver, 100, e);      waits for something to happen, and deals with it
 *         while (tm_cloud_driver__event(driver, &event)) ...     what the cloud did, for the display
 *     }
 *
 * Its account is in the state folder, so that a resumed run continues with its bill, its instance numbers and its place
 * in the trace. */
#ifndef TM_RUN_CLOUD_DRIVER_H
#define TM_RUN_CLOUD_DRIVER_H

#include "cloud/cloud.h"
#include "run/cloud_link.h"

enum { TM_DRIVER_EVENTS_MAX = 1024, TM_ACCOUNT_INSTANCES_MAX = 1024 };

/* One that was there when the account was written, or has ended not long before. */
struct tm_account_instance {
    uint64_t id;
    int64_t start_ms;
    int64_t end_ms;         /* 0: it was there */
    int64_t paid_before_ms; /* it came, while it was starting */
    int pool;
    bool spot;
    bool announced;
    bool released; /* not a loss */
    double price_usd_h;
    double bill_usd;
};

/* What a run has used of its cloud so far: cloud/account of the state folder. */
struct tm_cloud_account {
    int64_t time_ms;   /* of the cloud, where it stands */
    uint64_t instance; /* highest number that was used */
    struct tm_cloud_bill bill;
    double own_usd; /* of VMs that ran the coordinator and this program; nothing else knows of them */
    /* All that were there, and as many of those that had ended as there is room for, the newest first. Of an earlier
     * program, all are gone, as the coordinator must hear, or it would wait for them: its record may end before the
     * program did. */
    struct tm_account_instance list[TM_ACCOUNT_INSTANCES_MAX];
    size_t count;
};
/* All 0 where there is none yet. -TM_EINPUT: the file is not one. */
int tm_cloud_account_read(struct tm_env *env, const char *dir, struct tm_cloud_account *out, struct tm_error *e);

struct tm_cloud_driver_options {
    struct tm_cloud *cloud; /* borrowed; its time and bill begin at 0 */
    const char *dir;        /* state folder, borrowed as all texts */
    const char *token;
    const char *tls_folder; /* NULL: none, loopback only */
    uint64_t job;
    double speed;         /* the cloud's seconds per second of real time */
    double own_usd_h;     /* what the VM costs that this runs on, if it was rented for the run; else 0 */
    int64_t own_since_ms; /* UTC: it was rented then */
    struct tm_cloud_account before;
};

struct tm_cloud_driver;

int tm_cloud_driver__create(struct tm_env *env, const struct tm_cloud_driver_options *options,
                            struct tm_cloud_driver **out, struct tm_error *e);
void tm_cloud_driver__destroy(struct tm_cloud_driver *driver); /* NULL is allowed; the account is written */

/* The run is over, and its coordinator has ended: gives back whatever is still there, and puts the end and the bill of
 * every instance into the account and into the record, if there is one; where that fails, it warns. An error is the
 * first instance that could not be given back; the rest is done. */
int tm_cloud_driver__close(struct tm_cloud_driver *driver, struct tm_error *e);

/* Waits up to timeout_ms for the cloud, the coordinator or one of `handles`, and deals with all that is there. An error
 * is the cloud's: it cannot go on. */
int tm_cloud_driver__step(struct tm_cloud_driver *driver, int64_t timeout_ms, const int *handles, size_t handle_count,
                          struct tm_error *e);
/* The next event since the last call; false: none. Where nobody takes them, the oldest are dropped. */
bool tm_cloud_driver__event(struct tm_cloud_driver *driver, struct tm_cloud_event *out);
/* The coordinator's last word. */
const struct tm_cloud_order *tm_cloud_driver__order(const struct tm_cloud_driver *driver);
/* The coordinator is known to be there and has answered. */
bool tm_cloud_driver__connected(const struct tm_cloud_driver *driver);
/* A coordinator was restarted: say hello at once. */
void tm_cloud_driver__greet(struct tm_cloud_driver *driver);
/* With what was before. */
struct tm_cloud_account tm_cloud_driver__account(struct tm_cloud_driver *driver);

#endif
