/* Shared by mesh_hub.c and mesh_link.c only: a connection, and how two hubs greet each other over it.
 *
 *     dials    -> hello   (generation, from, to, nonce)
 *     answers  <- welcome (its own nonce, proof over all of it)
 *     dials    -> proof   (over all of it)
 *
 * then frames: tag, length, bytes. The hub's thread owns a connection; once it is up, the thread that uses the mesh
 * sends on it. */
#ifndef TM_ENGINE_MESH_HUB_INTERNAL_H
#define TM_ENGINE_MESH_HUB_INTERNAL_H

#include "engine/mesh_hub.h"
#include "wire/proof.h"

#include <stdatomic.h>

enum tm_mesh_link_state {
    LINK_FREE,
    LINK_DIALING, /* hello is on its way, welcome awaited */
    LINK_ASKED,   /* somebody came in: hello awaited */
    LINK_PARKED,  /* its generation is later than ours */
    LINK_PROVING, /* welcome is on its way, proof awaited */
    LINK_UP,
    LINK_LOST, /* kept until nobody can be sending on it */
};

struct tm_mesh_frame {
    uint64_t tag;
    uint64_t length;
};

struct tm_mesh_greeting {
    uint64_t magic;
    uint64_t kind; /* 1 hello, 2 welcome, 3 proof */
    uint64_t job;
    uint64_t generation;
    uint64_t from; /* who dials */
    uint64_t to;
    uint64_t dialer_nonce;
    uint64_t answerer_nonce;
    uint8_t proof[TM_PROOF_BYTES];
};

struct tm_mesh_link {
    enum tm_mesh_link_state state;
    int handle;
    int rank;                         /* of the other side, once it is known which mesh it is for */
    bool knocks;                      /* it only asks the other side to call */
    struct tm_mesh_greeting greeting; /* what both have said so far */
    int64_t deadline_ms;              /* until it must be up */
    struct tm_tls_session *tls;       /* NULL: plain */
    pthread_mutex_t tls_lock;
    pthread_mutex_t sending;
    struct tm_text out; /* raw bytes not yet sent; the sender's once up */
    /* what comes in: a greeting, or head and bytes of a frame */
    struct tm_mesh_greeting greeting_in;
    struct tm_mesh_frame head;
    struct tm_parcel *parcel;
    size_t got;
    struct tm_text plain; /* decrypted, from plain_at on not yet taken */
    size_t plain_at;
};

/* Makes a link of a handle, which is taken over. */
int tm_mesh_link__open(struct tm_mesh_link *link, struct tm_env *env, int handle, struct tm_tls *tls, bool server,
                       struct tm_error *e);
void tm_mesh_link__close(struct tm_mesh_link *link, struct tm_env *env);
/* Puts a greeting of this kind on its way, with a proof for all but hello. */
int tm_mesh_link__greet(struct tm_mesh_link *link, struct tm_env *env, const char *token, uint64_t kind);
/* Takes in a greeting: 1 and link->greeting_in when it is whole, 0 when more must come, else negative. */
int tm_mesh_link__greeted(struct tm_mesh_link *link, struct tm_env *env);
/* Is greeting_in of this kind and proved, and the same as ours in all that was said before? */
bool tm_mesh_link__believes(const struct tm_mesh_link *link, const char *token, uint64_t kind);
/* What is still to be sent of a greeting. Negative: lost. */
int tm_mesh_link__flush(struct tm_mesh_link *link, struct tm_env *env);
/* Puts frames that have come into the inbox, for a while. Negative: lost. */
int tm_mesh_link__read(struct tm_mesh_link *link, struct tm_env *env, struct tm_inbox *inbox);
/* Sends a frame; waits for room. A shut down handle ends it. */
int tm_mesh_link__send(struct tm_mesh_link *link, struct tm_env *env, uint64_t tag, const void *data, size_t length,
                       struct tm_error *e);

#endif
