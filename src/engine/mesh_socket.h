/* A mesh over connections of the environment, TCP or Unix sockets: for workers in processes of their own.
 *
 * Every worker listens; worker 0's address is known to all. The others connect to it, say who they are and where they
 * listen, and are told where all others do; then each connects to every worker of a smaller number. A thread of the
 * mesh reads whatever comes into the inbox, so that nobody who sends waits for somebody to ask. */
#ifndef TM_ENGINE_MESH_SOCKET_H
#define TM_ENGINE_MESH_SOCKET_H

#include "base/env.h"
#include "engine/mesh.h"

struct tm_mesh_socket;

/* Starts to listen on `address` ("127.0.0.1:0", "unix:/path"); `bound` tells where. */
int tm_mesh_socket__listen(struct tm_env *env, const char *address, int *out_listener, char bound[TM_ADDRESS_MAX],
                           struct tm_error *e);

struct tm_mesh_socket_options {
    int rank;
    int size;
    int listener;        /* taken over */
    const char *own;     /* where it listens */
    const char *first;   /* where worker 0 listens */
    uint64_t generation; /* a connection of another one is refused */
    int64_t timeout_ms;  /* until all are connected */
};

/* Connects all with all. The caller owns the result. */
int tm_mesh_socket__create(struct tm_env *env, const struct tm_mesh_socket_options *options,
                           struct tm_mesh_socket **out, struct tm_error *e);
/* Ends connections in order: what was sent before arrives. */
void tm_mesh_socket__destroy(struct tm_mesh_socket *mesh); /* NULL is allowed */
struct tm_mesh *tm_mesh_socket__end(struct tm_mesh_socket *mesh);

#endif
