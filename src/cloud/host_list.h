/* Lists of hosts, one a line, as Open MPI and DeepSpeed write them:
 *
 *     [user@]host[:port] [slots=N | gpus=N] [max_slots=N]      # a comment
 *
 * Of Hydra's form, host:SLOTS, a number is taken for slots where it is below 1024 and neither 22, 222 nor 443, and
 * neither slots nor gpus are said; else it is ssh's port.
 *
 * A slot is one instance; of gpus, each has one GPU of its own. More than max_slots may not be said. The host is
 * whatever `ssh HOST` understands: a name of the user's own configuration, too. An IPv6 address with a port is
 * [ADDRESS]:PORT. */
#ifndef TM_CLOUD_HOST_LIST_H
#define TM_CLOUD_HOST_LIST_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { TM_HOSTS_MAX = 256, TM_HOST_SLOTS_MAX = 64, TM_HOST_NAME_MAX = 256 };

struct tm_host {
    char name[TM_HOST_NAME_MAX]; /* [user@]host */
    char port[6];                /* "": what ssh takes */
    int slots;
    bool gpus; /* a slot is a GPU */
};

/* One line; *out_empty: there is no host in it. `where` is for messages ("hosts:3"). */
int tm_host__parse(const char *where, const char *line, size_t length, struct tm_host *out, bool *out_empty,
                   struct tm_error *e);
/* All lines of a text, into room for TM_HOSTS_MAX. The same host again has the slots of both lines, where both or none
 * are GPUs; else, and with no host at all, it is -TM_EINPUT. */
int tm_hosts_parse(const char *file, const char *text, size_t length, struct tm_host *out, size_t *out_count,
                   struct tm_error *e);

#endif
