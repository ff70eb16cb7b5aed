/* Whoever dials in, as a cloud: machines that come by themselves, with a ticket, are its instances. Nothing is rented:
 * what is wanted is how many are welcome, and who comes beyond that waits outside. One that is released is told to go;
 * one that says good-bye after a notice, or is silent for too long, is a loss.
 *
 * Who is there the caller knows (run/office.h): it numbers guests in the order in which they are let in, from
 * `id_first` on. All instances are of pool TM_CLOUD_SPOT; of the other, none is granted. Time is real and begins with
 * the cloud. */
#ifndef TM_CLOUD_JOIN_CLOUD_H
#define TM_CLOUD_JOIN_CLOUD_H

#include "cloud/cloud.h"

enum { TM_JOIN_INSTANCES_MAX = 256 };

enum tm_guest_state {
    TM_GUEST_HERE,
    TM_GUEST_LEFT, /* in order, with a status */
    TM_GUEST_LOST, /* without a word */
};

struct tm_guest {
    uint64_t id;
    enum tm_guest_state state;
    char name[64]; /* of the machine, for people */
    bool noticed;  /* it has been told that it must go, in so long: */
    int64_t notice_left_ms;
    int status; /* TM_GUEST_LEFT: exit status of its agent */
};

/* All is borrowed as long as the cloud is there. */
struct tm_join_options {
    int limit;         /* instances at a time, at most TM_JOIN_INSTANCES_MAX */
    uint64_t id_first; /* number of the first guest; 0: 1 */
    double price_usd_h;
    /* So many may be here at a time, those about to go aside; the next one gets this number, if none has come so far.
     */
    void (*welcome)(void *context, int count, uint64_t id_first);
    /* All that are here, and, once, those that are not any more: how many. */
    size_t (*guests)(void *context, struct tm_guest *out, size_t max);
    void (*dismiss)(void *context, uint64_t id); /* tells one to go */
    void *context;
};

/* The caller owns the result (its `destroy`, which waits some seconds for guests to go). */
int tm_join_cloud_create(struct tm_env *env, const struct tm_join_options *options, struct tm_cloud **out,
                         struct tm_error *e);

#endif
