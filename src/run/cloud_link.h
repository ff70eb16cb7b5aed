/* The cloud's side of its talk with the coordinator, as a state machine: it joins as an agent does, says what there is,
 * and hears what is wanted. The program around it asks the cloud and carries out the orders (tm_cloud of room cloud).
 *
 *     if (tm_cloud_link_due(link, now_ms)) { fill a report; tm_cloud_link_report(link, now_ms, &report, out); }
 *     if (tm_cloud_link_receive(link, now_ms, message, out)) carry out link->order;
 *
 * An order names a state, and is given again and again: carry out what differs from it. With no word from the
 * coordinator the last one stands. Nothing is wanted before the first. */
#ifndef TM_RUN_CLOUD_LINK_H
#define TM_RUN_CLOUD_LINK_H

#include "wire/outbox.h"

enum { TM_CLOUD_RELEASES_MAX = 256, TM_CLOUD_PEER_ID = 1, TM_ORDER_POOLS_MAX = 64 };

struct tm_cloud_order {
    bool given; /* there was one */
    uint32_t want_spot;
    uint32_t want_on_demand;
    uint32_t want[TM_ORDER_POOLS_MAX]; /* by pool; of a job without a choice of them: spot, on-demand */
    size_t pool_count;
    uint64_t release[TM_CLOUD_RELEASES_MAX]; /* those that do not fit come with a later order */
    size_t release_count;
    enum tm_job_state job_state;
    bool stop;
};

struct tm_cloud_link_options {
    uint64_t job;
    uint64_t incarnation;
    const char *token; /* borrowed */
    int64_t report_ms; /* how often, without a change; 0: 250 */
};

struct tm_cloud_link {
    struct tm_cloud_link_options options;
    struct tm_peer self;
    struct tm_peer coordinator;
    bool registered;
    bool refused; /* wrong token: nothing will come of it */
    bool changed;
    uint64_t nonce;
    int64_t said_ms; /* hello or report, last sent; -1: never */
    uint64_t sequence;
    uint64_t acked;
    struct tm_cloud_order order;
};

/* The caller owns the struct; there is nothing to free. */
void tm_cloud_link_init(struct tm_cloud_link *link, const struct tm_cloud_link_options *options);
/* Something happened: the next report is due at once. */
void tm_cloud_link__changed(struct tm_cloud_link *link);
/* Says hello where it must. Is it time for a report? */
bool tm_cloud_link_due(struct tm_cloud_link *link, int64_t now_ms, struct tm_outbox *out);
/* Sends the report; its sequence is set here. */
void tm_cloud_link_report(struct tm_cloud_link *link, int64_t now_ms, Tmw__CloudReport *report, struct tm_outbox *out);
/* True: link->order is newer than before. */
bool tm_cloud_link_receive(struct tm_cloud_link *link, int64_t now_ms, const tm_message *message,
                           struct tm_outbox *out);

#endif
