/* What links between machines really give: latency, and how much goes one way, both ways, in several streams, and when
 * all talk at once.
 *
 * Every machine but the one that asks runs a server (tm_probe_serve); the one that asks measures its own links and
 * orders the servers to measure theirs. Pairs that share no machine are measured at the same time, in the rounds of a
 * tournament, so that n machines take n rounds. At the end all send to their neighbour in a ring at once, as an
 * all-reduce does. What arrived counts, by the receiver's clock, without the first fifth of the time.
 *
 * Without a `struct tm_tls` only loopback addresses are served and probed; with one, both sides show a certificate of
 * the job.
 *
 * The protocol: frames of 24 bytes, little-endian: "TMP1", kind (4), a (8), b (8).
 *
 *     ECHO a            a bytes follow; answered by ACK
 *     SINK a            DATA frames (a bytes follow each) until END; answered by RESULT: a bytes in b ns, counted from
 * a ms behind the first SOURCE a          the server sends DATA frames for a ms, then END PAIR a, b         an address
 * of a bytes follows: measure that link, b ms each; answered by RESULT a, behind it a doubles FLOOD a, b likewise: send
 * to it for b ms; answered by RESULT 1 and bits a second FAILED a          instead of a RESULT: a text of a bytes says
 * why */
#ifndef TM_WIRE_PROBE_H
#define TM_WIRE_PROBE_H

#include "base/env.h"

#include <stdatomic.h>

struct tm_tls;

enum {
    TM_PROBE_PEERS_MAX = 32,
    TM_PROBE_LINKS_MAX = (TM_PROBE_PEERS_MAX + 1) * TM_PROBE_PEERS_MAX,
    TM_PROBE_SIZES = 6,
    TM_PROBE_STREAMS_MAX = 16,
    TM_PROBE_CONNECTIONS_MAX = 256,
};

extern const size_t tm_probe_sizes[TM_PROBE_SIZES]; /* bytes of the messages that are timed */

/* Listens and answers until *stop is set. `bound` is called once with the address that is served. */
struct tm_probe_server {
    const char *address; /* port 0 picks one */
    struct tm_tls *tls;
    void (*bound)(void *context, const char *address);
    void *context;
    const atomic_bool *stop;
};
int tm_probe_serve(struct tm_env *env, const struct tm_probe_server *server, struct tm_error *e);

/* One way of a link. Rates in bits a second; NaN: not measured. */
struct tm_probe_link {
    int from; /* index of a peer; -1: here */
    int to;
    double latency_ms; /* half of a round trip, median */
    double rate;       /* one stream, nobody else */
    double both;       /* while the other way sends, too */
    double streams;    /* all streams together */
    double together;   /* while all machines send to their neighbours */
};

struct tm_probe_request {
    const char *const *peers; /* addresses of servers, as all of them can reach them */
    size_t peer_count;
    struct tm_tls *tls;
    int64_t duration_ms; /* of each test */
    int streams;
    /* Told what is measured now, and which part of it all is done; NULL: nobody is. */
    void (*progress)(void *context, const char *what, double share);
    void *context;
};

struct tm_probe_report {
    struct tm_probe_link links[TM_PROBE_LINKS_MAX];
    size_t link_count;
    double size_ms[TM_PROBE_PEERS_MAX][TM_PROBE_SIZES]; /* to each peer: a message and its acknowledgement, median */
};

int tm_probe_run(struct tm_env *env, const struct tm_probe_request *request, struct tm_probe_report *out,
                 struct tm_error *e);

#endif
