/* Connections of one process to its peers: framed messages over TCP, best effort.
 *
 * A message that cannot be sent now (no connection, queue full) is dropped: the state machines repeat everything until
 * it is answered, so links need limits, but no guarantees.
 *
 * Both ends of a connection prove that they know the job's token before anything else (link_proof.h): until then no
 * message is read or sent, few bytes are kept, and not for long. After it, a connection belongs to the peer that its
 * messages name; the newest connection of a peer is the one used.
 *
 * With a `struct tm_tls` every connection is TLS 1.3 with certificates of the job on both sides. Without one, only
 * loopback addresses may be listened on or connected to. */
#ifndef TM_WIRE_PEER_LINKS_H
#define TM_WIRE_PEER_LINKS_H

#include "base/address.h"
#include "base/env.h"
#include "wire/message.h"

struct tm_links;
struct tm_tls;

enum {
    TM_LINKS_MAX = 4096,
    TM_LINKS_UNPROVEN_MAX = 128, /* incoming, without a proof yet; the oldest is closed for the next */
    TM_LINKS_OTHERS_MAX = 1200,
    TM_LINK_QUEUE_MAX = 256 << 20,
    TM_LINK_PROOF_LIMIT_MS = 5000, /* from when a connection is made */
    TM_LINK_TOKEN_MAX = 1024,
};

/* Listens on `address` ("127.0.0.1:0" picks a port; NULL: does not listen). `tls` is borrowed, NULL: none; the token is
 * copied. */
int tm_links_create(struct tm_env *env, const char *address, struct tm_tls *tls, const char *token,
                    struct tm_links **out, struct tm_error *e);
void tm_links_destroy(struct tm_links *links);              /* NULL is allowed */
const char *tm_links_address(const struct tm_links *links); /* where it listens; "" */
/* Why the last attempt to connect failed; "" after one that succeeded. */
const char *tm_links_trouble(const struct tm_links *links);

/* Sends a packed message; connects to `address` first where there is no connection (NULL: then it is dropped). Waits
 * for nothing: what cannot be sent yet, also because the connection is still being made, is queued. */
void tm_links_send(struct tm_links *links, const struct tm_peer *to, const char *address, const void *message,
                   size_t length);

/* Three steps, so that no lock is held while waiting: note what to wait for (with the lock), wait until something may
 * have come or the time is up (without it), then take what is there. `each` may send; it may not wait or
 * take. */
struct tm_links_waiting {
    struct tm_watch watches[TM_LINKS_MAX + TM_LINKS_OTHERS_MAX + 2];
    size_t count;
    int64_t timeout_ms;
};
void tm_links_note(struct tm_links *links, int64_t timeout_ms, struct tm_links_waiting *out);
/* Those of further links of this process, too; then tm_links_take of each. */
void tm_links_note_more(struct tm_links *links, struct tm_links_waiting *out);
/* Another handle that ends the wait, too; at most TM_LINKS_OTHERS_MAX, more are ignored. */
void tm_links_also(struct tm_links_waiting *waiting, int handle);
void tm_links_wait(const struct tm_links *links, struct tm_links_waiting *waiting);
typedef void (*tm_links_each_f)(void *context, const tm_message *message);
void tm_links_take(struct tm_links *links, tm_links_each_f each, void *context);
/* The same after a wait: only handles that were ready are read. With many links this saves most of the work. */
void tm_links_take_ready(struct tm_links *links, const struct tm_links_waiting *waiting, tm_links_each_f each,
                         void *context);
/* Ends the wait of another thread, if since its note there is something that it does not wait for yet: a new
 * connection, a queue that did not empty. With the lock. */
void tm_links_wake(struct tm_links *links);
void tm_links_wake_always(struct tm_links *links);
/* Called with a peer whose last connection was lost. */
typedef void (*tm_links_lost_f)(void *context, const struct tm_peer *peer);
void tm_links_on_lost(struct tm_links *links, tm_links_lost_f lost, void *context);

#endif
