/* One worker's sockets for the meshes of all generations: its peers reach it there for as long as the process lives.
 *
 * A mesh is formed from the members of a generation, by rank. Forming does not block: the hub's thread connects to
 * members of a smaller rank, accepts those of a larger one, and reads all that comes, so that a sender never waits for
 * a receiver to ask. In a mesh of more than TM_MESH_EAGER_MAX members only those are connected that talk: a member that
 * wants one of a larger rank knocks there (a hello, which is not answered), and is called. A client names the
 * generation: an older one is refused, a later one waits until this worker gets there, too. Both sides prove that they
 * know the job's token; beyond loopback everything uses TLS with the job's certificates.
 *
 * A mesh that was cancelled, or that lost a member, is not repaired: the next generation forms a new one. */
#ifndef TM_ENGINE_MESH_HUB_H
#define TM_ENGINE_MESH_HUB_H

#include "base/env.h"
#include "engine/mesh.h"
#include "wire/tls.h"

enum { TM_MESH_EAGER_MAX = 16 };

struct tm_mesh_hub;

struct tm_mesh_hub_options {
    const char *listen; /* HOST:PORT; port 0 picks one */
    const char *token;  /* copied */
    uint64_t job;
    uint64_t instance;  /* who we are; > 0 */
    struct tm_tls *tls; /* borrowed; NULL: loopback only */
    /* Whose data is waited for, 0 when none is any more. By the thread that uses the mesh; may be NULL. */
    void (*waiting)(void *context, uint64_t instance);
    void *context;
};

/* The caller owns the result. */
int tm_mesh_hub__create(struct tm_env *env, const struct tm_mesh_hub_options *options, struct tm_mesh_hub **out,
                        struct tm_error *e);
void tm_mesh_hub__destroy(struct tm_mesh_hub *hub); /* NULL is allowed */
const char *tm_mesh_hub__address(const struct tm_mesh_hub *hub);

struct tm_mesh_member {
    uint64_t instance;
    const char *endpoint; /* its hub's address; copied */
};

/* The mesh of a generation, later than any before; it belongs to the hub and replaces the one before, which must not be
 * used any more. By the thread that uses the mesh. */
int tm_mesh_hub__form(struct tm_mesh_hub *hub, uint64_t generation, int rank, const struct tm_mesh_member *members,
                      int size, struct tm_mesh **out, struct tm_error *e);
/* How many members it is connected to now. */
int tm_mesh_hub__linked(struct tm_mesh_hub *hub);
/* From any thread: the mesh in force is cancelled at once. */
void tm_mesh_hub__cancel(struct tm_mesh_hub *hub);

#endif
