/* Hosts that one has, as a cloud: OpenSSH's client, with the user's own configuration, starts an agent in each slot
 * that is wanted, brings the program along, and watches it. Nothing is asked for on the way: keys that are not known or
 * do not fit are an unreachable host.
 *
 * A host is used when it answers. One that does not, that reboots, whose link is cut or whose agent ends badly is a
 * loss, and is tried again after ever longer waits (1 s to a minute). Before an agent is started in a slot, what an
 * earlier one left there is ended, so there are never two. An agent is in a session of its own, so its life does not
 * hang on the connection; where that is lost the instance counts as lost.
 *
 * A driver that comes after a killed one looks into all slots first. An agent that runs there since before, of the same
 * program, stays: it is the next instance, finds the new ticket in its file, and joins again. What is there beyond what
 * is wanted is ended, once that is known.
 *
 * On the host everything lies under ~/.cache/tidemill: the program by its SHA-256, and a folder for each slot that is
 * removed when it ends. The ticket goes over standard input: it is in no command line.
 *
 * All instances are of pool TM_CLOUD_SPOT; of the other, none is granted. Time is real and begins with the cloud. */
#ifndef TM_CLOUD_HOSTS_CLOUD_H
#define TM_CLOUD_HOSTS_CLOUD_H

#include "cloud/cloud.h"
#include "cloud/host_list.h"

enum { TM_HOSTS_INSTANCES_MAX = 256, TM_HOSTS_TICKET_MAX = 512 };

/* All is borrowed as long as the cloud is there. */
struct tm_hosts_options {
    const struct tm_host *hosts;
    size_t host_count;
    int limit;             /* instances at a time; 0: all slots */
    const char *ssh;       /* NULL: "ssh" */
    const char *program;   /* path of what is brought along and started, with `arguments` */
    const char *arguments; /* words for a shell; the ticket is in $TIDEMILL_SLOT/ticket, and may change */
    const char *state_dir; /* for files that ssh reads from, and its control sockets */
    const char *mark;      /* "NAME=VALUE" for all that is started on this machine; NULL: none */
    const char *name;      /* of the job, among all that use these hosts: letters, digits, - */
    bool resumed;          /* an earlier program may have left agents: they are taken over, or ended */
    uint64_t id_first;     /* number of the first instance; 0: 1 */
    double price_usd_h;
    /* What the instance's agent needs, as one word; `host`: where that host reaches this machine. */
    int (*ticket)(void *context, uint64_t id, const char *host, char out[TM_HOSTS_TICKET_MAX], struct tm_error *e);
    bool (*has_joined)(void *context, uint64_t id); /* then it has arrived; NULL: once its agent runs */
    void *context;
};

/* The caller owns the result (its `destroy`, which waits some seconds for hosts to answer). */
int tm_hosts_cloud_create(struct tm_env *env, const struct tm_hosts_options *options, struct tm_cloud **out,
                          struct tm_error *e);

#endif
